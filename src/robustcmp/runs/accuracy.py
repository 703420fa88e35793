"""The models' accuracies before any attack: what the caller expects, and what may explain a poor one."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from numbers import Real

import numpy as np
from numpy.typing import NDArray

from ..errors import ModelError, UsageError, unknown
from .blame import blaming
from .causes import POOR, find_cause
from .loading import TrainedModel
from .question import Question

ERRORS = 3  # standard errors by which an expected accuracy may be missed


def read_expected(expected: float | Mapping[str, float] | None, models: Iterable[str]) -> dict[str, float]:
    """Return the accuracies that the caller expects, by the models' names.

    Raises
    ------
    UsageError
        One is no fraction in [0, 1], or a name is no model's.

    Examples
    --------
    >>> read_expected(0.97, ["a", "b"]), read_expected({"a": 0.97}, ["a", "b"])
    ({'a': 0.97, 'b': 0.97}, {'a': 0.97})
    """
    if expected is None:
        return {}
    names = [*models]
    by_name = dict(expected) if isinstance(expected, Mapping) else dict.fromkeys(names, expected)
    for name, accuracy in by_name.items():
        if name not in names:
            raise unknown("model in expected_accuracy", name, names)
        if not isinstance(accuracy, Real) or not 0 <= accuracy <= 1:
            raise UsageError(
                f"expected_accuracy should be a fraction in [0, 1], such as 0.972 for 97.2 %; received {accuracy!r}"
            )
    return {name: float(accuracy) for name, accuracy in by_name.items()}


def explain_accuracies(
    models: Sequence[TrainedModel], question: Question, correct: NDArray[np.bool_]
) -> list[TrainedModel]:
    """Return the models, the least accurate training of each name with the cause that explains it, if one does."""
    least: dict[str, int] = {}
    for place in np.argsort(correct.mean(axis=1), kind="stable").tolist():
        least.setdefault(models[place].name, place)
    explained, images = [*models], question.images
    for name, place in least.items():
        model = models[place]
        what = f"looking for what costs {model.label} accuracy"
        accepted = max(POOR, _least(question.expected.get(name, 0.0), len(images)))
        cause = blaming(what, find_cause, name, model.classifier, images, question.labels, correct[place], accepted)
        explained[place] = replace(model, cause=cause)
    return explained


def _least(expected: float, count: int) -> float:
    """Return the least accuracy on so many images that fits an expected one."""
    return expected - ERRORS * math.sqrt(expected * (1 - expected) / count) - 1 / count


def check_accuracies(expected: Mapping[str, float], models: Sequence[TrainedModel], correct: NDArray[np.bool_]) -> None:
    """Raise `ModelError` for a model that is less accurate than was expected, by more than the images' sampling error.

    An accuracy may be surpassed.
    """
    count = correct.shape[1]
    for model, right in zip(models, correct, strict=True):
        if model.name not in expected:
            continue
        wanted, accuracy = expected[model.name], float(right.mean())
        if accuracy < _least(wanted, count):
            causes = " ".join(other.cause for other in models if other.name == model.name and other.cause)
            raise ModelError(
                f"{model.label} should classify {wanted:.1%} of these images correctly, as was expected of it, and "
                f"classifies {accuracy:.1%} of {count:,}, so nothing was attacked. "
                + (
                    causes
                    or "Usual causes: weights loaded into a design with another activation or another order of layers, "
                    "bounds, mean and std other than in training, the order of channels, the layout, or the order of "
                    "classes. Compare them with the code that trained it, or expect another accuracy of these images."
                ),
                parameters=["expected_accuracy"],
            )

"""The models' accuracies before any attack: what the caller expects, and usual causes of a poor one.

Causes are tried on some images, confirmed on others, named, and never applied.
"""

from __future__ import annotations

import logging
import math
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from numbers import Real
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..data.arrays import UNIT_BOUNDS
from ..errors import ModelError, UsageError, unknown
from ..models.classifier import Classifier, unwrap
from ..models.model import FunctionsModel, Model, logits_outside, preprocess
from .blame import blame
from .loading import TrainedModel
from .question import Question

ERRORS = 3  # standard errors by which an expected accuracy may be missed
POOR = 0.9  # accuracy below which causes are tried; a cause that is named also has to be confirmed
TRIED = 50  # images on which the likely causes are chosen
LIKELY = 2  # causes
CONFIRMED = 150  # other images, on which one of them is confirmed
CAUSE_ERRORS = 2  # standard errors by which a cause changes an accuracy
TRAINED = 0.3  # cross-entropy that a trained network is below where its accuracy is not poor
MUCH = 30  # times smaller is the cross-entropy of a range that is right at the same accuracy
SMOOTHED = 0.001  # of a label, for the other classes: logits 255 times too large cost something without a mistake, too

_log = logging.getLogger("robustcmp")


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


def _explain_accuracies(
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
        cause = blame(what, find_cause, name, model.classifier, images, question.labels, correct[place], accepted)
        explained[place] = replace(model, cause=cause)
    return explained


def _least(expected: float, count: int) -> float:
    """Return the least accuracy on so many images that fits an expected one."""
    return expected - ERRORS * math.sqrt(expected * (1 - expected) / count) - 1 / count


def check_accuracies(
    models: Sequence[TrainedModel], question: Question, correct: NDArray[np.bool_]
) -> list[TrainedModel]:
    """Return the models with causes of poor accuracies.

    Raises
    ------
    ModelError
        One is less accurate than was expected, by more than the images' sampling error; more accurate it may be.
    """
    models, expected = _explain_accuracies(models, question, correct), question.expected
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
    return models


class _Range(NamedTuple):
    """The values that a network may expect: (images - mean) / std, for images in [0, 1], and how `wrap` is told."""

    name: str
    mean: tuple[float, ...]
    std: tuple[float, ...]
    bounds: str = ""


RANGES = (
    _Range("images in [0, 1]", (0,), (1,), "bounds=(0, 1) without mean and std"),
    _Range("images in [0, 255]", (0,), (1 / 255,), "bounds=(0, 255) without mean and std"),
    _Range("images in [-1, 1]", (0.5,), (0.5,), "bounds=(-1, 1) without mean and std"),
    _Range("images normalised as MNIST's", (0.1307,), (0.3081,)),
    _Range("images normalised as CIFAR-10's", (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)),
    _Range("images normalised as ImageNet's", (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
)


class _Cause(NamedTuple):
    """What may be wrong, what to do about it, and the logits (N, K) of images (N, H, W, C) if it is.

    The function also gets the logits as they are, which other labels only rearrange.
    """

    name: str
    remedy: str
    logits: Callable[[NDArray[np.float32], NDArray[np.float32]], NDArray[np.float32]]


class _Score(NamedTuple):
    """Which images (N,) are classified correctly, and the mean cross-entropy with smoothed labels."""

    right: NDArray[np.bool_]
    loss: float


def find_cause(
    name: str,
    classifier: Classifier,
    images: NDArray[np.float32],
    labels: NDArray[np.int64],
    right: NDArray[np.bool_],
    least: float = POOR,
) -> str:
    """Return what probably is wrong with how a model is asked, and what to do; "" if no usual cause explains it.

    It is asked a few hundred images, for all causes where its accuracy is poor, and for the range where one was stated
    and the cross-entropy is large: many networks are nearly as accurate on values 255 times too large.

    Parameters
    ----------
    name : str
        What the model is called.
    classifier : Classifier
        The model, for images in [0, 1].
    images, labels : ndarray
        All images, (N, H, W, C) float32 in [0, 1], and their classes.
    right : ndarray of bool, shape (N,)
        Which of them it classifies correctly.
    least : float
        The accuracy below which it is poor.
    """
    model = unwrap(classifier.model)
    wrapping = _wrapping(model)
    is_poor = right.mean() < least
    if not is_poor and not wrapping:
        return ""
    places = np.unique(np.linspace(0, len(images) - 1, TRIED + CONFIRMED).astype(int))
    is_tried = np.arange(len(places)) % ((TRIED + CONFIRMED) // TRIED) == 0
    tried, confirmed = places[is_tried], places[~is_tried]
    if not len(confirmed):
        return ""
    given = classifier.logits(images[tried])
    if not is_poor and _score(given, labels[tried]).loss < TRAINED:
        return ""
    causes = _causes(classifier, images.shape[1:], given.shape[1], is_poor)
    likely = _likely(causes, images[tried], labels[tried], given)
    if not likely:
        return ""
    logits = classifier.logits(images[confirmed])
    before = _score(logits, labels[confirmed])
    scores = [_score(cause.logits(images[confirmed], logits), labels[confirmed]) for cause in likely]
    after, cause = min(zip(scores, likely, strict=True), key=lambda scored: scored[0].loss)
    if not _explains(before, after, math.log(logits.shape[1])):
        return ""
    return (
        f"{name} is probably not asked as it was trained: {wrapping or 'as it was wrapped'}, it classifies "
        f"{before.right.mean():.1%} of {len(confirmed)} images correctly, at a cross-entropy of {before.loss:.3g}; if "
        f"{cause.name}, {after.right.mean():.1%}, at {after.loss:.3g}. Nothing was changed. If that is so, "
        f"{cause.remedy}."
    )


def _wrapping(model: Any) -> str:
    """Say which range of values was stated for a model, "" where none was, or, of one of Foolbox's own, is known."""
    if not isinstance(model, Model):
        return ""
    (low, high), preprocessing = model.wrapped_as
    normalised = " and its mean and std" if {"mean", "std"} & preprocessing.keys() else ""
    is_stated = (low, high) != UNIT_BOUNDS or normalised
    return f"with bounds ({low:g}, {high:g}){normalised}" if is_stated else ""


def _likely(
    causes: Iterator[_Cause], images: NDArray[np.float32], labels: NDArray[np.int64], given: NDArray[np.float32]
) -> list[_Cause]:
    """Return the causes with the smallest cross-entropies."""
    losses: list[tuple[float, _Cause]] = []
    for cause in causes:
        try:
            losses.append((_score(cause.logits(images, given), labels).loss, cause))
        except Exception as error:  # a network that refuses such images does not expect them
            _log.info("%s cannot be the cause: %s: %s", cause.name, type(error).__name__, error)
    return [cause for _, cause in sorted(losses, key=operator.itemgetter(0))[:LIKELY]]


def _explains(before: _Score, after: _Score, guessed: float) -> bool:
    """Say whether half of the mistakes are gone, or accuracy is the same at the cross-entropy of a trained network.

    `guessed` is the cross-entropy of equal logits.
    """
    gain = int(after.right.sum()) - int(before.right.sum())
    noise = CAUSE_ERRORS * math.sqrt((after.right != before.right).sum())
    if gain > noise:
        return bool((~after.right).sum() <= (~before.right).sum() / 2)
    return gain >= -noise and after.loss < min(before.loss / MUCH, guessed / 2)


def _score(logits: NDArray[np.float32], labels: NDArray[np.int64]) -> _Score:
    z = logits.astype(np.float64)
    z -= z.max(axis=1, keepdims=True)
    true = z[np.arange(len(z)), labels]
    others = (z.sum(axis=1) - true) / (z.shape[1] - 1)
    losses = np.log(np.exp(z).sum(axis=1)) - (1 - SMOOTHED) * true - SMOOTHED * others
    return _Score(logits.argmax(axis=1) == labels, float(losses.mean()))


def _causes(classifier: Classifier, shape: tuple[int, ...], classes: int, is_poor: bool) -> Iterator[_Cause]:
    """Yield what may be wrong with a model for images of a shape (H, W, C): the range alone unless it is poor."""
    height, width, channels = shape
    model = unwrap(classifier.model)
    axis = -3 if classifier.data_format == "channels_first" else -1
    if isinstance(model, Model):
        fitting = [values for values in RANGES if values.bounds or len(values.mean) == channels]
        yield from (_of_range(classifier, model, values, axis) for values in fitting)
    if not is_poor:
        return
    if channels == 3:
        yield _Cause(
            "the order of channels is reversed (RGB, BGR)",
            f'pass preprocessing={{"flip_axis": {axis}}} to robustcmp.wrap, or images[..., ::-1] to robustcmp.evaluate',
            lambda images, _: classifier.logits(np.ascontiguousarray(images[..., ::-1])),
        )
    if height == width:
        yield _Cause(
            "rows and columns are swapped",
            "pass images.transpose(0, 2, 1, 3) to robustcmp.evaluate",
            lambda images, _: classifier.logits(np.ascontiguousarray(images.transpose(0, 2, 1, 3))),
        )
    if channels > 1 and isinstance(model, Model) and not isinstance(model, FunctionsModel):
        yield _of_layout(classifier, model)
    yield from _of_classes(classes)


def _of_range(classifier: Classifier, model: Model, values: _Range, axis: int) -> _Cause:
    preprocessing = {"mean": list(values.mean), "std": list(values.std), "axis": axis}
    wrapping = values.bounds or f"bounds=(0, 1), preprocessing={preprocessing}".replace("'", '"')
    mean, std = (":".join(map(_number, numbers)) for numbers in (values.mean, values.std))
    _, stated = model.wrapped_as
    flip_axis = {"flip_axis": stated.get("flip_axis")}
    return _Cause(
        f"it is given {values.name}",
        f"pass {wrapping} to robustcmp.wrap, or in the command write FILE,mean={mean},std={std}",
        lambda images, _: logits_outside(
            classifier, model, preprocess(classifier, images, UNIT_BOUNDS, preprocessing | flip_axis)
        ),
    )


def _number(number: float) -> str:
    """Return a number as the command takes it.

    >>> _number(1 / 255), _number(0.5)
    ('1/255', '0.5')
    """
    return f"1/{1 / number:g}" if 0 < number < 0.01 else f"{number:g}"


def _of_layout(classifier: Classifier, model: Model) -> _Cause:
    is_first = classifier.data_format == "channels_first"
    other, axes = ("channels_last", (0, 2, 3, 1)) if is_first else ("channels_first", (0, 3, 1, 2))
    return _Cause(
        f"it is given {other.replace('_', ' ')}",
        f'pass data_format="{other}" to robustcmp.wrap',
        lambda images, _: logits_outside(
            classifier, model, preprocess(classifier, images, *model.wrapped_as).transpose(axes)
        ),
    )


def _of_classes(classes: int) -> Iterator[_Cause]:
    """Yield the two orders of classes that are called 0, 1, 2, … or 1, 2, 3, …, where they differ."""
    for first, key in ((0, "str"), (1, "lambda number: str(number + 1)")):
        names = [str(number + first) for number in range(classes)]
        by_text = sorted(range(classes), key=names.__getitem__)
        if by_text == [*range(classes)]:
            continue
        begin = ", ".join(names[number] for number in by_text[:4])
        code = f"sorted(range({classes}), key={key})"
        yield _of_order(
            np.argsort(by_text),
            f"the names of its classes are sorted as text: {begin}, …",
            f"pass numpy.argsort({code})[labels] to robustcmp.evaluate, or write a letter before the name of each "
            "class's folder",
        )
        yield _of_order(
            np.array(by_text),
            f"the names of its classes are sorted as numbers, not as text: {begin}, …",
            f"pass numpy.array({code})[labels] to robustcmp.evaluate, or write zeros before short names of the "
            "classes' folders",
        )


def _of_order(order: NDArray[np.int64], name: str, remedy: str) -> _Cause:
    """Return the cause that a network's class `order[k]` is k among the labels."""
    return _Cause(name, remedy, lambda images, logits: logits[:, order])

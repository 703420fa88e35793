"""The same-weights control: one training, carried into every framework, has to come out alike.

Before a difference between trained models is looked at, the evaluation has to show that it adds none of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from ..attacks.suite import OURS, Suite
from ..errors import UsageError
from .plan import TrainedModel


def agreement(logits: Mapping[str, Sequence[NDArray[np.float32]]]) -> dict[str, float]:
    """Return the largest difference of logits and of predictions between any two frameworks.

    Parameters
    ----------
    logits : dict of str to sequence of ndarray, each (N, K)
        By framework, a model a training, in the same order everywhere.

    Returns
    -------
    dict
        ``logits``: in standard deviations of all logits of the first framework; ``predictions``: the share of images.

    Examples
    --------
    >>> agreement({"a": [np.array([[0.0, 2.0]])], "b": [np.array([[0.0, 2.5]])]})
    {'logits': 0.5, 'predictions': 0.0}
    """
    differences, predictions = [0.0], [0.0]
    for logits_a, logits_b in combinations(logits.values(), 2):
        for a, b in zip(logits_a, logits_b, strict=True):
            differences.append(float(np.abs(b - a).max() / a.std()))
            predictions.append(float((a.argmax(axis=1) != b.argmax(axis=1)).mean()))
    return {"logits": float(np.max(differences)), "predictions": max(predictions)}  # NaN passes nothing


def is_control(models: Sequence[TrainedModel]) -> bool:
    """Say whether several models are the same trainings, carried over, by what is known of each training."""
    trainings: dict[str, list[str | None]] = {}
    for model in models:
        trainings.setdefault(model.name, []).append(model.info.get("sha256"))
    carried = any("same_weights" in model.info for model in models)
    first, *others = trainings.values()
    return bool(others) and carried and None not in first and all(other == first for other in others)


def check_control(models: Sequence[TrainedModel], suite: Suite) -> None:
    """Raise `UsageError` where the same weights are compared by a suite that lacks an attack which has to agree."""
    needed = [name for name, cls in OURS.items() if cls.in_control]
    if is_control(models) and not set(needed) <= {type(attack).__name__ for attack in suite.attacks.values()}:
        raise UsageError(f"the same-weights control needs {' and '.join(needed)}, and the suite lacks one of them")

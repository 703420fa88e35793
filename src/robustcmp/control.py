"""The same-weights control: one training, carried into every framework, has to come out alike.

Before a difference between trained models is looked at, the evaluation has to show that it adds none of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

LARGEST_LOGITS = 1e-4
"""The largest difference of logits, in standard deviations of all of them."""
LARGEST_PREDICTIONS = 1e-3
"""The largest share of images that are taken for another class."""
LARGEST_OUTCOMES = 2e-3
"""The largest share of attacked images that fall in one framework and not in another, under FGSM and single pixel."""
HELD = ("FGSM", "SinglePixel")

PASSED = (
    "Passed: the same weights come out alike, so the evaluation adds nothing of its own. It does not say that a "
    "difference between trained models comes from their frameworks."
)
FAILED = (
    "Not passed: the same weights do not come out alike, so no difference between trained models means anything until "
    "it is known why."
)


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
    for one, other in combinations(logits.values(), 2):
        for a, b in zip(one, other, strict=True):
            differences.append(float(np.abs(b - a).max() / a.std()))
            predictions.append(float((a.argmax(axis=1) != b.argmax(axis=1)).mean()))
    return {"logits": float(np.max(differences)), "predictions": max(predictions)}  # NaN passes nothing


def differing(success: Mapping[str, NDArray[np.bool_]]) -> dict[str, int]:
    """Return, for each pair of frameworks, how many images fall in one and not in the other.

    Parameters
    ----------
    success : dict of str to ndarray of bool, shape (trainings, repeats, images)
        By framework. An image counts once, in however many trainings and repeats it differs.
    """
    return {f"{a}|{b}": int((success[a] != success[b]).any(axis=(0, 1)).sum()) for a, b in combinations(success, 2)}


def verdict(measured: Mapping[str, float], differ: Mapping[str, dict[str, int]], held: Sequence[str], n: int) -> bool:
    """Say whether the control passed; `held` are the attacks of which at most 2 in 1,000 of n images may differ."""
    return (
        measured["logits"] <= LARGEST_LOGITS
        and measured["predictions"] <= LARGEST_PREDICTIONS
        and all(count <= LARGEST_OUTCOMES * n for attack in held for count in differ[attack].values())
    )


def is_control(infos: Mapping[str, Sequence[Mapping[str, Any]]]) -> bool:
    """Say whether several models are the same trainings, carried over, by what is known of each training."""
    trainings = [[info.get("sha256") for info in its] for its in infos.values()]
    carried = any("same_weights" in info for its in infos.values() for info in its)
    return (
        len(trainings) > 1 and carried and None not in trainings[0] and trainings.count(trainings[0]) == len(trainings)
    )

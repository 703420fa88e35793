"""The same-weights control: one training, carried into every framework, has to come out alike.

Before a difference between trained models is looked at, the evaluation has to show that it adds none of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray


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


def is_control(infos: Mapping[str, Sequence[Mapping[str, Any]]]) -> bool:
    """Say whether several models are the same trainings, carried over, by what is known of each training."""
    trainings = [[info.get("sha256") for info in its] for its in infos.values()]
    carried = any("same_weights" in info for its in infos.values() for info in its)
    return (
        len(trainings) > 1 and carried and None not in trainings[0] and trainings.count(trainings[0]) == len(trainings)
    )

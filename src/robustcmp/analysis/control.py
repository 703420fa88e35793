"""Whether the same-weights control passed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .recorded import Recorded

LARGEST_LOGITS = 1e-4
"""The largest difference of logits, in standard deviations of all of them."""


LARGEST_PREDICTIONS = 1e-3
"""The largest share of images whose predicted class differs."""


LARGEST_OUTCOMES = 2e-3
"""The largest share of attacked images that fool one framework and not another, under FGSM and single pixel."""


PASSED = (
    "Passed: the same weights give the same results in every framework, so the evaluation itself adds no difference. "
    "This does not show that a difference between trained models is caused by their frameworks."
)
FAILED = (
    "Not passed: the same weights give different results in these frameworks. Find the cause before you interpret any "
    "difference between trained models."
)


def differing(success: Mapping[str, NDArray[np.bool_]]) -> dict[str, int]:
    """Return, for each pair of frameworks, how many images fool one and not the other.

    Parameters
    ----------
    success : dict of str to ndarray of bool, shape (trainings, repeats, images)
        By framework. An image counts once, in however many trainings and repeats it differs.
    """
    return {f"{a}|{b}": int((success[a] != success[b]).any(axis=(0, 1)).sum()) for a, b in combinations(success, 2)}


def answers_alike(logits: float, predictions: float) -> bool:
    """Say whether networks answer alike, by the largest difference of logits and the share of other predictions."""
    return logits <= LARGEST_LOGITS and predictions <= LARGEST_PREDICTIONS


def verdict(
    measured: Mapping[str, float], differ: Mapping[str, dict[str, int]], control_attacks: Sequence[str], n: int
) -> bool:
    """Say whether the control passed; under each of `control_attacks` at most 2 in 1,000 of n images may differ."""
    return answers_alike(measured["logits"], measured["predictions"]) and all(
        count <= LARGEST_OUTCOMES * n for attack in control_attacks for count in differ[attack].values()
    )


def control(recorded: Recorded) -> dict[str, Any] | None:
    """Return how closely frameworks agree on the same weights, None for a run without the control.

    ``passed``; ``logits``, the largest difference in standard deviations of the logits, and ``predictions``, the
    largest share of the whole test set, between two frameworks; ``differ``, for each attack and pair of frameworks the
    images that fool one and not the other.
    """
    measured = recorded.manifest.get("same_weights")
    if measured is None:
        return None
    differ = {
        attack: differing({model: recorded.values(model, attack) for model in recorded.models})
        for attack in recorded.attacks
    }
    control_attacks = [attack for attack, record in recorded.attack_records.items() if record.in_control]
    passed = verdict(measured, differ, control_attacks, recorded.manifest["images"]["used"])
    return {"passed": passed, **measured, "differ": differ}

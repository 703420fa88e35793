"""How many trainings a comparison has to have to detect a difference, from the variances of a pilot."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas

from ..errors import UsageError, unknown
from .outcomes import Outcomes
from .significance import joint_level, select_deciding
from .statistics import (
    ONE_TRAINING,
    detectable_between_groups,
    detectable_with_variances,
    trainings_needed,
    upper_variance,
)
from .statistics.foundations import check_fraction
from .statistics.power import MOST_TRAININGS
from .verdicts import explain_nothing

if TYPE_CHECKING:
    from .results import Results

COLUMNS = ("attack", "design", "variance", "trainings", "images", "repeats", "detectable", "room", "why")
PILOT = "pilot"
SAME = "same images"
ESTIMATE = "estimate"
UPPER_LIMIT = "upper limit"


def plan(results: Results, difference: float, power: float, attack: str | None) -> pandas.DataFrame:
    """Return the trainings that detect a difference, see `Evaluation.plan`."""
    _check(results, difference, power)
    attacks = [outcomes.attack for outcomes in results.outcomes]
    if attack is not None and attack not in attacks:
        raise unknown("attack", attack, attacks)
    alpha = joint_level(select_deciding(results.tests("frameworks")))
    rows = [
        row
        for outcomes in results.outcomes
        if attack in (None, outcomes.attack)
        for row in _plan_attack(results, outcomes, difference, alpha, power)
    ]
    frame = pandas.DataFrame(rows, columns=list(COLUMNS))
    return frame.astype(dict.fromkeys(("trainings", "images", "repeats"), "Int64"))


def _check(results: Results, difference: float, power: float) -> None:
    check_fraction("difference", difference)
    if not 0 < power < 1:
        raise UsageError(f"power should be above 0 and below 1, received {power!r}", parameters=["power"])
    if results.same_weights:
        raise UsageError("expected a comparison of several trainings as the pilot, received a same-weights control")
    if results.level != "frameworks":
        trainings = [name for name, _ in results.keys]
        received = ", ".join(f"{trainings.count(name)} of {name}" for name in results.sources)
        raise UsageError(
            f"expected a pilot with at least two frameworks and two trainings of each, received {received}. "
            f"{ONE_TRAINING} Compare at least three trainings of each framework first."
        )


def _plan_attack(
    results: Results, outcomes: Outcomes, difference: float, alpha: float, power: float
) -> list[dict[str, Any]]:
    """Return the design of the pilot, and those that a comparison needs."""
    groups = list(outcomes.rates.values())
    detectable = detectable_between_groups(groups, alpha, power)
    why = explain_nothing(outcomes, detectable)
    row: dict[str, Any] = {
        "attack": outcomes.attack,
        "images": outcomes.image_means.shape[1],
        "repeats": 1 if outcomes.deterministic or outcomes.expected else results.repeats(outcomes.attack),
        "room": min(min(rates.mean(), 1 - rates.mean()) for rates in groups),  # how close a mean comes to 0 or 1
        "why": why,
    }
    fewest = min(map(len, groups))
    rows = [row | {"design": PILOT, "variance": ESTIMATE, "trainings": fewest, "detectable": detectable}]
    if why:
        return rows
    variances = np.array([group.var(ddof=1) for group in groups])
    uppers = variances / variances.mean() * upper_variance(groups)
    for label, planned in ((ESTIMATE, variances), (UPPER_LIMIT, uppers)):
        design = row | {"design": SAME, "variance": label}
        trainings = trainings_needed(planned, difference, alpha, power)
        if trainings is None:
            design["why"] = f"more than {MOST_TRAININGS:,} trainings of each framework would be needed"
        else:
            detectable = detectable_with_variances(planned, [trainings] * len(planned), alpha, power)
            design |= {"trainings": trainings, "detectable": detectable}
        rows.append(design)
    return rows

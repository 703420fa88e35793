"""The designs that detect a difference, as a table and in words."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from ..analysis.planning import ESTIMATE, SAME, UPPER_LIMIT
from .format import duration, percent, points, whole
from .table import Column, Table, names

if TYPE_CHECKING:
    import pandas


NUMBERS = ("trainings", "images", "repeats")


def designs(plan: pandas.DataFrame, difference: float, power: float) -> Table:
    """The designs of each attack, with the time or the queries that they cost, as far as these are known."""
    columns = [*names("attack", "design", "variance")]
    columns += [Column(name, whole) for name in NUMBERS]
    columns += [Column("detects (points)", points), _cost(plan)]
    plan = plan.assign(time=plan.seconds + plan.training_seconds.fillna(0))
    cost = "queries" if plan.seconds.isna().all() else "time"
    shown = plan[["attack", "design", "variance", *NUMBERS, "detectable", cost]]
    rows = shown.astype(object).fillna(math.nan).to_numpy().tolist()
    return Table(f"To detect {points(difference)} points with {percent(power, 0)} power", columns, rows)


def _cost(plan: pandas.DataFrame) -> Column:
    if plan.seconds.isna().all():
        return Column("queries", whole)
    return Column("attack time" if plan.training_seconds.isna().all() else "time", duration)


def sentences(plan: pandas.DataFrame, difference: float, power: float) -> list[str]:
    """What the designs mean, and what they rest on."""
    reasons = [f"{row.attack}: {row.why}." for row in plan[plan.why != ""].itertuples()]
    if reasons:
        reasons.append("Plans are for success rates, not for distances.")
    same = plan[plan.design == SAME]
    described = same.room >= difference
    needed = _needed(same[described], difference, power)
    beyond = _beyond(list(dict.fromkeys(same[~described].attack)), difference)
    return [*needed, *beyond, *dict.fromkeys(reasons), _basis(plan)]


def _needed(same: pandas.DataFrame, difference: float, power: float) -> list[str]:
    """The trainings that all attacks need together on the pilot's images, and which of the two numbers to take."""
    estimates, uppers = (
        same[same.variance == label].set_index("attack").trainings for label in (ESTIMATE, UPPER_LIMIT)
    )
    reached = estimates.dropna()
    if reached.empty:
        return _out_of_reach(estimates)
    uppers = uppers[reached.index]
    and_upper = "" if uppers.hasnans else f" and {whole(uppers.max())} by its upper 80 % limit"
    return [
        f"A difference of {points(difference)} points under {', '.join(reached.index)} needs {whole(reached.max())} "
        f"trainings of each framework by the estimated variance{and_upper}, with the images and repeats of the pilot.",
        *_out_of_reach(estimates),
        *_out_of_reach(uppers, " by the upper limit"),
        f"Plan with the upper limit: about 8 of 10 pilots then lead to {percent(power, 0)} power or more. With the "
        "estimate, about half do (Browne 1995).",
    ]


def _out_of_reach(trainings: pandas.Series[int], by: str = "") -> list[str]:
    attacks = ", ".join(trainings.index[trainings.isna()])
    return [f"With the images and repeats of the pilot, not within reach{by} for: {attacks}."] if attacks else []


def _beyond(attacks: list[str], difference: float) -> list[str]:
    """Which attacks have rates so close to 0 or 100 % that the difference changes their variance."""
    if not attacks:
        return []
    return [
        f"Do not rely on the plan for: {', '.join(attacks)}. A rate of the pilot is less than {points(difference)} "
        "points from 0 or 100 %, so its variance does not hold for this difference. Run a pilot with rates near those "
        "in question, or plan for a smaller difference."
    ]


def _basis(plan: pandas.DataFrame) -> str:
    """What the cheapest designs have least of."""
    if plan.seconds.isna().all():
        return "The pilot has no costs: the cheapest design asks the fewest queries, and training counts as free."
    if plan.training_seconds.isna().all():
        return (
            "The cheapest design takes the least time for attacks, at the pilot's speed. Training counts as free: its "
            "time is not known."
        )
    return "The cheapest design takes the least time for training and attack, at the pilot's speed."

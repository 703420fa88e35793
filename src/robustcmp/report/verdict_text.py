"""A verdict in words, for people who read it on a page or in a notebook."""

from __future__ import annotations

import math
from typing import NamedTuple

from ..analysis.results import Results
from ..analysis.verdicts import MEDIANS, Measure, Verdict, together
from .format import distance, p_value, percent, points

KINDS = {True: "different", False: "same", None: "nothing"}
ENOUGH_TRAININGS = 10
"""Of each framework: from here on, what has 80 % power by the formula has about as much in simulations of three."""
NOMINALLY = ", nominally (with few trainings, rather in 6 to 8)"
"""What docs/validity.md has for two to nine trainings of a framework, and for pairs of up to ten."""
NOMINAL = "That is nominal: with few trainings, it would rather be in 6 to 8."
TOGETHER = {True: "frameworks differ", False: "no significant difference", None: "undecided"}
WORDS = {True: "Significant difference", False: "No significant difference", None: "No information"}


class Said(NamedTuple):
    """A verdict in words.

    Attributes
    ----------
    attack : str
        Its name.
    kind : str
        ``"different"``, ``"same"`` or ``"nothing"``.
    word : str
        The verdict in two or three words.
    sentences : list of str
        What it rests on.
    """

    attack: str
    kind: str
    word: str
    sentences: list[str]


def is_nominal(results: Results) -> bool:
    """Whether trainings are too few for what is called detectable to be detected as often as is said."""
    return results.level == "frameworks" and min(map(len, results.outcomes[0].rates.values())) < ENOUGH_TRAININGS


def said(verdict: Verdict, nominal: bool = False) -> Said:
    """Return a verdict in words. It never lacks the difference that would have been detected, or why there is none."""
    sentences = [f"{verdict.why[0].upper()}{verdict.why[1:]}."] if verdict.why else _found(verdict, nominal)
    return Said(verdict.attack, KINDS[verdict.different], WORDS[verdict.different], sentences)


def said_together(results: Results) -> list[str]:
    """Say in a sentence what all attacks together show of frameworks; nothing where only one thing can differ."""
    found = together(results)
    if found is None:
        return []
    rates_vary = any(verdict.measure == "success rate" and not verdict.why for verdict in results.verdicts)
    alone = "success rates and distances" if rates_vary else "distances"
    summed = {"success rates": "success rates", "distances": "these with distances" if len(found.p) > 1 else alone}
    p = ", ".join(f"p {'' if p < 0.001 else '= '}{p_value(p)} from {summed[of]}" for of, p in found.p.items())
    return [f"All attacks together: {TOGETHER[found.different]} ({p}; permuting trainings assumes equal spreads)."]


def _found(verdict: Verdict, nominal: bool) -> list[str]:
    p = f"p {'' if verdict.p_adjusted < 0.001 else '= '}{p_value(verdict.p_adjusted)}".replace(
        " ", "\N{NO-BREAK SPACE}"
    )
    apart, detectable = (_with_unit(verdict, value) for value in (verdict.difference, verdict.detectable))
    by = f"by {apart}{MEASURED[verdict.measure]}"
    first = (
        f"The models differ ({p}): {verdict.easier} is easier to fool than {verdict.harder}, {by}."
        if verdict.different
        else f"The furthest apart are {verdict.easier}, the easier to fool, and {verdict.harder}, {by} ({p})."
    )
    if not verdict.difference:
        alike = "rates are the same" if verdict.measure == "success rate" else "models are alike in their distances"
        first = f"All {alike} ({p})."
    is_out_of_reach = verdict.measure not in MEDIANS.values() and verdict.detectable > 1
    true = "Not even a true difference of 100 points" if is_out_of_reach else f"A true difference of {detectable}"
    seen = (
        f"Only {verdict.few}, too few to say which difference would be detected, or is excluded."
        if verdict.few
        else f"{true} would be detected in 8 of 10 such comparisons."
    )
    sentences = [first, seen, *[NOMINAL] * (nominal and not verdict.few)]
    if not math.isnan(verdict.equivalent_within):
        sentences.append(
            f"Differences of more than {_with_unit(verdict, verdict.equivalent_within)} are excluded "
            "(two one-sided tests, 5 %)."
        )
    if not math.isnan(verdict.seed_share):
        low, high = percent(verdict.seed_low, 0), percent(verdict.seed_high, 0)
        seed = "The training seed, with its draws," if verdict.has_draws else "The training seed"
        sentences.append(
            f"{seed} accounts for {percent(verdict.seed_share, 0)} of the variance between trained models "
            f"(95 % interval {low} to {high})."
        )
    return sentences


def _with_unit(verdict: Verdict, value: float) -> str:
    return distance(value) if verdict.measure in MEDIANS.values() else f"{points(value)} points"


MEASURED: dict[Measure, str] = {
    "success rate": "",
    **{median: f" in the {median} of their trainings" for median in MEDIANS.values()},
    "nearness": " in how often a smaller change fools it than another model",
}

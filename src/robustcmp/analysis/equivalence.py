"""Pairs of models or frameworks that differ by less than a stated margin."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from itertools import combinations
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from ..errors import UsageError, unknown
from .outcomes import Outcomes
from .significance import ALL, ALPHA, Level
from .statistics.equivalence import (
    Equivalence,
    equivalent_frameworks,
    equivalent_models,
    equivalent_twins,
)
from .statistics.foundations import check_fraction

if TYPE_CHECKING:
    import pandas

Compared = Literal["success rates", "distances"]
COLUMNS = ("level", "a", "b", "attack", "n", "difference", "low", "high", "p", "equivalent")


def equivalence(
    outcomes: Iterable[Outcomes], level: Level, margin: float, of: Compared = "success rates"
) -> pandas.DataFrame:
    """Test whether values differ by less than a margin, a row for each pair and for all pairs of an attack.

    Parameters
    ----------
    outcomes : iterable of Outcomes
        One for each attack.
    level : str
        ``"models"`` or ``"frameworks"``.
    margin : float
        In the unit of what is compared: 0.02 is two points of success rates, of which at most 1 is a margin.
    of : str
        ``"success rates"`` or ``"distances"``: the median distances of frameworks' trainings, each in its norm, under
        the attacks that are about distances and whose searches have converged.

    Returns
    -------
    pandas.DataFrame
        level, a, b, attack, n (images or training runs), difference (a's value minus b's), low and high (its 90 %
        interval), p, equivalent (p < 5 %). In the first row of an attack ``a`` is ``"all"``: the pair that is hardest
        to call equivalent. All pairs are equivalent if that one is, which needs no adjustment for their number (Berger
        1982, "Multiparameter hypothesis testing and acceptance sampling").

    Raises
    ------
    UsageError
        The margin is not above 0 or, of success rates, above 1; `of` is neither of the two; or it is distances, and
        models are compared, or no attack has any to compare.
    """
    import pandas

    check_fraction("margin", margin, math.inf if of == "distances" else 1.0)
    if of not in get_args(Compared):
        raise unknown("value", of, get_args(Compared))
    if of == "distances":
        if level == "models":
            raise UsageError(
                "expected level 'frameworks' for distances, received 'models': what is compared are the medians of "
                "frameworks' trainings, two of each or more"
            )
        outcomes = [each for each in outcomes if each.medians]
        reasons = [f"; those of {each.attack} are not: {each.not_compared}" for each in outcomes if each.not_compared]
        outcomes = [each for each in outcomes if not each.not_compared]
        if not outcomes:
            raise UsageError(
                f"no attack of this run has distances to compare{''.join(reasons)}; those of the suite reference have"
            )
    rows = []
    for attack_outcomes in outcomes:
        n = len(attack_outcomes.labels) if level == "frameworks" else attack_outcomes.image_means.shape[1]
        row: dict[str, Any] = {"level": level, "attack": attack_outcomes.attack, "n": n}
        pairs = [
            row | {"a": a, "b": b} | equivalence._asdict() | {"equivalent": equivalence.p < ALPHA}
            for a, b, equivalence in (
                pairs_of_medians(attack_outcomes, margin)
                if of == "distances"
                else pairs_of(attack_outcomes, level, margin)
            )
        ]
        if pairs:
            hardest = max(pairs, key=lambda pair: (pair["p"], max(-pair["low"], pair["high"])))
            rows += [hardest | {"a": ALL, "b": ""}, *pairs]
    return pandas.DataFrame(rows, columns=list(COLUMNS))


def pairs_of(outcomes: Outcomes, level: Level, margin: float) -> Iterator[tuple[str, str, Equivalence]]:
    """Yield every pair with its tests, paired by training where the trainings of two frameworks are twins."""
    if level == "frameworks":
        yield from _of_trainings(outcomes, outcomes.rates, margin, 1.0)
        return
    labels, values = outcomes.labels, outcomes.image_means
    for i, j in combinations(range(len(labels)), 2):
        yield labels[i], labels[j], equivalent_models(values[i] - values[j], margin)


def pairs_of_medians(outcomes: Outcomes, margin: float) -> Iterator[tuple[str, str, Equivalence]]:
    """Yield every pair of frameworks with the tests of their trainings' median distances."""
    yield from _of_trainings(outcomes, outcomes.medians, margin, math.inf)


def _of_trainings(
    outcomes: Outcomes, values: Mapping[str, NDArray[np.float64]], margin: float, largest: float
) -> Iterator[tuple[str, str, Equivalence]]:
    for a, b in combinations(values, 2):
        twin_places = outcomes.pairing(a, b)
        if twin_places is None:
            yield a, b, equivalent_frameworks(values[a], values[b], margin, largest)
        else:
            yield a, b, equivalent_twins(values[a], values[b][twin_places], margin, largest)


def smallest_margin(pairs: Iterable[tuple[str, str, Equivalence]]) -> float:
    """Return the smallest margin within which all pairs are equivalent: the farthest end of their 90 % intervals.

    NaN if an interval has no end.
    """
    margin = max(max(-equivalence.low, equivalence.high) for _, _, equivalence in pairs)
    return margin if math.isfinite(margin) else math.nan

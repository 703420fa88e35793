"""Is the difference real? Tests on two levels that are never mixed, variances, and how far R can be trusted.

*Models*: is this trained network easier to fool than that one, on images like these? The image is the unit.
*Frameworks*: are networks trained in this framework easier to fool? The training run is the unit.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from itertools import combinations
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from ..errors import UsageError
from .outcomes import Outcomes
from .statistics.hypotheses import (
    Evidence,
    cochran_q,
    f_test,
    friedman,
    holm,
    label_permutation,
    mcnemar,
    pooled_t,
    sign_flips,
    sign_test,
)
from .statistics.intervals import difference_intervals

if TYPE_CHECKING:
    import pandas

Level = Literal["models", "frameworks"]
LEVELS: tuple[Level, ...] = ("models", "frameworks")
COLUMNS = ("level", "test", "a", "b", "attack", "n", "statistic", "p", "p_adjusted", "effect", "low", "high")
ALL = "all"
ALPHA = 0.05
RESAMPLES = 10_000


def run_tests(outcomes: Iterable[Outcomes], level: Level | None, resamples: int = RESAMPLES) -> pandas.DataFrame:
    """Test every attack, over all models together and over every pair.

    Parameters
    ----------
    outcomes : iterable of Outcomes
        One for each attack.
    level : str or None
        ``"models"`` or ``"frameworks"``; every level that the data allow for None.
    resamples : int, default 10,000
        Of images, for intervals; and at least of flips and permutations, which many pairs need more of.

    Returns
    -------
    pandas.DataFrame
        One row per test. Joint ones have ``a`` ``"all"``, no ``b`` and NaN for an interval; their ``effect`` is the
        largest rate minus the smallest one, NaN for distances. For pairs it is a's rate minus b's, with its interval
        before adjustment; for distances the share of images on which a is fooled at a smaller L2, minus that for b.
        ``n`` counts images or training runs. ``p_adjusted`` is Holm's over all pairs and attacks of the level, and
        over the joint tests of the level.

    Raises
    ------
    UsageError
        The level is unknown, or the data do not allow it.
    """
    import pandas

    if level not in (None, *LEVELS):
        raise UsageError(f"level should be one of {', '.join(LEVELS)}, received {level!r}")
    outcomes = list(outcomes)
    rows: list[dict[str, Any]] = []
    # The smallest p that flips can give must survive Holm's factor.
    flips = max(resamples, 200 * sum(math.comb(len(attack_outcomes.labels), 2) for attack_outcomes in outcomes))
    if level in (None, "models"):
        tested = [_model_tests(attack_outcomes, resamples, flips) for attack_outcomes in outcomes]
        of_models = [row for attack_rows, _ in tested for row in attack_rows]
        differences = [values for _, attack_differences in tested for values in attack_differences]
        pairs = [row for row in of_models if row["a"] != ALL]
        intervals = difference_intervals(np.array(differences), resamples=resamples) if pairs else []
        for row, (low, high) in zip(pairs, intervals, strict=True):
            row |= {"low": low, "high": high}
        rows += _adjusted(of_models)
    if level == "frameworks" or (level is None and has_framework_level(outcomes)):
        rows += _adjusted(row for attack_outcomes in outcomes for row in _framework_tests(attack_outcomes))
    return pandas.DataFrame(rows, columns=list(COLUMNS))


def has_framework_level(outcomes: Iterable[Outcomes]) -> bool:
    """Say whether there are two frameworks or more, with two trainings of each or more."""
    outcomes = list(outcomes)
    return bool(outcomes) and all(
        len(attack_outcomes.seeds) > 1 and min(map(len, attack_outcomes.seeds.values())) > 1
        for attack_outcomes in outcomes
    )


def _model_tests(
    outcomes: Outcomes, resamples: int, flips: int
) -> tuple[list[dict[str, Any]], list[NDArray[np.float64]]]:
    """Return the tests, and for each pair among them the differences of which an interval is wanted."""
    values, labels = outcomes.image_means, outcomes.labels
    pairs = list(combinations(range(len(labels)), 2))
    if not pairs or not values.size:
        return [], []
    differences = np.array([values[a] - values[b] for a, b in pairs])
    if outcomes.deterministic:
        names = "Cochran's Q", "McNemar, exact"
        fell = values > 0
        each = [mcnemar(fell[a], fell[b]) for a, b in pairs]
        if len(fell) > 2:
            joint = cochran_q(fell)
        else:  # its approximation is coarse where few images differ
            names, joint = (names[1], names[1]), each[0]
    else:
        names = "permutation of models", "sign flips"
        joint, each = label_permutation(values, resamples), sign_flips(differences, flips)
    row: dict[str, Any] = {"level": "models", "attack": outcomes.attack, "n": values.shape[1]}
    rows = [row | _joint(names[0], joint, np.ptp(values.mean(axis=1)))]
    rows += [
        row | _pair(names[1], labels[a], labels[b], test, float(difference.mean()))
        for (a, b), test, difference in zip(pairs, each, differences, strict=True)
    ]
    if outcomes.l2 is None:
        return rows, list(differences)
    distances = np.concatenate([np.median(l2, axis=1) for l2 in outcomes.l2.values()])
    nearer = np.array([np.sign(_finite(distances[b]) - _finite(distances[a])) for a, b in pairs])
    rows.append(row | _joint("Friedman of L2", friedman(distances), math.nan))
    rows += [
        row | _pair("sign test of L2", labels[a], labels[b], sign_test(distances[b], distances[a]), signs.mean())
        for (a, b), signs in zip(pairs, nearer, strict=True)
    ]
    return rows, [*differences, *nearer]


def _finite(distances: NDArray[np.float64]) -> NDArray[np.float64]:
    """Make a failure the farthest of all, so that two of them are equal."""
    return np.where(np.isfinite(distances), distances, np.finfo(np.float64).max)


def _framework_tests(outcomes: Outcomes) -> list[dict[str, Any]]:
    names, groups = list(outcomes.rates), list(outcomes.rates.values())
    row: dict[str, Any] = {"level": "frameworks", "attack": outcomes.attack, "n": sum(map(len, groups))}
    rows = [row | _joint("F", f_test(groups), np.ptp([group.mean() for group in groups]))]
    for a, b in combinations(range(len(groups)), 2):
        statistic, p, *effect = pooled_t(groups, a, b)
        rows.append(row | _pair("t, pooled", names[a], names[b], Evidence(statistic, p), *effect))
    return rows


def _joint(name: str, test: Evidence, effect: float) -> dict[str, Any]:
    return _pair(name, ALL, "", test, effect)


def _pair(
    name: str, a: str, b: str, test: Evidence, effect: float, low: float = math.nan, high: float = math.nan
) -> dict[str, Any]:
    return {"test": name, "a": a, "b": b, **test._asdict(), "effect": float(effect), "low": low, "high": high}


def _adjusted(rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Adjust the p values of one level: those of pairs among themselves, and those of joint tests."""
    rows = list(rows)
    for joint in (True, False):
        family = [row for row in rows if (row["a"] == ALL) == joint]
        for row, p in zip(family, holm([row["p"] for row in family]), strict=True):
            row["p_adjusted"] = p
    return rows

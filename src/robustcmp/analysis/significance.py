"""Is the difference real? Tests on two levels that are never mixed, variances, and how far R can be trusted.

*Models*: is this trained network easier to fool than that one, on images like these? The image is the unit.
*Frameworks*: are networks trained in this framework easier to fool? The training run is the unit.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from ..errors import UsageError
from ..records.attack import NORMS
from .outcomes import Outcomes
from .statistics.foundations import ROUNDING
from .statistics.hypotheses import (
    Difference,
    Evidence,
    brown_forsythe,
    cochran_q,
    f_test,
    friedman,
    holm,
    label_permutation,
    mcnemar,
    paired_t,
    sign_flips,
    sign_test,
    welch_t,
)
from .statistics.intervals import difference_intervals
from .statistics.permutations import permute

if TYPE_CHECKING:
    import pandas

Level = Literal["models", "frameworks"]
LEVELS: tuple[Level, ...] = ("models", "frameworks")
COLUMNS = (
    *("level", "test", "a", "b", "attack", "n", "statistic", "p", "p_adjusted", "effect", "low", "high"),
    "p_westfall_young",
)
ALL = "all"
ALPHA = 0.05
RESAMPLES = 10_000
FEW_DIFFER = 100
"""Images; where fewer differ between models, chi-square is too coarse for Cochran's Q, which is then permuted."""
OF_DISTANCES: dict[str, str] = {norm: f" of {norm}" for norm in NORMS.values()}
"""Ends the names of tests of distances, by their norm."""
BESIDE = "F"
"""Begins the names of the tests that stand beside those that decide: they assume equal spreads."""
SUMMED = "permutation of the summed F"
NOTHING_SAID = Evidence(0.0, math.nan)
"""Of outcomes that are the same for all trained models."""


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
        largest rate minus the smallest one. For pairs it is a's rate minus b's, with its interval before adjustment.
        Of distances, at the level of models it is the share of images on which a is fooled at a smaller distance, minus
        that for b (NaN for the joint test), and at that of frameworks the difference of the mean median distance, in
        the norm of the attack, which the test's name has at its end.
        ``n`` counts images or training runs. Pairs of frameworks whose trainings are twins, each of exactly one in the
        other framework, are tested by a paired t test instead of Welch's.

        ``p_adjusted`` is Holm's over all pairs and attacks of the level, and over the joint tests of the level. A test
        is in neither family, with NaN for both p, if its outcomes are the same for all trained models: exchanging
        models then changes nothing, so this can be said without looking at which model has which outcome. ``"F"``
        rows, a family of their own, assume equal spreads and decide nothing.

        ``p_westfall_young``, for joint tests of frameworks, is adjusted by permutations of the trainings instead
        (`robustcmp.statistics.permute`). Rows with ``attack`` ``"all"`` test all of them at once: their success
        rates, and these with the distances.

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
        rows += _adjust(of_models)
    if level == "frameworks" or (level is None and has_framework_level(outcomes)):
        of_frameworks = _adjust(row for attack_outcomes in outcomes for row in _framework_tests(attack_outcomes))
        rows += [*of_frameworks, *_permute_together(outcomes, of_frameworks, resamples)]
    return pandas.DataFrame(rows, columns=list(COLUMNS))


def select_deciding(tests: pandas.DataFrame) -> pandas.DataFrame:
    """Return of all tests of one level the joint ones that decide, one for each attack and one for its distances."""
    return tests[(tests.a == ALL) & (tests.attack != ALL) & ~tests.test.str.split().str[0].eq(BESIDE)]


def joint_level(tests: pandas.DataFrame) -> float:
    """Return the level of each of the tests that decide: 5 % divided by their number."""
    return ALPHA / max(int(tests.p.notna().sum()), 1)


def of_distances(tests: pandas.DataFrame) -> pandas.Series[bool]:
    """Say which tests are about distances and not about success."""
    return tests.test.str.endswith(tuple(OF_DISTANCES.values()))


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
            if _count_differing(values) < FEW_DIFFER:
                names = "Cochran's Q, permuted", names[1]
                joint = Evidence(joint.statistic, label_permutation(values, resamples).p)
        else:  # its approximation is coarse where few images differ
            names, joint = (names[1], names[1]), each[0]
    else:
        names = "permutation of models", "sign flips"
        joint, each = label_permutation(values, resamples), sign_flips(differences, flips)
    row: dict[str, Any] = {"level": "models", "attack": outcomes.attack, "n": values.shape[1]}
    if not _count_differing(values):
        joint, each = NOTHING_SAID, [NOTHING_SAID] * len(pairs)
    rows = [row | _pair(names[0], ALL, "", joint, np.ptp(values.mean(axis=1)))]
    rows += [
        row | _pair(names[1], labels[a], labels[b], test, float(difference.mean()))
        for (a, b), test, difference in zip(pairs, each, differences, strict=True)
    ]
    if not outcomes.distances:
        return rows, list(differences)
    of = OF_DISTANCES[outcomes.norm]
    distances = np.concatenate([np.median(of_model, axis=1) for of_model in outcomes.distances.values()])
    nearer = np.array([np.sign(_finite(distances[b]) - _finite(distances[a])) for a, b in pairs])
    if _count_differing(distances):
        joint, each = friedman(distances), [sign_test(distances[b], distances[a]) for a, b in pairs]
    else:
        joint, each = NOTHING_SAID, [NOTHING_SAID] * len(pairs)
    rows.append(row | _pair(f"Friedman{of}", ALL, "", joint, math.nan))
    rows += [
        row | _pair(f"sign test{of}", labels[a], labels[b], test, signs.mean())
        for (a, b), test, signs in zip(pairs, each, nearer, strict=True)
    ]
    return rows, [*differences, *nearer]


def _count_differing(values: NDArray[np.float64]) -> int:
    """Return on how many images some models (models, images) differ."""
    return int((values != values[0]).any(axis=0).sum())


def _finite(distances: NDArray[np.float64]) -> NDArray[np.float64]:
    """Make a failure the farthest of all, so that two of them are equal."""
    return np.where(np.isfinite(distances), distances, np.finfo(np.float64).max)


def collect_values(outcomes: Outcomes) -> dict[str, dict[str, NDArray[np.float64]]]:
    """Return what is compared at the level of frameworks: a value for each training run, by framework.

    Success rates, under ``""``, and median distances, under the end of their tests' names, where the attack is about
    distances.
    """
    medians = outcomes.medians
    return {"": outcomes.rates} | ({OF_DISTANCES[outcomes.norm]: medians} if medians else {})


def _framework_tests(outcomes: Outcomes) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for of, values in collect_values(outcomes).items():
        names, groups = list(values), list(values.values())
        row: dict[str, Any] = {"level": "frameworks", "attack": outcomes.attack, "n": sum(map(len, groups))}
        informative = varies(groups)
        largest = math.inf if of else 1.0
        effect = np.ptp([group.mean() for group in groups])
        rows += [
            row | _pair(f"{name}{of}", ALL, "", test(groups) if informative else NOTHING_SAID, effect)
            for name, test in (("Brown-Forsythe", brown_forsythe), (BESIDE, f_test))
        ]
        for a, b in combinations(range(len(groups)), 2):
            name, (statistic, p, *ends) = _of_pair(outcomes, values, names[a], names[b], largest)
            evidence = Evidence(statistic, p) if informative else NOTHING_SAID
            rows.append(row | _pair(f"{name}{of}", names[a], names[b], evidence, *ends))
    return rows


def _of_pair(
    outcomes: Outcomes, values: Mapping[str, NDArray[np.float64]], a: str, b: str, largest: float
) -> tuple[str, Difference]:
    """Return the name and the outcome of the test of two frameworks: paired where their trainings are twins."""
    twin_places = outcomes.match_twins(a, b)
    if twin_places is None:
        return "Welch's t", welch_t(values[a], values[b], largest=largest)
    return "paired t", paired_t(values[a], values[b][twin_places], largest=largest)


def varies(groups: Iterable[NDArray[np.float64]]) -> bool:
    """Say whether not all trainings of all frameworks have the same value; this ignores who has which."""
    values = np.concatenate(list(groups))
    return bool(np.ptp(values) > ROUNDING)


def _permute_together(
    outcomes: Sequence[Outcomes], rows: Sequence[dict[str, Any]], resamples: int
) -> list[dict[str, Any]]:
    """Give joint tests of frameworks their p by permutations of trainings; return the tests of all attacks at once."""
    values = {
        (attack_outcomes.attack, of): list(groups.values())
        for attack_outcomes in outcomes
        for of, groups in collect_values(attack_outcomes).items()
        if varies(groups.values())
    }
    if not values:
        return []
    sizes = [len(group) for group in next(iter(values.values()))]
    runs = {key: np.concatenate(groups) for key, groups in values.items()}
    permuted = permute(np.array(list(runs.values())), sizes, resamples)
    adjusted = dict(zip(values, permuted.adjusted(), strict=True))
    for row in rows:
        of = next((end for end in OF_DISTANCES.values() if row["test"].endswith(end)), "")
        if row["a"] == ALL and row["test"].split()[0] != BESIDE:
            row["p_westfall_young"] = adjusted.get((row["attack"], of), math.nan)
    successes = [position for position, (_, of) in enumerate(runs) if not of]
    joint_tests = {}
    if len(successes) > 1:
        joint_tests[SUMMED] = permuted.joint(successes)
    if len(runs) > max(len(successes), 1):
        ends = dict.fromkeys(of for _, of in runs if of)
        joint_tests[SUMMED + "".join(f" and{of}" for of in ends)] = permuted.joint(range(len(runs)))
    row = {"level": "frameworks", "attack": ALL, "n": sum(sizes)}
    return [
        row | _pair(name, ALL, "", joint, math.nan) | {"p_adjusted": joint.p} for name, joint in joint_tests.items()
    ]


def _pair(
    name: str, a: str, b: str, test: Evidence, effect: float, low: float = math.nan, high: float = math.nan
) -> dict[str, Any]:
    return {"test": name, "a": a, "b": b, **test._asdict(), "effect": float(effect), "low": low, "high": high}


def _adjust(rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Adjust the p values of one level: those of pairs among themselves, those of joint tests, and those beside them.

    What has no p is in no family.
    """
    rows = list(rows)
    families: dict[tuple[bool, bool], list[dict[str, Any]]] = {}
    for row in rows:
        row["p_adjusted"] = math.nan
        if not math.isnan(row["p"]):
            families.setdefault((row["a"] == ALL, row["test"].split()[0] == BESIDE), []).append(row)
    for family in families.values():
        for row, p in zip(family, holm([row["p"] for row in family]), strict=True):
            row["p_adjusted"] = p
    return rows

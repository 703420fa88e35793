"""Is the difference real? Tests on two levels that are never mixed, variances, and how far R can be trusted.

*Models*: is this trained network easier to fool than that one, on images like these? The image is the unit.
*Frameworks*: are networks trained in this framework easier to fool? The training run is the unit.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import combinations
from typing import Any, Literal

import numpy as np
import pandas

from ..errors import UsageError
from ..records.attack import NORMS
from .outcomes import Outcomes
from .statistics import (
    Evidence,
    brown_forsythe,
    cochran_q,
    difference_intervals,
    f_test,
    friedman,
    holm,
    label_permutation,
    mcnemar,
    permute,
    sign_flips,
    sign_test,
    t_test,
)
from .statistics.foundations import ALPHA, ROUNDING, Floats

Level = Literal["models", "frameworks"]
COLUMNS = (
    *("level", "test", "a", "b", "attack", "n", "statistic", "p", "p_adjusted", "effect", "low", "high"),
    "p_westfall_young",
)
ALL = "all"
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
    """Test every attack, over all models together and over every pair; see `Evaluation.tests`.

    `resamples` are of images, for intervals; and at least of flips and permutations, which many pairs need more of.
    """
    if level not in (None, "models", "frameworks"):
        raise UsageError(f"level should be one of models, frameworks, received {level!r}")
    outcomes = list(outcomes)
    rows: list[dict[str, Any]] = []
    if level != "frameworks":
        rows += _test_models(outcomes, resamples)
    if level == "frameworks" or (level is None and has_framework_level(outcomes)):
        rows += _test_frameworks(outcomes, resamples)
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
    trainings = [list(map(len, each.seeds.values())) for each in outcomes]
    return bool(trainings) and all(len(counts) > 1 and min(counts) > 1 for counts in trainings)


def _test_models(outcomes: Sequence[Outcomes], resamples: int) -> list[dict[str, Any]]:
    # The smallest p that flips can give must survive Holm's factor.
    flips = max(resamples, 200 * sum(math.comb(len(each.labels), 2) for each in outcomes))
    rows = []
    for each in outcomes:
        if len(each.labels) > 1 and each.image_means.size:
            rows += _compare_success(each, resamples, flips)
            rows += _compare_distances(each) if each.distances else []
    pairs = [row for row in rows if row["a"] != ALL]
    if pairs:
        intervals = difference_intervals(np.array([row.pop("differences") for row in pairs]), resamples=resamples)
        for row, (low, high) in zip(pairs, intervals, strict=True):
            row |= {"low": low, "high": high}
    return _adjust(rows)


def _compare_success(outcomes: Outcomes, resamples: int, flips: int) -> list[dict[str, Any]]:
    values = outcomes.image_means
    differences = np.array([a - b for a, b in combinations(values, 2)])
    effect = float(np.ptp(values.mean(axis=1)))
    if not outcomes.deterministic:
        joint = label_permutation(values, resamples)
        each = sign_flips(differences, flips)
        return _model_rows(outcomes, values, "permutation of models", joint, effect, "sign flips", each, differences)
    each = [mcnemar(a, b) for a, b in combinations(values > 0, 2)]
    if len(values) == 2:  # Cochran's approximation is coarse where few images differ
        name = "McNemar, exact"
        joint = each[0]
    elif _count_differing(values) < FEW_DIFFER:
        name = "Cochran's Q, permuted"
        joint = Evidence(cochran_q(values > 0).statistic, label_permutation(values, resamples).p)
    else:
        name = "Cochran's Q"
        joint = cochran_q(values > 0)
    return _model_rows(outcomes, values, name, joint, effect, "McNemar, exact", each, differences)


def _compare_distances(outcomes: Outcomes) -> list[dict[str, Any]]:
    distances = outcomes.image_distances
    of = OF_DISTANCES[outcomes.norm]
    finite = np.where(np.isfinite(distances), distances, np.finfo(np.float64).max)  # two failures are equal
    nearer = np.array([np.sign(b - a) for a, b in combinations(finite, 2)])
    each = [sign_test(b, a) for a, b in combinations(distances, 2)]
    joint = friedman(distances)
    return _model_rows(outcomes, distances, f"Friedman{of}", joint, math.nan, f"sign test{of}", each, nearer)


def _model_rows(
    outcomes: Outcomes,
    values: Floats,
    joint_name: str,
    joint: Evidence,
    effect: float,
    pair_name: str,
    each: Sequence[Evidence],
    differences: Floats,
) -> list[dict[str, Any]]:
    """Return the row of a joint test and those of its pairs, each with the differences that its interval is of.

    They say nothing where all models have the same values (models, images).
    """
    if not _count_differing(values):
        joint = NOTHING_SAID
        each = [NOTHING_SAID] * len(each)
    row: dict[str, Any] = {"level": "models", "attack": outcomes.attack, "n": differences.shape[1]}
    rows = [row | _describe(joint_name, ALL, "", joint, effect)]
    for (a, b), test, of_images in zip(combinations(outcomes.labels, 2), each, differences, strict=True):
        rows.append(row | _describe(pair_name, a, b, test, float(of_images.mean())) | {"differences": of_images})
    return rows


def _count_differing(values: Floats) -> int:
    """Return on how many images some models (models, images) differ."""
    return int((values != values[0]).any(axis=0).sum())


def _collect_values(outcomes: Outcomes) -> dict[str, dict[str, Floats]]:
    """Return what is compared at the level of frameworks: a value for each training run, by framework.

    Success rates, under ``""``, and median distances, under the end of their tests' names, where the attack is about
    distances.
    """
    medians = outcomes.medians
    return {"": outcomes.rates} | ({OF_DISTANCES[outcomes.norm]: medians} if medians else {})


def _test_frameworks(outcomes: Sequence[Outcomes], resamples: int) -> list[dict[str, Any]]:
    rows = [
        row
        for each in outcomes
        for of, values in _collect_values(each).items()
        for row in _compare_frameworks(each, of, values)
    ]
    return [*_adjust(rows), *_permute_together(outcomes, rows, resamples)]


def _compare_frameworks(outcomes: Outcomes, of: str, values: dict[str, Floats]) -> list[dict[str, Any]]:
    groups = list(values.values())
    row: dict[str, Any] = {"level": "frameworks", "attack": outcomes.attack, "n": sum(map(len, groups))}
    effect = float(np.ptp([group.mean() for group in groups]))
    rows = [
        row | _describe(f"{name}{of}", ALL, "", test(groups), effect)
        for name, test in (("Brown-Forsythe", brown_forsythe), (BESIDE, f_test))
    ]
    for a, b in combinations(values, 2):
        of_a, of_b, paired = outcomes.pair_up(values, a, b)
        name = "paired t" if paired else "Welch's t"
        statistic, p, *ends = t_test(of_a, of_b, paired=paired, largest=math.inf if of else 1.0)
        rows.append(row | _describe(f"{name}{of}", a, b, Evidence(statistic, p), *ends))
    if not _has_spread(groups):
        rows = [each | NOTHING_SAID._asdict() for each in rows]
    return rows


def _has_spread(groups: Iterable[Floats]) -> bool:
    """Say whether not all trainings of all frameworks have the same value; this ignores who has which."""
    return bool(np.ptp(np.concatenate(list(groups))) > ROUNDING)


def _permute_together(
    outcomes: Sequence[Outcomes], rows: Sequence[dict[str, Any]], resamples: int
) -> list[dict[str, Any]]:
    """Give joint tests of frameworks their p by permutations of trainings; return the tests of all attacks at once."""
    values = {
        (each.attack, of): list(groups.values())
        for each in outcomes
        for of, groups in _collect_values(each).items()
        if _has_spread(groups.values())
    }
    if not values:
        return []
    sizes = [len(group) for group in next(iter(values.values()))]
    permuted = permute(np.array([np.concatenate(groups) for groups in values.values()]), sizes, resamples)
    adjusted = {f"Brown-Forsythe{of}, {attack}": p for (attack, of), p in zip(values, permuted.adjust(), strict=True)}
    for row in rows:
        row["p_westfall_young"] = adjusted.get(f"{row['test']}, {row['attack']}", math.nan)
    successes = [position for position, (_, of) in enumerate(values) if not of]
    joint_tests = {}
    if len(successes) > 1:
        joint_tests[SUMMED] = permuted.joint(successes)
    if len(values) > max(len(successes), 1):
        ends = dict.fromkeys(of for _, of in values if of)
        joint_tests[SUMMED + "".join(f" and{of}" for of in ends)] = permuted.joint(range(len(values)))
    row = {"level": "frameworks", "attack": ALL, "n": sum(sizes)}
    return [
        row | _describe(name, ALL, "", joint, math.nan) | {"p_adjusted": joint.p} for name, joint in joint_tests.items()
    ]


def _describe(
    name: str, a: str, b: str, test: Evidence, effect: float, low: float = math.nan, high: float = math.nan
) -> dict[str, Any]:
    return {"test": name, "a": a, "b": b, **test._asdict(), "effect": effect, "low": low, "high": high}


def _adjust(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Adjust the p values of one level: those of pairs among themselves, those of joint tests, and those beside them.

    What has no p is in no family.
    """
    families: dict[tuple[bool, bool], list[dict[str, Any]]] = {}
    for row in rows:
        row["p_adjusted"] = math.nan
        if not math.isnan(row["p"]):
            families.setdefault((row["a"] == ALL, row["test"].split()[0] == BESIDE), []).append(row)
    for family in families.values():
        for row, p in zip(family, holm([row["p"] for row in family]), strict=True):
            row["p_adjusted"] = p
    return rows

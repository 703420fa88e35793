"""The answer for each attack: is there a difference, which one would have been detected, and which is excluded?"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import combinations
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pandas

from ..errors import UsageError
from .outcomes import Outcomes
from .significance import ALL, SUMMED, Level, joint_level, of_distances, select_deciding
from .statistics import (
    Equivalence,
    detectable_between_groups,
    detectable_between_models,
    equivalent_frameworks,
    equivalent_models,
    nested_variance,
)
from .statistics.foundations import ALPHA, Floats, check_fraction

if TYPE_CHECKING:
    from .results import Results

Measure = Literal["success rate", "median L0", "median L2", "median L∞", "nearness"]
MEDIANS: dict[str, Measure] = {"L0": "median L0", "L2": "median L2", "L∞": "median L∞"}
_FEWEST = 5
"""Successes, and failures, of a framework on average; with fewer, t and F say nothing of which difference is seen."""


@dataclass(frozen=True)
class Verdict:
    """What a comparison found under one attack.

    Attributes
    ----------
    attack : str
        Its name.
    level : str
        ``"frameworks"`` if the training run is the unit of analysis, ``"models"`` if the image is.
    different : bool, optional
        Whether the joint test finds a difference at 5 %, adjusted for the number of attacks; None if the data give no
        information, for the reason in `why`. Distances of a search that has not converged give none.
    why : str
        Why there is no information, "" if there is.
    difference : float
        The largest mean minus the smallest of what `measure` says, in its unit.
    easier, harder : str
        The model that is the easiest to fool, of which most images fall or those need the smallest changes, and the one
        that is the hardest. "" where `difference` is 0 or NaN.
    p_adjusted : float
        The p value of the joint test, adjusted over attacks by Holm's method.
    detectable : float
        The difference that the joint test would have detected with 80 % power, at 5 % divided by the number of
        joint tests; see `robustcmp.statistics.detectable_between_groups`. NaN without information, or for `few`.
    seed_share, seed_low, seed_high : float
        The share of the variance between trained models, on the images of this comparison, that lies between trainings
        of one framework, and its 95 % interval. Part of it is that an image suits one training and not another, which
        more images would average out; for an attack that seldom succeeds, this can be all of it. NaN if `level` is
        ``"models"``, if frameworks have different numbers of trainings, or if the interval would have no width.
    has_draws : bool
        Whether that share includes the attack's draws: each training had its own draws.
    measure : str
        What the verdict is about: ``"success rate"`` in [0, 1]; or, if the success rate of an attack carries no
        information and the attack is about distances, ``"median L2"`` (or the norm of the attack) of the frameworks'
        trainings, or at the level of models ``"nearness"``, the share of the other models that need a larger distance,
        in [0, 1].
    norm : str
        The norm of the distances that it is about, "" for success rates.
    equivalent_within : float
        The smallest margin within which all pairs would be equivalent at 5 % (two one-sided tests; see
        `Results.equivalence`), in the unit of `difference`. NaN without information, for `few`, or where the trainings
        of two frameworks do not vary.
    few : str
        Where the rates of frameworks rest on fewer than five successes or failures each, on average: how many there
        are. Their spread over trainings then says nothing of larger rates, so neither `detectable` nor
        `equivalent_within` is given. "" otherwise.
    """

    attack: str
    level: Level
    different: bool | None
    why: str
    difference: float
    easier: str
    harder: str
    p_adjusted: float
    detectable: float
    seed_share: float = math.nan
    seed_low: float = math.nan
    seed_high: float = math.nan
    has_draws: bool = False
    measure: Measure = "success rate"
    norm: str = ""
    equivalent_within: float = math.nan
    few: str = ""


@dataclass(frozen=True)
class _Together:
    """What frameworks' trainings show over all attacks together, by permutations that assume equal spreads.

    Attributes
    ----------
    p : dict of str to float
        The p value of the summed F, by what is summed: ``"success rates"``, and ``"distances"`` for these with success
        rates.
    different : bool, optional
        Whether they differ. None if it is undecided: a p is below 5 %, but no attack by itself shows a difference, and
        permutations alone, with what they assume, do not decide.
    """

    p: dict[str, float]
    different: bool | None


def together(results: Results) -> _Together | None:
    """Return what all attacks together show, None where fewer than two things about frameworks can differ."""
    if not results.verdicts or results.level != "frameworks":
        return None
    tests = results.tests("frameworks")
    tests = tests[tests.attack == ALL]
    if any(outcomes.not_compared and outcomes.medians for outcomes in results.outcomes):
        tests = tests[tests.test == SUMMED]
    if tests.empty:
        return None
    p = {"success rates" if test == SUMMED else "distances": p for test, p in zip(tests.test, tests.p, strict=True)}
    if min(p.values()) >= ALPHA:
        return _Together(p, False)
    return _Together(p, True if any(verdict.different for verdict in results.verdicts) else None)


def decide(results: Results) -> list[Verdict]:
    """Return a verdict for each attack that every source ran; none for one source, or the same-weights control."""
    if results.same_weights or len(results.sources) < 2:
        return []
    tests = select_deciding(results.tests(results.level))
    alpha = joint_level(tests)
    about_distances = of_distances(tests)
    p_of_success = tests[~about_distances].set_index("attack").p_adjusted
    p_of_distances = tests[about_distances].set_index("attack").p_adjusted
    verdicts = []
    for outcomes in results.outcomes:
        verdict = _judge_success(outcomes, results, p_of_success[outcomes.attack], alpha)
        p = p_of_distances.get(outcomes.attack, math.nan)
        if verdict.different is None and not (results.single_trainings or math.isnan(p)):
            if outcomes.not_compared:
                verdict = replace(verdict, why=f"{verdict.why}; distances are not compared: {outcomes.not_compared}")
            else:
                verdict = _judge_distances(outcomes, results.level, p, alpha)
        has_draws = results.manifest.get("spread", False) and not (outcomes.deterministic or outcomes.expected)
        verdicts.append(replace(verdict, has_draws=has_draws))
    return verdicts


def _judge_success(outcomes: Outcomes, results: Results, p: float, alpha: float) -> Verdict:
    rates = outcomes.rates
    level = results.level
    means = {model: float(of_runs.mean()) for model, of_runs in rates.items()}
    if level == "frameworks":
        detectable = detectable_between_groups(list(rates.values()), alpha)
    else:
        detectable = detectable_between_models(outcomes.image_means, alpha)
    why = explain_nothing(outcomes, detectable)
    if results.single_trainings:
        why = "some frameworks have several trainings and others only one"
    if why:
        return _verdict(outcomes, level, means, math.nan, different=None, why=why, detectable=math.nan)
    few = _few_outcomes(outcomes.image_means, len(rates)) if level == "frameworks" else ""
    if few:
        verdict = _verdict(outcomes, level, means, p, detectable=math.nan, few=few)
    else:
        within = _smallest_margin(_compare_pairs(outcomes, level, 1.0))
        verdict = _verdict(outcomes, level, means, p, detectable=detectable, equivalent_within=within)
    return _with_seed_share(verdict, rates)


def _judge_distances(outcomes: Outcomes, level: Level, p: float, alpha: float) -> Verdict:
    """Return the verdict on the distances of an attack whose success says nothing: the nearest are the most fooled."""
    if level == "models":
        nearness = _measure_nearness(outcomes.image_distances)
        means = dict(zip(outcomes.labels, nearness.mean(axis=1).tolist(), strict=True))
        detectable = detectable_between_models(nearness, alpha)
        return _verdict(outcomes, level, means, p, measure="nearness", norm=outcomes.norm, detectable=detectable)
    medians = outcomes.medians
    verdict = _verdict(
        outcomes,
        level,
        {model: -float(of_runs.mean()) for model, of_runs in medians.items()},
        p,
        measure=MEDIANS[outcomes.norm],
        norm=outcomes.norm,
        detectable=detectable_between_groups(list(medians.values()), alpha),
        equivalent_within=_smallest_margin(_compare_trainings(outcomes, medians, 1.0, math.inf)),
    )
    return _with_seed_share(verdict, medians)


def _measure_nearness(distances: Floats) -> Floats:
    """Return how many other models need a larger distance, as a share, (models, images); ties count half.

    Its differences between models are what Friedman's test is about.
    """
    farther = (distances[None] > distances[:, None]).sum(axis=1)
    equal = (distances[None] == distances[:, None]).sum(axis=1) - 1
    return np.asarray((farther + equal / 2) / max(len(distances) - 1, 1))


def _verdict(outcomes: Outcomes, level: Level, means: Mapping[str, float], p: float, **more: Any) -> Verdict:
    easier = max(means, key=means.__getitem__)
    harder = min(means, key=means.__getitem__)
    difference = means[easier] - means[harder]
    if not difference > 0:
        easier = harder = ""
    known: dict[str, Any] = {"different": bool(p < ALPHA), "why": "", "p_adjusted": float(p)}
    return Verdict(
        attack=outcomes.attack, level=level, difference=difference, easier=easier, harder=harder, **(known | more)
    )


def _with_seed_share(verdict: Verdict, values: Mapping[str, Floats]) -> Verdict:
    """Return a verdict with the share of the variance that lies between trainings, where that can be said."""
    if verdict.level == "models":
        return verdict
    try:
        share = nested_variance(list(values.values()))
    except UsageError:  # frameworks have different numbers of trainings
        return verdict
    estimate, low, high = (float(np.clip(1 - end, 0, 1)) for end in (share.share, share.high, share.low))
    if low == high:  # means nearer to each other than chance puts them; an interval of no width would say too much
        return verdict
    return replace(verdict, seed_share=estimate, seed_low=low, seed_high=high)


def _few_outcomes(values: Floats, frameworks: int) -> str:
    """Say how few successes or failures there are where frameworks have fewer than five each on average, else ""."""
    successes = float(values.sum())
    few, end = min((successes, "succeed"), (values.size - successes, "fail"))
    average = "" if few.is_integer() else " on average"
    return f"{few:,.3g} of {values.size:,} {end}{average}" if few < _FEWEST * frameworks else ""


def explain_nothing(outcomes: Outcomes, detectable: float) -> str:
    """Say why success rates give no information, "" if they do."""
    values = outcomes.image_means
    if (values == 1).all():
        return "the attack succeeds on every image of every model"
    if (values == 0).all():
        return "the attack succeeds on no image of any model"
    if (values == values[0]).all() and not (values == values[0, 0]).all():
        return "the attack succeeds on the same images of every model"
    if math.isnan(detectable):
        return "all trainings of each framework have the same rate, so there is no variance to test against"
    return ""


def find_within_noise(results: Results) -> list[str]:
    """Return the attacks whose joint test is not significant, so that P may rank chance differences of the sources."""
    if results.single_trainings or not results.compares_sources:
        return []
    joint = select_deciding(results.tests(results.level))
    joint = joint[~of_distances(joint)]
    return [str(attack) for attack in joint.attack[~(joint.p_adjusted < ALPHA)]]


COLUMNS = ("level", "a", "b", "attack", "n", "difference", "low", "high", "p", "equivalent")


def tabulate_equivalence(outcomes: Iterable[Outcomes], level: Level, margin: float) -> pandas.DataFrame:
    """Test whether rates differ by less than a margin, a row for each pair and for all pairs of an attack.

    See `Evaluation.equivalence`. All pairs are equivalent if the one is that is hardest to call so, which needs no
    adjustment for their number (Berger 1982, "Multiparameter hypothesis testing and acceptance sampling").
    """
    check_fraction("margin", margin)
    rows = []
    for each in outcomes:
        n = len(each.labels) if level == "frameworks" else each.image_means.shape[1]
        row: dict[str, Any] = {"level": level, "attack": each.attack, "n": n}
        pairs = [
            row | {"a": a, "b": b, "equivalent": test.p < ALPHA} | test._asdict()
            for (a, b), test in _compare_pairs(each, level, margin).items()
        ]
        if pairs:
            hardest = max(pairs, key=lambda pair: (pair["p"], max(-pair["low"], pair["high"])))
            rows += [hardest | {"a": ALL, "b": ""}, *pairs]
    return pandas.DataFrame(rows, columns=list(COLUMNS))


Pairs = dict[tuple[str, str], Equivalence]


def _compare_pairs(outcomes: Outcomes, level: Level, margin: float) -> Pairs:
    """Return the tests of every pair of frameworks or models."""
    if level == "frameworks":
        return _compare_trainings(outcomes, outcomes.rates, margin, 1.0)
    values = dict(zip(outcomes.labels, outcomes.image_means, strict=True))
    return {(a, b): equivalent_models(values[a] - values[b], margin) for a, b in combinations(values, 2)}


def _compare_trainings(outcomes: Outcomes, values: Mapping[str, Floats], margin: float, largest: float) -> Pairs:
    """Return the tests of every pair of frameworks, paired by training where their trainings are twins."""
    pairs = {}
    for a, b in combinations(values, 2):
        of_a, of_b, paired = outcomes.pair_up(values, a, b)
        pairs[a, b] = equivalent_frameworks(of_a, of_b, margin, paired=paired, largest=largest)
    return pairs


def _smallest_margin(pairs: Pairs) -> float:
    """Return the smallest margin within which all pairs are equivalent: the farthest end of their 90 % intervals.

    NaN if an interval has no end.
    """
    margin = max(max(-test.low, test.high) for test in pairs.values())
    return margin if math.isfinite(margin) else math.nan


def find_poor(results: Results) -> dict[str, float]:
    """Return the accuracy of models that classify less than half as many images as the best, or no more than chance.

    Chance is always to answer with the most frequent class.
    """
    accuracies = results.clean_accuracy
    half = max(accuracies.values()) / 2
    images = results.manifest["images"]
    share = images.get("most_frequent")
    chance = -1.0
    if share is not None:
        chance = min(share + 2 * math.sqrt(share * (1 - share) / images["of"]), 1 - 1 / images["of"])
    return {name: accuracy for name, accuracy in accuracies.items() if accuracy < half or accuracy <= chance}

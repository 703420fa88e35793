"""The answer for each attack: is there a difference, which one would have been detected, and which is excluded?"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import combinations
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from ..errors import UsageError, unknown
from .outcomes import Outcomes
from .significance import ALL, ALPHA, SUMMED, Level, joint_level, of_distances, select_deciding
from .statistics.equivalence import (
    Equivalence,
    equivalent_frameworks,
    equivalent_models,
    equivalent_twins,
)
from .statistics.foundations import check_fraction
from .statistics.power import detectable_between_groups, detectable_between_models
from .statistics.variance import nested_variance

if TYPE_CHECKING:
    import pandas

    from .results import Results

Measure = Literal["success rate", "median L0", "median L2", "median L∞", "nearness"]
MEDIANS: dict[str, Measure] = {"L0": "median L0", "L2": "median L2", "L∞": "median L∞"}
FEWEST = 5
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
class Together:
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


def together(results: Results) -> Together | None:
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
        return Together(p, False)
    return Together(p, True if any(verdict.different for verdict in results.verdicts) else None)


def verdicts(results: Results) -> list[Verdict]:
    """Return a verdict for each attack that every source ran; none for one source, or the same-weights control."""
    if results.same_weights or len(results.sources) < 2:
        return []
    tests = select_deciding(results.tests(results.level))
    alpha = joint_level(tests)
    unequal = results.is_uneven
    about_distances = of_distances(tests)
    p_values, p_of_distances = (
        dict(zip(part.attack, part.p_adjusted, strict=True))
        for part in (tests[~about_distances], tests[about_distances])
    )
    answers = []
    for outcomes in results.outcomes:
        verdict = _of_success(outcomes, results.level, p_values[outcomes.attack], alpha, unequal)
        p = p_of_distances.get(outcomes.attack, math.nan)
        if verdict.different is None and not (unequal or math.isnan(p)):
            if outcomes.not_compared:
                verdict = replace(verdict, why=f"{verdict.why}; distances are not compared: {outcomes.not_compared}")
            else:
                verdict = _of_distances(outcomes, results.level, p, alpha)
        has_draws = results.is_spread and not (outcomes.deterministic or outcomes.expected)
        answers.append(replace(verdict, has_draws=has_draws))
    return answers


def _of_success(outcomes: Outcomes, level: Level, p: float, alpha: float, unequal: bool) -> Verdict:
    rates = outcomes.rates
    detectable = (
        detectable_between_groups(list(rates.values()), alpha)
        if level == "frameworks"
        else detectable_between_models(outcomes.image_means, alpha)
    )
    why = why_nothing(outcomes, detectable, unequal)
    means = {model: float(of_runs.mean()) for model, of_runs in rates.items()}
    if why:
        return _verdict(outcomes, level, means, math.nan, math.nan, why=why)
    verdict = _verdict(outcomes, level, means, p, detectable)
    few = too_few(outcomes) if level == "frameworks" else ""
    if few:
        verdict = replace(verdict, detectable=math.nan, few=few)
    else:
        verdict = replace(verdict, equivalent_within=smallest_margin(pairs_of(outcomes, level, 1.0)))
    return _with_seed_share(verdict, rates)


def _of_distances(outcomes: Outcomes, level: Level, p: float, alpha: float) -> Verdict:
    """Return the verdict on the distances of an attack whose success says nothing: the nearest are the most fooled."""
    if level == "frameworks":
        medians = outcomes.medians
        means = {model: -float(of_runs.mean()) for model, of_runs in medians.items()}
        detectable = detectable_between_groups(list(medians.values()), alpha)
        verdict = replace(
            _verdict(outcomes, level, means, p, detectable),
            measure=MEDIANS[outcomes.norm],
            norm=outcomes.norm,
            equivalent_within=smallest_margin(pairs_of_medians(outcomes, 1.0)),
        )
        return _with_seed_share(verdict, medians)
    nearness = outcomes.nearness
    assert nearness is not None
    means = dict(zip(outcomes.labels, nearness.mean(axis=1).tolist(), strict=True))
    detectable = detectable_between_models(nearness, alpha)
    return replace(_verdict(outcomes, level, means, p, detectable), measure="nearness", norm=outcomes.norm)


def _verdict(
    outcomes: Outcomes, level: Level, means: Mapping[str, float], p: float, detectable: float, why: str = ""
) -> Verdict:
    easier, harder = max(means, key=means.__getitem__), min(means, key=means.__getitem__)
    difference = means[easier] - means[harder]
    return Verdict(
        outcomes.attack,
        level,
        None if why else bool(p < ALPHA),
        why,
        difference,
        easier if difference > 0 else "",
        harder if difference > 0 else "",
        float(p),
        detectable,
    )


def _with_seed_share(verdict: Verdict, values: Mapping[str, NDArray[np.float64]]) -> Verdict:
    """Return a verdict with the share of the variance that lies between trainings, where that can be said."""
    if verdict.level == "models":
        return verdict
    try:
        share = nested_variance(list(values.values()))  # type: ignore[arg-type]
    except UsageError:  # frameworks have different numbers of trainings
        return verdict
    estimate, low, high = (float(np.clip(1 - end, 0, 1)) for end in (share.share, share.high, share.low))
    if low == high:  # means nearer to each other than chance puts them; an interval of no width would say too much
        return verdict
    return replace(verdict, seed_share=estimate, seed_low=low, seed_high=high)


def too_few(outcomes: Outcomes) -> str:
    """Say how few successes or failures there are where frameworks have fewer than five each on average, else ""."""
    return few_outcomes(outcomes.image_means, len(outcomes.rates))


def few_outcomes(values: NDArray[np.float64], frameworks: int) -> str:
    """Say the same of how often images fall, of all trainings of so many frameworks."""
    successes = float(values.sum())
    few, what = min((successes, "succeed"), (values.size - successes, "fail"))
    return f"{few:,.3g} of {values.size:,} {what}" if few < FEWEST * frameworks else ""


def why_nothing(outcomes: Outcomes, detectable: float, unequal: bool = False) -> str:
    """Say why success rates give no information, "" if they do; `unequal` if only some frameworks have one training."""
    if unequal:
        return "some frameworks have several trainings and others only one"
    values = outcomes.image_means
    if (values == values[0]).all() and not (values == values[0, 0]).all():
        return "the attack succeeds on the same images of every model"
    if (values == 1).all():
        return "the attack succeeds on every image of every model"
    if (values == 0).all():
        return "the attack succeeds on no image of any model"
    if math.isnan(detectable):
        return "all trainings of each framework have the same rate, so there is no variance to test against"
    return ""


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
        twin_places = outcomes.match_twins(a, b)
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

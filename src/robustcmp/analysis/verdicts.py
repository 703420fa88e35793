"""The answer for each attack: is there a difference, and which difference would have been detected?"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from ..errors import UsageError
from .outcomes import Outcomes
from .significance import ALL, ALPHA, Level
from .statistics.power import detectable_between_groups, detectable_between_models
from .statistics.variance import NestedVariance, nested_variance

if TYPE_CHECKING:
    from .results import Results


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
        information, for the reason in `why`.
    why : str
        Why there is no information, "" if there is.
    difference : float
        The largest mean success rate minus the smallest, in [0, 1].
    highest, lowest : str
        The most and the least easily fooled model.
    p_adjusted : float
        The p value of the joint test, adjusted over attacks by Holm's method.
    detectable : float
        The difference that the joint test would have detected with 80 % power, at 5 % divided by the number of
        attacks; see `robustcmp.statistics.detectable_between_groups`. NaN without information.
    seed_share, seed_low, seed_high : float
        The share of the variance between trained models that lies between trainings of one framework, and its 95 %
        interval; NaN if `level` is ``"models"``, or if frameworks have different numbers of trainings.
    has_draws : bool
        Whether that share includes the attack's draws: each training had its own draws.
    """

    attack: str
    level: Level
    different: bool | None
    why: str
    difference: float
    highest: str
    lowest: str
    p_adjusted: float
    detectable: float
    seed_share: float = math.nan
    seed_low: float = math.nan
    seed_high: float = math.nan
    has_draws: bool = False


def verdicts(results: Results) -> list[Verdict]:
    """Return a verdict for each attack that every model ran; none for one model, or the same-weights control."""
    if results.same_weights or len(results.models) < 2:
        return []
    tests = results.tests(results.level)
    joint = tests[(tests.a == ALL) & ~tests.test.str.contains("L2")]
    p_values = dict(zip(joint.attack, joint.p_adjusted, strict=True))
    alpha = ALPHA / max(len(tests[tests.a == ALL]), 1)
    unequal = results.has_several_trainings and results.level == "models"
    found = [
        _verdict(outcomes, results.level, p_values[outcomes.attack], alpha, unequal) for outcomes in results.outcomes
    ]
    drawn = [results.is_spread and not (each.deterministic or each.expected) for each in results.outcomes]
    return [replace(verdict, has_draws=has_draws) for verdict, has_draws in zip(found, drawn, strict=True)]


def _verdict(outcomes: Outcomes, level: Level, p: float, alpha: float, unequal: bool) -> Verdict:
    means = {model: float(rates.mean()) for model, rates in outcomes.rates.items()}
    highest, lowest = max(means, key=means.__getitem__), min(means, key=means.__getitem__)
    if level == "frameworks":
        detectable = detectable_between_groups(list(outcomes.rates.values()), alpha)
        share = _shares(outcomes)
    else:
        detectable, share = detectable_between_models(outcomes.image_means, alpha), None
    why = _why_nothing(outcomes, detectable, unequal)
    seeds = (1 - share.share, 1 - share.high, 1 - share.low) if share and not why else (math.nan,) * 3
    share_of_seed, low, high = (float(np.clip(value, 0, 1)) for value in seeds)
    return Verdict(
        outcomes.attack,
        level,
        None if why else bool(p < ALPHA),
        why,
        means[highest] - means[lowest],
        highest,
        lowest,
        math.nan if why else float(p),
        math.nan if why else detectable,
        share_of_seed,
        low,
        high,
    )


def _why_nothing(outcomes: Outcomes, detectable: float, unequal: bool) -> str:
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


def _shares(outcomes: Outcomes) -> NestedVariance | None:
    try:
        return nested_variance(list(outcomes.rates.values()))  # type: ignore[arg-type]
    except UsageError:  # frameworks have different numbers of trainings
        return None

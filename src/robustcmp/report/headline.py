"""What a comparison says, in a sentence an attack: is it the framework, or the seed?"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..analysis.outcomes import Outcomes
from ..analysis.results import Results
from ..analysis.significance import ALL
from ..analysis.statistics import ONE_TRAINING
from ..errors import UsageError
from .format import p_value, percent, points


def headline(results: Results) -> list[str]:
    """Return what the comparison says of the frameworks, a sentence an attack: is it the framework, or the seed?"""
    if results.same_weights or len(results.models) < 2:
        return []
    if not results.outcomes:
        return ["No attack ran on every model, so nothing is compared."]
    if results.level != "frameworks":
        return [_too_few(results)]
    sentences: list[str] = []
    shares: dict[Any, Any] = {}
    try:
        shares = results.variance().to_dict("index")
    except UsageError as error:
        sentences.append(f"No shares of variance: {error}")
    return [*sentences, *(_sentence(results, outcomes, shares.get(outcomes.attack)) for outcomes in results.outcomes)]


def _too_few(results: Results) -> str:
    single = results.single_trainings
    if len(single) < len(results.models):
        return f"One training of {', '.join(single)}: nothing can be said of frameworks. Name several --training-seeds."
    return f"{ONE_TRAINING} Name several --training-seeds to ask about frameworks."


def _sentence(results: Results, outcomes: Outcomes, share: dict[str, float] | None) -> str:
    means = [float(rates.mean()) for rates in outcomes.rates.values()]
    within = math.sqrt(np.mean([rates.var(ddof=1) for rates in outcomes.rates.values()]))
    sentence = (
        f"{outcomes.attack}: the framework means differ by at most {points(max(means) - min(means))} points "
        f"({_joint_p(results, outcomes)}); two trainings of one framework differ by {points(within)} points (standard "
        "deviation)."
    )
    if share is None:
        return sentence
    estimate, low, high = (percent(share[end], 0) for end in ("share", "low", "high"))
    sentence += (
        f" The share of the variance between trained models that lies between frameworks is estimated as "
        f"{estimate} ({low} to {high}; for frameworks in general, estimated from {len(means)} of them; wide by "
        "nature)."
    )
    if share["high"] == 0:
        sentence += " Not even 0 % fits: the means are nearer to each other than chance has them in 39 of 40 cases."
    return sentence


def _joint_p(results: Results, outcomes: Outcomes) -> str:
    """Say the p value of the joint test of frameworks, adjusted for the attacks."""
    tests = results.tests("frameworks")
    joint = tests[tests.a == ALL]
    [p] = joint.p_adjusted[joint.attack == outcomes.attack]
    said = p_value(float(p))
    attacks = f"{len(joint)} attack{'s' * (len(joint) != 1)}"
    return f"p {said if said.startswith('<') else f'= {said}'}, joint test, adjusted for {attacks}"

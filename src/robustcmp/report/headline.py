"""What a comparison found, one sentence per attack: is it the framework, or the seed?"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..analysis.outcomes import Outcomes
from ..analysis.results import Results
from ..analysis.significance import deciding, of_distances
from ..analysis.statistics import ONE_TRAINING
from ..errors import UsageError
from . import deployments
from .format import distance, p_value, percent, points
from .verdict_text import said_together


def headline(results: Results) -> list[str]:
    """Return what the comparison found: about the frameworks, one sentence per attack, and about deployed networks."""
    deployed = [deployments.answer(results)] if results.has_deployments else []
    return [*_of_sources(results), *deployed]


def _of_sources(results: Results) -> list[str]:
    if results.same_weights or len(results.sources) < 2:
        return []
    if not results.outcomes:
        return ["No attack ran on every model, so there is nothing to compare."]
    if results.level != "frameworks":
        return [_too_few(results)]
    sentences: list[str] = []
    shares: dict[Any, Any] = {}
    try:
        shares = results.variance().to_dict("index")
    except UsageError as error:
        sentences.append(f"Variance shares are not available: {error}")
    sentences += [_sentence(results, outcomes, shares.get(outcomes.attack)) for outcomes in results.outcomes]
    return [*sentences, *_distances(results), *said_together(results)]


def _too_few(results: Results) -> str:
    if not results.is_of_the_zoo:
        return (
            "The image is the unit of analysis, so a difference is between these particular networks. To compare how "
            "networks were trained, pass several networks of each kind."
        )
    single = results.single_trainings
    if results.is_uneven:
        return (
            f"Only one training of {', '.join(single)}: frameworks cannot be compared. Pass several --training-seeds."
        )
    return f"{ONE_TRAINING} Pass several --training-seeds to compare frameworks."


def _sentence(results: Results, outcomes: Outcomes, share: dict[str, float] | None) -> str:
    means = {name: float(rates.mean()) for name, rates in outcomes.rates.items()}
    within = math.sqrt(np.mean([rates.var(ddof=1) for rates in outcomes.rates.values()]))
    sentence = (
        f"{outcomes.attack}: the framework means differ by at most {points(max(means.values()) - min(means.values()))} "
        f"points{_direction(means)} ({_joint_p(results, outcomes)}); the standard deviation between trainings of one "
        f"framework is {points(within)} points."
    )
    if share is None:
        return sentence
    estimate, low, high = (percent(share[end], 0) for end in ("share", "low", "high"))
    sentence += (
        f" Frameworks account for an estimated {estimate} of the variance between trained models (95 % interval {low} "
        f"to {high}, wide because it generalises from only {len(means)} frameworks)."
    )
    if share["high"] == 0:
        sentence += " Even 0 % is too much: in 39 of 40 cases chance alone would put the means further apart."
    return sentence


def _direction(ease: dict[str, float]) -> str:
    """Name the easiest and the hardest to fool, by numbers that are larger for what is easier; "" if all are alike."""
    easier, harder = max(ease, key=ease.__getitem__), min(ease, key=ease.__getitem__)
    return f", {easier} the easiest to fool and {harder} the hardest" if ease[easier] > ease[harder] else ""


def _joint_p(results: Results, outcomes: Outcomes) -> str:
    """Say the p value of the joint test of frameworks, adjusted for the attacks."""
    joint = deciding(results.tests("frameworks"))
    joint = joint[~of_distances(joint) & (joint.attack == outcomes.attack)]
    [p] = joint.p_adjusted
    if math.isnan(p):
        return "no test, as all trained models have the same rate"
    return f"p {_with_sign(float(p))}, joint test, adjusted for {_family(results)}"


def _family(results: Results) -> str:
    """Say for how many joint tests their p is adjusted."""
    joint = deciding(results.tests("frameworks"))
    joint = joint[joint.p.notna()]
    attacks = [
        f"{count} {what}{'s' * (count != 1)}"
        for count, what in (
            (int((~of_distances(joint)).sum()), "attack"),
            (int(of_distances(joint).sum()), "distance"),
        )
        if count
    ]
    return " and ".join(attacks)


def _distances(results: Results) -> list[str]:
    """Say how far median distances are apart, an attack a sentence."""
    joint = deciding(results.tests("frameworks"))
    p_values = joint[of_distances(joint) & joint.p.notna()].set_index("attack").p_adjusted.to_dict()
    sentences = []
    for outcomes in results.outcomes:
        if outcomes.attack not in p_values:
            continue
        if outcomes.not_compared:
            sentences.append(f"{outcomes.attack}: distances are not compared: {outcomes.not_compared}.")
            continue
        nearness = {name: -float(medians.mean()) for name, medians in outcomes.medians.items()}
        apart = max(nearness.values()) - min(nearness.values())
        sentences.append(
            f"{outcomes.attack}: the frameworks' means of their trainings' median {outcomes.norm} differ by at most "
            f"{distance(apart)}{_direction(nearness)} (p {_with_sign(p_values[outcomes.attack])}, joint test, "
            f"adjusted for {_family(results)})."
        )
    return sentences


def _with_sign(p: float) -> str:
    said = p_value(p)
    return said if said.startswith("<") else f"= {said}"

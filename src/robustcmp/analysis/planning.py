"""How large a comparison has to be to detect a difference, from the variances and the costs of a pilot."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..errors import UsageError, unknown
from .outcomes import Outcomes
from .significance import joint_level, select_deciding
from .statistics.foundations import ONE_TRAINING, check_fraction
from .statistics.power import (
    MOST_TRAININGS,
    detectable_between_groups,
    detectable_with_variances,
    trainings_needed,
)
from .statistics.variance import RateVariance, rate_variance, upper_variance
from .verdicts import explain_nothing

if TYPE_CHECKING:
    import pandas

    from .results import Results

COLUMNS = (
    *("attack", "design", "variance", "trainings", "images", "repeats", "detectable"),
    *("seconds", "training_seconds", "queries", "room", "why"),
)
PILOT, SAME, CHEAPEST = "pilot", "same images", "cheapest"
ESTIMATE, UPPER_LIMIT = "estimate", "upper limit"
FEWEST_IMAGES = 100
REPEATS = (1, 2, 5, 10)


class Design(NamedTuple):
    """The size of a comparison: trainings of each framework, images, and repeats on each training."""

    trainings: int
    images: int
    repeats: int


class Goal(NamedTuple):
    """A difference in the unit of the rates, the level of the joint test, and the probability of detection."""

    difference: float
    alpha: float
    power: float


@dataclass(frozen=True)
class Prices:
    """What a comparison costs for one training of each framework.

    Attributes
    ----------
    seconds, queries : float
        Of an attack, for one image in one repeat. NaN if not known.
    training : float
        The seconds that it takes to train the models. NaN if not known.
    """

    seconds: float = math.nan
    queries: float = math.nan
    training: float = math.nan

    def of(self, design: Design) -> dict[str, float]:
        """Return what a design costs: seconds and queries of the attack, and seconds of the trainings."""
        outcomes = math.prod(design)
        return {
            "seconds": self.seconds * outcomes,
            "training_seconds": self.training * design.trainings,
            "queries": self.queries * outcomes,
        }

    def total(self, design: Design) -> float:
        """Return what the cheapest design has least of: seconds, or queries, or outcomes, by what is known."""
        costs = self.of(design)
        seconds = costs["seconds"] + np.nan_to_num(costs["training_seconds"])
        known = [value for value in (seconds, costs["queries"]) if not math.isnan(value)]
        return float(known[0]) if known else math.prod(design)


@dataclass(frozen=True)
class Pilot:
    """What a pilot says of one attack.

    Attributes
    ----------
    design : Design
        Its size, with the fewest trainings of a framework.
    estimate, upper : RateVariance
        The variance of a trained model's rate, and with that between trainings at its upper limit.
    ratios : ndarray of float64, shape (frameworks,)
        The variance within each framework, relative to the mean of all. A plan keeps it.
    more_repeats : bool
        Whether a design with other repeats can be judged.
    """

    design: Design
    estimate: RateVariance
    upper: RateVariance
    ratios: NDArray[np.float64]
    more_repeats: bool

    def variances(self, variance: RateVariance, images: int, repeats: int) -> NDArray[np.float64]:
        """Return the variance of a trained model's rate within each framework in a design."""
        return self.ratios * variance.at(images, repeats)

    def needed(self, variance: RateVariance, images: int, repeats: int, goal: Goal) -> Design | None:
        """Return the design with the fewest trainings that reaches a goal, None if that is out of reach."""
        trainings = trainings_needed(self.variances(variance, images, repeats), *goal)
        return None if trainings is None else Design(trainings, images, repeats)

    def repeats(self) -> list[int]:
        """Return the repeats that designs may have."""
        return sorted({*REPEATS, self.design.repeats}) if self.more_repeats else [self.design.repeats]


def measure_pilot(outcomes: Outcomes, own_draws: bool) -> Pilot:
    """Return what a comparison says of the variances under one attack.

    Parameters
    ----------
    outcomes : Outcomes
        Of two or more trainings of each framework, whose rates are not all the same.
    own_draws : bool
        Whether each training has draws of its own.
    """
    random = not (outcomes.deterministic or outcomes.expected)
    if outcomes.expected:
        values = [falls[:, None] for falls in outcomes.expected.values()]
    else:
        values = [success.astype(np.float64) for success in outcomes.success.values()]
        values = values if random else [success[:, :1] for success in values]
    groups = list(outcomes.rates.values())
    estimate = rate_variance(values, own_draws)
    _, repeats, images = values[0].shape
    of_images = estimate._replace(training=0.0).at(images, repeats)
    upper = estimate._replace(training=max(upper_variance(groups) - of_images, 0.0))
    variances = np.array([group.var(ddof=1) for group in groups])
    design = Design(min(map(len, groups)), images, repeats)
    return Pilot(design, estimate, upper, variances / variances.mean(), random and repeats > 1)


def plan(
    results: Results, difference: float, power: float, attack: str | None, training_seconds: float
) -> pandas.DataFrame:
    """Return the designs that detect a difference, see `Results.plan`."""
    import pandas

    _check(results, difference, power)
    if attack is not None and attack not in results.source_attacks:
        raise unknown("attack", attack, results.source_attacks)
    goal = Goal(difference, joint_level(select_deciding(results.tests("frameworks"))), power)
    rows = [
        {"attack": outcomes.attack, "room": _room(outcomes)} | row
        for outcomes in results.outcomes
        if attack in (None, outcomes.attack)
        for row in _rows(results, outcomes, goal, training_seconds)
    ]
    frame = pandas.DataFrame(rows, columns=list(COLUMNS))
    return frame.astype(dict.fromkeys(Design._fields, "Int64"))


def _check(results: Results, difference: float, power: float) -> None:
    check_fraction("difference", difference)
    if not 0 < power < 1:
        raise UsageError(f"power should be above 0 and below 1, received {power!r}", parameters=["power"])
    if results.same_weights:
        raise UsageError("expected a comparison of several trainings as the pilot, received a same-weights control")
    if results.level != "frameworks":
        trainings = [model["name"] for model in results.manifest["models"]]
        received = ", ".join(f"{trainings.count(name)} of {name}" for name in results.sources)
        raise UsageError(
            f"expected a pilot with at least two frameworks and two trainings of each, received {received}. "
            f"{ONE_TRAINING} Compare at least three trainings of each framework first."
        )


def _rows(results: Results, outcomes: Outcomes, goal: Goal, training_seconds: float) -> Iterator[dict[str, Any]]:
    """Yield the design of the pilot, and those that a comparison needs."""
    groups = list(outcomes.rates.values())
    detectable = detectable_between_groups(groups, goal.alpha, goal.power)
    prices = _prices(results, outcomes, training_seconds)
    repeats = 1 if outcomes.deterministic or outcomes.expected else results.repeats(outcomes.attack)
    design = Design(min(map(len, groups)), outcomes.image_means.shape[1], repeats)
    row = {"design": PILOT, "variance": ESTIMATE, "why": explain_nothing(outcomes, detectable)}
    yield row | design._asdict() | {"detectable": detectable} | prices.of(design)
    if row["why"]:
        return
    pilot = measure_pilot(outcomes, results.is_spread)
    grid = {SAME: [pilot.design.images], CHEAPEST: image_numbers(pilot.design.images, _available(results))}
    for name, numbers in grid.items():
        for label, variance in ((ESTIMATE, pilot.estimate), (UPPER_LIMIT, pilot.upper)):
            repeated = pilot.repeats() if name == CHEAPEST else [pilot.design.repeats]
            chosen = cheapest(pilot, variance, numbers, repeated, prices, goal)
            yield {"design": name, "variance": label} | _describe(pilot, variance, chosen, prices, goal)


def _describe(
    pilot: Pilot, variance: RateVariance, design: Design | None, prices: Prices, goal: Goal
) -> dict[str, Any]:
    if design is None:
        return {"why": f"more than {MOST_TRAININGS:,} trainings of each framework would be needed"}
    variances = pilot.variances(variance, design.images, design.repeats)
    trainings = [design.trainings] * len(variances)
    detectable = detectable_with_variances(variances, trainings, goal.alpha, goal.power)
    return design._asdict() | {"detectable": detectable, "why": ""} | prices.of(design)


def cheapest(
    pilot: Pilot,
    variance: RateVariance,
    images: Iterable[int],
    repeats: Iterable[int],
    prices: Prices,
    goal: Goal,
) -> Design | None:
    """Return the cheapest design that reaches a goal, None if each needs too many trainings."""
    repeats = list(repeats)
    designs = [pilot.needed(variance, n, r, goal) for n in images for r in repeats]
    return min(filter(None, designs), key=lambda design: (prices.total(design), design), default=None)


def image_numbers(of_pilot: int, available: int) -> list[int]:
    """Return the numbers of images that designs may have: 100, 200, 500, …, the pilot's, and all that there are.

    >>> image_numbers(300, 963)
    [100, 200, 300, 500, 963]
    """
    largest = max(of_pilot, available)
    steps = [step * 10**k for k in range(2, len(str(largest))) for step in (1, 2, 5)]
    return sorted({of_pilot, largest, *(n for n in steps if FEWEST_IMAGES <= n <= largest)})


def _available(results: Results) -> int:
    """Return how many images could be attacked: those that every model of the pilot classifies correctly, or all."""
    images = results.manifest["images"]
    return int(images["of"]) if results.on_all_images else round(images["of"] * images["correct_by_all"])


def _room(outcomes: Outcomes) -> float:
    """Return how close a framework's mean rate comes to 0 or 1."""
    means = np.array([rates.mean() for rates in outcomes.rates.values()])
    return float(np.minimum(means, 1 - means).min())


def _prices(results: Results, outcomes: Outcomes, training_seconds: float) -> Prices:
    """Return what an attack cost in the pilot: the median over the trainings of each framework, and the mean queries.

    Where the expectation over draws is known, repeats share all answers, and an image costs the same for any number.
    """
    log = results.costs()
    log = log[(log.attack == outcomes.attack) & log.model.isin(results.sources)]
    trainings = log.assign(outcomes=log.images * log.repeats).groupby(["model", "training_seed"])
    attacked = trainings.images.max() if outcomes.expected else trainings.outcomes.sum()
    medians = (trainings.seconds.sum() / attacked).groupby("model").median()
    asked = np.concatenate([results.values(model, outcomes.attack, "queries").ravel() for model in results.sources])
    frameworks = len(results.sources)
    return Prices(
        frameworks * float(medians.mean()),
        frameworks * float(asked.mean()) if (asked >= 0).all() else math.nan,
        frameworks * training_seconds,
    )

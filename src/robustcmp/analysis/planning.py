"""How large a comparison has to be to detect a difference, from the variances and the costs of a pilot."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas
from numpy.typing import NDArray

from ..errors import UsageError, unknown
from .outcomes import Outcomes
from .significance import joint_level, select_deciding
from .statistics import (
    ONE_TRAINING,
    RateVariance,
    detectable_between_groups,
    detectable_with_variances,
    rate_variance,
    trainings_needed,
    upper_variance,
)
from .statistics.foundations import check_fraction
from .statistics.power import MOST_TRAININGS
from .verdicts import explain_nothing

if TYPE_CHECKING:
    from .results import Results

COLUMNS = (
    *("attack", "design", "variance", "trainings", "images", "repeats", "detectable"),
    *("seconds", "training_seconds", "queries", "room", "why"),
)
COST_COLUMNS = ("model", "training_seed", "attack", "repeats", "images", "seconds", "queries", "worker")
PILOT = "pilot"
SAME = "same images"
CHEAPEST = "cheapest"
ESTIMATE = "estimate"
UPPER_LIMIT = "upper limit"
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


class Prices(NamedTuple):
    """What a comparison costs for one training of each framework; NaN for what is not known.

    Attributes
    ----------
    seconds, queries : float
        Of an attack, for one image in one repeat.
    training : float
        The seconds that it takes to train the models.
    """

    seconds: float = math.nan
    queries: float = math.nan
    training: float = math.nan

    def of(self, design: Design) -> dict[str, float]:
        """Return what a design costs: seconds and queries of the attack, and seconds of the trainings."""
        outcomes = math.prod(design)
        training_seconds = self.training * design.trainings
        return {
            "seconds": self.seconds * outcomes,
            "training_seconds": training_seconds,
            "queries": self.queries * outcomes,
        }

    def total(self, design: Design) -> float:
        """Return what the cheapest design has least of: seconds, or queries, or outcomes, by what is known."""
        costs = self.of(design)
        seconds = costs["seconds"] + np.nan_to_num(costs["training_seconds"])
        figures = [value for value in (seconds, costs["queries"]) if not math.isnan(value)]
        return float(figures[0]) if figures else math.prod(design)


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
    """

    design: Design
    estimate: RateVariance
    upper: RateVariance
    ratios: NDArray[np.float64]

    def variances(self, variance: RateVariance, images: int, repeats: int) -> NDArray[np.float64]:
        """Return the variance of a trained model's rate within each framework in a design."""
        return self.ratios * variance.at(images, repeats)

    def find_design(self, variance: RateVariance, images: int, repeats: int, goal: Goal) -> Design | None:
        """Return the design with the fewest trainings that reaches a goal, None if that is out of reach."""
        trainings = trainings_needed(self.variances(variance, images, repeats), *goal)
        return None if trainings is None else Design(trainings, images, repeats)

    def repeats(self) -> list[int]:
        """Return the repeats that designs may have; one repeat says nothing of what more would do."""
        return sorted({*REPEATS, self.design.repeats}) if self.design.repeats > 1 else [1]


def measure_pilot(outcomes: Outcomes, own_draws: bool) -> Pilot:
    """Return what a comparison says of the variances under one attack, whose rates are not all the same.

    `own_draws` says whether each training has draws of its own.
    """
    values = [success.astype(np.float64) for success in outcomes.success.values()]
    if outcomes.expected:
        values = [falls[:, None] for falls in outcomes.expected.values()]
    elif outcomes.deterministic:
        values = [success[:, :1] for success in values]
    groups = list(outcomes.rates.values())
    _, repeats, images = values[0].shape
    estimate = rate_variance(values, own_draws)
    of_images = estimate._replace(training=0.0).at(images, repeats)
    upper = estimate._replace(training=max(upper_variance(groups) - of_images, 0.0))
    variances = np.array([group.var(ddof=1) for group in groups])
    design = Design(min(map(len, groups)), images, repeats)
    return Pilot(design, estimate, upper, variances / variances.mean())


def plan(
    results: Results, difference: float, power: float, attack: str | None, training_seconds: float
) -> pandas.DataFrame:
    """Return the designs that detect a difference, see `Evaluation.plan`."""
    _check(results, difference, power)
    attacks = [outcomes.attack for outcomes in results.outcomes]
    if attack is not None and attack not in attacks:
        raise unknown("attack", attack, attacks)
    goal = Goal(difference, joint_level(select_deciding(results.tests("frameworks"))), power)
    rows = []
    for outcomes in results.outcomes:
        if attack in (None, outcomes.attack):
            rows += _plan_attack(results, outcomes, goal, training_seconds)
    frame = pandas.DataFrame(rows, columns=list(COLUMNS))
    return frame.astype(dict.fromkeys(Design._fields, "Int64"))


def _check(results: Results, difference: float, power: float) -> None:
    check_fraction("difference", difference)
    if not 0 < power < 1:
        raise UsageError(f"power should be above 0 and below 1, received {power!r}", parameters=["power"])
    if results.same_weights:
        raise UsageError("expected a comparison of several trainings as the pilot, received a same-weights control")
    if results.level != "frameworks":
        trainings = [name for name, _ in results.keys]
        received = ", ".join(f"{trainings.count(name)} of {name}" for name in results.sources)
        raise UsageError(
            f"expected a pilot with at least two frameworks and two trainings of each, received {received}. "
            f"{ONE_TRAINING} Compare at least three trainings of each framework first."
        )


def _plan_attack(results: Results, outcomes: Outcomes, goal: Goal, training_seconds: float) -> list[dict[str, Any]]:
    """Return the design of the pilot, and those that a comparison needs."""
    groups = list(outcomes.rates.values())
    detectable = detectable_between_groups(groups, goal.alpha, goal.power)
    prices = _measure_prices(results, outcomes, training_seconds)
    repeats = 1 if outcomes.deterministic or outcomes.expected else results.repeats(outcomes.attack)
    design = Design(min(map(len, groups)), outcomes.image_means.shape[1], repeats)
    why = explain_nothing(outcomes, detectable)
    room = min(min(rates.mean(), 1 - rates.mean()) for rates in groups)  # how close a mean rate comes to 0 or 1
    about = {"attack": outcomes.attack, "room": room, "why": why}
    row = about | {"design": PILOT, "variance": ESTIMATE, "detectable": detectable}
    rows = [row | design._asdict() | prices.of(design)]
    if why:
        return rows
    pilot = measure_pilot(outcomes, results.manifest.get("spread", False))
    available = results.manifest["images"]["of"]
    if not results.on_all_images:
        available = round(available * results.manifest["images"]["correct_by_all"])
    grids = {
        SAME: ([pilot.design.images], [pilot.design.repeats]),
        CHEAPEST: (_image_numbers(pilot.design.images, available), pilot.repeats()),
    }
    for name, (numbers, choices) in grids.items():
        for label, variance in ((ESTIMATE, pilot.estimate), (UPPER_LIMIT, pilot.upper)):
            chosen = find_cheapest(pilot, variance, numbers, choices, prices, goal)
            row = about | {"design": name, "variance": label}
            rows.append(row | _describe(pilot, variance, chosen, prices, goal))
    return rows


def _describe(
    pilot: Pilot, variance: RateVariance, design: Design | None, prices: Prices, goal: Goal
) -> dict[str, Any]:
    if design is None:
        return {"why": f"more than {MOST_TRAININGS:,} trainings of each framework would be needed"}
    variances = pilot.variances(variance, design.images, design.repeats)
    trainings = [design.trainings] * len(variances)
    detectable = detectable_with_variances(variances, trainings, goal.alpha, goal.power)
    return design._asdict() | {"detectable": detectable} | prices.of(design)


def find_cheapest(
    pilot: Pilot,
    variance: RateVariance,
    images: Iterable[int],
    repeats: Iterable[int],
    prices: Prices,
    goal: Goal,
) -> Design | None:
    """Return the cheapest design that reaches a goal, None if each needs too many trainings."""
    repeats = list(repeats)
    designs = [pilot.find_design(variance, n, r, goal) for n in images for r in repeats]
    return min(filter(None, designs), key=lambda design: (prices.total(design), design), default=None)


def _image_numbers(of_pilot: int, available: int) -> list[int]:
    """Return the numbers of images that designs may have: 100, 200, 500, …, the pilot's, and all that there are."""
    largest = max(of_pilot, available)
    steps = [step * 10**k for k in range(2, len(str(largest))) for step in (1, 2, 5)]
    return sorted({of_pilot, largest, *(n for n in steps if n <= largest)})


def _measure_prices(results: Results, outcomes: Outcomes, training_seconds: float) -> Prices:
    """Return what an attack cost in the pilot: the median over the trainings of each framework, and the mean queries.

    Where the expectation over draws is known, repeats share all answers, and an image costs the same for any number.
    """
    log = tabulate_costs(results)
    log = log[(log.attack == outcomes.attack) & log.model.isin(results.sources)]
    trainings = log.assign(outcomes=log.images * log.repeats).groupby(["model", "training_seed"])
    attacked = trainings.images.max() if outcomes.expected else trainings.outcomes.sum()
    medians = (trainings.seconds.sum() / attacked).groupby("model").median()
    queries = np.concatenate([results.values(model, outcomes.attack, "queries").ravel() for model in results.sources])
    frameworks = len(results.sources)
    return Prices(
        frameworks * float(medians.mean()),
        frameworks * float(queries.mean()) if (queries >= 0).all() else math.nan,
        frameworks * training_seconds,
    )


def tabulate_costs(results: Results) -> pandas.DataFrame:
    """Return what each task of a run cost, one row per model, attack and session; see `Evaluation.costs`."""
    keys = {cell["key"] for cell in results.manifest["cells"]}
    rows = [
        {
            "model": cost.model,
            "training_seed": cost.training_seed,
            "attack": cost.attack,
            "repeats": len(cost.cells),
            "images": cost.images,
            "seconds": cost.seconds,
            "queries": math.nan if cost.queries is None else cost.queries,
            "worker": cost.worker or "",
        }
        for cost in results.run.costs()
        if keys.intersection(cost.cells)
    ]
    return pandas.DataFrame(rows, columns=list(COST_COLUMNS))

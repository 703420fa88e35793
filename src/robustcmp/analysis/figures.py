"""Figures of one kind: distances, the vulnerable pixels of exact single pixel, and variation between trainings."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import numpy as np

from ..errors import UsageError
from ..records.answers import IMAGES
from ..records.attack import Column, Floats, PositionDraws
from .statistics import (
    NO_EVIDENCE,
    CommonDraws,
    Interval,
    common_draws,
    fall_probability,
    t_interval,
    t_test,
    two_way_interval,
)
from .twins import match_twins

if TYPE_CHECKING:
    import xarray

    from .results import Results


class Distances:
    """Distances between adversarial and clean images, over trainings, repeats and images."""

    def __init__(self, results: Results):
        self._results = results

    def quantile(self, model: str, attack: str, distance: str = "l2", q: float = 0.5) -> float:
        """Return a quantile of the distances; a failure counts as +inf. NaN if none were attacked."""
        values = self._results.values(model, attack, distance).ravel()
        # "higher": between a finite distance and +inf there is nothing to interpolate.
        return float(np.quantile(values, q, method="higher")) if values.size else math.nan

    def success_within(self, model: str, attack: str, budget: float, distance: str = "l2") -> float:
        """Return the share of attacks that succeeded at a distance of at most `budget`; NaN if there were none."""
        values = self._results.values(model, attack, distance)
        return float((values <= budget).mean()) if values.size else math.nan

    def not_compared(self, attack: str, models: Iterable[str]) -> str:
        """Return why an attack's distances are not compared, "" where its search has converged on every training.

        On the images that its health check looks at, so that both say the same.
        """
        record = self._results.attack_records[attack]
        convergence = record.convergence
        if convergence is None:
            return ""
        names = (convergence.step, convergence.half, record.norm)
        for model in models:
            arrays = (self._results.values(model, attack, name)[..., :IMAGES] for name in names)
            trainings = zip(*arrays, strict=True)
            if not all(convergence.is_reached(*convergence.measure(*of_training)) for of_training in trainings):
                return convergence.otherwise
        return ""

    def column(self, model: str, attack: str, column: Column) -> float:
        """Return a model's value in a column that an attack adds to reports."""
        if column.statistic == "median":
            return self.quantile(model, attack, column.value)
        if column.statistic == "within":
            return self.success_within(model, attack, column.limit, column.value)
        values = self._results.values(model, attack, column.value)
        if column.statistic == "beyond":
            values = values > column.limit
        return float(np.mean(values)) if values.size else math.nan


class ExactPixel:
    """Expected results of single pixel with ``exact``, over all draws of positions."""

    def __init__(self, results: Results):
        self._results = results
        self._draws: dict[str, PositionDraws] = {
            name: record.position_draws
            for name, record in results.attack_records.items()
            if record.position_draws and record.position_draws.vulnerable in results.arrays
        }

    @property
    def attacks(self) -> list[str]:
        """The attacks that every model ran and whose expectation over all draws is known."""
        return [attack for attack in self._results.common_attacks if attack in self._draws]

    @property
    def success_rate(self) -> xarray.DataArray:
        """The expectation of the success rate over all draws, over (model, training_seed, attack).

        The mean over images of 1 − C(N − K, m)/C(N, m), where K of N positions are vulnerable and m are tried. NaN for
        other attacks.

        Raises
        ------
        UsageError
            No attack of the run is exact.
        """
        return self._tabulate("expected_success_rate", lambda p: p.mean(axis=1))

    @property
    def success_sd(self) -> xarray.DataArray:
        """The standard deviation of the success rate over draws, which are independent between images."""
        return self._tabulate("expected_success_sd", deviate)

    def _tabulate(self, name: str, measure: Callable[[Floats], Floats]) -> xarray.DataArray:
        """Return a figure of each training from its images' probabilities."""
        if not self._draws:
            raise UsageError(
                "expected a single-pixel attack with exact = true in the suite; without it, only "
                "the sampled draws are known"
            )
        table: xarray.DataArray = self._results.dataset.ran.rename(name).where(False, math.nan)
        for attack in self._draws:
            for model, p in (self.probabilities(attack) or {}).items():
                where = {"model": model, "training_seed": self._results.seeds(model, attack), "attack": attack}
                table.loc[where] = measure(p)
        return table

    def probabilities(self, attack: str) -> dict[str, Floats] | None:
        """Return each image's probability of success, (training seeds that ran, images) by model; None if not known."""
        draws = self._draws.get(attack)
        if draws is None:
            return None
        probabilities = {}
        for model in self._results.models:
            vulnerable, positions = (
                self._results.values(model, attack, name)[:, 0] for name in (draws.vulnerable, draws.positions)
            )
            probabilities[model] = fall_probability(vulnerable, positions, draws.tried)
        return probabilities

    def common_draws(self, attack: str, a: str, b: str) -> CommonDraws:
        """Return two models' expected success under the same draws of positions, see `statistics.common_draws`.

        Of several trainings, that with the smallest seed is compared.

        Raises
        ------
        UsageError
            The attack is not single pixel with ``exact``, or the model does not exist.
        """
        draws = self._draws.get(attack)
        if draws is None:
            raise UsageError(f"expected a single-pixel attack with exact = true, received {attack}")
        maps = []
        for model in (a, b):
            positions = int(self._results.values(model, attack, draws.positions)[0, 0].max())
            packed = self._results.values(model, attack, draws.vulnerable_map)[0]
            maps.append(np.unpackbits(packed, axis=1, count=positions).astype(np.bool_))
        return common_draws(maps[0], maps[1], draws.tried)


def deviate(p: Floats) -> Floats:
    """Return the standard deviation of rates over draws, of the probabilities of independent images (rates, images)."""
    return np.asarray(np.sqrt((p * (1 - p)).sum(axis=1)) / p.shape[1])


def find_failed_starts(results: Results) -> list[str]:
    """Return the attacks that had no starting point on some images, where failure says nothing about robustness."""
    return [
        attack
        for attack, record in results.attack_records.items()
        if record.start and any((results.values(model, attack, record.start) < 1).any() for model in results.models)
    ]


class Trainings:
    """Success rates over trainings that differ in their seed."""

    def __init__(self, results: Results):
        self._results = results

    def rates(self, model: str, attack: str) -> Floats:
        """Return the mean success rate of each training that ran, (training seeds,)."""
        return np.asarray(self._results.values(model, attack).mean(axis=(1, 2)))

    def std(self, model: str, attack: str) -> float:
        """Return the standard deviation of the mean success rate over training seeds, NaN for a single training."""
        return root_mean_std(self.rates(model, attack)[None, :])

    def interval(self, model: str, attack: str) -> Interval:
        """Return the 95 % interval of a framework's mean success rate, over its training runs.

        Student's t interval, clipped to [0, 1]; NaN for one training, or if all trainings have the same rate.
        """
        low, high = t_interval(self.rates(model, attack))
        return Interval(max(low, 0.0), min(high, 1.0))

    def difference_interval(self, attack: str, a: str, b: str) -> Interval:
        """Return the 95 % range of a difference between two frameworks, over training runs and images together.

        It covers both the two-way bootstrap of the two frameworks and the interval of the t test over their training
        runs: Welch's, or the paired one where their trainings are twins, which are then resampled together. NaN if a
        framework has one training.
        """
        results = self._results
        fallen = results.exact_pixel.probabilities(attack)
        fallen = fallen or {model: results.values(model, attack).mean(axis=1) for model in (a, b)}
        of_a = fallen[a]
        of_b = fallen[b]
        if min(len(of_a), len(of_b)) < 2:
            return NO_EVIDENCE
        places = match_twins(results.twins, a, b, results.seeds(a, attack), results.seeds(b, attack))
        paired = places is not None
        if paired:
            of_b = of_b[places]
        over_runs = t_test(of_a.mean(axis=1), of_b.mean(axis=1), paired=paired)
        both = two_way_interval(of_a, of_b, paired=paired)
        return Interval(min(both.low, over_runs.low), max(both.high, over_runs.high))


def root_mean_std(rates: Floats) -> float:
    """Return the standard deviation within each row of rates (rows, values), root mean square; NaN for one value."""
    if rates.shape[1] < 2 or not rates.size:
        return math.nan
    return float(np.sqrt(np.mean(np.var(rates, axis=1, ddof=1))))

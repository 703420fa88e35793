"""Variation between trainings of one framework, and intervals for differences between frameworks."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from .statistics import NO_EVIDENCE, Interval, paired_t, t_interval, two_way_interval, welch_t
from .twins import match_twins

if TYPE_CHECKING:
    from .results import Results


class Trainings:
    """Success rates over trainings that differ in their seed."""

    def __init__(self, results: Results):
        self._results = results
        self._differences: dict[tuple[str, str, str], Interval] = {}

    def rates(self, model: str, attack: str) -> NDArray[np.float64]:
        """Return the mean success rate of each training that ran, (training seeds,)."""
        rates: NDArray[np.float64] = self._results.values(model, attack).mean(axis=(1, 2))
        return rates

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
        key = (attack, a, b)  # a run of six frameworks has 45, which take seconds; the terminal and the page show them
        if key not in self._differences:
            self._differences[key] = self._difference_interval(*key)
        return self._differences[key]

    def _difference_interval(self, attack: str, a: str, b: str) -> Interval:
        results = self._results
        fallen = results.exact_pixel.probabilities(attack)
        fallen = fallen or {model: results.values(model, attack).mean(axis=1) for model in (a, b)}
        of_a = fallen[a]
        of_b = fallen[b]
        if min(len(of_a), len(of_b)) < 2:
            return NO_EVIDENCE
        places = match_twins(results.twins, a, b, results.seeds(a, attack), results.seeds(b, attack))
        if places is not None:
            of_b = of_b[places]
        test = welch_t if places is None else paired_t
        over_runs = test(of_a.mean(axis=1), of_b.mean(axis=1))
        both = two_way_interval(of_a, of_b, paired=places is not None)
        return Interval(min(both.low, over_runs.low), max(both.high, over_runs.high))


def root_mean_std(rates: NDArray[np.float64]) -> float:
    """Return the standard deviation within each row of rates (rows, values), root mean square; NaN for one value."""
    if rates.shape[1] < 2 or not rates.size:
        return math.nan
    return float(np.sqrt(np.mean(np.var(rates, axis=1, ddof=1))))

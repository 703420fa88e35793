"""Distances of adversarial images: quantiles, and success within a budget."""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np

from ..records.attack import Column
from ..records.checks import IMAGES
from .recorded import Recorded


class Distances:
    """Distances between adversarial and clean images, over trainings, repeats and images."""

    def __init__(self, recorded: Recorded):
        self._recorded = recorded

    def quantile(self, model: str, attack: str, distance: str = "l2", q: float = 0.5) -> float:
        """Return a quantile of the distances; a failure counts as +inf. NaN if none were attacked."""
        values = self._recorded.values(model, attack, distance).ravel()
        # "higher": between a finite distance and +inf there is nothing to interpolate.
        return float(np.quantile(values, q, method="higher")) if values.size else math.nan

    def success_within(self, model: str, attack: str, budget: float, distance: str = "l2") -> float:
        """Return the share of attacks that succeeded at a distance of at most `budget`; NaN if there were none."""
        values = self._recorded.values(model, attack, distance)
        return float((values <= budget).mean()) if values.size else math.nan

    def not_compared(self, attack: str, models: Iterable[str]) -> str:
        """Return why an attack's distances are not compared, "" where its search has converged on every training.

        On the images that its health check looks at, so that both say the same.
        """
        record = self._recorded.attack_records[attack]
        convergence = record.convergence
        if convergence is None:
            return ""
        for model in models:
            names = (convergence.step, convergence.half, record.norm)
            arrays = (self._recorded.values(model, attack, name)[..., :IMAGES] for name in names)
            for of_training in zip(*arrays, strict=True):
                if not convergence.is_reached(*convergence.measure(*of_training)):
                    return convergence.otherwise
        return ""

    def column(self, model: str, attack: str, column: Column) -> float:
        """Return a model's value in a column that an attack adds to reports."""
        if column.statistic == "median":
            return self.quantile(model, attack, column.value)
        if column.statistic == "within":
            return self.success_within(model, attack, column.limit, column.value)
        values = self._recorded.values(model, attack, column.value)
        if column.statistic == "beyond":
            values = values > column.limit
        return float(np.mean(values)) if values.size else math.nan

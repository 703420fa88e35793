"""Distances of adversarial images: quantiles, and success within a budget."""

from __future__ import annotations

import math

import numpy as np

from ..records.attack import Column
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

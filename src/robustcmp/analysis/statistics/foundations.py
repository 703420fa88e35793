"""What the statistics share: checks of values, and what can be said without evidence."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...errors import UsageError

Floats = NDArray[np.float64]  # not those of records: statistics are made from arrays alone
ALPHA = 0.05
ONE_TRAINING = "With one training per framework, framework and run-to-run effects are confounded."
NO_VARIANCE = 1e-24  # of rates: what rounding leaves of equal ones
ROUNDING = 1e-12  # sums of means within it are equal


def check_values(*arrays: NDArray[Any]) -> None:
    """Raise `UsageError` for NaN: an outcome that is missing is no outcome."""
    if any(np.isnan(array).any() for array in arrays):
        raise UsageError("expected a value for every image and training, received NaN")


def check_fraction(name: str, value: float, most: float = 1.0) -> None:
    """Raise `UsageError` for a margin or a difference that is not above 0 or, of rates, above 1: 5 for 5 points."""
    if value > most:
        raise UsageError(
            f"{name} should be a fraction of at most {most:g}, received {value:g}: for {value:g} points pass "
            f"{value / 100:g}",
            parameters=[name],
        )
    if not value > 0:
        unit = "in the unit of the rates (0.02 is two points)" if math.isfinite(most) else "in the unit of the values"
        raise UsageError(f"{name} should be above 0, {unit}, received {value}", parameters=[name])


def pool_variance(groups: Sequence[Floats]) -> tuple[float, int]:
    """Return the variance within groups and its degrees of freedom."""
    if len(groups) < 2 or min(len(group) for group in groups) < 2:
        raise UsageError(
            "expected at least two frameworks with at least two trainings each; received "
            f"{', '.join(str(len(group)) for group in groups)} trainings."
            f"{f' {ONE_TRAINING}' if 1 in map(len, groups) else ''}"
        )
    check_values(*groups)
    df = sum(len(group) - 1 for group in groups)
    return float(sum(((group - group.mean()) ** 2).sum() for group in groups)) / df, df

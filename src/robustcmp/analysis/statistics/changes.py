"""Does a series change while it goes on: at one point, or all the time?"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from .foundations import check_values
from .ranks import doubled_ranks

MOST_VALUES = 1000  # of which all pairs have their slope; of more, the medians of so many parts


class ChangePoint(NamedTuple):
    """The most likely point at which a series changes.

    Attributes
    ----------
    before : int
        How many values lie before it.
    statistic : float
        Pettitt's K.
    p : float
        Of a series that does not change; approximate.
    """

    before: int
    statistic: float
    p: float


class Trend(NamedTuple):
    """Whether a series rises or falls.

    Attributes
    ----------
    tau : float
        Kendall's τ between the values and their order: 1 if each is larger than all before it, −1 if smaller.
    p : float
        Of a series without a trend.
    change : float
        From the first value to the last along the median slope, in the unit of the values.
    """

    tau: float
    p: float
    change: float


def change_point(values: NDArray[np.float64]) -> ChangePoint:
    """Return where a series most likely changes its level (Pettitt 1979).

    "A non-parametric approach to the change-point problem": K is the largest |2·(sum of the first t ranks) − t(n + 1)|,
    and p ≈ 2·exp(−6K²/(n³ + n²)). The p value takes the values to be independent; if neighbours are alike it is too
    small, so a change should also be large enough to matter.

    Parameters
    ----------
    values : ndarray of float64, shape (n,)

    Raises
    ------
    UsageError
        A value is NaN.

    Examples
    --------
    >>> change_point(np.array([9.0, 8.0, 9.5] + [1.0, 2.0, 1.5] * 10)).before
    3
    """
    check_values(values)
    n = len(values)
    if n < 2:
        return ChangePoint(0, 0.0, 1.0)
    distances = np.abs(np.cumsum(doubled_ranks(values))[:-1] - np.arange(1, n) * (n + 1))
    place = int(distances.argmax())
    largest = float(distances[place])
    return ChangePoint(place + 1, largest, min(1.0, 2 * math.exp(-6 * largest**2 / (n**3 + n**2))))


def trend(values: NDArray[np.float64]) -> Trend:
    """Test whether a series has a trend, by Kendall's τ (Mann 1945, "Nonparametric tests against trend").

    p is from the normal distribution with the variance for ties and a correction for continuity (Kendall 1975, "Rank
    Correlation Methods"), which needs about ten values. The slope is the median of those of all pairs (Sen 1968,
    "Estimates of the regression coefficient based on Kendall's tau"); of more than 1,000 values, of the medians of
    1,000 parts.

    Parameters
    ----------
    values : ndarray of float64, shape (n,)

    Raises
    ------
    UsageError
        A value is NaN.

    Examples
    --------
    >>> found = trend(np.arange(20.0))
    >>> found.tau, found.p < 0.001, found.change
    (1.0, True, 19.0)
    """
    check_values(values)
    n = len(values)
    ranks, count = np.unique(values, return_inverse=True, return_counts=True)[1:]
    pairs, tied = n * (n - 1) // 2, int((count * (count - 1) // 2).sum())
    variance = (n * (n - 1) * (2 * n + 5) - float((count * (count - 1) * (2 * count + 5)).sum())) / 18
    if pairs == tied:
        return Trend(0.0, 1.0, 0.0)
    from scipy.special import ndtr

    score = pairs - tied - 2 * _inversions(ranks)
    p = min(1.0, 2 * float(ndtr(-max(abs(score) - 1, 0) / math.sqrt(variance))))
    return Trend(score / math.sqrt(pairs * (pairs - tied)), p, _slope(values) * (n - 1))


def _inversions(ranks: NDArray[np.int64]) -> int:
    """Return how many pairs stand in the wrong order, counted at the highest bit in which their ranks differ."""
    count = 0
    for bit in reversed(range(int(ranks.max()).bit_length())):
        one = (ranks >> bit) & 1
        ones_before = np.cumsum(one)
        group = ranks >> (bit + 1)  # sorted by it, in the order of the series within a group
        first = np.searchsorted(group, group)
        before_group = np.where(first > 0, ones_before[first - 1], 0)
        count += int((ones_before - before_group)[one == 0].sum())
        ranks = ranks[np.argsort(ranks >> bit, kind="stable")]
    return count


def _slope(values: NDArray[np.float64]) -> float:
    """Return the median slope of all pairs, for one step of the series."""
    place = np.arange(len(values), dtype=np.float64)
    if len(values) > MOST_VALUES:
        parts = np.array_split(np.arange(len(values)), MOST_VALUES)
        place = np.array([part.mean() for part in parts])
        values = np.array([np.median(values[part]) for part in parts])
    earlier, later = np.triu_indices(len(values), 1)
    return float(np.median((values[later] - values[earlier]) / (place[later] - place[earlier])))

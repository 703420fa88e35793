"""Statistics of ranks: medians, comparisons of pairs and of two samples, exact also for ties; changes of a series."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import bdtr

from .foundations import ALPHA, Floats, check_values
from .hypotheses import NOTHING_VARIES, Evidence


def wilcoxon(differences: Floats) -> Evidence:
    """Test whether the differences of pairs lie around 0: Wilcoxon's signed-rank test, two-sided, exact.

    Wilcoxon 1945, "Individual comparisons by ranking methods": differences of 0 are left out, and equal ones have the
    mean of their ranks. The distribution is over all signs of the ranks that there are, so it is exact with ties too.

    Parameters
    ----------
    differences : ndarray of float64, shape (pairs,)

    Returns
    -------
    Evidence
        The statistic is the sum of the ranks of the positive differences.

    Raises
    ------
    UsageError
        A difference is NaN.

    Examples
    --------
    >>> wilcoxon(np.array([0.1, 0.2, 0.3, 0.4, 0.5]))
    Evidence(statistic=15.0, p=0.0625)
    """
    ranks, positive = _rank_signed(differences)
    if not len(ranks):
        return NOTHING_VARIES
    below = _sums_at_most(tuple(sorted(ranks)))
    statistic = int(ranks[positive].sum())
    p = 2 * float(below[min(statistic, int(ranks.sum()) - statistic)])
    return Evidence(statistic / 2, min(p, 1.0))


def pairs_needed(tests: int, alpha: float = ALPHA) -> int:
    """Return with how many pairs `wilcoxon` can be significant after Holm's adjustment for so many tests.

    Examples
    --------
    >>> pairs_needed(1), pairs_needed(3), pairs_needed(6)
    (6, 7, 8)
    """
    return 1 + math.ceil(math.log2(max(tests, 1) / alpha))


def _rank_signed(differences: Floats) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Return the ranks of differences that are not 0, doubled so that they are whole, and which are positive."""
    check_values(differences)
    some = differences[differences != 0]
    return _double_ranks(np.abs(some)), some > 0


def _double_ranks(values: Floats) -> NDArray[np.int64]:
    """Return twice the ranks of values, from 1, of which equal ones have their mean."""
    _, position, count = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(count)
    return np.asarray((2 * last - count + 1)[position], np.int64)


@lru_cache(maxsize=64)
def _sums_at_most(ranks: tuple[int, ...]) -> Floats:
    """Return the probability of each sum, or a smaller one, of ranks each of which is in it with probability 1/2."""
    probability = np.zeros(sum(ranks) + 1)
    probability[0] = 1.0
    reached = 0
    for rank in ranks:
        probability[rank : reached + rank + 1] += probability[: reached + 1].copy()
        probability[: (reached := reached + rank) + 1] /= 2
    return np.asarray(np.minimum(np.cumsum(probability), 1.0))


class _ChangePoint(NamedTuple):
    """How many values of a series lie before its most likely change, and p of a series that does not change."""

    before: int
    p: float


def change_point(values: Floats) -> _ChangePoint:
    """Return where a series most likely changes its level, with an approximate p (Pettitt 1979).

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
        return _ChangePoint(0, 1.0)
    distances = np.abs(np.cumsum(_double_ranks(values))[:-1] - np.arange(1, n) * (n + 1))
    position = int(distances.argmax())
    exponent = -6 * float(distances[position]) ** 2 / (n**3 + n**2)
    return _ChangePoint(position + 1, min(1.0, 2 * math.exp(exponent)))


class Located(NamedTuple):
    """Where values lie.

    Attributes
    ----------
    estimate : float
        NaN if there are no values.
    low, high : float
        The interval, both ends included; −inf and inf where there are too few values for one.
    coverage : float
        The probability with which such an interval covers the truth, at least as large as was asked for.
    """

    estimate: float
    low: float
    high: float
    coverage: float


def median_interval(values: Floats, confidence: float = 0.95) -> Located:
    """Return the median of values with an interval between two of them.

    The narrowest interval from the k-th smallest to the k-th largest value that covers the median of any continuous
    distribution with the confidence, by the binomial distribution (Thompson 1936, "On confidence ranges for the median
    and other expectation distributions for populations of unknown distribution form"). At 95 % it takes six values.

    Parameters
    ----------
    values : ndarray of float64, shape (n,)
        May be infinite.
    confidence : float, default 0.95

    Raises
    ------
    UsageError
        A value is NaN.

    Examples
    --------
    >>> median_interval(np.arange(1.0, 7.0))
    Located(estimate=3.5, low=1.0, high=6.0, coverage=0.96875)
    >>> median_interval(np.arange(1.0, 6.0))
    Located(estimate=3.0, low=-inf, high=inf, coverage=1.0)
    """
    check_values(values)
    ordered = np.sort(values)
    n = len(values)
    outside = 2 * np.asarray(
        bdtr(np.arange((n + 1) // 2), n, 0.5), np.float64
    )  # of the interval from one place further on each side
    return _locate(ordered, _middle(ordered), outside, confidence)


def hodges_lehmann(differences: Floats, confidence: float = 0.95) -> Located:
    """Return the shift between paired samples with its interval.

    The median of all means of two differences, each with itself too, the Walsh averages (Hodges and Lehmann 1963,
    "Estimates of location based on rank tests"), and two of these averages as the ends of the interval, by the exact
    distribution of Wilcoxon's signed-rank statistic (Tukey 1949, "The simplest signed-rank tests"; Hollander and Wolfe
    1999, "Nonparametric Statistical Methods", section 3.3). It covers the centre of a symmetric, continuous
    distribution of the differences. At 95 % it takes six pairs.

    Parameters
    ----------
    differences : ndarray of float64, shape (pairs,)
        One value of each pair minus the other.
    confidence : float, default 0.95

    Raises
    ------
    UsageError
        A difference is NaN.

    Examples
    --------
    >>> hodges_lehmann(np.array([1.0, 2.0, 3.0, 4.0, 5.0, 9.0]))
    Located(estimate=3.5, low=1.0, high=9.0, coverage=0.96875)
    """
    check_values(differences)
    n = len(differences)
    rows, columns = np.triu_indices(n)
    averages = np.sort((differences[rows] + differences[columns]) / 2)
    outside = 2 * _sums_at_most(tuple(range(1, n + 1)))[: (len(averages) + 1) // 2]
    return _locate(averages, _middle(averages), outside, confidence)


def _middle(ordered: Floats) -> float:
    """Return the median of values in their order, also where two infinite ones are in the middle."""
    if not len(ordered):
        return math.nan
    low = float(ordered[(len(ordered) - 1) // 2])
    high = float(ordered[len(ordered) // 2])
    return low if low == high else low / 2 + high / 2


def _locate(ordered: Floats, estimate: float, outside: Floats, confidence: float) -> Located:
    """Return the narrowest interval from the k-th value to the k-th last; `outside` is its error for each k from 1."""
    allowed = np.flatnonzero(outside <= 1 - confidence + 1e-12)
    if not len(allowed):
        return Located(estimate, -math.inf, math.inf, 1.0)
    k = int(allowed[-1])
    return Located(estimate, float(ordered[k]), float(ordered[-1 - k]), 1 - float(outside[k]))

"""Medians and shifts with intervals from order statistics, which assume no distribution."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from .foundations import check_values
from .ranks import sums_at_most


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


def median_interval(values: NDArray[np.float64], confidence: float = 0.95) -> Located:
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
    from scipy.special import bdtr

    check_values(values)
    ordered, n = np.sort(values), len(values)
    outside = 2 * np.asarray(
        bdtr(np.arange((n + 1) // 2), n, 0.5), np.float64
    )  # of the interval from one place further on each side
    return _between(ordered, _middle(ordered), outside, confidence)


def hodges_lehmann(differences: NDArray[np.float64], confidence: float = 0.95) -> Located:
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
    outside = 2 * sums_at_most(tuple(range(1, n + 1)))[: (len(averages) + 1) // 2]
    return _between(averages, _middle(averages), outside, confidence)


def _middle(ordered: NDArray[np.float64]) -> float:
    """Return the median of values in their order, also where two infinite ones are in the middle."""
    if not len(ordered):
        return math.nan
    low, high = float(ordered[(len(ordered) - 1) // 2]), float(ordered[len(ordered) // 2])
    return low if low == high else low / 2 + high / 2


def _between(ordered: NDArray[np.float64], estimate: float, outside: NDArray[np.float64], confidence: float) -> Located:
    """Return the narrowest interval from the k-th value to the k-th last; `outside` is its error for each k from 1."""
    allowed = np.flatnonzero(outside <= 1 - confidence + 1e-12)
    if not len(allowed):
        return Located(estimate, -math.inf, math.inf, 1.0)
    k = int(allowed[-1])
    return Located(estimate, float(ordered[k]), float(ordered[-1 - k]), 1 - float(outside[k]))

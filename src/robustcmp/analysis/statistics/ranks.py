"""Comparisons by ranks, exact also for few values and for ties: of pairs, and of two samples."""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from ...errors import UsageError
from .foundations import check_values
from .hypotheses import NOTHING_VARIES, Evidence

ALPHA = 0.05


def a12(a: NDArray[np.float64], b: NDArray[np.float64]) -> float:
    """Return the probability that a value of `a` is larger than one of `b`; ties count half.

    Â₁₂ of Vargha and Delaney 2000, "A critique and improvement of the CL common language effect size statistics of
    McGraw and Wong": 0.5 is no effect. Of times, above 0.5 means that `a` tends to take longer.

    Parameters
    ----------
    a, b : ndarray of float64, shape (n,) and (m,)

    Returns
    -------
    float
        In [0, 1]; NaN if one of them is empty.

    Raises
    ------
    UsageError
        A value is NaN.

    Examples
    --------
    >>> a12(np.array([1.0, 2.0, 3.0]), np.array([2.0, 2.0]))
    0.5
    >>> a12(np.array([3.0, 4.0]), np.array([1.0, 3.0]))
    0.875
    """
    check_values(a, b)
    if not len(a) or not len(b):
        return math.nan
    ordered = np.sort(b)
    smaller, not_larger = (int(np.searchsorted(ordered, a, side).sum()) for side in ("left", "right"))
    return (smaller + not_larger) / (2 * len(a) * len(b))


def wilcoxon(differences: NDArray[np.float64]) -> Evidence:
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
    ranks, positive = _signed_ranks(differences)
    if not len(ranks):
        return NOTHING_VARIES
    below = _at_most(ranks)
    statistic = int(ranks[positive].sum())
    p = 2 * float(below[min(statistic, int(ranks.sum()) - statistic)])
    return Evidence(statistic / 2, min(p, 1.0))


def below_zero(differences: NDArray[np.float64]) -> float:
    """Return the p value of Wilcoxon's signed-rank test against differences below 0, one-sided, exact.

    Examples
    --------
    >>> below_zero(-np.arange(1.0, 6.0))
    0.03125
    """
    ranks, positive = _signed_ranks(differences)
    return float(_at_most(ranks)[int(ranks[positive].sum())]) if len(ranks) else 1.0


def smallest_p(pairs: int) -> float:
    """Return the smallest p value that `wilcoxon` can have with so many pairs: all differences have one sign.

    Examples
    --------
    >>> smallest_p(5), smallest_p(6)
    (0.0625, 0.03125)
    """
    return min(1.0, 2.0 ** (1 - pairs))


def pairs_needed(tests: int, alpha: float = ALPHA) -> int:
    """Return with how many pairs `wilcoxon` can be significant after Holm's adjustment for so many tests.

    Examples
    --------
    >>> pairs_needed(1), pairs_needed(3), pairs_needed(6)
    (6, 7, 8)
    """
    return 1 + math.ceil(math.log2(max(tests, 1) / alpha))


def kolmogorov_smirnov(a: NDArray[np.float64], b: NDArray[np.float64]) -> Evidence:
    """Test whether two samples have one distribution: the two-sample Kolmogorov-Smirnov test, two-sided, exact.

    The p value is the share of all ways to deal the values out to two samples of these sizes that are at least as far
    apart, counted as lattice paths (Hodges 1958, "The significance probability of the Smirnov two-sample test"), of
    which only the ends of ties are looked at (Schröer and Trenkler 1995, "Exact and randomization distributions of
    Kolmogorov-Smirnov tests two or three samples").

    Parameters
    ----------
    a, b : ndarray of float64, shape (n,) and (m,)

    Returns
    -------
    Evidence
        The statistic is the largest distance between the two distribution functions, in [0, 1].

    Raises
    ------
    UsageError
        A sample is empty, or a value is NaN.

    Examples
    --------
    >>> kolmogorov_smirnov(np.array([1.0, 2.0]), np.array([3.0]))
    Evidence(statistic=1.0, p=0.6666666666666667)
    """
    check_values(a, b)
    n, m = len(a), len(b)
    if not n or not m:
        raise UsageError(f"expected two samples with values, received {n} and {m} values")
    both = np.sort(np.concatenate([a, b]))
    ends = {*(np.flatnonzero(np.diff(both)) + 1).tolist(), n + m}
    distinct = np.unique(both)
    of_a, of_b = (np.searchsorted(np.sort(sample), distinct, "right") for sample in (a, b))
    furthest = int(np.abs(of_a * m - of_b * n).max())  # in units of 1 / (n · m), so that it is compared exactly
    if not furthest:
        return NOTHING_VARIES
    from_a = np.arange(n + 1)
    share = np.zeros(n + 1)  # of the ways, by how many of the first values are from a
    share[0], p = 1.0, 0.0
    for dealt in range(1, n + m + 1):
        to_a = share * np.clip((n - from_a) / (n + m - dealt + 1), 0, 1)
        share = share - to_a
        share[1:] += to_a[:-1]
        if dealt in ends:
            far = np.abs(from_a * m - (dealt - from_a) * n) >= furthest
            p += float(share[far].sum())
            share[far] = 0
    return Evidence(furthest / (n * m), min(p, 1.0))


def _signed_ranks(differences: NDArray[np.float64]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Return the ranks of differences that are not 0, doubled so that they are whole, and which are positive."""
    check_values(differences)
    some = differences[differences != 0]
    return doubled_ranks(np.abs(some)), some > 0


def doubled_ranks(values: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return twice the ranks of values, from 1, of which equal ones have their mean."""
    _, place, count = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(count)
    return np.asarray((2 * last - count + 1)[place], np.int64)


def _at_most(doubled: NDArray[np.int64]) -> NDArray[np.float64]:
    return sums_at_most(tuple(sorted(doubled.tolist())))


@lru_cache(maxsize=64)
def sums_at_most(ranks: tuple[int, ...]) -> NDArray[np.float64]:
    """Return the probability of each sum, or a smaller one, of ranks each of which is in it with probability 1/2."""
    probability = np.zeros(sum(ranks) + 1)
    probability[0] = 1.0
    reached = 0
    for rank in ranks:
        probability[rank : reached + rank + 1] += probability[: reached + 1].copy()
        probability[: (reached := reached + rank) + 1] /= 2
    return np.asarray(np.minimum(np.cumsum(probability), 1.0))

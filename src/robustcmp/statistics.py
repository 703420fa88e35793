"""Intervals, variances and tests of success rates, from arrays alone."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .errors import UsageError


class Interval(NamedTuple):
    """Two ends, both included; NaN where there is no evidence."""

    low: float
    high: float


NO_EVIDENCE = Interval(math.nan, math.nan)


def wilson_interval(successes: int, n: int, confidence: float = 0.95) -> Interval:
    """Return the Wilson score interval of a rate: `successes` of `n` images (Wilson 1927).

    For one model under a deterministic attack; it ranges over images.

    Raises
    ------
    UsageError
        `successes` is not from 0 to `n`.

    Examples
    --------
    >>> low, high = wilson_interval(167, 1000)
    >>> round(low, 3), round(high, 3)
    (0.145, 0.191)
    """
    if not 0 <= successes <= n:
        raise UsageError(f"successes should be from 0 to n = {n}, received {successes}")
    if n == 0:
        return NO_EVIDENCE
    from scipy.stats import binomtest

    low, high = binomtest(int(successes), int(n)).proportion_ci(confidence, method="wilson")
    return Interval(float(low), float(high))


def bootstrap_interval(
    image_means: NDArray[np.float64], confidence: float = 0.95, resamples: int = 10_000, seed: int = 0
) -> Interval:
    """Return the percentile bootstrap interval of the mean of one value an image (Efron 1979).

    For one model under a random attack: the values are each image's means over repeats, so that repeats do not add
    to n. It ranges over images. Where every image always falls, or none ever, resampling sees no variation, and
    Wilson's interval is given.

    Parameters
    ----------
    image_means : ndarray of float64, shape (N,)
        In [0, 1].

    Examples
    --------
    >>> bootstrap_interval(np.full(50, 0.5))
    Interval(low=0.5, high=0.5)
    """
    n = len(image_means)
    if n == 0:
        return NO_EVIDENCE
    mean = float(image_means.mean())
    if mean in (0.0, 1.0):
        # Every resample is the same, which says nothing of images that were not seen.
        return wilson_interval(int(mean) * n, n, confidence)
    if np.ptp(image_means) == 0:
        return Interval(mean, mean)
    from scipy.stats import bootstrap

    interval = bootstrap(
        (image_means,),
        np.mean,
        confidence_level=confidence,
        n_resamples=resamples,
        batch=max(1, 2**22 // n),
        method="percentile",
        rng=np.random.default_rng(seed),
    ).confidence_interval
    return Interval(float(interval.low), float(interval.high))


# Exact single pixel ------------------------------------------------------------------------------------------------


def fall_probability(vulnerable: NDArray[Any], pixels: NDArray[Any], tried: NDArray[Any] | int) -> NDArray[np.float64]:
    """Return the probability that an image falls to a random draw of positions: 1 − C(N − K, m)/C(N, m).

    Parameters
    ----------
    vulnerable, pixels, tried : arrays of numbers that broadcast
        K of N positions are vulnerable, and m different ones are tried, at most N.

    Examples
    --------
    >>> fall_probability(np.array([0, 1, 64]), np.array([64, 64, 64]), 16)
    array([0.  , 0.25, 1.  ])
    """
    from scipy.special import gammaln

    k, n = np.asarray(vulnerable, np.float64), np.asarray(pixels, np.float64)
    m = np.minimum(tried, n)
    # By logarithms of factorials; none escapes where fewer than m positions are safe.
    log_ratio = gammaln(n - k + 1) - gammaln(np.maximum(n - k - m, 0) + 1) - gammaln(n + 1) + gammaln(n - m + 1)
    falls = np.where(n - k >= m, -np.expm1(log_ratio), 1.0)
    return np.where(k == 0, 0.0, falls) + 0 * k  # NaN where K is


class CommonDraws(NamedTuple):
    """Two models under the same draws of positions.

    Attributes
    ----------
    difference : float
        The expectation of a's success rate minus b's, over all draws.
    sd : float
        The standard deviation of that difference over draws.
    both, only_a, only_b : float
        The expected shares of images that fall in both models, and in one alone.
    """

    difference: float
    sd: float
    both: float
    only_a: float
    only_b: float


def common_draws(a: NDArray[np.bool_], b: NDArray[np.bool_], tried: int) -> CommonDraws:
    """Return what two models' success under the same draws of positions comes to, exactly.

    For an image with the vulnerable positions K_a and K_b of N, of which m are tried:
    P(both fall) = p_a + p_b − 1 + C(N − |K_a ∪ K_b|, m)/C(N, m). Draws are independent between images.

    Parameters
    ----------
    a, b : ndarray of bool, shape (images, positions)
        Which positions of each image are vulnerable.
    tried : int
        How many positions are tried.

    Raises
    ------
    UsageError
        The shapes differ.

    Examples
    --------
    >>> one, other = np.eye(4, dtype=bool)[:1], np.eye(4, dtype=bool)[1:2]
    >>> found = common_draws(one, other, 2)  # two of four positions are tried
    >>> round(found.both * 6, 9), round(found.only_a * 6, 9)  # in six draws
    (1.0, 2.0)
    """
    if a.shape != b.shape or a.ndim != 2:
        raise UsageError(f"expected two arrays of one shape (images, positions), received {a.shape} and {b.shape}")
    pixels = np.full(len(a), a.shape[1])
    p_a, p_b, p_either = (fall_probability(its.sum(axis=1), pixels, tried) for its in (a, b, a | b))
    both = p_a + p_b - p_either
    variance = p_a + p_b - 2 * both - (p_a - p_b) ** 2
    n = max(len(a), 1)
    return CommonDraws(
        float((p_a - p_b).sum() / n),
        float(np.sqrt(np.maximum(variance, 0).sum()) / n),
        float(both.sum() / n),
        float((p_a - both).sum() / n),
        float((p_b - both).sum() / n),
    )

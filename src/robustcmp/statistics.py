"""Intervals for success rates."""

from __future__ import annotations

import math
from typing import NamedTuple

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

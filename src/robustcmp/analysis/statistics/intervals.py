"""Intervals of success rates and of their differences."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri, stdtrit

from ...errors import UsageError
from .foundations import NO_VARIANCE, Floats, check_values, pool_variance


class Interval(NamedTuple):
    """Lower and upper end, both included; NaN without evidence."""

    low: float
    high: float


NO_EVIDENCE = Interval(math.nan, math.nan)
EVERYTHING = Interval(-1.0, 1.0)  # what a difference of rates may be


def wilson_interval(successes: int, n: int, confidence: float = 0.95) -> Interval:
    """Return the Wilson score interval of a rate: `successes` of `n` images (Wilson 1927).

    For one model under a deterministic attack; the sampling unit is the image.

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
    z = float(ndtri(0.5 + confidence / 2))
    rate = successes / n
    centre = (rate + z**2 / (2 * n)) / (1 + z**2 / n)
    half = z / (1 + z**2 / n) * math.sqrt(rate * (1 - rate) / n + z**2 / (4 * n**2))
    low = 0.0 if successes == 0 else centre - half
    high = 1.0 if successes == n else centre + half
    return Interval(low, high)


def bootstrap_interval(
    image_means: Floats, confidence: float = 0.95, resamples: int = 10_000, seed: int = 0
) -> Interval:
    """Return the percentile bootstrap interval of the mean of one value per image (Efron 1979).

    For one model under a random attack: the values are each image's means over repeats, so that repeats do not add
    to n. The sampling unit is the image. If all values are 0 or all are 1, resampling sees no variation and Wilson's
    interval is returned; any other single image gives no information, 0 to 1.

    Parameters
    ----------
    image_means : ndarray of float64, shape (N,)
        In [0, 1].

    Raises
    ------
    UsageError
        A value is NaN.

    Examples
    --------
    >>> bootstrap_interval(np.full(50, 0.5))
    Interval(low=0.5, high=0.5)
    """
    check_values(image_means)
    n = len(image_means)
    if n == 0:
        return NO_EVIDENCE
    mean = float(image_means.mean())
    if mean in (0.0, 1.0):
        # Every resample is the same, which says nothing of images that were not seen.
        return wilson_interval(int(mean) * n, n, confidence)
    if n == 1:
        return Interval(0.0, 1.0)
    means = _resample(image_means[None], resamples, seed)
    low, high = np.quantile(means, [0.5 - confidence / 2, 0.5 + confidence / 2])
    return Interval(float(low), float(high))


def t_interval(rates: Floats, confidence: float = 0.95) -> Interval:
    """Return Student's interval of the mean of a framework's rates, one for each training run.

    The sampling unit is the training run, on the images that were attacked. NaN for one training, or if all trainings
    have the same rate, because their variance is then unknown.

    Raises
    ------
    UsageError
        A rate is NaN.

    Examples
    --------
    >>> low, high = t_interval(np.array([0.2, 0.25, 0.3]))
    >>> round(low, 3), round(high, 3)
    (0.126, 0.374)
    """
    check_values(rates)
    n = len(rates)
    if n < 2 or np.var(rates, ddof=1) <= NO_VARIANCE:
        return NO_EVIDENCE
    half = float(stdtrit(n - 1, 0.5 + confidence / 2) * np.std(rates, ddof=1) / math.sqrt(n))
    return Interval(float(np.mean(rates)) - half, float(np.mean(rates)) + half)


def difference_intervals(
    differences: Floats, confidence: float = 0.95, resamples: int = 10_000, seed: int = 0
) -> list[Interval]:
    """Return percentile bootstrap intervals of mean differences between models, over the images that both saw.

    Images are resampled with all their values: all differences use the same resamples. If no image
    differs, resampling sees no variation, and the interval is ± Wilson's upper end for 0 of N; one image gives no
    information, -1 to 1.

    Parameters
    ----------
    differences : ndarray of float64, shape (pairs, images)
        One model's value for an image minus the other's, in [-1, 1]: means over repeats, so that repeats do not add
        to N.

    Raises
    ------
    UsageError
        A value is NaN.

    Examples
    --------
    >>> [(low, high)] = difference_intervals(np.zeros((1, 100)))
    >>> round(low, 3), round(high, 3)
    (-0.037, 0.037)
    """
    check_values(differences)
    pairs, n = differences.shape
    if n == 0:
        return [NO_EVIDENCE] * pairs
    if n == 1:
        return [EVERYTHING] * pairs
    means = _resample(differences, resamples, seed)
    ends = np.quantile(means, [0.5 - confidence / 2, 0.5 + confidence / 2], axis=0).T
    unseen = wilson_interval(0, n, confidence).high
    ends[~differences.any(axis=1)] = -unseen, unseen
    return [Interval(float(low), float(high)) for low, high in ends]


def two_way_interval(a: Floats, b: Floats, *, paired: bool = False, resamples: int = 10_000, seed: int = 0) -> Interval:
    """Return the 95 % range of the difference of two frameworks' mean rates over training runs and images together.

    Both are drawn with replacement (Owen 2007, "The pigeonhole bootstrap"): the runs of each framework for itself,
    the images together, as both frameworks saw the same. As runs are few, the range is stretched about the difference
    by what Student's quantile is larger than the normal one. It is wider than it need be, by about the variance that
    is counted twice. Where no training of either framework differs from another of it, or there is one image, there
    is nothing to measure a difference by: everything, -1 to 1.

    Parameters
    ----------
    a, b : ndarray of float64, shape (training runs, images)
        Means over repeats, in [0, 1]. The images are the same, the numbers of runs may differ.
    paired : bool, default False
        Whether the runs of both come in pairs, which are drawn together.

    Returns
    -------
    Interval
        NaN where a framework has one training.

    Raises
    ------
    UsageError
        The numbers of images differ, or a value is NaN.

    Examples
    --------
    >>> runs = np.random.default_rng(0).random((10, 200))
    >>> low, high = two_way_interval(runs[:5], runs[5:])
    >>> low < 0 < high
    True
    """
    if min(len(a), len(b)) < 2 or not a.shape[1]:
        return NO_EVIDENCE
    if a.shape[1] != b.shape[1]:
        raise UsageError(f"expected outcomes on the same images, received {a.shape[1]} and {b.shape[1]}")
    check_values(a, b)
    if paired:
        within = float(np.var((a - b).mean(axis=1), ddof=1))
        df = len(a) - 1
    else:
        within, df = pool_variance([a.mean(axis=1), b.mean(axis=1)])
    if within <= NO_VARIANCE or a.shape[1] == 1:
        return EVERYTHING
    if paired:
        [means] = resample_rates([a - b], resamples, seed)
    else:
        of_a, of_b = resample_rates([a, b], resamples, seed)
        means = of_a - of_b
    difference = float(a.mean() - b.mean())
    stretch = stdtrit(df, 0.975) / ndtri(0.975)
    ends = difference + stretch * (np.quantile(means, [0.025, 0.975]) - difference)
    low, high = np.clip(ends, -1, 1)
    return Interval(float(low), float(high))


def resample_rates(values: Sequence[Floats], resamples: int = 10_000, seed: int = 0) -> list[Floats]:
    """Return each framework's mean rate over resamples of images and, where it has several, of training runs.

    Parameters
    ----------
    values : sequence of ndarray of float64, shape (training runs, images) or (attacks, training runs, images)
        Framework by framework, on the same images; all attacks see the same resamples. The deviations of n runs are
        scaled by √(n/(n − 1)), which resampling alone makes too small.

    Returns
    -------
    list of ndarray of float64, shape (resamples,) or (resamples, attacks)
    """
    n = values[0].shape[-1]
    if all(of_framework.shape[-2] == 1 for of_framework in values):
        # One run takes no draw, so these are the resamples of every other interval.
        return [_resample(rates.reshape(-1, n), resamples, seed).reshape(-1, *rates.shape[:-2]) for rates in values]
    rng = np.random.default_rng(seed)
    parts: list[list[Floats]] = [[] for _ in values]
    for size in split_resamples(resamples, n):
        images = _count_draws(rng, n, size) / n
        weights = [_weigh_runs(rng, of_framework.shape[-2], size) for of_framework in values]
        for part, of_framework, runs in zip(parts, values, weights, strict=True):
            rates = (images @ of_framework.reshape(-1, n).T).reshape(size, *of_framework.shape[:-1])
            part.append(np.einsum("b...r,br->b...", rates, runs))
    return [np.concatenate(part) for part in parts]


def _weigh_runs(rng: np.random.Generator, n: int, resamples: int) -> Floats:
    """Return weights of runs (resamples, n), stretched about 1/n so that what they weigh varies as n fresh ones."""
    weights: Floats = _count_draws(rng, n, resamples) / n
    return weights if n == 1 else 1 / n + (weights - 1 / n) * math.sqrt(n / (n - 1))


def _resample(values: Floats, resamples: int, seed: int) -> Floats:
    """Return the means of rows of values (rows, N) over resamples of the N, (resamples, rows)."""
    n = values.shape[1]
    counts = _count_shared_draws(n, tuple(split_resamples(resamples, max(values.shape))), seed)
    return np.asarray(np.concatenate([block @ values.T for block in counts]) / n)


@lru_cache(maxsize=1)
def _count_shared_draws(n: int, sizes: tuple[int, ...], seed: int) -> list[NDArray[np.float32]]:
    """Return how often each of n things is in each resample, in blocks; intervals share their resamples."""
    rng = np.random.default_rng(seed)
    return [_count_draws(rng, n, size).astype(np.float32) for size in sizes]


def _count_draws(rng: np.random.Generator, n: int, resamples: int) -> NDArray[np.int64]:
    """Return how often each of n things is in each resample of n, (resamples, n)."""
    drawn = rng.integers(0, n, (resamples, n)) + n * np.arange(resamples)[:, None]
    return np.bincount(drawn.ravel(), minlength=resamples * n).reshape(resamples, n)


def split_resamples(resamples: int, n: int) -> list[int]:
    """Cut a number of resamples of n things into blocks that fit the memory."""
    size = max(1, 2**22 // n)
    return [min(size, resamples - start) for start in range(0, resamples, size)]

"""Power: the difference that a test would have detected, had there been one."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence

import numpy as np
from scipy.special import bdtr, chdtri, chndtrinc, fdtri, ncfdtrinc, nctdtrinc, stdtrit

from .foundations import NO_VARIANCE, Floats, check_fraction, check_values, pool_variance
from .hypotheses import scale_unequal

POWER = 0.8
MOST_TRAININGS = 100_000
"""Of each framework; a comparison that needs more of them is not planned."""


def detectable_between_groups(groups: Sequence[Floats], alpha: float = 0.05, power: float = POWER) -> float:
    """Return the difference of two frameworks' means that `brown_forsythe` detects with a given power.

    The two frameworks with the fewest training runs differ and the others lie between them, where they contribute
    least to the statistic, so any other arrangement of the same largest difference is detected at least as often. The
    variances between training runs, and the degrees of freedom that follow from them, are those estimated from the
    groups (noncentral F; Cohen 1988, "Statistical Power Analysis for the Behavioral Sciences", chapter 8). An
    approximation where frameworks vary unequally.

    Parameters
    ----------
    groups : sequence of ndarray of float64, shape (training runs,)
        As for `brown_forsythe`: a rate in [0, 1] for each training, framework by framework.
    alpha : float, default 0.05
        The level of the test.
    power : float, default 0.8
        The probability of detection.

    Returns
    -------
    float
        In the unit of the rates. NaN if rates do not differ within any framework, because their variance is then
        unknown.

    Raises
    ------
    UsageError
        A framework has one training.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> groups = [rng.normal(0.15, 0.02, 10) for _ in range(3)]
    >>> round(detectable_between_groups(groups), 3)
    0.024
    """
    pool_variance(groups)  # or it says what is missing
    return detectable_with_variances(
        np.array([group.var(ddof=1) for group in groups]), list(map(len, groups)), alpha, power
    )


def detectable_with_variances(
    variances: Floats, trainings: Sequence[int], alpha: float = 0.05, power: float = POWER
) -> float:
    """Return the difference that `detectable_between_groups` finds for given variances and numbers of training runs.

    Parameters
    ----------
    variances : ndarray of float64, shape (frameworks,)
        The variance of a trained model's rate within each framework.
    trainings : sequence of int
        The number of training runs of each framework, at least 2.
    alpha, power : float
        As for `detectable_between_groups`.

    Returns
    -------
    float
        In the unit of the rates. NaN if all variances are 0.

    Examples
    --------
    >>> round(detectable_with_variances(np.full(3, 0.02**2), [10, 10, 10]), 3)
    0.029
    """
    within = scale_unequal(variances, trainings)
    if within.total <= NO_VARIANCE:
        return math.nan
    critical = float(fdtri(within.df_between, within.df, 1 - alpha))
    noncentrality = float(ncfdtrinc(within.df_between, within.df, 1 - power, critical))
    fewest = sorted(trainings)[:2]
    return math.sqrt(noncentrality / within.df_between * within.total * sum(1 / n for n in fewest))


def trainings_needed(variances: Floats, difference: float, alpha: float = 0.05, power: float = POWER) -> int | None:
    """Return how many training runs of each framework `brown_forsythe` needs to detect a difference.

    The smallest equal number for which `detectable_with_variances` is not above the difference.

    Parameters
    ----------
    variances : ndarray of float64, shape (frameworks,)
        The variance of a trained model's rate within each framework.
    difference : float
        Between the largest mean and the smallest, in the unit of the rates; above 0 and at most 1: 0.05 is five points.
    alpha, power : float
        As for `detectable_between_groups`.

    Returns
    -------
    int or None
        At least 2. None if that is more than 100,000, or if all variances are 0.

    Raises
    ------
    UsageError
        The difference is not above 0, or above 1.

    Examples
    --------
    >>> trainings_needed(np.full(3, 0.02**2), 0.03), trainings_needed(np.full(3, 0.02**2), 0.01)
    (10, 79)
    """
    check_fraction("difference", difference)
    if not variances.sum() > NO_VARIANCE:
        return None

    def margin(trainings: int) -> float:
        return -detectable_with_variances(variances, [trainings] * len(variances), alpha, power)

    needed = bisect_left(range(MOST_TRAININGS + 1), -difference, lo=2, key=margin)
    return needed if needed <= MOST_TRAININGS else None


def detectable_between_pairs(differences: Floats, alpha: float = 0.05, power: float = POWER) -> float:
    """Return the mean difference of pairs that `t_test` detects with a given power.

    The spread is that of the differences (noncentral t; Cohen 1988, "Statistical Power Analysis for the Behavioral
    Sciences", chapter 2).

    Parameters
    ----------
    differences : ndarray of float64, shape (pairs,)
        One rate of each pair minus the other.
    alpha, power : float
        As for `detectable_between_groups`.

    Returns
    -------
    float
        In the unit of the rates. NaN if there is one pair, or if all differences are equal.

    Examples
    --------
    >>> round(detectable_between_pairs(np.array([0.01, 0.02, 0.03, 0.02])), 4)
    0.0174
    """
    n = len(differences)
    if n < 2 or float(differences.var(ddof=1)) <= NO_VARIANCE:
        return math.nan
    noncentrality = float(nctdtrinc(n - 1, 1 - power, float(stdtrit(n - 1, 1 - alpha / 2))))
    return noncentrality * float(differences.std(ddof=1)) / math.sqrt(n)


def detectable_by_signs(different: int, images: int, alpha: float = 0.05, power: float = POWER) -> float:
    """Return the difference of two models' rates that exact McNemar detects with a given power.

    Beside as many images as differ now, half in each direction, some more fool one of the models alone: the fewest are
    returned with which the binomial test has that power. It needs a few differing images to be significant at all.

    Parameters
    ----------
    different : int
        How many images fool one model and not the other.
    images : int
        How many were attacked.
    alpha, power : float
        As for `detectable_between_groups`.

    Returns
    -------
    float
        In the unit of the rates; NaN if not even all images would be enough.

    Examples
    --------
    >>> detectable_by_signs(0, 1000), detectable_by_signs(20, 1000)
    (0.006, 0.017)
    """
    for more in range(1, images - different + 1):
        total = different + more
        p = 2 * bdtr(np.arange(total // 2 + 1), total, 0.5)
        critical = int(np.count_nonzero(p <= alpha)) - 1  # the test is significant with as few of the rarer kind
        if critical >= 0 and bdtr(critical, total, different / 2 / total) >= power:
            return more / images
    return math.nan


def detectable_between_models(values: Floats, alpha: float = 0.05, power: float = POWER) -> float:
    """Return the difference of two models' rates that a joint test over images detects with a given power.

    Two models differ and the others lie between them. The statistic is taken to be chi-square, as that of Cochran's Q
    and of the permutation of models is for many images, with the variance of the images' differences averaged over
    pairs of models. An approximation, coarse where few images differ.

    Parameters
    ----------
    values : ndarray of float64, shape (models, images)
        How often each image is fooled, in [0, 1].
    alpha, power : float
        As for `detectable_between_groups`.

    Returns
    -------
    float
        In the unit of the rates. NaN if each image has the same value for all models.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> round(detectable_between_models((rng.random((3, 1000)) < 0.2).astype(float)), 3)
    0.056
    """
    check_values(values)
    models, images = values.shape
    # The mean over pairs of the variance of a difference is twice the variance within an image.
    if models < 2:
        return math.nan
    variance = 2 * float(((values - values.mean(axis=0)) ** 2).mean(axis=1).sum()) / (models - 1)
    if variance <= NO_VARIANCE:
        return math.nan
    df = models - 1
    noncentrality = float(chndtrinc(float(chdtri(df, alpha)), df, 1 - power))
    return math.sqrt(noncentrality * variance / images)

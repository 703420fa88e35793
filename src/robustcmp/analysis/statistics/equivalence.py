"""Equivalence: is a difference smaller than a margin that was stated beforehand?"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtr, stdtrit

from .foundations import NO_VARIANCE, check_fraction, check_pairs, check_values, pooled_variance
from .hypotheses import mean_and_error, standard_error

LEVEL = 0.05


class Equivalence(NamedTuple):
    """Two one-sided tests of a difference.

    Attributes
    ----------
    difference : float
        a's mean minus b's.
    low, high : float
        The 90 % interval of the difference. The tests are significant at 5 % if it lies within the margin.
    p : float
        The larger p of the two tests, one for each end of the margin.
    """

    difference: float
    low: float
    high: float
    p: float


def equivalent_frameworks(
    a: NDArray[np.float64], b: NDArray[np.float64], margin: float, largest: float = 1.0
) -> Equivalence:
    """Test whether two frameworks' mean rates differ by less than a margin; the training run is the unit.

    Two one-sided t tests (Schuirmann 1987, "A comparison of the two one-sided tests procedure and the power approach
    for assessing the equivalence of average bioavailability"), with Welch's standard error and degrees of freedom. If
    no training differs from another of its framework, nothing can be said: p is 1, the interval everything.

    Parameters
    ----------
    a, b : ndarray of float64, shape (training runs,)
        A rate for each trained model, or a distance.
    margin : float
        In the unit of the rates, above 0: 0.05 is five points.
    largest : float, default 1
        The largest possible difference: 1 for rates, +inf for distances.

    Raises
    ------
    UsageError
        The margin is not above 0, or above `largest`; or a framework has one training.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> a, b = rng.normal(0.2, 0.01, (2, 10))
    >>> evidence = equivalent_frameworks(a, b, margin=0.02)
    >>> evidence.p < 0.05, -0.02 < evidence.low, evidence.high < 0.02
    (True, True, True)
    """
    pooled_variance([a, b])  # or it says what is missing
    return _one_sided(float(a.mean() - b.mean()), *standard_error(a, b), margin, largest)


def equivalent_twins(
    a: NDArray[np.float64], b: NDArray[np.float64], margin: float, largest: float = 1.0
) -> Equivalence:
    """Test whether two frameworks' mean rates differ by less than a margin, where their trainings come in pairs.

    Two one-sided t tests of the pairs' differences, as `equivalent_frameworks` of independent trainings. If all
    differences are equal, nothing can be said: p is 1, the interval everything.

    Parameters
    ----------
    a, b : ndarray of float64, shape (pairs,)
        The rates of both trainings of each pair, or their distances.
    margin : float
        In the unit of the rates, above 0: 0.05 is five points.
    largest : float, default 1
        The largest possible difference: 1 for rates, +inf for distances.

    Raises
    ------
    UsageError
        The margin is not above 0, or above `largest`; the numbers of trainings differ; or there is one pair.

    Examples
    --------
    >>> evidence = equivalent_twins(np.array([0.10, 0.20, 0.30]), np.array([0.11, 0.20, 0.30]), margin=0.02)
    >>> round(evidence.low, 4), round(evidence.high, 4), round(evidence.p, 3)
    (-0.0131, 0.0064, 0.019)
    """
    check_pairs(a, b)
    differences = a - b
    return _one_sided(*mean_and_error(differences), len(differences) - 1, margin, largest)


def equivalent_models(differences: NDArray[np.float64], margin: float) -> Equivalence:
    """Test whether two models' rates differ by less than a margin; the image is the unit.

    Two one-sided t tests of the images' differences. If no image differs, p is the probability of that if as many
    images differed as the margin says, (1 − margin)ⁿ.

    Parameters
    ----------
    differences : ndarray of float64, shape (images,)
        One model's value for an image minus the other's, in [-1, 1].
    margin : float
        In the unit of the rates, above 0 and at most 1: 0.05 is five points.

    Raises
    ------
    UsageError
        The margin is not above 0, or above 1; or a difference is NaN.

    Examples
    --------
    >>> round(equivalent_models(np.zeros(100), margin=0.05).p, 4)
    0.0059
    """
    check_values(differences)
    n = len(differences)
    if n and not differences.any():
        check_fraction("margin", margin)
        end = 1 - LEVEL ** (1 / n)
        return Equivalence(0.0, -end, end, float((1 - margin) ** n))
    if n < 2:
        return _one_sided(math.nan, 0.0, math.nan, margin)
    error = float(np.std(differences, ddof=1)) / math.sqrt(n)
    return _one_sided(float(differences.mean()), error, n - 1, margin)


def _one_sided(difference: float, error: float, df: float, margin: float, largest: float = 1.0) -> Equivalence:
    check_fraction("margin", margin, largest)
    if error**2 <= NO_VARIANCE:
        return Equivalence(difference, -largest, largest, 1.0)
    half = float(stdtrit(df, 1 - LEVEL)) * error
    p = float(stdtr(df, (abs(difference) - margin) / error))  # the nearer end of the margin has the larger p
    return Equivalence(difference, difference - half, difference + half, p)

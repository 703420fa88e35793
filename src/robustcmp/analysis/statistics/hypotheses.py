"""Tests of hypotheses about success rates, and their adjustment.

Those of scipy.stats and statsmodels are written out here, from scipy.special: to import the two takes longer than to
print a finished run. The tests compare them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import bdtr, chdtrc, fdtrc, stdtr, stdtrit

from ...errors import UsageError
from .foundations import (
    ALPHA,
    NO_VARIANCE,
    ROUNDING,
    Floats,
    check_fraction,
    check_values,
    pool_variance,
)
from .intervals import split_resamples


class Evidence(NamedTuple):
    """A test's statistic and its p value; 0 and 1 if nothing varies."""

    statistic: float
    p: float


NOTHING_VARIES = Evidence(0.0, 1.0)


def _check_same_images(*arrays: NDArray[Any]) -> None:
    """Raise `UsageError` for arrays of different shapes, or with NaN."""
    shapes = {array.shape for array in arrays}
    if len(shapes) > 1:
        raise UsageError(f"expected values of the same images, received the shapes {', '.join(map(str, shapes))}")
    check_values(*arrays)


def cochran_q(outcomes: NDArray[np.bool_]) -> Evidence:
    """Test whether models are fooled equally often by a deterministic attack, on the same images (Cochran 1950).

    Parameters
    ----------
    outcomes : ndarray of bool, shape (models, images)

    Examples
    --------
    >>> cochran_q(np.ones((3, 5), bool))
    Evidence(statistic=0.0, p=1.0)
    """
    if not (outcomes.any(axis=0) & ~outcomes.all(axis=0)).any():
        return NOTHING_VARIES
    k = len(outcomes)
    of_models = outcomes.sum(axis=1, dtype=np.int64)
    of_images = outcomes.sum(axis=0, dtype=np.int64)
    total = int(of_images.sum())
    between = k * (of_models**2).sum() - total**2
    within = k * total - (of_images**2).sum()
    statistic = float((k - 1) * between / within)
    return Evidence(statistic, float(chdtrc(k - 1, statistic)))


def mcnemar(a: NDArray[np.bool_], b: NDArray[np.bool_]) -> Evidence:
    """Test whether two models are fooled equally often by a deterministic attack: McNemar's test, exact.

    The statistic is the number of images that fool only `a`; the p value is binomial with probability 1/2 among the
    images that fool only one model.

    Examples
    --------
    >>> mcnemar(np.array([True] * 6), np.array([False] * 6))
    Evidence(statistic=6.0, p=0.03125)
    """
    _check_same_images(a, b)
    return _coin(int(np.count_nonzero(a & ~b)), int(np.count_nonzero(b & ~a)))


def sign_test(a: Floats, b: Floats) -> Evidence:
    """Test whether `a` is above `b` as often as below; ties, also of two +inf, are left out.

    Examples
    --------
    >>> sign_test(np.array([1.0, 2.0, np.inf]), np.array([0.5, 2.0, np.inf]))
    Evidence(statistic=1.0, p=1.0)
    """
    _check_same_images(a, b)
    return _coin(int(np.count_nonzero(a > b)), int(np.count_nonzero(a < b)))


def _coin(heads: int, tails: int) -> Evidence:
    """Test whether a coin that fell on one side so often, and so often on the other, is fair; two-sided, exact."""
    if not heads + tails:
        return NOTHING_VARIES
    return Evidence(float(heads), min(1.0, 2 * float(bdtr(min(heads, tails), heads + tails, 0.5))))


def sign_flips(differences: Floats, resamples: int = 10_000, seed: int = 0) -> list[Evidence]:
    """Test mean differences between two models by flipping the sign of each image's difference at random.

    For random attacks: the differences are between an image's means over repeats. If the two models were
    exchangeable, both signs would be equally likely. Two-sided; the data count as one of the flips, so
    p is at least 1/(resamples + 1).

    Parameters
    ----------
    differences : ndarray of float64, shape (pairs, images)

    Returns
    -------
    list of Evidence
        The statistic is the mean difference.

    Examples
    --------
    >>> sign_flips(np.zeros((1, 10)))
    [Evidence(statistic=0.0, p=1.0)]
    """
    check_values(differences)
    rng = np.random.default_rng(seed)
    pairs, n = differences.shape
    observed = np.abs(differences.sum(axis=1))
    reached = np.zeros(pairs, np.int64)
    some = differences[:, differences.any(axis=0)]  # the sign of a zero says nothing
    for size in split_resamples(resamples, max(*some.shape, 1)):
        signs = rng.integers(0, 2, (size, some.shape[1]), np.int8) * 2.0 - 1.0
        reached += (np.abs(signs @ some.T) >= observed - ROUNDING).sum(axis=0)
    p = (1 + reached) / (1 + resamples)
    return [
        Evidence(float(mean), float(p_value))
        for mean, p_value in zip(differences.sum(axis=1) / max(n, 1), p, strict=True)
    ]


def label_permutation(values: Floats, resamples: int = 10_000, seed: int = 0) -> Evidence:
    """Test whether models differ at all, by permuting the models' values within each image at random.

    For random attacks, as Cochran's Q for deterministic attacks. The statistic is the variance of the models'
    means.

    Parameters
    ----------
    values : ndarray of float64, shape (models, images)
        Means over repeats.

    Examples
    --------
    >>> label_permutation(np.ones((3, 5)))
    Evidence(statistic=0.0, p=1.0)
    """
    check_values(values)
    n = values.shape[1]
    observed = float(values.mean(axis=1).var()) if n else 0.0
    differs = values[:, np.ptp(values, axis=0) > 0]  # the other images add the same to every model
    if not differs.size:
        return NOTHING_VARIES
    rng = np.random.default_rng(seed)
    reached = 0
    for size in split_resamples(resamples, differs.size):
        permuted = rng.permuted(np.broadcast_to(differs, (size, *differs.shape)), axis=1)
        reached += int((permuted.sum(axis=2).var(axis=1) / n**2 >= observed - ROUNDING).sum())
    return Evidence(observed, (1 + reached) / (1 + resamples))


def mantel(values: Floats, groups: Sequence[str], resamples: int = 10_000, seed: int = 0) -> Evidence:
    """Test whether pairs within a group have larger values than pairs across groups, by permuting the groups.

    One-sided (Mantel 1967, "The detection of disease clustering and a generalized regression approach"). What a source
    adds to all of its targets, and a target to all of its sources, is taken out first, by least squares. The statistic
    is the mean of the rest within groups minus the mean across.

    Parameters
    ----------
    values : ndarray of float64, shape (N, N)
        From each source to each target; the diagonal is ignored, and NaN is left out.
    groups : sequence of str
        The group of each. The permutations keep their sizes.

    Returns
    -------
    Evidence
        Both NaN if no group has two members, or if there is only one group.

    Examples
    --------
    >>> values = np.kron(np.eye(2), np.ones((4, 4)))
    >>> mantel(values, list("aaaabbbb")).p < 0.05  # of 35 ways of halving eight
    True
    """
    members = np.unique(groups, return_inverse=True)[1]
    n = len(members)
    is_finite = np.isfinite(values) & ~np.eye(n, dtype=np.bool_)
    sources, targets = np.nonzero(is_finite)
    design = np.concatenate([np.eye(n)[sources], np.eye(n)[targets]], axis=1)
    rest = np.zeros((n, n))
    rest[is_finite] = values[is_finite] - design @ np.linalg.lstsq(design, values[is_finite], rcond=None)[0]

    def differences(members: NDArray[np.int64]) -> Floats:
        """For each row of groups (rows, N) that of the means; NaN where there are no pairs of a kind."""
        within = (members[:, :, None] == members[:, None, :]).reshape(-1, n * n).astype(np.float64)
        pairs = within @ is_finite.ravel()
        total = within @ rest.ravel()
        with np.errstate(invalid="ignore", divide="ignore"):
            statistics: Floats = total / pairs - (rest.sum() - total) / (is_finite.sum() - pairs)
        return np.where(np.isfinite(statistics), statistics, np.nan)

    [observed] = differences(members[None])
    if np.isnan(observed):
        return Evidence(math.nan, math.nan)
    rng = np.random.default_rng(seed)
    reached = 0
    for size in split_resamples(resamples, n * n):
        permuted = members[np.array([rng.permutation(n) for _ in range(size)])]
        reached += int((~(differences(permuted) < observed - ROUNDING)).sum())  # NaN is no evidence against
    return Evidence(float(observed), (1 + reached) / (1 + resamples))


def friedman(values: Floats) -> Evidence:
    """Test whether models differ in a value per image, such as a distance, by ranks within images (Friedman 1937).

    Parameters
    ----------
    values : ndarray of float64, shape (models, images)
        +inf ranks last. For two models this is the sign test.

    Examples
    --------
    >>> friedman(np.ones((3, 5)))
    Evidence(statistic=0.0, p=1.0)
    """
    check_values(values)
    if len(values) < 3:
        return sign_test(values[0], values[1])
    if (values == values[0]).all():
        return NOTHING_VARIES
    k, n = values.shape
    below = (values[None] < values[:, None]).sum(axis=1)
    equal = (values[None] == values[:, None]).sum(axis=1)
    ranks = below + (equal + 1) / 2  # those of equal values are shared
    ties = 1 - float((equal**2 - 1).sum()) / (n * k * (k**2 - 1))  # each of t equal values counts t² − 1
    statistic = (12 / (n * k * (k + 1)) * float((ranks.sum(axis=1) ** 2).sum()) - 3 * n * (k + 1)) / ties
    return Evidence(statistic, float(chdtrc(k - 1, statistic)))


def f_test(groups: Sequence[Floats]) -> Evidence:
    """Test whether frameworks differ in their mean rate; the training run is the unit (one-way ANOVA).

    If no rates differ within any framework, the statistic is 0 and p is 1.

    Parameters
    ----------
    groups : sequence of ndarray of float64, shape (training runs,)
        A rate for each trained model, framework by framework; the numbers of runs may differ. Two frameworks with two
        trainings each, or more.

    Raises
    ------
    UsageError
        A framework has one training, so the variance between trainings is unknown.

    Examples
    --------
    >>> statistic, p = f_test([np.array([0.1, 0.2]), np.array([0.3, 0.4])])
    >>> round(statistic, 6), round(p, 4)
    (8.0, 0.1056)
    """
    within, df = pool_variance(groups)
    between = _sum_between(groups) / (len(groups) - 1)
    if between <= NO_VARIANCE or within <= NO_VARIANCE:
        return NOTHING_VARIES
    return Evidence(between / within, float(fdtrc(len(groups) - 1, df, between / within)))


def brown_forsythe(groups: Sequence[Floats]) -> Evidence:
    """Test whether frameworks differ in their mean rate, where their trainings may vary unequally.

    The statistic of Brown and Forsythe (1974), "The small sample behavior of some statistics which test the equality of
    several means", with both degrees of freedom estimated from the variances as in Mehrotra (1997), "Improving the
    Brown-Forsythe solution to the generalized Behrens-Fisher problem". With equally many trainings the statistic is
    that of `f_test`; for two frameworks the test is Welch's t. If no rates differ within any framework, the statistic
    is 0 and p is 1.

    Parameters
    ----------
    groups : sequence of ndarray of float64, shape (training runs,)
        As for `f_test`.

    Raises
    ------
    UsageError
        A framework has one training.

    Examples
    --------
    >>> statistic, p = brown_forsythe([np.array([0.1, 0.2]), np.array([0.3, 0.4])])
    >>> round(statistic, 6), round(p, 4)
    (8.0, 0.1056)
    """
    pool_variance(groups)  # or it says what is missing
    between = _sum_between(groups)
    within = scale_unequal(np.array([group.var(ddof=1) for group in groups]), list(map(len, groups)))
    if between <= NO_VARIANCE or within.total <= NO_VARIANCE:
        return NOTHING_VARIES
    statistic = between / within.total
    return Evidence(statistic, float(fdtrc(within.df_between, within.df, statistic)))


def _sum_between(groups: Sequence[Floats]) -> float:
    """Return the sum of squares between groups."""
    means = np.array([group.mean() for group in groups])
    sizes = np.array([len(group) for group in groups])
    return float((sizes * (means - np.average(means, weights=sizes)) ** 2).sum())


class _Unequal(NamedTuple):
    """What the sum of squares between groups is compared with: its expectation, and both degrees of freedom."""

    total: float
    df_between: float
    df: float


def scale_unequal(variances: Floats, trainings: Sequence[int]) -> _Unequal:
    """Return the yardstick of groups from their variances (groups,) and numbers of training runs."""
    sizes = np.asarray(trainings)
    shares = sizes / sizes.sum()
    parts = (1 - shares) * variances
    total = float(parts.sum())
    if total <= NO_VARIANCE:
        return _Unequal(total, math.nan, math.nan)
    fourth = ((shares * variances).sum()) ** 2 + ((1 - 2 * shares) * variances**2).sum()
    return _Unequal(total, float(total**2 / fourth), float(total**2 / (parts**2 / (sizes - 1)).sum()))


class Difference(NamedTuple):
    """A test of a difference of two means, with its 95 % interval before any adjustment."""

    statistic: float
    p: float
    difference: float
    low: float
    high: float


def t_test(a: Floats, b: Floats, *, paired: bool = False, largest: float = 1.0) -> Difference:
    """Test whether two frameworks differ in their mean rate, each with a variance of its own between trainings.

    Welch (1947), "The generalization of 'Student's' problem when several different population variances are involved";
    of pairs Student's t of their differences (Student 1908, "The probable error of a mean"). If no rates differ within
    either framework, or all pairs differ by the same, there is nothing to measure a difference by: the statistic is 0,
    p is 1, and the interval is everything, -`largest` to `largest`.

    Parameters
    ----------
    a, b : ndarray of float64, shape (training runs,)
        A rate for each trained model; the numbers of runs may differ.
    paired : bool, default False
        Whether the trainings come in pairs: the first of a and the first of b are one, and so on.
    largest : float, default 1
        The largest possible difference, to which the interval is cut: 1 for rates, infinity for distances.

    Raises
    ------
    UsageError
        A framework has one training, or those that are paired differ in their number.

    Examples
    --------
    >>> difference = t_test(np.array([0.1, 0.2]), np.array([0.3, 0.4]))
    >>> round(difference.statistic, 3), round(difference.p, 4), round(difference.low, 3), round(difference.high, 3)
    (-2.828, 0.1056, -0.504, 0.104)
    >>> difference = t_test(np.array([0.1, 0.2, 0.4]), np.array([0.2, 0.4, 0.5]), paired=True)
    >>> round(difference.statistic, 3), round(difference.p, 4), round(difference.low, 3), round(difference.high, 3)
    (-4.0, 0.0572, -0.277, 0.01)
    """
    difference, error, df = compare_means(a, b, paired)
    if error**2 <= NO_VARIANCE:
        return Difference(*NOTHING_VARIES, difference, -largest, largest)
    half = float(stdtrit(df, 0.975)) * error
    statistic = difference / error
    p = float(2 * stdtr(df, -abs(statistic)))
    return Difference(statistic, p, difference, max(difference - half, -largest), min(difference + half, largest))


def compare_means(a: Floats, b: Floats, paired: bool) -> tuple[float, float, float]:
    """Return a's mean minus b's, its standard error, and its degrees of freedom; 0 and NaN if nothing varies."""
    if paired:
        if len(a) != len(b) or len(a) < 2:
            raise UsageError(f"expected two pairs of trainings or more, received {len(a)} and {len(b)} trainings")
        check_values(a, b)
        differences = a - b
        error = float(differences.std(ddof=1)) / math.sqrt(len(a))
        return float(differences.mean()), error, len(a) - 1
    pool_variance([a, b])  # or it says what is missing
    difference = float(a.mean() - b.mean())
    parts = np.array([group.var(ddof=1) / len(group) for group in (a, b)])
    total = float(parts.sum())
    if total <= NO_VARIANCE:
        return difference, 0.0, math.nan
    df = total**2 / (parts**2 / np.array([len(a) - 1, len(b) - 1])).sum()
    return difference, math.sqrt(total), float(df)


def holm(p: Sequence[float]) -> list[float]:
    """Return p values adjusted for their number (Holm 1979).

    Examples
    --------
    >>> [round(float(adjusted), 6) for adjusted in holm([0.01, 0.04, 0.03])]
    [0.03, 0.06, 0.06]
    """
    if not p:
        return []
    check_values(np.array(p))
    order = np.argsort(p, kind="stable")
    scaled = np.asarray(p, np.float64)[order] * np.arange(len(p), 0, -1)
    adjusted = np.empty(len(p))
    adjusted[order] = np.minimum(np.maximum.accumulate(scaled), 1)
    return [float(value) for value in adjusted]


# equivalence: is a difference smaller than a margin that was stated beforehand?


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
    a: Floats, b: Floats, margin: float, *, paired: bool = False, largest: float = 1.0
) -> Equivalence:
    """Test whether two frameworks' mean rates differ by less than a margin; the training run is the unit.

    Two one-sided t tests (Schuirmann 1987, "A comparison of the two one-sided tests procedure and the power approach
    for assessing the equivalence of average bioavailability"), with the error and the degrees of freedom of `t_test`.
    If no training differs from another of its framework, or all pairs differ by the same, nothing can be said: p is 1,
    the interval everything.

    Parameters
    ----------
    a, b : ndarray of float64, shape (training runs,)
        A rate for each trained model, or a distance.
    margin : float
        In the unit of the rates, above 0: 0.05 is five points.
    paired : bool, default False
        Whether the trainings come in pairs, as for `t_test`.
    largest : float, default 1
        The largest possible difference: 1 for rates, +inf for distances.

    Raises
    ------
    UsageError
        The margin is not above 0, or above `largest`; or as for `t_test`.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> a, b = rng.normal(0.2, 0.01, (2, 10))
    >>> evidence = equivalent_frameworks(a, b, margin=0.02)
    >>> evidence.p < 0.05, -0.02 < evidence.low, evidence.high < 0.02
    (True, True, True)
    """
    return _one_sided(*compare_means(a, b, paired), margin, largest)


def equivalent_models(differences: Floats, margin: float) -> Equivalence:
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
        end = 1 - ALPHA ** (1 / n)
        return Equivalence(0.0, -end, end, float((1 - margin) ** n))
    if n < 2:
        return _one_sided(math.nan, 0.0, math.nan, margin)
    error = float(np.std(differences, ddof=1)) / math.sqrt(n)
    return _one_sided(float(differences.mean()), error, n - 1, margin)


def _one_sided(difference: float, error: float, df: float, margin: float, largest: float = 1.0) -> Equivalence:
    check_fraction("margin", margin, largest)
    if error**2 <= NO_VARIANCE:
        return Equivalence(difference, -largest, largest, 1.0)
    half = float(stdtrit(df, 1 - ALPHA)) * error
    p = float(stdtr(df, (abs(difference) - margin) / error))  # the nearer end of the margin has the larger p
    return Equivalence(difference, difference - half, difference + half, p)

"""Intervals, variances and tests of success rates, from arrays alone."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .errors import UsageError


class Interval(NamedTuple):
    """Two ends, both included; NaN where there is no evidence."""

    low: float
    high: float


NO_EVIDENCE = Interval(math.nan, math.nan)
EVERYTHING = Interval(-1.0, 1.0)  # what a difference of rates may be
ONE_TRAINING = "With one training per framework, framework and training run cannot be told apart."
NO_VARIANCE = 1e-24  # of rates: what rounding leaves of equal ones
ROUNDING = 1e-12  # sums of means within it are equal


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
    Wilson's interval is given; of one other image nothing is known, 0 to 1.

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
    _check_values(image_means)
    n = len(image_means)
    if n == 0:
        return NO_EVIDENCE
    mean = float(image_means.mean())
    if mean in (0.0, 1.0):
        # Every resample is the same, which says nothing of images that were not seen.
        return wilson_interval(int(mean) * n, n, confidence)
    if n == 1:
        return Interval(0.0, 1.0)
    if np.ptp(image_means) == 0:
        return Interval(mean, mean)
    means = _resampled(image_means[None], resamples, seed)
    low, high = np.quantile(means, [0.5 - confidence / 2, 0.5 + confidence / 2])
    return Interval(float(low), float(high))


def t_interval(rates: NDArray[np.float64], confidence: float = 0.95) -> Interval:
    """Return Student's interval of the mean of a framework's rates, one for each training run.

    It ranges over training runs, on the images that were attacked. NaN for one training, and where all trainings have
    one rate, as there is nothing to tell by how much another one would differ.

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
    from scipy.special import stdtrit

    _check_values(rates)
    n = len(rates)
    if n < 2 or np.var(rates, ddof=1) <= NO_VARIANCE:
        return NO_EVIDENCE
    half = float(stdtrit(n - 1, 0.5 + confidence / 2) * np.std(rates, ddof=1) / math.sqrt(n))
    return Interval(float(np.mean(rates)) - half, float(np.mean(rates)) + half)


def difference_intervals(
    differences: NDArray[np.float64], confidence: float = 0.95, resamples: int = 10_000, seed: int = 0
) -> list[Interval]:
    """Return percentile bootstrap intervals of mean differences between models, over the images that both saw.

    An image is drawn with everything that happened to it: all differences see the same resamples. Where no image
    differs, resampling sees no variation, and Wilson's upper end for 0 of N stands on both sides; one image tells
    nothing, -1 to 1.

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
    _check_values(differences)
    pairs, n = differences.shape
    if n == 0:
        return [NO_EVIDENCE] * pairs
    means = _resampled(differences, resamples, seed)
    ends = np.quantile(means, [0.5 - confidence / 2, 0.5 + confidence / 2], axis=0).T
    unseen = wilson_interval(0, n, confidence).high
    return [
        Interval(float(low), float(high)) if its.any() and n > 1 else Interval(-unseen, unseen) if n > 1 else EVERYTHING
        for (low, high), its in zip(ends, differences, strict=True)
    ]


def two_way_interval(
    a: NDArray[np.float64], b: NDArray[np.float64], confidence: float = 0.95, resamples: int = 10_000, seed: int = 0
) -> Interval:
    """Return the range of the difference of two frameworks' mean rates over training runs and images together.

    Both are drawn with replacement (Owen 2007, "The pigeonhole bootstrap"): the runs of each framework for itself,
    the images together, as both frameworks saw the same. As runs are few, the range is stretched about the difference
    by what Student's quantile is larger than the normal one. It is wider than it need be, by about the variance that
    is counted twice. Where no training of either framework differs from another of it, or there is one image, there
    is nothing to measure a difference by: everything, -1 to 1.

    Parameters
    ----------
    a, b : ndarray of float64, shape (training runs, images)
        Means over repeats, in [0, 1]. The images are the same, the numbers of runs may differ.

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
    from scipy.special import ndtri, stdtrit

    if a.shape[1] != b.shape[1]:
        raise UsageError(f"expected outcomes on the same images, received {a.shape[1]} and {b.shape[1]}")
    _check_values(a, b)
    within, _ = _pooled([a.mean(axis=1), b.mean(axis=1)])
    if within <= NO_VARIANCE or a.shape[1] == 1:
        return EVERYTHING
    of_a, of_b = resampled_rates([a, b], resamples, seed)
    difference = float(a.mean() - b.mean())
    ends = np.quantile(of_a - of_b, [0.5 - confidence / 2, 0.5 + confidence / 2]) - difference
    stretch = stdtrit(len(a) + len(b) - 2, 0.5 + confidence / 2) / ndtri(0.5 + confidence / 2)
    return Interval(*(float(np.clip(difference + stretch * end, -1, 1)) for end in ends))


def resampled_rates(
    values: Sequence[NDArray[np.float64]], resamples: int = 10_000, seed: int = 0
) -> list[NDArray[np.float64]]:
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
    rng = np.random.default_rng(seed)
    n = values[0].shape[-1]
    blocks = []
    for size in _blocks(resamples, n):
        images = _weights(rng, n, size)
        runs = [_unbiased(_weights(rng, its.shape[-2], size)) for its in values]
        blocks.append([_weighted(its, runs[i], images) for i, its in enumerate(values)])
    return [np.concatenate(parts) for parts in zip(*blocks, strict=True)]


def _weighted(
    values: NDArray[np.float64], runs: NDArray[np.float64], images: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return the means of values (…, runs, images) under weights (resamples, runs) and (resamples, images)."""
    of_runs = (images @ values.reshape(-1, values.shape[-1]).T).reshape(len(images), *values.shape[:-1])
    mean: NDArray[np.float64] = np.einsum("b...r,br->b...", of_runs, runs)
    return mean


def _unbiased(weights: NDArray[np.float64]) -> NDArray[np.float64]:
    """Stretch weights (resamples, n) about 1/n, so that what they weigh varies as n fresh ones would."""
    n = weights.shape[1]
    return weights if n == 1 else 1 / n + (weights - 1 / n) * math.sqrt(n / (n - 1))


def _resampled(values: NDArray[np.float64], resamples: int, seed: int) -> NDArray[np.float64]:
    """Return the means of rows of values (rows, N) over resamples of the N, (resamples, rows)."""
    rng = np.random.default_rng(seed)
    n = values.shape[1]
    return np.concatenate([_weights(rng, n, size) @ values.T for size in _blocks(resamples, max(values.shape))])


def _weights(rng: np.random.Generator, n: int, resamples: int) -> NDArray[np.float64]:
    """Return how much each of n things weighs in each resample of n, (resamples, n)."""
    drawn = rng.integers(0, n, (resamples, n)) + n * np.arange(resamples)[:, None]
    return np.bincount(drawn.ravel(), minlength=resamples * n).reshape(resamples, n) / n


def _blocks(resamples: int, n: int) -> list[int]:
    """Cut a number of resamples of n things into blocks that fit the memory."""
    size = max(1, 2**22 // n)
    return [min(size, resamples - start) for start in range(0, resamples, size)]


# Variance ----------------------------------------------------------------------------------------------------------


class NestedVariance(NamedTuple):
    """Where the variance of trained models' rates lies.

    Attributes
    ----------
    framework, training_run : float
        The components: between frameworks, and between training runs of one framework. A component is estimated by
        a difference of mean squares and may come out negative; it is shown as it is.
    share : float
        framework / (framework + training_run).
    low, high : float
        Its exact 95 % interval, within [0, 1]. Both are 0 where not even a share of 0 fits, as the means of the
        frameworks are nearer to each other than chance has them in 39 of 40 cases.
    """

    framework: float
    training_run: float
    share: float
    low: float
    high: float


def nested_variance(rates: NDArray[np.float64], confidence: float = 0.95) -> NestedVariance:
    """Split the variance of trained models' rates: between frameworks, and between training runs of one framework.

    Training runs are nested in frameworks, and both are taken for samples of more: a balanced one-way analysis of
    variance with random effects (Searle, Casella and McCulloch 1992, "Variance Components", section 3.6). The
    interval is exact for normal effects and a share above 0; of a share of 0 it holds more, 97.5 %. With few frameworks
    it is wide by nature.

    Parameters
    ----------
    rates : ndarray of float64, shape (frameworks, training runs)
        A rate for each trained model: its mean over repeats, on the images that all saw. At least 2 by 2.

    Raises
    ------
    UsageError
        There are fewer than two frameworks or training runs, so that the two cannot be told apart; or frameworks have
        different numbers of runs, for which this analysis is not made.

    Examples
    --------
    >>> found = nested_variance(np.array([[0.1, 0.2], [0.3, 0.4], [0.5, 0.6]]))
    >>> round(found.framework, 4), round(found.training_run, 4), round(found.share, 3)
    (0.0375, 0.005, 0.882)

    Where nothing varies the share is 0 and its interval everything:

    >>> nested_variance(np.full((3, 4), 1.0))
    NestedVariance(framework=0.0, training_run=0.0, share=0.0, low=0.0, high=1.0)
    """
    try:
        rates = np.asarray(rates, np.float64)
    except ValueError:
        raise UsageError(
            "frameworks have different numbers of training runs; the nested analysis of variance needs equal numbers"
        ) from None
    if rates.ndim != 2 or min(rates.shape) < 2:
        raise UsageError(
            "expected rates (frameworks, training runs) of two frameworks and two trainings of each, or more; received "
            f"{rates.shape}.{_one_training(rates.shape[-1:])}"
        )
    if not np.isfinite(rates).all():
        raise UsageError(
            "expected finite rates, received NaN. The nested analysis of variance needs as many training runs of each "
            "framework."
        )
    from scipy.special import fdtri

    frameworks, runs = rates.shape
    df = frameworks - 1, frameworks * (runs - 1)
    means = rates.mean(axis=1)
    between = runs * float(((means - rates.mean()) ** 2).sum()) / df[0]
    within = float(((rates - means[:, None]) ** 2).sum()) / df[1]
    framework = (between - within) / runs
    if within <= NO_VARIANCE:
        if between <= NO_VARIANCE:
            return NestedVariance(0.0, 0.0, 0.0, 0.0, 1.0)
        return NestedVariance(framework, within, 1.0, 0.0, 1.0)  # nothing to measure it by
    # F / (1 + runs · framework/training_run) has an F distribution; solved for the share.
    f = between / within
    ratios = [f / fdtri(*df, 0.5 + sign * confidence / 2) for sign in (1, -1)]
    low, high = (float(np.clip((ratio - 1) / (ratio + runs - 1), 0, 1)) for ratio in ratios)
    return NestedVariance(framework, within, framework / (framework + within), low, high)


# Tests -------------------------------------------------------------------------------------------------------------


class Evidence(NamedTuple):
    """A test's statistic and its p value; where nothing varies, 0 and 1."""

    statistic: float
    p: float


NOTHING_VARIES = Evidence(0.0, 1.0)


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
    with _statsmodels():
        from statsmodels.stats.contingency_tables import cochrans_q

    found = cochrans_q(outcomes.T.astype(np.int64))
    return Evidence(float(found.statistic), float(found.pvalue))


def mcnemar(a: NDArray[np.bool_], b: NDArray[np.bool_]) -> Evidence:
    """Test whether two models are fooled equally often by a deterministic attack: McNemar's test, exact.

    The statistic is the number of images that fall in `a` alone; the p value is that of a fair coin among those that
    fall in one alone.

    Examples
    --------
    >>> mcnemar(np.array([True] * 6), np.array([False] * 6))
    Evidence(statistic=6.0, p=0.03125)
    """
    _check_same_images(a, b)
    return _coin(int(np.count_nonzero(a & ~b)), int(np.count_nonzero(b & ~a)))


def sign_test(a: NDArray[np.float64], b: NDArray[np.float64]) -> Evidence:
    """Test whether `a` is above `b` as often as below; equal values, also two of +inf, say nothing.

    Examples
    --------
    >>> sign_test(np.array([1.0, 2.0, np.inf]), np.array([0.5, 2.0, np.inf]))
    Evidence(statistic=1.0, p=1.0)
    """
    _check_same_images(a, b)
    return _coin(int(np.count_nonzero(a > b)), int(np.count_nonzero(a < b)))


def _check_same_images(*arrays: NDArray[Any]) -> None:
    """Raise `UsageError` for arrays of different shapes, or with NaN."""
    shapes = {array.shape for array in arrays}
    if len(shapes) > 1:
        raise UsageError(f"expected values of the same images, received the shapes {', '.join(map(str, shapes))}")
    _check_values(*arrays)


def _check_values(*arrays: NDArray[Any]) -> None:
    """Raise `UsageError` for NaN: an outcome that is missing is no outcome."""
    if any(np.isnan(array).any() for array in arrays):
        raise UsageError("expected a value for every image and training, received NaN")


def _coin(one: int, other: int) -> Evidence:
    from scipy.stats import binomtest

    return Evidence(float(one), float(binomtest(one, one + other).pvalue)) if one + other else NOTHING_VARIES


def sign_flips(differences: NDArray[np.float64], resamples: int = 10_000, seed: int = 0) -> list[Evidence]:
    """Test mean differences between two models by flipping the sign of each image's difference at random.

    For random attacks: the differences are those of an image's means over repeats. If it made no difference which of
    two models is which, every sign would be as likely as the other. Two-sided; the data count as one of the flips, so
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
    _check_values(differences)
    rng = np.random.default_rng(seed)
    pairs, n = differences.shape
    observed = np.abs(differences.sum(axis=1))
    reached = np.zeros(pairs, np.int64)
    some = differences[:, differences.any(axis=0)]  # the sign of a zero says nothing
    for size in _blocks(resamples, max(*some.shape, 1)):
        signs = rng.integers(0, 2, (size, some.shape[1]), np.int8) * 2.0 - 1.0
        reached += (np.abs(signs @ some.T) >= observed - ROUNDING).sum(axis=0)
    p = (1 + reached) / (1 + resamples)
    return [Evidence(float(mean), float(its)) for mean, its in zip(differences.sum(axis=1) / max(n, 1), p, strict=True)]


def label_permutation(values: NDArray[np.float64], resamples: int = 10_000, seed: int = 0) -> Evidence:
    """Test whether models differ at all, by permuting the models' values within each image at random.

    For random attacks, where Cochran's Q is for deterministic ones. The statistic is the variance of the models'
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
    _check_values(values)
    n = values.shape[1]
    observed = float(values.mean(axis=1).var()) if n else 0.0
    differs = values[:, np.ptp(values, axis=0) > 0]  # the other images add the same to every model
    if not differs.size:
        return NOTHING_VARIES
    rng = np.random.default_rng(seed)
    reached = 0
    for size in _blocks(resamples, differs.size):
        permuted = rng.permuted(np.broadcast_to(differs, (size, *differs.shape)), axis=1)
        reached += int((permuted.sum(axis=2).var(axis=1) / n**2 >= observed - ROUNDING).sum())
    return Evidence(observed, (1 + reached) / (1 + resamples))


def mantel(values: NDArray[np.float64], groups: Sequence[str], resamples: int = 10_000, seed: int = 0) -> Evidence:
    """Test whether pairs of one group have larger values than pairs of two, by permuting which group each belongs to.

    One-sided (Mantel 1967, "The detection of disease clustering and a generalized regression approach"). What a source
    adds to all of its targets, and a target to all of its sources, is taken out first, by least squares. The statistic
    is the mean of the rest within groups minus the mean across.

    Parameters
    ----------
    values : ndarray of float64, shape (N, N)
        From each source to each target; the diagonal is not looked at, and what is NaN is left out.
    groups : sequence of str
        The group of each. The permutations keep their sizes.

    Returns
    -------
    Evidence
        NaN for both where no group has two members, or there is one group.

    Examples
    --------
    >>> values = np.kron(np.eye(2), np.ones((4, 4)))
    >>> mantel(values, list("aaaabbbb")).p < 0.05  # of 35 ways of halving eight
    True
    """
    members = np.unique(groups, return_inverse=True)[1]
    n = len(members)
    known = np.isfinite(values) & ~np.eye(n, dtype=np.bool_)
    sources, targets = np.nonzero(known)
    design = np.concatenate([np.eye(n)[sources], np.eye(n)[targets]], axis=1)
    rest = np.zeros((n, n))
    rest[known] = values[known] - design @ np.linalg.lstsq(design, values[known], rcond=None)[0]

    def differences(members: NDArray[np.int64]) -> NDArray[np.float64]:
        """For each row of groups (rows, N) that of the means; NaN where there are no pairs of a kind."""
        within = (members[:, :, None] == members[:, None, :]).reshape(-1, n * n).astype(np.float64)
        pairs, total = within @ known.ravel(), within @ rest.ravel()
        with np.errstate(invalid="ignore", divide="ignore"):
            found: NDArray[np.float64] = total / pairs - (rest.sum() - total) / (known.sum() - pairs)
        return np.where(np.isfinite(found), found, np.nan)

    [observed] = differences(members[None])
    if np.isnan(observed):
        return Evidence(math.nan, math.nan)
    rng = np.random.default_rng(seed)
    reached = 0
    for size in _blocks(resamples, n * n):
        permuted = members[np.array([rng.permutation(n) for _ in range(size)])]
        reached += int((~(differences(permuted) < observed - ROUNDING)).sum())  # NaN is no evidence against
    return Evidence(float(observed), (1 + reached) / (1 + resamples))


def friedman(values: NDArray[np.float64]) -> Evidence:
    """Test whether models differ in a value an image, such as a distance, by its ranks within each image.

    Parameters
    ----------
    values : ndarray of float64, shape (models, images)
        +inf ranks last. Two models are a sign test.

    Examples
    --------
    >>> friedman(np.ones((3, 5)))
    Evidence(statistic=0.0, p=1.0)
    """
    _check_values(values)
    if len(values) < 3:
        return sign_test(values[0], values[1])
    if (values == values[0]).all():
        return NOTHING_VARIES
    from scipy.stats import friedmanchisquare

    found = friedmanchisquare(*values)
    return Evidence(float(found.statistic), float(found.pvalue))


def f_test(groups: Sequence[NDArray[np.float64]]) -> Evidence:
    """Test whether frameworks differ in their mean rate, the training run being the unit (one-way ANOVA).

    Where no training differs from another of its framework the statistic is 0 and p is 1.

    Parameters
    ----------
    groups : sequence of ndarray of float64, shape (training runs,)
        A rate for each trained model, framework by framework; the numbers of runs may differ. Two frameworks with two
        trainings each, or more.

    Raises
    ------
    UsageError
        A framework has one training: there is nothing to measure a difference by.

    Examples
    --------
    >>> statistic, p = f_test([np.array([0.1, 0.2]), np.array([0.3, 0.4])])
    >>> round(statistic, 6), round(p, 4)
    (8.0, 0.1056)
    """
    within, df = _pooled(groups)
    means = np.array([group.mean() for group in groups])
    sizes = np.array([len(group) for group in groups])
    between = float((sizes * (means - np.average(means, weights=sizes)) ** 2).sum()) / (len(groups) - 1)
    if between <= NO_VARIANCE or within <= NO_VARIANCE:
        return NOTHING_VARIES
    from scipy.special import fdtrc

    return Evidence(between / within, float(fdtrc(len(groups) - 1, df, between / within)))


class Difference(NamedTuple):
    """A test of a difference of two means, with its 95 % interval before any adjustment."""

    statistic: float
    p: float
    difference: float
    low: float
    high: float


def pooled_t(groups: Sequence[NDArray[np.float64]], a: int, b: int, confidence: float = 0.95) -> Difference:
    """Test whether two frameworks differ in their mean rate, with the variance between trainings pooled over all.

    Student's t; the variance within frameworks is taken to be one, and estimated from all groups. Where no training
    differs from another of its framework there is nothing to measure a difference by: the statistic is 0, p is 1, and
    the interval everything, -1 to 1. Rates of a few images in a thousand are often equal by chance. Intervals are cut
    to -1 to 1.

    Parameters
    ----------
    groups : sequence of ndarray of float64, shape (training runs,)
        As for `f_test`.
    a, b : int
        Which of the groups are compared.

    Raises
    ------
    UsageError
        A framework has one training.

    Examples
    --------
    >>> found = pooled_t([np.array([0.1, 0.2]), np.array([0.3, 0.4])], 0, 1)
    >>> round(found.statistic, 3), round(found.p, 4), round(found.low, 3), round(found.high, 3)
    (-2.828, 0.1056, -0.504, 0.104)
    """
    from scipy.special import stdtr, stdtrit

    within, df = _pooled(groups)
    difference = float(groups[a].mean() - groups[b].mean())
    error = math.sqrt(within * (1 / len(groups[a]) + 1 / len(groups[b])))
    half = float(stdtrit(df, 0.5 + confidence / 2)) * error
    if within <= NO_VARIANCE:
        return Difference(*NOTHING_VARIES, difference, -1.0, 1.0)
    statistic = difference / error
    p = float(2 * stdtr(df, -abs(statistic)))
    return Difference(statistic, p, difference, max(difference - half, -1.0), min(difference + half, 1.0))


def _pooled(groups: Sequence[NDArray[np.float64]]) -> tuple[float, int]:
    """Return the variance within groups and its degrees of freedom."""
    if len(groups) < 2 or min(len(group) for group in groups) < 2:
        raise UsageError(
            "expected two frameworks and two trainings of each, or more; received "
            f"{', '.join(str(len(group)) for group in groups)} trainings.{_one_training([len(its) for its in groups])}"
        )
    _check_values(*groups)
    df = sum(len(group) - 1 for group in groups)
    return float(sum(((group - group.mean()) ** 2).sum() for group in groups)) / df, df


def _one_training(trainings: Sequence[int]) -> str:
    """Say why one training of a framework is too few, where it is that."""
    return f" {ONE_TRAINING}" if 1 in trainings else ""


def holm(p: Sequence[float]) -> list[float]:
    """Return p values adjusted for their number (Holm 1979).

    Examples
    --------
    >>> [round(float(its), 6) for its in holm([0.01, 0.04, 0.03])]
    [0.03, 0.06, 0.06]
    """
    if not p:
        return []
    _check_values(np.array(p))
    with _statsmodels():
        from statsmodels.stats.multitest import multipletests

    return [float(its) for its in multipletests(p, method="holm")[1]]


@contextmanager
def _statsmodels() -> Iterator[None]:
    """Say how statsmodels is installed where it cannot be imported."""
    try:
        yield
    except ImportError as error:
        raise UsageError(f"tests need statsmodels ({error}). Install it with: pip install 'robustcmp[stats]'") from None


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

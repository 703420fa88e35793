"""Variance components of success rates, and what they predict for another training or another size."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import chdtri, fdtri

from ...errors import UsageError
from .foundations import NO_VARIANCE, Floats, pool_variance


class NestedVariance(NamedTuple):
    """The variance components of trained models' rates.

    Attributes
    ----------
    framework, training_run : float
        The components: between frameworks, and between training runs of one framework. A component is estimated by
        a difference of mean squares and may be negative; it is not truncated.
    share : float
        framework / (framework + training_run).
    low, high : float
        Its exact 95 % interval, within [0, 1]. Both are 0 if even a share of 0 is too large: in 39 of 40 cases
        chance alone would put the framework means further apart.
    """

    framework: float
    training_run: float
    share: float
    low: float
    high: float


def nested_variance(rates: Iterable[ArrayLike]) -> NestedVariance:
    """Split the variance of trained models' rates: between frameworks, and between training runs of one framework.

    Training runs are nested in frameworks, and both are taken for samples of more: a balanced one-way analysis of
    variance with random effects (Searle, Casella and McCulloch 1992, "Variance Components", section 3.6). The
    interval is exact for normal effects and a share above 0; of a share of 0 it holds more, 97.5 %. With few frameworks
    it is wide.

    Parameters
    ----------
    rates : ndarray of float64, shape (frameworks, training runs)
        A rate for each trained model: its mean over repeats, on the images that all saw. At least 2 by 2.

    Raises
    ------
    UsageError
        There are fewer than two frameworks or training runs, which confounds the two, or frameworks have
        different numbers of runs, which this analysis does not support.

    Examples
    --------
    >>> components = nested_variance(np.array([[0.1, 0.2], [0.3, 0.4], [0.5, 0.6]]))
    >>> round(components.framework, 4), round(components.training_run, 4), round(components.share, 3)
    (0.0375, 0.005, 0.882)

    Where nothing varies the share is 0 and its interval everything:

    >>> nested_variance(np.full((3, 4), 1.0))
    NestedVariance(framework=0.0, training_run=0.0, share=0.0, low=0.0, high=1.0)
    """
    groups = [np.asarray(group, np.float64) for group in rates]
    pool_variance(groups)  # or it says what is missing
    runs = len(groups[0])
    if any(len(group) != runs for group in groups):
        raise UsageError(
            "expected as many trainings of each framework, for the nested analysis of variance; received different "
            "numbers. Leave the surplus trainings out."
        )
    frameworks = len(groups)
    values = np.stack(groups)
    df = frameworks - 1, frameworks * (runs - 1)
    means = values.mean(axis=1)
    between = runs * float(((means - values.mean()) ** 2).sum()) / df[0]
    within = float(((values - means[:, None]) ** 2).sum()) / df[1]
    framework = (between - within) / runs
    if within <= NO_VARIANCE:
        if between <= NO_VARIANCE:
            return NestedVariance(0.0, 0.0, 0.0, 0.0, 1.0)
        return NestedVariance(framework, within, 1.0, 0.0, 1.0)  # nothing to measure it by
    # F / (1 + runs · framework/training_run) has an F distribution; solved for the share.
    f = between / within
    ratios = [f / fdtri(*df, 0.5 + sign * 0.95 / 2) for sign in (1, -1)]
    low, high = (float(np.clip((ratio - 1) / (ratio + runs - 1), 0, 1)) for ratio in ratios)
    return NestedVariance(framework, within, framework / (framework + within), low, high)


UPPER = 0.8
"""The confidence of the upper limit of a variance that a comparison is planned with (Browne 1995)."""


def upper_variance(groups: Sequence[Floats], confidence: float = UPPER) -> float:
    """Return the upper confidence limit of the variance between training runs, averaged over frameworks.

    One-sided, from the chi-square distribution, with Satterthwaite's degrees of freedom, because frameworks may vary
    unequally. A comparison that is planned with this limit has the stated power for a share `confidence` of all pilots
    (Browne 1995, "On the use of a pilot sample for sample size determination").

    Parameters
    ----------
    groups : sequence of ndarray of float64, shape (training runs,)
        A rate for each trained model, framework by framework.
    confidence : float, default 0.8
        The share of pilots in which the limit is above the variance.

    Raises
    ------
    UsageError
        There is one framework, or a framework has one training.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> [round(upper_variance(list(rng.normal(0.2, 0.02, (3, n)))) ** 0.5, 3) for n in (3, 100)]
    [0.024, 0.022]
    """
    pool_variance(groups)  # or it says what is missing
    variances = np.array([group.var(ddof=1) for group in groups])
    if variances.sum() <= NO_VARIANCE:
        return 0.0
    df = variances.sum() ** 2 / (variances**2 / np.array([len(group) - 1 for group in groups])).sum()
    return float(variances.mean() * df / chdtri(df, confidence))

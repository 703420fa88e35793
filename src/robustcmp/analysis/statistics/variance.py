"""Variance components of success rates, and what they predict for another training or another size."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import chdtri, fdtri

from ...errors import UsageError
from .foundations import NO_VARIANCE, one_training, pool_variance


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


def nested_variance(rates: ArrayLike) -> NestedVariance:
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
    try:
        rates = np.asarray(rates, np.float64)
    except ValueError:
        raise UsageError(
            "expected as many trainings of each framework, for the nested analysis of variance; received different "
            "numbers. Leave the surplus trainings out."
        ) from None
    if rates.ndim != 2 or min(rates.shape) < 2:
        raise UsageError(
            "expected rates (frameworks, training runs) of at least two frameworks with at least two "
            f"trainings each; received {rates.shape}.{one_training(rates.shape[-1:])}"
        )
    if not np.isfinite(rates).all():
        raise UsageError(
            "expected finite rates, received NaN. The nested analysis of variance needs equal numbers of "
            "training runs of each framework."
        )
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
    ratios = [f / fdtri(*df, 0.5 + sign * 0.95 / 2) for sign in (1, -1)]
    low, high = (float(np.clip((ratio - 1) / (ratio + runs - 1), 0, 1)) for ratio in ratios)
    return NestedVariance(framework, within, framework / (framework + within), low, high)


def interaction_variance(values: NDArray[np.float64]) -> float:
    """Return the variance of what an image does to one training and not to the others.

    The residual variance of an analysis of variance of trainings × images with one value each (Searle, Casella and
    McCulloch 1992, "Variance Components", chapter 4).

    Parameters
    ----------
    values : ndarray of float64, shape (trainings, images)
        At least 2 by 2.

    Examples
    --------
    >>> interaction_variance(np.array([[0.0, 1.0, 2.0], [1.0, 2.0, 3.0]]))  # one image is worse for both alike
    0.0
    """
    residuals = values - values.mean(axis=0) - values.mean(axis=1, keepdims=True) + values.mean()
    trainings, images = values.shape
    return float((residuals**2).sum() / ((trainings - 1) * (images - 1)))


UPPER = 0.8
"""The confidence of the upper limit of a variance that a comparison is planned with (Browne 1995)."""


class RateVariance(NamedTuple):
    """The variance of a trained model's rate within its framework, by source.

    On n images with r repeats, the variance is training + (image + draw / r) / n.

    Attributes
    ----------
    training : float
        Between training runs, on all images and over all draws; at least 0.
    image : float
        What an image does to one model and not to the others of its framework; at least 0.
    draw : float
        What a draw of the attack does on an image: to one model and not to the others if all have the same draws, in
        total if each training has its own. 0 for a pilot with one repeat, where it cannot be told from `image` and is
        part of it.
    """

    training: float
    image: float
    draw: float

    def at(self, images: int, repeats: int = 1) -> float:
        """Return the variance of a rate on so many images with so many repeats.

        >>> round(RateVariance(0.0025, 0.5, 0.5).at(1000, 2), 6)
        0.00325
        """
        return self.training + (self.image + self.draw / repeats) / images


def rate_variance(outcomes: Sequence[NDArray[np.float64]], own_draws: bool = False) -> RateVariance:
    """Split the variance of trained models' rates within frameworks, averaged over frameworks.

    All trainings of a framework see the same images, so an image that is easy for all of them moves all their rates
    alike. Its effect cancels in differences and is left out. ``image`` and ``draw`` come from residuals of analyses of
    variance within each framework (Searle, Casella and McCulloch 1992, "Variance Components", chapter 4): of trainings
    × images for the means over repeats, and of trainings × draws within each image. ``training`` is the variance of
    the measured rates without their parts, 0 if these are larger.

    Parameters
    ----------
    outcomes : sequence of ndarray, each of shape (training runs, repeats, images)
        Whether each image falls, or the probability that it does, framework by framework. One repeat for a
        deterministic attack.
    own_draws : bool, default False
        Whether each training has draws of its own.

    Returns
    -------
    RateVariance
        In the squared unit of the rates.

    Raises
    ------
    UsageError
        A framework has one training, there is one framework, or there is one image.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> rates = rng.normal(0.3, 0.05, (3, 100, 1, 1))
    >>> falls = (rng.random((3, 100, 4, 500)) < rates).astype(float)
    >>> training, image, draw = rate_variance(list(falls), own_draws=True)
    >>> round(training**0.5, 2), round(image, 1), round(draw, 1)
    (0.05, 0.0, 0.2)
    """
    images = outcomes[0].shape[2]
    if images < 2:
        raise UsageError(f"expected at least two images, received {images}")
    groups = [of_framework.mean(axis=(1, 2)) for of_framework in outcomes]
    pool_variance(groups)  # or it says what is missing
    measured = float(np.mean([group.var(ddof=1) for group in groups]))
    draw = float(np.mean([_of_draws(of_framework, own_draws) for of_framework in outcomes]))
    repeats = outcomes[0].shape[1]
    residual = float(np.mean([interaction_variance(of_framework.mean(axis=1)) for of_framework in outcomes]))
    image = max(residual - draw / repeats, 0.0)
    return RateVariance(max(measured - (image + draw / repeats) / images, 0.0), image, draw)


def _of_draws(values: NDArray[np.float64], own: bool) -> float:
    """Return the variance that draws add to an image's outcome, 0 for one repeat."""
    trainings, repeats, images = values.shape
    if repeats == 1:
        return 0.0
    residuals = values - values.mean(axis=1, keepdims=True)
    if own:
        return float((residuals**2).sum() / (trainings * (repeats - 1) * images))
    residuals -= residuals.mean(axis=0)
    return float((residuals**2).sum() / ((trainings - 1) * (repeats - 1) * images))


def upper_variance(groups: Sequence[NDArray[np.float64]], confidence: float = UPPER) -> float:
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

"""Variance components of success rates."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...errors import UsageError
from .foundations import (
    NO_VARIANCE,
    one_training,
)

# Variance ----------------------------------------------------------------------------------------------------------


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


def nested_variance(rates: NDArray[np.float64], confidence: float = 0.95) -> NestedVariance:
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
            "frameworks have different numbers of training runs; the nested analysis of variance needs equal numbers"
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

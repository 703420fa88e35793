"""Where the rate of one more training is expected, in another comparison."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...errors import UsageError, check_count
from .foundations import NO_VARIANCE, check_values
from .variance import interaction_variance


class Prediction(NamedTuple):
    """Where the rate of one more training is expected.

    Attributes
    ----------
    mean : float
        The mean rate of the trainings that there are.
    low, high : float
        The ends of the prediction interval, clipped to [0, 1]; NaN for one training.
    """

    mean: float
    low: float
    high: float


def prediction_interval(
    falls: NDArray[np.float64],
    images: int,
    *,
    rates: NDArray[np.float64] | None = None,
    choice: float = 0.0,
    confidence: float = 0.95,
) -> Prediction:
    """Return where the rate of one more training is expected, on other images of the same kind.

    m ± t·√V with V = σ²(1 + 1/n) + w + p(1 − p)/images + choice. m is the mean of the n trainings' rates, and σ² the
    variance between trainings: that of their rates less what images do to one training and not to the others, at least
    0. w is the variance of m from the choice of these images, the third term that of p = m from the choice of the other
    ones. t is Student's quantile with Satterthwaite's degrees of freedom, (n − 1)(V / A)² but at least n − 1, where
    A = s²(1 + 1/n), with the variance s² of the rates, is the part that n trainings estimate (Satterthwaite 1946, "An
    approximate distribution of estimates of variance components"; a prediction interval as in Hahn and Meeker 1991,
    "Statistical Intervals", section 4.2).

    Parameters
    ----------
    falls : ndarray of float64, shape (trainings, images)
        The share of an attack's repeats that fool each training on each image, in [0, 1].
    images : int
        How many images the other comparison attacks.
    rates : ndarray of float64, shape (trainings,), optional
        The trainings' rates, if they are not just the means of `falls`.
    choice : float, default 0
        A variance to be added, as of the choice of the models beside which the training is compared.
    confidence : float, default 0.95

    Raises
    ------
    UsageError
        There are fewer than two images, `images` is not positive, or a value is NaN.

    Examples
    --------
    >>> falls = np.random.default_rng(0).random((5, 1000)) < np.array([[0.18], [0.19], [0.20], [0.21], [0.22]])
    >>> mean, low, high = prediction_interval(falls.astype(float), images=1000)
    >>> round(mean, 2), round(low, 2), round(high, 2)
    (0.21, 0.12, 0.29)
    """
    from scipy.special import stdtrit

    check_values(falls)
    check_count("images", images)
    n, attacked = falls.shape
    if attacked < 2:
        raise UsageError(f"expected at least two images, received {attacked}")
    rates = falls.mean(axis=1) if rates is None else rates
    mean = float(rates.mean())
    if n < 2:
        return Prediction(mean, math.nan, math.nan)
    measured = float(rates.var(ddof=1))
    training = max(measured - interaction_variance(falls) / attacked, 0.0)
    of_images = float(falls.mean(axis=0).var(ddof=1)) / attacked + mean * (1 - mean) / images
    variance = training * (1 + 1 / n) + of_images + choice
    if variance <= NO_VARIANCE:
        return Prediction(mean, math.nan, math.nan)
    estimated = measured * (1 + 1 / n)
    df = (n - 1) * max(variance / max(estimated, NO_VARIANCE), 1.0) ** 2
    half = float(stdtrit(df, 0.5 + confidence / 2)) * math.sqrt(variance)
    return Prediction(mean, max(mean - half, 0.0), min(mean + half, 1.0))

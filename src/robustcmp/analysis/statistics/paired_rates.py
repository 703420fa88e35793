"""The difference of two models' rates on the same images, tested against a margin."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from scipy.special import ndtri

from ...errors import UsageError
from .foundations import ALPHA, Floats, check_fraction, check_values

LARGEST_SCORE = 1e9
SMALLEST_MARGIN = 1e-9


class PairedRates(NamedTuple):
    """How often only one of two models was fooled, in images.

    Attributes
    ----------
    only_a, only_b : float
        The number of images on which only the first or only the second model was fooled.
    images : float
        The number of images.
    """

    only_a: float
    only_b: float
    images: float

    @property
    def difference(self) -> float:
        """The first model's rate minus the second's, in [-1, 1]."""
        return (self.only_a - self.only_b) / self.images

    @property
    def discordance(self) -> float:
        """The share of images on which the models differ."""
        return (self.only_a + self.only_b) / self.images

    def score(self, difference: float) -> float:
        """Return the score of a hypothetical difference in (-1, 1), standard normal if it is the true one.

        Tango 1998, "Equivalence test and confidence interval for the difference in proportions for the paired-sample
        design", equation 6. The variance is that of the hypothesis, so that no discordant image is not certainty.
        """
        variance = self.images * (2 * self._only_b_share(difference) + difference * (1 - difference))
        distance = self.only_a - self.only_b - self.images * difference
        if variance <= 0:
            return math.copysign(LARGEST_SCORE, distance) if distance else 0.0
        return distance / math.sqrt(variance)

    def _only_b_share(self, difference: float) -> float:
        """Return the likeliest probability that only the second model is fooled, given the difference."""
        n = self.images
        linear = -self.only_a - self.only_b + (2 * n - self.only_a + self.only_b) * difference
        constant = -self.only_b * difference * (1 - difference)
        root = math.sqrt(max(linear**2 - 8 * n * constant, 0.0))
        return (root - linear) / (4 * n)

    def p_below(self, margin: float) -> float:
        """Return the p value of the hypothesis that the difference is at least the margin."""
        return _normal_tail(-self.score(margin))

    def p_above(self, margin: float) -> float:
        """Return the p value of the hypothesis that the difference is at most the margin."""
        return _normal_tail(self.score(margin))

    def interval(self, level: float = ALPHA) -> tuple[float, float]:
        """Return the lower and upper confidence bounds of the difference, each at ``1 - level``."""
        return self._bound(level), self._bound(1 - level)

    def _bound(self, tail: float) -> float:
        from scipy.optimize import brentq

        end = 1 - SMALLEST_MARGIN

        def excess(difference: float) -> float:
            return _normal_tail(self.score(difference)) - tail

        if excess(-end) >= 0:
            return -1.0
        if excess(end) <= 0:
            return 1.0
        return float(brentq(excess, -end, end, xtol=1e-9))


def pair_rates(a: Floats, b: Floats, repeats: int = 1) -> PairedRates:
    """Count how often only one of two models was fooled on the same images; the image is the unit.

    With several repeats, the values are shares of repeats and the counts are scaled to an effective number of images
    (Rao and Scott 1992, "A simple method for the analysis of clustered binary data"): the variance of independent
    image-repeats divided by the variance between images. One wholly discordant image is added to both variances, so
    that with few discordant images the effective number is the number of images.

    Parameters
    ----------
    a, b : ndarray of float64, shape (images,)
        The share of repeats in which each model was fooled, in [0, 1].
    repeats : int, default 1
        The number of repeats that the shares are means of.

    Raises
    ------
    UsageError
        A value is NaN.

    Examples
    --------
    >>> a, b = np.array([1.0, 1.0, 0.0, 0.0] * 50), np.array([1.0, 0.0, 0.0, 0.0] * 50)
    >>> rates = pair_rates(a, b)
    >>> rates.difference, [round(bound, 3) for bound in rates.interval()]
    (0.25, [0.203, 0.303])
    """
    check_values(a, b)
    differences = a - b
    images = len(differences)
    only_a = float(np.maximum(differences, 0).sum())
    only_b = float(np.maximum(-differences, 0).sum())
    of_mean = (only_a - only_b) ** 2 / images
    independent = only_a + only_b - of_mean
    between = float((differences**2).sum()) - of_mean
    factor = min((independent + 1) / (between + 1), float(repeats))
    return PairedRates(only_a * factor, only_b * factor, images * factor)


def images_to_show(
    discordance: float, margin: float, power: float, difference: float = 0.0, level: float = ALPHA
) -> int:
    """Return how many images show that a difference is below a margin.

    The sample size of the score test (Nam 1997, "Establishing equivalence of two treatments and sample size
    requirements in matched-pairs design").

    Parameters
    ----------
    discordance : float
        The share of images on which the models differ, in [0, 1].
    margin : float
        In (0, 1).
    power : float
        The probability to show it, in (0, 1).
    difference : float, default 0
        The true difference, below the margin.
    level : float, default 0.05
        The probability to show it although the difference is the margin.

    Raises
    ------
    UsageError
        The margin is no fraction, or not above the difference.

    Examples
    --------
    >>> images_to_show(0.02, 0.02, power=0.8)
    425
    """
    check_fraction("margin", margin)
    if difference >= margin:
        raise UsageError(f"expected a difference below the margin of {margin:g}, received {difference:g}")
    expected = PairedRates((discordance + difference) / 2, (discordance - difference) / 2, 1.0)
    distance = margin - difference
    deviation_at_margin = -distance / expected.score(margin)
    deviation = math.sqrt(max(discordance - difference**2, 0.0))
    reach = float(ndtri(1 - level)) * deviation_at_margin + float(ndtri(power)) * deviation
    return math.ceil((reach / distance) ** 2)


def _normal_tail(score: float) -> float:
    """Return the probability that a standard normal variable is above a score."""
    return math.erfc(score / math.sqrt(2)) / 2

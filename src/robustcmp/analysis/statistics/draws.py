"""Expectations over all draws of positions, from what each position would do."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln

from ...errors import UsageError


def fall_probability(vulnerable: NDArray[Any], pixels: NDArray[Any], tried: NDArray[Any] | int) -> NDArray[np.float64]:
    """Return the probability that a random draw of positions fools the model: 1 − C(N − K, m)/C(N, m).

    Parameters
    ----------
    vulnerable, pixels, tried : arrays of numbers that broadcast
        K of N positions are vulnerable, and m different ones are tried, at most N.

    Examples
    --------
    >>> fall_probability(np.array([0, 1, 64]), np.array([64, 64, 64]), 16)
    array([0.  , 0.25, 1.  ])
    """
    k = np.asarray(vulnerable, np.float64)
    n = np.asarray(pixels, np.float64)
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
        The expected shares of images that fool both models, and only one of them.
    """

    difference: float
    sd: float
    both: float
    only_a: float
    only_b: float


def common_draws(a: NDArray[np.bool_], b: NDArray[np.bool_], tried: int) -> CommonDraws:
    """Return two models' exact expected success under the same draws of positions.

    For an image with the vulnerable positions K_a and K_b of N, of which m are tried:
    P(both are fooled) = p_a + p_b − 1 + C(N − |K_a ∪ K_b|, m)/C(N, m). Draws are independent between images.

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
    >>> a, b = np.eye(4, dtype=bool)[:1], np.eye(4, dtype=bool)[1:2]
    >>> common = common_draws(a, b, 2)  # two of four positions are tried
    >>> round(common.both * 6, 9), round(common.only_a * 6, 9)  # in six draws
    (1.0, 2.0)
    """
    if a.shape != b.shape or a.ndim != 2:
        raise UsageError(f"expected two arrays of one shape (images, positions), received {a.shape} and {b.shape}")
    pixels = np.full(len(a), a.shape[1])
    p_a, p_b, p_either = (fall_probability(vulnerable.sum(axis=1), pixels, tried) for vulnerable in (a, b, a | b))
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

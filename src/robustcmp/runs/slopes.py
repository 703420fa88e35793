"""How far a gradient is from the slopes that a model's answers show."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..attacks.draws import Draws
from ..models.classifier import Classifier

STEP = 3e-3  # in L2: a smaller one drowns in float32, a larger one meets the kinks of ReLU and pools
TIES = 0.03  # the largest change of a pixel that breaks the ties of pools on a constant background
SLOPE = 1
TIE = 2


def compare_slopes(
    classifier: Classifier, images: NDArray[np.float32], labels: NDArray[np.int64], seed: int
) -> tuple[float, float]:
    """Return how far the gradient's slopes are off, along itself and along a random direction.

    The slopes are those of each image's margin, that of its class over the largest other. Both are shares of the
    typical slope. Along its own gradient a network with parts of it cut off shows nothing; along others kinks weigh
    more.
    """
    draws = Draws("Slopes", seed, [0], images)
    # On a constant background all inputs of a pool are largest.
    moves = np.array([draws.block(i, TIE).random(image.shape) for i, image in enumerate(images)])
    beside: NDArray[np.float32] = np.abs(images - TIES * moves).astype(np.float32)
    logits = classifier.logits(beside).astype(np.float64)
    rows = np.arange(len(logits))
    others = logits.copy()
    others[rows, labels] = -np.inf
    v = np.zeros_like(logits)
    v[rows, labels] = 1
    v[rows, others.argmax(axis=1)] = -1
    gradient = classifier.vjp(beside, v).astype(np.float64)
    random = np.array([draws.block(i, SLOPE).standard_normal(image.shape) for i, image in enumerate(images)])

    def measure_error(direction: NDArray[np.float64]) -> float:
        up = classifier.logits((beside + STEP * direction).astype(np.float32)).astype(np.float64)
        down = classifier.logits((beside - STEP * direction).astype(np.float32))
        measured = ((up - down) * v).sum(axis=1) / (2 * STEP)
        expected = (gradient * direction).sum(axis=(1, 2, 3))
        return float(np.median(np.abs(measured - expected)) / max(float(np.median(np.abs(measured))), 1e-30))

    along = measure_error(gradient / np.maximum(lengths(gradient), 1e-30))
    return along, measure_error(random / lengths(random))


def lengths(images: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the L2 norm of each image, (N, 1, 1, 1)."""
    norm: NDArray[np.float64] = np.sqrt((images**2).sum(axis=(1, 2, 3), keepdims=True))
    return norm

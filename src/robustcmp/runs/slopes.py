"""How far a gradient is from the slopes that a model's answers show."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..attacks.draws import Draws
from ..models.classifier import Classifier, unwrapped
from ..models.functions import FiniteDifferences
from ..models.model import FunctionsModel

STEP = 3e-3  # in L2: a smaller one drowns in float32, a larger one meets the kinks of ReLU and pools
TIES = 0.03  # the largest change of a pixel that breaks the ties of pools on a constant background
SLOPE, TIE = 1, 2
FEW = 8  # images that a caller's vjp is looked at
STEADY = 0.1  # by which slopes over half the step may differ, where the logits are smooth
OFF, OFF_ACROSS = 0.25, 0.5  # above what kinks make of a right gradient; across, where slopes are small, that is more


class Slopes:
    """Slopes of each image's margin, as its gradient has them and as the model's answers show them.

    The margin is that of a class over the largest other. It is looked at a little beside the images: on a constant
    background a pool has no gradient, as all of its inputs are largest.

    Parameters
    ----------
    classifier : Classifier
        The model.
    images, labels : ndarray
        (N, H, W, C) float32 in [0, 1], and the classes (N,).
    seed : int
        Of the places beside the images, and of the random direction.
    """

    def __init__(self, classifier: Classifier, images: NDArray[np.float32], labels: NDArray[np.int64], seed: int):
        draws = Draws("Slopes", seed, [0], images)
        moves = np.array([draws.block(i, TIE).random(image.shape) for i, image in enumerate(images)])
        self._classifier, self._images = classifier, np.abs(images - TIES * moves).astype(np.float32)
        logits = classifier.logits(self._images).astype(np.float64)
        rows = np.arange(len(logits))
        others = logits.copy()
        others[rows, labels] = -np.inf
        self._v = np.zeros_like(logits)
        self._v[rows, labels], self._v[rows, others.argmax(axis=1)] = 1, -1
        self._gradient = classifier.vjp(self._images, self._v).astype(np.float64)
        random = np.array([draws.block(i, SLOPE).standard_normal(image.shape) for i, image in enumerate(images)])
        self._along = self._gradient / np.maximum(lengths(self._gradient), 1e-30)
        self._across = random / lengths(random)

    def errors(self) -> tuple[float, float]:
        """Return how far the gradient's slopes are off, along itself and along a random direction.

        Both are shares of the typical slope. Along its own gradient a network with parts of it cut off shows nothing;
        along others kinks weigh more.
        """
        along, across = (self._error(direction, self._measured(direction)) for direction in (self._along, self._across))
        return along, across

    def steady_errors(self) -> tuple[float, float]:
        """Return the same, but 0 where half the step shows other slopes or none: the logits are not smooth there."""
        errors = []
        for direction in (self._along, self._across):
            whole, half = self._measured(direction), self._measured(direction, STEP / 2)
            steady = np.median(np.abs(whole - half)) < STEADY * np.median(np.abs(half))
            errors.append(self._error(direction, whole) if steady else 0.0)
        return errors[0], errors[1]

    def _measured(self, direction: NDArray[np.float64], step: float = STEP) -> NDArray[np.float64]:
        up, down = (
            self._classifier.logits((self._images + sign * step * direction).astype(np.float32)) for sign in (1, -1)
        )
        slopes: NDArray[np.float64] = ((up.astype(np.float64) - down) * self._v).sum(axis=1) / (2 * step)
        return slopes

    def _error(self, direction: NDArray[np.float64], measured: NDArray[np.float64]) -> float:
        expected = (self._gradient * direction).sum(axis=(1, 2, 3))
        return float(np.median(np.abs(measured - expected)) / max(float(np.median(np.abs(measured))), 1e-30))


def error_of_own_vjp(classifier: Classifier, images: NDArray[np.float32]) -> float | None:
    """Return how far off a gradient is that a caller wrote for `wrap_functions`, None where it is not seen to be.

    What a framework derives from the network is not asked about, nor are finite differences, and averaged models,
    whose slopes are noisy. The classes are the model's own.
    """
    model = unwrapped(classifier.model)
    if not isinstance(model, FunctionsModel) or model.framework != "numpy" or "averaged" in model.info:
        return None
    if model.pullback is None or isinstance(model.pullback, FiniteDifferences):
        return None
    some = images[:FEW]
    along, across = Slopes(classifier, some, classifier.predict(some), 0).steady_errors()
    return max(along, across) if along > OFF or across > OFF_ACROSS else None


def lengths(images: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the L2 norm of each image, (N, 1, 1, 1)."""
    norm: NDArray[np.float64] = np.sqrt((images**2).sum(axis=(1, 2, 3), keepdims=True))
    return norm

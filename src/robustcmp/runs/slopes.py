"""How far a gradient is from the slopes that a model's answers show."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..attacks.draws import Draws
from ..models.classifier import Classifier, unwrap
from ..models.functions import FiniteDifferences
from ..models.preflight import GRADIENTS, check_gradient

STEP = 3e-3  # in L2: a smaller one drowns in float32, a larger one meets the kinks of ReLU and pools
TIES = 0.03  # the largest change of a pixel that breaks the ties of pools on a constant background
SLOPE, TIE = 1, 2
FEW = 8  # images that the gradient of a brought model is looked at
STEADY = 0.1  # by which slopes over half the step may differ, where the logits are smooth
OFF, OFF_ACROSS = 0.25, 0.5  # above what kinks make of a right gradient; across, where slopes are small, that is more


class Slopes:
    """Slopes of Σ v·logits, as a gradient has them and as the model's answers show them.

    Parameters
    ----------
    classifier : Classifier
        The model.
    images : ndarray of float32, shape (N, H, W, C)
        Where they are looked at; see `off_ties`.
    v : ndarray, shape (N, K)
        Weights of the logits.
    gradient : ndarray, shape (N, H, W, C)
        What is said to be the gradient.
    draws : Draws
        Of the random direction, one for each image.
    """

    def __init__(
        self,
        classifier: Classifier,
        images: NDArray[np.float32],
        v: NDArray[np.floating],
        gradient: NDArray[np.float32],
        draws: Draws,
    ):
        self._classifier, self._images, self._v = classifier, images, v
        self._gradient = gradient.astype(np.float64)
        random = np.array([draws.block(i, SLOPE).standard_normal(image.shape) for i, image in enumerate(images)])
        self._along = self._gradient / np.maximum(lengths(self._gradient), 1e-30)
        self._across = random / lengths(random)

    def errors(self) -> tuple[float, float]:
        """Return how far the gradient's slopes are off, along itself and along a random direction.

        Both are shares of the typical slope. Along its own gradient a network with parts of it cut off shows nothing;
        along others kinks weigh more.
        """
        along, across = (self._error(direction, self._measure(direction)) for direction in (self._along, self._across))
        return along, across

    def steady_errors(self) -> tuple[float, float]:
        """Return the same, but 0 for what is large where half the step shows other slopes: there are kinks."""
        directions = (self._along, self._across)
        wholes = [self._measure(direction) for direction in directions]
        along, across = map(self._error, directions, wholes)
        if along <= OFF and across <= OFF_ACROSS:
            return along, across  # half the step could only make them 0
        errors = []
        for direction, whole, error in zip(directions, wholes, (along, across), strict=True):
            half = self._measure(direction, STEP / 2)
            steady = np.median(np.abs(whole - half)) < STEADY * np.median(np.abs(half))
            errors.append(error if steady else 0.0)
        return errors[0], errors[1]

    def _measure(self, direction: NDArray[np.float64], step: float = STEP) -> NDArray[np.float64]:
        up, down = (
            self._classifier.logits((self._images + sign * step * direction).astype(np.float32)) for sign in (1, -1)
        )
        slopes: NDArray[np.float64] = ((up.astype(np.float64) - down) * self._v).sum(axis=1) / (2 * step)
        return slopes

    def _error(self, direction: NDArray[np.float64], measured: NDArray[np.float64]) -> float:
        expected = (self._gradient * direction).sum(axis=(1, 2, 3))
        return float(np.median(np.abs(measured - expected)) / max(float(np.median(np.abs(measured))), 1e-30))


def slopes_of_margins(
    classifier: Classifier, images: NDArray[np.float32], labels: NDArray[np.int64], seed: int
) -> Slopes:
    """Return the slopes of each image's margin, that of its class over the largest other."""
    draws = Draws("Slopes", seed, [0], images)
    beside = off_ties(images, draws)
    logits = classifier.logits(beside).astype(np.float64)
    rows = np.arange(len(logits))
    others = logits.copy()
    others[rows, labels] = -np.inf
    v = np.zeros_like(logits)
    v[rows, labels], v[rows, others.argmax(axis=1)] = 1, -1
    return Slopes(classifier, beside, v, classifier.vjp(beside, v), draws)


def checked_gradient(name: str, classifier: Classifier, images: NDArray[np.float32]) -> float | None:
    """Return how far off a model's gradient is, as a share of the slopes; None where it is not seen to be.

    Networks of the zoo's designs are not looked at, nor finite differences, deployed networks, and averaged models,
    whose slopes are noisy.

    Raises
    ------
    ModelError
        The gradient is zero or not finite, see `check_gradient`.
    """
    model = unwrap(classifier.model)
    known = getattr(model, "architecture", None) is not None or "averaged" in getattr(model, "info", {})
    by_differences = isinstance(getattr(model, "_vjp", None), FiniteDifferences)
    if known or by_differences or classifier.gradient_source is not None:
        check_gradient(name, classifier.gradient_source or classifier, images)
        return None
    asked = images[:GRADIENTS]
    few = asked[: min(FEW, (len(asked) + 1) // 2)]
    draws = Draws("Slopes", 0, [0], few)
    # Far enough within [0, 1] that no step leaves it, as a caller's function may refuse what does.
    beside = (2 * STEP + (1 - 4 * STEP) * off_ties(few, draws)).astype(np.float32)
    some = np.concatenate([beside, asked[len(few) :]])  # no more gradients than without the slopes
    v, gradient = (array[: len(beside)] for array in check_gradient(name, classifier, some))
    along, across = Slopes(classifier, beside, v, gradient, draws).steady_errors()
    return max(along, across) if along > OFF or across > OFF_ACROSS else None


def off_ties(images: NDArray[np.float32], draws: Draws) -> NDArray[np.float32]:
    """Return images a little beside others: on a constant background all inputs of a pool are largest."""
    moves = np.array([draws.block(i, TIE).random(image.shape) for i, image in enumerate(images)])
    moved: NDArray[np.float32] = np.abs(images - TIES * moves).astype(np.float32)
    return moved


def lengths(images: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the L2 norm of each image, (N, 1, 1, 1)."""
    norm: NDArray[np.float64] = np.sqrt((images**2).sum(axis=(1, 2, 3), keepdims=True))
    return norm

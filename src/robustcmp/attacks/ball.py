"""What attacks share that look for an adversarial image within a given distance, L∞ or L2."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from .. import limits
from ..errors import UsageError, check_size
from ..models.classifier import Classifier
from ..records.attack import Extra, Floats, Norm
from .base import Attack, Images, Labels, Perturbed, unit
from .draws import Draws


@dataclass(frozen=True)
class Ball:
    """The images (N, H, W, C) float32 within a distance of clean ones, and within the bounds.

    Attributes
    ----------
    clean, low, high : ndarray
        The images, and the smallest and largest value of each pixel.
    radius : float
        The distance, in the unit of the pixels.
    norm : {"linf", "l2"}
        Which distance it is.
    """

    clean: Images
    low: Images
    high: Images
    radius: float
    norm: Norm = "linf"

    @classmethod
    def around(cls, images: Images, radius: float, bounds: tuple[float, float], norm: Norm = "linf") -> Ball:
        if norm == "l2":
            return cls(images, np.full_like(images, bounds[0]), np.full_like(images, bounds[1]), radius, norm)
        return cls(images, np.maximum(images - radius, bounds[0]), np.minimum(images + radius, bounds[1]), radius)

    def rows(self, rows: NDArray[np.int64] | NDArray[np.bool_]) -> Ball:
        """Return the ball of some images."""
        return Ball(self.clean[rows], self.low[rows], self.high[rows], self.radius, self.norm)

    def draw_points(self, draws: Draws, rows: NDArray[np.int64], purpose: int, attempt: int) -> Images:
        """Return random points of the surface around some images, within the bounds."""
        shape = self.clean.shape[1:]
        blocks = (draws.block(int(i), purpose, attempt) for i in rows)
        if self.norm == "l2":
            noise = np.array([block.standard_normal(shape) for block in blocks])
        else:
            noise = np.array([2 * block.random(shape) - 1 for block in blocks])
        part = self.rows(rows)
        return part.clip(part.clean + (self.radius * noise / (measure(noise, self.norm) + 1e-12)).astype(np.float32))

    def clip(self, images: Images) -> Images:
        """Return images moved into the ball."""
        if self.norm == "l2":
            moves = images - self.clean
            share = np.minimum(1, self.radius / np.maximum(measure(moves, "l2"), 1e-12))
            images = self.clean + moves * share.astype(np.float32)
        return np.clip(images, self.low, self.high)


def measure(moves: NDArray[np.floating[Any]], norm: Norm) -> Floats:
    """Return the norm (N, 1, 1, 1), L∞ or L2, of changes (N, H, W, C) of images."""
    if norm == "l2":
        size = np.sqrt(np.square(moves, dtype=np.float64).sum(axis=(1, 2, 3), keepdims=True))
    else:
        size = np.abs(moves).max(axis=(1, 2, 3), keepdims=True)
    return np.asarray(size, np.float64)


def search_in_turn(
    ball: Ball, attempts: int, attempt: Callable[[int, NDArray[np.int64]], Perturbed]
) -> tuple[Perturbed, NDArray[np.int64]]:
    """Return what several attempts find, each on the images left by the last, and which attempt (N,) it was, or −1.

    ``attempt(number, rows)`` attacks those rows of the ball.
    """
    whole = Perturbed.start(ball.clean)
    fooled_by = np.full(len(ball.clean), -1)
    for number in range(attempts):
        left = np.flatnonzero(~whole.fooled)
        if not len(left):
            break
        part = attempt(number, left)
        whole.fooled[left], whole.images[left] = part.fooled, part.images
        whole.queries[left] += part.queries
        fooled_by[left[part.fooled]] = number
    return whole, fooled_by


class BallAttack(Attack):
    """An attack within an L∞ or L2 distance of `epsilon`, a share of max − min.

    It asks about the clean images first: one that the model misclassifies has fallen at distance 0. It therefore runs
    on all images, and the share that does not fall is an upper bound on the robust accuracy at `epsilon`.
    """

    norm: Norm = "linf"
    in_indicator = False
    takes_misclassified = True

    def __init__(self, *, epsilon: float, epsilon_colour: float | None = None, norm: Literal["linf", "l2"] = "linf"):
        if norm not in ("linf", "l2"):
            raise UsageError(f'norm should be "linf" or "l2", received {norm!r}')
        if norm == "l2":
            self.norm = norm  # L∞ is no setting, so that the keys of cells that lie stored stay
        most = 1 if norm == "linf" else limits.EPSILON
        self.epsilon = check_size("epsilon", epsilon, most)
        self.epsilon_colour = None if epsilon_colour is None else check_size("epsilon_colour", epsilon_colour, most)

    @property
    def extras(self) -> dict[str, Extra]:
        return {"radius": Extra()}

    def radius(self, images: Images) -> float:
        """Return ε for such images: `epsilon_colour` for three channels, where it is set."""
        return self.epsilon if self.epsilon_colour is None or images.shape[3] != 3 else self.epsilon_colour

    def perturb(
        self, classifier: Classifier, images: Images, labels: Labels, seed: int, repeats: Sequence[int]
    ) -> Iterator[Perturbed]:
        lower, upper = classifier.bounds
        radius = self.radius(images)
        ball = Ball.around(images, radius * (upper - lower), classifier.bounds, self.norm)
        wrong = classifier.predict(images) != labels
        left = np.flatnonzero(~wrong)
        for repeat in repeats:
            extras = {name: np.zeros(len(images)) for name in self.extras}
            whole = Perturbed(wrong.copy(), images.copy(), np.ones(len(images), np.int64), extras)
            whole.extras["radius"][:] = radius
            if len(left):
                part = self.search(classifier, ball.rows(left), labels[left], seed, repeat)
                whole.fooled[left], whole.images[left] = part.fooled, part.images
                whole.queries[left] += part.queries
                for name, values in part.extras.items():
                    whole.extras[name][left] = values
            yield whole

    @abstractmethod
    def search(self, classifier: Classifier, ball: Ball, labels: Labels, seed: int, repeat: int) -> Perturbed:
        """Attack images that the model classifies correctly."""

    def draws(self, classifier: Classifier, ball: Ball, seed: int, repeat: int) -> Draws:
        """Return the attack's own draws for each image."""
        return Draws(type(self).__name__, seed, [repeat], unit(ball.clean, classifier.bounds))

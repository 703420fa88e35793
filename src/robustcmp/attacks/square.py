"""Random squares, kept where they help: no gradient is needed."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from .. import limits
from ..errors import check_count
from ..models.classifier import Classifier, check_finite
from .ball import Ball, BallAttack
from .base import Labels, Perturbed
from .draws import Draws
from .gradients import margin

CITE = """\
@inproceedings{andriushchenko2020square,
  title         = {Square Attack: a query-efficient black-box adversarial attack via random search},
  author        = {Andriushchenko, Maksym and Croce, Francesco and Flammarion, Nicolas and Hein, Matthias},
  booktitle     = {European Conference on Computer Vision (ECCV)},
  year          = {2020},
  eprint        = {1912.00049},
  archiveprefix = {arXiv}
}"""
STRIPES, SQUARES = 0, 1
BLOCK = 100  # iterations whose draws are made together
SHARE = 0.8  # of the pixels that the first squares cover
HALVED_AFTER = (10, 50, 200, 500, 1000, 2000, 4000, 6000, 8000)


class Square(BallAttack):
    """The Square attack (Andriushchenko et al. 2020) in L∞, with the settings of AutoAttack.

    It begins with vertical stripes of ±ε. Each iteration moves a random square by ±2ε in each channel, within the
    ball, and keeps it where the margin between the true class and the others shrinks. It needs only logits.

    Parameters
    ----------
    epsilon : float
        The L∞ distance, as a share of max − min.
    epsilon_colour : float, optional
        The same for images with three channels (default: `epsilon`).
    iterations : int, default 5000
        Squares that are tried on an image that has not fallen.

    Notes
    -----
    ``extras["radius"]`` (N,) is the ε that was used.

    Examples
    --------
    >>> import robustcmp as rc
    >>> data = rc.load_dataset("digits")
    >>> model = rc.load_model("lenet5", framework="torch", dataset="digits")
    >>> result = Square(epsilon=0.1, iterations=20).attack(model, data.images[:8], data.labels[:8])
    >>> int(result.queries.max()) <= 22
    True
    """

    cite = CITE

    def __init__(self, *, epsilon: float, epsilon_colour: float | None = None, iterations: int = 5000):
        super().__init__(epsilon, epsilon_colour)
        self.iterations = check_count("iterations", iterations, limits.ITERATIONS)

    def usual_queries(self, pixels: int, repeats: int) -> int:
        return repeats * (2 + self.iterations)

    def search(self, classifier: Classifier, ball: Ball, labels: Labels, seed: int, repeat: int) -> Perturbed:
        draws = self.draws(classifier, ball, seed, repeat)
        n, height, width, channels = ball.clean.shape
        radius = np.float32(ball.radius)
        adversarials, fooled, queries = ball.clean.copy(), np.zeros(n, np.bool_), np.zeros(n, np.int64)
        u = np.array([draws.block(i, STRIPES).random((1, width, channels)) for i in range(n)])
        row, inside = np.arange(n), ball
        best, best_loss = ball.clip(ball.clean + np.where(u < 0.5, -radius, radius)), np.full(n, -np.inf)
        candidates = best
        for iteration in range(self.iterations + 1):
            z = classifier.logits(candidates)
            check_finite(z)
            queries[row] += 1
            fell = z.argmax(axis=1) != labels[row]
            fooled[row[fell]], adversarials[row[fell]] = True, candidates[fell]
            loss, _ = margin(z, labels[row])
            better = loss > best_loss
            best = np.where(better[:, None, None, None], candidates, best)
            best_loss = np.where(better, loss, best_loss)
            if fell.any():
                row, best, best_loss, inside = row[~fell], best[~fell], best_loss[~fell], inside.rows(~fell)
            if iteration == self.iterations or not len(row):
                break
            offset = iteration % BLOCK
            if offset == 0:
                u = np.empty((n, BLOCK, 2 + channels))
                u[row] = squares(draws, row, iteration // BLOCK, channels)
            side = _square_side(iteration, height, width)
            drawn = u[row, offset]
            top, left = ((drawn[:, axis] * (size - side)).astype(np.int64) for axis, size in ((0, height), (1, width)))
            inside_rows = (np.arange(height) >= top[:, None]) & (np.arange(height) < top[:, None] + side)
            inside_columns = (np.arange(width) >= left[:, None]) & (np.arange(width) < left[:, None] + side)
            square = (inside_rows[:, :, None] & inside_columns[:, None, :])[..., None]
            moves = np.where(drawn[:, 2:] < 0.5, -2 * radius, 2 * radius)[:, None, None, :]
            candidates = inside.clip(best + np.where(square, moves, np.float32(0)))
        return Perturbed(fooled, adversarials, queries)


def squares(draws: Draws, rows: NDArray[np.int64], block: int, channels: int) -> NDArray[np.float64]:
    """Return the draws (M, BLOCK, 2 + channels) in [0, 1) of a block of iterations: places and signs."""
    return np.array([draws.block(int(i), SQUARES, block).random((BLOCK, 2 + channels)) for i in rows])


def _square_side(iteration: int, height: int, width: int) -> int:
    """Return the side of the square that is moved in an iteration: its share of the pixels is halved now and then."""
    share = SHARE / 2 ** sum(iteration > limit for limit in HALVED_AFTER)
    return min(max(round(math.sqrt(share * height * width)), 1), height, width)

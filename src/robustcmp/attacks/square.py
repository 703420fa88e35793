"""Random squares, kept where they help: no gradient is needed."""

from __future__ import annotations

import math
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from .. import limits
from ..errors import check_count
from ..models.classifier import Classifier, check_finite
from ..records.attack import Floats
from .ball import Ball, BallAttack, measure
from .base import Images, Labels, Perturbed
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
    """The Square attack (Andriushchenko et al. 2020), with the settings of AutoAttack.

    In L∞ it begins with vertical stripes of ±ε, and each iteration moves a random square by ±2ε in each channel, within
    the ball. In L2 it begins with tiles of bumps, and each iteration moves what one square has of the distance into
    another one, as a bump. What shrinks the margin between the true class and the others is kept. It needs only logits.

    Parameters
    ----------
    epsilon : float
        The distance, as a share of max − min: in L∞ at most 1.
    epsilon_colour : float, optional
        The same for images with three channels (default: `epsilon`).
    iterations : int, default 5000
        Squares that are tried on an image that has not fallen.
    norm : {"linf", "l2"}, default "linf"
        Which distance `epsilon` is.

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

    def __init__(
        self,
        *,
        epsilon: float,
        epsilon_colour: float | None = None,
        iterations: int = 5000,
        norm: Literal["linf", "l2"] = "linf",
    ):
        super().__init__(epsilon=epsilon, epsilon_colour=epsilon_colour, norm=norm)
        self.iterations = check_count("iterations", iterations, limits.ITERATIONS)

    def usual_queries(self, pixels: int, repeats: int) -> int:
        return repeats * (2 + self.iterations)

    def search(self, classifier: Classifier, ball: Ball, labels: Labels, seed: int, repeat: int) -> Perturbed:
        draws = self.draws(classifier, ball, seed, repeat)
        n, height, width, channels = ball.clean.shape
        start, propose, numbers = (_lay_tiles, _move_bumps, 5) if ball.norm == "l2" else (_paint, _move_squares, 2)
        perturbed = Perturbed.start(ball.clean)
        row = np.arange(n)
        inside = ball
        candidates = start(ball, draws)
        best, best_loss = candidates, np.full(n, -np.inf)
        for iteration in range(self.iterations + 1):
            z = classifier.logits(candidates)
            check_finite(z)
            perturbed.queries[row] += 1
            fell = z.argmax(axis=1) != labels[row]
            perturbed.fooled[row[fell]], perturbed.images[row[fell]] = True, candidates[fell]
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
                u = np.empty((n, BLOCK, numbers + channels))
                u[row] = squares(draws, row, iteration // BLOCK, numbers + channels)
            candidates = propose(inside, best, u[row, offset], _square_side(iteration, height, width))
        return perturbed


def squares(draws: Draws, rows: NDArray[np.int64], block: int, numbers: int) -> Floats:
    """Return the draws (M, BLOCK, numbers) in [0, 1) of a block of iterations: places, then a sign for each channel."""
    return np.array([draws.block(int(i), SQUARES, block).random((BLOCK, numbers)) for i in rows])


def _paint(ball: Ball, draws: Draws) -> Images:
    """Return where the search in L∞ begins: vertical stripes of ±ε."""
    n, _, width, channels = ball.clean.shape
    u = np.array([draws.block(i, STRIPES).random((1, width, channels)) for i in range(n)])
    radius = np.float32(ball.radius)
    return ball.clip(ball.clean + np.where(u < 0.5, -radius, radius))


def _move_squares(ball: Ball, best: Images, drawn: Floats, side: int) -> Images:
    """Return images with a square moved by ±2ε, by draws (N, 2 + channels)."""
    height, width = best.shape[1:3]
    reach = 2 * np.float32(ball.radius)
    top, left = _corner(best, drawn[:, :2], side)
    inside_rows = (np.arange(height) >= top[:, None]) & (np.arange(height) < top[:, None] + side)
    inside_columns = (np.arange(width) >= left[:, None]) & (np.arange(width) < left[:, None] + side)
    square = (inside_rows[:, :, None] & inside_columns[:, None, :])[..., None]
    moves = np.where(drawn[:, 2:] < 0.5, -reach, reach)[:, None, None, :]
    return ball.clip(best + np.where(square, moves, np.float32(0)))


def _corner(images: Images, drawn: Floats, side: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the top rows and the left columns (N,) of squares by draws (N, 2)."""
    height, width = images.shape[1:3]
    return (drawn[:, 0] * (height - side)).astype(np.int64), (drawn[:, 1] * (width - side)).astype(np.int64)


def _lay_tiles(ball: Ball, draws: Draws) -> Images:
    """Return where the search in L2 begins: tiles with a bump each, of random direction and sign, at distance ε."""
    n, height, width, channels = ball.clean.shape
    side = max(height // 5, 1)
    tiles = height // side, width // side
    edge = max((height - 5 * side) // 2, 0)
    u = np.array([draws.block(i, STRIPES).random((*tiles, 1 + channels)) for i in range(n)])
    moves = np.zeros(ball.clean.shape)
    for i in range(tiles[0]):
        for j in range(tiles[1]):
            bumps = _bumps(u[:, i, j], side)
            top = edge + i * side
            left = edge + j * side
            tile = moves[:, top : top + side, left : left + side]
            tile += bumps[:, : tile.shape[1], : tile.shape[2]]
    return _stretch(ball, moves)


def _move_bumps(ball: Ball, best: Images, drawn: Floats, side: int) -> Images:
    """Return images with a bump in one square, which gets what that and another square had, by draws (N, 5 + channels).

    The bump has the shape of what was in its square plus one of random direction and sign. Its size is what the two
    squares had, with what the image is still away from ε (algorithm 3 of the paper).
    """
    height, width, channels = best.shape[1:]
    side = max(side, 3)
    side = min(side + 1 - side % 2, height, width)
    moves = best.astype(np.float64) - ball.clean
    row = np.arange(len(best))[:, None, None]
    places = []
    for start in (0, 2):
        top, left = _corner(best, drawn[:, start : start + 2], side)
        places.append((row, (top[:, None] + np.arange(side))[:, :, None], (left[:, None] + np.arange(side))[:, None]))
    window, other = places
    before = moves[window]
    rest = moves.copy()
    rest[other] = 0
    rest[window] = 0
    freed = np.square(moves - rest).sum(axis=(1, 2), keepdims=True)
    unused = np.maximum(ball.radius**2 - measure(moves, "l2") ** 2, 0) / channels
    bump = _bumps(drawn[:, 4:], side) + _of_unit_size(before)
    rest[window] = _of_unit_size(bump) * np.sqrt(unused + freed)
    return _stretch(ball, rest)


def _bumps(drawn: Floats, side: int) -> Floats:
    """Return bumps (N, side, side, channels) of size 1 by draws (N, 1 + channels): two halves of opposite sign."""
    bump = np.concatenate([_half_bump(side // 2, side), -_half_bump(side - side // 2, side)])
    bump /= np.sqrt(np.square(bump).sum())
    lying = (drawn[:, 0] > 0.5)[:, None, None]
    signs = np.where(drawn[:, 1:] < 0.5, -1, 1)[:, None, None]
    return np.where(lying, bump.T, bump)[..., None] * signs


def _half_bump(height: int, width: int) -> Floats:
    """Return a mountain (height, width) of size 1: rings around the middle, each lower by 1/k² (equation 2)."""
    half = np.zeros((height, width))
    top, left = height // 2, width // 2
    for ring in range(max(height // 2, width // 2) + 1):
        half[max(top - ring, 0) : top + ring + 1, max(left - ring, 0) : left + ring + 1] += 1 / (ring + 1) ** 2
    size: float = np.sqrt(np.square(half).sum())
    return half / max(size, 1e-12)


def _of_unit_size(windows: Floats) -> Floats:
    """Return windows (N, H, W, C) whose channels have an L2 of 1 each."""
    size: Floats = np.sqrt(np.square(windows).sum(axis=(1, 2), keepdims=True))
    return windows / (size + 1e-12)


def _stretch(ball: Ball, moves: Floats) -> Images:
    """Return the clean images with changes (N, H, W, C) of L2 ε, within the bounds."""
    stretched = moves * (ball.radius / (measure(moves, "l2") + 1e-12))
    return ball.clip((ball.clean + stretched).astype(np.float32))


def _square_side(iteration: int, height: int, width: int) -> int:
    """Return the side of the square that is moved in an iteration: its share of the pixels is halved now and then."""
    share = SHARE / 2 ** sum(iteration > limit for limit in HALVED_AFTER)
    return min(max(round(math.sqrt(share * height * width)), 1), height, width)

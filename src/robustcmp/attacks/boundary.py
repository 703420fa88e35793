"""The boundary attack: a random walk along the decision boundary, towards the image."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..draws import Draws
from ..errors import UsageError, check_count
from ..model import Classifier
from .base import Attack, Found, Images, Labels, unit

START_NOISE, DIRECTION = 1, 2
START_DRAWS = 1000
BLENDS = 1000
CHECK_EVERY = 10
SPHERICAL_WINDOW, STEP_WINDOW = 100, 30
ADAPTATION = 1.5
SMALLEST_STEP = 1e-7
CHUNK = 1024  # images that advance together: memory does not grow with their number

Rows = NDArray[np.int64]
Points = NDArray[np.float64]


class Boundary(Attack):
    """The boundary attack (Brendel et al. 2018), as Guo et al. ran it with Foolbox 1.x.

    It starts from uniform noise, blended with the image as far as the model stays fooled, and walks along the
    decision boundary towards the image. Only the model's decisions are asked for.

    Parameters
    ----------
    iterations : int, default 100
        Steps of the walk.
    max_directions : int, default 5
        Directions that are tried in one step.
    spherical_step, source_step : float, default 0.01
        The first sizes of the steps, across and towards the image, relative to the distance.

    Notes
    -----
    With the paper's settings, the defaults, the walk hardly moves, and success means that a start was found. An image
    without one is a failure of that image alone.

    ``extras`` holds, each (N,): ``start`` (a start was found), ``source_step`` and ``spherical_step`` (the last ones),
    ``l2_half`` (L2 after half of the iterations, +inf without a start).

    Examples
    --------
    >>> import robustcmp as rc
    >>> data = rc.load_dataset("digits")
    >>> model = rc.load_model("lenet5", framework="torch", dataset="digits")
    >>> result = Boundary(iterations=5).attack(model, data.images[:4], data.labels[:4])
    >>> bool((result.success == result.extras["start"]).all())
    True
    """

    norm = "l2"

    def __init__(
        self,
        *,
        iterations: int = 100,
        max_directions: int = 5,
        spherical_step: float = 0.01,
        source_step: float = 0.01,
    ):
        check_count("iterations", iterations)
        check_count("max_directions", max_directions)
        if not (0 < spherical_step < np.inf and 0 < source_step < np.inf):
            raise UsageError(f"both steps should be more than 0 and finite, received {spherical_step}, {source_step}")
        self.iterations = iterations
        self.max_directions = max_directions
        self.spherical_step = spherical_step
        self.source_step = source_step

    @property
    def most_queries(self) -> int:
        return START_DRAWS + BLENDS + self.iterations * self.max_directions

    def _find(
        self, classifier: Classifier, images: Images, labels: Labels, seed: int, repeats: Sequence[int]
    ) -> Iterator[Found]:
        for repeat in repeats:
            parts = []
            for start in range(0, len(images), CHUNK):
                part = slice(start, start + CHUNK)
                draws = Draws("Boundary", seed, repeat, unit(images[part], classifier.bounds))
                walk = _Walk(self, classifier, images[part], labels[part], draws)
                walk.start()
                walk.advance()
                parts.append(walk.found())
            yield _concatenated(parts)


class _Walk:
    """Some images on their way, one row each. Points are float64 and flat, (rows, H·W·C); the model sees float32."""

    def __init__(self, attack: Boundary, classifier: Classifier, images: Images, labels: Labels, draws: Draws):
        n = len(images)
        self._attack, self._classifier, self._draws = attack, classifier, draws
        self._shape, self._labels = images.shape[1:], labels
        self._x: Points = images.reshape(n, -1).astype(np.float64)
        self._point = self._x.copy()
        self._started = np.zeros(n, np.bool_)
        self._queries = np.zeros(n, np.int64)
        self._spherical_step = np.full(n, attack.spherical_step)
        self._source_step = np.full(n, attack.source_step)
        self._l2_half = np.full(n, np.nan)
        self._spherical = _Statistic(n, SPHERICAL_WINDOW)
        self._steps = _Statistic(n, STEP_WINDOW)

    def start(self) -> None:
        """Find a first point for every row: noise that fools the model, and the smallest blend of it that does."""
        lower, upper = self._classifier.bounds
        noise = np.empty_like(self._x)
        pending = np.arange(len(self._x))
        for draw in range(START_DRAWS):
            if not len(pending):
                break
            for row in pending.tolist():
                self._draws.block(row, START_NOISE, 0, draw).random(out=noise[row])
            noise[pending] = lower + (upper - lower) * noise[pending]
            pending = pending[~self._fools(pending, noise[pending])]
        # Rows that nothing fooled go on with their last draw, as in Foolbox.
        pending = np.arange(len(self._x))
        for k in range(1, BLENDS + 1):
            if not len(pending):
                break
            blends = np.clip((1 - k / BLENDS) * self._x[pending] + k / BLENDS * noise[pending], lower, upper)
            fooled = self._fools(pending, blends)
            self._point[pending[fooled]] = blends[fooled]
            self._started[pending[fooled]] = True
            pending = pending[~fooled]

    def advance(self) -> None:
        """Take all iterations."""
        active = np.flatnonzero(self._started)
        for iteration in range(1, self._attack.iterations + 1):
            checking = iteration % CHECK_EVERY == 0
            self._step(active, iteration, checking)
            if checking:
                self._adapt(active)
            if iteration == self._attack.iterations // 2:
                self._l2_half[active] = self._distances()[active]
            active = active[self._source_step[active] >= SMALLEST_STEP]
            if not len(active):
                break

    def found(self) -> Found:
        """Return where the rows are."""
        never_half = np.isnan(self._l2_half)  # stopped before, or one iteration in all
        l2_half = np.where(never_half, self._distances(), self._l2_half)
        return Found(
            self._started,
            self._as_images(self._point),
            self._queries,
            {
                "start": self._started,
                "source_step": self._source_step,
                "spherical_step": self._spherical_step,
                "l2_half": np.where(self._started, l2_half, np.inf),
            },
        )

    def _step(self, active: Rows, iteration: int, checking: bool) -> None:
        """Try directions until the first candidate that fools the model, and take it if it is closer."""
        pending = active
        for direction in range(self._attack.max_directions):
            if not len(pending):
                break
            normal = np.empty((len(pending), self._x.shape[1]))
            for row, out in zip(pending.tolist(), normal, strict=True):
                self._draws.block(row, DIRECTION, iteration, direction).standard_normal(out=out)
            distance, spherical, candidates = self._candidates(pending, normal)
            asked = np.ones(len(pending), np.bool_)
            if checking:
                asked = self._fools(pending, spherical)
                self._spherical.add(pending, asked)
            fooled = np.zeros(len(pending), np.bool_)
            fooled[asked] = self._fools(pending[asked], candidates[asked])
            if checking:
                self._steps.add(pending[asked], fooled[asked])
            closer = fooled & (_norms(self._x[pending] - candidates) < distance)
            self._point[pending[closer]] = candidates[closer]
            pending = pending[~fooled]

    def _candidates(self, rows: Rows, normal: Points) -> tuple[Points, Points, Points]:
        """Return the rows' distances, their spherical candidates and their candidates, for given normal draws."""
        lower, upper = self._classifier.bounds
        x = self._x[rows]
        towards = x - self._point[rows]
        distance = _norms(towards)
        step = self._spherical_step[rows]
        along = towards * _inverse(distance)[:, None]
        normal -= np.einsum("ij,ij->i", normal, along)[:, None] * along
        normal *= (step * distance * _inverse(_norms(normal)))[:, None]
        spherical = np.clip(x + (normal - towards) / np.sqrt(1 + step**2)[:, None], lower, upper)
        gap = x - spherical
        width = _norms(gap)
        length = np.maximum(0, self._source_step[rows] * distance + width - distance)
        return distance, spherical, np.clip(spherical + (length * _inverse(width))[:, None] * gap, lower, upper)

    def _adapt(self, rows: Rows) -> None:
        """Make steps longer where more than half succeed, and shorter where less than a fifth do."""
        for statistic, steps in (
            (self._spherical, (self._spherical_step, self._source_step)),
            (self._steps, (self._source_step,)),
        ):
            full, mean = statistic.full(rows), statistic.mean(rows)
            longer, shorter = rows[full & (mean > 0.5)], rows[full & (mean < 0.2)]
            for step in steps:
                step[longer] *= ADAPTATION
                step[shorter] /= ADAPTATION
            statistic.clear(longer)
            statistic.clear(shorter)

    def _fools(self, rows: Rows, points: Points) -> NDArray[np.bool_]:
        """Ask the model, once for each row."""
        self._queries[rows] += 1
        fooled: NDArray[np.bool_] = self._classifier.predict(self._as_images(points)) != self._labels[rows]
        return fooled

    def _as_images(self, points: Points) -> Images:
        return points.reshape(-1, *self._shape).astype(np.float32)

    def _distances(self) -> NDArray[np.float64]:
        """The rows' L2, as it is reported: between float32 images."""
        return _norms(self._point.astype(np.float32).astype(np.float64) - self._x)


class _Statistic:
    """The last answers of each row, up to a window."""

    def __init__(self, n: int, window: int):
        self._answers = np.zeros((n, window), np.bool_)
        self._count = np.zeros(n, np.int64)

    def add(self, rows: Rows, answers: NDArray[np.bool_]) -> None:
        self._answers[rows, self._count[rows] % self._answers.shape[1]] = answers
        self._count[rows] += 1

    def full(self, rows: Rows) -> NDArray[np.bool_]:
        return self._count[rows] >= self._answers.shape[1]

    def mean(self, rows: Rows) -> NDArray[np.float64]:
        """The share of yes among the last answers; it means something where the window is full."""
        means: NDArray[np.float64] = self._answers[rows].mean(axis=1)
        return means

    def clear(self, rows: Rows) -> None:
        self._count[rows] = 0


def _norms(points: Points) -> NDArray[np.float64]:
    norms: NDArray[np.float64] = np.sqrt(np.einsum("ij,ij->i", points, points))
    return norms


def _inverse(lengths: NDArray[np.float64]) -> NDArray[np.float64]:
    """1/length, and 0 for a length of 0: there is no direction then."""
    return np.divide(1, lengths, out=np.zeros_like(lengths), where=lengths > 0)


def _concatenated(parts: Sequence[Found]) -> Found:
    first = parts[0]
    fields: dict[str, Any] = {
        name: np.concatenate([getattr(part, name) for part in parts]) for name in ("found", "images", "queries")
    }
    extras = {name: np.concatenate([part.extras[name] for part in parts]) for name in first.extras}
    return replace(first, **fields, extras=extras)

"""The boundary attack: a random walk along the decision boundary, towards the image."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from .. import limits
from ..errors import check_count, check_size
from ..models.classifier import Candidates, Classifier
from ..records.answers import Check, judge, not_applicable
from ..records.attack import AttackTable, Column, Convergence, Extra, Floats
from .base import Attack, Images, Labels, Perturbed, first_on_grid, unit
from .draws import Draws

START_NOISE, DIRECTION = 1, 2
START_DRAWS = 1000
BLENDS = 1000
SHARES = [k / BLENDS for k in range(1, BLENDS + 1)]
CHECK_EVERY = 10
AT_ONCE = 2**17  # values that are moved in one operation
SPHERICAL_WINDOW, STEP_WINDOW = 100, 30
ADAPTATION = 1.5
SMALLEST_STEP = 1e-7
CONVERGED = 1e-4  # the source_step up to which a walk has converged
PAPER_ITERATIONS = 100
GAIN = 0.15  # of the median distance, in its second half
HOLD = 0.99  # of the walks with a start, in the final pass

START_ADVICE = "Images without a start were not attacked: success is not about robustness there."
HOLD_ADVICE = (
    "Its points end so close to the decision boundary that the final pass assigns them their own class again: its "
    "success rate is not informative there."
)

if TYPE_CHECKING:
    import xarray

Rows = NDArray[np.int64]
Points = Floats


CITE = """\
@inproceedings{brendel2018decision,
  title         = {Decision-Based Adversarial Attacks: Reliable Attacks Against Black-Box Machine Learning Models},
  author        = {Brendel, Wieland and Rauber, Jonas and Bethge, Matthias},
  booktitle     = {International Conference on Learning Representations (ICLR)},
  year          = {2018},
  eprint        = {1712.04248},
  archiveprefix = {arXiv}
}"""


class Boundary(Attack):
    """The boundary attack (Brendel et al. 2018), as Guo et al. ran it with Foolbox 1.x.

    It starts from uniform noise, blend with the image as far as the model stays fooled, and walks along the
    decision boundary towards the image. It uses only the model's decisions.

    Parameters
    ----------
    iterations : int, default 100
        Steps of the walk.
    max_directions : int, default 5
        Directions that are tried in one step.
    spherical_step, source_step : float, default 0.01
        The initial step sizes, across and towards the image, relative to the distance.

    Notes
    -----
    With the paper's settings, the defaults, the walk hardly moves, and success only means that a start was found. An
    image without a start fails without affecting the others.

    A walk that has converged (its last ``source_step`` is at most 1e-4) ends so close to the decision boundary that
    float32 rounding decides. Its last point is moved away from the image by 1e-4 of the distance, so that other batch
    sizes give the same prediction.

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

    semantics = 2  # 2: a walk that has converged ends clear of rounding
    norm = "l2"
    cite = CITE
    start = "start"
    compares_distances = True
    table = AttackTable(
        "starts, success within an L2 distance, and the median distance",
        (
            Column("with a start", "start", percent=True),
            *(Column(f"L2 ≤ {budget}", "l2", "within", budget, percent=True) for budget in (1, 2, 3, 5)),
            Column("median L2", "l2", "median"),
        ),
    )
    check_names: ClassVar[tuple[str, ...]] = (
        "boundary has converged",
        "every image had a start",
        "boundary's points hold",
    )

    def __init__(
        self,
        *,
        iterations: int = 100,
        max_directions: int = 5,
        spherical_step: float = 0.01,
        source_step: float = 0.01,
    ):
        self.iterations = check_count("iterations", iterations, limits.ITERATIONS)
        self.max_directions = check_count("max_directions", max_directions, limits.DIRECTIONS)
        self.spherical_step = check_size("spherical_step", spherical_step, limits.EPSILON)
        self.source_step = check_size("source_step", source_step, limits.EPSILON)

    @property
    def extras(self) -> dict[str, Extra]:
        return dict.fromkeys(("start", "source_step", "spherical_step", "l2_half"), Extra())

    @property
    def notes(self) -> list[str]:
        if self.iterations > PAPER_ITERATIONS:
            return []
        return [f"at {self.iterations} iterations success only means that a start was found."]

    @property
    def convergence(self) -> Convergence:
        """Return when a walk has converged: its steps are small, and its second half gains little."""
        longer = "more iterations" if self.iterations > PAPER_ITERATIONS else "the suite boundary-long"
        otherwise = f"the walk has not converged; run {longer}"
        return Convergence("source_step", "l2_half", CONVERGED, GAIN, otherwise)

    @property
    def expected_failures(self) -> list[str]:
        """Return the convergence check for the paper's settings, under which a walk has only begun."""
        return [] if self.iterations > PAPER_ITERATIONS else [*self.check_names[:1]]

    def health_checks(self, name: str, outcomes: xarray.Dataset) -> Iterator[Check]:
        converged, had_start, hold = self.check_names
        convergence = self.convergence
        step, gain = convergence.measure(*(outcomes[of].values for of in (convergence.step, convergence.half, "l2")))
        figure = f"{name}: median source_step {step:.1g}, median L2 {round(gain, 2) + 0.0:.0%} less in its second half"
        advice = f"Its distances are not compared: {convergence.otherwise}."
        yield judge(converged, convergence.is_reached(step, gain), figure, advice)
        share = float(outcomes.start.mean())
        yield judge(had_start, share == 1, f"{name}: {share:.1%} had one", START_ADVICE)
        if not share:
            yield not_applicable(hold, f"{name}: none had a start")
            return
        fooled = float(outcomes.success.mean()) / share
        figure = f"{name}: {fooled:.1%} of those with a start fool in the final pass"
        yield judge(hold, fooled >= HOLD, figure, HOLD_ADVICE)

    def usual_queries(self, pixels: int, repeats: int) -> int:
        """Return what images on LeNets took: a start in few draws, and three quarters of the blends."""
        return repeats * (3 * BLENDS // 4 + self.iterations * self.max_directions)

    def perturb(
        self, classifier: Classifier, images: Images, labels: Labels, seed: int, repeats: Sequence[int]
    ) -> Iterator[Perturbed]:
        n = len(images)
        times = len(repeats)
        draws = Draws("Boundary", seed, repeats, unit(images, classifier.bounds))
        walk = _Walk(self, classifier, np.concatenate([images] * times), np.tile(labels, times), draws)
        walk.start()
        walk.advance()
        walk.leave_boundary()
        perturbed = walk.collect()
        for start in range(0, n * times, n):
            yield perturbed.part(slice(start, start + n))


class _Walk:
    """Some images on their way, repeat by repeat, one row each.

    Points are float64 and flat, (rows, H·W·C); the model sees float32.
    """

    def __init__(self, attack: Boundary, classifier: Classifier, images: Images, labels: Labels, draws: Draws):
        n = len(images)
        self._attack = attack
        self._classifier = classifier
        self._draws = draws
        self._labels = labels
        self._x: Points = images.reshape(n, -1).astype(np.float64)
        self._point = self._x.copy()
        # So many rows at once that memory stays as it is, and not fewer: every operation lets go of Python's
        # interpreter, and has to wait for another thread to let go of it in turn.
        self._rows_at_once = max(1, AT_ONCE // self._x.shape[1])
        self._normal = np.empty_like(self._x[: self._rows_at_once])
        self._candidates, self._images = np.empty_like(self._x), np.empty_like(images)
        self._spherical_candidates = np.empty(self._x.shape, np.float32)  # only asked, never taken
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
                noise[row] = lower + (upper - lower) * noise[row]
            pending = pending[~self.fools(pending, noise[pending])]
        # Rows that nothing fooled go on with their last draw, as in Foolbox.
        x, noise = (points.reshape(self._images.shape) for points in (self._x, noise))
        first, queries = first_on_grid(Candidates(self._classifier, _blend, x, noise), self._labels, SHARES)
        self._queries += queries
        self._started = first >= 0
        blends = np.clip(_blend(x, noise, self._started, np.array(SHARES)[first[self._started]]), lower, upper)
        self._point[self._started] = blends.reshape(-1, self._x.shape[1])

    def advance(self) -> None:
        """Take all iterations."""
        active = np.flatnonzero(self._started)
        self._towards = self._x - self._point
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

    def leave_boundary(self) -> None:
        """Move the rows that have converged outwards, to where rounding does not change what the model says."""
        rows = np.flatnonzero(self._started & (self._source_step <= CONVERGED))
        outwards = self._x[rows] - (1 + CONVERGED) * self._towards[rows]
        self._point[rows] = np.clip(outwards, *self._classifier.bounds)

    def collect(self) -> Perturbed:
        """Return where the rows are."""
        never_half = np.isnan(self._l2_half)  # stopped before, or one iteration in all
        l2_half = np.where(never_half, self._distances(), self._l2_half)
        return Perturbed(
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
            spherical, candidates = self.move(pending, iteration, direction)
            if checking:
                on_sphere = self.fools(pending, spherical)
                self._spherical.add(pending, on_sphere)
                candidate_rows, candidates = pending[on_sphere], candidates[on_sphere]
                fooled = self.fools(candidate_rows, candidates)
                self._steps.add(candidate_rows, fooled)
            else:
                candidate_rows, fooled = pending, self.fools(pending, candidates)
            self._take(candidate_rows[fooled], candidates[fooled])
            pending = np.setdiff1d(pending, candidate_rows[fooled], assume_unique=True)

    def move(self, rows: Rows, iteration: int, direction: int) -> tuple[NDArray[np.float32], Points]:
        """Return the rows' spherical candidates and their candidates in a new direction; good until the next call."""
        spherical, candidates = self._spherical_candidates[: len(rows)], self._candidates[: len(rows)]
        for start in range(0, len(rows), self._rows_at_once):
            block = slice(start, start + self._rows_at_once)
            some = rows[block]
            normal = self._normal[: len(some)]
            for row, out in zip(some.tolist(), normal, strict=True):
                self._draws.block(row, DIRECTION, iteration, direction).standard_normal(out=out)
            spherical[block], candidates[block] = _move_points(
                self._x[some],
                self._towards[some],
                normal,
                self._spherical_step[some],
                self._source_step[some],
                self._classifier.bounds,
            )
        return spherical, candidates

    def _take(self, rows: Rows, candidates: Points) -> None:
        """Move the rows to their candidates where these are closer to the image."""
        towards = self._x[rows] - candidates
        closer = _norms(towards) < _norms(self._towards[rows])
        self._point[rows[closer]] = candidates[closer]
        self._towards[rows[closer]] = towards[closer]

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

    def fools(self, rows: Rows, points: NDArray[np.floating[Any]]) -> NDArray[np.bool_]:
        """Ask the model, once for each row."""
        self._queries[rows] += 1
        return np.asarray(self._classifier.predict(self._as_images(points)) != self._labels[rows])

    def _as_images(self, points: NDArray[np.floating[Any]]) -> Images:
        """Return points as the model sees them; good until the next call."""
        images = self._images[: len(points)]
        images[:] = points.reshape(images.shape)
        return images

    def _distances(self) -> Floats:
        """The rows' L2, as it is reported: between float32 images."""
        return _norms(self._point.astype(np.float32).astype(np.float64) - self._x)


def _blend(x: Any, noise: Any, rows: Any, shares: Any) -> Any:
    """Return images (N, …) with a share of noise, for M rows and shares: of arrays, or of EagerPy tensors."""
    shares = shares[:, None, None, None]
    return (1 - shares) * x[rows] + shares * noise[rows]


def _move_points(
    x: Points,
    towards: Points,
    normal: Points,
    spherical_step: Floats,
    source_step: Floats,
    bounds: tuple[float, float],
) -> tuple[Points, Points]:
    """Return the spherical candidates s and the candidates c of some rows, for given normal draws.

    The formulas are those of the definition, docs/methodology.md, with the factors of each row taken together, so that
    the points are passed over as seldom as possible. Points are (rows, values) and the steps (rows,); `towards` is the
    image less the current point, and `normal` is overwritten.
    """
    distance = _norms(towards)
    along = _dots(normal, towards) * _inverse(distance) ** 2
    across = np.sqrt(np.maximum(_dots(normal, normal) - (along * distance) ** 2, 0))
    scale = spherical_step * distance * _inverse(across)  # of the part of `normal` that is orthogonal to `towards`
    shrink = 1 / np.sqrt(1 + spherical_step**2)
    normal *= (shrink * scale)[:, None]
    normal -= (shrink * (1 + scale * along))[:, None] * towards
    normal += x
    spherical = np.clip(normal, *bounds, out=normal)
    candidates = x - spherical
    width = _norms(candidates)
    length = np.maximum(0, source_step * distance + width - distance)
    candidates *= (length * _inverse(width))[:, None]
    candidates += spherical
    return spherical, np.clip(candidates, *bounds, out=candidates)


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

    def mean(self, rows: Rows) -> Floats:
        """The share of yes among the last answers; it means something where the window is full."""
        return np.asarray(self._answers[rows].mean(axis=1))

    def clear(self, rows: Rows) -> None:
        self._count[rows] = 0


def _dots(a: Points, b: Points) -> Floats:
    return np.asarray(np.einsum("ij,ij->i", a, b))


def _norms(points: Points) -> Floats:
    return np.sqrt(_dots(points, points))


def _inverse(lengths: Floats) -> Floats:
    """1/length, and 0 for a length of 0: there is no direction then."""
    return np.divide(1, lengths, out=np.zeros_like(lengths), where=lengths > 0)

"""APGD-T and FAB-T: AutoAttack's targeted parts, which aim at one other class after another."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from .. import limits
from ..errors import check_count
from ..models.classifier import Classifier
from ..records.attack import Floats, Norm
from .apgd import APGD, START
from .ball import Ball, BallAttack, measure, search_in_turn
from .base import Images, Labels, Perturbed
from .gradients import Logits, LossAndGradient, ask, follow

CITE = """@inproceedings{croce2020minimally,
  title         = {Minimally distorted Adversarial Examples with a Fast Adaptive Boundary Attack},
  author        = {Croce, Francesco and Hein, Matthias},
  booktitle     = {International Conference on Machine Learning (ICML)},
  year          = {2020},
  eprint        = {1907.02044},
  archiveprefix = {arXiv}
}"""
TARGETED_DLR_CLASSES = 4
MOST_TOWARDS_CLEAN = 0.1  # α_max: the largest share of the step that starts at the clean image
OVERSHOOT = 1.05  # η: so much of the way to the hyperplane is gone
BACK = 0.9  # β: where an adversarial image is drawn back to, on its way from the clean one


class _Targeted(BallAttack):
    """Aims at one other class after another, each time on the images that are left."""

    def __init__(
        self,
        *,
        epsilon: float,
        epsilon_colour: float | None = None,
        steps: int = 100,
        targets: int = 9,
        norm: Literal["linf", "l2"] = "linf",
    ):
        BallAttack.__init__(self, epsilon=epsilon, epsilon_colour=epsilon_colour, norm=norm)
        self.steps = check_count("steps", steps, limits.ITERATIONS)
        self.targets = check_count("targets", targets, limits.DIRECTIONS)

    def aim_in_turn(
        self,
        classifier: Classifier,
        ball: Ball,
        labels: Labels,
        aim: Callable[[int, NDArray[np.int64], Labels], Perturbed],
    ) -> Perturbed:
        """Return what ``aim(rank, rows, targets)`` finds, for the likeliest other class first."""
        others = _rank_other_classes(classifier.logits(ball.clean), labels)[:, : self.targets]
        whole, _ = search_in_turn(ball, others.shape[1], lambda rank, left: aim(rank, left, others[left, rank]))
        whole.queries[:] += 1  # for the order of the classes
        return whole


class APGDTargeted(_Targeted, APGD):
    """Auto-PGD towards one class after another (APGD-T of Croce and Hein 2020).

    Classes are taken in the order of their logits at the clean image, the likeliest first, each from a random point of
    the ball. The loss is the targeted difference of logits ratio (equation 7 there), which needs four classes:

        (z_target − z_true) / (z_1st − (z_3rd + z_4th) / 2)

    With two or three classes it falls back to the numerator.

    Parameters
    ----------
    epsilon : float
        The distance, as a share of max − min: in L∞ at most 1.
    epsilon_colour : float, optional
        The same for images with three channels (default: `epsilon`).
    steps : int, default 100
        Steps towards one class.
    targets : int, default 9
        How many classes are aimed at, or all others if there are fewer.
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
    >>> result = APGDTargeted(epsilon=0.1, steps=10, targets=2).attack(model, data.images[:8], data.labels[:8])
    >>> bool((result.linf[result.success] <= 0.1001).all())
    True
    """

    def usual_queries(self, pixels: int, repeats: int) -> int:
        return repeats * (2 + self.targets * (self.steps + 1))

    def rise(self, logits: Logits, labels: Labels, targets: Labels) -> LossAndGradient:
        return _targeted_dlr(logits, labels, targets)

    def search(self, classifier: Classifier, ball: Ball, labels: Labels, seed: int, repeat: int) -> Perturbed:
        draws = self.draws(classifier, ball, seed, repeat)

        def climb_towards(rank: int, left: NDArray[np.int64], targets: Labels) -> Perturbed:
            start = ball.draw_points(draws, left, START, rank)
            return self.climb(classifier, ball.rows(left), labels[left], start, targets)

        return self.aim_in_turn(classifier, ball, labels, climb_towards)


class FABTargeted(_Targeted):
    """The Fast Adaptive Boundary attack towards one class after another (FAB-T, Croce and Hein 2020).

    It looks for the nearest adversarial image. In each step, the boundary to the target is taken for the hyperplane on
    which the two logits are equal to first order. The next point lies between the projections of the current point and
    of the clean image onto it, within the bounds, and a little beyond. A point that fools the model from farther than ε
    is drawn back towards the clean image. An image is finished at the first point within ε that fools the model.

    Parameters
    ----------
    epsilon : float
        The distance, as a share of max − min: in L∞ at most 1.
    epsilon_colour : float, optional
        The same for images with three channels (default: `epsilon`).
    steps : int, default 100
        Steps towards one class.
    targets : int, default 9
        How many classes are aimed at, or all others if there are fewer.
    norm : {"linf", "l2"}, default "linf"
        Which distance `epsilon` is.

    Notes
    -----
    Deterministic. ``extras["radius"]`` (N,) is the ε that was used.

    Examples
    --------
    >>> import robustcmp as rc
    >>> data = rc.load_dataset("digits")
    >>> model = rc.load_model("lenet5", framework="torch", dataset="digits")
    >>> result = FABTargeted(epsilon=0.1, steps=10, targets=2).attack(model, data.images[:8], data.labels[:8])
    >>> bool((result.linf[result.success] <= 0.1001).all())
    True
    """

    needs_gradient = True
    takes_source_gradient = True
    deterministic = True
    cite = CITE

    def usual_queries(self, pixels: int, repeats: int) -> int:
        return 2 + self.targets * 2 * self.steps

    def search(self, classifier: Classifier, ball: Ball, labels: Labels, seed: int, repeat: int) -> Perturbed:
        def approach(_rank: int, left: NDArray[np.int64], targets: Labels) -> Perturbed:
            return self.approach(classifier, ball.rows(left), labels[left], targets)

        return self.aim_in_turn(classifier, ball, labels, approach)

    def approach(self, classifier: Classifier, ball: Ball, labels: Labels, targets: Labels) -> Perturbed:
        """Return what the search towards targets (N,) finds."""
        source = classifier.gradient_source
        perturbed = Perturbed.start(ball.clean)
        row = np.arange(len(labels))
        point = ball.clean
        for _ in range(self.steps):
            _, gap, gradient = follow(classifier, source, point, _targeted_margin, labels[row], targets[row])
            point = _step_to_boundary(point, ball.clean[row], gap, gradient, classifier.bounds, ball.norm)
            wrong = ask(classifier, point).argmax(axis=1) != labels[row]
            perturbed.queries[row] += 2
            fell = wrong & (measure(point - ball.clean[row], ball.norm).ravel() <= ball.radius)
            perturbed.fooled[row[fell]] = True
            perturbed.images[row[fell]] = point[fell]
            row, point, wrong = row[~fell], point[~fell], wrong[~fell]
            if not len(row):
                break
            clean = ball.clean[row[wrong]]
            point[wrong] = clean + np.float32(BACK) * (point[wrong] - clean)
        return perturbed


def _step_to_boundary(
    point: Images,
    clean: Images,
    gap: Floats,
    gradient: Images,
    bounds: tuple[float, float],
    norm: Norm,
) -> Images:
    """Return the next points (N, H, W, C) of FAB: between the steps from the points and from the clean images.

    `gap` (N,) is the target's logit minus the true one's at the points, and `gradient` its gradient there. The step
    from the clean image gets a share of at most 0.1, by how long the two steps are (section 2.3 of the paper).
    """
    x, start, w = (images.reshape(len(images), -1).astype(np.float64) for images in (point, clean, gradient))
    gap_at_clean = gap + (w * (start - x)).sum(axis=1)
    from_point = _project_onto_plane(x, gap, w, bounds, norm)
    from_clean = _project_onto_plane(start, gap_at_clean, w, bounds, norm)
    lengths = [np.maximum(measure(step[:, :, None, None], norm)[:, :, 0, 0], 1e-8) for step in (from_point, from_clean)]
    share = np.minimum(lengths[0] / (lengths[0] + lengths[1]), MOST_TOWARDS_CLEAN)
    moved = (x + OVERSHOOT * from_point) * (1 - share) + (start + OVERSHOOT * from_clean) * share
    return np.asarray(np.clip(moved, *bounds), np.float32).reshape(point.shape)


def _project_onto_plane(x: Floats, gap: Floats, w: Floats, bounds: tuple[float, float], norm: Norm) -> Floats:
    """Return the smallest step d with gap + w·d = 0 and x + d within the bounds; all are (N, values) or (N,).

    Every value moves by λ, in L2 by λ|w|, in the direction that closes the gap, or as far as its bound (Croce and Hein
    2020, section 2.1). What this closes is concave in λ and linear in between, so Newton's steps from λ = 0 end at the
    solution. Where even the bounds do not close the gap, the step ends in their corner.
    """
    slope, needed = np.abs(w), np.abs(gap)[:, None]
    direction = -np.sign(gap)[:, None] * np.sign(w)
    room = np.where(direction > 0, bounds[1] - x, x - bounds[0])
    speed = slope if norm == "l2" else np.ones_like(slope)
    rate = slope * speed
    reach = room / np.maximum(speed, 1e-200)
    total = slope * room
    length = np.full_like(needed, -1.0)
    longer = np.zeros_like(needed)
    while (longer > length).any():
        length = np.maximum(longer, length)
        stopped = reach <= length
        closed = np.where(stopped, total, 0).sum(axis=1, keepdims=True)
        moving = np.where(stopped, 0, rate).sum(axis=1, keepdims=True)
        longer = (needed - closed) / np.maximum(moving, 1e-200)
    return np.asarray(direction * np.minimum(length * speed, room))


def _targeted_margin(logits: Logits, labels: Labels, targets: Labels) -> LossAndGradient:
    """Return the target's logit minus the true class's (N,), and its gradient (N, K)."""
    z = logits.astype(np.float64)
    rows = np.arange(len(logits))
    v = np.zeros_like(z)
    v[rows, labels] = -1
    v[rows, targets] = 1
    return z[rows, targets] - z[rows, labels], v


def _targeted_dlr(logits: Logits, labels: Labels, targets: Labels) -> LossAndGradient:
    """Return the targeted DLR loss (N,) of Croce and Hein (2020, eq. 7), and its gradient (N, K) up to a factor.

    That is the `_targeted_margin` over the largest logit minus the mean of the third and the fourth largest. With fewer
    than four classes it is the `_targeted_margin` itself.
    """
    value, v = _targeted_margin(logits, labels, targets)
    z = logits.astype(np.float64)
    rows = np.arange(len(logits))
    if z.shape[1] < TARGETED_DLR_CLASSES:
        return value, v
    ranked = np.argsort(z, axis=1, kind="stable")
    first, third, fourth = ranked[:, -1], ranked[:, -3], ranked[:, -4]
    width = z[rows, first] - (z[rows, third] + z[rows, fourth]) / 2 + 1e-12
    v *= width[:, None]  # the gradient times width², which no sign sees
    v[rows, first] -= value
    v[rows, third] += value / 2
    v[rows, fourth] += value / 2
    return value / width, v / np.maximum(np.abs(v).max(axis=1, keepdims=True), 1e-300)


def _rank_other_classes(logits: Logits, labels: Labels) -> NDArray[np.int64]:
    """Return the classes other than the true one (N, K − 1), the likeliest first: what targeted attacks aim at."""
    z = logits.astype(np.float64)
    z[np.arange(len(z)), labels] = np.inf
    return np.argsort(z, axis=1, kind="stable")[:, -2::-1]

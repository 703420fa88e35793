"""APGD-T and FAB-T: AutoAttack's targeted parts, which aim at one other class after another."""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray

from .. import limits
from ..errors import check_count
from ..models.classifier import Classifier
from ..records.attack import Norm
from .apgd import APGD, start_points
from .ball import Ball, BallAttack, measure, search_in_turn
from .base import Images, Labels, Perturbed
from .gradients import Logits, LossAndGradient, ask, follow, rank_other_classes, targeted_dlr, targeted_margin

CITE = """@inproceedings{croce2020minimally,
  title         = {Minimally distorted Adversarial Examples with a Fast Adaptive Boundary Attack},
  author        = {Croce, Francesco and Hein, Matthias},
  booktitle     = {International Conference on Machine Learning (ICML)},
  year          = {2020},
  eprint        = {1907.02044},
  archiveprefix = {arXiv}
}"""
MOST_TOWARDS_CLEAN = 0.1  # α_max: the largest share of the step that starts at the clean image
OVERSHOOT = 1.05  # η: so much of the way to the hyperplane is gone
BACK = 0.9  # β: where an adversarial image is drawn back to, on its way from the clean one


class APGDTargeted(APGD):
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

    def __init__(
        self,
        *,
        epsilon: float,
        epsilon_colour: float | None = None,
        steps: int = 100,
        targets: int = 9,
        norm: Literal["linf", "l2"] = "linf",
    ):
        BallAttack.__init__(self, epsilon, epsilon_colour, norm)
        self.steps = check_count("steps", steps, limits.ITERATIONS)
        self.targets = check_count("targets", targets, limits.DIRECTIONS)

    def usual_queries(self, pixels: int, repeats: int) -> int:
        return repeats * (2 + self.targets * (self.steps + 1))

    def rise(self, logits: Logits, labels: Labels, targets: Labels) -> LossAndGradient:
        return targeted_dlr(logits, labels, targets)

    def search(self, classifier: Classifier, ball: Ball, labels: Labels, seed: int, repeat: int) -> Perturbed:
        draws = self.draws(classifier, ball, seed, repeat)
        others = rank_other_classes(classifier.logits(ball.clean), labels)[:, : self.targets]

        def climb_towards(rank: int, left: NDArray[np.int64]) -> Perturbed:
            start = start_points(ball, draws, left, rank)
            return self.climb(classifier, ball.rows(left), labels[left], start, others[left, rank])

        whole, _ = search_in_turn(ball, others.shape[1], climb_towards)
        whole.queries[:] += 1  # for the order of the classes
        return whole


class FABTargeted(BallAttack):
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

    def __init__(
        self,
        *,
        epsilon: float,
        epsilon_colour: float | None = None,
        steps: int = 100,
        targets: int = 9,
        norm: Literal["linf", "l2"] = "linf",
    ):
        super().__init__(epsilon, epsilon_colour, norm)
        self.steps = check_count("steps", steps, limits.ITERATIONS)
        self.targets = check_count("targets", targets, limits.DIRECTIONS)

    def usual_queries(self, pixels: int, repeats: int) -> int:
        return 2 + self.targets * 2 * self.steps

    def search(self, classifier: Classifier, ball: Ball, labels: Labels, seed: int, repeat: int) -> Perturbed:
        others = rank_other_classes(classifier.logits(ball.clean), labels)[:, : self.targets]

        def approach(rank: int, left: NDArray[np.int64]) -> Perturbed:
            return self.approach(classifier, ball.rows(left), labels[left], others[left, rank])

        whole, _ = search_in_turn(ball, others.shape[1], approach)
        whole.queries[:] += 1  # for the order of the classes
        return whole

    def approach(self, classifier: Classifier, ball: Ball, labels: Labels, targets: Labels) -> Perturbed:
        """Return what the search towards targets (N,) finds."""
        source = classifier.gradient_source
        n = len(labels)
        fooled, adversarials, queries = np.zeros(n, np.bool_), ball.clean.copy(), np.zeros(n, np.int64)
        row, point = np.arange(n), ball.clean
        for _ in range(self.steps):
            _, gap, gradient = follow(classifier, source, point, targeted_margin, labels[row], targets[row])
            point = step_to_boundary(point, ball.clean[row], gap, gradient, classifier.bounds, ball.norm)
            wrong = ask(classifier, point).argmax(axis=1) != labels[row]
            queries[row] += 2
            fell = wrong & (measure(point - ball.clean[row], ball.norm).ravel() <= ball.radius)
            fooled[row[fell]] = True
            adversarials[row[fell]] = point[fell]
            row, point, wrong = row[~fell], point[~fell], wrong[~fell]
            if not len(row):
                break
            clean = ball.clean[row[wrong]]
            point[wrong] = clean + np.float32(BACK) * (point[wrong] - clean)
        return Perturbed(fooled, adversarials, queries)


def step_to_boundary(
    point: Images,
    clean: Images,
    gap: NDArray[np.float64],
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
    from_point = project_onto_plane(x, gap, w, bounds, norm)
    from_clean = project_onto_plane(start, gap_at_clean, w, bounds, norm)
    lengths = [np.maximum(measure(step[:, :, None, None], norm)[:, :, 0, 0], 1e-8) for step in (from_point, from_clean)]
    share = np.minimum(lengths[0] / (lengths[0] + lengths[1]), MOST_TOWARDS_CLEAN)
    moved = (x + OVERSHOOT * from_point) * (1 - share) + (start + OVERSHOOT * from_clean) * share
    return np.clip(moved, *bounds).astype(np.float32).reshape(point.shape)


def project_onto_plane(
    x: NDArray[np.float64], gap: NDArray[np.float64], w: NDArray[np.float64], bounds: tuple[float, float], norm: Norm
) -> NDArray[np.float64]:
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
    return direction * np.minimum(length * speed, room)

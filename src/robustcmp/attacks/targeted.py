"""APGD-T and FAB-T: AutoAttack's targeted parts, which aim at one other class after another."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from .. import limits
from ..errors import check_count
from ..models.classifier import Classifier, check_finite
from .apgd import APGD, start_points
from .ball import Ball, BallAttack, search_in_turn
from .base import Images, Labels, Perturbed
from .gradients import Logits, LossAndGradient, pull_back, rank_other_classes, targeted_dlr, targeted_margin

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
    """Auto-PGD towards one class after another (APGD-T of Croce and Hein 2020) in L∞.

    Classes are taken in the order of their logits at the clean image, the likeliest first, each from a random point of
    the ball. The loss is the targeted difference of logits ratio (equation 7 there), which needs four classes:

        (z_target − z_true) / (z_1st − (z_3rd + z_4th) / 2)

    With two or three classes it falls back to the numerator.

    Parameters
    ----------
    epsilon : float
        The L∞ distance, as a share of max − min: at most 1.
    epsilon_colour : float, optional
        The same for images with three channels (default: `epsilon`).
    steps : int, default 100
        Steps towards one class.
    targets : int, default 9
        How many classes are aimed at, or all others if there are fewer.

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

    def __init__(self, *, epsilon: float, epsilon_colour: float | None = None, steps: int = 100, targets: int = 9):
        BallAttack.__init__(self, epsilon, epsilon_colour)
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
    """The Fast Adaptive Boundary attack towards one class after another (FAB-T, Croce and Hein 2020) in L∞.

    It looks for the nearest adversarial image. In each step, the boundary to the target is taken for the hyperplane on
    which the two logits are equal to first order. The next point lies between the projections of the current point and
    of the clean image onto it, within the bounds, and a little beyond. A point that fools the model from farther than ε
    is drawn back towards the clean image. An image is finished at the first point within ε that fools the model.

    Parameters
    ----------
    epsilon : float
        The L∞ distance, as a share of max − min: at most 1.
    epsilon_colour : float, optional
        The same for images with three channels (default: `epsilon`).
    steps : int, default 100
        Steps towards one class.
    targets : int, default 9
        How many classes are aimed at, or all others if there are fewer.

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

    def __init__(self, *, epsilon: float, epsilon_colour: float | None = None, steps: int = 100, targets: int = 9):
        super().__init__(epsilon, epsilon_colour)
        self.steps = check_count("steps", steps, limits.ITERATIONS)
        self.targets = check_count("targets", targets, limits.DIRECTIONS)

    def usual_queries(self, pixels: int, repeats: int) -> int:
        return 2 + self.targets * (2 * self.steps + 1)

    def search(self, classifier: Classifier, ball: Ball, labels: Labels, seed: int, repeat: int) -> Perturbed:
        others = rank_other_classes(classifier.logits(ball.clean), labels)[:, : self.targets]

        def approach(rank: int, left: NDArray[np.int64]) -> Perturbed:
            return self.approach(classifier, ball.rows(left), labels[left], others[left, rank])

        whole, _ = search_in_turn(ball, others.shape[1], approach)
        whole.queries[:] += 1  # for the order of the classes
        return whole

    def approach(self, classifier: Classifier, ball: Ball, labels: Labels, targets: Labels) -> Perturbed:
        """Return what the search towards targets (N,) finds."""
        followed = classifier.gradient_source or classifier
        n = len(labels)
        fooled, adversarials, queries = np.zeros(n, np.bool_), ball.clean.copy(), np.zeros(n, np.int64)
        row, point = np.arange(n), ball.clean
        z = _ask(classifier, point)
        queries += 1
        for _ in range(self.steps):
            gap, v = targeted_margin(z, labels[row], targets[row])
            gradient = pull_back(followed, point, v)
            point = step_to_boundary(point, ball.clean[row], gap, gradient, classifier.bounds)
            z = _ask(classifier, point)
            queries[row] += 1
            wrong = z.argmax(axis=1) != labels[row]
            away = np.abs(point - ball.clean[row]).max(axis=(1, 2, 3))
            fell = wrong & (away <= ball.radius)
            fooled[row[fell]] = True
            adversarials[row[fell]] = point[fell]
            row, point, z, wrong = (values[~fell] for values in (row, point, z, wrong))
            if not len(row):
                break
            if wrong.any():
                clean = ball.clean[row[wrong]]
                point[wrong] = clean + np.float32(BACK) * (point[wrong] - clean)
                z[wrong] = _ask(classifier, point[wrong])
                queries[row[wrong]] += 1
        return Perturbed(fooled, adversarials, queries)


def _ask(classifier: Classifier, points: Images) -> Logits:
    z = classifier.logits(points)
    check_finite(z)
    return z


def step_to_boundary(
    point: Images, clean: Images, gap: NDArray[np.float64], gradient: Images, bounds: tuple[float, float]
) -> Images:
    """Return the next points (N, H, W, C) of FAB: between the steps from the points and from the clean images.

    `gap` (N,) is the target's logit minus the true one's at the points, and `gradient` its gradient there. The step
    from the clean image gets a share of at most 0.1, by how long the two steps are (section 2.3 of the paper).
    """
    x, start = (images.reshape(len(images), -1).astype(np.float64) for images in (point, clean))
    w = gradient.reshape(len(point), -1).astype(np.float64)
    gap_at_clean = gap + (w * (start - x)).sum(axis=1)
    from_point = project_onto_plane(x, gap, w, bounds)
    from_clean = project_onto_plane(start, gap_at_clean, w, bounds)
    lengths = [np.maximum(np.abs(step).max(axis=1), 1e-8) for step in (from_point, from_clean)]
    share = np.minimum(lengths[0] / (lengths[0] + lengths[1]), MOST_TOWARDS_CLEAN)[:, None]
    moved = (x + OVERSHOOT * from_point) * (1 - share) + (start + OVERSHOOT * from_clean) * share
    clipped: Images = np.clip(moved, *bounds).astype(np.float32).reshape(point.shape)
    return clipped


def project_onto_plane(
    x: NDArray[np.float64], gap: NDArray[np.float64], w: NDArray[np.float64], bounds: tuple[float, float]
) -> NDArray[np.float64]:
    """Return the smallest step d in L∞ with gap + w·d = 0 and x + d within the bounds; all are (N, values) or (N,).

    Every value moves by λ in the direction that closes the gap, or as far as its bound. What this closes grows with λ,
    linearly between the distances to the bounds, so these are sorted and λ is solved for between two of them (Croce and
    Hein 2020, section 2.1). Where even the bounds do not close the gap, the step ends in their corner.
    """
    direction = -np.sign(gap)[:, None] * np.sign(w)
    room = np.where(direction > 0, bounds[1] - x, x - bounds[0])
    order = np.argsort(room, axis=1)
    sorted_room, slope = (np.take_along_axis(values, order, axis=1) for values in (room, np.abs(w)))
    stopped = np.cumsum(slope * sorted_room, axis=1) - slope * sorted_room  # closed by the values at their bounds
    moving = np.cumsum(slope[:, ::-1], axis=1)[:, ::-1]  # the slope of all others
    closed = stopped + moving * sorted_room
    needed = np.abs(gap)[:, None]
    index = np.minimum((closed < needed).sum(axis=1), room.shape[1] - 1)[:, None]
    stopped, moving = (np.take_along_axis(values, index, axis=1) for values in (stopped, moving))
    length = (needed - stopped) / np.maximum(moving, 1e-300)
    step: NDArray[np.float64] = direction * np.minimum(length, room)
    return step

"""Projected gradient descent that chooses its step sizes (Auto-PGD)."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from .. import limits
from ..errors import ModelError, UsageError, check_count
from ..models.classifier import Classifier
from .ball import Ball, BallAttack, measure, search_in_turn
from .base import Images, Labels, Perturbed
from .gradients import Logits, LossAndGradient, ask, cross_entropy, follow, margin

CITE = """\
@inproceedings{croce2020reliable,
  title         = {Reliable Evaluation of Adversarial Robustness with an Ensemble of Diverse Parameter-free Attacks},
  author        = {Croce, Francesco and Hein, Matthias},
  booktitle     = {International Conference on Machine Learning (ICML)},
  year          = {2020},
  eprint        = {2003.01690},
  archiveprefix = {arXiv}
}"""
START = 0
MOMENTUM = 0.25
DLR_CLASSES = 3
RHO = 0.75  # a step size is halved where fewer steps than this share raised the loss


def _dlr(logits: Logits, labels: Labels) -> LossAndGradient:
    """Return the difference of logits ratio (N,) of Croce and Hein (2020), and its gradient (N, K) up to a factor.

    That is the `margin` over the largest minus the third largest logit, so that no scale of the logits matters.
    """
    z = logits.astype(np.float64)
    rows = np.arange(len(logits))
    ranked = np.argsort(z, axis=1, kind="stable")
    first, third = ranked[:, -1], ranked[:, -DLR_CLASSES]
    width = z[rows, first] - z[rows, third] + 1e-12
    value, v = margin(logits, labels)
    v *= width[:, None]  # the gradient times width², which no sign sees
    v[rows, first] -= value
    v[rows, third] += value
    return value / width, v / np.maximum(np.abs(v).max(axis=1, keepdims=True), 1e-300)


LOSSES = {"ce": cross_entropy, "dlr": _dlr}


class APGD(BallAttack):
    """Auto-PGD (Croce and Hein 2020), as in the authors' AutoAttack.

    Each restart begins at a random point of the ball and follows the gradient with momentum, in L∞ its sign. At
    checkpoints the step size of an image is halved where the loss has risen too seldom, and the search goes on from
    the best point. An image is finished at the first point that fools the model.

    Parameters
    ----------
    loss : {"ce", "dlr"}
        The cross-entropy, or the difference of logits ratio, which needs three classes.
    epsilon : float
        The distance, as a share of max − min: in L∞ at most 1.
    epsilon_colour : float, optional
        The same for images with three channels (default: `epsilon`).
    steps : int, default 100
        Steps of one restart.
    restarts : int, default 5
        How many there are for an image that has not fallen.
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
    >>> result = APGD(loss="ce", epsilon=0.1, steps=10).attack(model, data.images[:8], data.labels[:8])
    >>> bool((result.linf[result.success] <= 0.1001).all())
    True
    """

    needs_gradient = True
    takes_source_gradient = True
    cite = CITE

    def __init__(
        self,
        *,
        loss: Literal["ce", "dlr"],
        epsilon: float,
        epsilon_colour: float | None = None,
        steps: int = 100,
        restarts: int = 5,
        norm: Literal["linf", "l2"] = "linf",
    ):
        if loss not in LOSSES:
            raise UsageError(f'loss should be "ce" or "dlr", received {loss!r}')
        super().__init__(epsilon=epsilon, epsilon_colour=epsilon_colour, norm=norm)
        self.loss = loss
        self.steps = check_count("steps", steps, limits.ITERATIONS)
        self.restarts = check_count("restarts", restarts, limits.DIRECTIONS)

    def usual_queries(self, pixels: int, repeats: int) -> int:
        return repeats * (1 + self.restarts * (self.steps + 1))

    def search(self, classifier: Classifier, ball: Ball, labels: Labels, seed: int, repeat: int) -> Perturbed:
        draws = self.draws(classifier, ball, seed, repeat)

        def climb_from(restart: int, left: NDArray[np.int64]) -> Perturbed:
            start = ball.draw_points(draws, left, START, restart)
            return self.climb(classifier, ball.rows(left), labels[left], start)

        whole, _ = search_in_turn(ball, self.restarts, climb_from)
        return whole

    def rise(self, logits: Logits, labels: Labels, targets: Labels) -> LossAndGradient:
        """Return the loss (N,) that is to rise, and its gradient (N, K) in the logits up to a factor."""
        if self.loss == "dlr" and logits.shape[1] < DLR_CLASSES:
            raise ModelError(f"the DLR loss needs three classes or more, received {logits.shape[1]} logits")
        return LOSSES[self.loss](logits, labels)

    def climb(
        self, classifier: Classifier, ball: Ball, labels: Labels, start: Images, targets: Labels | None = None
    ) -> Perturbed:
        """Return what one restart finds from given points (N, H, W, C) of the ball, towards targets (N,) if any."""
        source = classifier.gradient_source
        targets = labels if targets is None else targets
        perturbed = Perturbed.start(ball.clean)
        climbers = _Climbers.at(start, labels, ball)
        checkpoint = max(int(0.22 * self.steps), 1)
        passed = 0
        for step in range(self.steps + 1):
            is_last = step == self.steps
            if is_last:
                z = ask(classifier, climbers.point)
            else:
                towards = targets[climbers.row]
                z, loss, gradient = follow(classifier, source, climbers.point, self.rise, climbers.labels, towards)
            perturbed.queries[climbers.row] += 1
            fell = z.argmax(axis=1) != climbers.labels
            perturbed.fooled[climbers.row[fell]] = True
            perturbed.images[climbers.row[fell]] = climbers.point[fell]
            climbers = climbers.part(~fell)
            if is_last or not len(climbers.row):
                break
            climbers.arrive(loss[~fell], gradient[~fell], first=step == 0)
            passed += step > 0
            if passed == checkpoint:
                climbers.check(passed)
                checkpoint, passed = max(checkpoint - max(int(0.03 * self.steps), 1), int(0.06 * self.steps), 1), 0
            climbers.move(ball.rows(climbers.row), 0.0 if step == 0 else MOMENTUM)
        return perturbed


@dataclass
class _Climbers:
    """Images on their way up, one row each."""

    row: NDArray[np.int64]
    labels: Labels
    point: Images
    previous: Images
    gradient: Images
    best: Images
    best_gradient: Images
    step: NDArray[np.float32]
    best_loss: NDArray[np.float64]
    last_loss: NDArray[np.float64]
    checked_loss: NDArray[np.float64]  # the best one at the last checkpoint
    rises: NDArray[np.int64]  # since then
    halved: NDArray[np.bool_]  # there

    @classmethod
    def at(cls, start: Images, labels: Labels, ball: Ball) -> _Climbers:
        n = len(labels)
        return cls(
            row=np.arange(n),
            labels=labels,
            point=start,
            previous=start,
            gradient=np.zeros_like(start),
            best=start,
            best_gradient=np.zeros_like(start),
            step=np.full((n, 1, 1, 1), 2 * ball.radius, np.float32),
            best_loss=np.zeros(n),
            last_loss=np.zeros(n),
            checked_loss=np.zeros(n),
            rises=np.zeros(n, np.int64),
            halved=np.ones(n, np.bool_),
        )

    def part(self, rows: NDArray[np.bool_]) -> _Climbers:
        if rows.all():
            return self
        values: dict[str, Any] = {field.name: getattr(self, field.name)[rows] for field in fields(self)}
        return _Climbers(**values)

    def arrive(self, loss: NDArray[np.float64], gradient: Images, first: bool) -> None:
        """Take note of the loss and the gradient at the point."""
        self.gradient = gradient
        better = np.ones(len(loss), np.bool_) if first else loss > self.best_loss
        self.best = np.where(better[:, None, None, None], self.point, self.best)
        self.best_gradient = np.where(better[:, None, None, None], gradient, self.best_gradient)
        self.best_loss = np.where(better, loss, self.best_loss)
        if first:
            self.checked_loss = loss  # the authors compare the first step's loss with 0, not with this one
        else:
            self.rises = self.rises + (loss > self.last_loss)
            self.last_loss = loss

    def check(self, steps: int) -> None:
        """Halve the steps of images whose loss rose seldom or not at all, and take these back to their best point."""
        stuck = ~self.halved & (self.checked_loss >= self.best_loss)
        self.halved = (self.rises <= steps * RHO) | stuck
        self.checked_loss, self.rises = self.best_loss, np.zeros_like(self.rises)
        back = self.halved[:, None, None, None]
        self.step = np.where(back, self.step / 2, self.step)
        self.point = np.where(back, self.best, self.point)
        self.gradient = np.where(back, self.best_gradient, self.gradient)

    def move(self, ball: Ball, momentum: float) -> None:
        """Take a step along the gradient, in L∞ along its sign, with some of the last step added."""
        point = self.point
        if ball.norm == "l2":
            direction = (self.gradient / (measure(self.gradient, "l2") + 1e-12)).astype(np.float32)
        else:
            direction = np.sign(self.gradient)
        ahead = ball.clip(point + self.step * direction)
        self.point = ball.clip(point + (ahead - point) * (1 - momentum) + (point - self.previous) * momentum)
        self.previous = point

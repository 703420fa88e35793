"""The smallest adversarial perturbation, by a gradient that balances on the decision boundary (FMN)."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from typing import ClassVar

import numpy as np

from .. import limits
from ..errors import check_count, check_size
from ..models.classifier import Classifier
from ..records.attack import AttackTable, Column, Floats
from .base import Attack, Images, Labels, Perturbed
from .gradients import cross_entropy, margin, pull_back

CITE = """\
@inproceedings{pintor2021fast,
  title         = {Fast Minimum-norm Adversarial Attacks through Adaptive Norm Constraints},
  author        = {Pintor, Maura and Roli, Fabio and Brendel, Wieland and Biggio, Battista},
  booktitle     = {Advances in Neural Information Processing Systems (NeurIPS)},
  year          = {2021},
  eprint        = {2102.12827},
  archiveprefix = {arXiv}
}"""
GAMMA, LAST_GAMMA = 0.05, 0.001


class _MinimumNorm(Attack):
    """The fast minimum-norm attack (Pintor et al. 2021): what its norms have in common.

    Each step follows the gradient of the cross-entropy and is projected onto a ball, which shrinks while the model is
    fooled and grows while it is not: before it is fooled for the first time, to where the margin would end. Step sizes
    fall along a cosine. It asks about the clean images first, so it runs on all.

    What it finds is an upper bound on the smallest distance. It knows no defence: against one, only attacks adapted to
    it tell (Tramèr et al. 2020, "On Adaptive Attacks to Adversarial Example Defenses").

    It departs from the authors' algorithm in two ways. Steps are clipped to the bounds before they are projected, not
    only afterwards: what lies outside the bounds would count in the norm and hold the rest back, in L2 until the end.
    And the authors follow the gradient of the margin, which names one other class; the cross-entropy weighs all.
    """

    semantics = 2
    deterministic = True
    needs_gradient = True
    in_indicator = False
    takes_misclassified = True
    compares_distances = True
    cite = CITE
    first_step: ClassVar[float]

    def __init__(self, *, steps: int = 200, step_size: float | None = None):
        self.steps = check_count("steps", steps, limits.ITERATIONS)
        self.step_size = self.first_step if step_size is None else check_size("step_size", step_size, limits.EPSILON)

    @abstractmethod
    def size(self, perturbation: Floats) -> Floats:
        """Return the norm (N,) of perturbations (N, values)."""

    @abstractmethod
    def dual(self, gradient: Floats) -> Floats:
        """Return the dual norm (N,) of gradients (N, values)."""

    @abstractmethod
    def project(self, perturbation: Floats, radius: Floats) -> Floats:
        """Return perturbations (N, values) within radii (N,)."""

    def usual_queries(self, pixels: int, repeats: int) -> int:
        return self.steps

    def perturb(
        self, classifier: Classifier, images: Images, labels: Labels, seed: int, repeats: Sequence[int]
    ) -> Iterator[Perturbed]:
        lower, upper = classifier.bounds
        n = len(images)
        scale = upper - lower
        clean = images.reshape(n, -1).astype(np.float64)
        farthest = self.size(np.maximum(clean - lower, upper - clean) / scale)
        point = images.copy()
        perturbed = Perturbed.start(images)
        smallest = farthest.copy()
        radius = np.full(n, np.inf)
        row = np.arange(n)
        for step in range(self.steps):
            falling = (1 + math.cos(math.pi * step / self.steps)) / 2
            length = self.step_size * (0.01 + 0.99 * falling)
            gamma = LAST_GAMMA + (GAMMA - LAST_GAMMA) * falling
            x = point[row]
            z = classifier.logits(x)
            perturbed.queries[row] += 1
            fell = z.argmax(axis=1) != labels[row]
            moved = (x.reshape(len(row), -1) - clean[row]) / scale
            size = self.size(moved)
            closer = fell & (size <= smallest[row])
            perturbed.images[row[closer]], smallest[row[closer]] = x[closer], size[closer]
            perturbed.fooled[row] |= fell
            if step == 0 and fell.any():  # without an attack
                row, z, x, moved, size, fell = (each[~fell] for each in (row, z, x, moved, size, fell))
            if step + 1 == self.steps or not len(row):
                break
            (loss, _), (_, v) = margin(z, labels[row]), cross_entropy(z, labels[row])
            gradient = pull_back(classifier, x, v).reshape(len(row), -1).astype(np.float64) * scale
            to_boundary = np.abs(loss) / np.maximum(self.dual(gradient), 1e-12)
            shrunk = np.minimum(radius[row] * (1 - gamma), smallest[row])
            grown = np.where(perturbed.fooled[row], radius[row] * (1 + gamma), size + to_boundary)
            radius[row] = np.minimum(np.where(fell, shrunk, grown), farthest[row])
            gradient *= (length / np.maximum(np.sqrt((gradient**2).sum(axis=1)), 1e-12))[:, None]
            moved = np.clip(clean[row] + (moved + gradient) * scale, lower, upper) - clean[row]
            moved = self.project(moved / scale, radius[row]) * scale
            point[row] = np.clip(clean[row] + moved, lower, upper).astype(np.float32).reshape(x.shape)
        yield perturbed


def _columns(value: str, name: str, budgets: tuple[float, ...]) -> tuple[Column, ...]:
    return (
        Column(f"median {name}", value, "median"),
        *(Column(f"{name} ≤ {budget:g}", value, "within", budget, percent=True) for budget in budgets),
    )


class MinimumL2(_MinimumNorm):
    """The fast minimum-norm attack (Pintor et al. 2021) in L2.

    No wrapper of Foolbox's ``L2FMNAttack``: that of 3.3.4 projects with ``norms / norms``, and so never holds the ball.

    Parameters
    ----------
    steps : int, default 200
        How many points are tried.
    step_size : float, default 1
        The first step's L2, as a share of max − min.

    Notes
    -----
    Deterministic. It nearly always succeeds: its distances are its result, 0 for an image that is misclassified.

    Examples
    --------
    >>> import robustcmp as rc
    >>> data = rc.load_dataset("digits")
    >>> model = rc.load_model("lenet5", framework="torch", dataset="digits")
    >>> MinimumL2(steps=50).attack(model, data.images[:4], data.labels[:4]).success.shape
    (4,)
    """

    norm = "l2"
    first_step = 1.0
    table = AttackTable("the smallest L2 found", _columns("l2", "L2", (0.5, 1, 2)))

    def size(self, perturbation: Floats) -> Floats:
        return np.asarray(np.sqrt((perturbation**2).sum(axis=1)))

    def dual(self, gradient: Floats) -> Floats:
        return self.size(gradient)

    def project(self, perturbation: Floats, radius: Floats) -> Floats:
        factor = np.minimum(1, radius / np.maximum(self.size(perturbation), 1e-12))
        return perturbation * factor[:, None]


class MinimumLinf(_MinimumNorm):
    """The fast minimum-norm attack (Pintor et al. 2021) in L∞.

    Parameters
    ----------
    steps : int, default 200
        How many points are tried.
    step_size : float, default 10
        The first step's L2, as a share of max − min.

    Notes
    -----
    Deterministic. It nearly always succeeds: its distances are its result, 0 for an image that is misclassified.

    Examples
    --------
    >>> import robustcmp as rc
    >>> data = rc.load_dataset("digits")
    >>> model = rc.load_model("lenet5", framework="torch", dataset="digits")
    >>> MinimumLinf(steps=50).attack(model, data.images[:4], data.labels[:4]).success.shape
    (4,)
    """

    norm = "linf"
    first_step = 10.0
    table = AttackTable("the smallest L∞ found", _columns("linf", "L∞", (0.01, 0.1, 0.2)))

    def size(self, perturbation: Floats) -> Floats:
        return np.asarray(np.abs(perturbation).max(axis=1))

    def dual(self, gradient: Floats) -> Floats:
        return np.asarray(np.abs(gradient).sum(axis=1))

    def project(self, perturbation: Floats, radius: Floats) -> Floats:
        return np.clip(perturbation, -radius[:, None], radius[:, None])

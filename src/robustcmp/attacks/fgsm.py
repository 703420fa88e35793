"""The fast gradient sign method on a grid of step sizes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from .. import limits
from ..errors import check_count, check_size
from ..models.classifier import Candidates, Classifier
from ..records.attack import Extra, Floats
from .base import Attack, Images, Labels, Perturbed, first_on_grid
from .gradients import cross_entropy, pull_back

CITE = """\
@inproceedings{goodfellow2015explaining,
  title         = {Explaining and Harnessing Adversarial Examples},
  author        = {Goodfellow, Ian J. and Shlens, Jonathon and Szegedy, Christian},
  booktitle     = {International Conference on Learning Representations (ICLR)},
  year          = {2015},
  eprint        = {1412.6572},
  archiveprefix = {arXiv}
}"""


class FGSM(Attack):
    """The fast gradient sign method (Goodfellow et al. 2015), as Guo et al. ran it with Foolbox 1.x.

    The gradient of the cross-entropy at the clean image is taken once. Candidates are x + ε·(max − min)·sign(gradient)
    for ε = max_epsilon·k/epsilons, k = 1 … epsilons, clipped to the bounds. The result is the smallest ε on the grid
    that fools the model; success is not monotone in ε, so every smaller ε is tried. A deployed network without a
    gradient is asked about the candidates of the model that it was converted from.

    Parameters
    ----------
    epsilons : int, default 100
        The number of grid steps.
    max_epsilon : float, default 0.1
        The largest step, as a share of max − min.

    Notes
    -----
    Deterministic. ``extras["smallest_epsilon"]`` (N,) is the ε that was found, +inf if none was. In `run`,
    ``epsilons`` has Foolbox's meaning and is unrelated to the grid.

    Examples
    --------
    >>> import robustcmp as rc
    >>> data = rc.load_dataset("digits")
    >>> model = rc.load_model("lenet5", framework="torch", dataset="digits")
    >>> result = FGSM().attack(model, data.images[:8], data.labels[:8])
    >>> result.success.shape, bool((result.linf[result.success] <= 0.1001).all())
    ((8,), True)
    """

    deterministic = True
    needs_gradient = True
    takes_source_gradient = True
    norm = "linf"
    cite = CITE
    at_epsilon = "smallest_epsilon"
    in_control = True

    def __init__(self, *, epsilons: int = 100, max_epsilon: float = 0.1):
        self.max_epsilon = check_size("max_epsilon", max_epsilon, limits.EPSILON)
        self.epsilons = check_count("epsilons", epsilons, limits.EPSILONS)

    def usual_queries(self, pixels: int, repeats: int) -> int:
        return self.epsilons

    @property
    def extras(self) -> dict[str, Extra]:
        return {"smallest_epsilon": Extra()}

    @property
    def grid(self) -> list[float]:
        return [self.max_epsilon * k / self.epsilons for k in range(1, self.epsilons + 1)]

    def perturb(
        self, classifier: Classifier, images: Images, labels: Labels, seed: int, repeats: Sequence[int]
    ) -> Iterator[Perturbed]:
        lower, upper = classifier.bounds
        followed = classifier.gradient_source or classifier
        step = (upper - lower) * np.sign(_loss_gradient(followed, images, labels))
        x, grid = images.astype(np.float64), np.array(self.grid)
        first, queries = first_on_grid(Candidates(classifier, _step_images, x, step), labels, self.grid)
        fooled = first >= 0
        adversarials = images.copy()
        adversarials[fooled] = np.clip(_step_images(x, step, fooled, grid[first[fooled]]), lower, upper)
        epsilon = np.where(fooled, grid[first], np.inf)
        yield Perturbed(fooled, adversarials, queries, {"smallest_epsilon": epsilon})


def _step_images(x: Any, step: Any, rows: Any, sizes: Any) -> Any:
    """Return images (N, …) with a step of some size, for M rows and sizes: of arrays, or of EagerPy tensors."""
    return x[rows] + sizes[:, None, None, None] * step[rows]


def _loss_gradient(classifier: Classifier, images: Images, labels: Labels) -> Floats:
    """Return the gradient of the cross-entropy, up to a positive factor for each image.

    The sign of the gradient does not see the factor.
    """
    _, v = cross_entropy(classifier.logits(images), labels)
    return pull_back(classifier, images, v).astype(np.float64)

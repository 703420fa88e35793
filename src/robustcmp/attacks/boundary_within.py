"""The boundary attack within a distance, for models of which only decisions are known."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from .. import limits
from ..errors import check_size
from ..models.classifier import Classifier
from .base import Images, Labels, Perturbed
from .boundary import Boundary

if TYPE_CHECKING:
    import xarray

    from ..records.answers import Check


class BoundaryWithin(Boundary):
    """The boundary attack, successful if it ends within a given L2 distance.

    With enough draws, `Boundary` fools every model, so its success says little. This attack succeeds if the root mean
    square of the perturbation's values is at most `rms`: an L2 distance of ``rms * sqrt(H * W * C)``.

    Parameters
    ----------
    rms : float
        The root mean square of the perturbation, as a share of max − min.
    rms_colour : float, optional
        The same for images with three channels (default: `rms`).
    iterations : int, default 200
        Steps of the walk.
    max_directions : int, default 5
        Directions that are tried in one step.
    spherical_step, source_step : float, default 0.01
        The initial step sizes, as of `Boundary`.

    Examples
    --------
    >>> import robustcmp as rc
    >>> data = rc.load_dataset("digits")
    >>> model = rc.load_model("lenet5", framework="torch", dataset="digits")
    >>> result = BoundaryWithin(rms=0.3, iterations=5).attack(model, data.images[:4], data.labels[:4])
    >>> bool((result.l2[result.success] <= 0.3 * 28).all())
    True
    """

    semantics = 1
    in_indicator = False
    compares_distances = False
    check_names = ()
    start = ""

    def __init__(
        self,
        *,
        rms: float,
        rms_colour: float | None = None,
        iterations: int = 200,
        max_directions: int = 5,
        spherical_step: float = 0.01,
        source_step: float = 0.01,
    ):
        super().__init__(
            iterations=iterations,
            max_directions=max_directions,
            spherical_step=spherical_step,
            source_step=source_step,
        )
        self.rms = check_size("rms", rms, limits.EPSILON)
        self.rms_colour = None if rms_colour is None else check_size("rms_colour", rms_colour, limits.EPSILON)

    def health_checks(self, name: str, outcomes: xarray.Dataset) -> Iterator[Check]:
        """Yield nothing: a walk may end before it has converged, and may not have begun."""
        return iter(())

    def perturb(
        self, classifier: Classifier, images: Images, labels: Labels, seed: int, repeats: Sequence[int]
    ) -> Iterator[Perturbed]:
        lower, upper = classifier.bounds
        rms = self.rms if self.rms_colour is None or images.shape[3] != 3 else self.rms_colour
        largest = rms * (upper - lower) * math.sqrt(images[0].size)
        for walked in super().perturb(classifier, images, labels, seed, repeats):
            distances = np.linalg.norm((walked.images - images).reshape(len(images), -1), axis=1)
            within = distances <= largest
            points = np.where(within[:, None, None, None], walked.images, images)
            yield replace(walked, fooled=walked.fooled & within, images=points)

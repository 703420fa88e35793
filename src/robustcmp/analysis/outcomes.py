"""What one attack did to every trained model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..records.attack import NORMS
from .twins import Twins, pairing


@dataclass(frozen=True)
class Outcomes:
    """What one attack did to every trained model on the images of a comparison.

    Attributes
    ----------
    attack : str
        Its name.
    deterministic : bool
        Whether all repeats are one and the same.
    success : dict of str to ndarray of bool
        By framework (the name of the models), (training runs, repeats, images).
    seeds : dict of str to list of int
        The training seeds, by framework.
    expected : dict of str to ndarray of float64, optional
        For exact single pixel: the probability of each image to fall to a draw of positions, (training runs, images).
    l0, l2, linf : dict of str to ndarray of float64, optional
        The distances in the norm of an attack whose distances are what it is about; +inf where it failed.
    not_compared : str
        Why verdicts do not use these distances, "" where they do.
    twins : sequence of Twins
        The pairs of trained models that began from the same weights.
    """

    attack: str
    deterministic: bool
    success: Mapping[str, NDArray[np.bool_]]
    seeds: Mapping[str, list[int]]
    expected: Mapping[str, NDArray[np.float64]] | None = None
    l2: Mapping[str, NDArray[np.float64]] | None = None
    twins: Sequence[Twins] = ()
    l0: Mapping[str, NDArray[np.float64]] | None = None
    linf: Mapping[str, NDArray[np.float64]] | None = None
    not_compared: str = ""

    def pairing(self, a: str, b: str) -> list[int] | None:
        """Return where the twin of each training of a is among those of b, None unless twins pair all of them."""
        return pairing(self.twins, a, b, self.seeds[a], self.seeds[b])

    @property
    def labels(self) -> list[str]:
        """The trained models: ``torch``, or ``torch/3`` where there are several trainings of one framework."""
        several = any(len(seeds) > 1 for seeds in self.seeds.values())
        return [f"{name}/{seed}" if several else name for name, seeds in self.seeds.items() for seed in seeds]

    @property
    def image_means(self) -> NDArray[np.float64]:
        """How often each image falls, (models, images): over all draws, else over repeats, which are no images."""
        means = self.expected or {name: success.mean(axis=1) for name, success in self.success.items()}
        return np.concatenate(list(means.values()))

    @property
    def norm(self) -> str:
        """The norm of the distances that the attack is about, as it is written; "" if it is about none."""
        given = {"l0": self.l0, "l2": self.l2, "linf": self.linf}
        return next((NORMS[norm] for norm in NORMS if given[norm] is not None), "")

    @property
    def distances(self) -> Mapping[str, NDArray[np.float64]]:
        """The distances that the attack is about, as the field of their norm has them; empty if it is about none."""
        return self.l0 or self.l2 or self.linf or {}

    @property
    def medians(self) -> dict[str, NDArray[np.float64]]:
        """The median distance of each training run over repeats and images, by framework.

        Empty if the attack is not about distances, or if a median is +inf because a training resisted half of them.
        """
        # "higher": between a finite distance and +inf there is nothing to interpolate.
        medians = {name: np.quantile(its, 0.5, axis=(1, 2), method="higher") for name, its in self.distances.items()}
        return medians if all(np.isfinite(of_runs).all() for of_runs in medians.values()) else {}

    @property
    def median_l2(self) -> dict[str, NDArray[np.float64]] | None:
        """The medians if the attack is about distances in L2, else None."""
        return (self.medians or None) if self.l2 else None

    @property
    def nearness(self) -> NDArray[np.float64] | None:
        """Of how many other models an image falls at a larger distance, as a share, (models, images); ties count half.

        None if the attack is not about distances. Its differences between models are what Friedman's test is about.
        """
        if not self.distances:
            return None
        medians = np.concatenate([np.median(its, axis=1) for its in self.distances.values()])
        farther = (medians[None] > medians[:, None]).sum(axis=1)
        equal = (medians[None] == medians[:, None]).sum(axis=1) - 1
        share: NDArray[np.float64] = (farther + equal / 2) / max(len(medians) - 1, 1)
        return share

    @property
    def rates(self) -> dict[str, NDArray[np.float64]]:
        """A rate for each training run, by framework: the expectation over all draws where that is known."""
        if self.expected is not None:
            return {name: expected.mean(axis=1) for name, expected in self.expected.items()}
        return {name: success.mean(axis=(1, 2)) for name, success in self.success.items()}

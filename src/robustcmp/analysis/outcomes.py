"""What one attack did to every trained model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

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
    l2 : dict of str to ndarray of float64, optional
        The distances, for an attack whose distances are what it is about; +inf where it failed.
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
    def median_l2(self) -> dict[str, NDArray[np.float64]] | None:
        """The median distance of each training run over repeats and images, by framework.

        None if the attack is not about distances, or if a median is +inf because a training resisted half of them.
        """
        if self.l2 is None:
            return None
        # "higher": between a finite distance and +inf there is nothing to interpolate.
        medians = {name: np.quantile(l2, 0.5, axis=(1, 2), method="higher") for name, l2 in self.l2.items()}
        return medians if all(np.isfinite(of_runs).all() for of_runs in medians.values()) else None

    @property
    def nearness(self) -> NDArray[np.float64] | None:
        """Of how many other models an image falls at a larger distance, as a share, (models, images); ties count half.

        None if the attack is not about distances. Its differences between models are what Friedman's test is about.
        """
        if self.l2 is None:
            return None
        medians = np.concatenate([np.median(l2, axis=1) for l2 in self.l2.values()])
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

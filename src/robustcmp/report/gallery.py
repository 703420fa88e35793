"""Which adversarial images a report shows: the same images under every attack and in every model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..analysis.results import Results


@dataclass(frozen=True)
class Shown:
    """One image under one attack in one model, in the first training and the first repeat.

    Attributes
    ----------
    attack, model : str
        Which.
    place : int
        Where the image stands in the run.
    label, taken_for : int
        The true class, and the one that the adversarial image is taken for; -1 where the attack failed.
    distance : float
        In the norm that the attack keeps small; +inf where it failed.
    adversarial : ndarray of float32, shape (H, W, C)
        In [0, 1]; the clean image where the attack failed.
    clean : ndarray of float32, shape (H, W, C), optional
        None where the run was stored without clean images.
    """

    attack: str
    model: str
    place: int
    label: int
    taken_for: int
    distance: float
    adversarial: NDArray[np.float32]
    clean: NDArray[np.float32] | None

    @property
    def fooled(self) -> bool:
        """Whether the attack succeeded."""
        return self.taken_for >= 0

    @property
    def perturbation(self) -> NDArray[np.float32] | None:
        """What was added, scaled so that its largest value spans [0, 1] around the middle, which is no change."""
        if self.clean is None:
            return None
        difference = self.adversarial - self.clean
        return np.asarray(0.5 + difference / (2 * max(float(np.abs(difference).max()), 1e-9)), np.float32)


def attacks_with_images(results: Results) -> list[str]:
    """Return the attacks of which adversarial images were stored."""
    return [
        attack for attack in results.attacks if any(results.has_adversarials(model, attack) for model in results.models)
    ]


def gallery(results: Results, attack: str, images: int) -> list[list[Shown]]:
    """Return some images under an attack: a list an image, of every model that has it.

    Images on which the models part come first, then one of each class in turn.
    """
    models = [model for model in results.models if results.has_adversarials(model, attack)]
    adversarials = {model: results.adversarials(model, attack) for model in models}
    success = {model: _first(results, model, attack, "success") for model in models}
    chosen = choose(np.array([success[model] for model in models]), results.dataset.label.values, images)
    classes = {model: _first(results, model, attack, "adversarial_class") for model in models}
    norm = results.attack_records[attack].norm
    distances = {model: _first(results, model, attack, norm) for model in models}
    return [
        [
            Shown(
                attack,
                model,
                place,
                int(results.dataset.label.values[place]),
                int(classes[model][place]) if success[model][place] else -1,
                float(distances[model][place]),
                adversarials[model][place],
                None if results.clean is None else results.clean[place],
            )
            for model in models
        ]
        for place in chosen
    ]


def choose(success: NDArray[np.bool_], labels: NDArray[np.int64], count: int) -> list[int]:
    """Return the places of images to show, of outcomes (models, images) and classes (images,), in rising order."""
    fallen = success.sum(axis=0)
    parted = (fallen > 0) & (fallen < len(success))
    ranks = np.zeros(len(labels), np.int64)  # of an image among those of its class: a class in turn
    order = np.argsort(np.where(parted, 0, np.where(fallen > 0, 1, 2)), kind="stable")
    seen: dict[int, int] = {}
    for place in order:
        label = int(labels[place])
        ranks[place] = seen[label] = seen.get(label, -1) + 1
    best: Sequence[int] = sorted(range(len(labels)), key=lambda place: (ranks[place], not parted[place], place))[:count]
    return sorted(best)


def _first(results: Results, model: str, attack: str, name: str) -> NDArray[np.float64]:
    """Return a value an image of a model's first training in its first repeat."""
    seeds = results.seeds(model, attack)
    values: NDArray[np.float64] = results.values(model, attack, name)[seeds.index(results.first_seed(model)), 0]
    return values

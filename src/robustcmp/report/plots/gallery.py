"""A gallery: clean images, what was added, and what came out, the same images in every model side by side."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ...analysis.results import Results
from ...errors import StoreError, unknown
from ...records.attack import NORMS
from ..format import distance
from .style import Axes, Figure, as_picture, panels


@dataclass(frozen=True)
class Outcome:
    """One image under one attack in one model, in the first training and the first repeat.

    Attributes
    ----------
    attack, model : str
        Which.
    position : int
        Where the image stands in the run.
    label, taken_for : int
        The true class, and the one that the adversarial image is taken for; -1 where the attack failed.
    distance : float
        In the norm that the attack keeps small; +inf where it failed.
    adversarial : ndarray of float32, shape (H, W, C)
        In [0, 1]; the clean image where the attack failed.
    clean : ndarray of float32, shape (H, W, C)
    """

    attack: str
    model: str
    position: int
    label: int
    taken_for: int
    distance: float
    adversarial: NDArray[np.float32]
    clean: NDArray[np.float32]

    @property
    def is_fooled(self) -> bool:
        """Whether the attack succeeded."""
        return self.taken_for >= 0

    @property
    def perturbation(self) -> NDArray[np.float32]:
        """What was added, scaled so that its largest value spans [0, 1] around the middle, which is no change."""
        difference = self.adversarial - self.clean
        return np.asarray(0.5 + difference / (2 * max(float(np.abs(difference).max()), 1e-9)), np.float32)


def attacks_with_images(results: Results) -> list[str]:
    """Return the attacks of which adversarial images were stored."""
    if results.clean is None:
        return []
    return [
        attack for attack in results.attacks if any(results.has_adversarials(model, attack) for model in results.models)
    ]


def choose_outcomes(results: Results, attack: str, images: int) -> list[list[Outcome]]:
    """Return some images under an attack: a list an image, of every model that has it.

    Images on which the models part come first.
    """
    assert results.clean is not None
    models = [model for model in results.models if results.has_adversarials(model, attack)]
    adversarials = {model: results.adversarials(model, attack) for model in models}
    success = {model: _first(results, model, attack, "success") for model in models}
    chosen = _choose_images(np.array([success[model] for model in models]), images)
    classes = {model: _first(results, model, attack, "adversarial_class") for model in models}
    norm = results.attack_records[attack].norm
    distances = {model: _first(results, model, attack, norm) for model in models}
    return [
        [
            Outcome(
                attack,
                model,
                position,
                int(results.arrays["label"][position]),
                int(classes[model][position]) if success[model][position] else -1,
                float(distances[model][position]),
                adversarials[model][position],
                results.clean[position],
            )
            for model in models
        ]
        for position in chosen
    ]


def _choose_images(success: NDArray[np.bool_], count: int) -> list[int]:
    """Return the positions of images to show, of outcomes (models, images): those on which models differ come first."""
    fallen = success.sum(axis=0)
    differ = (fallen > 0) & (fallen < len(success))
    order = np.argsort(np.where(differ, 0, np.where(fallen > 0, 1, 2)), kind="stable")
    return sorted(map(int, order[:count]))


def _first(results: Results, model: str, attack: str, name: str) -> NDArray[np.float64]:
    """Return a value an image of a model's first training in its first repeat."""
    return np.asarray(results.values(model, attack, name)[0, 0])


def draw(
    results: Results, attack: str | None = None, *, images: int = 4, figure: Figure | None = None
) -> NDArray[np.object_]:
    """Draw some images under an attack: a row an image; clean, then perturbation and outcome of each model.

    Of each model's first training and first repeat. Images on which the models part come first.

    Parameters
    ----------
    attack : str, optional
        The attack; the first with images if nothing is said.
    images : int, default 4
        How many images.
    figure : matplotlib.figure.Figure, optional
        Where to draw; a new figure if nothing is said.

    Returns
    -------
    ndarray of matplotlib.axes.Axes, shape (images, 1 + 2 × models)

    Raises
    ------
    UsageError
        The run has no such attack.
    StoreError
        The run was made without images.
    """
    if attack is not None and attack not in results.attacks:
        raise unknown("attack", attack, results.attacks)
    stored = attacks_with_images(results)
    if not stored or attack not in (None, *stored):
        raise StoreError("this run was stored without adversarial images. Make it with keep_images=True.")
    attack = attack or stored[0]
    rows = choose_outcomes(results, attack, images)
    norm = NORMS[results.attack_records[attack].norm]
    axes = panels(1 + 2 * len(rows[0]), figure, rows=len(rows), size=(1.5, 1.75))
    for row, shown in zip(axes, rows, strict=True):
        _show(row[0], shown[0].clean, f"class {shown[0].label}")
        for i, of_model in enumerate(shown):
            _show(row[1 + 2 * i], of_model.perturbation, "perturbation")
            _show(row[2 + 2 * i], of_model.adversarial, _describe(of_model, norm))
    return axes


def _describe(shown: Outcome, norm: str) -> str:
    if not shown.is_fooled:
        return f"{shown.model}: held"
    return f"{shown.model}: {shown.taken_for}\n{norm} {distance(shown.distance)}"


def _show(axes: Axes, image: NDArray[np.float32], title: str) -> None:
    axes.imshow(as_picture(image), cmap="gray", vmin=0, vmax=1)
    axes.set_title(title, fontsize=9)
    axes.set_axis_off()

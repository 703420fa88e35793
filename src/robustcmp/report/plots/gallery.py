"""A gallery: clean images, what was added, and what came out, of every model side by side."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ...analysis.results import Results
from ...errors import StoreError, unknown
from ...records.attack import NORMS
from ..format import distance
from ..gallery import Shown, attacks_with_images, gallery
from .style import as_picture, panels

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


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
        Without the columns of clean images and perturbations where the run has no clean images.

    Raises
    ------
    UsageError
        The run has no such attack.
    StoreError
        The run was made without images.
    """
    if attack is not None and attack not in results.attacks:
        raise unknown("attack", attack, results.attacks)
    there = attacks_with_images(results)
    if not there or attack not in (None, *there):
        raise StoreError("this run was stored without adversarial images. Make it with keep_images=True.")
    attack = attack or there[0]
    rows = gallery(results, attack, images)
    norm = NORMS[results.attack_records[attack].norm]
    whole = results.clean is not None
    axes = panels((1 + 2 * len(rows[0])) if whole else len(rows[0]), figure, rows=len(rows), size=(1.5, 1.75))
    for row, shown in zip(axes, rows, strict=True):
        if whole:
            _show(row[0], shown[0].clean, f"class {shown[0].label}")
        for i, of_model in enumerate(shown):
            if whole:
                _show(row[1 + 2 * i], of_model.perturbation, "perturbation")
            _show(row[2 + 2 * i if whole else i], of_model.adversarial, _outcome(of_model, norm))
    return axes


def _outcome(shown: Shown, norm: str) -> str:
    if not shown.fooled:
        return f"{shown.model}: held"
    return f"{shown.model}: {shown.taken_for}\n{norm} {distance(shown.distance)}"


def _show(axes: Axes, image: NDArray[np.float32] | None, title: str) -> None:
    assert image is not None
    axes.imshow(as_picture(image), cmap="gray", vmin=0, vmax=1)
    axes.set_title(title, fontsize=9)
    axes.set_axis_off()

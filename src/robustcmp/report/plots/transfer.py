"""Transfer as a heat map: which share of one model's adversarial images also fools each other model."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

import numpy as np
from numpy.typing import NDArray

from ...analysis.followups import require
from ...analysis.results import Results
from .style import Axes, Figure, panel_per_attack

WRITTEN = 8  # models up to which each cell has its number
COLORMAP = "cividis"  # looks alike to every kind of colour vision


def draw(
    results: Results, *, attacks: Sequence[str] | None = None, figure: Figure | None = None
) -> NDArray[np.object_]:
    """Draw the share of each model's adversarial images that also fool each other model, a panel an attack.

    A row is the model that the images were made for, a column the model that is asked; white lines part frameworks.

    Parameters
    ----------
    attacks : sequence of str, optional
        The attacks to draw; all of them if nothing is said.
    figure : matplotlib.figure.Figure, optional
        Where to draw; a new figure if nothing is said.

    Returns
    -------
    ndarray of matplotlib.axes.Axes, shape (attacks,)

    Raises
    ------
    UsageError
        The run was stored without its transfer.
    """
    transferred = require(results.transferred, "transfer")
    names = [model["name"] for model in results.manifest["models"]]

    def panel(axes: Axes, attack: str) -> None:
        _panel(axes, names, attack, 100 * transferred.of_successes.sel(attack=attack).values)

    attacks = results.attacks if attacks is None else attacks
    return panel_per_attack(attacks, panel, figure, size=(3.6, 3.4))


def _panel(axes: Axes, names: Sequence[str], attack: str, shares: NDArray[np.float64]) -> None:
    np.fill_diagonal(shares, np.nan)  # every adversarial image fools its own model
    extent = (0, len(shares), len(shares), 0)
    image = axes.imshow(shares, cmap=COLORMAP, vmin=0, vmax=100, interpolation="none", extent=extent)
    sizes = [len([*group]) for _, group in groupby(names)]
    edges = np.cumsum([0, *sizes])
    for edge in edges[1:-1]:
        axes.axhline(edge, color="white", linewidth=1.5)
        axes.axvline(edge, color="white", linewidth=1.5)
    if len(names) <= WRITTEN:
        for (i, j), share in np.ndenumerate(shares):
            if np.isfinite(share):
                shade = "#fefefe" if share < 50 else "#010101"  # on a colour that no theme changes
                axes.text(j + 0.5, i + 0.5, f"{share:.0f}", ha="center", va="center", color=shade, fontsize=9)
    middles = (edges[:-1] + edges[1:]) / 2
    groups = [name for name, _ in groupby(names)]
    axes.set_xticks(middles, groups, rotation=40, ha="right", rotation_mode="anchor")
    axes.set_yticks(middles, groups)
    axes.tick_params(length=0)
    axes.set(title=attack, xlabel="asked", ylabel="made for")
    axes.figure.colorbar(image, ax=axes, label="also fooled, %", shrink=0.8)

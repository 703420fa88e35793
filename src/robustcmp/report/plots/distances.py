"""Distances as distributions: which share of the images falls within a distance."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ...analysis.results import Results
from ...records.attack import NORMS
from .style import Axes, Figure, bare, color, line, panel_per_attack

POINTS = 160  # of a curve: more are not seen
SHOWN = 0.995  # of the distances: the few longest would press the others together


def that_vary(results: Results) -> list[str]:
    """Return the attacks whose distances say something: they look for a small one, and images differ in it."""
    return [
        attack
        for attack in results.attacks
        if not results.attack_records[attack].is_bounded and len(np.unique(_finite(results, attack))) > 1
    ]


def _finite(results: Results, attack: str) -> NDArray[np.float64]:
    """Return the distances of all adversarial images of an attack, in its own norm."""
    norm = results.attack_records[attack].norm
    values: NDArray[np.float64] = np.concatenate(
        [results.values(model, attack, norm).ravel() for model in results.models]
    )
    return np.asarray(values[np.isfinite(values)])


def draw(
    results: Results, *, attacks: Sequence[str] | None = None, figure: Figure | None = None
) -> NDArray[np.object_]:
    """Draw the share of images that fall within each distance, a curve a model, a panel an attack.

    Over all trainings and repeats, in the norm that the attack keeps small; a failure counts as infinitely far. A
    curve to the left of another belongs to the model that is more easily fooled.

    Parameters
    ----------
    attacks : sequence of str, optional
        The attacks to draw; those whose distances vary if nothing is said.
    figure : matplotlib.figure.Figure, optional
        Where to draw; a new figure if nothing is said.

    Returns
    -------
    ndarray of matplotlib.axes.Axes, shape (attacks,)

    Raises
    ------
    UsageError
        All adversarial images of every attack have one distance.
    """
    attacks = that_vary(results) if attacks is None else attacks
    return panel_per_attack(attacks, lambda axes, attack: _panel(axes, results, attack), figure)


def _panel(axes: Axes, results: Results, attack: str) -> None:
    norm = results.attack_records[attack].norm
    longest = float(np.quantile(_finite(results, attack), SHOWN))
    budgets = np.linspace(0, longest, POINTS)
    for position, model in enumerate(results.models):
        values = np.sort(results.values(model, attack, norm).ravel())
        if values.size:
            share = np.searchsorted(values, budgets, side="right") / values.size
            axes.plot(budgets, 100 * share, linestyle=line(position), color=color(position), linewidth=1.8, label=model)
    axes.set(title=f"{attack}: fooled within, %", xlabel=f"{NORMS[norm]} distance, images in [0, 1]")
    axes.set(xlim=(0, longest), ylim=(0, None))
    axes.legend(frameon=False, loc="best")
    bare(axes)

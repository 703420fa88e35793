"""Success rate against the number of models whose correct images are attacked."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas
from numpy.typing import NDArray

from ...analysis.followups import require
from ...analysis.results import Results
from .style import Axes, Figure, bare, color, line, panel_per_attack


def draw(
    results: Results, *, attacks: Sequence[str] | None = None, figure: Figure | None = None
) -> NDArray[np.object_]:
    """Draw each model's success rate against the number of models that the subset is conditioned on, a panel an attack.

    The band is the central 95 % of the model's trainings and of the choices of the other models.

    Parameters
    ----------
    attacks : sequence of str, optional
        The attacks to draw; those that were run on contested images if nothing is said.
    figure : matplotlib.figure.Figure, optional
        Where to draw; a new figure if nothing is said.

    Returns
    -------
    ndarray of matplotlib.axes.Axes, shape (attacks,)

    Raises
    ------
    UsageError
        The run was stored without its conditioning.
    """
    curves = require(results.conditioned, "conditioning").curve()
    attacks = list(dict.fromkeys(curves.attack)) if attacks is None else attacks
    return panel_per_attack(attacks, lambda axes, attack: _panel(axes, curves[curves.attack == attack], attack), figure)


def _panel(axes: Axes, curves: pandas.DataFrame, attack: str) -> None:
    from matplotlib.ticker import MaxNLocator

    for position, (model, curve) in enumerate(curves.groupby("model", sort=False)):
        axes.fill_between(
            curve.models, 100 * curve.low, 100 * curve.high, color=color(position), alpha=0.12, linewidth=0
        )
        axes.plot(
            curve.models,
            100 * curve.success_rate,
            linestyle=line(position),
            color=color(position),
            linewidth=1.8,
            label=model,
        )
    axes.set(title=f"{attack}: success, %", xlabel="models that classify the images correctly")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set(xlim=(1, None), ylim=(0, None))
    axes.legend(frameon=False, loc="best")
    bare(axes)

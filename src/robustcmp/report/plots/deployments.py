"""A dot a deployment: how much easier it is to fool than its source, a panel an attack."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ...analysis.deployments import DEPLOYED_MARGIN, SUCCESS
from ...analysis.results import Results
from .style import Axes, Figure, bare, color, panel_per_attack


def draw(
    results: Results, *, attacks: Sequence[str] | None = None, figure: Figure | None = None
) -> NDArray[np.object_]:
    """Draw the difference of each deployment's success rate from its source's, with its 95 % interval.

    To the right of zero the deployed network is easier to fool. The band is the margin of equivalence, two points. A
    dotted line is what is not excluded where no outcome differs.

    Parameters
    ----------
    attacks : sequence of str, optional
        The attacks to draw; all of them if nothing is said.
    figure : matplotlib.figure.Figure, optional
        Where to draw; a new figure if nothing is said.

    Returns
    -------
    ndarray of matplotlib.axes.Axes, shape (attacks,)
    """
    attacks = results.attacks if attacks is None else attacks
    frame = results.deployments
    names = list(dict.fromkeys(frame.deployment))
    height = 0.9 + 0.32 * max(len(names), 3)

    def panel(axes: Axes, attack: str) -> None:
        axes.axvspan(-100 * DEPLOYED_MARGIN, 100 * DEPLOYED_MARGIN, color="0.93", zorder=0)
        axes.axvline(0, color="black", linewidth=0.8, zorder=1)
        for row in frame[(frame.attack == attack) & (frame.measure == SUCCESS)].to_dict("records"):
            position = names.index(row["deployment"])
            if row["low"] == row["low"]:
                axes.hlines(position, 100 * row["low"], 100 * row["high"], color=color(position), linewidth=1.6)
            else:  # no outcome differs, and this much is not excluded
                ends = 100 * row["equivalent_low"], 100 * row["equivalent_high"]
                axes.hlines(position, *ends, color="0.6", linewidth=1, linestyles=":")
            axes.plot(100 * row["difference"], position, "o", color=color(position), markersize=5)
        axes.set(title=attack, xlabel="points easier to fool", ylim=(len(names) - 0.5, -0.5))
        axes.set_yticks(range(len(names)), names)
        bare(axes, "x")

    return panel_per_attack(attacks, panel, figure, size=(4.2, height))

"""R of each model with its range, and how often each model takes each rank."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from ...analysis.results import Results
from ...errors import UsageError
from .style import Axes, Figure, bare, color, marker, panels

NARROW = 0.2  # a share of which the number no longer fits into its bar
STRENGTHS = (0.5, 0.08)  # from the first rank to the last: text can be read on all of them


def draw(results: Results, *, figure: Figure | None = None) -> NDArray[np.object_]:
    """Draw R of each model with its bootstrap range, above the shares of resamples in which it takes each rank.

    Smaller is more robust. A range is no confidence interval, as the smallest and the largest rate make R irregular.

    Parameters
    ----------
    figure : matplotlib.figure.Figure, optional
        Where to draw; a new figure if nothing is said.

    Returns
    -------
    ndarray of matplotlib.axes.Axes, shape (2,)

    Raises
    ------
    UsageError
        There is one model alone, the run is the same-weights control, or no attack ran on every model.
    """
    if not has_ranks(results):
        raise UsageError("R ranks models beside each other: expected two models or more with an attack in common")
    height = 0.75 + 0.3 * len(results.models)
    column = panels(1, figure, rows=2, size=(3.8, height), sharey=True)[:, 0]
    _ranges(column[0], results)
    _ranks(column[1], results)
    for axes in column:
        axes.set_yticks(range(len(results.models)), results.models)
        axes.set_ylim(len(results.models) - 0.5, -0.5)
    return np.asarray(column)


def has_ranks(results: Results) -> bool:
    """Return whether there are models to rank."""
    return len(results.models) > 1 and bool(results.indicator_attacks) and not results.same_weights


def _ranges(axes: Axes, results: Results) -> None:
    for position, model in enumerate(results.models):
        low, high = results.indicator_ranges[model][:2]
        axes.hlines(position, low, high, color=color(position), linewidth=3, alpha=0.5)
        if math.isfinite(results.indicator[model]):
            axes.plot(results.indicator[model], position, marker(position), color=color(position), markersize=7)
    axes.set(title="R (smaller is more robust)", xlim=(-0.03 * (n := len(results.indicator_attacks)), 1.03 * n))
    bare(axes, "x")


def _ranks(axes: Axes, results: Results) -> None:
    """Draw the shares of ranks: the first rank is the darkest."""
    count = len(results.models)
    for position, model in enumerate(results.models):
        left = 0.0
        for rank, share in enumerate(results.indicator_ranges[model].ranks):
            strength = float(np.interp(rank, (0, count - 1), STRENGTHS))
            axes.barh(position, 100 * share, left=left, height=0.62, color=color(position), alpha=strength, linewidth=0)
            if share >= NARROW:
                where = left + 50 * share
                text = f"{rank + 1}: {100 * share:.0f} %"
                axes.text(where, position, text, ha="center", va="center", fontsize=8)
            left += 100 * share
    axes.set(title="Ranks: share of resamples, %", xlim=(0, 100))
    bare(axes, None)

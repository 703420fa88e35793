"""Success against ε: how the success rate grows with the size of the perturbation."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ...analysis.results import Results
from ...analysis.statistics import t_interval, wilson_interval
from .style import Axes, Figure, bare, color, line, panel_per_attack


def with_grid(results: Results) -> list[str]:
    """Return the attacks whose success is counted at several ε, as far as a model ran them."""
    return [
        attack
        for attack, record in results.attack_records.items()
        if len(record.grid) > 1 and any(results.seeds(model, attack) for model in results.models)
    ]


def draw(
    results: Results, *, attacks: Sequence[str] | None = None, figure: Figure | None = None
) -> NDArray[np.object_]:
    """Draw each model's success rate against ε, with a 95 % band at each ε, a panel an attack.

    The band is over trainings where there are several, else over images. It holds at each ε, not for the curve as a
    whole.

    Parameters
    ----------
    attacks : sequence of str, optional
        The attacks to draw; those with several ε if nothing is said.
    figure : matplotlib.figure.Figure, optional
        Where to draw; a new figure if nothing is said.

    Returns
    -------
    ndarray of matplotlib.axes.Axes, shape (attacks,)

    Raises
    ------
    UsageError
        No attack of the run counts its success at several ε.
    """
    attacks = with_grid(results) if attacks is None else attacks
    return panel_per_attack(attacks, lambda axes, attack: _panel(axes, results, attack), figure)


def _panel(axes: Axes, results: Results, attack: str) -> None:
    grid = np.array(results.attack_records[attack].grid)
    for position, model in enumerate(results.models):
        rates = _rates(results, model, attack)
        if not len(rates):
            continue
        low, high = _band(rates, len(results.arrays["image"]))
        axes.fill_between(grid, 100 * low, 100 * high, color=color(position), alpha=0.18, linewidth=0)
        axes.plot(
            grid, 100 * rates.mean(axis=0), linestyle=line(position), color=color(position), linewidth=1.8, label=model
        )
    axes.set(title=f"{attack}: success, %", xlabel="ε, images in [0, 1]", xlim=(0, grid.max()), ylim=(0, None))
    axes.legend(frameon=False, loc="best")
    bare(axes)


def _rates(results: Results, model: str, attack: str) -> NDArray[np.float64]:
    """Return the success rate of each training at each ε of its attack, (trainings that ran, epsilons)."""
    columns = np.searchsorted(results.arrays["epsilon"], results.attack_records[attack].grid)
    rates: NDArray[np.float64] = results.values(model, attack, "epsilon_curve")[:, columns]
    return rates[~np.isnan(rates).any(axis=1)]


def _band(rates: NDArray[np.float64], images: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the 95 % interval at each ε, of rates (trainings, epsilons); the mean where all are one rate."""
    if len(rates) > 1:
        ends = np.array([t_interval(column) for column in rates.T])
        ends = np.where(np.isnan(ends), rates.mean(axis=0)[:, None], ends)
    else:
        ends = np.array([wilson_interval(round(float(rate) * images), images) for rate in rates[0]])
    low, high = np.clip(ends, 0, 1).T
    return low, high

"""A dot a training: how far the trainings of one model differ beside the models."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...analysis.indicator import find_published_rates
from ...analysis.results import Results
from ...analysis.statistics import t_interval
from ...records.attack import NORMS
from ..tables import without_version
from .style import Axes, Figure, bare, color, marker, panel_per_attack

WIDEST = 36  # letters below a panel
SPREAD = 0.22  # of the dots of a model, to either side


def draw(
    results: Results, *, attacks: Sequence[str] | None = None, paper: bool = False, figure: Figure | None = None
) -> NDArray[np.object_]:
    """Draw a dot a training, beside the mean and the 95 % interval of each model, a panel an attack.

    The interval is over trainings; of one training alone, it is that of its success rate over images. Of an attack
    whose distances are compared the dots are median distances, of others success rates: their expectation over all
    draws where that is known. A model that an attack cannot run on has no dots there.

    Parameters
    ----------
    attacks : sequence of str, optional
        The attacks to draw; all of them if nothing is said.
    paper : bool, default False
        Mark with × what the paper published, where it has this network under these attacks.
    figure : matplotlib.figure.Figure, optional
        Where to draw; a new figure if nothing is said.

    Returns
    -------
    ndarray of matplotlib.axes.Axes, shape (attacks,)
    """
    attacks = results.attacks if attacks is None else attacks
    published = find_published_rates(results.manifest) if paper else {}
    row = panel_per_attack(attacks, lambda axes, attack: _panel(axes, results, attack, published), figure)
    if len(attacks) > 1:  # one panel alone is too narrow, and has a caption
        _legend(row[0].figure, results.has_several_trainings, bool(published))
    return row


def that_ran(results: Results) -> list[str]:
    """Return the attacks of which there is something to draw."""
    return [
        attack
        for attack in results.attacks
        if any(np.isfinite(_values_of_trainings(results, model, attack)).any() for model in results.models)
    ]


def _legend(figure: Figure, several: bool, paper: bool) -> None:
    """Say below the panels what the signs are."""
    from matplotlib.lines import Line2D

    signs = [Line2D([], [], marker="o", linestyle="", color="dimgray", markersize=5, label="one training")]
    signs += [Line2D([], [], color="black", label="mean")] * several
    signs += [Line2D([], [], marker="|", linestyle="", color="black", markersize=11, label="95 % interval")]
    signs += [Line2D([], [], marker="x", linestyle="", color="black", markersize=6, label="Guo et al.")] * paper
    figure.legend(handles=signs, loc="outside lower center", ncols=len(signs), frameon=False)


def _panel(axes: Axes, results: Results, attack: str, published: Mapping[str, Mapping[str, float]]) -> None:
    of_distances = results.attack_records[attack].compares_distances
    for position, model in enumerate(results.models):
        values = _values_of_trainings(results, model, attack)
        dots = position + (np.linspace(-SPREAD, SPREAD, len(values)) if len(values) > 1 else np.zeros(len(values)))
        axes.plot(dots, values, marker(position), color=color(position), markersize=5, alpha=0.8, markeredgewidth=0)
        if len(values) > 1:
            axes.hlines(values.mean(), position - 0.32, position + 0.32, color="black", linewidth=1.4)
            low, high = t_interval(values)
        else:
            low, high = (math.nan, math.nan) if of_distances else np.multiply(100, results.interval(model, attack))
        if not of_distances:  # no rate is outside
            low, high = np.clip((low, high), 0, 100)
        if math.isfinite(low):
            beside = position + 0.38 if len(values) > 1 else position
            axes.vlines(beside, low, high, color="black", linewidth=1.4, zorder=1)
        rate = published.get(without_version(model), {}).get(attack)
        if rate is not None and not of_distances:
            axes.plot(position, 100 * rate, "x", color="black", markersize=6)
    if not of_distances and axes.dataLim.height == 0:  # all alike: Matplotlib would show rates below zero
        common = float(axes.dataLim.ymin)
        axes.set_ylim(max(common - 1, -0.1), min(common + 1, 100.1))
    axes.set(title=_title(results, attack), xlim=(-0.5, len(results.models) - 0.4))
    _name_models(axes, results.models)
    bare(axes)


def _name_models(axes: Axes, models: Sequence[str]) -> None:
    """Write the models' names below a panel, slanted where they would touch."""
    axes.set_xticks(range(len(models)), models)
    if len(models) > 3 or len(models) * max(map(len, models)) > WIDEST:
        for label in axes.get_xticklabels():
            label.set(rotation=40, ha="right", rotation_mode="anchor")


def _values_of_trainings(results: Results, model: str, attack: str) -> NDArray[np.float64]:
    """Return what is drawn of each training that ran: success in percent, or the median distance."""
    record = results.attack_records[attack]
    if record.compares_distances:
        distances: NDArray[Any] = results.values(model, attack, record.norm)
        if not len(distances):
            return np.empty(0)
        return np.asarray(np.quantile(distances.reshape(len(distances), -1), 0.5, axis=1, method="higher"))
    exact = results.exact_pixel.probabilities(attack)
    rates = results.trainings.rates(model, attack) if exact is None else exact[model].mean(axis=1)
    return np.asarray(100 * rates)


def _title(results: Results, attack: str) -> str:
    record = results.attack_records[attack]
    if record.compares_distances:
        return f"{attack}: median {NORMS[record.norm]}"
    expected = "expected " if results.exact_pixel.probabilities(attack) is not None else ""
    return f"{attack}: {expected}success, %"

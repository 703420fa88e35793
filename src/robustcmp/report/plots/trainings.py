"""A dot a training: how far the trainings of one model differ beside the models."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ...analysis.results import Results
from ...analysis.statistics import t_interval

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NORMS = {"l0": "L0", "l2": "L2", "linf": "L∞"}
SPREAD = 0.22  # of the dots of a model, to either side


def draw(results: Results) -> NDArray[np.object_]:
    """Draw a dot a training, beside the mean and the 95 % interval over trainings of each model, a panel an attack.

    Of an attack whose distances are compared it is the median distance, of others the success rate: its expectation
    over all draws where that is known. A model that an attack cannot run on has no dots there.

    Returns
    -------
    ndarray of matplotlib.axes.Axes, shape (attacks,)
    """
    import matplotlib.pyplot as plt

    attacks = results.attacks
    _, panels = plt.subplots(1, len(attacks), figsize=(3 * len(attacks), 3.3), layout="constrained", squeeze=False)
    for axes, attack in zip(panels[0], attacks, strict=True):
        _panel(axes, results, attack)
    row: NDArray[np.object_] = panels[0]
    return row


def _panel(axes: Axes, results: Results, attack: str) -> None:
    for place, model in enumerate(results.models):
        values = _values(results, model, attack)
        dots = place + (np.linspace(-SPREAD, SPREAD, len(values)) if len(values) > 1 else np.zeros(len(values)))
        axes.plot(dots, values, "o", markersize=4, alpha=0.75)
        if len(values) > 1:
            axes.hlines(values.mean(), place - 0.32, place + 0.32, color="black", linewidth=1.2)
            low, high = t_interval(values)
            if math.isfinite(low):
                axes.vlines(place + 0.38, low, high, color="black", linewidth=1.2)
    axes.set(title=_title(results, attack), xlim=(-0.5, len(results.models) - 0.35))
    axes.set_xticks(range(len(results.models)), results.models)
    if len(results.models) > 3:
        axes.tick_params(axis="x", labelrotation=40)
    axes.grid(alpha=0.3, axis="y")
    axes.spines[["top", "right"]].set_visible(False)


def _values(results: Results, model: str, attack: str) -> NDArray[np.float64]:
    """Return a value a training that ran."""
    record = results.attack_records[attack]
    if record.compares_distances:
        distances: NDArray[Any] = results.values(model, attack, record.norm)
        return (
            np.quantile(distances.reshape(len(distances), -1), 0.5, axis=1, method="higher")
            if len(distances)
            else distances
        )
    known = results.exact_pixel.probabilities(attack)
    rates = results.trainings.rates(model, attack) if known is None else known[model].mean(axis=1)
    return np.asarray(100 * rates)


def _title(results: Results, attack: str) -> str:
    record = results.attack_records[attack]
    if record.compares_distances:
        return f"{attack}: median {NORMS[record.norm]}"
    expected = "expected " if results.exact_pixel.probabilities(attack) is not None else ""
    return f"{attack}: {expected}success, %"

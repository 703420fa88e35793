"""Resources over time: what a process uses, from its start to its end."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ...errors import UsageError
from ...report.plots.style import bare, color, line, panels
from ..pairs import Setting

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from ..benchmark import Benchmark

SERIES = {
    "cpu": ("processors used", 1.0),
    "memory": ("memory, MB", 1e-6),
    "others": ("processors of others", 1.0),
    "gpu": ("GPU used, %", 100.0),
    "gpu_memory": ("GPU memory, MB", 1e-6),
    "gpu_power": ("GPU power, W", 1.0),
    "cpu_temperature": ("processor, °C", 1.0),
    "gpu_temperature": ("GPU, °C", 1.0),
}
"""The name of each series, and by what it is multiplied."""
MOST_POINTS = 400  # of a line: more are not seen


def list_settings(benchmark: Benchmark) -> list[Setting]:
    """Return the settings in which resources were looked at."""
    return [
        setting
        for setting in benchmark.settings
        if any(each.resources.seconds for subject in benchmark.subjects for each in benchmark.select(setting, subject))
    ]


def draw(benchmark: Benchmark, *, setting: Setting | None = None, figure: Figure | None = None) -> NDArray[np.object_]:
    """Draw what processes use over time, a thin line a process, a panel a kind of resource.

    Parameters
    ----------
    setting : Setting, optional
        One of `Benchmark.settings`; the first of them if nothing is said.
    figure : matplotlib.figure.Figure, optional
        Where to draw; a new figure if nothing is said.

    Returns
    -------
    ndarray of matplotlib.axes.Axes, shape (kinds,)

    Raises
    ------
    UsageError
        Resources were not looked at.
    """
    settings = list_settings(benchmark)
    if not settings:
        raise UsageError("resources were not looked at while this was measured, so there is nothing to draw")
    setting = settings[0] if setting is None else setting
    measured = {subject: benchmark.select(setting, subject) for subject in benchmark.subjects}
    series = [each.resources.series for measurements in measured.values() for each in measurements]
    kinds = [name for name in SERIES if any(value is not None for of in series for value in of.get(name, []))]
    row: NDArray[np.object_] = panels(max(1, len(kinds)), figure)[0]
    for axes, name in zip(row, kinds, strict=False):
        title, scale = SERIES[name]
        for index, subject in enumerate(benchmark.subjects):
            style = {"color": color(index), "linestyle": line(index)}
            for number, each in enumerate(measured[subject]):
                seconds, values = _thin_out(each.resources.seconds, each.resources.series.get(name, []))
                label = subject if number == 0 else None
                axes.plot(seconds, scale * values, label=label, linewidth=1, alpha=0.7, **style)
        axes.set(title=title, xlabel="seconds from the start")
        axes.set_ylim(bottom=0)
        bare(axes)
    row[0].legend(frameon=False, loc="best")
    return row


def _thin_out(seconds: list[float], values: list[float | None]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return a line with few points: of more, every so many-th."""
    step = max(1, math.ceil(len(values) / MOST_POINTS))
    return np.array(seconds[: len(values)], np.float64)[::step], np.array(values, np.float64)[::step]

"""The distribution of latency: the share of calls, or of steps, that take no longer than a time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ...report.plots.style import bare, color, line, panels
from ..figures import drop_warm_up
from ..pairs import Setting
from ..words import name_setting

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from ..benchmark import Benchmark

MOST_POINTS = 200  # of a curve: more are not seen


def draw(benchmark: Benchmark, *, setting: Setting | None = None, figure: Figure | None = None) -> NDArray[np.object_]:
    """Draw the share of calls, or of the steps of a training, that take no longer than a time, a line a process.

    After warm-up; a panel a setting.

    Parameters
    ----------
    setting : Setting, optional
        One of `Benchmark.settings`; all of them if nothing is said.
    figure : matplotlib.figure.Figure, optional
        Where to draw; a new figure if nothing is said.

    Returns
    -------
    ndarray of matplotlib.axes.Axes, shape (settings,)
    """
    chosen = benchmark.settings if setting is None else [setting]
    row: NDArray[np.object_] = panels(len(chosen), figure)[0]
    for axes, panel in zip(row, chosen, strict=True):
        _draw_panel(axes, benchmark, panel)
    return row


def _draw_panel(axes: Axes, benchmark: Benchmark, setting: Setting) -> None:
    for index, subject in enumerate(benchmark.subjects):
        for number, measured in enumerate(benchmark.select(setting, subject)):
            calls = drop_warm_up(measured)
            if not len(calls):
                continue
            shares = np.linspace(0, 1, min(len(calls), MOST_POINTS))
            times = 1000 * np.quantile(calls, shares, method="inverted_cdf")
            label = subject if number == 0 else None
            style = {"color": color(index), "linestyle": line(index), "linewidth": 1, "alpha": 0.7}
            axes.plot(times, 100 * shares, label=label, **style)
    axes.set(title=f"{name_setting(setting)}, %", xlabel="milliseconds", ylim=(0, 100), xscale="log")
    axes.legend(frameon=False, loc="lower right")
    bare(axes)

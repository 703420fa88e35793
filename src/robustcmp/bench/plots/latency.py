"""The distribution of latency: the share of calls, or of steps, that take no longer than a time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ...errors import UsageError
from ...report.plots.style import bare, color, line, panels
from ..figures import drop_warm_up
from ..pairs import Setting
from ..words import TASKS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from ..benchmark import Benchmark

MOST_POINTS = 200  # of a curve: more are not seen
CROWDED = 30  # times the shortest: ticks at powers of ten alone
WIDE = 5  # times the shortest: longer ones are on a logarithmic axis


def list_settings(benchmark: Benchmark) -> list[Setting]:
    """Return the settings in which there are calls or steps after warm-up."""
    return [
        setting
        for setting in benchmark.settings
        if any(measured.calls for subject in benchmark.subjects for measured in benchmark.select(setting, subject))
    ]


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

    Raises
    ------
    UsageError
        There are no calls.
    """
    chosen = list_settings(benchmark) if setting is None else [setting]
    if not chosen:
        raise UsageError("no calls and no steps were measured after the first, so there is nothing to draw")
    row: NDArray[np.object_] = panels(len(chosen), figure)[0]
    for axes, panel in zip(row, chosen, strict=True):
        _draw_panel(axes, benchmark, panel)
    return row


def _draw_panel(axes: Axes, benchmark: Benchmark, setting: Setting) -> None:
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    for index, subject in enumerate(benchmark.subjects):
        style = {"color": color(index), "linestyle": line(index)}
        for number, measured in enumerate(benchmark.select(setting, subject)):
            calls = 1000 * drop_warm_up(measured)
            shares = np.linspace(0, 1, min(len(calls), MOST_POINTS))
            times = np.quantile(calls, shares, method="inverted_cdf")
            label = subject if number == 0 else None
            axes.plot(times, 100 * shares, linewidth=1, alpha=0.7, label=label, **style)
    of = f" of {setting.images:,}" if setting.images else ""
    axes.set(title=f"{TASKS[setting.task]}, batch {setting.batch_size}{of}, %", xlabel="milliseconds", ylim=(0, 100))
    shown = [time for curve in axes.get_lines() for time in np.asarray(curve.get_xdata()) if time > 0]
    if shown and max(shown) > WIDE * min(shown):
        axes.set_xscale("log")
        crowded = max(shown) > CROWDED * min(shown)
        axes.xaxis.set_major_locator(LogLocator(subs=(1.0,) if crowded else (1.0, 2.0, 5.0)))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axes.xaxis.set_minor_locator(NullLocator())
    axes.legend(frameon=False, loc="lower right")
    bare(axes)

"""Learning curves: the validation accuracy after each epoch, against seconds of training."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ..errors import UsageError
from ..report.plots import require_matplotlib
from ..report.plots.style import bare, color, line, marker, panels

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from .benchmark import Benchmark


def draw_learning(benchmark: Benchmark, figure: Figure | None = None) -> NDArray[np.object_]:
    """Draw as `Benchmark.plot_learning` says."""
    require_matplotlib()
    if "train" not in benchmark.tasks:
        raise UsageError("no training was measured, so there is nothing to draw")
    row: NDArray[np.object_] = panels(len(benchmark.settings), figure)[0]
    for axes, setting in zip(row, benchmark.settings, strict=True):
        for index, subject in enumerate(benchmark.subjects):
            style = {"color": color(index), "linestyle": line(index), "marker": marker(index)}
            for number, measured in enumerate(benchmark.select(setting, subject)):
                x = np.cumsum([epoch.seconds for epoch in measured.epochs])
                y = [epoch.validation_accuracy for epoch in measured.epochs]
                name = subject if number == 0 else None
                axes.plot(x, y, label=name, linewidth=1, markersize=3, alpha=0.7, **style)
        axes.set(title=f"batch {setting.batch_size}: validation accuracy", xlabel="seconds")
        axes.legend(frameon=False, loc="best")
        bare(axes)
    return row

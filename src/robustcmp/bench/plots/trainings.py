"""Learning curves: the loss and the accuracies after each epoch, against epochs or against time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ...errors import UsageError, unknown
from ...report.plots.style import bare, color, line, marker, panels

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from ..benchmark import Benchmark

MEASURES = ("validation_accuracy", "training_accuracy", "loss")


def draw(
    benchmark: Benchmark, *, measure: str = "validation_accuracy", figure: Figure | None = None
) -> NDArray[np.object_]:
    """Draw an accuracy or the loss against epochs, a thin line a training, a panel a batch size.

    Parameters
    ----------
    measure : str, default "validation_accuracy"
        That, ``"training_accuracy"`` or ``"loss"``.
    figure : matplotlib.figure.Figure, optional
        Where to draw; a new figure if nothing is said.

    Returns
    -------
    ndarray of matplotlib.axes.Axes, shape (batch sizes,)

    Raises
    ------
    UsageError
        Nothing was trained, or there is no such measure.
    """
    if measure not in MEASURES:
        raise unknown("measure", measure, MEASURES)
    return _draw_trainings(benchmark, figure, "share", "epoch", measure)


def draw_times(benchmark: Benchmark, *, figure: Figure | None = None) -> NDArray[np.object_]:
    """Draw the validation accuracy against the seconds of training, a thin line a training, a panel a batch size.

    Parameters
    ----------
    figure : matplotlib.figure.Figure, optional
        Where to draw; a new figure if nothing is said.

    Returns
    -------
    ndarray of matplotlib.axes.Axes, shape (batch sizes,)

    Raises
    ------
    UsageError
        Nothing was trained.
    """
    return _draw_trainings(benchmark, figure, "seconds", "seconds of training", "validation_accuracy")


def _draw_trainings(
    benchmark: Benchmark, figure: Figure | None, against: str, label: str, measure: str
) -> NDArray[np.object_]:
    """Draw one of `MEASURES` of every training against the sum of something of its epochs."""
    if "train" not in benchmark.tasks:
        raise UsageError("no training was measured, so there is nothing to draw")
    row: NDArray[np.object_] = panels(len(benchmark.settings), figure)[0]
    for axes, setting in zip(row, benchmark.settings, strict=True):
        for index, subject in enumerate(benchmark.subjects):
            style = {"color": color(index), "linestyle": line(index), "marker": marker(index)}
            for number, measured in enumerate(benchmark.select(setting, subject)):
                x = np.cumsum([getattr(epoch, against) for epoch in measured.epochs])
                y = [getattr(epoch, measure) for epoch in measured.epochs]
                name = subject if number == 0 else None
                axes.plot(x, y, label=name, linewidth=1, markersize=3, alpha=0.7, **style)
        axes.set(title=f"batch {setting.batch_size}: {measure.replace('_', ' ')}", xlabel=label)
        axes.legend(frameon=False, loc="best")
        bare(axes)
    return row

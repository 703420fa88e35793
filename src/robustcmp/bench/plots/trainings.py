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

MEASURES = {
    "validation_accuracy": ("validation accuracy, %", 100),
    "training_accuracy": ("training accuracy, %", 100),
    "loss": ("loss", 1),
}
"""What is drawn, with its label and the factor to its unit."""


def draw(
    benchmark: Benchmark,
    *,
    measure: str = "validation_accuracy",
    batch_size: int | None = None,
    figure: Figure | None = None,
) -> NDArray[np.object_]:
    """Draw an accuracy or the loss against epochs, a thin line a training, a panel a batch size.

    Parameters
    ----------
    measure : str, default "validation_accuracy"
        That, ``"training_accuracy"`` or ``"loss"``.
    batch_size : int, optional
        The batch size to draw; all of them if nothing is said.
    figure : matplotlib.figure.Figure, optional
        Where to draw; a new figure if nothing is said.

    Returns
    -------
    ndarray of matplotlib.axes.Axes, shape (batch sizes,)

    Raises
    ------
    UsageError
        Nothing was trained, or not with this batch size, or there is no such measure.
    """
    if measure not in MEASURES:
        raise unknown("measure", measure, MEASURES)
    return _draw_trainings(benchmark, batch_size, figure, "share", "epoch", measure)


def draw_times(
    benchmark: Benchmark, *, batch_size: int | None = None, figure: Figure | None = None
) -> NDArray[np.object_]:
    """Draw the validation accuracy against the seconds of training, a thin line a training, a panel a batch size.

    A dotted line is the accuracy to which seconds are counted.

    Parameters
    ----------
    batch_size : int, optional
        The batch size to draw; all of them if nothing is said.
    figure : matplotlib.figure.Figure, optional
        Where to draw; a new figure if nothing is said.

    Returns
    -------
    ndarray of matplotlib.axes.Axes, shape (batch sizes,)

    Raises
    ------
    UsageError
        Nothing was trained, or not with this batch size.
    """
    return _draw_trainings(benchmark, batch_size, figure, "seconds", "seconds of training", "validation_accuracy")


def _draw_trainings(
    benchmark: Benchmark, batch_size: int | None, figure: Figure | None, against: str, label: str, measure: str
) -> NDArray[np.object_]:
    """Draw one of `MEASURES` of every training against the sum of something of its epochs, a panel a batch size."""
    chosen = [
        setting
        for setting in benchmark.settings
        if setting.task == "train" and batch_size in (None, setting.batch_size) and benchmark.times(setting)
    ]
    if not chosen:
        size = "" if batch_size is None else f" at batch {batch_size}"
        raise UsageError(f"no training was measured{size}, so there is nothing to draw")
    title, factor = MEASURES[measure]
    row: NDArray[np.object_] = panels(len(chosen), figure)[0]
    for axes, setting in zip(row, chosen, strict=True):
        for index, subject in enumerate(benchmark.subjects):
            style = {"color": color(index), "linestyle": line(index), "marker": marker(index)}
            for number, measured in enumerate(benchmark.select(setting, subject)):
                x = np.cumsum([getattr(epoch, against) for epoch in measured.epochs])
                y = [factor * getattr(epoch, measure) for epoch in measured.epochs]
                name = subject if number == 0 else None
                axes.plot(x, y, label=name, linewidth=1, markersize=3, alpha=0.7, **style)
        if benchmark.manifest.accuracy is not None and measure == "validation_accuracy":
            axes.axhline(100 * benchmark.manifest.accuracy, color="#7f7f7f", linewidth=1, linestyle=":")
        axes.set(title=f"batch {setting.batch_size}: {title}", xlabel=label)
        axes.legend(frameon=False, loc="upper right" if measure == "loss" else "lower right")
        bare(axes)
    return row

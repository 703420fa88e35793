"""Learning curves: the loss and the accuracies after each epoch, against epochs or against time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from ...errors import UsageError, unknown
from ...report.plots.style import bare, color, line, marker, panels

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from ..benchmark import Benchmark

MEASURES = ("validation_accuracy", "training_accuracy", "loss")


def draw(
    benchmark: Benchmark,
    *,
    measure: str = "validation_accuracy",
    against: Literal["epoch", "seconds"] = "epoch",
    figure: Figure | None = None,
) -> NDArray[np.object_]:
    """Draw an accuracy or the loss of trainings, a thin line each, a panel a batch size.

    Parameters
    ----------
    measure : str, default "validation_accuracy"
        That, ``"training_accuracy"`` or ``"loss"``.
    against : str, default "epoch"
        That, or ``"seconds"`` of training.
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
    if "train" not in benchmark.tasks:
        raise UsageError("no training was measured, so there is nothing to draw")
    lengths = {"epoch": "share", "seconds": "seconds"}[against]
    row: NDArray[np.object_] = panels(len(benchmark.settings), figure)[0]
    for axes, setting in zip(row, benchmark.settings, strict=True):
        for index, subject in enumerate(benchmark.subjects):
            style = {"color": color(index), "linestyle": line(index), "marker": marker(index)}
            for number, measured in enumerate(benchmark.select(setting, subject)):
                x = np.cumsum([getattr(epoch, lengths) for epoch in measured.epochs])
                y = [getattr(epoch, measure) for epoch in measured.epochs]
                name = subject if number == 0 else None
                axes.plot(x, y, label=name, linewidth=1, markersize=3, alpha=0.7, **style)
        axes.set(title=f"batch {setting.batch_size}: {measure.replace('_', ' ')}", xlabel=against)
        axes.legend(frameon=False, loc="best")
        bare(axes)
    return row

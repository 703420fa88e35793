"""Learning curves: the loss and the accuracies after each epoch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ...errors import UsageError, unknown
from ...report.plots.style import bare, color, line, marker, panels
from ..measurement import Epoch
from ..performance import Performance

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Places = Callable[[Sequence[Epoch]], NDArray[np.float64]]


MEASURES = {
    "validation_accuracy": ("validation accuracy, %", 100),
    "training_accuracy": ("training accuracy, %", 100),
    "loss": ("loss", 1),
}
"""What is drawn, with its label and the factor to its unit."""


def draw(
    results: Performance,
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
    return of_trainings(results, batch_size, figure, _epochs, "epoch", measure)


def of_trainings(
    results: Performance,
    batch_size: int | None,
    figure: Figure | None,
    places: Places,
    label: str,
    measure: str = "validation_accuracy",
) -> NDArray[np.object_]:
    """Draw one of `MEASURES` of every training against something, a panel a batch size."""
    chosen = [
        setting
        for setting in results.settings
        if setting.task == "train" and batch_size in (None, setting.batch_size) and results.times(setting)
    ]
    if not chosen:
        what = "no training was measured" if batch_size is None else f"no training was measured at batch {batch_size}"
        raise UsageError(f"{what}, so there is nothing to draw")
    title, factor = MEASURES[measure]
    [row] = panels(len(chosen), figure)
    for axes, setting in zip(row, chosen, strict=True):
        for place, subject in enumerate(results.subjects):
            for number, measured in enumerate(results.of(setting, subject)):
                values = [factor * getattr(epoch, measure) for epoch in measured.epochs]
                _line(axes, place, places(measured.epochs), values, subject if number == 0 else None)
        if results.manifest.accuracy is not None and measure == "validation_accuracy":
            axes.axhline(100 * results.manifest.accuracy, color="#7f7f7f", linewidth=1, linestyle=":")
        axes.set(title=f"batch {setting.batch_size}: {title}", xlabel=label)
        axes.legend(frameon=False, loc="upper right" if measure == "loss" else "lower right")
        bare(axes)
    drawn: NDArray[np.object_] = row
    return drawn


def _line(axes: Axes, place: int, x: NDArray[np.float64], values: Sequence[float], label: str | None) -> None:
    style = {"color": color(place), "linestyle": line(place), "marker": marker(place)}
    axes.plot(x, values, label=label, linewidth=1, markersize=3, alpha=0.7, **style)


def _epochs(epochs: Sequence[Epoch]) -> NDArray[np.float64]:
    return np.cumsum([epoch.share for epoch in epochs])

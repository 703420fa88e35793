"""Time against accuracy: how long it takes to learn so much."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ..measurement import Epoch
from ..performance import Performance
from .learning import of_trainings

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def draw(results: Performance, *, batch_size: int | None = None, figure: Figure | None = None) -> NDArray[np.object_]:
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
    return of_trainings(results, batch_size, figure, _elapsed, "seconds of training")


def _elapsed(epochs: Sequence[Epoch]) -> NDArray[np.float64]:
    return np.cumsum([epoch.seconds for epoch in epochs])

"""What all pictures share: colours for every kind of colour vision, a marker a model, and where to draw."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ...errors import UsageError

if TYPE_CHECKING:
    from matplotlib.axes import Axes as Axes
    from matplotlib.figure import Figure as Figure
else:  # to import Matplotlib takes long
    Axes = Any
    Figure = Any

COLORS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
"""The palette of Okabe and Ito, without its yellow, which is too light for thin lines on white."""
MARKERS = ("o", "s", "^", "D", "v", "P")
LINES = ("-", "--", "-.", ":")
PANEL = (3.4, 2.9)
"""Width and height of a panel in inches."""


def color(position: int) -> str:
    """Return the colour of a model by its position in the run."""
    return COLORS[position % len(COLORS)]


def marker(position: int) -> str:
    """Return the marker of a model by its position in the run."""
    return MARKERS[position % len(MARKERS)]


def line(position: int) -> Any:
    """Return the line style of a model by its position in the run."""
    return LINES[position % len(LINES)]


def panels(
    columns: int, figure: Figure | None = None, *, rows: int = 1, size: Sequence[float] = PANEL, **options: Any
) -> NDArray[np.object_]:
    """Return the axes of a picture, shape (rows, columns).

    Parameters
    ----------
    columns, rows : int
        How many panels there are.
    figure : matplotlib.figure.Figure, optional
        Where to draw; a new figure of pyplot if nothing is said.
    size : sequence of float
        Width and height of one panel in inches.
    **options
        For `matplotlib.figure.Figure.subplots`.
    """
    if figure is None:
        import matplotlib.pyplot as plt

        figure = plt.figure()
    figure.set_size_inches(size[0] * columns, size[1] * rows)
    figure.set_layout_engine("constrained")
    return np.asarray(figure.subplots(rows, columns, squeeze=False, **options))


def panel_per_attack(
    attacks: Sequence[str],
    draw: Callable[[Axes, str], None],
    figure: Figure | None,
    size: Sequence[float] = PANEL,
) -> NDArray[np.object_]:
    """Draw a panel for each attack, side by side, and return their axes, shape (attacks,)."""
    if not attacks:
        raise UsageError("no attack of this run has what this picture shows, so there is nothing to draw")
    [row] = panels(len(attacks), figure, size=size)
    for axes, attack in zip(row, attacks, strict=True):
        draw(axes, attack)
    return np.asarray(row)


def bare(axes: Axes, grid: str | None = "y") -> None:
    """Take away the frame that says nothing, and add a light grid along an axis."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_axisbelow(True)
    if grid:
        axes.grid(alpha=0.3, axis=grid, linewidth=0.6)  # type: ignore[arg-type]


def as_picture(image: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return an image (H, W, C) as it is drawn: grey (H, W), or colours (H, W, 3).

    Of four channels the first three are drawn; of two, and of more than four, their mean.

    >>> as_picture(np.zeros((5, 6, 3), np.float32)).shape, as_picture(np.zeros((5, 6, 1), np.float32)).shape
    ((5, 6, 3), (5, 6))
    """
    return image[..., :3] if image.shape[-1] in (3, 4) else np.asarray(image.mean(axis=-1), np.float32)

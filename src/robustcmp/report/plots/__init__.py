"""Reading: pictures of a run, one a file, as Matplotlib axes. Imports analysis, records and the ground.

Matplotlib draws them all, for notebooks, the page and the documentation: it is what the field has installed, it writes
static SVG whose text stays text, and nothing has to be fetched to look at it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Concatenate, ParamSpec, TypeVar

from ...analysis.results import Results
from ...errors import UsageError
from . import conditioning, curves, deployments, distances, gallery, indicator, trainings, transfer, variance

Drawn = TypeVar("Drawn")
Options = ParamSpec("Options")


def _picture(draw: Callable[Concatenate[Results, Options], Drawn]) -> Callable[Concatenate[Plots, Options], Drawn]:
    """Make a method of `Plots` from a function that draws, with its options."""

    @wraps(draw)
    def method(self: Plots, /, *given: Options.args, **options: Options.kwargs) -> Drawn:
        return draw(self.results, *given, **options)

    return method


def require_matplotlib() -> None:
    """Raise `UsageError` where Matplotlib is not installed."""
    try:
        import matplotlib  # noqa: F401
    except ImportError as error:
        raise UsageError(f"pictures need Matplotlib ({error}): pip install 'robustcmp[plot]'") from None


class Plots:
    """The pictures of a run; each method returns its Matplotlib axes.

    Raises
    ------
    UsageError
        Matplotlib is not installed.
    """

    def __init__(self, results: Results):
        require_matplotlib()
        self.results = results

    trainings = _picture(trainings.draw)
    curves = _picture(curves.draw)
    deployments = _picture(deployments.draw)
    distances = _picture(distances.draw)
    indicator = _picture(indicator.draw)
    variance = _picture(variance.draw)
    transfer = _picture(transfer.draw)
    conditioning = _picture(conditioning.draw)
    gallery = _picture(gallery.draw)

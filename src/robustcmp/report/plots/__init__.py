"""Reading: pictures of a run, one a file, as Matplotlib axes. Imports analysis, records and the ground.

Matplotlib draws them all, for notebooks, the page and the documentation: it is what the field has installed, it writes
static SVG whose text stays text, and nothing has to be fetched to look at it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Concatenate, Generic, ParamSpec, TypeVar

from ...analysis.results import Results
from ...errors import UsageError
from . import conditioning, curves, deployments, distances, gallery, indicator, trainings, transfer, variance

Drawn = TypeVar("Drawn")
Source = TypeVar("Source")
Options = ParamSpec("Options")


class Drawing(Generic[Source]):
    """The pictures of something.

    Parameters
    ----------
    results : Results or Performance
        What is drawn.

    Raises
    ------
    UsageError
        Matplotlib is not installed.
    """

    def __init__(self, results: Source):
        need_matplotlib()
        self.results = results


def picture(
    draw: Callable[Concatenate[Source, Options], Drawn],
) -> Callable[Concatenate[Drawing[Source], Options], Drawn]:
    """Make a method of a `Drawing` from a function that draws, with its options."""

    @wraps(draw)
    def method(self: Drawing[Source], /, *given: Options.args, **options: Options.kwargs) -> Drawn:
        return draw(self.results, *given, **options)

    return method


def need_matplotlib() -> None:
    """Raise `UsageError` where Matplotlib is not installed."""
    try:
        import matplotlib  # noqa: F401
    except ImportError as error:
        raise UsageError(f"pictures need Matplotlib ({error}): pip install 'robustcmp[plot]'") from None


class Plots(Drawing[Results]):
    """The pictures of a run; each method returns its Matplotlib axes."""

    trainings = picture(trainings.draw)
    curves = picture(curves.draw)
    deployments = picture(deployments.draw)
    distances = picture(distances.draw)
    indicator = picture(indicator.draw)
    variance = picture(variance.draw)
    transfer = picture(transfer.draw)
    conditioning = picture(conditioning.draw)
    gallery = picture(gallery.draw)

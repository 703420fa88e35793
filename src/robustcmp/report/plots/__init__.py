"""Reading: pictures of a run, one a file, as Matplotlib axes. Imports analysis, records and the ground."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import TypeVar

from ...analysis.results import Results
from ...errors import UsageError
from .trainings import trainings

Drawn = TypeVar("Drawn")


def picture(draw: Callable[[Results], Drawn]) -> Callable[[Plots], Drawn]:
    """Make a method of `Plots` from a function that draws a run."""

    @wraps(draw)
    def method(self: Plots) -> Drawn:
        return draw(self.results)

    return method


class Plots:
    """The pictures of a run; each method returns its Matplotlib axes.

    Parameters
    ----------
    results : Results
        The run.

    Raises
    ------
    UsageError
        Matplotlib is not installed.
    """

    def __init__(self, results: Results):
        try:
            import matplotlib  # noqa: F401
        except ImportError as error:
            raise UsageError(f"pictures need Matplotlib ({error}): pip install 'robustcmp[plot]'") from None
        self.results = results

    trainings = picture(trainings)

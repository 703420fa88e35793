"""Reading: pictures of a run, one a file, as Matplotlib axes. Imports analysis, records and the ground."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ...analysis.results import Results
from ...errors import UsageError
from .trainings import trainings

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Plots", "trainings"]


class Plots:
    """The pictures of a run; each method returns its Matplotlib axes. They need ``pip install 'robustcmp[plot]'``."""

    def __init__(self, results: Results):
        try:
            import matplotlib  # noqa: F401
        except ImportError as error:
            raise UsageError(f"pictures need Matplotlib ({error}): pip install 'robustcmp[plot]'") from None
        self._results = results

    def trainings(self) -> NDArray[np.object_]:
        """Draw a dot a training, beside the mean and the 95 % interval of each model, a panel an attack.

        Returns
        -------
        ndarray of matplotlib.axes.Axes, shape (attacks,)
        """
        axes: NDArray[np.object_] = trainings(self._results)
        return axes

"""What an attack asks about, made on the host or on the model's GPU."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import frameworks
from .classifier import (
    Classifier,
)

_log = logging.getLogger("robustcmp")


class Candidates:
    """What an attack asks about, made from a few arrays: by NumPy, or on the model's GPU, where they stay.

    Parameters
    ----------
    classifier : Classifier
        Who is asked.
    make : callable
        ``make(*arrays, rows, *of_each)`` returns the candidates of M rows, in a new NumPy array or EagerPy tensor, as
        it gets them; `rows` can be a slice. They are rounded to float32 and clipped to the bounds. A function of a
        module, so that it is compiled once.
    arrays : ndarray
        Those with four axes are images (N, H, W, C), as the first one is; tensors are in the model's own layout.
    """

    def __init__(self, classifier: Classifier, make: frameworks.Make, *arrays: NDArray[Any]):
        self._classifier, self._make, self._arrays = classifier, make, list(arrays)
        self._rows: NDArray[np.int64] | None = None  # those of the arrays on the GPU that are kept
        self._there: frameworks.Function | None = None  # from arrays on the GPU to candidates
        framework = classifier.framework
        if classifier.on_gpu:
            try:
                self._arrays = [classifier.tensor(array) for array in arrays]
            except Exception as error:
                if not framework.is_out_of_memory(error):
                    raise
                _log.info("images do not fit into the device's memory, so NumPy makes what is asked about")
            else:
                self._rows = np.arange(len(arrays[0]))
                self._there = framework.maker(make, classifier.bounds)

    def predict(self, rows: NDArray[np.int64], *of_each: NDArray[Any]) -> NDArray[np.int64]:
        """Return the classes (M,) of the candidates of M rows, with an entry of other arrays for each of them."""
        return self._classifier.classes(self.forward, rows if self._rows is None else self._rows[rows], *of_each)

    def keep(self, rows: NDArray[np.int64]) -> None:
        """Forget all other rows; those that are kept are counted anew."""
        if self._rows is None:
            self._arrays = [array[rows] for array in self._arrays]
        else:
            self._rows = self._rows[rows]

    def forward(self, rows: NDArray[np.int64], *of_each: NDArray[Any]) -> NDArray[np.float32]:
        classifier, there = self._classifier, self._there
        if there is not None:
            return classifier.ask(lambda *tensors: classifier.function(there(*self._arrays, *tensors)), rows, *of_each)
        # No row has to be copied where they are in a row.
        some = slice(rows[0], rows[-1] + 1) if (np.diff(rows) == 1).all() else rows
        images = self._make(*self._arrays, some, *of_each).astype(np.float32, copy=False)
        return classifier.forward(np.clip(images, *classifier.bounds, out=images))

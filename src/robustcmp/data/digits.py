"""The handwritten digits that ship inside scikit-learn."""

from __future__ import annotations

from importlib.metadata import distribution
from pathlib import Path

import numpy as np
import numpy.typing as npt

from .dataset import Dataset, hold_out

_TEST = 500
_LEVELS = 16


def load(split: str, _directory: Path | None = None) -> Dataset:
    """Return one split; no directory has it."""
    # To import scikit-learn would take most of a second.
    path = distribution("scikit-learn").locate_file("sklearn/datasets/data/digits.csv.gz")
    table = np.loadtxt(str(path), delimiter=",")
    values = table[:, :-1]
    labels = table[:, -1].astype(np.int64)
    rest, held_out = hold_out(labels, _TEST / len(labels))
    chosen = held_out if split == "test" else rest
    images = _resize_bilinear(values[chosen].reshape(-1, 8, 8), 28) / _LEVELS
    return Dataset(images.astype(np.float32)[..., np.newaxis], labels[chosen], "digits", split, classes=10)


def _resize_bilinear(images: npt.NDArray[np.float64], size: int) -> npt.NDArray[np.float64]:
    """Scale square images (N, S, S) to (N, size, size), bilinearly, with half-pixel centres and clamped edges.

    Pixel i of the result lies at (i + 1/2)·S/size − 1/2 in the original. In units of 1/(2·size) all weights are
    integers, so for integer images the matrix products are exact in any order of summation, the only rounding is
    the division at the end, and every machine gets the same bits.
    """
    side = images.shape[-1]
    unit = 2 * size
    before, weight = np.divmod((2 * np.arange(size) + 1) * side - size, unit)
    matrix = np.zeros((size, side))
    for index, share in ((before, unit - weight), (before + 1, weight)):
        matrix[np.arange(size), np.clip(index, 0, side - 1)] += share
    scaled: npt.NDArray[np.float64] = matrix @ images @ matrix.T
    return scaled / unit**2

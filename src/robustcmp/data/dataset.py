"""Images with their labels."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from ..errors import UsageError

Pixels = npt.NDArray[np.uint8]
Indices = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False, repr=False)
class Dataset:
    """Images with their labels.

    Attributes
    ----------
    images : float32, (N, H, W, C), in [0, 1], C-contiguous
    labels : int64, (N,), in [0, classes)
    name : ``mnist``, ``digits`` or ``cifar10``
    split : ``train`` or ``test``
    classes : the number of classes, whether or not all of them occur

    Examples
    --------
    >>> from robustcmp import load_dataset
    >>> data = load_dataset("digits")
    >>> data
    Dataset(name='digits', split='test', images=(500, 28, 28, 1), classes=10)
    """

    images: npt.NDArray[np.float32]
    labels: npt.NDArray[np.int64]
    name: str
    split: str
    classes: int

    @cached_property
    def digest(self) -> str:
        """SHA-256, in hexadecimal, of name, split, shapes, dtypes and the arrays' bytes, in order.

        Bytes are taken as little endian, so machines agree. It is computed once: arrays changed afterwards do not
        change it.
        """
        arrays = [np.ascontiguousarray(a, dtype=a.dtype.newbyteorder("<")) for a in (self.images, self.labels)]
        header = [self.name, self.split, *([list(a.shape), a.dtype.str] for a in arrays)]
        result = hashlib.sha256(json.dumps(header).encode())
        for array in arrays:
            result.update(array.reshape(-1).view(np.uint8).data)
        return result.hexdigest()

    def __repr__(self) -> str:
        return f"Dataset(name={self.name!r}, split={self.split!r}, images={self.images.shape}, classes={self.classes})"


def stratified_split(labels: npt.ArrayLike, fraction: float) -> tuple[Indices, Indices]:
    """Hold out the same fraction of every class.

    Which ones is fixed: it is a function of the labels and the fraction alone, and one class's choice does not
    depend on the other classes.

    Parameters
    ----------
    labels : integers, (N,), not negative
    fraction : in [0, 1]; of a class with n members, ``round(fraction * n)`` are held out

    Returns
    -------
    rest, held_out : int64, sorted
        Together every index in [0, N), once.

    Raises
    ------
    UsageError
        The labels are not a row of non-negative integers, or the fraction is not in [0, 1].

    Examples
    --------
    >>> rest, held_out = stratified_split([0, 0, 0, 0, 1, 1], fraction=0.5)
    >>> len(rest), len(held_out)
    (3, 3)
    """
    classes = np.asarray(labels)
    if classes.ndim != 1 or not np.issubdtype(classes.dtype, np.integer) or (classes < 0).any():
        raise UsageError(
            f"Expected labels as a one-dimensional array of integers, none negative; received {classes.dtype} of shape "
            f"{classes.shape}. Pass a dataset's .labels."
        )
    if not 0 <= fraction <= 1:
        raise UsageError(f"Expected a fraction between 0 and 1, received {fraction}.")
    held_out = np.zeros(len(classes), dtype=bool)
    for label in np.unique(classes):
        members = np.flatnonzero(classes == label)
        # Raw Philox words, not Generator.permutation: NumPy promises that only the former never change.
        key = np.array([0, int(label)], dtype=np.uint64)
        order = np.argsort(np.random.Philox(key=key).random_raw(len(members)), kind="stable")
        held_out[members[order[: round(fraction * len(members))]]] = True
    return np.flatnonzero(~held_out).astype(np.int64), np.flatnonzero(held_out).astype(np.int64)

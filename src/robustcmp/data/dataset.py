"""Images with their labels."""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import numpy.typing as npt

from ..errors import UsageError, is_name

Pixels = npt.NDArray[np.uint8]
Indices = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False, repr=False)
class Dataset:
    """Images with their labels.

    Attributes
    ----------
    images : float32, (N, H, W, C), in [0, 1], C-contiguous
    labels : int64, (N,), in [0, classes)
    name : ``mnist``, ``digits`` or ``cifar10``; of a file or a folder, its kind and its last name: ``npz:FILE``
    split : ``train`` or ``test``
    classes : the number of classes, whether or not all of them occur; of an archive, the largest label plus 1
    class_names : what the classes are called, in their order; empty where that is not known
    notes : sentences about what was decided in reading it, such as the order of the classes

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
    class_names: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

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


def scale_bytes(pixels: Pixels, out: npt.NDArray[np.float32] | None = None) -> npt.NDArray[np.float32]:
    """Return 8-bit images as float32 in [0, 1]: divided by 255."""
    return np.divide(pixels, np.float32(255), out=out, dtype=np.float32)


def name_after(kind: str, path: Path) -> str:
    """Return the name of a dataset that lies in a file or folder: without the folders above, which are private.

    Raises
    ------
    UsageError
        The name has control characters.

    Examples
    --------
    >>> name_after("npz", Path("/home/somebody/flowers.npz"))
    'npz:flowers.npz'
    """
    name = Path(os.path.abspath(path)).name
    if not is_name(name):
        raise UsageError(f"a dataset's name should be one line without control characters, received {name!r}")
    return f"{kind}:{name}"


def hold_out(labels: npt.ArrayLike, fraction: float) -> tuple[Indices, Indices]:
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

    Examples
    --------
    >>> rest, held_out = hold_out([0, 0, 0, 0, 1, 1], fraction=0.5)
    >>> len(rest), len(held_out)
    (3, 3)
    """
    classes = np.asarray(labels)
    held_out = np.zeros(len(classes), dtype=bool)
    for label in np.unique(classes):
        members = np.flatnonzero(classes == label)
        # Raw Philox words, not Generator.permutation: NumPy promises that only the former never change.
        key = np.array([0, int(label)], dtype=np.uint64)
        order = np.argsort(np.random.Philox(key=key).random_raw(len(members)), kind="stable")
        held_out[members[order[: round(fraction * len(members))]]] = True
    return np.flatnonzero(~held_out).astype(np.int64), np.flatnonzero(held_out).astype(np.int64)

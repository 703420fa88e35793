"""MNIST: four IDX files."""

from __future__ import annotations

import gzip
import math
import os
import struct
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from .dataset import Pixels
from .published import Published, check_labels, data_errors, fetch, file_error

URLS = (
    "https://ossci-datasets.s3.amazonaws.com/mnist/",
    "https://storage.googleapis.com/cvdf-datasets/mnist/",
)
MD5 = {
    "train-images-idx3-ubyte.gz": "f68b3c2dcbeaaa9fbdd348bbdeb94873",
    "train-labels-idx1-ubyte.gz": "d53e105ee54ea40749a09fcbcd1e9432",
    "t10k-images-idx3-ubyte.gz": "9fb629c4189551a2d022fa330f9573f3",
    "t10k-labels-idx1-ubyte.gz": "ec29112dd5afa0611ce80d1b7f02629c",
}
_MOST_BYTES = 16 + 60_000 * 28 * 28  # of the largest file, unpacked


def _read_idx(path: str | os.PathLike[str], item_shape: tuple[int, ...]) -> Pixels:
    """Read an IDX file of unsigned bytes, the format of MNIST, gzipped or not.

    The format: 00 00 08, the number of dimensions in one byte, each dimension in four (big endian), the values.
    Whether it is gzipped is told by its content, not by its name.

    Parameters
    ----------
    path : the file
    item_shape : what the shape must be after its first dimension

    Returns
    -------
    uint8, of the shape in the header

    Raises
    ------
    DataError
        The file cannot be read, is no such file, is shorter or longer than its header says, or has other items.
    """
    path = Path(path)
    with data_errors(path), open(path, "rb") as raw:
        is_zipped = raw.read(2) == b"\x1f\x8b"
        raw.seek(0)
        with gzip.GzipFile(fileobj=raw) if is_zipped else raw as file:
            # One byte more tells a longer file, and at a gzip file's end it has the checksum compared.
            content = file.read(_MOST_BYTES + 1)
    dimensions = len(item_shape) + 1
    header = 4 + 4 * dimensions
    if content[:4] != bytes([0, 0, 8, dimensions]) or len(content) < header:
        raise file_error(
            path,
            f"an IDX file of unsigned bytes with {dimensions} dimensions (it begins with 00 00 08 0{dimensions})",
            f"a file that begins with {content[:4].hex(' ') or 'nothing'}",
        )
    shape = struct.unpack(f">{dimensions}I", content[4:header])
    if 0 in shape or shape[1:] != item_shape:
        raise file_error(path, f"items of shape {item_shape}", f"the shape {shape}")
    if len(content) - header != math.prod(shape):
        raise file_error(path, f"{math.prod(shape)} values, as its header {shape} says", f"{len(content) - header}")
    return np.frombuffer(content, np.uint8, offset=header).reshape(shape)


def _read(paths: Sequence[Path]) -> tuple[Pixels, Pixels]:
    images = _read_idx(paths[0], (28, 28))
    labels = _read_idx(paths[1], ())
    if len(images) != len(labels):
        raise file_error(paths[1], f"{len(images)} labels, one for each image in {paths[0].name}", f"{len(labels)}")
    check_labels(paths[1], labels)
    return images[..., np.newaxis], labels


def _download(names: Sequence[str], folder: Path) -> list[Path]:
    files = [f"{name}.gz" for name in names]
    return [fetch([base + file for base in URLS], MD5[file], folder) for file in files]


SOURCE = Published(
    name="mnist",
    folder="mnist",
    files={
        "train": ("train-images-idx3-ubyte", "train-labels-idx1-ubyte"),
        "test": ("t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"),
    },
    endings=(".gz", ""),
    read=_read,
    download=_download,
    publisher=URLS[0],
)
load = SOURCE.load

"""MNIST: four IDX files."""

from __future__ import annotations

import gzip
import math
import os
import struct
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from .dataset import Pixels
from .published import (
    Published,
    check_labels,
    data_errors,
    fetch,
    file_error,
    read_at_most,
)

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
# Deflate cannot do better (258 bytes from 2 bits), so a header that promises more is lying.
_MOST_INFLATION = 1032


# The file formats


def read_idx(path: str | os.PathLike[str], *, item_shape: tuple[int, ...] | None = None) -> Pixels:
    """Read an IDX file of unsigned bytes, the format of MNIST, gzipped or not.

    The format: 00 00 08, the number of dimensions in one byte, each dimension in four (big endian), the values.
    Whether it is gzipped is told by its content, not by its name. The header is compared with the file before
    memory is taken for the values, and no more than the header promises is inflated.

    Parameters
    ----------
    path : the file
    item_shape : what the shape must be after its first dimension; anything if not given

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
        zipped = raw.read(2) == b"\x1f\x8b"
        raw.seek(0)
        room = os.fstat(raw.fileno()).st_size * (_MOST_INFLATION if zipped else 1)
        with gzip.GzipFile(fileobj=raw) if zipped else raw as file:
            shape = _idx_shape(path, file.read)
            if item_shape is not None and shape[1:] != item_shape:
                raise file_error(path, f"items of shape {item_shape}", f"{shape[1:]}")
            count = math.prod(shape)
            promised = f"{count} values, as its header {shape} says"
            if count > room:
                raise file_error(path, promised, "a file that is too small for them")
            # One byte more tells a longer file, and at a gzip file's end it has the checksum compared.
            values = read_at_most(file.read, count + 1)
    if len(values) != count:
        raise file_error(path, promised, "more" if len(values) > count else f"{len(values)}")
    return np.frombuffer(values, dtype=np.uint8).reshape(shape)


def _idx_shape(path: Path, read: Callable[[int], bytes]) -> tuple[int, ...]:
    magic = read(4)
    # 32 is the most dimensions that every NumPy can hold.
    if len(magic) < 4 or magic[:3] != b"\x00\x00\x08" or not 1 <= magic[3] <= 32:
        raise file_error(
            path,
            "an IDX file of unsigned bytes, gzipped or not (it begins with 00 00 08 and the number of dimensions)",
            f"a file that begins with {magic.hex(' ') or 'nothing'}",
        )
    sizes = read(4 * magic[3])
    if len(sizes) < 4 * magic[3]:
        raise file_error(path, f"a header with {magic[3]} dimensions", "a file that ends inside its header")
    shape = struct.unpack(f">{magic[3]}I", sizes)
    if 0 in shape:
        raise file_error(path, "at least one value", f"the shape {shape}")
    return shape


# The datasets


def _read(paths: Sequence[Path]) -> tuple[Pixels, Pixels]:
    images = read_idx(paths[0], item_shape=(28, 28))
    labels = read_idx(paths[1], item_shape=())
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

"""Images and labels in a NumPy archive, as ``numpy.savez("FILE", images=images, labels=labels)`` writes it."""

from __future__ import annotations

import logging
import os
import struct
import zipfile
from pathlib import Path
from typing import IO, Any, Literal, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from .. import limits
from ..errors import DataError, UsageError
from ..files import open_regular
from .arrays import DARK, check_labels, check_memory, check_unit_images
from .dataset import Dataset, name_after, scale_bytes

PAIRS = {"test": (("x_test", "y_test"), ("images", "labels")), "train": (("x_train", "y_train"),)}
"""What images and labels of a split are called: the first is what Keras calls them."""
FORMAT = "data_format"
"""What an array is called that says where the channels are, ``"channels_first"`` or ``"channels_last"``."""
MAPPED_BYTES = 2**30  # arrays that take more stay in their file, which has to stay as it is meanwhile
_HEADER = 30  # bytes before the name of an entry
_MAGIC = b"PK\x03\x04"  # that an entry begins with

_log = logging.getLogger("robustcmp")


def load(path: Path, split: str) -> Dataset:
    """Return a split of an archive: the arrays ``images`` and ``labels``, or ``x_test`` and ``y_test``.

    Those of the training set are ``x_train`` and ``y_train``. Grey images may have no axis for their channel. Images of
    8 bits are divided by 255. An array ``data_format`` says where the channels are, ``"channels_last"`` or
    ``"channels_first"``.

    Raises
    ------
    DataError
        The file cannot be read, is damaged, has no such arrays, or they are no images and labels.
    """
    try:
        with open_regular(path) as file, zipfile.ZipFile(file) as archive:
            pixels, labels = (_array(file, archive, name) for name in _names(archive, split))
            data_format = str(_array(file, archive, FORMAT)) if f"{FORMAT}.npy" in archive.namelist() else None
            return _dataset(path, split, pixels, labels, data_format)
    except (DataError, UsageError) as error:
        remedy = " as an array of the archive, with numpy.savez" if FORMAT in error.parameters else ""
        raise DataError(f"{path}: {error}{remedy}", parameters=["dataset"]) from None
    except MemoryError:
        raise
    except Exception as error:  # a broken archive can raise anything
        said = getattr(error, "strerror", None) or " ".join(str(error).split())[:200]
        raise DataError(
            f"{path} cannot be read as a NumPy archive: {said}. Write it with "
            "numpy.savez(path, images=images, labels=labels).",
            parameters=["dataset"],
        ) from None


def _names(archive: zipfile.ZipFile, split: str) -> tuple[str, str]:
    there = {name.removesuffix(".npy") for name in archive.namelist()}
    for pair in PAIRS[split]:
        if there.issuperset(pair):
            return pair
    wanted = ", or ".join(" and ".join(pair) for pair in PAIRS[split])
    images, labels = PAIRS[split][-1]
    beside = ", with x_test and y_test beside them for the split test" if split == "train" else ""
    raise DataError(
        f"expected arrays {wanted} for the split {split}; received {', '.join(sorted(there)) or 'none'}. Write it with "
        f"numpy.savez(path, {images}=images, {labels}=labels){beside}."
    )


def _dataset(path: Path, split: str, pixels: NDArray[Any], labels: NDArray[Any], data_format: str | None) -> Dataset:
    if pixels.ndim == 3:
        pixels = pixels[..., np.newaxis]
        data_format = None  # an axis of length one is no other in any layout
    if pixels.dtype == np.uint8:
        if pixels.size and (most := int(pixels.max())) <= DARK:
            raise DataError(
                f"images of 8 bits reach from 0 to 255, received 0 to {most}, which are black once they are divided by "
                f"""255. Save them as float32 in [0, 1]: images.astype("float32"){f" / {most}" * (most > 1)}."""
            )
        check_memory(f"{len(pixels):,} images as float32", 4 * pixels.size)
        pixels = scale_bytes(pixels)
        _log.info("%s: images of 8 bits, divided by 255", path)
    images = check_unit_images(pixels, data_format)
    if not len(images):
        raise DataError("expected at least one image, received none")
    classes = check_labels(labels, len(images))
    if classes.min() < 0:
        raise DataError(f"expected labels from 0 on, received {classes.min()}")
    return Dataset(images, classes, name_after("npz", path), split, int(classes.max()) + 1)


# arrays of an archive -------------------------------------------------------------------------------------------------


class _Head(NamedTuple):
    """What an array's header says, and how many bytes it has itself."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    in_columns: bool
    size: int

    @property
    def nbytes(self) -> int:
        return int(np.prod(self.shape, dtype=object)) * self.dtype.itemsize


def _array(file: IO[bytes], archive: zipfile.ZipFile, name: str) -> NDArray[Any]:
    """Return an array of an archive, in the memory or, if it is large and not compressed, in its file."""
    entry = archive.getinfo(f"{name}.npy")
    with archive.open(entry) as content:
        head = _head(content)
    if head.dtype.hasobject:
        raise DataError(f"{name} has Python objects, which are not read: they could run code. Save numbers.")
    if head.size + head.nbytes != entry.file_size:
        raise DataError(
            f"{name} should have {head.nbytes:,} bytes for {head.dtype} of shape {head.shape}, received "
            f"{entry.file_size - head.size:,}. Copy the file again, or write it again."
        )
    if entry.compress_type == zipfile.ZIP_STORED and head.nbytes > MAPPED_BYTES:
        with archive.open(entry) as content:
            while content.read(2**20):  # to its end, where the checksum is compared
                pass
        start, order = _start(file, entry) + head.size, cast(Literal["C", "F"], "CF"[head.in_columns])
        mapped = np.memmap(cast(Any, file), head.dtype, "r", start, head.shape, order)
        if mapped.flags.aligned:
            return mapped
    most = max(limits.UNPACKED_BYTES, limits.UNPACKED_RATIO * entry.compress_size)
    if head.nbytes > most:
        raise DataError(
            f"{name} has {entry.compress_size:,} bytes and says that it holds {head.nbytes:,}; expected at most "
            f"{most:,}. If that is right, write it without compression, with numpy.savez."
        )
    check_memory(name, head.nbytes)
    with archive.open(entry) as content:
        array: NDArray[Any] = np.lib.format.read_array(content, allow_pickle=False)
        content.read(1)  # at the end, the checksum is compared
    return array


def _head(content: IO[bytes]) -> _Head:
    version = np.lib.format.read_magic(content)
    if version not in ((1, 0), (2, 0)):
        raise DataError(f"expected an array of version 1.0 or 2.0 of NumPy's format, received {version}")
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, in_columns, dtype = read(content)
    return _Head(shape, dtype, in_columns, content.tell())


def _start(file: IO[bytes], entry: zipfile.ZipInfo) -> int:
    """Return where the bytes of an entry begin."""
    file.seek(entry.header_offset, os.SEEK_SET)
    header = file.read(_HEADER)
    if len(header) < _HEADER or not header.startswith(_MAGIC):
        raise DataError("expected a zip archive whose entries lie where its directory says")
    name, extra = struct.unpack("<HH", header[26:])
    return entry.header_offset + _HEADER + int(name) + int(extra)

"""Images and labels in a NumPy archive, as ``numpy.savez("FILE", images=images, labels=labels)`` writes it."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import limits
from ..errors import LOG, DataError, OutOfMemoryError, UsageError, in_one_line
from ..files import open_regular
from .arrays import DARK, check_labels, check_memory, check_unit_images
from .dataset import Dataset, name_after, scale_bytes

# What images and labels of a split are called: the first is what Keras calls them.
PAIRS = {"test": (("x_test", "y_test"), ("images", "labels")), "train": (("x_train", "y_train"),)}


def load(path: Path, split: str) -> Dataset:
    """Return a split of an archive: the arrays ``images`` and ``labels``, or ``x_test`` and ``y_test``.

    Those of the training set are ``x_train`` and ``y_train``. Grey images may have no axis for their channel. Images of
    8 bits are divided by 255.

    Raises
    ------
    DataError
        The file cannot be read, is damaged, has no such arrays, or they are no images and labels.
    """
    try:
        with open_regular(path) as file, zipfile.ZipFile(file) as archive:
            pixels, labels = (_read_array(archive, name) for name in _find_names(archive, split))
        return _make_dataset(path, split, pixels, labels)
    except (DataError, UsageError) as error:
        raise DataError(f"{path}: {error}", parameters=["dataset"]) from None
    except (OutOfMemoryError, MemoryError):
        raise
    except Exception as error:  # a broken archive can raise anything
        reason = getattr(error, "strerror", None) or in_one_line(error, 200)
        raise DataError(
            f"{path} cannot be read as a NumPy archive: {reason}. Write it with "
            "numpy.savez(path, images=images, labels=labels).",
            parameters=["dataset"],
        ) from None


def _find_names(archive: zipfile.ZipFile, split: str) -> tuple[str, str]:
    arrays = {name.removesuffix(".npy") for name in archive.namelist()}
    for pair in PAIRS[split]:
        if arrays.issuperset(pair):
            return pair
    wanted = ", or ".join(" and ".join(pair) for pair in PAIRS[split])
    images, labels = PAIRS[split][-1]
    raise DataError(
        f"expected arrays {wanted} for the split {split}; received {', '.join(sorted(arrays)) or 'none'}. Write it "
        f"with numpy.savez(path, {images}=images, {labels}=labels)."
    )


def _make_dataset(path: Path, split: str, pixels: NDArray[Any], labels: NDArray[Any]) -> Dataset:
    if pixels.ndim == 3:
        pixels = pixels[..., np.newaxis]
    if pixels.dtype == np.uint8:
        if pixels.size and pixels.max() <= DARK:
            raise DataError(
                f"images of 8 bits reach from 0 to 255, received 0 to {pixels.max()}, which are black once they are "
                "divided by 255. Save them as float32 in [0, 1]."
            )
        check_memory(f"{len(pixels):,} images as float32", 4 * pixels.size)
        pixels = scale_bytes(pixels)
        LOG.info("%s: images of 8 bits, divided by 255", path)
    images = check_unit_images(pixels)
    if not len(images):
        raise DataError("expected at least one image, received none")
    classes = check_labels(labels, len(images))
    if classes.min() < 0:
        raise DataError(f"expected labels from 0 on, received {classes.min()}")
    return Dataset(images, classes, name_after("npz", path), split, int(classes.max()) + 1)


def _read_array(archive: zipfile.ZipFile, name: str) -> NDArray[Any]:
    """Return an array of an archive; one with Python objects, which could run code, is not read."""
    entry = archive.getinfo(f"{name}.npy")
    most = max(limits.UNPACKED_BYTES, limits.UNPACKED_RATIO * entry.compress_size)
    if entry.file_size > most:
        raise DataError(
            f"{name} has {entry.compress_size:,} bytes and says that it holds {entry.file_size:,}; expected at most "
            f"{most:,}. If that is right, write it without compression, with numpy.savez."
        )
    check_memory(name, entry.file_size)
    with archive.open(entry) as content:
        array: NDArray[Any] = np.lib.format.read_array(content, allow_pickle=False)
        if content.read(1):  # at the end, the checksum is compared
            raise DataError(f"{name} is longer than its header says. Copy the file again, or write it again.")
    return array

"""Arrays of images and labels as callers bring them: they can be used, or an error says what makes them usable."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import limits
from ..errors import OutOfMemoryError, UsageError, in_one_line, unknown

Images = NDArray[np.float32]  # (N, H, W, C)
Labels = NDArray[np.int64]  # (N,)
UNIT_BOUNDS = (0.0, 1.0)
DATA_FORMATS = ("channels_first", "channels_last")
BLOCK_BYTES = 2**24  # of images that are looked at together: arrays may lie in files that are larger than the memory
MOST_CHANNELS = 4  # that are taken for channels where they come first
ROUNDING = 1e-3  # beyond the bounds
DARK = 16  # images in 8 bits reach beyond it; scikit-learn's digits do not


def check_data_format(given: str | None) -> None:
    """Raise `UsageError` for what says nothing about the axis of channels; None stands for nothing."""
    if given not in (None, *DATA_FORMATS):
        raise unknown("data_format", given, DATA_FORMATS)


def check_images(
    images: Any,
    bounds: tuple[float, float],
    remedy: str = "Scale the images, or pass bounds= to robustcmp.wrap.",
    data_format: str | None = None,
) -> Images:
    """Return images as float32 (N, H, W, C), or raise `UsageError` saying what is wrong with them.

    `data_format` says whether the channels are the second or the last axis. Without it, images whose channels seem to
    come first are refused.

    Images that are float32 and C-contiguous are not copied, so they may lie in a file (`numpy.memmap`) that is larger
    than the memory.
    """
    check_data_format(data_format)
    array = _array("images", images)
    if array.ndim != 4:
        raise UsageError(f"images should have the shape (N, H, W, C), received {array.shape}{_suggest_shape(array)}")
    if data_format == "channels_first":
        array = array.transpose(0, 2, 3, 1)
    elif data_format is None and array.shape[-1] > MOST_CHANNELS and 1 <= array.shape[1] <= MOST_CHANNELS:
        _, height, width, channels = array.shape
        raise UsageError(
            f"images should have the shape (N, H, W, C), received {array.shape}. If the second number counts channels, "
            f"move the channels last, images.transpose(0, 2, 3, 1); if images have {height} × {width} pixels and "
            f'{channels} channels, state data_format="channels_last"',
            parameters=["data_format"],
        )
    if array.dtype.kind != "f":
        remedy = ". For 8-bit images: images / 255" if bounds == UNIT_BOUNDS else ""
        raise UsageError(f"images should be float32 in {bounds}, received dtype {array.dtype}{remedy}")
    array = np.ascontiguousarray(array, np.float32)
    if not all(bounds[0] <= block.min() <= block.max() <= bounds[1] for _, block in in_blocks(array)):  # nor is it NaN
        raise _outside(array, bounds, remedy)
    return array


def check_unit_images(images: Any, data_format: str | None = None) -> Images:
    """Return images as float32 (N, H, W, C) in [0, 1], in which all models are compared, or raise `UsageError`."""
    if isinstance(images, int):
        raise UsageError(
            f"images should be an array (N, H, W, C), received the number {images}. To attack so many of the images, "
            f"pass n={images}"
        )
    return check_images(images, UNIT_BOUNDS, "", data_format)


def check_labels(labels: Any, n: int, classes: int | None = None) -> Labels:
    """Return labels as int64 (N,), or raise `UsageError` saying what is wrong with them."""
    array = _array("labels", labels)
    if array.shape != (n,):
        is_one_hot = array.ndim == 2 and ((array == 0) | (array == 1)).all() and (array.sum(axis=1) == 1).all()
        remedy = ". For one-hot labels: labels.argmax(axis=1)" if is_one_hot else ""
        raise UsageError(f"labels should have the shape ({n},), one for each image, received {array.shape}{remedy}")
    if array.dtype.kind not in "iu":
        raise UsageError(
            f"labels should be whole numbers, the places of classes in the model's output, received dtype {array.dtype}"
        )
    if classes is not None and n and not 0 <= array.min() <= array.max() < classes:
        counted_from_one = ": count classes from 0, labels - 1" if (array.min(), array.max()) == (1, classes) else ""
        raise UsageError(
            f"labels should be from 0 to {classes - 1}, as the model has {classes} classes; "
            f"received {array.min()} to {array.max()}{counted_from_one}"
        )
    return array.astype(np.int64)


def in_blocks(images: NDArray[Any]) -> Iterator[tuple[int, NDArray[Any]]]:
    """Yield images (N, …) in parts of at most 16 MiB, or of one image, each with the place of its first.

    >>> [(start, len(block)) for start, block in in_blocks(np.zeros((5, 1000, 1000, 1), np.float32))]
    [(0, 4), (4, 1)]
    """
    at_once = max(1, BLOCK_BYTES // max(1, images[:1].nbytes))
    for start in range(0, len(images), at_once):
        yield start, images[start : start + at_once]


def check_memory(what: str, needed: int) -> None:
    """Raise `OutOfMemoryError` for what takes more bytes than this machine's memory has."""
    memory = limits.memory()
    if memory is not None and needed > memory:
        raise OutOfMemoryError(
            f"{what} take {needed / 2**30:,.1f} GiB, and this machine has {memory / 2**30:,.1f}. Write them as float32 "
            'in [0, 1] with numpy.save, and pass numpy.load(path, mmap_mode="r") to robustcmp.evaluate.'
        )


def _array(name: str, value: Any) -> NDArray[Any]:
    """Return what was passed as an array, or raise `UsageError`: a loader would be an array of one object."""
    try:
        array = np.asarray(value)
    except Exception as error:  # a list of images of several sizes, a tensor on a GPU, one that has a gradient
        raise UsageError(
            f"{name} should be an array, received a {type(value).__name__} that NumPy cannot take: "
            f"{in_one_line(error, 200)}"
        ) from None
    if array.dtype.hasobject:
        raise UsageError(
            f"{name} should be an array of numbers, received {type(value).__name__}. Make an array of it, "
            "for instance with numpy.stack or numpy.concatenate"
        )
    return array


def _suggest_shape(array: NDArray[Any]) -> str:
    """Return what gives an array the four axes of images, nothing where that is not clear."""
    if array.ndim == 3 and array.shape[-1] <= MOST_CHANNELS:
        return ". For one image: images[None]"
    if array.ndim == 3:
        return ". For grey images: images[..., None]"
    return ""


def _outside(array: Images, bounds: tuple[float, float], remedy: str) -> UsageError:
    """Return the error for images of which some values are not within bounds, or not finite."""
    lowest = np.inf
    highest = -np.inf
    first = None
    for start, block in in_blocks(array):
        finite = np.isfinite(block)
        if not finite.all():
            return UsageError(f"images hold NaN or infinity, the first in image {start + _first(~finite)}")
        lowest = min(lowest, float(block.min()))
        highest = max(highest, float(block.max()))
        if first is None and (outside := (block < bounds[0]) | (block > bounds[1])).any():
            first = start + _first(outside)
    return UsageError(
        f"images should lie within the bounds {bounds}, received values from {np.float32(lowest)} to "
        f"{np.float32(highest)}, the first outside in image {first}. {remedy or _in_unit_bounds(lowest, highest)}"
    )


def _in_unit_bounds(lowest: float, highest: float) -> str:
    """Return what puts images into [0, 1] that reach from one value to another."""
    normalised = (
        "normalised images are passed as they were before, and their mean and standard deviation to "
        "robustcmp.wrap(..., preprocessing=...)"
    )
    remedies = [
        (
            lowest >= -ROUNDING and highest <= 1 + ROUNDING,
            "numpy.clip(images, 0, 1) removes what is beyond by rounding",
        ),
        (lowest >= 0 and DARK < highest <= 255, "images / 255"),
        (-1 <= lowest < 0 and highest <= 1, f"(images + 1) / 2 where they are in (-1, 1); {normalised}"),
        (True, normalised),
    ]
    remedy = next(remedy for holds, remedy in remedies if holds)
    return f"Images are compared in [0, 1] whatever bounds a model has: {remedy}."


def _first(bad: NDArray[np.bool_]) -> int:
    return int(np.flatnonzero(bad.any(axis=(1, 2, 3)))[0])

"""How many images are asked at once."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from .. import limits
from ..errors import UsageError

DEFAULT_BATCH_SIZE = 256
LARGEST_BATCH = 2**26  # bytes of one batch in float64; an attack holds a few such arrays


def default_batch_size(images: NDArray[np.float32]) -> int:
    """Return how many such images an attack asks at once where nothing was measured."""
    return min(DEFAULT_BATCH_SIZE, largest_batch_size(images))


def largest_batch_size(images: NDArray[np.float32]) -> int:
    """Return how many such images take 64 MiB in float64."""
    return max(1, LARGEST_BATCH // (8 * math.prod(images.shape[1:])))


def check_batch_size(batch_size: int, images: NDArray[np.float32]) -> None:
    """Raise `UsageError` for a batch of images that is larger than this machine's memory."""
    memory = limits.memory()
    needed = batch_size * 4 * math.prod(images.shape[1:])
    if memory is not None and needed > memory:
        raise UsageError(
            f"batch_size should fit into memory: {batch_size} images of {images.shape[1:]} take "
            f"{needed / 2**30:.0f} GiB, and there are {memory / 2**30:.0f}. Omit it to have it measured."
        )

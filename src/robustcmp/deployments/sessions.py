"""Deployed networks that are ready to be asked: what they tell of themselves, and sizes of batches."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import DeploymentError
from ..frameworks.base import DataFormat, pad, round_up
from .layouts import Layout

SIZES = 16  # of batches between two powers of two: for a new one, programs choose their kernels and buffers anew


class Session(ABC):
    """A deployed network that is ready to be asked.

    Attributes
    ----------
    shape : tuple of int
        (H, W, C) of one image, or (F,) where images are given as rows of values; 0 where any size is taken.
    notes : list of str
        What is done to images and answers, where the file has another layout or number format.
    holds_bytes : bool
        Whether the format of its images is that of bytes, so that these can be nothing but images within `bounds`.
    bounds : tuple of float
        Of the images that it takes, unless a caller says otherwise.
    levels : tuple of float or None
        The smallest and the largest value that its quantised input can store; None where its input is of floats.
    layout : Layout, optional
        How images become its input, where that is told from the sizes in the file.
    """

    shape: tuple[int, ...]
    notes: list[str]
    layout: Layout | None = None
    holds_bytes: bool = False
    bounds: tuple[float, float] = (0, 1)
    levels: tuple[float, float] | None = None

    @abstractmethod
    def __call__(self, images: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return the logits (N, K) of images (N, H, W, C)."""


class LayoutSession(Session):
    """A network that is asked as its layout says.

    Parameters
    ----------
    layout : Layout
        How images become its input.
    network : callable
        Its input to rows (N, K).
    notes : sequence of str
        In addition to those of the layout.
    """

    layout: Layout

    def __init__(self, layout: Layout, network: Callable[[NDArray[Any]], Any], notes: Sequence[str] = ()):
        self.layout = layout
        self.shape = layout.shape
        self.holds_bytes = layout.holds_bytes
        self.notes = [*layout.notes, *notes]
        self._network = network

    def __call__(self, images: NDArray[np.float32]) -> NDArray[np.float32]:
        return self.layout.ask(self._network, images)


class BatchSession(Session):
    """A network that answers a batch in one call. Calls of several threads wait for each other.

    Parameters
    ----------
    name : str
        What it is called in errors.
    ask : callable
        Images (N, C, H, W) or (N, H, W, C), as `data_format` says, float32 and C-contiguous, to logits.
    shape : tuple of int
        (H, W, C) of an image.
    data_format : str
        The layout that `ask` takes.
    notes : sequence of str
        As in `Session`.
    sizes : sequence of int, optional
        The only sizes of a batch that `ask` gets, ascending, for programs that take no other, compile for each, or
        whose answers depend on others in their last bits. Without them, batches are filled up to one of few sizes.

    Raises
    ------
    DeploymentError
        It does not answer two images with a row of numbers each.
    """

    def __init__(
        self,
        name: str,
        ask: Callable[[NDArray[np.float32]], Any],
        shape: tuple[int, int, int],
        data_format: DataFormat,
        notes: Sequence[str] = (),
        sizes: Sequence[int] = (),
    ):
        self.shape, self.notes = shape, list(notes)
        self._name, self._ask, self._sizes = name, ask, tuple(sizes)
        self._channels_first = data_format == "channels_first"
        self._lock = threading.Lock()
        self._classes = 0
        self._classes = self(np.zeros((2, *shape), np.float32)).shape[1]

    def __call__(self, images: NDArray[np.float32]) -> NDArray[np.float32]:
        n = len(images)
        if not n:
            return np.zeros((0, self._classes), np.float32)
        x = images.transpose(0, 3, 1, 2) if self._channels_first else images
        with self._lock:
            if not self._sizes:
                return self._rows(pad(x, round_up(n, SIZES)))[:n]
            answers, first = [], 0
            for size in parts(n, self._sizes):
                answers.append(self._rows(pad(x[first : first + size], size)))
                first += size
            return np.concatenate(answers)[:n]

    def _rows(self, x: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return the logits of a batch in the network's layout."""
        batch = np.ascontiguousarray(x, np.float32).reshape(-1).reshape(x.shape)  # one stride, where a size is 1
        logits = np.asarray(self._ask(batch), np.float32)
        rows = logits.ndim == 2 and len(logits) == len(x) and logits.shape[1] >= 2
        if not rows or self._classes not in (0, logits.shape[1]):
            raise DeploymentError(
                f"{self._name} should give a row of logits for each of {len(x)} images, received the shape "
                f"{logits.shape}: it has to be a classifier with two classes or more"
            )
        return logits


def parts(n: int, sizes: Sequence[int]) -> Iterator[int]:
    """Yield the sizes of the batches that n images are asked in, each one of `sizes`, ascending.

    A batch is the largest that the images left over fill; or a larger one, if at most a quarter of it is filling.

    Examples
    --------
    >>> list(parts(300, (16, 64, 256)))
    [256, 16, 16, 16]
    >>> list(parts(50, (16, 64, 256)))
    [64]
    """
    while n > 0:
        nearly = (size for size in sizes if n <= size <= n + size // 4)
        size = next(nearly, max((size for size in sizes if size <= n), default=sizes[0]))
        yield size
        n -= size

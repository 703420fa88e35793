"""Sessions of programs that take a whole batch at once: layouts, sizes of batches and threads."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import DeploymentError
from ..frameworks.base import DataFormat, pad, round_up
from ..limits import LAYER_VALUES
from .base import Session
from .layouts import channels_axis

SIZES = 16  # of batches between two powers of two: for a new one, programs choose their kernels and buffers anew


class BatchSession(Session):
    """A network that answers a batch in one call. Calls of several threads wait for each other.

    Parameters
    ----------
    what : str
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
        what: str,
        ask: Callable[[NDArray[np.float32]], Any],
        shape: tuple[int, int, int],
        data_format: DataFormat,
        notes: Sequence[str] = (),
        sizes: Sequence[int] = (),
    ):
        self.shape, self.notes = shape, list(notes)
        self._what, self._ask, self._sizes = what, ask, tuple(sizes)
        self._channels_first = data_format == "channels_first"
        self._lock = threading.Lock()
        self._classes = 0
        self._classes = self(np.zeros((2, *shape), np.float32)).shape[1]

    def __call__(self, images: NDArray[np.float32]) -> NDArray[np.float32]:
        n = len(images)
        if images.shape[1:] != self.shape:
            raise DeploymentError(
                f"{self._what} takes images of the shape {self.shape}, received {images.shape[1:]}: pass images "
                "(N, H, W, C) of that size"
            )
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
                f"{self._what} should give a row of logits for each of {len(x)} images, received the shape "
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


def images_taken(
    what: str, dimensions: Sequence[int | None], layout: DataFormat | None = None
) -> tuple[tuple[int, int, int], DataFormat]:
    """Return (H, W, C) and the layout of a network's images, from its input's dimensions, the batch among them.

    Parameters
    ----------
    what : str
        What the network is called in errors.
    dimensions : sequence of int or None
        None for one that is not fixed.
    layout : str, optional
        Where the file says it. If not, the channels are where 1 to 4 stands.

    Raises
    ------
    DeploymentError
        It takes no batch of images of one size, or nothing tells where the channels are.
    """
    if len(dimensions) != 4:
        raise DeploymentError(
            f"{what} takes an input of {len(dimensions)} dimensions, expected 4: a batch of images. Export it with "
            "an input (N, C, H, W) or (N, H, W, C)"
        )
    sizes = [size for size in dimensions[1:] if size]
    if len(sizes) != 3:
        given = ", ".join("?" if size is None else str(size) for size in dimensions)
        raise DeploymentError(
            f"{what} takes images of no fixed size ({given}). Export it with a fixed height, width and number of "
            "channels; only the batch may vary"
        )
    if np.prod(sizes, dtype=np.float64) > LAYER_VALUES:
        raise DeploymentError(f"{what} takes images of {sizes}, expected at most {LAYER_VALUES:,} values an image")
    if layout is None:
        axis = channels_axis(sizes)
        if axis is None:
            raise DeploymentError(
                f"{what} takes images {tuple(sizes)}, and nothing says where the channels are. Export it with 1 "
                "to 4 channels, first or last"
            )
        layout = "channels_first" if axis == "first" else "channels_last"
    if layout == "channels_first":
        return (sizes[1], sizes[2], sizes[0]), layout
    return (sizes[0], sizes[1], sizes[2]), layout


def check_file(path: Path, suffix: str) -> None:
    """Raise `DeploymentError` for what is no file with something in it, or ends in another way."""
    if path.suffix.lower() != suffix:
        raise DeploymentError(f"expected a file that ends with {suffix}, received {path}")
    try:
        size = path.stat().st_size if path.is_file() else -1
    except OSError as error:
        raise DeploymentError(f"{path} cannot be read: {error.strerror}") from None
    if size < 1:
        raise DeploymentError(f"{path} is {'no file' if size < 0 else 'empty'}: name a file of a network")


def first_line(error: BaseException) -> str:
    """Return what an error of a program says in one line, where its own message has a whole page."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    # OpenVINO names the places in its source first.
    said = [line for line in lines if not line.startswith(("Exception from ", "Check '"))] or lines
    return f"{type(error).__name__}: {said[0][:300] if said else 'no message'}"

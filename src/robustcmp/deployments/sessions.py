"""Deployed networks that are ready to be asked, and what they take: layout, batch, flat images, bytes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .. import limits
from ..errors import DeploymentError
from ..frameworks.base import pad

CHANNELS = (1, 2, 3, 4)
BYTES = 255.0
FLOATS = ("float16", "float32", "float64")
OTHER_END = {"NHWC": "NCHW", "NCHW": "NHWC"}


def _find_channels(sizes: Sequence[int]) -> Literal["first", "last"] | None:
    """Return where the channels of an image are, from its three sizes; None where both ends may be, or none.

    The two sizes of a square image are its height and width.
    """
    first = sizes[1] == sizes[2]
    last = sizes[0] == sizes[1]
    if first == last:
        first = sizes[0] in CHANNELS
        last = sizes[2] in CHANNELS
    if first == last:
        return None
    return "first" if first else "last"


@dataclass(frozen=True)
class Layout:
    """How images become the input of a network.

    Attributes
    ----------
    shape : tuple of int
        (H, W, C) of an image; for a network of flat images (F,), how many values an image has. 0 where any number is
        taken.
    order : str
        ``"NHWC"``, ``"NCHW"``, ``"NHW"`` (grey images) or ``"flat"``.
    batch : int or None
        How many images are asked at once, where the file says it.
    dtype : str
        The dtype of its input, in NumPy's words.
    notes : list of str
        What is done that its file does not show.
    """

    shape: tuple[int, ...]
    order: str
    batch: int | None
    dtype: str
    notes: list[str]

    @classmethod
    def of(cls, shape: Sequence[int | None], dtype: str, name: str, order: str = "") -> Layout:
        """Return the layout of an input; None stands for a size that is open, and an order is one that its file says.

        Raises
        ------
        DeploymentError
            It is no batch of images.
        """
        sizes = tuple(size or 0 for size in shape[1:])
        rounded = ", rounded to 255 times their values in [0, 1]" if dtype == "uint8" else ""
        notes = [f"images are given as {dtype}{rounded}"] if dtype != "float32" else []
        if len(shape) == 4:
            channels = _find_channels(sizes)
            if not order and channels is None:
                notes.append(
                    "its file does not say where the channels are: they are taken to be last, (N, H, W, C), and first "
                    "only where images fit that alone"
                )
            order = order or ("NCHW" if channels == "first" else "NHWC")
            if order == "NCHW":
                sizes = (sizes[1], sizes[2], sizes[0])
                notes.insert(0, "its images have their channels first, (N, C, H, W)")
        elif len(shape) == 3 and not shape[0] and min(sizes) not in (0, *CHANNELS):  # else it may be one image alone
            order = "NHW"
            sizes = (*sizes, 1)
            notes.append("each image is given without channels, (H, W)")
        elif len(shape) == 2:
            order = "flat"
            notes.append("each image is given as one row of values, in the order (H, W, C)")
        else:
            received = tuple("?" if size is None else size for size in shape)
            raise DeploymentError(
                f"{name} takes an array of the shape {received}; expected a batch of images, (N, H, W, C), "
                "(N, C, H, W), (N, H, W) with any N, or (N, values). Export it with a batch axis."
            )
        if math.prod(sizes) > limits.LAYER_VALUES:
            raise DeploymentError(
                f"{name} takes images of the shape {sizes}; expected at most {limits.LAYER_VALUES:,} values an image"
            )
        if shape[0] is not None:
            notes.append(
                f"its batch has always {shape[0]} image{'s' * (shape[0] > 1)}, so it is asked {shape[0]} at once"
            )
        return cls(sizes, order, shape[0], dtype, notes)

    def fits(self, image: Sequence[int]) -> bool:
        """Say whether images (H, W, C) have the size that the network takes."""
        if self.order == "flat":
            return self.shape[0] in (0, math.prod(image))
        return all(size in (0, length) for size, length in zip(self.shape, image, strict=True))

    def for_images(self, image: Sequence[int]) -> Layout:
        """Return the layout in which images (H, W, C) fit, as its channels may be at the other end than was guessed."""
        if self.order not in OTHER_END or self.fits(image):
            return self
        first, second, third = self.shape
        sizes = (second, third, first) if self.order == "NHWC" else (third, first, second)
        other = replace(self, shape=sizes, order=OTHER_END[self.order])
        return other if other.fits(image) else self

    def to_input(self, images: NDArray[np.float32]) -> NDArray[Any]:
        """Return images (N, H, W, C) as the network's input."""
        order = self.for_images(images.shape[1:]).order
        if order == "NCHW":
            images = np.ascontiguousarray(images.transpose(0, 3, 1, 2))
        elif order == "NHW":
            images = images[..., 0]
        elif order == "flat":
            images = images.reshape(len(images), -1)
        if self.dtype == "uint8":
            return np.asarray(np.clip(np.rint(images * BYTES), 0, BYTES), np.uint8)
        return images if self.dtype == "float32" else images.astype(self.dtype)


class Session:
    """A deployed network that is ready to be asked.

    Attributes
    ----------
    layout : Layout
        How images become its input.
    notes : list of str
        What is done to images and answers, where the file has another layout or number format.
    holds_bytes : bool
        Whether the format of its images is that of bytes, so that these can be nothing but images within `bounds`.
    bounds : tuple of float
        Of the images that it takes, unless a caller says otherwise.
    levels : tuple of float or None
        The smallest and the largest value that its quantised input can store; None where its input is of floats.

    Parameters
    ----------
    network : callable
        Its input to rows (N, K).
    sizes : sequence of int, optional
        The only sizes of a batch that the network gets, ascending, for programs that take no other, compile for each,
        or whose answers depend on others in their last bits. A layout with a fixed batch has no other.
    """

    bounds: tuple[float, float] = (0, 1)
    levels: tuple[float, float] | None = None

    def __init__(
        self,
        layout: Layout,
        network: Callable[[NDArray[Any]], Any],
        notes: Sequence[str] = (),
        sizes: Sequence[int] = (),
    ):
        self.layout = layout
        self.holds_bytes = layout.dtype == "uint8"
        self.notes = [*layout.notes, *notes]
        self._network = network
        self._sizes = [layout.batch] if layout.batch else sizes

    def __call__(self, images: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return the logits (N, K) of images (N, H, W, C)."""
        x = self.layout.to_input(images)
        if not len(x):  # one image, for the number of classes
            return self(np.zeros((1, *images.shape[1:]), np.float32))[:0]
        if not self._sizes:
            return np.asarray(self._network(x), np.float32)
        answers = []
        first = 0
        for size in _split(len(x), self._sizes):
            part = x[first : first + size]
            answers.append(np.asarray(self._network(pad(part, size)), np.float32)[: len(part)])
            first += size
        return np.concatenate(answers)


def _split(n: int, sizes: Sequence[int]) -> Iterator[int]:
    """Yield the sizes of the batches that n images are asked in, each one of `sizes`, ascending.

    A batch is the largest that the images left over fill; or a larger one, if at most a quarter of it is filling.

    Examples
    --------
    >>> list(_split(300, (16, 64, 256)))
    [256, 16, 16, 16]
    >>> list(_split(50, (16, 64, 256)))
    [64]
    """
    while n > 0:
        nearly = (size for size in sizes if n <= size <= n + size // 4)
        size = next(nearly, max((size for size in sizes if size <= n), default=sizes[0]))
        yield size
        n -= size


class Tensor(NamedTuple):
    """An input or output of a network; None stands for a size that is open."""

    name: str
    dtype: str
    shape: Sequence[int | None]


def choose_tensors(
    network: str, inputs: Sequence[Tensor], outputs: Sequence[Tensor]
) -> tuple[Tensor, Tensor, list[str]]:
    """Return a network's input of images, its output of scores, and a note where it has other outputs.

    Raises
    ------
    DeploymentError
        It has not one input of floats or bytes, or not one output of floats.
    """
    if len(inputs) != 1:
        names = ", ".join(tensor.name for tensor in inputs)
        raise DeploymentError(f"{network} should have one input, a batch of images; it has {len(inputs)}: {names}")
    if inputs[0].dtype not in (*FLOATS, "uint8"):
        raise DeploymentError(f"{network} takes {inputs[0].dtype}; expected images as floats or as bytes")
    scores = [tensor for tensor in outputs if tensor.dtype in FLOATS]
    if len(scores) != 1:
        listed = ", ".join(f"{tensor.name} {tensor.dtype}" for tensor in outputs)
        raise DeploymentError(
            f"{network} should have one output of floats, logits or probabilities (N, K); it has {listed}. Export "
            "classifiers of scikit-learn with options={'zipmap': False}."
        )
    notes = [f"of its outputs only {scores[0].name} is used"] if len(outputs) > 1 else []
    return inputs[0], scores[0], notes

"""What a deployed network takes, told from its input: another layout, a fixed batch, flat images, bytes."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .. import limits
from ..errors import DeploymentError
from ..frameworks.base import DataFormat, pad

CHANNELS = (1, 2, 3, 4)
BYTES = 255.0
FLOATS = ("float16", "float32", "float64")
OTHER_END = {"NHWC": "NCHW", "NCHW": "NHWC"}


def _find_channels(sizes: Sequence[int]) -> Literal["first", "last"] | None:
    """Return where the channels of an image are, from its three sizes; None where both ends may be, or none.

    The two sizes of a square image are its height and width.
    """
    first, last = sizes[1] == sizes[2], sizes[0] == sizes[1]
    if first == last:
        first, last = sizes[0] in CHANNELS, sizes[2] in CHANNELS
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
    def of(cls, shape: Sequence[int | None], dtype: str, name: str) -> Layout:
        """Return the layout of an input; None stands for a size that is open.

        Raises
        ------
        DeploymentError
            It is no batch of images.
        """
        sizes = tuple(max(size or 0, 0) for size in shape[1:])
        rounded = ", rounded to 255 times their values in [0, 1]" if dtype == "uint8" else ""
        notes = [f"images are given as {dtype}{rounded}"] if dtype != "float32" else []
        if len(shape) == 4 and _find_channels(sizes) == "first":
            order, sizes = "NCHW", (sizes[1], sizes[2], sizes[0])
        elif len(shape) == 4:
            order = "NHWC"
            if _find_channels(sizes) is None:
                notes.append(
                    "its file does not say where the channels are: they are taken to be last, (N, H, W, C), and first "
                    "only where images fit that alone"
                )
        elif len(shape) == 3 and not shape[0] and min(sizes) not in (0, *CHANNELS):  # else it may be one image alone
            order, sizes = "NHW", (*sizes, 1)
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
        if shape[0] is not None and shape[0] < 1:
            shape = [None, *shape[1:]]
        if shape[0] is not None:
            notes.append(
                f"its batch has always {shape[0]} image{'s' * (shape[0] > 1)}, so it is asked {shape[0]} at once"
            )
        return cls(sizes, order, shape[0], dtype, notes)

    @property
    def holds_bytes(self) -> bool:
        """Whether images in [0, 1] are given as bytes."""
        return self.dtype == "uint8"

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
        converted: NDArray[Any] = images
        if self.dtype == "uint8":
            converted = np.clip(np.rint(images * BYTES), 0, BYTES).astype(np.uint8)
        elif self.dtype != "float32":
            converted = images.astype(self.dtype)
        return converted

    def ask(self, network: Callable[[NDArray[Any]], Any], images: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return the rows (N, K) of what a network answers, asked as many at once as it takes."""
        x = self.to_input(images)
        some = x if len(x) else np.zeros((1, *x.shape[1:]), x.dtype)  # one image, for the number of classes
        if self.batch is None:
            answer = np.asarray(network(some), np.float32)
            return answer if len(x) else answer[:0]
        parts = (some[start : start + self.batch] for start in range(0, len(some), self.batch))
        answers = [np.asarray(network(pad(part, self.batch)), np.float32)[: len(part)] for part in parts]
        return np.concatenate(answers)[: len(x)]


def read_layout(
    network: str, dimensions: Sequence[int | None], layout: DataFormat | None = None
) -> tuple[tuple[int, int, int], DataFormat]:
    """Return (H, W, C) and the layout of a network's images, from its input's dimensions, the batch among them.

    Parameters
    ----------
    network : str
        What it is called in errors.
    dimensions : sequence of int or None
        None for one that is not fixed.
    layout : str, optional
        Where the file says it. If not, the channels are where 1 to 4 stands.

    Raises
    ------
    DeploymentError
        It takes no batch of images of one size, or nothing tells where the channels are.
    """
    sizes = [size for size in dimensions[1:] if size]
    if len(dimensions) != 4 or len(sizes) != 3 or math.prod(sizes) > limits.LAYER_VALUES:
        shown = ", ".join("?" if size is None else str(size) for size in dimensions)
        raise DeploymentError(
            f"{network} takes an array of the shape ({shown}); expected a batch of images of one size, (N, C, H, W) or "
            f"(N, H, W, C), with at most {limits.LAYER_VALUES:,} values each. Export it so; only the batch may vary"
        )
    axis = _find_channels(sizes)
    if layout is None and axis is None:
        raise DeploymentError(
            f"{network} takes images {tuple(sizes)}, and nothing says where the channels are. Export it with 1 to 4 "
            "channels, first or last"
        )
    if layout is None:
        layout = "channels_first" if axis == "first" else "channels_last"
    if layout == "channels_first":
        return (sizes[1], sizes[2], sizes[0]), layout
    return (sizes[0], sizes[1], sizes[2]), layout


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

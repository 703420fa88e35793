"""Network designs as data: what every framework builds, layer by layer.

An architecture says what a network *is* and nothing about how a framework makes it. Shapes are (H, W, C),
without the batch; canonical weights are named ``layer/kernel`` and ``layer/bias``, a convolution's kernel is
(height, width, in, out) and a dense one's (in, out), its inputs in (H, W, C) order.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import msgspec

from .errors import unknown

Shape = tuple[int, ...]


class Conv(msgspec.Struct, frozen=True, tag=True):
    """A convolution with bias, stride 1 and no padding: (H, W, C) to (H - k + 1, W - k + 1, channels)."""

    name: str
    channels: int
    kernel: int

    def output(self, shape: Shape) -> Shape:
        height, width, _ = shape
        return height - self.kernel + 1, width - self.kernel + 1, self.channels

    def weights(self, shape: Shape) -> dict[str, Shape]:
        return {"kernel": (self.kernel, self.kernel, shape[-1], self.channels), "bias": (self.channels,)}


class Dense(msgspec.Struct, frozen=True, tag=True):
    """A fully connected layer with bias: (F,) to (units,)."""

    name: str
    units: int

    def output(self, shape: Shape) -> Shape:
        return (self.units,)

    def weights(self, shape: Shape) -> dict[str, Shape]:
        return {"kernel": (shape[0], self.units), "bias": (self.units,)}


class Relu(msgspec.Struct, frozen=True, tag=True):
    """max(0, x), element by element."""

    name: str

    def output(self, shape: Shape) -> Shape:
        return shape

    def weights(self, shape: Shape) -> dict[str, Shape]:
        return {}


class MaxPool(msgspec.Struct, frozen=True, tag=True):
    """The maximum over windows of size × size that do not overlap; a rest at the border is dropped."""

    name: str
    size: int

    def output(self, shape: Shape) -> Shape:
        height, width, channels = shape
        return height // self.size, width // self.size, channels

    def weights(self, shape: Shape) -> dict[str, Shape]:
        return {}


class Flatten(msgspec.Struct, frozen=True, tag=True):
    """(H, W, C) to (H·W·C,)."""

    name: str

    def output(self, shape: Shape) -> Shape:
        return (math.prod(shape),)

    def weights(self, shape: Shape) -> dict[str, Shape]:
        return {}


Layer = Conv | Dense | Relu | MaxPool | Flatten


class Architecture(msgspec.Struct, frozen=True):
    """A network design.

    Attributes
    ----------
    name : str
        The name it is asked for by, such as ``"lenet5"``.
    input_shape : tuple of int
        (H, W, C) of one image.
    layers : tuple of Layer
        In the order in which they are applied; the last one gives the logits.

    Examples
    --------
    >>> get_architecture("lenet5").parameters
    44426
    """

    name: str
    input_shape: tuple[int, int, int]
    layers: tuple[Layer, ...]

    def walk(self) -> Iterator[tuple[Layer, Shape]]:
        """Yield every layer with the shape of its input."""
        shape: Shape = self.input_shape
        for layer in self.layers:
            yield layer, shape
            shape = layer.output(shape)

    @property
    def weight_shapes(self) -> dict[str, Shape]:
        """The canonical weights' names and shapes, in the order of the layers."""
        return {
            f"{layer.name}/{name}": weight
            for layer, shape in self.walk()
            for name, weight in layer.weights(shape).items()
        }

    @property
    def flattened(self) -> dict[str, tuple[int, int, int]]:
        """The dense layers right after a flatten, with the (H, W, C) that was flattened.

        A framework that keeps channels first flattens in another order than the canonical one; its adapter
        reorders the rows of these layers' kernels.
        """
        found: dict[str, tuple[int, int, int]] = {}
        last: Shape = ()
        for layer, shape in self.walk():
            if isinstance(layer, Dense) and len(last) == 3:
                found[layer.name] = (last[0], last[1], last[2])
            last = shape if isinstance(layer, Flatten) else ()
        return found

    @property
    def classes(self) -> int:
        """How many classes the last layer tells apart."""
        *_, (layer, shape) = self.walk()
        return layer.output(shape)[0]

    @property
    def parameters(self) -> int:
        """How many numbers a training fits."""
        return sum(math.prod(shape) for shape in self.weight_shapes.values())

    @property
    def neurons(self) -> int:
        """Neurons as Table 1 of Guo et al. counts them: channels of every convolution, pool and dense layer.

        The table counts the softmax as a layer of its own, so the classes are added once more.
        """
        counted = [layer.output(shape)[-1] for layer, shape in self.walk() if isinstance(layer, Conv | MaxPool | Dense)]
        return sum(counted) + self.classes


def _lenet(name: str, channels: tuple[int, int], dense: tuple[int, ...]) -> Architecture:
    layers: list[Layer] = []
    for i, width in enumerate(channels, 1):
        layers += [Conv(f"conv{i}", width, 5), Relu(f"relu{i}"), MaxPool(f"pool{i}", 2)]
    layers.append(Flatten("flatten"))
    for i, width in enumerate(dense, 1):
        layers += [Dense(f"dense{i}", width), Relu(f"dense_relu{i}")]
    return Architecture(name, (28, 28, 1), (*layers, Dense("logits", 10)))


# LeCun et al. 1998 as in Table 1 of Guo et al.: valid 5×5 convolutions, ReLU and 2×2 max pools.
ARCHITECTURES = {
    architecture.name: architecture
    for architecture in (_lenet("lenet1", (4, 12), ()), _lenet("lenet5", (6, 16), (120, 84)))
}


def get_architecture(name: str) -> Architecture:
    """Return the architecture of that name.

    Raises
    ------
    UsageError
        There is none of that name.
    """
    if name not in ARCHITECTURES:
        raise unknown("model", name, ARCHITECTURES)
    return ARCHITECTURES[name]

"""Network designs as data: what every framework builds, layer by layer.

An architecture says what a network *is* and nothing about how a framework makes it. Shapes are (H, W, C),
without the batch. Canonical weights are named by their layer: ``layer/kernel`` and ``layer/bias``, a convolution's
kernel (height, width, in, out) and a dense one's (in, out), its inputs in (H, W, C) order; ``layer/gamma`` and
``layer/beta`` of a batch norm, and its statistics ``layer/mean`` and ``layer/variance``.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path
from typing import Annotated, Any, ClassVar

import msgspec

from .. import limits
from ..errors import UsageError, unknown
from ..untrusted import read_toml

Shape = tuple[int, ...]
LAYER_NAME = "[A-Za-z][A-Za-z0-9_]*"
Positive = Annotated[int, msgspec.Meta(ge=1, le=limits.PARAMETERS)]


class _Layer(msgspec.Struct, frozen=True, tag=True, forbid_unknown_fields=True):
    """A layer that has no weights and keeps the shape of its input, unless it says otherwise."""

    name: str

    def output(self, shape: Shape) -> Shape:
        """Return the shape of what it makes of an input."""
        return shape

    def weights(self, shape: Shape) -> dict[str, Shape]:
        """Return the shapes of its weights for an input, by the second part of their names."""
        return {}


class Conv(_Layer, frozen=True):
    """A convolution with bias; (H, W, C) to (H', W', channels), H' = ⌊(H + 2·padding - kernel) / stride⌋ + 1.

    Every side is padded with as many zeros, also where the stride is 2; TensorFlow's ``same`` would not.
    """

    channels: Positive
    kernel: Positive
    stride: Positive = 1
    padding: Annotated[int, msgspec.Meta(ge=0, le=limits.PARAMETERS)] = 0

    def output(self, shape: Shape) -> Shape:
        height, width = ((size + 2 * self.padding - self.kernel) // self.stride + 1 for size in shape[:2])
        return height, width, self.channels

    def weights(self, shape: Shape) -> dict[str, Shape]:
        return {"kernel": (self.kernel, self.kernel, shape[-1], self.channels), "bias": (self.channels,)}


class Dense(_Layer, frozen=True):
    """A fully connected layer with bias: (F,) to (units,)."""

    units: Positive

    def output(self, shape: Shape) -> Shape:
        return (self.units,)

    def weights(self, shape: Shape) -> dict[str, Shape]:
        return {"kernel": (shape[0], self.units), "bias": (self.units,)}


class BatchNorm(_Layer, frozen=True):
    """gamma·(x − mean) / √(variance + ε) + beta, for each channel, ε = 1e-5.

    A training takes the mean and the variance of its batch, and moves the statistics a tenth of the way to them
    (momentum 0.9 in Keras's notation, 0.1 in PyTorch's); a trained network takes the statistics.
    """

    epsilon: ClassVar[float] = 1e-5
    momentum: ClassVar[float] = 0.9

    def weights(self, shape: Shape) -> dict[str, Shape]:
        return dict.fromkeys(("gamma", "beta", *STATISTICS), (shape[-1],))


class Relu(_Layer, frozen=True):
    """max(0, x), element by element."""


class MaxPool(_Layer, frozen=True):
    """The maximum over windows of size × size that do not overlap; a rest at the border is dropped."""

    size: Positive

    def output(self, shape: Shape) -> Shape:
        height, width, channels = shape
        return height // self.size, width // self.size, channels


class GlobalAveragePool(_Layer, frozen=True):
    """The mean of every channel: (H, W, C) to (C,)."""

    def output(self, shape: Shape) -> Shape:
        return (shape[-1],)


class Flatten(_Layer, frozen=True):
    """(H, W, C) to (H·W·C,)."""

    def output(self, shape: Shape) -> Shape:
        return (math.prod(shape),)


class Residual(_Layer, frozen=True):
    """The sum of what the layers and what the shortcut make of the input; an empty shortcut is the input itself."""

    layers: tuple[Layer, ...]
    shortcut: tuple[Layer, ...] = ()

    def output(self, shape: Shape) -> Shape:
        for layer in self.layers:
            shape = layer.output(shape)
        return shape


Layer = Conv | Dense | BatchNorm | Relu | MaxPool | GlobalAveragePool | Flatten | Residual
STATISTICS = ("mean", "variance")  # weights that a training measures and does not fit


def is_trainable(name: str) -> bool:
    """Say whether a training fits the canonical weight of that name, or only measures it."""
    return name.rpartition("/")[2] not in STATISTICS


class Architecture(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
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
    input_shape: tuple[Positive, Positive, Positive]
    layers: tuple[Layer, ...]

    def walk(self) -> Iterator[tuple[Layer, Shape]]:
        """Yield every layer with the shape of its input, a residual one before those inside it."""
        yield from _walk(self.layers, self.input_shape)

    @property
    def description(self) -> dict[str, Any]:
        """The whole design in JSON's types, as it is stored beside weights."""
        return dict(msgspec.json.decode(msgspec.json.encode(self)))

    @property
    def weight_shapes(self) -> dict[str, Shape]:
        """The canonical weights' names and shapes, in the order of the layers."""
        return {
            f"{layer.name}/{name}": weight
            for layer, shape in self.walk()
            for name, weight in layer.weights(shape).items()
        }

    @property
    def flat_shapes(self) -> dict[str, tuple[int, int, int]]:
        """The dense layers right after a flatten, with the (H, W, C) that was flattened.

        A framework that keeps channels first flattens in another order than the canonical one; its adapter
        reorders the rows of these layers' kernels.
        """
        shapes: dict[str, tuple[int, int, int]] = {}
        last: Shape = ()
        for layer, shape in self.walk():
            if isinstance(layer, Dense) and len(last) == 3:
                shapes[layer.name] = (last[0], last[1], last[2])
            last = shape if isinstance(layer, Flatten) else ()
        return shapes

    @property
    def classes(self) -> int:
        """How many classes the last layer tells apart."""
        *_, (layer, shape) = self.walk()
        return layer.output(shape)[0]

    @property
    def parameters(self) -> int:
        """How many numbers a training fits."""
        return sum(math.prod(shape) for name, shape in self.weight_shapes.items() if is_trainable(name))


def _walk(layers: tuple[Layer, ...], shape: Shape) -> Iterator[tuple[Layer, Shape]]:
    for layer in layers:
        yield layer, shape
        if isinstance(layer, Residual):
            yield from _walk(layer.layers, shape)
            yield from _walk(layer.shortcut, shape)
        shape = layer.output(shape)


def _lenet(name: str, channels: tuple[int, int], dense: tuple[int, ...]) -> Architecture:
    layers: list[Layer] = []
    for i, width in enumerate(channels, 1):
        layers += [Conv(f"conv{i}", width, 5), Relu(f"relu{i}"), MaxPool(f"pool{i}", 2)]
    layers.append(Flatten("flatten"))
    for i, width in enumerate(dense, 1):
        layers += [Dense(f"dense{i}", width), Relu(f"dense_relu{i}")]
    return Architecture(name, (28, 28, 1), (*layers, Dense("logits", 10)))


def _resnet20() -> Architecture:
    layers: list[Layer] = [Conv("conv", 16, 3, padding=1), BatchNorm("norm"), Relu("relu")]
    width = 16
    for stage, channels in enumerate((16, 32, 64), 1):
        for block in "abc":
            name = f"block{stage}{block}"
            stride = channels // width
            inner = (
                Conv(f"{name}_conv1", channels, 3, stride, padding=1),
                BatchNorm(f"{name}_norm1"),
                Relu(f"{name}_relu1"),
                Conv(f"{name}_conv2", channels, 3, padding=1),
                BatchNorm(f"{name}_norm2"),
            )
            shortcut = (Conv(f"{name}_shortcut", channels, 1, stride),) if stride > 1 else ()
            layers += [Residual(name, inner, shortcut), Relu(f"{name}_relu2")]
            width = channels
    return Architecture("resnet20", (32, 32, 3), (*layers, GlobalAveragePool("pool"), Dense("logits", 10)))


def _vgg(
    name: str, input_shape: tuple[int, int, int], blocks: tuple[tuple[int, ...], ...], dense: tuple[int, ...]
) -> Architecture:
    layers: list[Layer] = []
    for i, widths in enumerate(blocks, 1):
        for j, channels in enumerate(widths, 1):
            at = f"{i}_{j}"
            layers += [Conv(f"conv{at}", channels, 3, padding=1), BatchNorm(f"norm{at}"), Relu(f"relu{at}")]
        layers.append(MaxPool(f"pool{i}", 2))
    layers.append(Flatten("flatten"))
    for i, units in enumerate(dense, 1):
        layers += [Dense(f"dense{i}", units), BatchNorm(f"dense_norm{i}"), Relu(f"dense_relu{i}")]
    return Architecture(name, input_shape, (*layers, Dense("logits", 10), BatchNorm("logits_norm")))


def _dlbench(
    name: str, input_shape: tuple[int, int, int], blocks: tuple[tuple[tuple[int, int], ...], ...], units: int
) -> Architecture:
    layers: list[Layer] = []
    for i, convolutions in enumerate(blocks, 1):
        for j, (channels, padding) in enumerate(convolutions, 1):
            layers += [Conv(f"conv{i}_{j}", channels, 3, padding=padding), Relu(f"relu{i}_{j}")]
        layers.append(MaxPool(f"pool{i}", 2))
    layers += [Flatten("flatten"), Dense("dense", units), Relu("dense_relu"), Dense("logits", 10)]
    return Architecture(name, input_shape, tuple(layers))


VGG16 = ((64, 64), (128, 128), (256, 256, 256), (512, 512, 512), (512, 512, 512))
# As in Table 1 of Guo et al. LeCun et al. 1998: valid 5×5 convolutions, ReLU and 2×2 max pools. He et al. 2016, for
# CIFAR, n = 3. Simonyan and Zisserman 2015, with a batch norm after every convolution and every dense layer. Mahmoud et
# al. 2019 (DLBench), as their source for Keras has them, without the dropouts.
ARCHITECTURES = {
    architecture.name: architecture
    for architecture in (
        _lenet("lenet1", (4, 12), ()),
        _lenet("lenet5", (6, 16), (120, 84)),
        _resnet20(),
        _vgg("vgg16", (32, 32, 3), VGG16, (4096, 4096)),
        _dlbench("dlbench_mnist", (28, 28, 1), (((32, 0), (64, 0)),), 128),
        _dlbench("dlbench_cifar10", (32, 32, 3), (((32, 1), (32, 0)), ((64, 1), (64, 0))), 512),
    )
}


def get_architecture(name: str) -> Architecture:
    """Return the architecture of that name, or of a file with a table ``[architecture]``.

    Raises
    ------
    UsageError
        There is none of that name, or the file has a mistake.
    """
    if name.endswith(".toml"):
        return _read(Path(name))
    if name not in ARCHITECTURES:
        raise unknown("model", name, [*ARCHITECTURES, "FILE.toml"])
    return ARCHITECTURES[name]


def _read(path: Path) -> Architecture:
    """Read a network of a user's own; it is called as its file is."""
    table = read_toml(path, "the model").get("architecture")
    try:
        if not isinstance(table, dict):
            raise UsageError("expected a table [architecture] with input_shape and layers")
        if path.stem in ARCHITECTURES:
            raise UsageError(f"a network {path.stem} already exists. Rename the file")
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]*", path.stem):
            raise UsageError("the file's name should consist of letters, digits, - and _")
        architecture = msgspec.convert({**table, "name": path.stem}, Architecture)
        _check(architecture)
    except (msgspec.ValidationError, UsageError) as error:
        raise UsageError(f"the model {path}: {str(error).rstrip('.')}. Layers are {', '.join(KINDS)}.") from None
    return architecture


KINDS = {kind.__name__: kind for kind in Layer.__args__}
# How many dimensions a layer's input must have; the others take images as well as features.
DIMENSIONS: dict[Any, int] = {Conv: 3, MaxPool: 3, GlobalAveragePool: 3, Flatten: 3, Dense: 1}


def _check(architecture: Architecture) -> None:
    """Raise `UsageError` for layers that do not fit together, or that no machine has the memory for."""
    _check_values("an image", architecture.input_shape)
    if len(_check_layers(architecture.layers, architecture.input_shape, set())) != 1:
        raise UsageError("the last layer should give logits (K,)")
    if architecture.parameters > limits.PARAMETERS:
        raise UsageError(
            f"expected at most {limits.PARAMETERS:,} weights, received {architecture.parameters:,}: make layers smaller"
        )


def _check_layers(layers: tuple[Layer, ...], shape: Shape, seen: set[str]) -> Shape:
    """Check some layers on an input of a shape, their names against those seen, and return the output's shape."""
    for layer, following in zip_longest(layers, layers[1:]):
        label = f"the layer {layer.name!r} ({type(layer).__name__})"
        if not re.fullmatch(LAYER_NAME, layer.name) or layer.name in seen:
            raise UsageError(f"{label} should have a unique name of letters, digits and _")
        seen.add(layer.name)
        if len(shape) != DIMENSIONS.get(type(layer), len(shape)):
            raise UsageError(f"{label} should get {'images' if len(shape) == 1 else 'features'}, received {shape}")
        if isinstance(layer, Flatten) and not isinstance(following, Dense):
            # Frameworks flatten in orders of their own, and only a dense layer's kernel is reordered.
            raise UsageError(f"{label} should be followed by a Dense layer")
        if isinstance(layer, Residual):
            both = [_check_layers(branch, shape, seen) for branch in (layer.layers, layer.shortcut)]
            if both[0] != both[1]:
                raise UsageError(f"{label} should add equal shapes, received {both[0]} and {both[1]}")
        output = layer.output(shape)
        if min(output) < 1:
            raise UsageError(
                f"{label} is too large for its input: expected an output that is not empty, received an input {shape}"
            )
        _check_values(label, output)
        shape = output
    return shape


def _check_values(what: str, shape: Shape) -> None:
    if math.prod(shape) > limits.LAYER_VALUES:
        raise UsageError(f"{what} should have at most {limits.LAYER_VALUES:,} values an image, received {shape}")

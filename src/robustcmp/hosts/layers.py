"""What the hosts share that build networks of a framework's own layers: the way through the layers, and layouts.

It runs on CPython 3.6 and later, as the protocol does.
"""

from abc import ABC, abstractmethod
from typing import Any, Dict, List, Sequence, Tuple

import numpy as np
from protocol import Array, Arrays, Network

# The canonical weights of each kind of layer, by the second part of their names; statistics are measured.
WEIGHTS = {
    "Conv": ("kernel", "bias"),
    "Dense": ("kernel", "bias"),
    "BatchNorm": ("gamma", "beta", "mean", "variance"),
}
STATISTICS = ("mean", "variance")
WITHOUT_WEIGHTS = {"Relu": "relu", "GlobalAveragePool": "global_average_pool", "Flatten": "make_flat"}

# What PyTorch's layers call theirs, and those of frameworks that follow it.
TORCH_NAMES = {
    "kernel": "weight",
    "gamma": "weight",
    "beta": "bias",
    "mean": "running_mean",
    "variance": "running_var",
}

Layer = Dict[str, Any]
Flattened = Dict[str, Sequence[int]]  # the (H, W, C) before the flatten that a dense layer follows


class LayersNetwork(Network, ABC):  # type: ignore[misc]
    """A network of a framework's own layers; a subclass says what each kind of them is, and how it is asked.

    A subclass has ``framework``, `version`, the abstract methods below, and ``logits``, ``vjp`` and ``step`` of
    `protocol.Network`. A training finds the velocity of each weight in `velocities`, by name.

    Attributes
    ----------
    attributes : dict of str to str
        What the framework's layers call their kernel, bias, gamma, beta, mean and variance, where not so.
    parts : dict of str to object
        The layers that have weights, by name.
    flattened : dict of str to tuple of int
        The (H, W, C) that was flattened before a dense layer, by its name.
    """

    attributes: Dict[str, str] = {}

    def __init__(self, architecture: Dict[str, Any], seed: int) -> None:
        self.flattened: Flattened = architecture["flattened"]
        self.parts: Dict[str, Any] = {}
        self.velocities: Dict[str, Any] = {}
        self._layers: List[Layer] = architecture["layers"]
        self._kinds: Dict[str, str] = {}
        self._make(self._layers, architecture["inputs"])

    @abstractmethod
    def conv(self, inputs: int, layer: Layer) -> Any:
        """Return a convolution with bias of so many input channels; `layer` has channels, kernel, stride, padding."""

    @abstractmethod
    def dense(self, inputs: int, layer: Layer) -> Any:
        """Return a fully connected layer with bias; `layer` has units."""

    @abstractmethod
    def batch_norm(self, inputs: int, images: bool) -> Any:
        """Return a batch norm of so many channels of images, or of so many features."""

    @abstractmethod
    def relu(self, x: Any) -> Any:
        """Return max(0, x)."""

    @abstractmethod
    def max_pool(self, x: Any, size: int) -> Any:
        """Return the maxima over windows of size × size; a rest at the border is dropped."""

    @abstractmethod
    def global_average_pool(self, x: Any) -> Any:
        """Return the mean of every channel."""

    @abstractmethod
    def make_flat(self, x: Any) -> Any:
        """Return images as features."""

    @abstractmethod
    def read(self, holder: Any) -> Array:
        """Return what a weight or a velocity holds."""

    @abstractmethod
    def write(self, holder: Any, array: Array) -> None:
        """Put an array into a weight or a velocity."""

    @abstractmethod
    def zeros(self, holder: Any) -> Any:
        """Return the velocity of a weight, which holds zeros."""

    def weight(self, part: Any, kind: str) -> Any:
        """Return what holds a part's kernel, bias, gamma, beta, mean or variance."""
        return getattr(part, self.attributes.get(kind, kind))

    def pad(self, x: Any, padding: int) -> Any:
        """Return images with a border of zeros, for frameworks whose convolutions add none."""
        return x

    def add(self, x: Any, y: Any) -> Any:
        """Return the sum."""
        return x + y

    def to_canonical(self, arrays: Arrays) -> Arrays:
        """Return arrays of the framework's layout in the canonical one."""
        return arrays

    def to_native(self, arrays: Arrays) -> Arrays:
        """The inverse of `to_canonical`."""
        return arrays

    def apply(self, x: Any) -> Any:
        """Return the logits of images in the framework's tensors."""
        return self._apply(self._layers, x)

    def weights(self) -> Dict[str, Any]:
        """Return what holds each weight, by its canonical name."""
        return {
            f"{name}/{weight}": self.weight(self.parts[name], weight)
            for name, kind in self._kinds.items()
            for weight in WEIGHTS[kind]
        }

    def trainable(self) -> Dict[str, Any]:
        """Return those of the weights that a training fits."""
        return {name: weight for name, weight in self.weights().items() if name.rpartition("/")[2] not in STATISTICS}

    def get_weights(self) -> Arrays:
        return self._read_all(self.weights())

    def set_weights(self, weights: Arrays) -> None:
        self._write_all(self.weights(), weights)

    def trainer(self, momentum: float, weight_decay: float) -> "LayersNetwork":
        self.momentum = momentum
        self.weight_decay = weight_decay
        self.velocities = {name: self.zeros(weight) for name, weight in self.trainable().items()}
        return self

    def velocity(self) -> Arrays:
        return self._read_all(self.velocities)

    def set_velocity(self, velocity: Arrays) -> None:
        self._write_all(self.velocities, velocity)

    def _read_all(self, holders: Dict[str, Any]) -> Arrays:
        return self.to_canonical({name: self.read(holder) for name, holder in holders.items()})

    def _write_all(self, holders: Dict[str, Any], arrays: Arrays) -> None:
        for name, array in self.to_native(arrays).items():
            self.write(holders[name], array)

    def _make(self, layers: List[Layer], inputs: Dict[str, List[int]]) -> None:
        for layer in layers:
            kind = layer["type"]
            name = layer["name"]
            if kind == "Residual":
                self._make(layer["layers"], inputs)
                self._make(layer.get("shortcut", []), inputs)
                continue
            shape = inputs[name]
            if kind == "Conv":
                self.parts[name] = self.conv(shape[-1], {"stride": 1, "padding": 0, **layer})
            elif kind == "Dense":
                self.parts[name] = self.dense(shape[-1], layer)
            elif kind == "BatchNorm":
                self.parts[name] = self.batch_norm(shape[-1], len(shape) == 3)
            if name in self.parts:
                self._kinds[name] = kind

    def _apply(self, layers: List[Layer], x: Any) -> Any:
        for layer in layers:
            kind = layer["type"]
            if kind in WEIGHTS:
                x = self.parts[layer["name"]](self.pad(x, layer.get("padding", 0)))
            elif kind == "MaxPool":
                x = self.max_pool(x, layer["size"])
            elif kind == "Residual":
                x = self.add(self._apply(layer["layers"], x), self._apply(layer.get("shortcut", []), x))
            else:
                x = getattr(self, WITHOUT_WEIGHTS[kind])(x)
        return x


class ChannelsFirst(LayersNetwork, ABC):
    """One whose images are (N, C, H, W), convolutions (out, in, height, width) and dense kernels (out, in)."""

    def to_canonical(self, arrays: Arrays) -> Arrays:
        canonical = dict(arrays)
        for layer, array in _kernels(arrays):
            array = array.transpose(2, 3, 1, 0) if array.ndim == 4 else array.T
            if layer in self.flattened:
                height, width, channels = self.flattened[layer]
                image = array.reshape(channels, height, width, -1)
                array = image.transpose(1, 2, 0, 3).reshape(array.shape)
            canonical[layer + "/kernel"] = array
        return canonical

    def to_native(self, arrays: Arrays) -> Arrays:
        native = dict(arrays)
        for layer, array in _kernels(arrays):
            if layer in self.flattened:
                height, width, channels = self.flattened[layer]
                image = array.reshape(height, width, channels, -1)
                array = image.transpose(2, 0, 1, 3).reshape(array.shape)
            array = array.transpose(3, 2, 0, 1) if array.ndim == 4 else array.T
            native[layer + "/kernel"] = np.ascontiguousarray(array)
        return native


def _kernels(arrays: Arrays) -> List[Tuple[str, Array]]:
    """Return kernels with the names of their layers."""
    return [(name[: -len("/kernel")], array) for name, array in arrays.items() if name.endswith("/kernel")]


def channels_first(images: Array) -> Array:
    """Return images (N, H, W, C) as (N, C, H, W)."""
    return np.ascontiguousarray(images.transpose(0, 3, 1, 2))


def channels_last(images: Array) -> Array:
    """The inverse of `channels_first`."""
    return np.ascontiguousarray(images.transpose(0, 2, 3, 1))

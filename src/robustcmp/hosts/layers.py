"""What the hosts share that build networks of a framework's own layers: the way through the layers, and layouts.

It runs on CPython 3.6 and later, as the protocol does.
"""

from typing import Any, Dict, List, Sequence

import numpy as np
from protocol import Array, Arrays

# The canonical weights of each kind of layer, by the second part of their names; statistics are measured, not fitted.
WEIGHTS = {
    "Conv": ("kernel", "bias"),
    "Dense": ("kernel", "bias"),
    "BatchNorm": ("gamma", "beta", "mean", "variance"),
}
STATISTICS = ("mean", "variance")

Layer = Dict[str, Any]
Flattened = Dict[str, Sequence[int]]  # the (H, W, C) before the flatten that a dense layer follows


class Layers:
    """A network of a framework's own layers; a subclass says what each kind of them is.

    Attributes
    ----------
    parts : dict of str to object
        The layers that have weights, by name.
    """

    def __init__(self, architecture: Dict[str, Any]) -> None:
        self.flattened: Flattened = architecture["flattened"]
        self.parts: Dict[str, Any] = {}
        self._layers: List[Layer] = architecture["layers"]
        self._kinds: Dict[str, str] = {}
        self._make(self._layers, architecture["inputs"])

    def conv(self, inputs: int, layer: Layer) -> Any:
        """Return a convolution with bias of so many input channels; `layer` has channels, kernel, stride, padding."""
        raise NotImplementedError

    def dense(self, inputs: int, layer: Layer) -> Any:
        """Return a fully connected layer with bias; `layer` has units."""
        raise NotImplementedError

    def batch_norm(self, inputs: int, images: bool) -> Any:
        """Return a batch norm of so many channels of images, or of so many features."""
        raise NotImplementedError

    def relu(self, x: Any) -> Any:
        """Return max(0, x)."""
        raise NotImplementedError

    def max_pool(self, x: Any, size: int) -> Any:
        """Return the maxima over windows of size × size; a rest at the border is dropped."""
        raise NotImplementedError

    def global_average_pool(self, x: Any) -> Any:
        """Return the mean of every channel."""
        raise NotImplementedError

    def flatten(self, x: Any) -> Any:
        """Return images as features."""
        raise NotImplementedError

    def add(self, x: Any, y: Any) -> Any:
        """Return the sum."""
        return x + y

    def weight(self, part: Any, kind: str) -> Any:
        """Return what holds a part's kernel, bias, gamma, beta, mean or variance."""
        raise NotImplementedError

    def applied(self, x: Any) -> Any:
        """Return the logits of images in the framework's tensors."""
        return self._applied(self._layers, x)

    def weights(self) -> Dict[str, Any]:
        """Return what holds each weight, by its canonical name."""
        return {
            f"{name}/{weight}": self.weight(self.parts[name], weight)
            for name, kind in self._kinds.items()
            for weight in WEIGHTS[kind]
        }

    def fitted(self) -> Dict[str, Any]:
        """Return those of the weights that a training fits."""
        return {name: weight for name, weight in self.weights().items() if name.rpartition("/")[2] not in STATISTICS}

    def _make(self, layers: List[Layer], inputs: Dict[str, List[int]]) -> None:
        for layer in layers:
            kind, name = layer["type"], layer["name"]
            if kind == "Residual":
                self._make(layer["layers"], inputs)
                self._make(layer.get("shortcut", []), inputs)
            if kind not in WEIGHTS:
                continue
            shape = inputs[name]
            self._kinds[name] = kind
            if kind == "Conv":
                self.parts[name] = self.conv(shape[-1], {"stride": 1, "padding": 0, **layer})
            elif kind == "Dense":
                self.parts[name] = self.dense(shape[-1], layer)
            else:
                self.parts[name] = self.batch_norm(shape[-1], len(shape) == 3)

    def _applied(self, layers: List[Layer], x: Any) -> Any:
        for layer in layers:
            kind = layer["type"]
            if kind in WEIGHTS:
                x = self.parts[layer["name"]](x)
            elif kind == "Relu":
                x = self.relu(x)
            elif kind == "MaxPool":
                x = self.max_pool(x, layer["size"])
            elif kind == "GlobalAveragePool":
                x = self.global_average_pool(x)
            elif kind == "Flatten":
                x = self.flatten(x)
            elif kind == "Residual":
                x = self.add(self._applied(layer["layers"], x), self._applied(layer.get("shortcut", []), x))
            else:
                raise ValueError(f"unknown layer {kind!r}")
        return x


# Frameworks whose images are (N, C, H, W), convolutions (out, in, height, width) and dense kernels (out, in)


def channels_first(images: Array) -> Array:
    """Return images (N, H, W, C) as (N, C, H, W)."""
    return np.ascontiguousarray(images.transpose(0, 3, 1, 2))


def channels_last(images: Array) -> Array:
    """The inverse of `channels_first`."""
    return np.ascontiguousarray(images.transpose(0, 2, 3, 1))


def native(weights: Arrays, flattened: Flattened) -> Arrays:
    """Return canonical weights in the framework's layout."""
    return {name: np.ascontiguousarray(_native(name, array, flattened)) for name, array in weights.items()}


def canonical(weights: Arrays, flattened: Flattened) -> Arrays:
    """The inverse of `native`."""
    return {name: np.array(_canonical(name, array, flattened), order="C") for name, array in weights.items()}


def _native(name: str, array: Array, flattened: Flattened) -> Any:
    layer, _, kind = name.rpartition("/")
    if kind != "kernel":
        return array
    if array.ndim == 4:
        return array.transpose(3, 2, 0, 1)
    if layer in flattened:
        height, width, channels = flattened[layer]
        array = array.reshape(height, width, channels, -1).transpose(2, 0, 1, 3).reshape(array.shape)
    return array.T


def _canonical(name: str, array: Array, flattened: Flattened) -> Any:
    layer, _, kind = name.rpartition("/")
    if kind != "kernel":
        return array
    if array.ndim == 4:
        return array.transpose(2, 3, 1, 0)
    array = array.T
    if layer in flattened:
        height, width, channels = flattened[layer]
        array = array.reshape(channels, height, width, -1).transpose(1, 2, 0, 3).reshape(array.shape)
    return array

"""The host of tinygrad, on its CPU."""

import importlib.metadata
from typing import Any, Dict

import numpy as np
from layers import TORCH_NAMES, ChannelsFirst, channels_first, channels_last
from protocol import Array, serve
from tinygrad import Context, Tensor, TinyJit, nn
from tinygrad.helpers import DEV

DEV.value = "CPU"


class _TinygradNetwork(ChannelsFirst):  # type: ignore[misc]
    """A network of `tinygrad.nn`'s layers."""

    framework = "tinygrad"
    version = importlib.metadata.version("tinygrad")
    attributes = TORCH_NAMES
    differences = {
        "initialisation": "kernels and biases uniform in ±1/√fan_in (tinygrad.nn)",
        "batch norm": "the variance moves towards that of n - 1 values",
        "max pool": "tied maxima share the gradient",
    }

    relu = staticmethod(Tensor.relu)

    def __init__(self, architecture: Dict[str, Any], seed: int) -> None:
        Tensor.manual_seed(seed)
        self._compiled: Dict[Any, Any] = {}
        super().__init__(architecture, seed)
        Tensor.realize(*self.weights().values())

    def conv(self, inputs: int, layer: Dict[str, Any]) -> Any:
        return nn.Conv2d(inputs, layer["channels"], layer["kernel"], layer["stride"], layer["padding"])

    def dense(self, inputs: int, layer: Dict[str, Any]) -> Any:
        return nn.Linear(inputs, layer["units"])

    def batch_norm(self, inputs: int, images: bool) -> Any:
        return nn.BatchNorm(inputs, eps=1e-5, momentum=0.1)

    def max_pool(self, x: Any, size: int) -> Any:
        return x.max_pool2d((size, size))

    def global_average_pool(self, x: Any) -> Any:
        return x.mean((2, 3))

    def make_flat(self, x: Any) -> Any:
        return x.flatten(1)

    def read(self, holder: Any) -> Array:
        return holder.numpy()

    def write(self, holder: Any, array: Array) -> None:
        holder.assign(Tensor(array)).realize()

    def zeros(self, holder: Any) -> Any:
        return holder.zeros_like().contiguous().realize()

    def logits(self, images: Array) -> Array:
        forward = self._compile("logits", images, lambda x: self.apply(x).realize())
        return forward(_realize(channels_first(images))).numpy()

    def vjp(self, images: Array, v: Array) -> Array:
        pull_back = self._compile("vjp", images, lambda x, v: self.apply(x).gradient(x, gradient=v)[0].realize())
        return channels_last(pull_back(_realize(channels_first(images)), _realize(v)).numpy())

    def trainer(self, momentum: float, weight_decay: float) -> Any:
        # A compiled step keeps the velocities and the settings of the training before.
        self._compiled = {key: function for key, function in self._compiled.items() if key[0] != "step"}
        return super().trainer(momentum, weight_decay)

    def step(self, images: Array, labels: Array, learning_rate: float) -> float:
        with Context(TRAINING=1):
            step = self._compile("step", images, self._step)
            rate = _realize(np.array([learning_rate], np.float32))
            return float(step(_realize(channels_first(images)), _realize(labels.astype(np.int32)), rate).item())

    def _step(self, x: Any, labels: Any, learning_rate: Any) -> Any:
        loss = self.apply(x).sparse_categorical_crossentropy(labels)
        weights = self.trainable()
        gradients = loss.gradient(*weights.values())
        moved = []
        for (name, weight), gradient in zip(weights.items(), gradients):
            velocity = self.velocities[name]
            velocity.assign(self.momentum * velocity + gradient + self.weight_decay * weight)
            moved += [velocity, weight.assign(weight - learning_rate * velocity)]
        Tensor.realize(loss, *moved, *self.weights().values())
        return loss

    def _compile(self, what: str, images: Array, function: Any) -> Any:
        """Return a function compiled for such a number of images."""
        return self._compiled.setdefault((what, len(images)), TinyJit(function))


def _realize(array: Array) -> Any:
    return Tensor(np.ascontiguousarray(array)).realize()


serve(_TinygradNetwork)

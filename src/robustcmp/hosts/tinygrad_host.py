"""The host of tinygrad, on its CPU."""

from typing import Any, Dict

import numpy as np
from layers import ChannelsFirst, channels_first, channels_last
from protocol import Array, serve
from tinygrad import Context, Tensor, nn
from tinygrad.helpers import DEV

NAMES = {"kernel": "weight", "gamma": "weight", "beta": "bias", "mean": "running_mean", "variance": "running_var"}
DEV.value = "CPU"


class TinygradNetwork(ChannelsFirst):  # type: ignore[misc]
    """A network of `tinygrad.nn`'s layers."""

    framework = "tinygrad"
    differences = {
        "initialisation": "kernels and biases uniform in ±1/√fan_in (tinygrad.nn)",
        "batch norm": "the variance moves towards that of n - 1 values",
        "max pool": "tied maxima share the gradient",
    }

    @staticmethod
    def version() -> str:
        import importlib.metadata

        return importlib.metadata.version("tinygrad")

    def __init__(self, architecture: Dict[str, Any], seed: int) -> None:
        Tensor.manual_seed(seed)
        super().__init__(architecture, seed)
        Tensor.realize(*self.weights().values())

    def conv(self, inputs: int, layer: Dict[str, Any]) -> Any:
        return nn.Conv2d(inputs, layer["channels"], layer["kernel"], layer["stride"], layer["padding"])

    def dense(self, inputs: int, layer: Dict[str, Any]) -> Any:
        return nn.Linear(inputs, layer["units"])

    def batch_norm(self, inputs: int, images: bool) -> Any:
        return nn.BatchNorm(inputs, eps=1e-5, momentum=0.1)

    def relu(self, x: Any) -> Any:
        return x.relu()

    def max_pool(self, x: Any, size: int) -> Any:
        return x.max_pool2d((size, size))

    def global_average_pool(self, x: Any) -> Any:
        return x.mean((2, 3))

    def flatten(self, x: Any) -> Any:
        return x.flatten(1)

    def weight(self, part: Any, kind: str) -> Any:
        return getattr(part, NAMES.get(kind, kind))

    def read(self, holder: Any) -> Array:
        return holder.numpy()

    def write(self, holder: Any, array: Array) -> None:
        holder.assign(Tensor(array)).realize()

    def zeros(self, holder: Any) -> Any:
        return holder.zeros_like().contiguous().realize()

    def logits(self, images: Array) -> Array:
        return self.apply(Tensor(channels_first(images))).numpy()

    def vjp(self, images: Array, v: Array) -> Array:
        x = Tensor(channels_first(images))
        [gradient] = self.apply(x).gradient(x, gradient=Tensor(v))
        return channels_last(gradient.numpy())

    def step(self, images: Array, labels: Array, learning_rate: float) -> float:
        weights = self.trainable()
        with Context(TRAINING=1):
            logits = self.apply(Tensor(channels_first(images)))
            loss = logits.sparse_categorical_crossentropy(Tensor(labels.astype(np.int32)))
            gradients = loss.gradient(*weights.values())
        velocities = [self.velocities[name] for name in weights]
        moved = []
        for weight, velocity, gradient in zip(weights.values(), velocities, gradients):
            velocity.assign(self.momentum * velocity + gradient + self.weight_decay * weight)
            moved.append(weight.assign(weight - learning_rate * velocity))
        Tensor.realize(loss, *velocities, *moved, *self.weights().values())
        return float(loss.item())


serve(TinygradNetwork)

"""The host of MLX, on its CPU."""

from typing import Any, Dict

import mlx.core as mx
import mlx.nn as nn
import numpy as np
from layers import TORCH_NAMES, LayersNetwork
from protocol import Array, Arrays, serve

mx.set_default_device(mx.cpu)


class _MlxNetwork(LayersNetwork):  # type: ignore[misc]
    """A network of `mlx.nn`'s layers, whose images are (N, H, W, C); a weight is held as its layer and its name."""

    framework = "mlx"
    version = mx.__version__
    attributes = TORCH_NAMES
    differences = {
        "initialisation": "kernels and dense biases uniform in ±1/√fan_in, others zero (mlx.nn)",
        "max pool": "tied maxima share the gradient",
    }

    relu = staticmethod(nn.relu)

    def __init__(self, architecture: Dict[str, Any], seed: int) -> None:
        mx.random.seed(seed)
        super().__init__(architecture, seed)
        self.train(False)

    def conv(self, inputs: int, layer: Dict[str, Any]) -> Any:
        return nn.Conv2d(inputs, layer["channels"], layer["kernel"], layer["stride"], layer["padding"])

    def dense(self, inputs: int, layer: Dict[str, Any]) -> Any:
        return nn.Linear(inputs, layer["units"])

    def batch_norm(self, inputs: int, images: bool) -> Any:
        return nn.BatchNorm(inputs, eps=1e-5, momentum=0.1)

    def max_pool(self, x: Any, size: int) -> Any:
        return nn.MaxPool2d(size)(x)

    def global_average_pool(self, x: Any) -> Any:
        return x.mean(axis=(1, 2))

    def make_flat(self, x: Any) -> Any:
        return x.reshape(x.shape[0], -1)

    def weight(self, part: Any, kind: str) -> Any:
        return part, self.attributes.get(kind, kind)

    def read(self, holder: Any) -> Array:
        part, name = holder
        array = np.array(part[name])
        return np.moveaxis(array, 0, -1) if array.ndim > 1 else array  # kernels are (out, …, in)

    def write(self, holder: Any, array: Array) -> None:
        part, name = holder
        part[name] = mx.array(np.ascontiguousarray(np.moveaxis(array, -1, 0) if array.ndim > 1 else array))

    def zeros(self, holder: Any) -> Any:
        part, name = holder
        return {"velocity": mx.zeros_like(part[name])}, "velocity"

    def train(self, training: bool) -> None:
        for part in self.parts.values():
            part.train(training)

    def logits(self, images: Array) -> Array:
        return np.array(self.apply(mx.array(images)))

    def vjp(self, images: Array, v: Array) -> Array:
        _, [gradient] = mx.vjp(self.apply, [mx.array(images)], [mx.array(v)])
        return np.array(gradient)

    def step(self, images: Array, labels: Array, learning_rate: float) -> float:
        holders = self.trainable()

        def loss_of(weights: Arrays) -> Any:
            for name, (part, kind) in holders.items():
                part[kind] = weights[name]
            return nn.losses.cross_entropy(self.apply(mx.array(images)), mx.array(labels), reduction="mean")

        before = {name: part[kind] for name, (part, kind) in holders.items()}
        self.train(True)
        loss, gradients = mx.value_and_grad(loss_of)(before)
        self.train(False)
        for name, (part, kind) in holders.items():
            velocity, key = self.velocities[name]
            velocity[key] = self.momentum * velocity[key] + gradients[name] + self.weight_decay * before[name]
            part[kind] = before[name] - learning_rate * velocity[key]
        mx.eval([part.state for part in self.parts.values()], [holder for holder, _ in self.velocities.values()], loss)
        return float(loss)


serve(_MlxNetwork)

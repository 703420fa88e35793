"""The host of PaddlePaddle."""

from typing import Any, Dict

import numpy as np
import paddle
import paddle.nn.functional as F
from layers import ChannelsFirst, channels_first, channels_last
from paddle import nn
from protocol import Array, serve


class _PaddleNetwork(ChannelsFirst):  # type: ignore[misc]
    """A network of `paddle.nn`'s layers."""

    framework = "paddle"
    version = paddle.__version__
    attributes = {"kernel": "weight", "gamma": "weight", "beta": "bias", "mean": "_mean", "variance": "_variance"}
    differences = {
        "initialisation": "convolutions He normal, dense layers Xavier uniform, biases zero (paddle.nn)",
    }

    relu = staticmethod(F.relu)
    max_pool = staticmethod(F.max_pool2d)
    zeros = staticmethod(paddle.zeros_like)

    def __init__(self, architecture: Dict[str, Any], seed: int) -> None:
        paddle.seed(seed)
        super().__init__(architecture, seed)
        self.train(False)

    def conv(self, inputs: int, layer: Dict[str, Any]) -> Any:
        return nn.Conv2D(inputs, layer["channels"], layer["kernel"], layer["stride"], layer["padding"])

    def dense(self, inputs: int, layer: Dict[str, Any]) -> Any:
        return nn.Linear(inputs, layer["units"])

    def batch_norm(self, inputs: int, images: bool) -> Any:
        return (nn.BatchNorm2D if images else nn.BatchNorm1D)(inputs, momentum=0.9, epsilon=1e-5)

    def global_average_pool(self, x: Any) -> Any:
        return x.mean([2, 3])

    def make_flat(self, x: Any) -> Any:
        return paddle.flatten(x, 1)

    def read(self, holder: Any) -> Array:
        array = holder.numpy()
        return array.T if array.ndim == 2 else array  # dense kernels are (in, out)

    def write(self, holder: Any, array: Array) -> None:
        holder.set_value(np.ascontiguousarray(array.T if array.ndim == 2 else array))

    def train(self, training: bool) -> None:
        for part in self.parts.values():
            part.training = training

    def logits(self, images: Array) -> Array:
        with paddle.no_grad():
            return self.apply(paddle.to_tensor(channels_first(images))).numpy()

    def vjp(self, images: Array, v: Array) -> Array:
        x = paddle.to_tensor(channels_first(images), stop_gradient=False)
        [gradient] = paddle.grad([self.apply(x)], [x], [paddle.to_tensor(v)])
        return channels_last(gradient.numpy())

    def step(self, images: Array, labels: Array, learning_rate: float) -> float:
        weights = self.trainable()
        self.train(True)
        loss = F.cross_entropy(self.apply(paddle.to_tensor(channels_first(images))), paddle.to_tensor(labels))
        gradients = paddle.grad([loss], list(weights.values()))
        self.train(False)
        with paddle.no_grad():
            for (name, weight), gradient in zip(weights.items(), gradients):
                velocity = self.momentum * self.velocities[name] + gradient + self.weight_decay * weight
                self.velocities[name] = velocity
                weight.set_value(weight - learning_rate * velocity)
        return float(loss)


serve(_PaddleNetwork)

"""The host of Chainer."""

from typing import Any, Dict

import chainer
import chainer.functions as F
import chainer.links as L
import numpy as np
from layers import ChannelsFirst, channels_first, channels_last
from protocol import Array, serve

chainer.global_config.train = False


class _ChainerNetwork(ChannelsFirst):  # type: ignore[misc]
    """A network of Chainer's links."""

    framework = "chainer"
    version = chainer.__version__
    attributes = {"kernel": "W", "bias": "b", "mean": "avg_mean", "variance": "avg_var"}
    differences = {
        "initialisation": "kernels LeCun normal, biases zero (Chainer)",
        "batch norm": "the variance moves towards that of n - 1 values",
    }

    relu = staticmethod(F.relu)

    def __init__(self, architecture: Dict[str, Any], seed: int) -> None:
        np.random.seed(seed)  # noqa: NPY002, Chainer draws its initial weights from there
        super().__init__(architecture, seed)

    def conv(self, inputs: int, layer: Dict[str, Any]) -> Any:
        return L.Convolution2D(inputs, layer["channels"], layer["kernel"], layer["stride"], layer["padding"])

    def dense(self, inputs: int, layer: Dict[str, Any]) -> Any:
        return L.Linear(inputs, layer["units"])

    def batch_norm(self, inputs: int, images: bool) -> Any:
        return L.BatchNormalization(inputs, decay=0.9, eps=1e-5)

    def max_pool(self, x: Any, size: int) -> Any:
        return F.max_pooling_2d(x, size, cover_all=False)

    def global_average_pool(self, x: Any) -> Any:
        return F.mean(x, axis=(2, 3))

    def make_flat(self, x: Any) -> Any:
        return F.reshape(x, (x.shape[0], -1))

    def read(self, holder: Any) -> Array:
        return getattr(holder, "array", holder)

    def write(self, holder: Any, array: Array) -> None:
        self.read(holder)[...] = array

    def zeros(self, holder: Any) -> Array:
        return np.zeros_like(holder.array)

    def logits(self, images: Array) -> Array:
        with chainer.no_backprop_mode():
            return self.apply(channels_first(images)).array

    def vjp(self, images: Array, v: Array) -> Array:
        x = chainer.Variable(channels_first(images))
        [gradient] = chainer.grad([self.apply(x)], [x], [chainer.Variable(v)])
        return channels_last(gradient.array)

    def step(self, images: Array, labels: Array, learning_rate: float) -> float:
        parameters = self.trainable()
        with chainer.using_config("train", True):
            loss = F.softmax_cross_entropy(self.apply(channels_first(images)), labels.astype(np.int32))
            gradients = chainer.grad([loss], list(parameters.values()))
        for (name, weight), gradient in zip(parameters.items(), gradients):
            velocity = self.velocities[name]
            velocity *= np.float32(self.momentum)
            velocity += gradient.array + np.float32(self.weight_decay) * weight.array
            weight.array -= np.float32(learning_rate) * velocity
        return float(loss.array)


serve(_ChainerNetwork)

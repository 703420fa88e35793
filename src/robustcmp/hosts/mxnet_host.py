"""The host of MXNet, with the layers of Gluon."""

from typing import Any, Dict

import mxnet as mx
from layers import ChannelsFirst, channels_first, channels_last
from mxnet import autograd, nd
from mxnet.gluon import loss, nn
from protocol import Array, serve


class _MXNetNetwork(ChannelsFirst):  # type: ignore[misc]
    """A network of Gluon's layers."""

    framework = "mxnet"
    version = mx.__version__
    attributes = {"kernel": "weight", "mean": "running_mean", "variance": "running_var"}
    differences = {"initialisation": "kernels uniform in ±0.07, biases zero (Gluon)"}

    relu = staticmethod(nd.relu)
    make_flat = staticmethod(nd.flatten)
    zeros = staticmethod(nd.zeros_like)

    def __init__(self, architecture: Dict[str, Any], seed: int) -> None:
        super().__init__(architecture, seed)
        mx.random.seed(seed)
        for part in self.parts.values():
            part.initialize()

    def conv(self, inputs: int, layer: Dict[str, Any]) -> Any:
        channels, kernel, stride, padding = (layer[key] for key in ("channels", "kernel", "stride", "padding"))
        return nn.Conv2D(channels, kernel, stride, padding, in_channels=inputs)

    def dense(self, inputs: int, layer: Dict[str, Any]) -> Any:
        return nn.Dense(layer["units"], in_units=inputs)

    def batch_norm(self, inputs: int, images: bool) -> Any:
        return nn.BatchNorm(epsilon=1e-5, momentum=0.9, in_channels=inputs)

    def max_pool(self, x: Any, size: int) -> Any:
        # Outside of a training it keeps nothing to find the way back by, and its gradient is zero.
        with autograd.train_mode() if autograd.is_recording() else autograd.predict_mode():
            return nd.Pooling(x, kernel=(size, size), stride=(size, size), pool_type="max")

    def global_average_pool(self, x: Any) -> Any:
        return x.mean(axis=(2, 3))

    def weight(self, part: Any, kind: str) -> Any:
        return super().weight(part, kind).data()

    def read(self, holder: Any) -> Array:
        return holder.asnumpy()

    def write(self, holder: Any, array: Array) -> None:
        holder[:] = nd.array(array)

    def logits(self, images: Array) -> Array:
        return self.apply(nd.array(channels_first(images))).asnumpy()

    def vjp(self, images: Array, v: Array) -> Array:
        x = nd.array(channels_first(images))
        x.attach_grad()
        with autograd.record(train_mode=False):
            z = self.apply(x)
        z.backward(nd.array(v), train_mode=False)
        return channels_last(x.grad.asnumpy())

    def step(self, images: Array, labels: Array, learning_rate: float) -> float:
        with autograd.record():
            z = self.apply(nd.array(channels_first(images)))
            mean = loss.SoftmaxCrossEntropyLoss()(z, nd.array(labels, dtype="int32")).mean()
        mean.backward()
        for name, weight in self.trainable().items():
            velocity = self.velocities[name]
            velocity[:] = self.momentum * velocity + weight.grad + self.weight_decay * weight
            weight[:] = weight - learning_rate * velocity
        return float(mean.asscalar())


serve(_MXNetNetwork)

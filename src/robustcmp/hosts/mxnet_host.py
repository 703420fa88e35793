"""The host of MXNet, with the layers of Gluon. Its argument is the dtype, if that is not float32."""

import sys
from typing import Any, Dict

import mxnet as mx
from layers import Layers, canonical, channels_first, channels_last, native
from mxnet import autograd, nd
from mxnet.gluon import loss, nn
from protocol import Array, Arrays, Host, serve

NAMES = {"kernel": "weight", "mean": "running_mean", "variance": "running_var"}
DTYPE = (sys.argv[1:-1] or ["float32"])[0]


class MXNetNetwork(Layers):  # type: ignore[misc]
    """A network of Gluon's layers."""

    def __init__(self, architecture: Dict[str, Any], seed: int) -> None:
        super().__init__(architecture)
        mx.random.seed(seed)
        for part in self.parts.values():
            part.cast(DTYPE)
            part.initialize()

    def conv(self, inputs: int, layer: Dict[str, Any]) -> Any:
        channels, kernel, stride, padding = (layer[key] for key in ("channels", "kernel", "stride", "padding"))
        return nn.Conv2D(channels, kernel, stride, padding, in_channels=inputs)

    def dense(self, inputs: int, layer: Dict[str, Any]) -> Any:
        return nn.Dense(layer["units"], in_units=inputs)

    def batch_norm(self, inputs: int, images: bool) -> Any:
        return nn.BatchNorm(epsilon=1e-5, momentum=0.9, in_channels=inputs)

    def relu(self, x: Any) -> Any:
        return nd.relu(x)

    def max_pool(self, x: Any, size: int) -> Any:
        # Outside of a training it keeps nothing to find the way back by, and its gradient is zero.
        with autograd.train_mode() if autograd.is_recording() else autograd.predict_mode():
            return nd.Pooling(x, kernel=(size, size), stride=(size, size), pool_type="max")

    def global_average_pool(self, x: Any) -> Any:
        return x.mean(axis=(2, 3))

    def flatten(self, x: Any) -> Any:
        return nd.flatten(x)

    def weight(self, part: Any, kind: str) -> Any:
        return getattr(part, NAMES.get(kind, kind))


class Trainer:
    """Stochastic gradient descent on a network."""

    def __init__(self, network: MXNetNetwork, momentum: float, weight_decay: float) -> None:
        self.network, self.momentum, self.weight_decay = network, momentum, weight_decay
        self.weights = network.fitted()
        self.velocity = {name: nd.zeros_like(weight.data()) for name, weight in self.weights.items()}


class MXNetHost(Host):  # type: ignore[misc]
    framework = "mxnet"
    differences = {"initialisation": "kernels uniform in ±0.07, biases zero (Gluon)"}

    def version(self) -> str:
        return str(mx.__version__)

    def build(self, architecture: Dict[str, Any], seed: int) -> MXNetNetwork:
        return MXNetNetwork(architecture, seed)

    def get_weights(self, network: MXNetNetwork) -> Arrays:
        weights = {name: weight.data().asnumpy() for name, weight in network.weights().items()}
        return canonical(weights, network.flattened)

    def set_weights(self, network: MXNetNetwork, weights: Arrays) -> None:
        parameters = network.weights()
        for name, array in native(weights, network.flattened).items():
            parameters[name].set_data(nd.array(array, dtype=DTYPE))

    def logits(self, network: MXNetNetwork, images: Array) -> Array:
        return network.applied(nd.array(channels_first(images), dtype=DTYPE)).asnumpy()

    def vjp(self, network: MXNetNetwork, images: Array, v: Array) -> Array:
        x = nd.array(channels_first(images), dtype=DTYPE)
        x.attach_grad()
        with autograd.record(train_mode=False):
            z = network.applied(x)
        z.backward(nd.array(v, dtype=DTYPE), train_mode=False)
        return channels_last(x.grad.asnumpy())

    def trainer(self, network: MXNetNetwork, momentum: float, weight_decay: float) -> Trainer:
        return Trainer(network, momentum, weight_decay)

    def step(self, trainer: Trainer, images: Array, labels: Array, learning_rate: float) -> float:
        x, y = nd.array(channels_first(images), dtype=DTYPE), nd.array(labels, dtype="int32")
        with autograd.record():
            mean = loss.SoftmaxCrossEntropyLoss()(trainer.network.applied(x), y).mean()
        mean.backward()
        for name, weight in trainer.weights.items():
            velocity = trainer.velocity[name]
            velocity[:] = trainer.momentum * velocity + weight.grad() + trainer.weight_decay * weight.data()
            weight.set_data(weight.data() - learning_rate * velocity)
        return float(mean.asscalar())

    def velocity(self, trainer: Trainer) -> Arrays:
        velocities = {name: velocity.asnumpy() for name, velocity in trainer.velocity.items()}
        return canonical(velocities, trainer.network.flattened)

    def set_velocity(self, trainer: Trainer, velocity: Arrays) -> None:
        for name, array in native(velocity, trainer.network.flattened).items():
            trainer.velocity[name][:] = nd.array(array, dtype=DTYPE)


serve(MXNetHost)

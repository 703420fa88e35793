"""The host of Chainer. Its argument is the dtype, if that is not float32."""

import sys
from typing import Any, Dict

import chainer
import chainer.functions as F
import chainer.links as L
import numpy as np
from layers import Layers, canonical, channels_first, channels_last, native
from protocol import Array, Arrays, Host, serve

NAMES = {"kernel": "W", "bias": "b", "mean": "avg_mean", "variance": "avg_var"}
DTYPE = np.dtype((sys.argv[1:-1] or ["float32"])[0])
chainer.global_config.dtype = DTYPE
chainer.global_config.train = False


class ChainerNetwork(Layers):  # type: ignore[misc]
    """A network of Chainer's links."""

    def __init__(self, architecture: Dict[str, Any], seed: int) -> None:
        np.random.seed(seed)  # noqa: NPY002, Chainer draws its initial weights from there
        super().__init__(architecture)

    def conv(self, inputs: int, layer: Dict[str, Any]) -> Any:
        return L.Convolution2D(inputs, layer["channels"], layer["kernel"], layer["stride"], layer["padding"])

    def dense(self, inputs: int, layer: Dict[str, Any]) -> Any:
        return L.Linear(inputs, layer["units"])

    def batch_norm(self, inputs: int, images: bool) -> Any:
        return L.BatchNormalization(inputs, decay=0.9, eps=1e-5)

    def relu(self, x: Any) -> Any:
        return F.relu(x)

    def max_pool(self, x: Any, size: int) -> Any:
        return F.max_pooling_2d(x, size, cover_all=False)

    def global_average_pool(self, x: Any) -> Any:
        return F.mean(x, axis=(2, 3))

    def flatten(self, x: Any) -> Any:
        return F.reshape(x, (x.shape[0], -1))

    def weight(self, part: Any, kind: str) -> Any:
        return getattr(part, NAMES.get(kind, kind))

    def arrays(self) -> Arrays:
        """Return the arrays of all weights, in the layout of Chainer."""
        return {name: getattr(weight, "array", weight) for name, weight in self.weights().items()}


class Trainer:
    """Stochastic gradient descent on a network."""

    def __init__(self, network: ChainerNetwork, momentum: float, weight_decay: float) -> None:
        self.network, self.momentum, self.weight_decay = network, momentum, weight_decay
        self.velocity = {name: np.zeros_like(weight.array) for name, weight in network.fitted().items()}


def put(arrays: Arrays, canonical: Arrays, flattened: Dict[str, Any]) -> None:
    """Put canonical arrays into others, in place."""
    for name, array in native(canonical, flattened).items():
        arrays[name][...] = array


class ChainerHost(Host):  # type: ignore[misc]
    framework = "chainer"
    differences = {
        "initialisation": "kernels LeCun normal, biases zero (Chainer)",
        "batch norm": "the variance moves towards that of n - 1 values",
    }

    def version(self) -> str:
        return str(chainer.__version__)

    def build(self, architecture: Dict[str, Any], seed: int) -> ChainerNetwork:
        return ChainerNetwork(architecture, seed)

    def get_weights(self, network: ChainerNetwork) -> Arrays:
        return canonical(network.arrays(), network.flattened)

    def set_weights(self, network: ChainerNetwork, weights: Arrays) -> None:
        put(network.arrays(), weights, network.flattened)

    def logits(self, network: ChainerNetwork, images: Array) -> Array:
        with chainer.no_backprop_mode():
            return network.applied(channels_first(images).astype(DTYPE)).array

    def vjp(self, network: ChainerNetwork, images: Array, v: Array) -> Array:
        x = chainer.Variable(channels_first(images).astype(DTYPE))
        [gradient] = chainer.grad([network.applied(x)], [x], [chainer.Variable(v.astype(DTYPE))])
        return channels_last(gradient.array)

    def trainer(self, network: ChainerNetwork, momentum: float, weight_decay: float) -> Trainer:
        return Trainer(network, momentum, weight_decay)

    def step(self, trainer: Trainer, images: Array, labels: Array, learning_rate: float) -> float:
        parameters = trainer.network.fitted()
        with chainer.using_config("train", True):
            z = trainer.network.applied(channels_first(images).astype(DTYPE))
            loss = F.softmax_cross_entropy(z, labels.astype(np.int32))
            gradients = chainer.grad([loss], list(parameters.values()))
        for (name, weight), gradient in zip(parameters.items(), gradients):
            velocity = trainer.velocity[name]
            velocity *= DTYPE.type(trainer.momentum)
            velocity += gradient.array + DTYPE.type(trainer.weight_decay) * weight.array
            weight.array -= DTYPE.type(learning_rate) * velocity
        return float(loss.array)

    def velocity(self, trainer: Trainer) -> Arrays:
        return canonical(trainer.velocity, trainer.network.flattened)

    def set_velocity(self, trainer: Trainer, velocity: Arrays) -> None:
        put(trainer.velocity, velocity, trainer.network.flattened)


serve(ChainerHost)

"""The host of Chainer. Its argument is the dtype, if that is not float32."""

import sys
from typing import Any, Dict, List

import chainer
import chainer.functions as F
import chainer.links as L
import channels_first
import numpy as np
from protocol import Array, Arrays, Host, serve

NAMES = {"kernel": "W", "bias": "b", "mean": "avg_mean", "variance": "avg_var"}
WEIGHTS = {
    "Conv": ("kernel", "bias"),
    "Dense": ("kernel", "bias"),
    "BatchNorm": ("gamma", "beta", "mean", "variance"),
}
STATISTICS = ("mean", "variance")
DTYPE = np.dtype((sys.argv[1:-1] or ["float32"])[0])
chainer.global_config.dtype = DTYPE
chainer.global_config.train = False


class Network:
    """Chainer's links, called with images (N, C, H, W)."""

    def __init__(self, architecture: Dict[str, Any], seed: int) -> None:
        self.layers, self.flattened = architecture["layers"], architecture["flattened"]
        self.links: Dict[str, Any] = {}
        self.kinds: Dict[str, str] = {}
        np.random.seed(seed)  # noqa: NPY002, Chainer draws its initial weights from there
        self._add(self.layers, architecture["inputs"])

    def _add(self, layers: List[Dict[str, Any]], inputs: Dict[str, List[int]]) -> None:
        for layer in layers:
            kind, name = layer["type"], layer["name"]
            if kind in WEIGHTS:
                self.kinds[name] = kind
            if kind == "Conv":
                padding, stride = layer.get("padding", 0), layer.get("stride", 1)
                its = L.Convolution2D(inputs[name][-1], layer["channels"], layer["kernel"], stride, padding)
                self.links[name] = its
            elif kind == "Dense":
                self.links[name] = L.Linear(inputs[name][0], layer["units"])
            elif kind == "BatchNorm":
                self.links[name] = L.BatchNormalization(inputs[name][-1], decay=0.9, eps=1e-5)
            elif kind == "Residual":
                self._add(layer["layers"], inputs)
                self._add(layer.get("shortcut", []), inputs)

    def __call__(self, x: Any) -> Any:
        return self._applied(self.layers, x)

    def _applied(self, layers: List[Dict[str, Any]], x: Any) -> Any:
        for layer in layers:
            kind = layer["type"]
            if kind in WEIGHTS:
                x = self.links[layer["name"]](x)
            elif kind == "Relu":
                x = F.relu(x)
            elif kind == "MaxPool":
                x = F.max_pooling_2d(x, layer["size"], cover_all=False)
            elif kind == "GlobalAveragePool":
                x = F.mean(x, axis=(2, 3))
            elif kind == "Flatten":
                x = F.reshape(x, (x.shape[0], -1))
            elif kind == "Residual":
                x = self._applied(layer["layers"], x) + self._applied(layer.get("shortcut", []), x)
            else:
                raise ValueError(f"unknown layer {kind!r}")
        return x

    def arrays(self) -> Arrays:
        """Return the arrays of parameters and statistics by their canonical names, in the layout of Chainer."""
        found = {}
        for name, kind in self.kinds.items():
            for weight in WEIGHTS[kind]:
                its = getattr(self.links[name], NAMES.get(weight, weight))
                found[f"{name}/{weight}"] = its if weight in STATISTICS else its.array
        return found

    def parameters(self) -> Dict[str, Any]:
        """Return what a training fits."""
        return {
            f"{name}/{weight}": getattr(self.links[name], NAMES.get(weight, weight))
            for name, kind in self.kinds.items()
            for weight in WEIGHTS[kind]
            if weight not in STATISTICS
        }


class Trainer:
    """Stochastic gradient descent on a network."""

    def __init__(self, network: Network, momentum: float, weight_decay: float) -> None:
        self.network, self.momentum, self.weight_decay = network, momentum, weight_decay
        self.velocity = {name: np.zeros_like(its.array) for name, its in network.parameters().items()}


def put(arrays: Arrays, canonical: Arrays, flattened: channels_first.Flattened) -> None:
    """Put canonical arrays into others, in place."""
    for name, array in channels_first.native(canonical, flattened).items():
        arrays[name][...] = array


class ChainerHost(Host):  # type: ignore[misc]
    framework = "chainer"
    differences = {
        "initialisation": "kernels LeCun normal, biases zero (Chainer)",
        "batch norm": "the variance moves towards that of n - 1 values",
    }

    def version(self) -> str:
        return str(chainer.__version__)

    def build(self, architecture: Dict[str, Any], seed: int) -> Network:
        return Network(architecture, seed)

    def get_weights(self, network: Network) -> Arrays:
        return channels_first.canonical(network.arrays(), network.flattened)

    def set_weights(self, network: Network, weights: Arrays) -> None:
        put(network.arrays(), weights, network.flattened)

    def logits(self, network: Network, images: Array) -> Array:
        with chainer.no_backprop_mode():
            return network(channels_first.images(images).astype(DTYPE)).array

    def vjp(self, network: Network, images: Array, v: Array) -> Array:
        x = chainer.Variable(channels_first.images(images).astype(DTYPE))
        [gradient] = chainer.grad([network(x)], [x], [chainer.Variable(v.astype(DTYPE))])
        return gradient.array.transpose(0, 2, 3, 1)

    def trainer(self, network: Network, momentum: float, weight_decay: float) -> Trainer:
        return Trainer(network, momentum, weight_decay)

    def step(self, trainer: Trainer, images: Array, labels: Array, learning_rate: float) -> float:
        parameters = trainer.network.parameters()
        with chainer.using_config("train", True):
            z = trainer.network(channels_first.images(images).astype(DTYPE))
            loss = F.softmax_cross_entropy(z, labels.astype(np.int32))
            gradients = chainer.grad([loss], list(parameters.values()))
        for (name, weight), gradient in zip(parameters.items(), gradients):
            velocity = trainer.velocity[name]
            velocity *= DTYPE.type(trainer.momentum)
            velocity += gradient.array + DTYPE.type(trainer.weight_decay) * weight.array
            weight.array -= DTYPE.type(learning_rate) * velocity
        return float(loss.array)

    def velocity(self, trainer: Trainer) -> Arrays:
        return channels_first.canonical(trainer.velocity, trainer.network.flattened)

    def set_velocity(self, trainer: Trainer, velocity: Arrays) -> None:
        put(trainer.velocity, velocity, trainer.network.flattened)


serve(ChainerHost)

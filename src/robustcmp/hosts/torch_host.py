"""The host of old versions of PyTorch, from 1.0 on. Its argument is the dtype, if that is not float32."""

import sys
from typing import Any, Dict

import torch
import torch.nn.functional as F
from layers import Layers, canonical, channels_first, channels_last, native
from protocol import Array, Arrays, Host, serve
from torch import nn

NAMES = {"kernel": "weight", "gamma": "weight", "beta": "bias", "mean": "running_mean", "variance": "running_var"}
torch.set_default_dtype(getattr(torch, (sys.argv[1:-1] or ["float32"])[0]))


class TorchNetwork(Layers):  # type: ignore[misc]
    """A network of `torch.nn`'s layers."""

    def __init__(self, architecture: Dict[str, Any], seed: int) -> None:
        torch.manual_seed(seed)
        super().__init__(architecture)
        self.train(False)

    def conv(self, inputs: int, layer: Dict[str, Any]) -> nn.Module:
        return nn.Conv2d(inputs, layer["channels"], layer["kernel"], layer["stride"], layer["padding"])

    def dense(self, inputs: int, layer: Dict[str, Any]) -> nn.Module:
        return nn.Linear(inputs, layer["units"])

    def batch_norm(self, inputs: int, images: bool) -> nn.Module:
        return (nn.BatchNorm2d if images else nn.BatchNorm1d)(inputs, eps=1e-5, momentum=0.1)

    def relu(self, x: Any) -> Any:
        return F.relu(x)

    def max_pool(self, x: Any, size: int) -> Any:
        return F.max_pool2d(x, size)

    def global_average_pool(self, x: Any) -> Any:
        return x.mean(3).mean(2)

    def flatten(self, x: Any) -> Any:
        return x.reshape(x.shape[0], -1)

    def weight(self, part: Any, kind: str) -> Any:
        return getattr(part, NAMES.get(kind, kind))

    def train(self, training: bool) -> None:
        for part in self.parts.values():
            part.train(training)


class Trainer:
    """Stochastic gradient descent on a network."""

    def __init__(self, network: TorchNetwork, momentum: float, weight_decay: float) -> None:
        self.network, self.momentum, self.weight_decay = network, momentum, weight_decay
        self.weights = network.fitted()
        self.velocity = {name: torch.zeros_like(weight) for name, weight in self.weights.items()}


def tensor(array: Array) -> Any:
    """Return an array of floats as a tensor."""
    return torch.from_numpy(array).to(torch.get_default_dtype())


def put(tensors: Dict[str, Any], arrays: Arrays, flattened: Dict[str, Any]) -> None:
    """Put canonical arrays into tensors."""
    with torch.no_grad():
        for name, array in native(arrays, flattened).items():
            tensors[name].copy_(torch.from_numpy(array))


def canonical_arrays(tensors: Dict[str, Any], flattened: Dict[str, Any]) -> Arrays:
    """Return what tensors hold, as canonical arrays."""
    return canonical({name: value.detach().numpy() for name, value in tensors.items()}, flattened)


class TorchHost(Host):  # type: ignore[misc]
    framework = "torch"
    differences = {
        "initialisation": "kernels and biases uniform in ±1/√fan_in (torch.nn)",
        "batch norm": "the variance moves towards that of n - 1 values",
    }

    def version(self) -> str:
        return str(torch.__version__)

    def build(self, architecture: Dict[str, Any], seed: int) -> TorchNetwork:
        return TorchNetwork(architecture, seed)

    def get_weights(self, network: TorchNetwork) -> Arrays:
        return canonical_arrays(network.weights(), network.flattened)

    def set_weights(self, network: TorchNetwork, weights: Arrays) -> None:
        put(network.weights(), weights, network.flattened)

    def logits(self, network: TorchNetwork, images: Array) -> Array:
        with torch.no_grad():
            return network.applied(tensor(channels_first(images))).numpy()

    def vjp(self, network: TorchNetwork, images: Array, v: Array) -> Array:
        x = tensor(channels_first(images)).requires_grad_()
        (gradient,) = torch.autograd.grad(network.applied(x), x, tensor(v))
        return channels_last(gradient.numpy())

    def trainer(self, network: TorchNetwork, momentum: float, weight_decay: float) -> Trainer:
        return Trainer(network, momentum, weight_decay)

    def step(self, trainer: Trainer, images: Array, labels: Array, learning_rate: float) -> float:
        network = trainer.network
        network.train(True)
        loss = F.cross_entropy(network.applied(tensor(channels_first(images))), torch.from_numpy(labels))
        gradients = torch.autograd.grad(loss, list(trainer.weights.values()))
        network.train(False)
        with torch.no_grad():
            for (name, weight), gradient in zip(trainer.weights.items(), gradients):
                velocity = trainer.velocity[name]
                velocity.mul_(trainer.momentum).add_(gradient + trainer.weight_decay * weight)
                weight.sub_(learning_rate * velocity)
        return float(loss.item())

    def velocity(self, trainer: Trainer) -> Arrays:
        return canonical_arrays(trainer.velocity, trainer.network.flattened)

    def set_velocity(self, trainer: Trainer, velocity: Arrays) -> None:
        put(trainer.velocity, velocity, trainer.network.flattened)

    def threads(self, count: int) -> None:
        torch.set_num_threads(count)


if __name__ == "__main__":
    serve(TorchHost)

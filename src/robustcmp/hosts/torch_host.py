"""The host of old versions of PyTorch, from 1.0 on. Its argument is the dtype, if that is not float32."""

import sys
from typing import Any, Dict, List

import channels_first
import torch
import torch.nn.functional as F
from protocol import Array, Arrays, Host, serve
from torch import nn

NAMES = {"kernel": "weight", "gamma": "weight", "beta": "bias", "mean": "running_mean", "variance": "running_var"}
WEIGHTS = {
    "Conv": ("kernel", "bias"),
    "Dense": ("kernel", "bias"),
    "BatchNorm": ("gamma", "beta", "mean", "variance"),
}
STATISTICS = ("mean", "variance")
torch.set_default_dtype(getattr(torch, (sys.argv[1:-1] or ["float32"])[0]))


class Network(nn.Module):  # type: ignore[misc, unused-ignore]
    """A network of `torch.nn`'s layers, called with images (N, C, H, W)."""

    def __init__(self, architecture: Dict[str, Any], seed: int) -> None:
        super().__init__()
        self.layers, self.flattened = architecture["layers"], architecture["flattened"]
        self.modules_by_name = nn.ModuleDict()
        self.kinds: Dict[str, str] = {}
        torch.manual_seed(seed)
        self._add(self.layers, architecture["inputs"])
        self.eval()

    def _add(self, layers: List[Dict[str, Any]], inputs: Dict[str, List[int]]) -> None:
        for layer in layers:
            kind, name = layer["type"], layer["name"]
            if kind in WEIGHTS:
                self.kinds[name] = kind
            if kind == "Conv":
                padding, stride = layer.get("padding", 0), layer.get("stride", 1)
                its = nn.Conv2d(inputs[name][-1], layer["channels"], layer["kernel"], stride, padding)
                self.modules_by_name[name] = its
            elif kind == "Dense":
                self.modules_by_name[name] = nn.Linear(inputs[name][0], layer["units"])
            elif kind == "BatchNorm":
                norm = nn.BatchNorm2d if len(inputs[name]) == 3 else nn.BatchNorm1d
                self.modules_by_name[name] = norm(inputs[name][-1], eps=1e-5, momentum=0.1)
            elif kind == "Residual":
                self._add(layer["layers"], inputs)
                self._add(layer.get("shortcut", []), inputs)

    def forward(self, x: Any) -> Any:
        return self._applied(self.layers, x)

    def _applied(self, layers: List[Dict[str, Any]], x: Any) -> Any:
        for layer in layers:
            kind = layer["type"]
            if kind in WEIGHTS:
                x = self.modules_by_name[layer["name"]](x)
            elif kind == "Relu":
                x = F.relu(x)
            elif kind == "MaxPool":
                x = F.max_pool2d(x, layer["size"])
            elif kind == "GlobalAveragePool":
                x = x.mean(3).mean(2)
            elif kind == "Flatten":
                x = x.reshape(x.shape[0], -1)
            elif kind == "Residual":
                x = self._applied(layer["layers"], x) + self._applied(layer.get("shortcut", []), x)
            else:
                raise ValueError(f"unknown layer {kind!r}")
        return x

    def tensors(self) -> Dict[str, Any]:
        """Return the parameters and statistics by their canonical names, in the layout of torch."""
        return {
            f"{name}/{weight}": getattr(self.modules_by_name[name], NAMES.get(weight, weight))
            for name, kind in self.kinds.items()
            for weight in WEIGHTS[kind]
        }


class Trainer:
    """Stochastic gradient descent on a network."""

    def __init__(self, network: Network, momentum: float, weight_decay: float) -> None:
        self.network, self.momentum, self.weight_decay = network, momentum, weight_decay
        self.weights = {n: its for n, its in network.tensors().items() if n.rpartition("/")[2] not in STATISTICS}
        self.velocity = {name: torch.zeros_like(its) for name, its in self.weights.items()}


def tensor(array: Array) -> Any:
    """Return an array of floats as a tensor."""
    return torch.from_numpy(array).to(torch.get_default_dtype())


def put(tensors: Dict[str, Any], arrays: Arrays, flattened: channels_first.Flattened) -> None:
    """Put canonical arrays into tensors."""
    with torch.no_grad():
        for name, array in channels_first.native(arrays, flattened).items():
            tensors[name].copy_(torch.from_numpy(array))


def held(tensors: Dict[str, Any], flattened: channels_first.Flattened) -> Arrays:
    """Return what tensors hold, as canonical arrays."""
    return channels_first.canonical({name: its.detach().numpy() for name, its in tensors.items()}, flattened)


class TorchHost(Host):  # type: ignore[misc]
    framework = "torch"
    differences = {
        "initialisation": "kernels and biases uniform in ±1/√fan_in (torch.nn)",
        "batch norm": "the variance moves towards that of n - 1 values",
    }

    def version(self) -> str:
        return str(torch.__version__)

    def build(self, architecture: Dict[str, Any], seed: int) -> Network:
        return Network(architecture, seed)

    def get_weights(self, network: Network) -> Arrays:
        return held(network.tensors(), network.flattened)

    def set_weights(self, network: Network, weights: Arrays) -> None:
        put(network.tensors(), weights, network.flattened)

    def logits(self, network: Network, images: Array) -> Array:
        with torch.no_grad():
            return network(tensor(channels_first.images(images))).numpy()

    def vjp(self, network: Network, images: Array, v: Array) -> Array:
        x = tensor(channels_first.images(images)).requires_grad_()
        (gradient,) = torch.autograd.grad(network(x), x, tensor(v))
        return gradient.numpy().transpose(0, 2, 3, 1)

    def trainer(self, network: Network, momentum: float, weight_decay: float) -> Trainer:
        return Trainer(network, momentum, weight_decay)

    def step(self, trainer: Trainer, images: Array, labels: Array, learning_rate: float) -> float:
        network = trainer.network.train()
        loss = F.cross_entropy(network(tensor(channels_first.images(images))), torch.from_numpy(labels))
        gradients = torch.autograd.grad(loss, list(trainer.weights.values()))
        network.eval()
        with torch.no_grad():
            for (name, weight), gradient in zip(trainer.weights.items(), gradients):
                velocity = trainer.velocity[name]
                velocity.mul_(trainer.momentum).add_(gradient + trainer.weight_decay * weight)
                weight.sub_(learning_rate * velocity)
        return float(loss.item())

    def velocity(self, trainer: Trainer) -> Arrays:
        return held(trainer.velocity, trainer.network.flattened)

    def set_velocity(self, trainer: Trainer, velocity: Arrays) -> None:
        put(trainer.velocity, velocity, trainer.network.flattened)

    def threads(self, count: int) -> None:
        torch.set_num_threads(count)


serve(TorchHost)

"""The host of old versions of PyTorch, from 1.0 on."""

from typing import Any, Dict

import torch
import torch.nn.functional as F
from layers import TORCH_NAMES, ChannelsFirst, channels_first, channels_last
from protocol import Array, serve
from torch import nn


class TorchNetwork(ChannelsFirst):  # type: ignore[misc]
    """A network of `torch.nn`'s layers."""

    framework = "torch"
    version = torch.__version__
    attributes = TORCH_NAMES
    differences = {
        "initialisation": "kernels and biases uniform in ±1/√fan_in (torch.nn)",
        "batch norm": "the variance moves towards that of n - 1 values",
    }

    threads = staticmethod(torch.set_num_threads)
    relu = staticmethod(F.relu)
    max_pool = staticmethod(F.max_pool2d)
    zeros = staticmethod(torch.zeros_like)

    def __init__(self, architecture: Dict[str, Any], seed: int) -> None:
        torch.manual_seed(seed)
        super().__init__(architecture, seed)
        self.train(False)

    def conv(self, inputs: int, layer: Dict[str, Any]) -> nn.Module:
        return nn.Conv2d(inputs, layer["channels"], layer["kernel"], layer["stride"], layer["padding"])

    def dense(self, inputs: int, layer: Dict[str, Any]) -> nn.Module:
        return nn.Linear(inputs, layer["units"])

    def batch_norm(self, inputs: int, images: bool) -> nn.Module:
        return (nn.BatchNorm2d if images else nn.BatchNorm1d)(inputs, eps=1e-5, momentum=0.1)

    def global_average_pool(self, x: Any) -> Any:
        return x.mean(3).mean(2)

    def make_flat(self, x: Any) -> Any:
        return x.reshape(x.shape[0], -1)

    def read(self, holder: Any) -> Array:
        return holder.detach().numpy()

    def write(self, holder: Any, array: Array) -> None:
        with torch.no_grad():
            holder.copy_(torch.from_numpy(array))

    def train(self, training: bool) -> None:
        for part in self.parts.values():
            part.train(training)

    def logits(self, images: Array) -> Array:
        with torch.no_grad():
            return self.apply(torch.from_numpy(channels_first(images))).numpy()

    def vjp(self, images: Array, v: Array) -> Array:
        x = torch.from_numpy(channels_first(images)).requires_grad_()
        (gradient,) = torch.autograd.grad(self.apply(x), x, torch.from_numpy(v))
        return channels_last(gradient.numpy())

    def step(self, images: Array, labels: Array, learning_rate: float) -> float:
        weights = self.trainable()
        self.train(True)
        loss = F.cross_entropy(self.apply(torch.from_numpy(channels_first(images))), torch.from_numpy(labels))
        gradients = torch.autograd.grad(loss, list(weights.values()))
        self.train(False)
        with torch.no_grad():
            for (name, weight), gradient in zip(weights.items(), gradients):
                velocity = self.velocities[name]
                velocity.mul_(self.momentum).add_(gradient + self.weight_decay * weight)
                weight.sub_(learning_rate * velocity)
        return float(loss.item())


if __name__ == "__main__":
    serve(TorchNetwork)

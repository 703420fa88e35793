"""Networks of the zoo as modules of PyTorch, and their weights in the canonical layout."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ..errors import UsageError
from ..networks.architecture import (
    Architecture,
    BatchNorm,
    Conv,
    Dense,
    Flatten,
    GlobalAveragePool,
    Layer,
    MaxPool,
    Relu,
    Residual,
    Shape,
)


class _Residual(torch.nn.Module):
    def __init__(self, layers: torch.nn.Module, shortcut: torch.nn.Module):
        super().__init__()
        self.layers, self.shortcut = layers, shortcut

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x) + self.shortcut(x)  # type: ignore[no-any-return]


def sequential(layers: tuple[Layer, ...], shapes: dict[str, Shape]) -> torch.nn.Sequential:
    modules: OrderedDict[str, torch.nn.Module] = OrderedDict()
    for layer in layers:
        modules[layer.name] = _module(layer, shapes)
    try:
        return torch.nn.Sequential(modules)
    except KeyError as error:  # an attribute of every module, such as "type"
        raise UsageError(f"a layer should not have a name that torch uses itself: {error}") from None


def _module(layer: Layer, shapes: dict[str, Shape]) -> torch.nn.Module:
    shape = shapes[layer.name]
    match layer:
        case Conv():
            return torch.nn.Conv2d(shape[-1], layer.channels, layer.kernel, layer.stride, layer.padding)
        case Dense():
            return torch.nn.Linear(shape[0], layer.units)
        case BatchNorm():
            kind = torch.nn.BatchNorm2d if len(shape) == 3 else torch.nn.BatchNorm1d
            return kind(shape[-1], eps=layer.epsilon, momentum=1 - layer.momentum)
        case Relu():
            return torch.nn.ReLU()
        case MaxPool():
            return torch.nn.MaxPool2d(layer.size)
        case GlobalAveragePool():
            return torch.nn.Sequential(torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten())
        case Flatten():
            return torch.nn.Flatten()
        case Residual():
            return _Residual(sequential(layer.layers, shapes), sequential(layer.shortcut, shapes))


_NAMES = {"kernel": "weight", "gamma": "weight", "beta": "bias", "mean": "running_mean", "variance": "running_var"}


def weight_tensors(native: torch.nn.Module, architecture: Architecture) -> dict[str, torch.Tensor]:
    """The network's parameters and statistics by their canonical names."""
    kinds = (torch.nn.Conv2d, torch.nn.Linear, torch.nn.BatchNorm1d, torch.nn.BatchNorm2d)
    modules = {path.rpartition(".")[2]: module for path, module in native.named_modules() if isinstance(module, kinds)}
    tensors = {}
    for name in architecture.weight_shapes:
        layer, _, kind = name.partition("/")
        tensors[name] = getattr(modules[layer], _NAMES.get(kind, kind))
    return tensors


def to_canonical(name: str, tensor: torch.Tensor, architecture: Architecture) -> NDArray[Any]:
    """A tensor in the canonical layout: kernels are (out, in, height, width) and (out, in) in torch."""
    array: NDArray[Any] = tensor.detach().cpu().numpy()
    if array.ndim == 4:
        array = array.transpose(2, 3, 1, 0)
    elif array.ndim == 2:
        array = array.T
        if (flattened := architecture.flattened.get(name.partition("/")[0])) is not None:
            height, width, channels = flattened
            array = array.reshape(channels, height, width, -1).transpose(1, 2, 0, 3).reshape(array.shape)
    return np.array(array, order="C")


def to_native(name: str, array: NDArray[Any], architecture: Architecture) -> torch.Tensor:
    """The inverse of `to_canonical`."""
    if array.ndim == 4:
        array = array.transpose(3, 2, 0, 1)
    elif array.ndim == 2:
        if (flattened := architecture.flattened.get(name.partition("/")[0])) is not None:
            array = array.reshape(*flattened, -1).transpose(2, 0, 1, 3).reshape(array.shape)
        array = array.T
    return torch.from_numpy(array.copy())

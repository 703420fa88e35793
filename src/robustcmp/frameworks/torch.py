"""PyTorch: networks are `torch.nn.Sequential`, tensors are (N, C, H, W)."""

from __future__ import annotations

import warnings
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ..architecture import Architecture, Conv, Dense, Flatten, MaxPool, Relu
from ..errors import ModelError, UsageError
from ..weights import Weights
from .base import Device, Function, Pullback, TrainableFramework, Trainer


def _device(name: Device) -> torch.device:
    if name == "cuda" and not torch.cuda.is_available():
        raise UsageError("device 'cuda' was asked for, but torch sees no GPU. Use device='cpu' or 'auto'.")
    return torch.device("cuda" if name != "cpu" and torch.cuda.is_available() else "cpu")


@contextmanager
def _exact(device: torch.device) -> Iterator[None]:
    """Switch TF32 off for a while: it keeps 10 bits of mantissa, too few for a comparison of near ties."""
    if device.type != "cuda":
        yield
        return
    backends: tuple[Any, Any] = (torch.backends.cudnn, torch.backends.cuda.matmul)
    kept = [backend.allow_tf32 for backend in backends]
    for backend in backends:
        backend.allow_tf32 = False
    try:
        yield
    finally:
        for backend, allowed in zip(backends, kept, strict=True):
            backend.allow_tf32 = allowed


class Torch(TrainableFramework):
    name = "torch"
    data_format = "channels_first"
    differences = {"initialisation": "kernels and biases uniform in ±1/√fan_in (torch.nn)"}

    def version(self) -> str:
        return str(torch.__version__)

    def tensor(self, array: NDArray[Any], like: Any) -> torch.Tensor:
        return torch.tensor(array, device=like.device)

    def array(self, tensor: Any) -> NDArray[Any]:
        array: NDArray[Any] = tensor.detach().cpu().numpy()
        return array

    def infer(self, function: Function, images: NDArray[np.float32], like: Any) -> NDArray[np.float32]:
        with torch.inference_mode(), _exact(like.device):
            return self.array(function(self.tensor(images, like)))

    def pullback(self, function: Function) -> Pullback:
        def pull_back(x: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
            with torch.enable_grad(), _exact(x.device):
                logits = function(x.requires_grad_())
                if not logits.requires_grad:  # nothing on the way to the images can be differentiated
                    return torch.zeros_like(x)
                (gradient,) = torch.autograd.grad(logits, x, v, materialize_grads=True)
            return gradient

        return pull_back

    def compiled(
        self, function: Function, native: Any, images: NDArray[np.float32], like: Any
    ) -> tuple[Function, Pullback]:
        jit: Any = torch.jit
        with torch.inference_mode(False), torch.no_grad(), warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("ignore", DeprecationWarning)  # of torch.jit, still the fastest on small networks
            warnings.simplefilter("always", jit.TracerWarning)
            traced = jit.freeze(jit.trace(_Traceable(function, native).eval(), self.tensor(images, like)))
            # What it does beyond freezing is for CPUs: oneDNN's layouts, convolutions with their activations in one.
            fast: Function = jit.optimize_for_inference(traced) if like.device.type == "cpu" else traced
        for warning in caught:
            if issubclass(warning.category, jit.TracerWarning):
                raise ModelError(f"its trace may hold for these images alone: {warning.message}")
        return fast, self.pullback(function)

    def is_out_of_memory(self, error: Exception) -> bool:
        cpu = isinstance(error, RuntimeError) and "not enough memory" in str(error)
        return cpu or isinstance(error, torch.OutOfMemoryError) or super().is_out_of_memory(error)

    def threads(self) -> int:
        return torch.get_num_threads()

    def set_threads(self, count: int) -> None:
        torch.set_num_threads(count)

    @contextmanager
    def forked_rng(self, seed: int) -> Iterator[None]:
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            yield

    def place(self, native: Any, device: Device) -> tuple[Function, torch.Tensor]:
        if not isinstance(native, torch.nn.Module):
            raise ModelError(f"expected a torch.nn.Module, received {type(native).__name__}")
        if any(module.training for module in native.modules()):
            raise UsageError(
                "the torch module is in training mode, where dropout and batch norm make its answers random. "
                "Call module.eval() first."
            )
        where = _device(device)
        module = native.to(where)

        def function(x: torch.Tensor) -> torch.Tensor:
            with torch.set_grad_enabled(x.requires_grad), _exact(where):
                return module(x)  # type: ignore[no-any-return]

        return function, torch.zeros(0, device=where)

    def build(self, architecture: Architecture, seed: int, device: Device) -> torch.nn.Module:
        layers: OrderedDict[str, torch.nn.Module] = OrderedDict()
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            for layer, shape in architecture.walk():
                match layer:
                    case Conv():
                        layers[layer.name] = torch.nn.Conv2d(shape[-1], layer.channels, layer.kernel)
                    case Dense():
                        layers[layer.name] = torch.nn.Linear(shape[0], layer.units)
                    case Relu():
                        layers[layer.name] = torch.nn.ReLU()
                    case MaxPool():
                        layers[layer.name] = torch.nn.MaxPool2d(layer.size)
                    case Flatten():
                        layers[layer.name] = torch.nn.Flatten()
        return torch.nn.Sequential(layers).to(_device(device)).eval()

    def get_weights(self, native: Any, architecture: Architecture) -> Weights:
        return _canonical(dict(native.named_parameters()), architecture)

    def set_weights(self, native: Any, architecture: Architecture, weights: Weights) -> None:
        native.load_state_dict(_native(weights, architecture))

    def trainer(self, native: Any, architecture: Architecture, momentum: float, weight_decay: float) -> Trainer:
        return _Trainer(native, architecture, momentum, weight_decay)


def _canonical(state: dict[str, torch.Tensor], architecture: Architecture) -> Weights:
    """Torch's arrays in the canonical layout: kernels are (out, in, height, width) and (out, in) in torch."""
    weights = {}
    for name in architecture.weight_shapes:
        layer, _, kind = name.partition("/")
        array = state[f"{layer}.{'weight' if kind == 'kernel' else kind}"].detach().cpu().numpy()
        if array.ndim == 4:
            array = array.transpose(2, 3, 1, 0)
        elif array.ndim == 2:
            array = array.T
            if layer in architecture.flattened:
                height, width, channels = architecture.flattened[layer]
                rows = array.reshape(channels, height, width, -1).transpose(1, 2, 0, 3)
                array = rows.reshape(array.shape)
        weights[name] = np.array(array, order="C")
    return weights


def _native(weights: Weights, architecture: Architecture) -> dict[str, torch.Tensor]:
    """The inverse of `_canonical`."""
    state = {}
    for name, array in weights.items():
        layer, _, kind = name.partition("/")
        if array.ndim == 4:
            array = array.transpose(3, 2, 0, 1)
        elif array.ndim == 2:
            if layer in architecture.flattened:
                rows = array.reshape(*architecture.flattened[layer], -1).transpose(2, 0, 1, 3)
                array = rows.reshape(array.shape)
            array = array.T
        state[f"{layer}.{'weight' if kind == 'kernel' else kind}"] = torch.from_numpy(array.copy())
    return state


class _Traceable(torch.nn.Module):
    """A function as a module, for `torch.jit`: its network's weights have to be known as a part of it."""

    def __init__(self, function: Function, native: Any):
        super().__init__()
        self.native = native
        self._function = function

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self._function(x)  # type: ignore[no-any-return]


class _Trainer(Trainer):
    def __init__(self, module: torch.nn.Module, architecture: Architecture, momentum: float, weight_decay: float):
        self._module, self._architecture = module, architecture
        self._parameters = dict(module.named_parameters())
        self._device = next(iter(self._parameters.values())).device
        self._optimizer = torch.optim.SGD(
            self._parameters.values(), lr=0.0, momentum=momentum, weight_decay=weight_decay
        )

    def step(self, images: NDArray[np.float32], labels: NDArray[np.int64], learning_rate: float) -> float:
        x = torch.tensor(images.transpose(0, 3, 1, 2), device=self._device)
        y = torch.tensor(labels, device=self._device)
        self._optimizer.param_groups[0]["lr"] = learning_rate
        self._module.train()
        try:
            with _exact(self._device):
                self._optimizer.zero_grad()
                loss = torch.nn.functional.cross_entropy(self._module(x), y)
                loss.backward()  # type: ignore[no-untyped-call]
                self._optimizer.step()
        finally:
            self._module.eval()
        return float(loss.detach())

    def velocity(self) -> Weights:
        state = self._optimizer.state
        return _canonical(
            {
                name: state[parameter].get("momentum_buffer", torch.zeros_like(parameter))
                for name, parameter in self._parameters.items()
            },
            self._architecture,
        )

    def set_velocity(self, velocity: Weights) -> None:
        for name, buffer in _native(velocity, self._architecture).items():
            self._optimizer.state[self._parameters[name]]["momentum_buffer"] = buffer.to(self._device)


FRAMEWORK = Torch()

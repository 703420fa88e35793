"""Frameworks in hosts: networks live in a child process, and are asked in NumPy."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import HostError, ModelError
from ..hosts.process import Answer, Arrays, HostProcess
from ..networks.architecture import Architecture, is_trainable
from ..networks.weights import Weights
from .base import Device, Function, TrainableFramework, Trainer, require_gpu
from .numpy import NumPy


class Hosted(NumPy, TrainableFramework):
    """A framework in a host.

    Parameters
    ----------
    name : str
        What it is called here.
    start : callable
        Starts its process; called when it is first needed, and again when it has died.
    """

    def __init__(self, name: str, start: Callable[[], HostProcess]):
        self.name = name
        self._start = start
        self._process: HostProcess | None = None
        self._starting = threading.Lock()

    def process(self) -> HostProcess:
        """Return the running process; one that has ended is replaced."""
        with self._starting:
            if self._process is None or not self._process.alive:
                self._process = self._start()
            return self._process

    @property
    def differences(self) -> dict[str, str]:  # type: ignore[override]
        return dict(self.process().greeting["differences"])

    def version(self) -> str:
        return str(self.process().greeting["version"])

    def is_out_of_memory(self, error: Exception) -> bool:
        return getattr(error, "out_of_memory", False) or super().is_out_of_memory(error)

    def parameters(self, native: Any) -> list[NDArray[Any]] | None:
        return [*self.get_weights(native, native.architecture).values()] if isinstance(native, _HostedNetwork) else None

    def place(self, native: Any, device: Device) -> tuple[Function, NDArray[Any]]:
        if not isinstance(native, _HostedNetwork):
            raise ModelError(f"expected a network that {self.name} has built, received {type(native).__name__}")
        require_gpu(self.name, device, has_gpu=False)
        return native, np.zeros(0, np.float32)

    def build(self, architecture: Architecture, seed: int | None, device: Device) -> _HostedNetwork:
        require_gpu(self.name, device, has_gpu=False)
        return _HostedNetwork(self, architecture, seed or 0)

    def get_weights(self, native: Any, architecture: Architecture) -> Weights:
        _, weights = native.call("get_weights")
        return self.check_arrays("get_weights", weights, architecture.weight_shapes)

    def check_arrays(self, call: str, arrays: Weights, shapes: Mapping[str, tuple[int, ...]]) -> Weights:
        """Return an answer's arrays in the order of the shapes that they should have, or raise `HostError`."""
        if {name: array.shape for name, array in arrays.items()} != shapes:
            raise HostError(f"the host {self.name} should answer {call} with {shapes}, received other arrays")
        for name, array in arrays.items():
            if array.dtype.kind != "f" or not np.isfinite(array).all():
                received = f"{array.dtype}" if array.dtype.kind != "f" else "NaN or infinity"
                raise HostError(
                    f"the host {self.name} should answer {call} with finite floats, received {received} for {name}"
                )
        return {name: arrays[name] for name in shapes}

    def set_weights(self, native: Any, architecture: Architecture, weights: Weights) -> None:
        native.call("set_weights", weights)

    def trainer(self, native: Any, architecture: Architecture, momentum: float, weight_decay: float) -> Trainer:
        return _Trainer(native, architecture.weight_shapes, momentum, weight_decay)


class _HostedNetwork:
    """A network in a host: ``network(images) -> logits``."""

    def __init__(self, adapter: Hosted, architecture: Architecture, seed: int):
        self.adapter = adapter
        self.architecture = architecture
        self.process = adapter.process()
        described = architecture.description | {
            "inputs": {layer.name: shape for layer, shape in architecture.walk()},
            "flattened": architecture.flat_shapes,
        }
        answer, _ = self.process.call("build", architecture=described, seed=int(seed))
        self._number = int(answer["is"])
        weakref.finalize(self, self.process.forget, self._number)

    def call(self, call: str, arrays: Arrays | None = None, **content: Any) -> Answer:
        """Ask its host something about it."""
        if not self.process.alive:
            raise HostError(
                f"the host {self.adapter.name} died, and its networks with it. Load the model again, or rerun the same "
                "command: finished cells, and the epochs of a training, are kept"
            )
        return self.process.call(call, arrays, of=self._number, **content)

    def __call__(self, images: NDArray[np.float32]) -> NDArray[np.float32]:
        _, answer = self.call("logits", {"images": images})
        return answer["logits"]

    def vjp(self, images: NDArray[np.float32], v: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return the gradient (N, H, W, C) of Σ v·logits with respect to the images."""
        _, answer = self.call("vjp", {"images": images, "v": v})
        return answer["gradient"]


class _Trainer(Trainer):
    def __init__(
        self, network: _HostedNetwork, shapes: Mapping[str, tuple[int, ...]], momentum: float, weight_decay: float
    ):
        self._network = network
        answer, _ = network.call("trainer", momentum=momentum, weight_decay=weight_decay)
        self._number = int(answer["is"])
        self._shapes = {name: shape for name, shape in shapes.items() if is_trainable(name)}
        weakref.finalize(self, network.process.forget, self._number)

    def _call(self, call: str, arrays: Arrays | None = None, **content: Any) -> Any:
        return self._network.process.call(call, arrays, of=self._number, **content)

    def step(self, images: NDArray[np.float32], labels: NDArray[np.int64], learning_rate: float) -> float:
        answer, _ = self._call("step", {"images": images, "labels": labels}, learning_rate=learning_rate)
        return float(answer["loss"])

    def velocity(self) -> Weights:
        _, velocity = self._call("velocity")
        return self._network.adapter.check_arrays("velocity", velocity, self._shapes)

    def set_velocity(self, velocity: Weights) -> None:
        self._call("set_velocity", velocity)

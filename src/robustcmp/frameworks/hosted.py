"""Frameworks in hosts: networks live in a child process, and are asked in NumPy."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..architecture import Architecture
from ..errors import HostError, ModelError, UsageError
from ..hosts.process import HostProcess
from ..weights import Weights
from .base import Device, Function, TrainableFramework, Trainer
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
        self._restarts = 1

    def process(self) -> HostProcess:
        """Return the running process."""
        with self._starting:
            if self._process is None or not self._process.alive:
                self._process = self._start()
                self.differences = dict(self._process.greeting["differences"])
            return self._process

    def version(self) -> str:
        return str(self.process().greeting["version"])

    def begins(self) -> None:
        self._restarts = 1

    def revived(self, error: HostError) -> None:
        """Allow another attempt after a death, once a cell; raise the error otherwise."""
        if not error.died or not self._restarts:
            raise error
        self._restarts -= 1

    def place(self, native: Any, device: Device) -> tuple[Function, NDArray[Any]]:
        if not isinstance(native, Network):
            raise ModelError(f"expected a network that {self.name} has built, received {type(native).__name__}")
        _check_device(self.name, device)
        return native, np.zeros(0, np.float32)

    def build(self, architecture: Architecture, seed: int, device: Device) -> Network:
        _check_device(self.name, device)
        return Network(self, architecture, seed)

    def get_weights(self, native: Any, architecture: Architecture) -> Weights:
        _, weights = native.call("get_weights")
        expected = architecture.weight_shapes
        if {name: its.shape for name, its in weights.items()} != expected:
            raise HostError(f"the host {self.name} should answer get_weights with {expected}, received other arrays")
        return {name: weights[name] for name in expected}

    def set_weights(self, native: Any, architecture: Architecture, weights: Weights) -> None:
        native.set_weights(weights)

    def trainer(self, native: Any, architecture: Architecture, momentum: float, weight_decay: float) -> Trainer:
        return _Trainer(native, momentum, weight_decay)


def _check_device(name: str, device: Device) -> None:
    if device == "cuda":
        raise UsageError(f"device 'cuda' was asked for, but {name} sees no GPU. Use device='cpu' or 'auto'.")


class Network:
    """A network in a host: ``network(images) -> logits``. If its process has died, it is built again in another."""

    def __init__(self, adapter: Hosted, architecture: Architecture, seed: int):
        self.adapter = adapter
        self._architecture, self._seed = architecture, seed
        self._weights: Weights | None = None
        self._trained = False
        self._process = adapter.process()
        self._number = self._built()

    def _built(self) -> int:
        architecture = self._architecture.described | {
            "inputs": {layer.name: shape for layer, shape in self._architecture.walk()},
            "flattened": self._architecture.flattened,
        }
        answer, _ = self._process.call("build", architecture=architecture, seed=self._seed)
        weakref.finalize(self, self._process.forget, int(answer["is"]))
        return int(answer["is"])

    def call(
        self, call: str, arrays: dict[str, NDArray[Any]] | None = None, **content: Any
    ) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Ask its host something about it."""
        try:
            return self._living().call(call, arrays, of=self._number, **content)
        except HostError as error:
            self.adapter.revived(error)
            return self._living().call(call, arrays, of=self._number, **content)

    def _living(self) -> HostProcess:
        """Return the process that it lives in, a new one with its weights if the last one has died."""
        process = self.adapter.process()
        if process is not self._process:
            if self._trained:
                raise HostError(
                    f"the host {self.adapter.name} died in a training; the same command goes on from its "
                    "last whole epoch"
                )
            self._process = process
            self._number = self._built()
            if self._weights is not None:
                process.call("set_weights", self._weights, of=self._number)
        return process

    def set_weights(self, weights: Weights) -> None:
        """Put canonical weights into it."""
        self.call("set_weights", weights)
        self._weights = {name: np.array(array) for name, array in weights.items()}

    def trainer(self, momentum: float, weight_decay: float) -> int:
        """Return the number of what trains it in its host."""
        answer, _ = self.call("trainer", momentum=momentum, weight_decay=weight_decay)
        self._trained = True
        return int(answer["is"])

    def __call__(self, images: NDArray[np.float32]) -> NDArray[np.float32]:
        _, answer = self.call("logits", {"images": images})
        return self._checked(answer, "logits", (len(images), self._architecture.classes))

    def vjp(self, images: NDArray[np.float32], v: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return the gradient (N, H, W, C) of Σ v·logits with respect to the images."""
        _, answer = self.call("vjp", {"images": images, "v": v})
        return self._checked(answer, "gradient", images.shape)

    def _checked(self, answer: dict[str, NDArray[Any]], name: str, shape: tuple[int, ...]) -> NDArray[np.float32]:
        array = answer.get(name)
        if array is None or array.shape != shape or array.dtype != np.float32:
            received = "nothing" if array is None else f"{array.dtype} {array.shape}"
            raise HostError(f"the host {self.adapter.name} should answer {name} float32 {shape}, received {received}")
        return array


class _Trainer(Trainer):
    def __init__(self, network: Network, momentum: float, weight_decay: float):
        self._network, self._number = network, network.trainer(momentum, weight_decay)
        weakref.finalize(self, network._process.forget, self._number)

    def _call(self, call: str, arrays: dict[str, NDArray[Any]] | None = None, **content: Any) -> Any:
        process = self._network._living()
        return process.call(call, arrays, of=self._number, **content)

    def step(self, images: NDArray[np.float32], labels: NDArray[np.int64], learning_rate: float) -> float:
        answer, _ = self._call("step", {"images": images, "labels": labels}, learning_rate=learning_rate)
        return float(answer["loss"])

    def velocity(self) -> Weights:
        _, velocity = self._call("velocity")
        return dict(velocity)

    def set_velocity(self, velocity: Weights) -> None:
        self._call("set_velocity", velocity)

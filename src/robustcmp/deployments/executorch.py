"""ExecuTorch: a .pte file, a program for phones; asked in an environment of its own, with XNNPACK's kernels.

XNNPACK computes in ExecuTorch's own pool of threads, which has one for each core and does not read OMP_NUM_THREADS: the
host sets its size when it starts, through a function that ExecuTorch calls experimental.
"""

from __future__ import annotations

import threading
import weakref
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import DeploymentError
from ..hosts import environments
from ..hosts.process import HostProcess
from ..models.model import Model
from ..untrusted import read_network
from .base import Conversion, Runtime
from .sessions import Layout, Session

HOST = "executorch"
SIZE = 64  # images in the batch that a program is made for
LARGEST = 2**31  # bytes of a file


class _ExecuTorch(Runtime):
    name = "executorch"
    package = "executorch"
    extra = "hosts"
    suffix = ".pte"
    converters = ("torch",)
    conversions = {
        "": Conversion("float32", "for XNNPACK"),
        "int8": Conversion(
            "int8",
            "weights in int8, a scale a channel; activations in int8 (PT2E, XNNPACKQuantizer)",
            calibrated=True,
        ),
    }

    def __init__(self) -> None:
        self._process: HostProcess | None = None
        self._starting = threading.Lock()

    def version(self) -> str:
        return environments.describe(HOST)["version"] if environments.is_ready(HOST) else "unknown"

    def explain_absence(self) -> str:
        if environments.is_ready(HOST):
            return ""
        return f"{self.name} runs in an environment of its own: create it with robustcmp hosts create {HOST}"

    def process(self) -> HostProcess:
        """Return the process that converts and answers; one that has ended is replaced."""
        with self._starting:
            if self._process is None or not self._process.alive:
                self._process = environments.start(HOST)
            return self._process

    def convert(self, model: Model, kind: str, calibration: NDArray[np.float32] | None, path: Path) -> None:
        architecture = model.architecture
        weights = model.weights
        if architecture is None or weights is None:
            raise DeploymentError(
                f"{self.name} converts models of the zoo and networks of an architecture's file, received another "
                "network. Convert it yourself, and open the .pte file"
            )
        described = architecture.description | {
            "inputs": {layer.name: shape for layer, shape in architecture.walk()},
            "flattened": architecture.flat_shapes,
        }
        process = self.process()
        number = process.call("build", architecture=described, seed=0)[0]["is"]
        try:
            process.call("set_weights", weights, of=number)
            images = {} if calibration is None or kind != "int8" else {"images": calibration}
            shape = list(architecture.input_shape)
            _, answer = process.call("convert", images, of=number, kind=kind, batch=SIZE, shape=shape)
        finally:
            process.forget(number)
        path.write_bytes(answer["program"].tobytes())

    def load(self, path: Path) -> Session:
        content = read_network(path, LARGEST)
        if content[4:8] != b"ET12":
            raise DeploymentError(
                f"{path} is not a program of ExecuTorch: expected ET12 as its bytes 5 to 8. Convert the network again."
            )
        process = self.process()
        number = process.call("load", {"program": np.frombuffer(content, np.uint8)})[0]["is"]
        _, sizes = process.call("sizes", of=number)

        def ask(images: NDArray[Any]) -> Any:
            _, answer = process.call("logits", {"images": images}, of=number)
            return answer["logits"]

        session = Session(Layout.of(sizes["input"].tolist(), "float32", str(path)), ask)
        weakref.finalize(session, process.forget, number)
        return session


RUNTIME = _ExecuTorch()

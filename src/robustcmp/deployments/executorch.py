"""ExecuTorch: a .pte file, a program for phones; asked in an environment of its own, with XNNPACK's kernels.

XNNPACK computes in ExecuTorch's own pool of threads, which has one for each core and does not read OMP_NUM_THREADS: the
host sets its size when it starts, through a function that ExecuTorch calls experimental.
"""

from __future__ import annotations

from pathlib import Path

from ..data.arrays import Images
from ..errors import DeploymentError
from ..hosts import environments
from ..hosts.process import HostProcess
from ..models.model import Model
from ..untrusted import read_network
from .base import Conversion
from .hosted import HostedRuntime
from .sessions import Session

HOST = "executorch"
SIZE = 64  # images in the batch that a program is made for


class _ExecuTorch(HostedRuntime):
    name = "executorch"
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

    def start(self) -> HostProcess:
        return environments.start(HOST)

    def version(self) -> str:
        return environments.describe(HOST)["version"] if environments.is_ready(HOST) else "unknown"

    def explain_absence(self) -> str:
        if environments.is_ready(HOST):
            return ""
        return f"{self.name} runs in an environment of its own: create it with robustcmp hosts create {HOST}"

    def convert(self, model: Model, kind: str, calibration: Images | None, path: Path) -> None:
        architecture = model.architecture
        weights = model.weights
        if architecture is None or weights is None:
            raise DeploymentError(
                f"{self.name} converts models of the zoo and networks of an architecture's file, received another "
                "network. Convert it yourself, and open the .pte file"
            )
        network = self._host.build(architecture, 0, "cpu")
        network.call("set_weights", weights)
        images = {} if calibration is None or kind != "int8" else {"images": calibration}
        shape = list(architecture.input_shape)
        _, answer = network.call("convert", images, kind=kind, batch=SIZE, shape=shape)
        path.write_bytes(answer["program"].tobytes())

    def load(self, path: Path) -> Session:
        content = read_network(path)
        if content[4:8] != b"ET12":
            raise DeploymentError(
                f"{path} is not a program of ExecuTorch: expected ET12 as its bytes 5 to 8. Convert the network again."
            )
        return self.open_program(path, content)


RUNTIME = _ExecuTorch()

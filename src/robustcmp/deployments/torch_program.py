"""Programs of PyTorch from elsewhere, TorchScript or `torch.export`: they could run code, so they run in a host."""

from __future__ import annotations

import sys
from pathlib import Path

from ..data.arrays import Images
from ..errors import DeploymentError
from ..hosts import environments
from ..hosts.process import HostProcess
from ..models.model import Model
from ..untrusted import find_program, read_network
from .base import Conversion
from .hosted import HostedRuntime
from .sessions import Session


class _TorchProgram(HostedRuntime):
    name = "torch-program"
    package = "torch"
    extra = "torch"
    suffix = ".pt2"
    more_suffixes = (".pt", ".pth")
    conversions = {}

    def conversion(self, kind: str) -> Conversion | None:
        return None if kind else Conversion("float32", "a program of PyTorch")

    def start(self) -> HostProcess:
        return environments.run(self.name, sys.executable, environments.HERE / "torch_program_host.py")

    def convert(self, model: Model, kind: str, calibration: Images | None, path: Path) -> None:
        raise DeploymentError(f"{self.name} opens files and writes none: deploy to torch-export")

    def load(self, path: Path) -> Session:
        kind = find_program(path)
        if not kind:
            raise DeploymentError(
                f"{path} is no program of TorchScript or torch.export. Are these weights? torch={path}"
            )
        return self.open_program(path, read_network(path), kind=kind)


RUNTIME = _TorchProgram()

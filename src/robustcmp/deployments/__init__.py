"""Running: networks in runtimes, one a file. Imports models, frameworks, networks, hosts, data and the ground."""

from __future__ import annotations

from functools import cache
from importlib import import_module

from ..errors import UsageError, unknown
from .base import Conversion, Runtime

MODULES = {
    "onnxruntime": "onnxruntime",
    "litert": "litert",
    "openvino": "openvino",
    "torch-export": "torch_export",
    "torch-compile": "torch_compile",
    "executorch": "executorch",
    "coreml": "coreml",
    "onnxruntime-web": "web.onnxruntime_web",
    "tfjs": "web.tfjs",
}
"""The module of each runtime, by its name."""
ALSO = {"onnx": "onnxruntime", "tflite": "litert", "tensorflowjs": "tfjs"}
"""What else people call runtimes."""


@cache
def runtime(name: str) -> Runtime:
    """Return the runtime of that name."""
    found: Runtime = import_module(f".{MODULES[name]}", __name__).RUNTIME
    return found


def names() -> list[str]:
    """Return what there is to deploy to, such as ``"onnxruntime-int8"``; nothing large is imported."""
    return [_joined(name, kind) for name in MODULES for kind in runtime(name).conversions]


def split(name: str) -> tuple[Runtime, str]:
    """Return the runtime and the kind that a name stands for.

    Raises
    ------
    UsageError
        There is none of that name.
    """
    for known in sorted(MODULES, key=len, reverse=True):
        kind = name[len(known) + 1 :]
        if (name == known or name.startswith(f"{known}-")) and runtime(known).conversion(kind) is not None:
            return runtime(known), kind
    also = {
        deployment.replace(runtime_name, word, 1): deployment
        for word, runtime_name in ALSO.items()
        for deployment in names()
        if deployment.startswith(runtime_name)
    }
    raise unknown("deployment", name, names(), also)


def check_runtime(name: str) -> None:
    """Raise `UsageError` for a deployment that is unknown, or whose program is not here."""
    found, _ = split(name)
    if reason := found.missing():
        raise UsageError(reason)


def check_applicable(name: str) -> None:
    """Raise `UsageError` for a deployment that is unknown, or that cannot be asked here."""
    check_runtime(name)
    found, _ = split(name)
    if found.not_applicable:
        raise UsageError(
            f"{name} is not applicable: {found.not_applicable}. --deploy and robustcmp.deploy convert to it, and say "
            "how large the file is."
        )


def conversion(name: str) -> Conversion:
    """Return what is done to a network that is deployed under a name."""
    found, kind = split(name)
    said = found.conversion(kind)
    assert said is not None
    return said


def _joined(name: str, kind: str) -> str:
    return f"{name}-{kind}" if kind else name

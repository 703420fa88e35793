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
    "opencv": "opencv",
    "torch-export": "torch_export",
    "torch-program": "torch_program",
    "torch-compile": "torch_compile",
    "executorch": "executorch",
    "onnxruntime-web": "web.onnxruntime_web",
    "tfjs": "web.tfjs",
}
"""The module of each runtime, by its name."""
ALSO = {"onnx": "onnxruntime", "tflite": "litert", "tensorflowjs": "tfjs"}
"""What else people call runtimes."""


@cache
def runtime(name: str) -> Runtime:
    """Return the runtime of that name."""
    adapter: Runtime = import_module(f".{MODULES[name]}", __name__).RUNTIME
    return adapter


def names() -> list[str]:
    """Return what there is to deploy to, such as ``"onnxruntime-int8"``; nothing large is imported."""
    return [f"{name}-{kind}" if kind else name for name in MODULES for kind in runtime(name).conversions]


def split(name: str) -> tuple[Runtime, str]:
    """Return the runtime and the kind that a name stands for.

    Raises
    ------
    UsageError
        There is none of that name.
    """
    for candidate in sorted(MODULES, key=len, reverse=True):
        kind = name[len(candidate) + 1 :]
        if (name == candidate or name.startswith(f"{candidate}-")) and runtime(candidate).conversion(kind) is not None:
            return runtime(candidate), kind
    also = {
        deployment.replace(runtime_name, word, 1): deployment
        for word, runtime_name in ALSO.items()
        for deployment in names()
        if deployment.startswith(runtime_name)
    }
    raise unknown("deployment", name, names(), also)


def check_runtime(name: str) -> None:
    """Raise `UsageError` for a deployment that is unknown, or whose program is not here."""
    target, _ = split(name)
    if reason := target.explain_absence():
        raise UsageError(reason)


def conversion(name: str) -> Conversion:
    """Return what is done to a network that is deployed under a name."""
    target, kind = split(name)
    how = target.conversion(kind)
    assert how is not None
    return how

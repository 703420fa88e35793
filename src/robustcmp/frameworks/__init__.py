"""The frameworks, by name. An adapter, and with it its framework, is imported only when it is asked for."""

from __future__ import annotations

import sys
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any, cast

from ..errors import ModelError, UsageError, unknown
from .base import DataFormat, Device, Framework, Function, Pullback, TrainableFramework, Trainer

__all__ = [
    "DEVICES",
    "NAMES",
    "DataFormat",
    "Device",
    "Framework",
    "Function",
    "Pullback",
    "TrainableFramework",
    "Trainer",
    "check_device",
    "check_framework",
    "get_framework",
    "installed",
    "recognise",
]

NAMES = ("torch", "tensorflow", "jax")
DEVICES = ("auto", "cpu", "cuda")


def check_device(device: str) -> None:
    """Raise `UsageError` for a device that is none of `DEVICES`."""
    if device not in DEVICES:
        raise unknown("device", device, DEVICES)


def installed() -> list[str]:
    """Return the names of the frameworks that this Python has, without importing one."""
    return [name for name in NAMES if find_spec(name) is not None]


def check_framework(name: str) -> None:
    """Raise `UsageError` for a framework that is unknown or not installed, without importing it."""
    if name not in NAMES:
        raise unknown("framework", name, NAMES)
    if name not in installed():
        raise UsageError(f"the framework {name!r} is not installed. Install it with: pip install 'robustcmp[{name}]'")


def get_framework(name: str) -> TrainableFramework:
    """Return the adapter of a framework.

    Raises
    ------
    UsageError
        There is none of that name, or the framework is not installed.
    """
    check_framework(name)
    return cast(TrainableFramework, _adapter(name))


@cache
def _adapter(name: str) -> Framework:
    framework: Framework = import_module(f".{name}", __name__).FRAMEWORK
    return framework


def recognise(thing: Any) -> Framework:
    """Return the adapter of the framework that a network or a tensor belongs to, told by its class's module.

    Nothing is imported to find out: whoever holds a torch tensor has imported torch.

    Raises
    ------
    ModelError
        It belongs to none of the frameworks.
    """
    for cls in type(thing).__mro__:
        package = cls.__module__.partition(".")[0]
        if package == "keras":
            package = _keras_backend()
        package = {"jaxlib": "jax"}.get(package, package)
        if package in (*NAMES, "numpy"):
            return _adapter(package)
    raise ModelError(
        f"expected a network or tensor of {', '.join(NAMES)}, "
        f"received {type(thing).__module__}.{type(thing).__name__}. "
        "Pass framework= for a plain JAX function."
    )


def _keras_backend() -> str:
    backend: str = sys.modules["keras"].backend.backend()
    return backend

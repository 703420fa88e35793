"""Running: the frameworks, an adapter a file, imported when asked for. Imports hosts, networks and the ground."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from functools import cache, partial
from importlib import import_module
from importlib.util import find_spec
from typing import Any, NamedTuple, cast

from ..errors import ModelError, UsageError, unknown
from ..hosts import environments
from ..provenance import package_version
from .base import DataFormat, Device, Framework, Function, Make, Pullback, TrainableFramework, Trainer, require_gpu

__all__ = [
    "DataFormat",
    "Device",
    "Framework",
    "Function",
    "Make",
    "Pullback",
    "TrainableFramework",
    "Trainer",
    "require_gpu",
]


class _Entry(NamedTuple):
    """What is known of a framework of this process before its adapter, the module of its name, is imported.

    Attributes
    ----------
    files : tuple of str
        How the names of files end that it loads.
    also : tuple of str
        What else people call it.
    packages : tuple of str
        Other packages whose classes belong to it.
    """

    files: tuple[str, ...] = ()
    also: tuple[str, ...] = ()
    packages: tuple[str, ...] = ()


ENTRIES = {
    "torch": _Entry(files=(".pt", ".pth", ".ckpt", ".bin", ".safetensors"), also=("pytorch",)),
    "tensorflow": _Entry(files=(".keras", ".hdf5", ".weights.h5"), also=("keras", "tf")),
    "jax": _Entry(packages=("jaxlib", "flax", "equinox", "haiku")),
}
NAMES = tuple(ENTRIES)
"""Those that live in this process; the others live in hosts."""
FILES = {name: entry.files for name, entry in ENTRIES.items() if entry.files}
ALSO = {word: name for name, entry in ENTRIES.items() for word in entry.also}
_OWNERS = {package: name for name, entry in ENTRIES.items() for package in entry.packages}
NONE_INSTALLED = "no framework is installed. Install one with: pip install 'robustcmp[torch]'"
DEVICES = ("auto", "cpu", "cuda")


def check_device(device: str) -> None:
    """Raise `UsageError` for a device that is none of `DEVICES`."""
    if device not in DEVICES:
        raise unknown("device", device, DEVICES, {"gpu": "cuda"})


def list_installed() -> list[str]:
    """Return the names of the frameworks that this Python has, without importing one."""
    return [name for name in NAMES if find_spec(name) is not None]


def available() -> list[str]:
    """Return the names of the frameworks that are installed, and of the hosts that have an environment."""
    return [*list_installed(), *(name for name in environments.names() if environments.is_ready(name))]


def known() -> list[str]:
    """Return the names of all frameworks and hosts, also of those that are not here."""
    return [*NAMES, *environments.names()]


def check_name(name: str) -> None:
    """Raise `UsageError` for a framework that is unknown."""
    if name not in known():
        raise unknown("framework", name, known(), ALSO)


def require_name(name: str | None) -> str:
    """Return the name of a framework that a caller gave, or raise `UsageError` with those installed if none was."""
    if name is None:
        choice = f"Installed here: {', '.join(list_installed())}." if list_installed() else NONE_INSTALLED
        raise UsageError(f"name a framework, as in framework='torch'. {choice}")
    return name


def check_framework(name: str) -> None:
    """Raise `UsageError` for a framework that is unknown or not installed, without importing it."""
    check_name(name)
    if name not in NAMES:
        environments.describe(name)
    elif name not in list_installed():
        raise UsageError(f"the framework {name!r} is not installed. Install it with: pip install 'robustcmp[{name}]'")


@cache
def versions(name: str) -> list[str | None]:
    """Return what tells two installations of a framework apart, without importing it or starting its host."""
    if name in NAMES:
        return [package_version(package) for package in (name, f"{name}-cpu", "keras", "jaxlib")]
    about = environments.describe(name)
    return [about["version"], about["python"], about["requirements"]]


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
    if name in (*NAMES, "numpy"):
        return cast(Framework, import_module(f".{name}", __name__).FRAMEWORK)
    from .hosted import Hosted

    return Hosted(name, partial(environments.start, name))


def recognise(thing: Any, native: Any = None) -> Framework:
    """Return the adapter of the framework that a network or a tensor belongs to, told by its class's module.

    Nothing is imported to find out: whoever holds a torch tensor has imported torch. A network in a host knows its
    adapter; its tensors are NumPy's, so `native` is the network behind them where that is known.

    Raises
    ------
    ModelError
        It belongs to none of the frameworks.
    """
    for network in (native, thing):
        if isinstance(adapter := getattr(network, "adapter", None), Framework):
            return adapter
    if type(thing) is tuple and len(thing) == 2 and "jax" in sys.modules:  # (apply, parameters)
        return _adapter("jax")
    for cls in type(thing).__mro__:
        package = cls.__module__.partition(".")[0]
        if package == "keras":
            package = str(sys.modules["keras"].backend.backend())
        package = _OWNERS.get(package, package)
        if package in (*NAMES, "numpy"):
            return _adapter(package)
    raise ModelError(
        f"expected a network or tensor of {', '.join(NAMES)}, "
        f"received {type(thing).__module__}.{type(thing).__name__}. {_remedy(thing)}"
    )


def _remedy(thing: Any) -> str:
    """Say what makes a network of what a caller brought."""
    if isinstance(thing, str | os.PathLike):
        return "Load the network first, or compare files with robustcmp eval --weights."
    if isinstance(thing, Mapping):
        return "These are weights: load them into their network, in torch network.load_state_dict(weights)."
    return (
        "Pass framework= for a plain JAX function, or a pair (apply, parameters); any other code, such as a classifier "
        "of scikit-learn, goes into robustcmp.wrap_functions(logits=lambda x: classifier.predict_proba(x.reshape("
        'len(x), -1)), outputs="probabilities").'
    )

"""Networks from a function of the user's own. Code is run only where the user names it, as ``module:function``."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar

import foolbox as fb
import msgspec

from ..errors import ModelError, UsageError, nearest
from ..frameworks import Device, recognise
from ..models.classifier import Classifier

NUMPY = "numpy"  # functions of arrays, in the place of a framework
FUNCTION = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")


def is_function(source: str) -> bool:
    """Say whether something names code, ``module:function``, and not a file."""
    return FUNCTION.fullmatch(source) is not None and not Path(source).exists()


class FromFunction(msgspec.Struct, frozen=True, tag="function"):
    """A model that a function of the user's own makes, so that other processes can make it, too.

    Attributes
    ----------
    source : str
        The function, ``module:function``.
    """

    source: str

    @property
    def label(self) -> str:
        """What it is called: as its function."""
        return self.source.partition(":")[2]

    # Code has a part in it, so nothing is known before it is run.
    fingerprint: ClassVar[None] = None
    # Which it takes is known once it is loaded.
    frameworks: ClassVar[tuple[str, ...]] = ()
    files: ClassVar[dict[str, Path]] = {}

    def load(self, device: Device = "auto") -> fb.models.base.Model:
        """Call the function, and return the model that it returns."""
        model = call_function(self.source)
        if not isinstance(model, fb.models.base.Model):
            raise ModelError(
                f"{self.source} should return a Foolbox model, as robustcmp.wrap does; received {type(model).__name__}"
            )
        return model

    def load_from(self, files: Mapping[str, Path], device: Device = "auto") -> fb.models.base.Model:
        """Load it, as `load` does."""
        return self.load(device)


def from_function(function: str) -> FromFunction:
    """Return a model that a function makes, to be loaded wherever it is needed.

    `evaluate` takes it in the place of a model. Other processes, of executors that have any, call the function again,
    so it should return the same model every time. A model that you pass itself is attacked in this process.

    Parameters
    ----------
    function : str
        ``"module:function"``: a function without arguments that returns a Foolbox model, such as `wrap` makes. Its
        module has to be importable where it is called; the working directory is looked at.

    Raises
    ------
    UsageError
        The text has another form.

    Examples
    --------
    >>> from_function("nets:mine")
    FromFunction(source='nets:mine')
    """
    if not isinstance(function, str) or not FUNCTION.fullmatch(function):
        raise UsageError(f"expected a function as 'module:function', received {function!r}")
    return FromFunction(function)


def call_function(name: str, *arguments: Any) -> Any:
    """Import a function, ``module:function``, and return what it returns; the working directory is looked at."""
    module, _, function = name.partition(":")
    if os.getcwd() not in sys.path and "" not in sys.path:
        sys.path.insert(0, os.getcwd())  # as `python -m` does
    if module.endswith(".py"):
        raise UsageError(f"{name}: name the module without .py, {module.removesuffix('.py')}:{function}")
    try:
        loaded = import_module(module)
    except Exception as error:
        if isinstance(error, ModuleNotFoundError) and f"{module}.".startswith(f"{error.name}."):
            raise UsageError(f"there is no module {error.name!r} in {os.getcwd()}, and none is installed") from None
        raise ModelError(f"{module} failed when it was imported: {type(error).__name__}: {error}") from error
    if not hasattr(loaded, function):
        names = [key for key, value in vars(loaded).items() if getattr(value, "__module__", None) == module]
        near = suggest(nearest(function, names))
        raise UsageError(f"{loaded.__file__ or module} has no attribute {function!r}{near} It has {', '.join(names)}")
    imported = getattr(loaded, function)
    if isinstance(imported, fb.models.base.Model) or framework_of(imported):
        raise ModelError(f"{name} is a network itself. Name a function that returns it: def made(): return {function}")
    if not callable(imported):
        raise ModelError(f"{name} should be a function, received {type(imported).__name__}")
    try:
        return imported(*arguments)
    except Exception as error:
        raise ModelError(f"{name} failed: {type(error).__name__}: {error}") from error


def suggest(near: str | None) -> str:
    """Return the end of a sentence about an unknown name."""
    return f": did you mean {near!r}?" if near else "."


def framework_of(native: Any) -> str | None:
    """Return the framework that an object belongs to, None for a plain function."""
    if isinstance(native, fb.models.base.Model):
        return Classifier(native).framework.name
    try:
        return recognise(native).name
    except ModelError:
        return None

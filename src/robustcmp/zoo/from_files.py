"""Networks that were trained elsewhere, from files or from a function of the user's own.

Files are data: nothing of them is run. Code is run only where the user names it, as ``module:function``.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import foolbox as fb
import numpy as np

from ..errors import ModelError, UsageError, WeightsError
from ..files import file_digest
from ..frameworks import Device, TrainableFramework, check_framework, get_framework, recognise, versions
from ..models.classifier import Classifier
from ..models.model import wrap
from ..networks.architecture import get_architecture
from ..networks.weights import Weights, WeightsFile, check_shapes, is_sealed, read_weights

CANONICAL = (".h5", ".npz")  # weights by their canonical names, for any framework
WHOLE = ".keras"  # a file that holds the network, too
FUNCTION = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")


def is_function(source: str) -> bool:
    """Say whether something names code, ``module:function``, and not a file."""
    return FUNCTION.fullmatch(source) is not None and not Path(source).exists()


@dataclass(frozen=True)
class Sources:
    """Where the networks of a comparison come from, checked, and nothing loaded yet.

    Attributes
    ----------
    by_framework : dict of str to list of str
        Files, or functions as ``module:function``; several of one framework are counted as its training seeds.
    architecture : str, optional
        What network the files are for, as for `load_network`.

    Examples
    --------
    >>> Sources.parse(["torch=nets:mine", "torch=nets:other", "jax=nets:mine"]).by_framework
    {'torch': ['nets:mine', 'nets:other'], 'jax': ['nets:mine']}
    """

    by_framework: dict[str, list[str]]
    architecture: str | None = None

    @classmethod
    def parse(cls, given: Sequence[str], architecture: str | None = None) -> Sources:
        """Check texts ``FRAMEWORK=FILE`` and ``FRAMEWORK=module:function``.

        Raises
        ------
        UsageError
            A text has another form, a framework is unknown or not installed, a file is not there, or it needs an
            architecture and none was named.
        """
        if architecture is not None and not is_function(architecture):
            get_architecture(architecture)
        by_framework: dict[str, list[str]] = {}
        for text in given:
            framework, equals, source = text.partition("=")
            if not equals or not source:
                raise UsageError(f"expected FRAMEWORK=FILE or FRAMEWORK=module:function, received {text!r}")
            check_framework(framework)
            if not is_function(source) and not Path(source).is_file():
                hint = ". Code is named without .py, as module:function" if ".py:" in source else ""
                raise UsageError(f"there is no file {source}{hint}")
            if _content(source) in map(_content, by_framework.setdefault(framework, [])):
                raise UsageError(f"{text} was given twice, or it is a copy of another file")
            if not is_function(source) and architecture is None and Path(source).suffix != WHOLE:
                raise _no_architecture(source)
            by_framework[framework].append(source)
        return cls(by_framework, architecture)

    @property
    def design(self) -> str | None:
        """The architecture, where it is data and not code."""
        return None if self.architecture is None or is_function(self.architecture) else self.architecture

    @property
    def name(self) -> str:
        """What the networks are called in headings."""
        if self.design:
            return get_architecture(self.design).name
        return self.architecture.partition(":")[2] if self.architecture else "own"

    @property
    def fingerprint(self) -> dict[str, Any] | None:
        """What tells the networks apart, without loading a framework; None where code has a part in it."""
        sources = [source for its in self.by_framework.values() for source in its]
        if any(map(is_function, [*sources, self.architecture or ""])):
            return None
        return {
            "files": {name: [file_digest(Path(file)) for file in files] for name, files in self.by_framework.items()},
            "architecture": self.design and get_architecture(self.design).described,
            "versions": {name: versions(name) for name in self.by_framework},
        }

    def load(self, device: Device = "auto") -> dict[str, list[fb.models.base.Model]]:
        """Load the networks, by framework."""
        return {
            framework: [load_network(source, framework, self.architecture, device=device) for source in its]
            for framework, its in self.by_framework.items()
        }


def _content(source: str) -> str:
    """What tells sources apart: a file is the same under every name."""
    return source if is_function(source) else file_digest(Path(source))


def load_network(
    source: str, framework: str, architecture: str | None = None, *, device: Device = "auto"
) -> fb.models.base.Model:
    """Load one network that was trained elsewhere.

    Parameters
    ----------
    source : str
        A file: canonical weights for any framework (``.h5`` of robustcmp, ``.npz`` of NumPy), a state dict of torch
        (``.pt``, ``.pth``), a whole model of Keras (``.keras``) or its weights (``.weights.h5``).
        Or code, ``module:function``: it takes nothing and returns a trained network, or what `wrap` makes of one.
    framework : str
        The framework that runs it.
    architecture : str, optional
        What network a file's weights are for: a name, ``FILE.toml``, or ``module:function``, whose function returns
        the untrained network (in jax: takes the weights, and returns a function from images to logits). A whole model
        needs none; its shapes are compared with those of one that is named.
    device : str, default "auto"
        ``"auto"``, ``"cpu"`` or ``"cuda"``.

    Raises
    ------
    UsageError
        The framework reads no such file, or the code that was named is not there.
    WeightsError
        The file is broken, holds more than data, or its arrays do not fit the architecture.
    ModelError
        What a function returned is no network of the framework, or the function failed.
    """
    adapter = get_framework(framework)
    if is_function(source):
        return _as_model(_called(source), adapter, source, device, {})
    path = Path(source)
    if architecture is None and path.suffix != WHOLE:
        raise _no_architecture(source)
    info: dict[str, Any] = {"sha256": file_digest(path)}
    if path.name.endswith(adapter.files):
        network = None if architecture is None else _untrained(architecture, adapter)
        return _as_model(adapter.load(path, network), adapter, source, device, info)
    if path.suffix not in CANONICAL:
        raise UsageError(f"{framework} reads {', '.join((*adapter.files, *CANONICAL))}, received {source}")
    content = _canonical(path)
    info = content.metadata | info
    assert architecture is not None
    if is_function(architecture):
        if framework != "jax":
            raise UsageError(f"for {source} the architecture should be a name or FILE.toml, received {architecture}")
        return _as_model(_called(architecture, content.weights), adapter, source, device, info)
    _check_design(content, architecture, source)
    network = _untrained(architecture, adapter)
    adapter.set_weights(network, get_architecture(architecture), content.weights)
    return _as_model(network, adapter, source, device, info)


def _no_architecture(source: str) -> UsageError:
    return UsageError(
        f"{source} holds weights alone: say with architecture what network they are for", parameters=["architecture"]
    )


def _check_design(content: WeightsFile, architecture: str, source: str) -> None:
    """Raise `WeightsError` unless weights are those of a design, as far as the file says it."""
    design = get_architecture(architecture)
    check_shapes(content.weights, design, source)
    trained, named = (
        {**its, "name": ""} for its in (content.metadata.get("architecture", design.described), design.described)
    )
    if trained != named:
        raise WeightsError(
            f"{source} was trained for another design than {architecture}: its layers were {trained['layers']}"
        )


def _canonical(path: Path) -> WeightsFile:
    if path.suffix == ".h5":
        if not is_sealed(path):
            raise WeightsError(
                f"{path} is no weights file of robustcmp. For tensorflow save a whole model as x.keras, or weights "
                "with model.save_weights('x.weights.h5'). An older .h5 of Keras could run code and is not read."
            )
        return read_weights(path)
    try:
        with open(path, "rb") as file, np.load(file, allow_pickle=False) as arrays:
            weights: Weights = {name: arrays[name].astype(np.float32) for name in arrays.files}
    except Exception as error:  # a broken archive can raise anything
        raise WeightsError(f"{path} is no file of arrays by name, as numpy.savez writes them ({error})") from None
    return WeightsFile(weights, {})


def _untrained(architecture: str, adapter: TrainableFramework) -> Any:
    if is_function(architecture):
        return _called(architecture)
    return adapter.build(get_architecture(architecture), 0, "cpu")


def _called(name: str, *arguments: Any) -> Any:
    """Import a function and return what it returns."""
    module, _, function = name.partition(":")
    if os.getcwd() not in sys.path and "" not in sys.path:
        sys.path.insert(0, os.getcwd())  # as `python -m` does
    if module.endswith(".py"):
        raise UsageError(f"{name}: a module is named without .py, {module.removesuffix('.py')}:{function}")
    try:
        found = getattr(import_module(module), function)
    except (ImportError, AttributeError) as error:
        raise UsageError(f"{name}: {error}") from None
    except Exception as error:
        raise ModelError(f"{module} failed when it was imported: {type(error).__name__}: {error}") from error
    try:
        return found(*arguments)
    except Exception as error:
        raise ModelError(f"{name} failed: {type(error).__name__}: {error}") from error


def _as_model(
    native: Any, adapter: TrainableFramework, source: str, device: Device, info: dict[str, Any]
) -> fb.models.base.Model:
    if isinstance(native, fb.models.base.Model):
        its = Classifier(native).framework.name
    else:
        its = _framework_of(native) or adapter.name
    if its != adapter.name:
        raise ModelError(f"{source} is a network of {its}, and was given for {adapter.name}")
    if isinstance(native, fb.models.base.Model):
        return native
    return wrap(native, framework=adapter.name, device=device, info=info | {"source": Path(source).name})


def _framework_of(native: Any) -> str | None:
    """The framework that an object belongs to, None for a plain function."""
    try:
        return recognise(native).name
    except ModelError:
        return None

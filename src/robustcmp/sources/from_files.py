"""Networks that were trained elsewhere, from files or from a function of the user's own.

Files are data: nothing of them is run. Code is run only where the user names it, as ``module:function``.
"""

from __future__ import annotations

import math
import os
import re
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from importlib import import_module
from inspect import signature
from pathlib import Path
from pkgutil import iter_modules
from types import ModuleType
from typing import Any, ClassVar

import foolbox as fb
import msgspec
import numpy as np

from ..deployments import ALSO as ALSO_RUNTIMES
from ..deployments import MODULES as RUNTIMES
from ..deployments import check_applicable, runtime, split
from ..deployments.deploying import beside, open_deployed
from ..deployments.model import DeployedModel, Files, Gradient
from ..deployments.onnx_files import external_files, read_onnx
from ..errors import ModelError, UsageError, WeightsError, enough_memory, nearest, unknown
from ..files import file_digest
from ..frameworks import (
    ALSO,
    FILES,
    Device,
    TrainableFramework,
    check_framework,
    get_framework,
    known,
    recognise,
    versions,
)
from ..frameworks.keras_hdf5 import read_description
from ..models.classifier import Classifier
from ..models.functions import is_estimator, of_estimator, wrap_functions
from ..models.model import Model, wrap
from ..networks.architecture import Architecture, get_architecture
from ..networks.weights import Weights, WeightsFile, check_finite, check_sealed, check_shapes, is_sealed, read_weights
from ..untrusted import check_archive, check_file, check_hdf5, check_no_program, check_own

ONNX = ".onnx"
RETURNED = "a function of images (N, H, W, C), a classifier of scikit-learn, or what robustcmp.wrap_functions makes"
OF_ONE = "For other models of the command, name them: --mean NAME=X, --cut-softmax NAME"
OF_NUMPY = ("sklearn", "scikit-learn", "np")  # what else people call numpy
CANONICAL = (".h5", ".npz", ONNX)  # weights in the canonical layout, for any framework
NUMPY = "numpy"  # functions of arrays and classifiers of scikit-learn, in the place of a framework
FUNCTION = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")


def is_function(source: str) -> bool:
    """Say whether something names code, ``module:function``, and not a file."""
    return FUNCTION.fullmatch(source) is not None and not Path(source).exists()


class FromFile(msgspec.Struct, frozen=True, tag="file"):
    """One network that was trained elsewhere.

    Attributes
    ----------
    source : str
        A file, or a function as ``module:function``.
    framework : str
        The framework that it runs in.
    architecture : str, optional
        What network the file is for, as for `load_network`.
    mean, std : tuple of float
        What a file's network expects of its images, as for `load_network`.
    cut_softmax : bool
        Whether the softmax at its end is cut.
    """

    source: str
    framework: str
    architecture: str | None = None
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()
    cut_softmax: bool = False

    @property
    def label(self) -> str:
        """What it is called in a comparison that gives it no name: the framework that it runs in."""
        return self.framework

    @property
    def design(self) -> str | None:
        """The architecture, where it is data and not code."""
        return None if self.architecture is None or is_function(self.architecture) else self.architecture

    @property
    def name(self) -> str:
        """What the network is called in headings."""
        if self.design:
            return get_architecture(self.design).name
        return self.architecture.partition(":")[2] if self.architecture else "own"

    @property
    def fingerprint(self) -> dict[str, Any] | None:
        """What tells it from other networks, without loading a framework; None where code has a part in it."""
        if is_function(self.source) or (self.architecture and not self.design):
            return None
        return {
            "file": self.sha256,
            "architecture": self.design and get_architecture(self.design).described,
            "versions": versions(self.framework),
            **({"mean": self.mean, "std": self.std} if self.mean or self.std else {}),
            **({"cut_softmax": True} if self.cut_softmax else {}),
        }

    @property
    def sha256(self) -> str:
        """The digest of its file, together with files that hold values of its network."""
        return _digest(Path(self.source))

    def check(self) -> None:
        """Raise `UsageError` for a framework that is not there, a file that is not, or one without an architecture.

        And `WeightsError` for a file that cannot be one, before it is read.
        """
        if self.framework not in (*known(), NUMPY):
            also = ALSO | ALSO_RUNTIMES | dict.fromkeys(OF_NUMPY, NUMPY)
            raise unknown("framework", self.framework, (*known(), NUMPY, *RUNTIMES), also)
        if self.framework != NUMPY:
            check_framework(self.framework)
        if self.framework == NUMPY and self.cut_softmax:
            raise UsageError(
                f"--cut-softmax is for networks of frameworks: let {self.source} return logits, or "
                f'robustcmp.wrap_functions(..., outputs="probabilities"). {OF_ONE}'
            )
        _check_normalisation(self.mean, self.std)
        if is_function(self.source):
            if self.mean or self.std:
                raise UsageError(
                    f"--mean and --std are for files: let {self.source} return robustcmp.wrap(network, "
                    f"preprocessing=dict(mean=..., std=..., axis=...)). {OF_ONE}"
                )
            return
        if self.framework == NUMPY:
            raise UsageError(
                f"numpy= takes code, module:function, a function without arguments that returns {RETURNED}; received "
                f"{self.source}"
            )
        check_no_program(Path(self.source))
        _check_there(self.source)
        if self.source.endswith((".keras", ".hdf5")) and self.framework in ("torch", "jax"):
            raise UsageError(
                f"{self.source} is a model of Keras: write tensorflow={self.source}; or set KERAS_BACKEND="
                f"{self.framework}, and return keras.models.load_model(path) from a function of your own, "
                "module:function"
            )
        _check_ending(self.source, self.framework)
        check_file(Path(self.source))
        _external(Path(self.source))
        _check_own_hdf5(Path(self.source), self.framework)
        if self.architecture is None and not _is_whole(Path(self.source)):
            raise _no_architecture(self.source)

    @property
    def frameworks(self) -> tuple[str, ...]:
        """The frameworks that it takes to load it."""
        return (self.framework,)

    @property
    def files(self) -> dict[str, Path]:
        """The files that it is loaded from, by what they are."""
        files = {} if is_function(self.source) else {"source": Path(self.source)}
        files |= {f"beside {place}": path for place, path in enumerate(_external(Path(self.source)))}
        design = self.design or ""
        return files | ({"architecture": Path(design)} if design.endswith(".toml") else {})

    def load_from(self, files: Mapping[str, Path], device: Device = "auto") -> fb.models.base.Model:
        """Load it from copies of its `files` in one folder, which have their names."""
        changed = {field: str(path) for field, path in files.items() if field in self.__struct_fields__}
        return msgspec.structs.replace(self, **changed).load(device)

    def load(self, device: Device = "auto") -> fb.models.base.Model:
        """Load it, as `load_network` does."""
        options: dict[str, Any] = {"mean": self.mean, "std": self.std, "cut_softmax": self.cut_softmax}
        return load_network(self.source, self.framework, self.architecture, device=device, **options)


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

    fingerprint: ClassVar[None] = None
    """Code has a part in it, so nothing is known before it is run."""
    frameworks: ClassVar[tuple[str, ...]] = ()
    """Which it takes is known once it is loaded."""
    files: ClassVar[dict[str, Path]] = {}

    def load(self, device: Device = "auto") -> fb.models.base.Model:
        """Call the function, and return the model that it returns."""
        model = called(self.source)
        if not isinstance(model, fb.models.base.Model):
            raise ModelError(
                f"{self.source} should return a Foolbox model, as robustcmp.wrap does; received {type(model).__name__}"
            )
        return model

    def load_from(self, files: Mapping[str, Path], device: Device = "auto") -> fb.models.base.Model:
        """Load it, as `load` does."""
        return self.load(device)


class FromDeployedFile(msgspec.Struct, frozen=True, tag="deployed-file"):
    """A deployed network in a file of its runtime. It is opened where the comparison is made.

    Attributes
    ----------
    source : str
        The file.
    framework : str
        The runtime.
    converted_from : FromFile, optional
        The trained network that it is compared with, as converted from this one.
    gradient : str
        What gradient attacks follow, as for `robustcmp.open_deployed`.
    mean, std : tuple of float
        It expects ``(images - mean) / std``, as in `FromFile`; if both are empty, what `converted_from` does to images.
    """

    source: str
    framework: str
    converted_from: FromFile | None = None
    gradient: Gradient = "source"
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()
    design: ClassVar[None] = None
    """Its layers are known to its runtime alone."""
    name: ClassVar[str] = "own"

    @property
    def label(self) -> str:
        """What it is called in a comparison that gives it no name: as its runtime."""
        return self.framework

    @property
    def as_given(self) -> FromFile | FromDeployedFile | None:
        """What says how images are normalised: itself, or what it was converted from; None if nothing does."""
        return self if self.mean or self.std else self.converted_from

    def check(self) -> None:
        """Raise `UsageError` for what is not there, and `WeightsError` for a file that cannot be one."""
        check_applicable(self.framework)
        _check_normalisation(self.mean, self.std)
        _check_there(self.source)
        _check_ending(self.source, self.framework)
        runtime, _ = split(self.framework)
        main = Path(self.source)
        check_file(main)
        if runtime.marks(main):
            check_own(main)
        else:
            check_no_program(main)
        beside(runtime, main)

    @property
    def sha256(self) -> str:
        """The digest of its files."""
        runtime, _ = split(self.framework)
        return Files.of(Path(self.source), beside(runtime, Path(self.source))).sha256

    @property
    def fingerprint(self) -> dict[str, Any] | None:
        """What tells it from other networks; None where code has a part in what it was converted from."""
        runtime, _ = split(self.framework)
        main = Path(self.source)
        said = {
            "files": [file_digest(path) for path in (main, *beside(runtime, main))],
            "versions": [self.framework, runtime.version()],
            "gradient": self.gradient,
            **({"mean": self.mean, "std": self.std} if self.mean or self.std else {}),
        }
        if self.converted_from is None:
            return said
        source = self.converted_from.fingerprint
        return None if source is None else said | {"converted_from": source}

    def load(self, device: Device = "auto") -> DeployedModel:
        """Open it, beside the model that it was converted from where that is known."""
        model = self.converted_from.load(device) if self.converted_from else None
        source = model if isinstance(model, Model) else None
        options: dict[str, Any] = {"source": source, "gradient": self.gradient}
        if self.mean or self.std:
            mean, std = [*self.mean] or [0.0], [*self.std] or [1.0]
            nothing = not any(mean) and {*std} == {1.0}
            options |= {"bounds": (0, 1)}
            options |= {} if nothing else {"preprocessing": {"mean": mean, "std": std, "axis": -1}}
        return open_deployed(self.source, self.framework, **options)


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


def _check_there(source: str) -> None:
    """Raise `UsageError` unless there is a file."""
    path = Path(source)
    if path.is_file():
        return
    if path.is_dir():
        raise UsageError(f"expected a file, received the directory {source}")
    if path.exists():
        raise UsageError(f"expected a file, received {source}, a pipe or a device")
    near = nearest(path.name, [other.name for other in path.parent.glob("*")])
    hint = ". Code is named without .py, as module:function" if ".py:" in source else _meant(near)
    raise UsageError(f"there is no file {source}{hint}")


def _check_ending(source: str, framework: str) -> None:
    """Raise `UsageError` for a file that a framework or a runtime does not read."""
    own = FILES | {name: (runtime(name).suffix,) for name in RUNTIMES}
    read = own[framework] if framework in RUNTIMES else (*own.get(framework, ()), *CANONICAL)
    if source.endswith(read):
        return
    others = [name for name, endings in own.items() if source.endswith(endings)]
    if source.endswith(".py"):
        remedy = (
            f"Code is named as module:function: {framework}={Path(source).stem}:FUNCTION, which returns the network"
        )
    elif framework in RUNTIMES and (main := Path(source).with_suffix(read[0])).is_file():
        remedy = f"Write {framework}={main}"
    elif others:
        remedy = f"Write {others[0]}={source}"
    else:
        remedy = "Save the network as one of these, or return it from a function of your own, module:function"
    raise UsageError(f"{framework} reads {', '.join(read)}, received {source}. {remedy}")


def _is_of_keras(path: Path) -> bool:
    """Say whether a file can be nothing but a whole model of Keras."""
    if path.suffix == ".h5":
        return not path.name.endswith(".weights.h5") and not is_sealed(path)
    return path.suffix in (".keras", ".hdf5")


def _is_whole(path: Path) -> bool:
    """Say whether a file holds its network, too."""
    return path.suffix == ONNX or _is_of_keras(path)


def _check_own_hdf5(path: Path, framework: str) -> None:
    """Raise `WeightsError` for an ``.h5`` that is of neither robustcmp nor Keras, or whose model needs code."""
    if framework == "tensorflow" and path.suffix in (".h5", ".hdf5") and _is_of_keras(path):
        read_description(path)
    if path.suffix == ".h5" and framework != "tensorflow" and not is_sealed(path):
        raise WeightsError(
            f"{path} is not a weights file of robustcmp. If it is a model of Keras, or its weights, write "
            f"tensorflow={path}"
        )


def _check_normalisation(mean: Sequence[float], std: Sequence[float]) -> None:
    """Raise `UsageError` for numbers that images cannot be normalised with."""
    if not all(map(math.isfinite, mean)):
        raise UsageError(f"mean: expected finite numbers, received {[*mean]}")
    if not all(math.isfinite(value) and value > 0 for value in std):
        raise UsageError(f"std: expected positive numbers, received {[*std]}")
    if len({len(given) for given in (mean, std)} - {0, 1}) > 1:
        raise UsageError(f"mean and std need as many numbers, received {[*mean]} and {[*std]}")


@enough_memory("these weights", "the size of the network, or compare fewer networks at once")
def load_network(
    source: str,
    framework: str,
    architecture: str | None = None,
    *,
    mean: Sequence[float] = (),
    std: Sequence[float] = (),
    cut_softmax: bool = False,
    device: Device = "auto",
) -> fb.models.base.Model:
    """Load one network that was trained elsewhere.

    Parameters
    ----------
    source : str
        A file: canonical weights for any framework (``.h5`` of robustcmp, ``.npz`` of NumPy), an ONNX network of
        robustcmp's layers for any framework (``.onnx``), a state dict of torch, alone or in a checkpoint (``.pt``,
        ``.pth``, ``.ckpt``, ``.bin``, ``.safetensors``), a whole model of Keras (``.keras``, ``.h5``, ``.hdf5``) or its
        weights (``.weights.h5``).
        Or code, ``module:function``: it takes nothing and returns a trained network, or what `wrap` makes of one.
    framework : str
        The framework that runs it, or ``"numpy"`` for code that returns a function of images (N, H, W, C), a classifier
        of scikit-learn, or what `wrap_functions` makes.
    architecture : str, optional
        What network a file's weights are for: a name, ``FILE.toml``, or ``module:function``, whose function returns
        the untrained network (in jax: takes the weights, and returns a pair or a function for `wrap`). A whole model
        needs none; its shapes are compared with those of a name or a ``FILE.toml``. Nor does an ONNX network; its
        layers have to be those of one that is named, but for their names.
    mean, std : sequence of float
        The network of a file expects ``(images - mean) / std`` of images in [0, 1]: one number for each channel or one
        for all. Left out, they are 0 and 1.
    cut_softmax : bool, default False
        Ask the network without the softmax at its end, as for `wrap`.
    device : str, default "auto"
        ``"auto"``, ``"cpu"`` or ``"cuda"``.

    Raises
    ------
    UsageError
        The framework reads no such file, or the code that was named is not there.
    WeightsError
        The file is broken, holds more than data, or its arrays do not fit the architecture.
    DeploymentError
        An ONNX network has something else than robustcmp's layers, or the package onnx is not installed.
    ModelError
        What a function returned is no network of the framework, or the function failed.
    """
    if framework == NUMPY:
        return _of_functions(called(source), source)
    adapter = get_framework(framework)
    normalisation = {name: [*value] for name, value in (("mean", mean), ("std", std)) if value}
    as_model = partial(
        _as_model, adapter=adapter, source=source, device=device, normalisation=normalisation, cut_softmax=cut_softmax
    )
    if is_function(source):
        return as_model(called(source), info={})
    path = Path(source)
    check_no_program(path)
    _check_ending(source, framework)
    check_file(path)
    _check_own_hdf5(path, framework)
    if architecture is None and not _is_whole(path):
        raise _no_architecture(source)
    info: dict[str, Any] = {"sha256": _digest(path)}
    design = None if architecture is None or is_function(architecture) else get_architecture(architecture)
    whole = _is_of_keras(path)
    if whole or path.name.endswith(FILES.get(framework, ())):
        # Code for the other files of a comparison says nothing about one that has its own network.
        of = None if whole and design is None else architecture
        network = None if of is None else _untrained(of, adapter)
        built = None if whole else design
        return as_model(adapter.load(path, network), info=info, architecture=built)
    if path.suffix == ONNX:
        own, weights = read_onnx(path)
        design = own if architecture is None else design
        content = WeightsFile(weights if design is None else _as_designed(weights, own, design, source), {})
    else:
        content = _canonical(path, design)
    info = content.metadata | info
    if design is None:
        assert architecture is not None
        if framework != "jax":
            raise UsageError(f"for {source} the architecture should be a name or FILE.toml, received {architecture}")
        return as_model(called(architecture, content.weights), info=info)
    _check_design(content, design, architecture or design.name, source)
    network = adapter.build(design, 0, "cpu")
    adapter.set_weights(network, design, content.weights)
    return as_model(network, info=info, architecture=design)


def _external(path: Path) -> list[Path]:
    """Return the files beside a network's own that hold values of it."""
    return external_files(path) if path.suffix == ONNX else []


def _digest(path: Path) -> str:
    return Files.of(path, _external(path)).sha256


def _no_architecture(source: str) -> UsageError:
    return UsageError(
        f"{source} holds only weights: name their network with architecture: a name, FILE.toml, or your own code that "
        "makes it, module:function or module:Class",
        parameters=["architecture"],
    )


def _as_designed(weights: Weights, own: Architecture, design: Architecture, source: str) -> Weights:
    """Return the weights of a network by the names of another design, whose layers are the same but for names."""
    if _nameless(own.described) != _nameless(design.described):
        layers = ", ".join(type(layer).__name__ for layer, _ in own.walk())
        raise WeightsError(
            f"{source} should be a network {design.name} of images {design.input_shape}, received another design for "
            f"images {own.input_shape}: {layers}. Leave out architecture to take the design of the file."
        )
    return {name: weights[other] for name, other in zip(design.weight_shapes, own.weight_shapes, strict=True)}


def _nameless(described: Any) -> Any:
    """Return the description of a design without the names in it."""
    if isinstance(described, list):
        return [_nameless(part) for part in described]
    if isinstance(described, dict):
        return {key: _nameless(part) for key, part in described.items() if key != "name"}
    return described


def _check_design(content: WeightsFile, design: Architecture, asked: str, source: str) -> None:
    """Raise `WeightsError` unless weights are those of a design, as far as the file says it."""
    check_shapes(content.weights, design, source)
    trained, named = (
        {**description, "name": ""}
        for description in (content.metadata.get("architecture", design.described), design.described)
    )
    if trained != named:
        raise WeightsError(f"{source} was trained for another design than {asked}: its layers were {trained['layers']}")


def _canonical(path: Path, design: Architecture | None) -> WeightsFile:
    if path.suffix == ".h5":
        check_sealed(path, design)  # before HDF5 opens it
        check_hdf5(path)
        content = read_weights(path)
        check_finite(content.weights, str(path))
        return content
    check_archive(path)
    try:
        with open(path, "rb") as file, np.load(file, allow_pickle=False) as arrays:
            received = {name: np.asarray(arrays[name]) for name in arrays.files}
    except Exception as error:  # a broken archive can raise anything
        raise WeightsError(f"{path} is not a file of named arrays, as numpy.savez writes it ({error})") from None
    for name, array in received.items():
        if array.dtype.kind != "f":
            raise WeightsError(
                f"{path}: {name} should be an array of floating-point numbers, received {array.dtype}. Convert it with "
                "astype('float32') before saving."
            )
    weights: Weights = {name: array.astype(np.float32) for name, array in received.items()}
    check_finite(weights, str(path))
    return WeightsFile(weights, {})


def _untrained(architecture: str, adapter: TrainableFramework) -> Any:
    if is_function(architecture):
        return called(architecture)
    return adapter.build(get_architecture(architecture), 0, "cpu")


def called(name: str, *arguments: Any) -> Any:
    """Import a function, ``module:function``, and return what it returns; the working directory is looked at."""
    module, _, function = name.partition(":")
    if os.getcwd() not in sys.path and "" not in sys.path:
        sys.path.insert(0, os.getcwd())  # as `python -m` does
    if module.endswith(".py"):
        raise UsageError(f"{name}: name the module without .py, {module.removesuffix('.py')}:{function}")
    try:
        found = import_module(module)
    except Exception as error:
        if isinstance(error, ModuleNotFoundError) and f"{module}.".startswith(f"{error.name}."):
            raise _no_module(str(error.name)) from None
        raise ModelError(f"{module} failed when it was imported: {type(error).__name__}: {error}") from error
    try:
        imported = getattr(found, function)
    except AttributeError:
        raise _no_attribute(found, function) from None
    _check_takes(imported, name, arguments)
    try:
        return imported(*arguments)
    except Exception as error:
        raise ModelError(f"{name} failed: {type(error).__name__}: {error}") from error


def _no_module(module: str) -> UsageError:
    """Return the error for a module that is not there, which names the nearest one beside where it should be."""
    *parents, _ = module.split(".")
    directory = os.path.join(os.getcwd(), *parents)
    near = nearest(module, [found.name for found in iter_modules([directory], ".".join([*parents, ""]))])
    return UsageError(f"there is no module {module!r} in {os.getcwd()}, and none is installed{_meant(near)}")


def _no_attribute(module: ModuleType, function: str) -> UsageError:
    """Return the error for a function that a module does not have, with those that it defines."""
    own = [name for name, made in vars(module).items() if getattr(made, "__module__", None) == module.__name__]
    said = f"{module.__file__ or module.__name__} has no attribute {function!r}{_meant(nearest(function, own))}"
    return UsageError(f"{said} It has {', '.join(own)}" if own else said)


def _meant(near: str | None) -> str:
    return f": did you mean {near!r}?" if near else "."


def _check_takes(imported: Any, name: str, arguments: tuple[Any, ...]) -> None:
    """Raise `ModelError` for what is no function of so many arguments, such as the network itself."""
    function = name.partition(":")[2]
    remedy = f"Name a function that returns it, such as: def made(): return {function}"
    if isinstance(imported, fb.models.base.Model) or is_estimator(imported) or _framework_of(imported):
        raise ModelError(f"{name} is a network itself. {remedy}")
    if not callable(imported):
        raise ModelError(f"{name} should be a function, received {type(imported).__name__}")
    with suppress(ValueError):  # some have no signature
        taken = signature(imported)
        try:
            taken.bind(*arguments)
        except TypeError:
            wanted = "of the weights" if arguments else "without arguments"
            raise ModelError(f"{name} should be a function {wanted}, received one of {taken}. {remedy}") from None


def _as_model(
    native: Any,
    *,
    adapter: TrainableFramework,
    source: str,
    device: Device,
    info: dict[str, Any],
    architecture: Architecture | None = None,
    normalisation: Mapping[str, list[float]],
    cut_softmax: bool,
) -> fb.models.base.Model:
    """Return a network as a model; `architecture` is what it was built from, if it was."""
    if isinstance(native, fb.models.base.Model):
        framework = Classifier(native).framework.name
    elif is_estimator(native):
        framework = NUMPY
    else:
        framework = _framework_of(native) or adapter.name
    if framework != adapter.name:
        raise _of_another(source, framework, adapter.name)
    if isinstance(native, fb.models.base.Model):
        if normalisation or cut_softmax:
            raise UsageError(
                f"the network of {source} comes with bounds and preprocessing of its own, from robustcmp.wrap: put "
                f"{'mean and std' if normalisation else 'cut_softmax=True'} there"
            )
        return native
    numbers = max(map(len, normalisation.values()), default=0)
    preprocessing: dict[str, Any] = {
        name: value[0] if numbers == 1 else value * (numbers // len(value)) for name, value in normalisation.items()
    }
    if numbers > 1:
        preprocessing["axis"] = -3 if adapter.layout(native) == "channels_first" else -1
    info = info | {"source": Path(source).name}
    options: dict[str, Any] = {"preprocessing": preprocessing or None, "cut_softmax": cut_softmax}
    try:
        model = wrap(native, framework=adapter.name, device=device, info=info, **options)
    except (ModelError, UsageError) as error:
        raise type(error)(f"{source}: {error}", parameters=error.parameters) from error
    model.architecture = architecture
    return model


def _of_another(source: str, framework: str, given_for: str) -> ModelError:
    return ModelError(
        f"{source} is a network of {framework}, but was given for {given_for}: write {framework}={source}"
    )


def _of_functions(made: Any, source: str) -> fb.models.base.Model:
    """Return a model of what code for ``numpy`` returns."""
    if isinstance(made, fb.models.base.Model):
        if (framework := Classifier(made).framework.name) != NUMPY:
            raise _of_another(source, framework, NUMPY)
        return made
    info = {"source": source}
    owner = getattr(made, "__self__", made)  # of a method
    if is_estimator(owner):
        return of_estimator(owner, info)
    if other := _framework_of(made):
        raise _of_another(source, other, NUMPY)
    if not callable(made):
        raise ModelError(f"{source} should return {RETURNED}; received {type(made).__name__}")
    return wrap_functions(logits=made, info=info)


def _framework_of(native: Any) -> str | None:
    """The framework that an object belongs to, None for a plain function."""
    try:
        return recognise(native).name
    except ModelError:
        return None

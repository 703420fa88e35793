"""Networks that were trained elsewhere, from files. Files are data: nothing of them is run."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import foolbox as fb
import msgspec
import numpy as np

from ..deployments import ALSO as ALSO_RUNTIMES
from ..deployments import MODULES as RUNTIMES
from ..deployments import runtime
from ..errors import ModelError, UsageError, WeightsError, enough_memory, nearest, unknown
from ..files import file_digest
from ..frameworks import ALSO, FILES, Device, check_framework, get_framework, known, versions
from ..models.functions import wrap_functions
from ..models.model import wrap
from ..networks.architecture import Architecture, get_architecture
from ..networks.weights import Weights, WeightsFile, check_finite, check_shapes, is_sealed, most_bytes, read_weights
from ..untrusted import check_archive, check_file, check_no_program
from .from_code import NUMPY, call_function, framework_of, is_function, suggest

RETURNED = "a function of images (N, H, W, C), or what robustcmp.wrap_functions makes of a classifier of scikit-learn"
OF_NUMPY = ("sklearn", "scikit-learn", "np")  # what else people call numpy
CANONICAL = (".h5", ".npz")  # weights in the canonical layout, for any framework


class FromFile(msgspec.Struct, frozen=True, tag="file", dict=True):
    """One network that was trained elsewhere.

    Attributes
    ----------
    source : str
        A file, or a function as ``module:function``.
    framework : str
        The framework that it runs in.
    architecture : str, optional
        What network the file is for: a name, ``FILE.toml`` or ``module:function``.
    mean, std : tuple of float
        A file's network expects ``(images - mean) / std``: one number, or one for each channel.
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
        content: dict[str, Any] = {
            "file": self.sha256,
            "architecture": self.design and get_architecture(self.design).description,
            "versions": versions(self.framework),
        }
        if self.mean or self.std:
            content |= {"mean": self.mean, "std": self.std}
        if self.cut_softmax:
            content["cut_softmax"] = True
        return content

    @cached_property
    def _state_and_digest(self) -> tuple[tuple[int, ...], str]:
        """The state of its file before that was read for its digest, and the digest."""
        state = self._read_state()
        return state, file_digest(Path(self.source))

    @property
    def sha256(self) -> str:
        """The digest of its file."""
        return self._state_and_digest[1]

    def _read_state(self) -> tuple[int, ...]:
        """Return what changes where the file is written or replaced."""
        stat = Path(self.source).stat()
        return stat.st_ino, stat.st_size, stat.st_mtime_ns

    def check(self) -> None:
        """Check what can be known before the file is read.

        Raises
        ------
        UsageError
            The framework is not there, or the file is not; it reads no such file, or needs an architecture.
        WeightsError
            The file cannot be one, or holds a program.
        """
        if self.framework not in (*known(), NUMPY):
            also = ALSO | ALSO_RUNTIMES | dict.fromkeys(OF_NUMPY, NUMPY)
            raise unknown("framework", self.framework, (*known(), NUMPY, *RUNTIMES), also)
        if self.framework != NUMPY:
            check_framework(self.framework)
        elif self.cut_softmax:
            raise UsageError(
                f"softmax is for networks of frameworks: let {self.source} return logits, or "
                f'robustcmp.wrap_functions(..., outputs="probabilities")'
            )
        check_normalisation(self.mean, self.std)
        if self.design:
            get_architecture(self.design)
        if not is_function(self.source):
            self._check_file()
        elif self.mean or self.std:
            raise UsageError(
                f"mean and std are for files: let {self.source} return robustcmp.wrap(network, "
                f"preprocessing=dict(mean=..., std=..., axis=...))"
            )

    def _check_file(self) -> None:
        path = Path(self.source)
        if self.framework == NUMPY:
            raise UsageError(
                f"numpy= takes code, module:function, a function without arguments that returns {RETURNED}; received "
                f"{self.source}"
            )
        check_no_program(path)
        check_ending(self.source, self.framework)
        check_file(path)
        if path.suffix == ".h5" and self.framework != "tensorflow" and not is_sealed(path):
            raise WeightsError(
                f"{path} is not a weights file of robustcmp. If it is a model of Keras, or its weights, write "
                f"tensorflow={path}"
            )
        if self.architecture is None and not _is_of_keras(path):
            raise UsageError(
                f"{self.source} holds only weights: name their network with architecture: a name, FILE.toml, or your "
                "own code that makes it, module:function or module:Class",
                parameters=["architecture"],
            )

    @property
    def frameworks(self) -> tuple[str, ...]:
        """The frameworks that it takes to load it."""
        return (self.framework,)

    @property
    def files(self) -> dict[str, Path]:
        """The files that it is loaded from, by what they are."""
        files = {} if is_function(self.source) else {"source": Path(self.source)}
        design = self.design or ""
        return files | ({"architecture": Path(design)} if design.endswith(".toml") else {})

    def load_from(self, files: Mapping[str, Path], device: Device = "auto") -> fb.models.base.Model:
        """Load it from copies of its `files` in one folder, which have their names."""
        changed = {field: str(path) for field, path in files.items() if field in self.__struct_fields__}
        return msgspec.structs.replace(self, **changed).load(device)

    @enough_memory("these weights", "the size of the network, or compare fewer networks at once")
    def load(self, device: Device = "auto") -> fb.models.base.Model:
        """Load it, once it was checked, as a model on ``"auto"``, ``"cpu"`` or ``"cuda"``.

        Raises
        ------
        WeightsError
            The file is broken, holds more than data, its arrays do not fit the architecture, or it changed meanwhile.
        ModelError
            What a function returned is no network of the framework, or the function failed.
        """
        info: dict[str, Any] = {}
        design = None
        if is_function(self.source):
            native = call_function(self.source)
        else:
            native, design, info = self._read()
            if self._read_state() != self._state_and_digest[0]:
                raise WeightsError(f"{self.source} changed while it was read. Repeat the command once it is written.")
        framework = framework_of(native) or self.framework
        if framework != self.framework:
            raise ModelError(
                f"{self.source} is a network of {framework}, but was given for {self.framework}: write "
                f"{framework}={self.source}"
            )
        if isinstance(native, fb.models.base.Model):
            if self.mean or self.std or self.cut_softmax:
                raise UsageError(
                    f"the network of {self.source} comes with bounds and preprocessing of its own, from "
                    f"robustcmp.wrap: put {'mean and std' if self.mean or self.std else 'cut_softmax=True'} there"
                )
            return native
        if self.framework == NUMPY:
            return _wrap_numpy(native, self.source)
        try:
            model = wrap(
                native,
                framework=self.framework,
                device=device,
                info=info | {"source": Path(self.source).name},
                preprocessing=self._describe_preprocessing(native),
                cut_softmax=self.cut_softmax,
            )
        except (ModelError, UsageError) as error:
            raise type(error)(f"{self.source}: {error}", parameters=error.parameters) from error
        model.architecture = design
        return model

    def _describe_preprocessing(self, native: Any) -> dict[str, Any] | None:
        """Return what `wrap` is told of the mean and the standard deviation, one number or one for each channel."""
        numbers = max(len(self.mean), len(self.std))
        preprocessing: dict[str, Any] = {}
        for name, values in (("mean", self.mean), ("std", self.std)):
            if values:
                preprocessing[name] = values[0] if numbers == 1 else [*values] * (numbers // len(values))
        if numbers > 1:
            first = get_framework(self.framework).layout(native) == "channels_first"
            preprocessing["axis"] = -3 if first else -1
        return preprocessing or None

    def _read(self) -> tuple[Any, Architecture | None, dict[str, Any]]:
        """Return the file's network, the design that it was built from, if it was, and what is known of it."""
        adapter = get_framework(self.framework)
        path = Path(self.source)
        info: dict[str, Any] = {"sha256": self.sha256}
        design = get_architecture(self.design) if self.design else None
        if _is_of_keras(path):  # code for the other files of a comparison says nothing about it
            network = adapter.build(design, None, "cpu") if design else None
            return adapter.load(path, network), None, info
        if path.name.endswith(FILES.get(self.framework, ())):
            network = adapter.build(design, None, "cpu") if design else call_function(self.architecture or "")
            return adapter.load(path, network), design, info
        if path.suffix == ".h5":
            content = read_weights(path, most=most_bytes(design))
        else:
            content = WeightsFile(_read_arrays(path), {})
        check_finite(content.weights, self.source)
        if design is not None:
            _check_design(content, design, self.source)
            network = adapter.build(design, None, "cpu")
            adapter.set_weights(network, design, content.weights)
        elif self.framework == "jax":
            network = call_function(self.architecture or "", content.weights)
        else:
            raise UsageError(
                f"for {self.source} the architecture should be a name or FILE.toml, received {self.architecture}"
            )
        return network, design, content.metadata | info


def check_ending(source: str, framework: str) -> None:
    """Raise `UsageError` for a file that is not there, or that a framework or a runtime does not read."""
    path = Path(source)
    if not path.exists():
        near = nearest(path.name, [other.name for other in path.parent.glob("*")])
        raise UsageError(f"there is no file {source}{suggest(near)}")
    if not path.is_file():
        raise UsageError(f"expected a file, received {source}, a directory, a pipe or a device")
    endings = FILES | {name: runtime(name).suffixes for name in RUNTIMES}
    read = endings[framework] if framework in RUNTIMES else (*endings.get(framework, ()), *CANONICAL)
    if source.endswith(read):
        return
    others = [name for name, suffixes in endings.items() if source.endswith(suffixes)]
    remedy = "Save the network as one of these, or return it from a function of your own, module:function"
    if others:
        remedy = f"Write {others[0]}={source}"
    raise UsageError(f"{framework} reads {', '.join(read) or 'no files'}, received {source}. {remedy}")


def _is_of_keras(path: Path) -> bool:
    """Say whether a file can be nothing but a whole model of Keras."""
    if path.suffix == ".h5":
        return not path.name.endswith(".weights.h5") and not is_sealed(path)
    return path.suffix in (".keras", ".hdf5")


def check_normalisation(mean: Sequence[float], std: Sequence[float]) -> None:
    """Raise `UsageError` for numbers that images cannot be normalised with."""
    if not all(map(math.isfinite, mean)):
        raise UsageError(f"mean: expected finite numbers, received {[*mean]}")
    if not all(math.isfinite(value) and value > 0 for value in std):
        raise UsageError(f"std: expected positive numbers, received {[*std]}")
    if len({len(mean), len(std)} - {0, 1}) > 1:
        raise UsageError(f"mean and std need as many numbers, received {[*mean]} and {[*std]}")


def _check_design(content: WeightsFile, design: Architecture, source: str) -> None:
    """Raise `WeightsError` unless weights are those of a design, as far as the file says it."""
    check_shapes(content.weights, design, source)
    trained = content.metadata.get("architecture", design.description)
    if trained | {"name": ""} != design.description | {"name": ""}:
        raise WeightsError(
            f"{source} was trained for another design than {design.name}, whose layers were {trained['layers']}"
        )


def _read_arrays(path: Path) -> Weights:
    """Return the weights of a file that `numpy.savez` wrote."""
    check_archive(path)
    try:
        with open(path, "rb") as file, np.load(file, allow_pickle=False) as content:
            arrays = {name: np.asarray(content[name]) for name in content.files}
    except Exception as error:  # a broken archive can raise anything
        raise WeightsError(f"{path} is not a file of named arrays, as numpy.savez writes it ({error})") from None
    for name, array in arrays.items():
        if array.dtype.kind != "f":
            raise WeightsError(
                f"{path}: {name} should be an array of floating-point numbers, received {array.dtype}. Convert it with "
                "astype('float32') before saving."
            )
    return {name: array.astype(np.float32) for name, array in arrays.items()}


def _wrap_numpy(result: Any, source: str) -> fb.models.base.Model:
    """Return a model of what code for ``numpy`` returns."""
    if not callable(result):
        raise ModelError(f"{source} should return {RETURNED}; received {type(result).__name__}")
    return wrap_functions(logits=result, info={"source": source})

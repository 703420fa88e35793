"""Networks from files as a comparison describes them: several of one name are its trainings."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import chain
from pathlib import Path

from msgspec.structs import replace

from ..deployments import MODULES as RUNTIMES
from ..deployments import names as deployment_names
from ..deployments import runtime
from ..errors import ModelError, UsageError
from ..files import json_digest
from ..frameworks import ALSO, FILES, known
from ..networks.weights import is_sealed
from ..untrusted import find_program
from .deployed import FromDeployedFile
from .from_code import call_function, framework_of, is_function
from .from_files import FromFile

NAME = re.compile(r"\w([\w .+@-]{0,38}\w)?")  # of a model: fit for a path and a table
PROPERTY = re.compile(r",(?=(?:mean|std)=|softmax(?:,|$))")
IN_PATH = 60  # letters that models take of the name of a directory

FileOrigins = dict[str, list[FromFile | FromDeployedFile]]
"""Networks from files, by the names that they have in a comparison; several of one name are its trainings."""


def _read_numbers(name: str, text: str | None) -> tuple[float, ...]:
    """Return a number, or one for each channel.

    Examples
    --------
    >>> _read_numbers("std", "1/255"), _read_numbers("std", "0.2:0.3")
    ((0.00392156862745098,), (0.2, 0.3))
    """
    if text is None:
        return ()
    try:
        parts = [number.partition("/") for number in text.split(":")]
        return tuple(float(value) / float(divisor or 1) for value, _, divisor in parts)
    except (ValueError, ZeroDivisionError):
        raise UsageError(
            f"{name}: expected a number like 0.1307 or 1/255, or one for each channel, 0.49:0.48:0.45; received "
            f"{text!r}"
        ) from None


def file_origins(texts: Sequence[str], architecture: str | None = None) -> FileOrigins:
    """Return the networks of descriptions, by name, checked and not loaded yet.

    ``module:function`` stands in the place of a file for code. A runtime stands in the place of a framework for a file
    of its own, as in ``onnxruntime=FILE.onnx``, and ``numpy`` for code outside any framework. Without a name, networks
    are called as their framework. Several of one name are counted as its training seeds.

    Raises
    ------
    UsageError
        A text has another form, a name cannot be one, a framework is unknown or not installed, a file is not there, or
        it needs an architecture and none was named.

    Examples
    --------
    >>> file_origins(["torch=nets:mine", "torch=nets:other"])["torch"][1].source
    'nets:other'
    >>> [*file_origins(["mine:torch=nets:mine", "other:torch=nets:other"])]
    ['mine', 'other']
    """
    origins: FileOrigins = {}
    for text in texts:
        name, origin = _read(text, architecture)
        origin.check()
        alike = [other for each in origins.values() for other in each if other.framework == origin.framework]
        if _content(origin) in map(_content, alike):
            raise UsageError(f"{text} was given twice, or it is a copy of another file")
        trainings = origins.setdefault(name, [])
        if trainings and trainings[0].framework != origin.framework:
            raise UsageError(
                f"all networks of one name are trainings of one model in one framework, but {name} is given for "
                f"{trainings[0].framework} and {origin.framework}. Use a name for each, as in "
                f"{name}-{origin.framework}:{origin.framework}="
            )
        trainings.append(origin)
    return origins


def _read(text: str, architecture: str | None) -> tuple[str, FromFile | FromDeployedFile]:
    """Return the name of a model and its network of ``[NAME:]FRAMEWORK=FILE[,mean=X][,std=X][,softmax]``.

    Examples
    --------
    >>> _read("mine:torch=a.pt,mean=0.49:0.48:0.45,std=1/255", None)[1].mean
    (0.49, 0.48, 0.45)
    """
    names, _, rest = text.partition("=")
    source, *notes = PROPERTY.split(rest)
    if not source:
        raise UsageError(
            f"expected FRAMEWORK=FILE, FRAMEWORK=module:function, or either with a name, NAME:FRAMEWORK=FILE; "
            f"received {text!r}"
        )
    name, colon, framework = names.rpartition(":")
    if colon and not NAME.fullmatch(name):
        raise UsageError(
            f"{text!r}: the name before the framework should be at most 40 letters, digits, spaces or -_.+@, and begin "
            f"and end with a letter or digit; received {name!r}"
        )
    others = {*known(), "numpy", *RUNTIMES, *deployment_names(), *ALSO}
    if name.lower() in others and ALSO.get(name.lower(), name.lower()) != framework:
        raise UsageError(
            f"{text!r}: {name} is the name of another framework than {framework}. Write NAME:FRAMEWORK=FILE, with a "
            "name of your own"
        )
    properties = dict(note.partition("=")[::2] for note in notes)
    if len(properties) < len(notes):
        raise UsageError(f"{text}: expected each property once")
    mean = _read_numbers("mean", properties.get("mean"))
    std = _read_numbers("std", properties.get("std"))
    cut_softmax = "softmax" in properties
    if framework not in RUNTIMES:
        return name or framework, FromFile(source, framework, architecture, mean, std, cut_softmax)
    if cut_softmax:
        raise UsageError(
            f"{text}: leave ,softmax out. A softmax at the end of such a file is recognised, and the logarithm of its "
            "probabilities stands for logits"
        )
    return name or framework, FromDeployedFile(source, framework, mean=mean, std=std)


def directory_part(origins: FileOrigins) -> str:
    """Return what tells networks of files apart in the name of a directory: names, else frameworks with their files.

    Examples
    --------
    >>> directory_part(file_origins(["mine:torch=nets:mine", "torch=nets:small", "torch=nets:large"]))
    'mine-torch-nets-small-nets-large'
    """
    parts = []
    for name, networks in origins.items():
        parts.append(name)
        if name == networks[0].framework:
            sources = ["-".join(Path(network.source).parts[-2:]) for network in networks]
            parts += [re.sub(r"\.\w+$", "", source) for source in sources]  # without their endings
    text = re.sub(r"[^\w.+@-]+", "-", "-".join(parts))
    return text if len(text) <= IN_PATH else f"{text[: IN_PATH - 9]}-{json_digest({'parts': parts})[:8]}"


def pair_with_sources(origins: FileOrigins) -> tuple[FileOrigins, list[str]]:
    """Pair files of runtimes with the trained networks that they are taken to be converted from.

    All with the only trained network, or the n-th of a runtime with the n-th training of the only trained model.

    Returns
    -------
    origins : dict of str to list
        The same, each file of a runtime with its source.
    lines : list of str
        Which pairs were taken, or why none, to be shown before any work.
    """
    models = [each for each in origins.values() if isinstance(each[0], FromFile)]
    trained = [network for each in models for network in each if isinstance(network, FromFile)]
    paired: FileOrigins = {}
    lines: list[str] = []
    for name, networks in origins.items():
        files = [file for file in networks if isinstance(file, FromDeployedFile)]
        sources = trained * len(files) if len(trained) == 1 else trained
        if not files:
            paired[name] = networks
        elif len(models) == 1 and len(sources) == len(files):
            paired[name] = []
            for file, source in zip(files, sources, strict=True):
                paired[name].append(replace(file, converted_from=source))
                lines.append(
                    f"{file.framework}={file.source} is taken to be converted from {source.framework}={source.source}"
                )
        else:
            paired[name] = [*files]
            if trained:
                lines.append(
                    f"{name} is compared as models of their own: which of {len(trained)} trained networks they were "
                    f"converted from is not known. Name one trained network, or as many files of {name} as of one "
                    "framework, in the same order."
                )
    return paired, lines


def describe_pooling(origins: FileOrigins) -> list[str]:
    """Return a line for each framework whose networks are counted as trainings without having been named so.

    Examples
    --------
    >>> describe_pooling(file_origins(["torch=nets:mine", "torch=nets:other"]))[0].partition(". ")[2]
    'To compare them, name each: a:torch=nets:mine b:torch=nets:other'
    """
    return [
        f"{name}: {len(networks)} networks are taken as trainings of one model. To compare them, name each: "
        f"a:{name}={networks[0].source} b:{name}={networks[1].source}{' …' if len(networks) > 2 else ''}"
        for name, networks in origins.items()
        if len(networks) > 1 and name == networks[0].framework
    ]


def describe_normalisation(origins: FileOrigins, channels: int) -> list[str]:
    """Return a line for each normalisation of images, with the models that get it; none where all get them as they are.

    Raises
    ------
    UsageError
        A model has more or fewer numbers than images have channels.
    """
    alike: dict[str, list[str]] = {}
    for name, (first, *_) in origins.items():
        origin = first.as_given if isinstance(first, FromDeployedFile) else first
        mean = origin.mean if origin else ()
        std = origin.std if origin else ()
        for key, values in (("mean", mean), ("std", std)):
            if len(values) not in (0, 1, channels):
                raise UsageError(
                    f"{key}: expected 1 number or one for each of {channels} channels, received {len(values)}"
                )
        as_they_are = not mean and not std
        images = "images" if as_they_are else f"(images - {_format(mean or (0,))}) / {_format(std or (1,))}"
        alike.setdefault(images, []).append(name)
    return [] if [*alike] == ["images"] else [f"{', '.join(names)}: given {images}" for images, names in alike.items()]


def _format(values: Sequence[float]) -> str:
    """Return a number as text, several in brackets.

    Examples
    --------
    >>> _format([0.5]), _format([0.5, 0.25])
    ('0.5', '(0.5, 0.25)')
    """
    text = ", ".join(f"{value:g}" for value in values)
    return text if len(values) == 1 else f"({text})"


def _content(origin: FromFile | FromDeployedFile) -> str:
    """Return what tells sources apart: a file is the same under every name."""
    return origin.source if is_function(origin.source) else origin.sha256


def describe_files(texts: Sequence[str]) -> list[str]:
    """Return files and functions as `file_origins` takes them, ``NAME:FRAMEWORK=FILE``.

    Models are named by their files, by their folders where files have the same name.

    Raises
    ------
    UsageError
        A file is not there or is of no known kind, or names are equal.

    Examples
    --------
    >>> describe_files(["README.md"])
    Traceback (most recent call last):
    ...
    robustcmp.errors.UsageError: README.md is of no known kind. ...
    """
    sources = [PROPERTY.split(text)[0] for text in texts]
    frameworks = [_find_framework(source) for source in sources]
    names = [_name(source, folder=False) for source in sources]
    if len({*names}) < len(names):
        names = [_name(source, folder=True) for source in sources]
    if len({*names}) < len(names):
        raise UsageError(
            f"expected files of different names, or in folders of different names, received {', '.join(sources)}"
        )
    return [f"{name}:{framework}={text}" for name, framework, text in zip(names, frameworks, texts, strict=True)]


def _find_framework(source: str) -> str:
    """Return the framework or the runtime that a file or a function is of."""
    if is_function(source):
        framework = framework_of(call_function(source))
        if framework is None:
            raise ModelError(
                f"expected {source} to return a network of torch, tensorflow or jax. Return another from "
                f"robustcmp.wrap_functions, or in eval name its framework before it, FRAMEWORK={source}"
            )
        return framework
    path = Path(source)
    if not path.exists():
        raise UsageError(f"there is no file {source}")
    if path.suffix == ".h5" and is_sealed(path):
        return "torch"  # weights in the canonical layout, for any framework
    if find_program(path):
        return "torch-program"
    endings = FILES | {name: runtime(name).suffixes for name in RUNTIMES}
    for name, suffixes in endings.items():
        if path.suffix and path.name.endswith(tuple(suffixes)):
            return name
    known_suffixes = sorted({*chain(*endings.values())} - {""} | {".h5"})
    raise UsageError(
        f"{source} is of no known kind. Files end in {', '.join(known_suffixes)}; or name your own code that returns "
        "the network, module:function"
    )


def _name(source: str, folder: bool) -> str:
    path = Path(source)
    if is_function(source):
        return source.partition(":")[2]
    return re.sub(r"[^\w .+@-]", "-", path.resolve().parent.name if folder else path.name)[:40]

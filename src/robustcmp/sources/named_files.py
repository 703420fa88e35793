"""Networks from files as a comparison describes them: several of one name are its trainings."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from msgspec.structs import replace

from ..deployments import MODULES as RUNTIMES
from ..deployments import names as deployment_names
from ..deployments.model import Gradient
from ..errors import UsageError
from ..files import json_digest
from ..frameworks import ALSO, known
from ..networks.architecture import get_architecture
from .deployed import FromDeployedFile
from .from_code import is_function
from .from_files import FromFile

NAME = re.compile(r"\w([\w .+@-]{0,38}\w)?")  # of a model: fit for a path and a table
PROPERTY = re.compile(r",(?=(?:mean|std|accuracy)=|softmax(?:,|$))")
OWN_CODE = "A network in your own code is module:function or module:Class."
IN_PATH = 60  # letters that models take of the name of a directory

FileOrigins = dict[str, list[FromFile | FromDeployedFile]]
"""Networks from files, by the names that they have in a comparison; several of one name are its trainings."""


class Description(NamedTuple):
    """A network from a file as a command names it, ``[NAME:]FRAMEWORK=FILE[,mean=X][,std=X][,softmax][,accuracy=P]``.

    Attributes
    ----------
    name : str
        Of its model: the framework where none is named.
    mean, std : tuple of float
        It expects (images - mean) / std: one number, or one for each channel; empty if nothing is said.
    cut_softmax : bool
        It ends in a softmax, which is cut.
    accuracy : float or None
        The share of images that it classifies correctly where it was trained.
    """

    text: str
    name: str
    framework: str
    source: str
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()
    cut_softmax: bool = False
    accuracy: float | None = None


def read_description(text: str) -> Description:
    """Read what a command says of a network from a file; `UsageError` says what is wrong.

    Examples
    --------
    >>> read_description("mine:torch=a.pt,mean=0.49:0.48:0.45,std=1/255,accuracy=97.2").mean
    (0.49, 0.48, 0.45)
    """
    names, _, rest = text.partition("=")
    source, *notes = PROPERTY.split(rest)
    if not source:
        raise UsageError(
            f"expected FRAMEWORK=FILE, FRAMEWORK=module:function, or either with a name, NAME:FRAMEWORK=FILE; "
            f"received {text!r}"
        )
    name, named, framework = names.rpartition(":")
    if named:
        _check_model_name(name, framework, text)
    properties = dict(note.partition("=")[::2] for note in notes)
    if len(properties) < len(notes):
        raise UsageError(f"{text}: a property is given twice")
    return Description(
        text,
        name or framework,
        framework,
        source,
        mean=_read_numbers("mean", properties.get("mean")),
        std=_read_numbers("std", properties.get("std")),
        cut_softmax="softmax" in properties,
        accuracy=_read_accuracy(properties.get("accuracy")),
    )


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


def _read_accuracy(text: str | None) -> float | None:
    if text is None:
        return None
    try:
        percent = float(text.removesuffix("%"))
    except ValueError:
        percent = math.nan
    if not 1 < percent <= 100:
        raise UsageError(f"accuracy: expected a percentage above 1 and up to 100, such as 97.2, received {text!r}")
    return percent / 100


def expected_accuracies(texts: Sequence[str]) -> dict[str, float]:
    """Return the accuracies that descriptions state, by model; those of one model should agree."""
    expected: dict[str, float] = {}
    for description in map(read_description, texts):
        if description.accuracy is None:
            continue
        if expected.setdefault(description.name, description.accuracy) != description.accuracy:
            raise UsageError(f"{description.name}: its trainings should state one accuracy, received two")
    return expected


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
    _check_architecture(architecture)
    origins: FileOrigins = {}
    for text in texts:
        description = read_description(text)
        name, framework = description.name, description.framework
        origin = _origin(description, architecture)
        origin.check()
        alike = [other for each in origins.values() for other in each if other.framework == framework]
        if _content(origin) in [_content(other) for other in alike]:
            raise UsageError(f"{text} was given twice, or it is a copy of another file")
        trainings = origins.setdefault(name, [])
        if trainings and trainings[0].framework != framework:
            raise UsageError(
                f"all networks of one name are trainings of one model in one framework, but {name} is given for "
                f"{trainings[0].framework} and {framework}. Use a name for each, as in {name}-{framework}:{framework}="
            )
        trainings.append(origin)
    return origins


def _check_architecture(architecture: str | None) -> None:
    if architecture is None or is_function(architecture):
        return
    try:
        get_architecture(architecture)
    except UsageError as error:
        remedy = "" if architecture.endswith(".toml") else f" {OWN_CODE}"
        raise UsageError(f"{error}{remedy}", parameters=["architecture"]) from None


def _origin(description: Description, architecture: str | None) -> FromFile | FromDeployedFile:
    source, framework = description.source, description.framework
    mean, std = description.mean, description.std
    if framework not in RUNTIMES:
        return FromFile(source, framework, architecture, mean=mean, std=std, cut_softmax=description.cut_softmax)
    if description.cut_softmax:
        raise UsageError(
            f"softmax is for networks of frameworks: {description.text} has to return logits, but for what is done for "
            "the network that it was converted from"
        )
    origin = FromDeployedFile(source, framework)
    return replace(origin, mean=mean, std=std) if mean or std else origin


def _check_model_name(name: str, framework: str, text: str) -> None:
    """Raise `UsageError` for a name that a path or a table cannot take, or that says another framework."""
    if not NAME.fullmatch(name):
        raise UsageError(
            f"{text!r}: the name before the framework should be at most 40 letters, digits, spaces or -_.+@, and begin "
            f"and end with a letter or digit; received {name!r}"
        )
    others = {*known(), "numpy", *RUNTIMES, *deployment_names(), *ALSO}
    meant = ALSO.get(name.lower(), name.lower())
    if name.lower() in others and meant != framework:
        raise UsageError(
            f"{text!r}: {name} is the name of another framework than {framework}. Write NAME:FRAMEWORK=FILE, with a "
            "name of your own"
        )


def directory_part(origins: FileOrigins) -> str:
    """Return what tells networks of files apart in the name of a directory: names, else frameworks with their files.

    Examples
    --------
    >>> directory_part(file_origins(["mine:torch=nets:mine", "torch=nets:small", "torch=nets:large"]))
    'mine-torch-nets-small-nets-large'
    """
    parts = []
    for name, given in origins.items():
        parts.append(name)
        if name == given[0].framework:
            parts += [each.source if is_function(each.source) else _short(Path(each.source)) for each in given]
    text = re.sub(r"[^\w.+@-]+", "-", "-".join(parts))
    return text if len(text) <= IN_PATH else f"{text[: IN_PATH - 9]}-{json_digest({'parts': parts})[:8]}"


def _short(path: Path) -> str:
    """Return a file's name without its ending, with that of its folder where one was given."""
    return "-".join([*path.parts[-2:-1], path.stem])


def with_sources(origins: FileOrigins, gradient: Gradient = "source") -> tuple[FileOrigins, list[str]]:
    """Pair files of runtimes with the trained networks that they are taken to be converted from.

    All with the only trained network, or the n-th of a runtime with the n-th training of the only trained model.

    Returns
    -------
    origins : dict of str to list
        The same, each file of a runtime with its source.
    lines : list of str
        Which pairs were taken, or why none, to be shown before any work.
    """
    of_model = {label: [each for each in given if isinstance(each, FromFile)] for label, given in origins.items()}
    of_model = {label: given for label, given in of_model.items() if given}
    trained = [each for given in of_model.values() for each in given]
    paired: FileOrigins = {}
    lines: list[str] = []
    for label, given in origins.items():
        files = [replace(each, gradient=gradient) for each in given if isinstance(each, FromDeployedFile)]
        if not files or not trained:
            paired[label] = [*files] or given
            continue
        sources = trained * len(files) if len(trained) == 1 else trained
        if len(trained) > 1 and (len(of_model) > 1 or len(files) != len(trained)):
            paired[label] = [*files]
            lines.append(
                f"{label} is compared as models of their own: which of {len(trained)} trained networks they were "
                f"converted from is not known. Name one trained network, or as many files of {label} as of one "
                "framework, in the same order."
            )
            continue
        paired[label] = [replace(file, converted_from=source) for file, source in zip(files, sources, strict=True)]
        lines += [
            f"{file.framework}={file.source} is taken to be converted from {source.framework}={source.source}"
            for file, source in zip(files, sources, strict=True)
        ]
    return paired, lines


def describe_pooling(origins: FileOrigins) -> list[str]:
    """Return a line for each framework whose networks are counted as trainings without having been named so.

    Examples
    --------
    >>> describe_pooling(file_origins(["torch=nets:mine", "torch=nets:other"]))[0].partition(". ")[2]
    'To compare them, name each: a:torch=nets:mine b:torch=nets:other'
    """
    return [
        f"{name}: {len(given)} networks are taken as trainings of one model. To compare them, name each: "
        + " ".join(f"{'ab'[place]}:{name}={each.source}" for place, each in enumerate(given[:2]))
        + " …" * (len(given) > 2)
        for name, given in origins.items()
        if len(given) > 1 and name == given[0].framework
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
        given = first.as_given if isinstance(first, FromDeployedFile) else first
        mean, std = (given.mean, given.std) if given else ((), ())
        for what, values in (("mean", mean), ("std", std)):
            if len(values) not in (0, 1, channels):
                raise UsageError(
                    f"{what}: expected 1 number or one for each of {channels} channels, received {len(values)}"
                )
        as_they_are = not mean and not std
        said = "images" if as_they_are else f"(images - {_numbers(mean or (0,))}) / {_numbers(std or (1,))}"
        alike.setdefault(said, []).append(name)
    return [] if [*alike] == ["images"] else [f"{', '.join(names)}: given {said}" for said, names in alike.items()]


def _numbers(values: Sequence[float]) -> str:
    """Return a number as text, several in brackets.

    Examples
    --------
    >>> _numbers([0.5]), _numbers([0.5, 0.25])
    ('0.5', '(0.5, 0.25)')
    """
    text = ", ".join(f"{value:g}" for value in values)
    return text if len(values) == 1 else f"({text})"


def _content(origin: FromFile | FromDeployedFile) -> str:
    """Return what tells sources apart: a file is the same under every name."""
    return origin.source if is_function(origin.source) else origin.sha256

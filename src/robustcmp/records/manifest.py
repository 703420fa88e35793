"""What was asked for: the file of a suite, and the manifest of a run, as JSON types.

A manifest is checked once, when it is read, against the types below: they say what the rest of the code relies on.
Members that they do not name are kept.
"""

from __future__ import annotations

import math
import os
from importlib.resources import files
from typing import Annotated, Any, Literal

import msgspec

from .. import limits
from ..errors import SealError, UsageError, unknown
from ..files import as_path
from ..untrusted import read_toml
from .attack import AttackRecord, Cell, Seed, Whole, collect_extras

FORMAT = "robustcmp run 3"
Subset = Literal["common", "all"]
Positive = Annotated[int, msgspec.Meta(ge=1, le=2**63 - 1)]
Share = Annotated[float, msgspec.Meta(ge=0, le=1)]
ModelKey = tuple[str, Seed]


class _About(msgspec.Struct):
    model: str | None = None
    dataset: str | None = None
    recipe: str | None = None
    command: str | None = None
    data_notes: list[str] = []
    classes: list[str] = []


class _Suite(msgspec.Struct):
    name: str
    attacks: dict[str, AttackRecord]
    description: str = ""
    digest: str = ""


class _Images(msgspec.Struct):
    asked: Whole
    used: Whole
    of: Positive
    digest: str
    correct_by_all: Share
    most_frequent: Share | None = None
    range: tuple[float, float] | None = None
    subset: Subset = "common"


class _Identity(msgspec.Struct):
    weights: str | None
    noise: float
    gradient_noise: float
    logits: str = ""
    probes: str = ""
    gradient: str | None = None


class _Info(msgspec.Struct):
    model: str | None = None
    dataset: str | None = None
    differences: dict[str, str] = {}
    same_weights: str = ""


class _Model(msgspec.Struct):
    name: str
    training_seed: Seed
    framework: str
    framework_version: str | None
    clean_accuracy: Share
    logits: str
    info: _Info
    batch_size: Positive | None = None
    identity: _Identity | None = None
    depends_on_batch: bool = False
    cause: str = ""
    not_applicable: dict[str, str] = {}
    failed: dict[str, str] = {}
    rounded: dict[str, Share] = {}  # success of each attack once its images are saved in 8 bits
    source_gradient: list[str] = []


class _Environment(msgspec.Struct):
    versions: dict[str, str | None]
    system: str
    machine: str
    cpus: int


class _Twins(msgspec.Struct):
    a: ModelKey
    b: ModelKey
    correlation: Annotated[float, msgspec.Meta(ge=-1.001, le=1.001)]


class _Deployed(msgspec.Struct):
    model: ModelKey
    source: ModelKey
    exact: bool
    logits: float
    distance: float
    changed: Share
    bytes: Whole
    source_bytes: Whole
    seconds: list[float | None]
    source_seconds: list[float | None]
    ties: Share | None = None


class _SameWeights(msgspec.Struct):
    logits: float
    predictions: Share


class _Manifest(msgspec.Struct):
    about: _About
    suite: _Suite
    batch_sizes: dict[str, Positive]
    seed: Seed
    repeats: Positive
    images: _Images
    models: Annotated[list[_Model], msgspec.Meta(min_length=1)]
    cells: list[Cell]
    environment: _Environment
    same_weights: _SameWeights | None = None
    twins: list[_Twins] = []
    deployments: list[_Deployed] = []
    spread: bool = False


def check(manifest: dict[str, Any]) -> None:
    """Check a manifest.

    Raises
    ------
    SealError
        It lacks what a manifest has, or contradicts itself.
    """
    try:
        record = msgspec.convert(manifest, _Manifest)
        collect_extras(record.suite.attacks)
    except (msgspec.ValidationError, UsageError) as error:
        raise SealError(f"the manifest: {error}") from None
    models = {(model.name, model.training_seed) for model in record.models}
    groups = {(cell.model, cell.training_seed, cell.attack, cell.repeat) for cell in record.cells}
    shares = [record.images.correct_by_all, *(model.clean_accuracy for model in record.models)]
    named = {key for pair in record.twins for key in (pair.a, pair.b)}
    named |= {key for entry in record.deployments for key in (entry.model, entry.source)}
    named |= {group[:2] for group in groups}
    contradictions = {
        "a share is no number": any(map(math.isnan, shares)),
        "no attacks": not record.suite.attacks,
        "a model is listed twice": len(models) < len(record.models),
        "a cell is listed twice": len(groups) < len(record.cells),
        "something is of a model that is not listed": not named <= models,
        "a cell is of an attack that is not listed": not {cell.attack for cell in record.cells}
        <= {*record.suite.attacks},
        "more images were used than there are": record.images.used > record.images.of,
        "the same weights have no name": record.same_weights is not None
        and not any(model.info.same_weights for model in record.models),
    }
    for contradiction, is_so in contradictions.items():
        if is_so:
            raise SealError(f"the manifest contradicts itself: {contradiction}")


def attack_records(manifest: dict[str, Any]) -> dict[str, AttackRecord]:
    """Return what the attacks of a run said of themselves, by their names."""
    return {name: msgspec.convert(record, AttackRecord) for name, record in manifest["suite"]["attacks"].items()}


SHIPPED = files("robustcmp.resources.attacks")


class SuiteFile(msgspec.Struct, forbid_unknown_fields=True):
    """The content of a suite's file.

    Attributes
    ----------
    attacks : dict of str to dict
        By the names that tables and results have: the class as ``"attack"``, and its parameters.
    description : str
        What the suite is for.
    images, repeats : int
        How many images are attacked how often, if the caller does not say.
    subset : str
        ``"common"``: images that all models classify correctly. ``"all"``: all, and a misclassified one has fallen.
    """

    attacks: dict[str, dict[str, Any]]
    description: str = ""
    images: Annotated[int, msgspec.Meta(ge=1, le=limits.IMAGES)] = 1000
    repeats: Annotated[int, msgspec.Meta(ge=1, le=limits.REPEATS)] = 10
    subset: Subset = "common"


def suite_names() -> list[str]:
    """Return the names of the suites that ship.

    >>> "guo2019" in suite_names()
    True
    """
    return sorted(file.name.removesuffix(".toml") for file in SHIPPED.iterdir() if file.name.endswith(".toml"))


def read_suite_file(suite: str | os.PathLike[str]) -> SuiteFile:
    """Read the file of a suite that ships, by its name, or any other by its path, which ends in ``.toml``.

    Raises
    ------
    UsageError
        There is no such suite, or its file has a mistake that shows without its attacks.
    """
    path = as_path(suite, "suite")
    if path.suffix == ".toml":
        table = read_toml(path, "the suite")
    elif str(suite) in suite_names():
        table = read_toml(SHIPPED / f"{suite}.toml", "the suite")
    else:
        raise unknown("suite", suite, [*suite_names(), "FILE.toml"])
    try:
        for key in table:
            if key not in SuiteFile.__struct_fields__:
                raise unknown("key", key, SuiteFile.__struct_fields__)
        content = msgspec.convert(table, SuiteFile)
        if not content.attacks:
            raise UsageError("expected at least one table [attacks.NAME]")
    except (msgspec.ValidationError, UsageError) as error:
        raise UsageError(f"the suite {path}: {error}") from None
    return content

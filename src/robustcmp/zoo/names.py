"""What a trained model is called, and where its weights are."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from importlib.resources import as_file
from pathlib import Path
from typing import Any

from ..data import DATASETS
from ..errors import UsageError, WeightsError, unknown
from ..files import user_cache
from ..frameworks import (
    NAMES,
    check_framework,
    check_name,
    installed,
    versions,
)
from ..networks.architecture import get_architecture
from ..networks.weights import WeightsFile, read_weights
from .recipes import SHIPPED, load_recipe


@dataclass(frozen=True)
class Name:
    """What one trained model is called: an architecture, trained on a dataset in a framework by a recipe and a seed."""

    model: str
    dataset: str
    framework: str
    recipe: str = "default"
    seed: int = 0

    @property
    def file(self) -> str:
        """The name of its weights file."""
        model = get_architecture(self.model).name
        return f"{model}-{self.dataset}-{self.framework}-{self.recipe}-{self.seed}.h5"

    @property
    def fit_arguments(self) -> dict[str, str | int]:
        """What `robustcmp.fit` trains it from."""
        return asdict(self)

    def check(self) -> None:
        """Raise `UsageError` for a model, dataset, framework or seed that cannot be."""
        get_architecture(self.model)
        if self.dataset not in DATASETS:
            raise unknown("dataset", self.dataset, DATASETS)
        check_name(self.framework)
        if not 0 <= self.seed < 2**32:
            raise UsageError(f"a training seed should be from 0 to 2**32 - 1, received {self.seed}")


def trained_directory() -> Path:
    """Return the directory in the user cache where `fit` keeps weights."""
    return user_cache() / "weights"


def find_weights(name: Name, directory: str | os.PathLike[str] | None = None) -> WeightsFile | None:
    """Return a model's weights from a directory, the user cache or the zoo that ships, or None.

    The metadata's ``source`` says where they were: ``"own"`` for a directory or the user cache, or ``"zoo"``.

    Raises
    ------
    WeightsError
        The file is broken, or is another model's.
    """
    own = Path(directory or trained_directory()) / name.file
    if own.exists():
        return _with_source(_read(own, name), "own")
    with as_file(SHIPPED / "weights" / name.file) as shipped:
        if shipped.exists():
            return _with_source(_read(shipped, name), "zoo")
    return None


def _read(path: Path, name: Name) -> WeightsFile:
    """Read the weights of a model from the file that is named after it."""
    content = read_weights(path, get_architecture(name.model))
    said = {
        "dataset": name.dataset,
        "framework": name.framework,
        "recipe": name.recipe,
        "training_seed": name.seed,
    }
    for key, expected in said.items():
        if content.metadata.get(key, expected) != expected:
            raise WeightsError(
                f"{path} holds a training with {key} {content.metadata[key]}, and its name says {expected}. "
                "Was it renamed? Give it back its name, or delete it."
            )
    return content


def _with_source(content: WeightsFile, source: str) -> WeightsFile:
    about = {"source": source, "sha256": content.sha256}
    return WeightsFile(content.weights, content.metadata | about, content.curves)


def frameworks_with(model: str, dataset: str, recipe: str = "default", seeds: Sequence[int] = (0,)) -> list[str]:
    """Return the installed frameworks for which there are weights of a model with any of the training seeds."""
    return [
        framework
        for framework in installed()
        if any(find_weights(Name(model, dataset, framework, recipe, seed)) for seed in seeds)
    ]


def fingerprints(
    model: str,
    *,
    dataset: str,
    frameworks: Sequence[str] | None = None,
    seeds: Sequence[int],
    recipe: str = "default",
    weights_of: str | None = None,
) -> dict[str, Any]:
    """Return what tells models apart, without loading a framework: each framework's version and SHA-256 of weights.

    Raises
    ------
    WeightsError
        A file is broken.
    """
    fingerprint = {}
    if frameworks is None:
        frameworks = installed() if weights_of else frameworks_with(model, dataset, recipe, seeds)
    for framework in frameworks:
        found = [find_weights(Name(model, dataset, weights_of or framework, recipe, seed)) for seed in seeds]
        fingerprint[framework] = {
            "versions": versions(framework),
            "weights": [content and content.sha256 for content in found],
        }
    return fingerprint


def check_names(
    model: str,
    dataset: str,
    frameworks: Sequence[str] | None,
    seeds: Sequence[int],
    recipe: str = "default",
    weights_of: str | None = None,
) -> None:
    """Raise `UsageError` for a name that is unknown, a framework that is not installed, or what was given twice."""
    for what, given in (("framework", frameworks or ()), ("training seed", seeds)):
        if len(set(given)) < len(given):
            raise UsageError(f"a {what} was given twice: {', '.join(map(str, given))}")
    for framework in frameworks or NAMES[:1]:
        for seed in seeds:
            Name(model, dataset, framework, recipe, seed).check()
    for framework in (*(frameworks or ()), *([] if weights_of is None else [weights_of])):
        check_framework(framework)
    into = frameworks or installed()
    if weights_of is not None and len(into) < 2:
        raise UsageError(f"the same weights should be carried into two frameworks or more, received {', '.join(into)}")
    load_recipe(model, dataset, recipe)

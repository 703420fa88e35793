"""Recipes: how each network is trained on each dataset, read from the files of the zoo."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from .. import limits
from ..data import load_dataset
from ..data.dataset import Dataset
from ..errors import MissingDataError, UsageError, unknown
from ..networks.architecture import get_architecture
from ..untrusted import read_toml

SHIPPED = files("robustcmp.resources.zoo")
FALLBACK_DATASET = "digits"  # ships with scikit-learn


def load_recipe(model: str, dataset: str, name: str = "default") -> Recipe:
    """Return a recipe of the zoo, from the file ``zoo/MODEL.toml``.

    Raises
    ------
    UsageError
        The zoo has no such recipe, or its file has a mistake.

    Examples
    --------
    >>> load_recipe("lenet5", "digits").batch_size
    32
    """
    recipes = _recipes(model, name)
    if dataset not in recipes:
        raise unknown(f"dataset for {model} with the recipe {name!r}", dataset, recipes)
    architecture = get_architecture(model)
    try:
        recipe = msgspec.convert(recipes[dataset], Recipe)
        if recipe.crop >= min(architecture.input_shape[:2]):
            raise UsageError(f"crop should be less than the image, {architecture.input_shape}, received {recipe.crop}")
    except (msgspec.ValidationError, UsageError) as error:
        raise UsageError(f"{architecture.name}.toml, [{name}.{dataset}]: {error}") from None
    return recipe


def default_dataset(model: str, recipe: str = "default", *, short: bool = False) -> str:
    """Return the dataset that a recipe names first: MNIST for the LeNets, CIFAR-10 for the others.

    Or, where trainings are to be `short`, the digits if the recipe has them.

    Raises
    ------
    UsageError
        The zoo has no such model or recipe.

    Examples
    --------
    >>> default_dataset("resnet20"), default_dataset("lenet5", short=True)
    ('cifar10', 'digits')
    """
    recipes = _recipes(model, recipe)
    return FALLBACK_DATASET if short and FALLBACK_DATASET in recipes else next(iter(recipes))


def _recipes(model: str, name: str) -> dict[str, Any]:
    """Return the tables of a recipe, by dataset."""
    architecture = get_architecture(model)
    file = Path(model) if model.endswith(".toml") else SHIPPED / f"{architecture.name}.toml"
    recipes: dict[str, Any] = read_toml(file, "the recipes")
    recipes.pop("architecture", None)
    if not recipes:
        raise UsageError(f"the model {model} has no recipe: add a table [default.DATASET], see docs/extending.md")
    if name not in recipes:
        raise unknown(f"recipe for {model}", name, recipes)
    table = recipes[name]
    if not isinstance(table, dict) or not table or not all(isinstance(recipe, dict) for recipe in table.values()):
        raise UsageError(f"{file.name}: expected tables [{name}.DATASET], see docs/extending.md")
    return table


def models_on(dataset: str) -> list[str]:
    """Return the models that the zoo has a recipe for on a dataset.

    >>> models_on("digits")
    ['dlbench_mnist', 'lenet1', 'lenet5']
    """
    tables = {
        file.name.removesuffix(".toml"): read_toml(file, "the recipes")
        for file in SHIPPED.iterdir()
        if file.name.endswith(".toml")
    }
    return sorted(model for model, recipes in tables.items() if any(dataset in recipe for recipe in recipes.values()))


Share = Annotated[float, msgspec.Meta(ge=0, lt=1)]


class Recipe(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How a network is trained: stochastic gradient descent on the mean cross-entropy of a batch.

    Attributes
    ----------
    epochs, batch_size : int
        The last batch of an epoch holds what is left and is used.
    learning_rate : float
        At the start; under ``"cosine"`` it falls to zero along half a cosine, step by step.
    momentum, weight_decay : float
        v ← momentum·v + (gradient + weight_decay·w), w ← w − rate·v.
    crop : int
        Every image is padded with so many zeros on each side and cut to its size at a random place.
    flip : bool
        Every second image, by chance, is mirrored left to right.
    """

    epochs: Annotated[int, msgspec.Meta(ge=1, le=limits.EPOCHS)]
    batch_size: Annotated[int, msgspec.Meta(ge=1, le=limits.BATCH_SIZE)]
    learning_rate: Annotated[float, msgspec.Meta(gt=0, le=100)]
    momentum: Share = 0.9
    weight_decay: Share = 0.0
    schedule: Literal["cosine", "constant"] = "cosine"
    crop: Annotated[int, msgspec.Meta(ge=0)] = 0
    flip: bool = False

    def rate(self, progress: float) -> float:
        """Return the learning rate at a share of the training from 0 to 1."""
        if self.schedule == "constant":
            return self.learning_rate
        return self.learning_rate * 0.5 * (1 + math.cos(math.pi * progress))


def load_for(
    model: str, dataset: str, split: str, data_dir: str | os.PathLike[str] | None = None, recipe: str = "default"
) -> Dataset:
    """Return a split of a dataset for a model.

    Raises
    ------
    MissingDataError
        It is nowhere to be had; the message names the dataset that needs no download where the recipe has it.
    """
    try:
        return load_dataset(dataset, split, data_dir=data_dir)
    except MissingDataError as error:
        if FALLBACK_DATASET not in _recipes(model, recipe):
            raise
        raise MissingDataError(
            f"{error} {model} also has a recipe for {FALLBACK_DATASET}, which needs no download.",
            error.reason,
            parameters=[*error.parameters, "dataset"],
        ) from None


def load_test_set(
    model: str,
    dataset: str | None = None,
    data_dir: str | os.PathLike[str] | None = None,
    say: Callable[[str], None] = lambda text: None,
    recipe: str = "default",
) -> Dataset:
    """Return the test set that a model is compared on.

    Without `dataset` that is the one that the recipe names first, or, where it cannot be had and the recipe has them,
    the digits that ship with scikit-learn; `say` is told so in a line.

    Raises
    ------
    UsageError
        A name is unknown.
    DataError
        A dataset that was asked for by name cannot be had.
    """
    default = default_dataset(model, recipe)
    if dataset is not None or data_dir is not None or FALLBACK_DATASET not in _recipes(model, recipe):
        return load_for(model, dataset or default, "test", data_dir, recipe)
    try:
        return load_dataset(default, "test")
    except MissingDataError as error:
        say(
            f"{default} is not available ({error.reason}), so this run uses {FALLBACK_DATASET}, the handwritten "
            "digits of scikit-learn. Set $ROBUSTCMP_DATA to a directory that holds the files to use them."
        )
        return load_dataset(FALLBACK_DATASET, "test")

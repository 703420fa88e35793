"""Trained models by name, from the zoo that ships or from what the user has trained."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from ..data import load_dataset
from ..data.dataset import Dataset
from ..errors import MissingDataError, MissingWeightsError, UsageError
from ..frameworks import (
    Device,
    TrainableFramework,
    get_framework,
    installed,
)
from ..models.model import Model, wrap
from ..networks.architecture import get_architecture
from ..networks.weights import WeightsFile
from .carrying import same_weights
from .names import (
    Name,
    check_names,
    find_weights,
    frameworks_with,
)
from .recipes import Recipe, _recipes, default_dataset, load_recipe

FALLBACK_DATASET = "digits"  # ships with scikit-learn
SOURCES = {"own": "trained here", "zoo": "from the zoo that ships"}


def load_model(
    model: str,
    *,
    framework: str,
    dataset: str | None = None,
    seed: int = 0,
    recipe: str = "default",
    device: Device = "auto",
    directory: str | os.PathLike[str] | None = None,
) -> Model:
    """Load a trained model by name.

    Parameters
    ----------
    model, framework, dataset, recipe : str
        For example ``"lenet5"``, ``"torch"``, ``"mnist"``, ``"default"``; without a dataset the one that the recipe
        names first.
    seed : int, default 0
        The training seed.
    device : str, default "auto"
        ``"auto"``, ``"cpu"`` or ``"cuda"``.
    directory : path, optional
        Where to look first instead of the user cache, as given to `robustcmp.fit` as `out`.

    Returns
    -------
    Model
        With bounds (0, 1). ``info["source"]`` says ``"own"`` (trained here) or ``"zoo"`` (shipped).

    Raises
    ------
    UsageError
        A name is unknown, or the framework is not installed.
    WeightsError
        There are no such weights, or their file is broken.

    Examples
    --------
    >>> load_model("lenet5", framework="torch", dataset="digits")
    <robustcmp.Model lenet5 digits 0 torch, bounds (0, 1)>
    """
    dataset = dataset or default_dataset(model, recipe)
    name = Name(model, dataset, framework, recipe, seed)
    name.check()
    adapter = get_framework(framework)
    content = find_weights(name, directory)
    if content is None:
        load_recipe(model, dataset, recipe)  # where there is no such recipe, training is no remedy
        raise MissingWeightsError(f"there are no weights for {name.file.removesuffix('.h5')}.", name.fit_arguments)
    return _as_model(adapter, name, content, device)


def _as_model(adapter: TrainableFramework, name: Name, content: WeightsFile, device: Device) -> Model:
    architecture = get_architecture(name.model)
    native = adapter.build(architecture, name.seed, device)
    adapter.set_weights(native, architecture, content.weights)
    return wrap(native, framework=adapter.name, device=device, info=content.metadata)


def load_models(
    model: str,
    *,
    dataset: str,
    frameworks: Sequence[str] | None = None,
    seeds: Sequence[int] = (0,),
    recipe: str = "default",
    weights_of: str | None = None,
    device: Device = "auto",
    say: Callable[[str], None] = lambda text: None,
) -> dict[str, list[Model]]:
    """Load one network design as it was trained in several frameworks.

    Parameters
    ----------
    model, dataset, recipe, device : str
        As for `load_model`.
    frameworks : sequence of str, optional
        Every installed one that has weights of any of the seeds if nothing is said.
    seeds : sequence of int, default (0,)
        The training seeds.
    weights_of : str, optional
        Carry this framework's trainings into the frameworks, of which none needs weights of its own then.
    say : callable, optional
        Told in a line where each framework's weights were found.

    Returns
    -------
    dict of str to list of Model
        By framework, a model a seed.

    Raises
    ------
    UsageError
        A name is unknown or given twice, or no framework is installed.
    WeightsError
        There are no such weights, or a file is broken.
    """
    check_names(model, dataset, frameworks, seeds, recipe, weights_of)
    if weights_of is not None:
        named: dict[str, Any] = {"dataset": dataset, "frameworks": [weights_of], "seeds": seeds, "recipe": recipe}
        loaded = load_models(model, **named, device=device, say=say)
        carried = [same_weights(one, frameworks, device=device) for one in loaded[weights_of]]
        return {framework: [its[framework] for its in carried] for framework in carried[0]}
    if frameworks is None:
        if not installed():
            raise UsageError("no framework is installed. Install one with: pip install 'robustcmp[torch]'")
        frameworks = frameworks_with(model, dataset, recipe, seeds)
    if not frameworks:
        load_recipe(model, dataset, recipe)
        missing = Name(model, dataset, installed()[0], recipe, seeds[0])
        raise MissingWeightsError(
            f"there are no weights of {model} on {dataset} (recipe {recipe}) with the training seeds "
            f"{', '.join(map(str, seeds))} for an installed framework.",
            missing.fit_arguments,
        )
    models: dict[str, list[Model]] = {}
    for framework in frameworks:
        models[framework] = [
            load_model(model, framework=framework, dataset=dataset, seed=seed, recipe=recipe, device=device)
            for seed in seeds
        ]
        sources = ", ".join(dict.fromkeys(_source(loaded, model) for loaded in models[framework]))
        say(f"{framework}: {model} trained on {dataset}, {sources}")
    return models


def _source(loaded: Model, model: str) -> str:
    """Say where weights come from, and whether they were trained in another way than the recipe says now."""
    info = loaded.info
    expected = msgspec.to_builtins(load_recipe(model, info["dataset"], info["recipe"]))
    trained = msgspec.to_builtins(msgspec.convert(info["settings"], Recipe))
    changed = {key: value for key, value in trained.items() if expected[key] != value}
    but = f" (with {', '.join(f'{key} {value}' for key, value in changed.items())})" if changed else ""
    return SOURCES[info["source"]] + but


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
    get_architecture(model)
    default = default_dataset(model, recipe)
    if dataset is not None or data_dir is not None or FALLBACK_DATASET not in _recipes(model, recipe):
        return load_dataset(dataset or default, "test", data_dir=data_dir)
    try:
        return load_dataset(default, "test")
    except MissingDataError:
        say(
            f"{default} cannot be had here, so this runs on {FALLBACK_DATASET}, scikit-learn's handwritten "
            "digits. Name a directory with $ROBUSTCMP_DATA for the real one."
        )
        return load_dataset(FALLBACK_DATASET, "test")

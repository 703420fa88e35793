"""Models by name: the recipes, the trained weights that ship, and those that a user has trained."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any

import msgspec

from .architecture import Architecture, get_architecture
from .data import DATASETS, Dataset, load_dataset, user_cache
from .errors import MissingDataError, UsageError, WeightsError, check_count, unknown
from .frameworks import (
    NAMES,
    Device,
    TrainableFramework,
    check_framework,
    check_name,
    get_framework,
    installed,
    versions,
)
from .model import Model, wrap
from .training import Recipe, train
from .weights import WeightsFile, make_directory, read_weights, write_weights

SHIPPED = files("robustcmp.resources.zoo")
FALLBACK_DATASET = "digits"  # ships with scikit-learn
SOURCES = {"own": "trained here", "zoo": "from the zoo that ships"}


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
    def command(self) -> str:
        """The command that trains it."""
        return (
            f"python -m robustcmp.train --model {self.model} --framework {self.framework} --dataset {self.dataset} "
            f"--recipe {self.recipe} --training-seeds {self.seed}"
        )

    def check(self) -> None:
        """Raise `UsageError` for a model, dataset, framework or seed that cannot be."""
        get_architecture(self.model)
        if self.dataset not in DATASETS:
            raise unknown("dataset", self.dataset, DATASETS)
        check_name(self.framework)
        if not 0 <= self.seed < 2**32:
            raise UsageError(f"a training seed should be from 0 to 2**32 - 1, received {self.seed}")


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
    try:
        return msgspec.convert(recipes[dataset], Recipe)
    except msgspec.ValidationError as error:
        raise UsageError(f"{get_architecture(model).name}.toml, [{name}.{dataset}]: {error}") from None


def default_dataset(model: str, recipe: str = "default") -> str:
    """Return the dataset that a recipe names first: MNIST for the LeNets, CIFAR-10 for the others.

    Raises
    ------
    UsageError
        The zoo has no such model or recipe.

    Examples
    --------
    >>> default_dataset("resnet20")
    'cifar10'
    """
    return next(iter(_recipes(model, recipe)))


def _recipes(model: str, name: str) -> dict[str, Any]:
    """Return the tables of a recipe, by dataset."""
    architecture = get_architecture(model)
    file = Path(model) if model.endswith(".toml") else SHIPPED / f"{architecture.name}.toml"
    recipes: dict[str, dict[str, Any]] = msgspec.toml.decode(file.read_bytes())
    recipes.pop("architecture", None)
    if not recipes:
        raise UsageError(f"the model {model} has no recipe: add a table [default.DATASET], see docs/extending.md")
    if name not in recipes:
        raise unknown(f"recipe for {model}", name, recipes)
    table = recipes[name]
    if not isinstance(table, dict) or not table or not all(isinstance(its, dict) for its in table.values()):
        raise UsageError(f"{file.name}: expected tables [{name}.DATASET], see docs/extending.md")
    return table


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
        Where to look first instead of the user cache, as given to ``python -m robustcmp.train --out``.

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
        raise WeightsError(
            f"there are no weights for {name.file.removesuffix('.h5')}. Train them with: {name.command}\n"
            "or name those that there are with --framework and --training-seeds."
        )
    return _as_model(adapter, name, content, device)


def same_weights(model: Model, frameworks: Sequence[str] | None = None, *, device: Device = "auto") -> dict[str, Model]:
    """Carry one training into several frameworks: the control before a difference is looked at.

    `robustcmp.evaluate` on these models measures how far they agree, in ``Evaluation.same_weights``, and gives no R.

    Parameters
    ----------
    model : Model
        From `load_model` or `fit`.
    frameworks : sequence of str, optional
        Every installed one if nothing is said.
    device : str, default "auto"
        ``"auto"``, ``"cpu"`` or ``"cuda"``.

    Returns
    -------
    dict of str to Model
        By framework.

    Raises
    ------
    UsageError
        The network is none of the architectures, or a framework is unknown or not installed.

    Examples
    --------
    >>> one = load_model("lenet1", framework="torch", dataset="digits")
    >>> same_weights(one, ["torch", "jax"])["jax"]
    <robustcmp.Model lenet1 digits 0 jax, bounds (0, 1)>
    """
    if not isinstance(model, Model) or "model" not in model.info:
        raise UsageError(
            "expected a model of the zoo, received another network. Load one with robustcmp.load_model, or train one "
            "with robustcmp.fit."
        )
    described = model.info.get("architecture")
    architecture = msgspec.convert(described, Architecture) if described else get_architecture(model.info["model"])
    weights = get_framework(model.framework).get_weights(model.native, architecture)
    info = {key: value for key, value in model.info.items() if key != "differences"}
    info |= {"same_weights": model.framework}
    carried = {}
    for framework in frameworks or installed():
        adapter = get_framework(framework)
        native = adapter.build(architecture, 0, device)
        adapter.set_weights(native, architecture, weights)
        carried[framework] = wrap(native, framework=framework, device=device, info=info)
    return carried


def _as_model(adapter: TrainableFramework, name: Name, content: WeightsFile, device: Device) -> Model:
    architecture = get_architecture(name.model)
    native = adapter.build(architecture, name.seed, device)
    adapter.set_weights(native, architecture, content.weights)
    return wrap(native, framework=adapter.name, device=device, info=content.metadata)


def fit(
    model: str,
    *,
    framework: str,
    dataset: str | None = None,
    seed: int = 0,
    recipe: str = "default",
    epochs: int | None = None,
    device: Device = "auto",
    out: str | os.PathLike[str] | None = None,
    data_dir: str | os.PathLike[str] | None = None,
    progress: Callable[[int, int, dict[str, float]], None] | None = None,
) -> Model:
    """Train a model by a recipe of the zoo and keep its weights.

    The weights go to the user cache, or to `out`, where `load_model` finds them. A finished training is not done
    again, an interrupted one goes on after its last whole epoch.

    Parameters
    ----------
    model, framework, dataset, recipe : str
        As for `load_model`.
    seed : int, default 0
        The training seed: initial weights and the order of batches are a function of it.
    epochs : int, optional
        Instead of the recipe's.
    device : str, default "auto"
        ``"auto"``, ``"cpu"`` or ``"cuda"``.
    out : path, optional
        The directory for the weights.
    data_dir : path, optional
        Where the dataset lies, see `robustcmp.load_dataset`.
    progress : callable, optional
        Called after each epoch with its number, from 1, the number of epochs, and the last values of the curves.

    Returns
    -------
    Model

    Raises
    ------
    UsageError
        A name or a number cannot be used, or the framework is not installed.
    WeightsError
        `out` holds weights of the same name that were trained in another way.
    DataError
        The dataset cannot be had.
    """
    dataset = dataset or default_dataset(model, recipe)
    name = Name(model, dataset, framework, recipe, seed)
    name.check()
    adapter = get_framework(framework)
    settings = load_recipe(model, dataset, recipe)
    if epochs is not None:
        check_count("epochs", epochs)
        settings = msgspec.structs.replace(settings, epochs=epochs)
    path = Path(out or trained_directory()) / name.file
    if path.exists():
        content = _same_training(path, name, settings)
    else:
        make_directory(path.parent)
        checkpoint = path.with_suffix(".checkpoint.h5")
        content = train(
            adapter,
            get_architecture(model),
            settings,
            load_dataset(dataset, "train", data_dir=data_dir),
            load_dataset(dataset, "test", data_dir=data_dir),
            seed=seed,
            device=device,
            about={"recipe": recipe},
            checkpoint=checkpoint,
            progress=None if progress is None else lambda epoch, last: progress(epoch, settings.epochs, last),
        )
        write_weights(path, content)
        checkpoint.unlink(missing_ok=True)
    return _as_model(adapter, name, _with_source(content, "own"), device)


def _same_training(path: Path, name: Name, settings: Recipe) -> WeightsFile:
    content = _read(path, name)
    if msgspec.convert(content.metadata.get("settings"), Recipe) != settings:
        raise WeightsError(
            f"{path} was trained with {content.metadata.get('settings')}, but {msgspec.to_builtins(settings)} was "
            "asked for. Delete it, or train into another directory with out= (--out)."
        )
    return content


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
        raise WeightsError(
            f"there are no weights of {model} on {dataset} (recipe {recipe}) with the training seeds "
            f"{', '.join(map(str, seeds))} for an installed framework. Train them, for example with: {missing.command}"
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
            "digits. Name a directory with --data-dir or $ROBUSTCMP_DATA for the real one."
        )
        return load_dataset(FALLBACK_DATASET, "test")

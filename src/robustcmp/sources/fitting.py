"""Train a model with a recipe of the zoo, and save its weights."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import msgspec

from .. import limits
from ..errors import WeightsError, check_count, enough_memory
from ..files import as_path, make_directory, remove_left_over
from ..frameworks import Device, get_framework, named
from ..models.model import Model
from ..networks.architecture import get_architecture
from ..networks.weights import WeightsFile, write_weights
from .from_zoo import CHECKPOINT, FromZoo, as_model, read_named, trained_directory, with_source
from .recipes import Recipe, default_dataset, load_for, load_recipe
from .training import train


@enough_memory("this training", "batch_size in its recipe")
def fit(
    model: str,
    *,
    framework: str | None = None,
    dataset: str | None = None,
    seed: int = 0,
    recipe: str = "default",
    epochs: int | None = None,
    device: Device = "auto",
    out: str | os.PathLike[str] | None = None,
    data_dir: str | os.PathLike[str] | None = None,
    progress: Callable[[int, int, dict[str, float]], None] | None = None,
) -> Model:
    """Train a model with a recipe of the zoo and save its weights.

    The weights are saved in the user cache, where `load_model` finds them, or in `out`. A finished training is not
    repeated; an interrupted training resumes after its last completed epoch.

    Parameters
    ----------
    model, framework, dataset, recipe : str
        As for `load_model`.
    seed : int, default 0
        The training seed: initial weights and the order of batches are a function of it.
    epochs : int, optional
        The number of epochs (default: the recipe's).
    device : str, default "auto"
        ``"auto"``, ``"cpu"`` or ``"cuda"``.
    out : path, optional
        The directory for the weights.
    data_dir : path, optional
        The directory of the dataset, see `robustcmp.load_dataset`.
    progress : callable, optional
        Called after each epoch with its number, from 1, the number of epochs, and the last values of the curves.

    Returns
    -------
    Model

    Raises
    ------
    UsageError
        A name or a number is invalid, or the framework is not installed.
    WeightsError
        `out` holds weights of the same name that were trained with other settings.
    DataError
        The dataset is not available.
    """
    dataset = dataset or default_dataset(model, recipe)
    name = FromZoo(model, dataset, named(framework), recipe, seed)
    name.check()
    adapter = get_framework(name.framework)
    settings = load_recipe(model, dataset, recipe)
    if epochs is not None:
        check_count("epochs", epochs, limits.EPOCHS)
        settings = msgspec.structs.replace(settings, epochs=epochs)
    path = as_path(out or trained_directory(), "out") / name.file
    remove_left_over(path.parent)
    if path.exists():
        content = _same_training(path, name, settings)
    else:
        make_directory(path.parent)
        checkpoint = path.with_suffix(CHECKPOINT)
        content = train(
            adapter,
            get_architecture(model),
            settings,
            load_for(model, dataset, "train", data_dir, recipe),
            load_for(model, dataset, "test", data_dir, recipe),
            seed=seed,
            device=device,
            about={"recipe": recipe},
            checkpoint=checkpoint,
            progress=None if progress is None else lambda epoch, last: progress(epoch, settings.epochs, last),
        )
        write_weights(path, content)
        checkpoint.unlink(missing_ok=True)
    return as_model(name, with_source(content, "own"), device)


def _same_training(path: Path, name: FromZoo, settings: Recipe) -> WeightsFile:
    content = read_named(path, name)
    if msgspec.convert(content.metadata.get("settings"), Recipe) != settings:
        raise WeightsError(
            f"{path} was trained with {content.metadata.get('settings')}, but {msgspec.to_builtins(settings)} was "
            "requested. Delete it, or train into another directory with out.",
            parameters=["out"],
        )
    return content

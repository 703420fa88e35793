"""A recipe, fitted in one framework.

Everything but the framework is the same: the batches and their order, the optimiser, its schedule and the loss. What
stays a framework's own (its initialisation, for one) is listed in `Framework.differences`.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from .. import limits
from ..data.dataset import Dataset, hold_out
from ..errors import UsageError, WeightsError, check_count, enough_memory
from ..files import as_path, make_directory, remove_left_over
from ..frameworks import Device, TrainableFramework, get_framework, require_name
from ..models.model import Model, predict, wrap
from ..networks.architecture import ARCHITECTURES, Architecture, BatchNorm, get_architecture
from ..networks.weights import Weights, WeightsFile, read_weights, write_weights
from ..provenance import made_with
from .from_zoo import CHECKPOINT, FromZoo, make_model, read_named, weights_directory
from .recipes import Recipe, default_dataset, load_for, load_recipe

VALIDATION_FRACTION = 0.1
EPOCH_CURVES = ("loss", "validation_accuracy", "learning_rate", "seconds")


def batch_order(seed: int, epoch: int, n: int) -> NDArray[np.int64]:
    """Return the order in which an epoch visits n images: a function of the training seed and the epoch alone.

    >>> batch_order(0, 0, 5)
    array([4, 1, 2, 0, 3])
    """
    key = np.array([seed, epoch], np.uint64)
    return np.random.Generator(np.random.Philox(key=key)).permutation(n)


class _Augmentation:
    """The random crops and flips of an epoch: a function of the training seed, the epoch and the image's place.

    Parameters
    ----------
    recipe : Recipe
        Its `crop` and `flip`.
    seed, epoch : int
        What the draws depend on.
    n : int
        How many images the training set has.
    """

    def __init__(self, recipe: Recipe, seed: int, epoch: int, n: int):
        # The counter keeps these draws apart from `batch_order`'s, which have the same key.
        generator = np.random.Generator(np.random.Philox(key=np.array([seed, epoch], np.uint64), counter=[0, 0, 0, 1]))
        self._crop = recipe.crop
        self._places = generator.integers(0, 2 * recipe.crop + 1, (n, 2))
        self._flipped = generator.random(n) < 0.5 if recipe.flip else np.zeros(n, np.bool_)

    def __call__(self, images: NDArray[np.float32], which: NDArray[np.int64]) -> NDArray[np.float32]:
        """Return the images (N, H, W, C) at some places of the training set, each as this epoch has it."""
        batch = images[which]
        if self._crop:
            border = (self._crop, self._crop)
            windows = sliding_window_view(
                np.pad(batch, ((0, 0), border, border, (0, 0))), batch.shape[1:3], axis=(1, 2)
            )
            row, column = self._places[which].T
            batch = windows[np.arange(len(which)), row, column].transpose(0, 2, 3, 1)
        flipped = self._flipped[which]
        batch[flipped] = batch[flipped, :, ::-1]
        return np.ascontiguousarray(batch)


def train(
    framework: TrainableFramework,
    architecture: Architecture,
    recipe: Recipe,
    train_data: Dataset,
    test_data: Dataset,
    *,
    seed: int,
    device: Device = "auto",
    about: dict[str, Any] | None = None,
    checkpoint: Path | None = None,
    progress: Callable[[int, dict[str, float]], None] | None = None,
) -> WeightsFile:
    """Train a network and return its weights with all that is known of the training.

    A tenth of the training set, stratified and the same for every training, is held out for validation. The test set
    is looked at once, after the last epoch; the last weights are taken, whatever either accuracy was.

    Parameters
    ----------
    framework, architecture, recipe, train_data, test_data
        What is trained, how, and on what.
    seed : int
        The training seed: initial weights, the order of batches, crops and flips are a function of it.
    about : dict, optional
        More metadata, JSON types only. Nothing but a checkpoint with the same metadata is continued.
    checkpoint : Path, optional
        A file that is written after each epoch and continued from if it is there. It is left for the caller to
        delete once the result is safe.
    progress : callable, optional
        Called after each epoch with its number, from 1, and the last values of the curves.

    Raises
    ------
    UsageError
        The images do not fit the architecture.
    WeightsError
        The checkpoint belongs to another training.
    """
    fitting = Fitting(framework, architecture, recipe, train_data, seed, device)
    metadata = _describe_training(framework, architecture, recipe, train_data, seed, device) | (about or {})
    if checkpoint is not None and checkpoint.exists():
        fitting.resume(_read_checkpoint(checkpoint, metadata))
    for epoch in range(len(fitting.curves["loss"]), recipe.epochs):
        start = time.perf_counter()
        fitting.pass_over(epoch)
        fitting.curves["validation_accuracy"].append(fitting.measure_accuracy(held_out=True))
        fitting.curves["seconds"].append(time.perf_counter() - start)
        if checkpoint is not None:
            write_weights(checkpoint, fitting.checkpoint(metadata))
        if progress is not None:
            progress(epoch + 1, {name: fitting.curves[name][-1] for name in EPOCH_CURVES})
    metadata |= {
        "test_accuracy": float((predict(fitting.model, test_data.images) == test_data.labels).mean()),
        "validation_accuracy": fitting.curves["validation_accuracy"][-1],
        "test_data": test_data.digest,
    }
    return WeightsFile(fitting.get_weights(), metadata, _arrays(fitting.curves))


class _Step(NamedTuple):
    """A step of a training: the mean cross-entropy of its batch, how many images that has, and the learning rate."""

    loss: float
    images: int
    rate: float


class Fitting:
    """A network on its way through a recipe, with its curves.

    Of the training images a tenth is held out, stratified and the same for every training.

    Attributes
    ----------
    model : Model
        The network.
    steps_an_epoch : int
        How many steps an epoch has.
    curves : dict of str to list
        See `WeightsFile`.
    """

    def __init__(
        self,
        framework: TrainableFramework,
        architecture: Architecture,
        recipe: Recipe,
        data: Dataset,
        seed: int,
        device: Device,
    ):
        _check_fit(architecture, data)
        self._rest, self._held_out = hold_out(data.labels, VALIDATION_FRACTION)
        check_batches(architecture, recipe, len(self._rest))
        self._data = data
        self._seed = seed
        self._framework = framework
        self._architecture = architecture
        self._recipe = recipe
        self._native = framework.build(architecture, seed, device)
        self.model = wrap(self._native, framework=framework.name, device=device)
        self._trainer = framework.trainer(self._native, architecture, recipe.momentum, recipe.weight_decay)
        self.steps_an_epoch = math.ceil(len(self._rest) / recipe.batch_size)
        self.curves: dict[str, list[float]] = {name: [] for name in (*EPOCH_CURVES, "batch_loss")}

    def get_weights(self) -> Weights:
        """Return the weights as they are now."""
        return self._framework.get_weights(self._native, self._architecture)

    def measure_accuracy(self, held_out: bool) -> float:
        """Return the accuracy on the images that are held out, or on as many that it is trained on."""
        which = self._held_out if held_out else self._rest[: len(self._held_out)]
        return float((predict(self.model, self._data.images[which]) == self._data.labels[which]).mean())

    def resume(self, checkpoint: WeightsFile) -> None:
        """Go on where a checkpoint was written."""
        self._framework.set_weights(self._native, self._architecture, _part(checkpoint.weights, "weights"))
        self._trainer.set_velocity(_part(checkpoint.weights, "velocity"))
        self.curves |= {name: list(values) for name, values in checkpoint.curves.items()}

    def checkpoint(self, metadata: dict[str, Any]) -> WeightsFile:
        """Return what `resume` needs."""
        weights = _prefix("weights", self.get_weights())
        return WeightsFile(weights | _prefix("velocity", self._trainer.velocity()), metadata, _arrays(self.curves))

    def pass_over(self, epoch: int) -> None:
        """Take the steps of one epoch."""
        loss = 0.0
        for step in self.steps(epoch):
            self.curves["batch_loss"].append(step.loss)
            loss += step.loss * step.images
        self.curves["loss"].append(loss / len(self._rest))
        self.curves["learning_rate"].append(step.rate)

    def steps(self, epoch: int) -> Iterator[_Step]:
        """Return the steps of one epoch, of which each is taken when it is asked for; all draws are made before."""
        order = self._rest[batch_order(self._seed, epoch, len(self._rest))]
        return self._take_steps(epoch, order, _Augmentation(self._recipe, self._seed, epoch, len(self._data.images)))

    def _take_steps(self, epoch: int, order: NDArray[np.int64], augmented: _Augmentation) -> Iterator[_Step]:
        size = self._recipe.batch_size
        for number in range(self.steps_an_epoch):
            batch = order[number * size : (number + 1) * size]
            rate = self._recipe.rate((epoch + number / self.steps_an_epoch) / self._recipe.epochs)
            images = augmented(self._data.images, batch)
            yield _Step(self._trainer.step(images, self._data.labels[batch], rate), len(batch), rate)


def _check_fit(architecture: Architecture, data: Dataset) -> None:
    """Raise `UsageError` for images that a network does not take, or other classes than it has."""
    if data.images.shape[1:] != architecture.input_shape:
        raise UsageError(
            f"{architecture.name} takes images of shape {architecture.input_shape} (H, W, C), "
            f"but {data.name} has {data.images.shape[1:]}"
        )
    if architecture.classes != data.classes:
        raise UsageError(f"{architecture.name} has {architecture.classes} classes, but {data.name} has {data.classes}")


def _has_batch_norm(architecture: Architecture) -> bool:
    return any(isinstance(layer, BatchNorm) for layer, _ in architecture.walk())


def check_batches(architecture: Architecture, recipe: Recipe, n: int) -> None:
    """Raise `UsageError` where a batch norm would get one image alone."""
    if _has_batch_norm(architecture) and 1 in (recipe.batch_size, n % recipe.batch_size):
        raise UsageError(
            f"a batch norm should get two images or more, but a batch of {recipe.batch_size} leaves one of the "
            f"{n} images that {architecture.name} is trained on. Choose another batch_size."
        )


def _describe_training(
    framework: TrainableFramework,
    architecture: Architecture,
    recipe: Recipe,
    data: Dataset,
    seed: int,
    device: Device,
) -> dict[str, Any]:
    """Return what a training is known by, as JSON types."""
    has_batch_norm = _has_batch_norm(architecture)
    metadata = {
        "model": architecture.name,
        "dataset": data.name,
        "framework": framework.name,
        "training_seed": seed,
        "settings": msgspec.to_builtins(recipe),
        "data": data.digest,
        "differences": {
            key: text for key, text in framework.differences.items() if key != "batch norm" or has_batch_norm
        },
        "environment": made_with() | {"framework": framework.version(), "device": device},
    }
    if architecture.name not in ARCHITECTURES:
        metadata["architecture"] = architecture.description
    return metadata


def _read_checkpoint(path: Path, metadata: dict[str, Any]) -> WeightsFile:
    content = read_weights(path)
    for key, value in metadata.items():
        if key != "environment" and content.metadata.get(key) != value:
            raise WeightsError(
                f"the checkpoint {path} belongs to another training: its {key} is {content.metadata.get(key)!r}, "
                f"but {value!r} was requested. Delete it to start again, or train into another directory."
            )
    return content


def _prefix(group: str, arrays: Weights) -> Weights:
    return {f"{group}/{name}": array for name, array in arrays.items()}


def _part(arrays: Weights, group: str) -> Weights:
    return {name.removeprefix(f"{group}/"): array for name, array in arrays.items() if name.startswith(f"{group}/")}


def _arrays(curves: dict[str, list[float]]) -> dict[str, NDArray[np.float64]]:
    return {name: np.array(values, np.float64) for name, values in curves.items()}


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
    name = FromZoo(model, dataset, require_name(framework), recipe, seed)
    name.check()
    settings = load_recipe(model, dataset, recipe)
    if epochs is not None:
        check_count("epochs", epochs, limits.EPOCHS)
        settings = msgspec.structs.replace(settings, epochs=epochs)
    path = as_path(out or weights_directory(), "out") / name.file
    checkpoint = path.with_suffix(CHECKPOINT)
    remove_left_over(path.parent, f"{path.stem[:39]}.")
    if path.exists():
        _check_same_training(path, name, settings)
    else:
        make_directory(path.parent)
        content = train(
            get_framework(name.framework),
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
    checkpoint.unlink(missing_ok=True)  # also one that was left by a kill after the weights were written
    return make_model(name, read_named(path, name, "own"), device)


def _check_same_training(path: Path, name: FromZoo, settings: Recipe) -> None:
    trained = read_named(path, name, "own").metadata.get("settings")
    if msgspec.convert(trained, Recipe) != settings:
        raise WeightsError(
            f"{path} was trained with {trained}, but {msgspec.to_builtins(settings)} was requested. Delete it, or "
            "train into another directory with out.",
            parameters=["out"],
        )

"""What a process does that measures a training: steps of a recipe, each timed, and accuracies between epochs."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import replace
from itertools import islice

import msgspec
import numpy as np
from numpy.typing import NDArray

from ..data.dataset import Dataset, stratified_split
from ..frameworks import Device, get_framework
from ..models.classifier import Classifier
from ..models.model import wrap
from ..networks.architecture import get_architecture
from ..sources.recipes import Recipe, load_for, load_recipe
from ..sources.training import (
    VALIDATION_FRACTION,
    Augmentation,
    Fitting,
    accuracy,
    batch_order,
    check_batches,
    check_fit,
    steps_an_epoch,
)
from .measurement import Epoch
from .outcome import Outcome


class TrainingJob(msgspec.Struct, frozen=True):
    """A training that is measured.

    Attributes
    ----------
    model, dataset, recipe, framework : str
        As for `robustcmp.fit`.
    seed : int
        The training seed.
    batch_size : int
        In the place of the recipe's; the learning rate stays.
    epochs : float
        How many; 0.1 is the first tenth of the steps of one.
    device : str
        ``"auto"``, ``"cpu"`` or ``"cuda"``.
    data_dir : str, optional
        Where the dataset is.
    """

    model: str
    dataset: str
    recipe: str
    framework: str
    seed: int
    batch_size: int
    epochs: float
    device: Device = "auto"
    data_dir: str | None = None

    @property
    def settings(self) -> Recipe:
        """The recipe as it is followed here; its schedule ends with the last epoch."""
        recipe = load_recipe(self.model, self.dataset, self.recipe)
        return msgspec.structs.replace(recipe, batch_size=self.batch_size, epochs=math.ceil(self.epochs))

    def check(self, images: int) -> None:
        """Raise `UsageError` for a batch size that a training set of so many images does not allow."""
        check_batches(get_architecture(self.model), self.settings, images)

    def do(self, ready: Callable[[], None]) -> Outcome:
        """Train, and return what was measured; `ready` is called before the first step."""
        framework, architecture, recipe = get_framework(self.framework), get_architecture(self.model), self.settings
        data = load_for(self.model, self.dataset, "train", self.data_dir, self.recipe)
        check_fit(architecture, data)
        rest, held_out = stratified_split(data.labels, VALIDATION_FRACTION)
        native = framework.build(architecture, self.seed, self.device)
        model = wrap(native, framework=framework.name, device=self.device)
        fitting = Fitting(framework, native, architecture, recipe)
        seen, unseen = _part(data, rest[: len(held_out)]), _part(data, held_out)
        calls: list[float] = []
        epochs: list[Epoch] = []
        ready()
        for epoch in range(recipe.epochs):
            order = rest[batch_order(self.seed, epoch, len(rest))]
            augmented = Augmentation(recipe, self.seed, epoch, len(data.images))
            whole = steps_an_epoch(recipe, len(order))
            steps = max(1, round(min(1.0, self.epochs - epoch) * whole))
            losses: list[tuple[float, int]] = []
            last = began = time.perf_counter()
            for step in islice(fitting.steps(data, order, augmented, epoch), steps):
                now = time.perf_counter()
                calls.append(now - last)
                losses.append((step.loss, step.images))
                last = now
            seconds = last - began
            loss = sum(each * images for each, images in losses) / sum(images for _, images in losses)
            right = [accuracy(model, each) for each in (seen, unseen)]
            epochs.append(Epoch(steps / whole, seconds, loss if math.isfinite(loss) else None, *right))
        weights = framework.get_weights(native, architecture)
        return Outcome(
            first=calls[0],
            calls=calls[1:],
            epochs=epochs,
            parameters=architecture.parameters,
            bytes=sum(array.nbytes for array in weights.values()),
            version=framework.version(),
            device="cuda" if Classifier(model).on_gpu else "cpu",
        )


def _part(data: Dataset, which: NDArray[np.int64]) -> Dataset:
    return replace(data, images=data.images[which], labels=data.labels[which])

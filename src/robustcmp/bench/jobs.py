"""What a process does that measures a training, predictions, or the answers for the same-weights control."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from functools import partial
from itertools import islice
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from ..data import load_dataset
from ..frameworks import Device, get_framework
from ..models.classifier import Classifier
from ..models.preflight import in_unit_bounds
from ..networks.architecture import get_architecture
from ..sources.deployed import AnyOrigin
from ..sources.from_zoo import FromZoo
from ..sources.recipes import Recipe, load_for, load_recipe
from ..sources.training import Fitting
from .measurement import Epoch, Task

FEWEST_CALLS = 40  # p95 takes 20, and up to half of the calls may be warm-up; images are asked about again for them


class NotApplicable(Exception):
    """What is measured has no such thing; the message says why."""


class TrainingJob(msgspec.Struct, frozen=True):
    """A training that is measured; `epochs` of 0.1 are the first tenth of the steps of one."""

    origin: FromZoo
    batch_size: int
    epochs: float
    device: Device = "auto"
    data_dir: str | None = None

    def load_settings(self) -> Recipe:
        """Return the recipe as it is followed here; its schedule ends with the last epoch."""
        recipe = load_recipe(self.origin.model, self.origin.dataset, self.origin.recipe)
        return msgspec.structs.replace(recipe, batch_size=self.batch_size, epochs=math.ceil(self.epochs))

    def do(self, ready: Callable[[], None]) -> dict[str, Any]:
        """Train, and return fields of a `Measurement`; `ready` is called before the first step."""
        origin = self.origin
        framework = get_framework(origin.framework)
        architecture = get_architecture(origin.model)
        recipe = self.load_settings()
        data = load_for(origin.model, origin.dataset, "train", self.data_dir, origin.recipe)
        fitting = Fitting(framework, architecture, recipe, data, origin.seed, self.device)
        calls: list[float] = []
        epochs: list[Epoch] = []
        ready()
        for epoch in range(recipe.epochs):
            following = fitting.steps(epoch)
            whole = fitting.steps_an_epoch
            steps = max(1, round(min(1.0, self.epochs - epoch) * whole))
            losses: list[float] = []
            images: list[int] = []
            last = began = time.perf_counter()
            for step in islice(following, steps):
                now = time.perf_counter()
                calls.append(now - last)
                losses.append(step.loss)
                images.append(step.images)
                last = now
            seconds = last - began
            loss = float(np.average(losses, weights=images))
            accuracies = [fitting.measure_accuracy(held_out) for held_out in (False, True)]
            epochs.append(Epoch(steps / whole, seconds, loss if math.isfinite(loss) else None, *accuracies))
        return _describe(Classifier(fitting.model), calls) | {"epochs": epochs}


def _describe(classifier: Classifier, calls: list[float]) -> dict[str, Any]:
    """Return what is measured of every process: the first call, in which frameworks compile, and the others."""
    return {
        "first_seconds": round(calls[0], 9),
        "calls": [round(seconds, 9) for seconds in calls[1:]],
        "version": classifier.framework.version(),
        "device": "cuda" if classifier.on_gpu else "cpu",
    }


class PredictionJob(msgspec.Struct, frozen=True):
    """Predictions of test images that are measured, or without a task the logits alone: for the same-weights control.

    Where there are too few images, they are asked about again from the first one.
    """

    origin: AnyOrigin
    dataset: str
    task: Task | None
    images: int
    batch_size: int
    device: Device = "auto"
    data_dir: str | None = None

    def do(self, ready: Callable[[], None]) -> dict[str, Any]:
        """Ask, and return fields of a `Measurement`, or logits; `ready` is called before the network is compiled."""
        model = self.origin.load(self.device)
        data = load_dataset(self.dataset, "test", data_dir=self.data_dir)
        some = np.resize(data.images, (self.images, *data.images.shape[1:]))
        classifier = Classifier(in_unit_bounds(model), self.batch_size)
        if self.task is None:
            return {"logits": classifier.compile(some).logits(some)}
        if self.task == "forward-backward" and (reason := classifier.no_gradient):
            raise NotApplicable(reason)
        batches = self.images // self.batch_size
        ready()
        began = time.perf_counter()
        classifier = classifier.compile(some[: self.batch_size])
        call = classifier.forward if self.task == "forward" else partial(_differentiate, classifier)
        call(some[: self.batch_size])
        calls = [time.perf_counter() - began]
        for number in range(max(batches, FEWEST_CALLS)):
            start = number % batches * self.batch_size
            batch = some[start : start + self.batch_size]
            began = time.perf_counter()
            call(batch)
            calls.append(time.perf_counter() - began)
        return _describe(classifier, calls)


def _differentiate(classifier: Classifier, images: NDArray[np.float32]) -> NDArray[np.float32]:
    """Predict, and return the gradient of one logit with respect to the images."""
    v = np.zeros_like(classifier.forward(images))
    v[:, 0] = 1
    return classifier.vjp(images, v)

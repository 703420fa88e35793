"""What a process does that measures predictions: calls on batches, each timed, through the way that attacks ask."""

from __future__ import annotations

import time
from collections.abc import Callable

import foolbox as fb
import msgspec
import numpy as np
from numpy.typing import NDArray

from ..data import load_dataset
from ..frameworks import Device
from ..models.classifier import Classifier
from ..models.preflight import in_unit_bounds
from ..networks.architecture import Architecture
from ..sources.deployed import AnyOrigin
from .measurement import Task
from .outcome import NotApplicable, Outcome

FEWEST_CALLS = 40  # p95 takes 20, and up to half of the calls may be warm-up; images are asked about again for them


class PredictionJob(msgspec.Struct, frozen=True):
    """Predictions that are measured.

    Attributes
    ----------
    origin : AnyOrigin
        Where the network comes from.
    dataset : str
        Whose test images are asked about, again from the first one where there are too few.
    task : str
        ``"forward"`` or ``"forward-backward"``, to the gradient of one logit's sum with respect to the images.
    images, batch_size : int
        As in `robustcmp.bench.measurement.Asked`.
    device, data_dir
        As for `robustcmp.bench.training.TrainingJob`.
    """

    origin: AnyOrigin
    dataset: str
    task: Task
    images: int
    batch_size: int
    device: Device = "auto"
    data_dir: str | None = None

    def do(self, ready: Callable[[], None]) -> Outcome:
        """Ask, and return what was measured; `ready` is called before the network is compiled."""
        model = self.origin.load(self.device)
        data = load_dataset(self.dataset, "test", data_dir=self.data_dir)
        batches = self.images // self.batch_size
        some = np.resize(data.images, (self.images, *data.images.shape[1:]))
        classifier = Classifier(in_unit_bounds(model), self.batch_size)
        if self.task == "forward-backward" and (reason := classifier.no_gradient):
            raise NotApplicable(reason)
        ready()
        began = time.perf_counter()
        classifier = classifier.compiled(some[: self.batch_size])
        call = _call(classifier, self.task)
        call(some[: self.batch_size])
        first = time.perf_counter() - began
        calls: list[float] = []
        for number in range(max(batches, FEWEST_CALLS)):
            start = number % batches * self.batch_size
            batch = some[start : start + self.batch_size]
            began = time.perf_counter()
            call(batch)
            calls.append(time.perf_counter() - began)
        return Outcome(
            first=first,
            calls=calls,
            version=classifier.framework.version(),
            device="cuda" if classifier.on_gpu else "cpu",
            parameters=_parameters(model),
            bytes=_bytes(model, classifier),
        )


class ControlJob(msgspec.Struct, frozen=True):
    """What a network answers to the first test images: for the same-weights control, before anything is measured."""

    origin: AnyOrigin
    dataset: str
    images: int
    device: Device = "auto"
    data_dir: str | None = None

    def do(self, ready: Callable[[], None]) -> Outcome:
        """Ask, and return the logits."""
        images = load_dataset(self.dataset, "test", data_dir=self.data_dir).images[: self.images]
        classifier = Classifier(in_unit_bounds(self.origin.load(self.device))).compiled(images)
        ready()
        return Outcome(logits=classifier.logits(images).tolist(), version=classifier.framework.version())


def _call(classifier: Classifier, task: Task) -> Callable[[NDArray[np.float32]], NDArray[np.float32]]:
    """Return what is timed: it ends when its answer is in NumPy."""
    if task == "forward":
        return classifier.forward

    def backward(images: NDArray[np.float32]) -> NDArray[np.float32]:
        logits = classifier.forward(images)
        v = np.zeros_like(logits)
        v[:, 0] = 1
        return classifier.vjp(images, v)

    return backward


def _parameters(model: fb.models.base.Model) -> int | None:
    """Return how many numbers a network of the zoo has learned."""
    architecture: Architecture | None = getattr(model, "architecture", None)
    return None if architecture is None else architecture.parameters


def _bytes(model: fb.models.base.Model, classifier: Classifier) -> int | None:
    """Return the size of a deployed network's file, or of a network's parameters."""
    said = getattr(model, "info", {}).get("deployment", {})
    if "bytes" in said:
        return int(said["bytes"])
    parameters = classifier.parameters()
    return None if parameters is None else sum(array.nbytes for array in parameters)

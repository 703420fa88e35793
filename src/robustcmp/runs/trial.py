"""Models that are not the zoo's, loaded and asked in another process before the process of the comparison does it.

A model whose code crashes, exits or hangs ends that process and not this one. What is asked is what will be asked here
before the first attack: the checks, a gradient if an attack needs one, batches of the size in question, and a few
perturbed images. An error that is raised there will be raised here again, by whoever loads the model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import ModelError, NoGradientError
from ..frameworks import Device
from ..models.batches import BATCH_SIZES, largest_batch_size, measure_batch_size
from ..models.classifier import Classifier
from ..models.preflight import check_gradient, in_unit_bounds
from ..processes import Child, Died, Limits
from ..sources.deployed import FromDeployedFile
from ..sources.from_code import FromFunction
from ..sources.from_files import FromFile
from .blame import blame
from .identity import identify_once
from .loading import Models, batch_size_label, compile_and_check
from .progress import Progress
from .question import Question
from .tasks import CHILD

Stranger = FromFile | FromFunction | FromDeployedFile
FEWEST = 64  # images, of which a gradient is asked
A_MOMENT = 1e-6  # seconds in which each size of a batch is asked: once


@dataclass(frozen=True)
class TrialTask:
    """A model, and what it is asked.

    Attributes
    ----------
    name, label : str
        What the caller calls it, and messages.
    origin : FromFile, FromFunction or FromDeployedFile
        What it is loaded from.
    device : str
        Where it will run.
    images, labels : ndarray
        Some, (N, H, W, C) float32 in [0, 1] and (N,).
    needs_gradient : bool
        Whether an attack does.
    batch_size : int, optional
        With how many images at once it will be asked, None if that is to be measured.
    measured : dict of str to int
        The batch sizes that were measured before, by `batch_size_label`.
    """

    name: str
    label: str
    origin: Stranger
    device: Device
    images: NDArray[np.float32]
    labels: NDArray[np.int64]
    needs_gradient: bool
    batch_size: int | None
    measured: Mapping[str, int]

    def run(self) -> None:
        """Load the model and ask it, in this process."""
        blame(f"trying {self.label}", self._run)

    def _run(self) -> None:
        images, labels = self.images, self.labels
        classifier = Classifier(in_unit_bounds(self.origin.load(self.device)))
        classifier, _ = compile_and_check(self.name, classifier, images, labels, self.batch_size)
        needs_gradient = self.needs_gradient and not classifier.no_gradient
        if needs_gradient:
            try:
                check_gradient(self.name, classifier.gradient_source or classifier, images)
            except NoGradientError:  # those attacks are not applicable
                needs_gradient = False
        size = self.batch_size or self.measured.get(batch_size_label(self.name, classifier))
        if size:
            classifier.with_batch_size(size).logits(images[np.arange(size) % len(images)])
        else:
            size = measure_batch_size(classifier, images, seconds=A_MOMENT)
        identify_once(classifier.with_batch_size(size), images[:FEWEST], labels[:FEWEST], needs_gradient)


def try_models(
    models: Models,
    question: Question,
    stored: Mapping[str, Any],
    device: Device,
    limits: Limits,
    progress: Progress,
) -> None:
    """Try models that are not the zoo's in a process for each framework, before they are loaded in this one.

    Parameters are those of `trials`, and the limits for each trial.

    Raises
    ------
    ModelError
        A model ended its process, or reached a limit.
    """
    tasks = trials(models, question, stored, device)
    if tasks:
        progress.begin("trying models in another process", len(tasks))
    for _, alike in groupby(tasks, process_of):
        child = Child(CHILD, limits)
        try:
            for task in alike:
                for _ in child.request((task, None)):
                    pass
                progress.step()
        except Died as death:
            raise ModelError(
                f"the model {task.label} ({task.origin.source}) could not be loaded and asked in a process of its "
                f"own, and nothing was begun. Mend the model, or leave it out. What came: {death}"
            ) from None
        finally:
            child.close()


def trials(models: Models, question: Question, stored: Mapping[str, Any], device: Device) -> list[TrialTask]:
    """Return the trials of the models that are not the zoo's, those of one framework one after another.

    Parameters
    ----------
    models : dict of str to model, or to a list of models
        As for `robustcmp.evaluate`. One that is loaded already, or converted here, has none.
    question : Question
        What will be asked.
    stored : dict
        The manifest of the run, empty for a new one.
    device : str
        Where the models will be loaded.
    """
    if not isinstance(models, Mapping):
        return []  # whoever loads them says so
    some = slice(max(FEWEST, min(BATCH_SIZES[-1], largest_batch_size(question.images))))
    needs_gradient = any(attack.needs_gradient for attack in question.suite.attacks.values())
    made = [
        TrialTask(
            name=str(name),
            label=f"{name}/{counted}",
            origin=origin,
            device=device,
            images=question.images[some],
            labels=question.labels[some],
            needs_gradient=needs_gradient,
            batch_size=question.batch_size,
            measured=stored.get("batch_sizes", {}),
        )
        for name, given in models.items()
        for counted, origin in enumerate(given if isinstance(given, Sequence) else [given])
        if isinstance(origin, Stranger)
    ]
    return sorted(made, key=process_of)


def process_of(trial: TrialTask) -> str:
    """Return what models have in common that are tried in one process: a framework, or that functions may take any."""
    return "" if isinstance(trial.origin, FromFunction) else trial.origin.framework

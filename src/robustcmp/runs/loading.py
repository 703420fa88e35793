"""The models of a comparison, made ready: loaded, compiled, checked, each with its batch size."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import foolbox as fb
import numpy as np
from numpy.typing import NDArray

from ..attacks.suite import Suite
from ..errors import LOG, ModelError, NoGradientError, UsageError, is_name
from ..frameworks import Device
from ..models.batches import largest_batch_size, measure_batch_size
from ..models.classifier import Classifier, unwrap
from ..models.preflight import check_gradient, check_model, in_unit_bounds
from ..sources.deployed import AnyOrigin, Origin
from .blame import blame
from .identity import Identity
from .progress import Progress
from .question import Question
from .related import check_control

AnyModel = fb.models.base.Model | AnyOrigin
Models = Mapping[str, AnyModel | Sequence[AnyModel]]


@dataclass(eq=False)
class TrainedModel:
    """One trained model in a comparison, with what the steps of the comparison find out about it.

    Attributes
    ----------
    name : str
        What the caller calls it, or its framework.
    training_seed : int
        Which of the trainings of that name it is.
    classifier : Classifier
        The model, with the batch size that it is asked with.
    origin : Origin, optional
        Where it comes from, so that another process can load it; None for a model that the caller made.
    depends_on_batch : bool
        Whether its answers depend on the other images of a batch, so that it is asked one image at a time.
    correct : ndarray of bool, shape (images,)
        Which of all images it classifies correctly.
    cause : str
        What usual cause makes it less accurate than it could be, in a sentence; "" where none is seen.
    not_applicable : dict of str to str
        Why attacks cannot run on it, by their names; they have no cells.
    identity : Identity
        What tells it from the others.
    margins : ndarray of float64, shape (attacked images,)
        The true class's logit minus the largest other one.
    failed : dict of str to str
        Why attacks failed on it, by their names.
    """

    name: str
    training_seed: int
    classifier: Classifier
    origin: Origin | None = None
    depends_on_batch: bool = False
    cause: str = ""
    not_applicable: dict[str, str] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    correct: NDArray[np.bool_] = field(init=False)
    identity: Identity = field(init=False)
    margins: NDArray[np.float64] = field(init=False)

    @property
    def key(self) -> tuple[str, int]:
        """What tells it from the others."""
        return self.name, self.training_seed

    @property
    def label(self) -> str:
        """What messages call it."""
        return f"{self.name}/{self.training_seed}"

    @property
    def info(self) -> dict[str, Any]:
        """What is known of its training."""
        return getattr(unwrap(self.classifier.model), "info", {})


def list_models(models: Models) -> list[tuple[str, int, AnyModel]]:
    """Return all models of all lists, each with its name and its place; raise `UsageError` where there is none."""
    if not isinstance(models, Mapping):
        raise UsageError(f"expected a dict of models by name, received {type(models).__name__}")
    listed = []
    for name, entry in models.items():
        if not is_name(str(name)):
            raise UsageError(f"a model's name should be one line without control characters, received {name!r}")
        trainings = list(entry) if isinstance(entry, Sequence) else [entry]
        if not trainings:
            raise UsageError(f"expected at least one model for {name!r}, received an empty list")
        listed += [(str(name), number, model) for number, model in enumerate(trainings)]
    if not listed:
        raise UsageError("expected at least one model, received none")
    return listed


def load(models: Models, device: Device, progress: Progress) -> list[TrainedModel]:
    """Return all models with their training seeds: as they were trained where that is known, else counted.

    Raises
    ------
    UsageError
        There is no model, or what was passed is no dict of models.
    """
    listed = list_models(models)
    progress.begin("loading models", len(listed))
    trained = []
    for name, number, source in listed:
        network = blame(f"loading {name}/{number}", source.load, device) if isinstance(source, AnyOrigin) else source
        origin = source if isinstance(source, Origin) else None
        trained.append(TrainedModel(name, number, Classifier(in_unit_bounds(network)), origin))
        progress.step()
    keys = {(model.name, model.info.get("training_seed")) for model in trained}
    if len(keys) == len(trained) and all(seed is not None for _, seed in keys):
        for model in trained:
            model.training_seed = model.info["training_seed"]
    return trained


def check_models(models: Sequence[TrainedModel], question: Question, progress: Progress) -> None:
    """Compile models, once each has been seen to be a classifier that the suite can attack.

    With a `batch_size` of 1, its answers may depend on the other images of a batch, as it is never asked a batch.

    Raises
    ------
    UsageError
        A label is no class of a model, models have different numbers of classes, or the same weights are compared by a
        suite that cannot tell.
    ModelError
        A model does not behave as a classifier that gives logits, its gradient means nothing, or no attack can run on
        any model.
    """
    check_control(models, question.suite)
    progress.begin("compiling and checking models", len(models))
    for model in models:
        blame(f"checking {model.label}", _check, model, question)
        progress.step()
    classes = {model.name: model.classifier.logits(question.images[:1]).shape[1] for model in models}
    if len({*classes.values()}) > 1:
        each = ", ".join(f"{name} {count}" for name, count in classes.items())
        raise UsageError(f"expected models of the same classes, received different numbers of classes: {each}")
    _note_inapplicable(models, question.suite)  # now it is known which have no gradient


def _check(model: TrainedModel, question: Question) -> None:
    classifier = model.classifier.compile(question.images)
    if question.batch_size == 1:
        classifier = classifier.with_batch_size(1)
    model.classifier = classifier
    model.depends_on_batch = check_model(model.name, classifier, question.images, question.labels)
    followed = classifier.gradient_source or classifier
    attacks = question.suite.attacks.values()
    if not followed.no_gradient and any(
        attack.needs_gradient and not attack.not_applicable(classifier) for attack in attacks
    ):
        try:
            check_gradient(model.name, followed, question.images)
        except NoGradientError as error:
            classifier.no_gradient = str(error)


def _note_inapplicable(models: Sequence[TrainedModel], suite: Suite) -> None:
    """Note which attacks cannot run on each model, or raise `ModelError` if no attack can run on any of them."""
    for model in models:
        reasons = {name: attack.not_applicable(model.classifier) for name, attack in suite.attacks.items()}
        model.not_applicable = {name: reason for name, reason in reasons.items() if reason}
    if all(len(model.not_applicable) == len(suite.attacks) for model in models):
        reason = next(iter(models[0].not_applicable.values()))
        raise ModelError(f"no attack of the suite {suite.name} can run on any of the models: {reason}")


def set_batch_sizes(models: Sequence[TrainedModel], question: Question, stored: Mapping[str, Any]) -> dict[str, int]:
    """Give every model its batch size: the caller's, or what an earlier session of the run found, or measured now.

    The trainings of one name share a batch size, as they are one network design in one framework. Return all that were
    ever measured in the run, for its manifest.
    """
    images = question.images
    measured: dict[str, int] = dict(stored.get("batch_sizes", {}))
    for model in models:
        classifier = model.classifier
        label = f"{model.name} on a GPU" if classifier.on_gpu else model.name
        if question.batch_size is None and label not in measured:
            activity = f"measuring the batch size of {model.label}"
            measured[label] = blame(activity, measure_batch_size, classifier, images)
        size = question.batch_size or min(measured[label], largest_batch_size(images))
        model.classifier = classifier.with_batch_size(size)
        LOG.info("%s is asked %d images at once, in %d threads", label, size, classifier.workers)
    return measured

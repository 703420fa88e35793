"""The models of a comparison, made ready: loaded, compiled, checked, each with its batch size."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import foolbox as fb

from ..attacks.suite import Suite
from ..errors import ModelError, NoGradientError, UsageError, is_name
from ..frameworks import Device
from ..models.batches import largest_batch_size, measure_batch_size
from ..models.classifier import Classifier, unwrap
from ..models.preflight import check_gradient, check_model, in_unit_bounds
from ..sources.deployed import AnyOrigin, Origin
from .blame import blame
from .progress import Progress, Unseen
from .question import Question
from .related import check_control

AnyModel = fb.models.base.Model | AnyOrigin
Models = Mapping[str, AnyModel | Sequence[AnyModel]]

_log = logging.getLogger("robustcmp")


@dataclass(frozen=True)
class TrainedModel:
    """One trained model in a comparison.

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
    cause : str
        What usual cause makes it less accurate than it could be, in a sentence; "" where none is seen.
    """

    name: str
    training_seed: int
    classifier: Classifier
    origin: Origin | None = None
    depends_on_batch: bool = False
    cause: str = ""

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
        info: dict[str, Any] = getattr(unwrap(self.classifier.model), "info", {})
        return info


def load(models: Models, device: Device = "auto", progress: Progress | None = None) -> list[TrainedModel]:
    """Return all models with their training seeds: as they were trained where that is known, else counted.

    Raises
    ------
    UsageError
        There is no model, or what was passed is no dict of models.
    """
    if not models:
        raise UsageError("expected at least one model, received none")
    if not isinstance(models, Mapping):
        raise UsageError(f"expected a dict of models by name, received {type(models).__name__}")
    named = {str(name): list(entry) if isinstance(entry, Sequence) else [entry] for name, entry in models.items()}
    for name, trainings in named.items():
        if not is_name(name):
            raise UsageError(f"a model's name should be one line without control characters, received {name!r}")
        if not trainings:
            raise UsageError(f"expected at least one model for {name!r}, received an empty list")
    progress = progress or Unseen()
    progress.begin("loading models", sum(map(len, named.values())))
    trained = []
    for name, trainings in named.items():
        for counted, given in enumerate(trainings):
            origin = given if isinstance(given, Origin) else None
            what = f"loading {name}/{counted}"
            model = blame(what, given.load, device) if isinstance(given, AnyOrigin) else given
            trained.append(TrainedModel(name, counted, Classifier(in_unit_bounds(model)), origin))
            progress.step()
    return _with_own_seeds(trained)


def _with_own_seeds(models: list[TrainedModel]) -> list[TrainedModel]:
    """Return models with the seeds that they were trained with, where these are known of all and tell them apart."""
    if any(model.info.get("training_seed") is None for model in models):
        return models
    own = [replace(model, training_seed=model.info["training_seed"]) for model in models]
    return own if len({model.key for model in own}) == len(own) else models


def check_models(
    models: Sequence[TrainedModel], question: Question, progress: Progress | None = None
) -> list[TrainedModel]:
    """Return models compiled, once each has been seen to be a classifier that the suite can attack.

    With a `batch_size` of 1, its answers may depend on the other images of a batch, as it is never asked a batch.

    Raises
    ------
    UsageError
        A label is no class of a model, or the same weights are compared by a suite that cannot tell.
    ModelError
        A model does not behave as a classifier that gives logits, its gradient means nothing, or no attack can run on
        any model.
    """
    check_control(models, question.suite)
    find_inapplicable(models, question.suite)
    progress = progress or Unseen()
    progress.begin("compiling and checking models", len(models))
    compiled = []
    for model in models:
        compiled.append(blame(f"checking {model.label}", _check, model, question))
        progress.step()
    return compiled


def _check(model: TrainedModel, question: Question) -> TrainedModel:
    classifier = model.classifier.compile(question.images)
    if question.batch_size == 1:
        classifier = classifier.with_batch_size(1)
    depends_on_batch = check_model(model.name, classifier, question.images, question.labels)
    attacks = question.suite.attacks.values()
    if any(attack.needs_gradient and not attack.not_applicable(classifier) for attack in attacks):
        try:
            check_gradient(model.name, classifier.gradient_source or classifier, question.images)
        except NoGradientError as error:
            classifier.no_gradient = str(error)
    return replace(model, classifier=classifier, depends_on_batch=depends_on_batch)


def set_batch_sizes(
    models: Sequence[TrainedModel], question: Question, stored: Mapping[str, Any]
) -> tuple[list[TrainedModel], dict[str, int]]:
    """Give every model its batch size: the caller's, or what an earlier session of the run found, or measured now.

    The trainings of one name share a batch size, as they are one network design in one framework. Return the models
    with all that were ever measured in the run, for its manifest.
    """
    images, batch_size = question.images, question.batch_size
    measured: dict[str, int] = dict(stored.get("batch_sizes", {}))
    sized = []
    for model in models:
        classifier, label = model.classifier, _batch_size_label(model.name, model.classifier)
        if batch_size is None and label not in measured:
            what = f"measuring the batch size of {model.label}"
            measured[label] = blame(what, measure_batch_size, classifier, images, question.queries)
        classifier = classifier.with_batch_size(batch_size or min(measured[label], largest_batch_size(images)))
        _log.info("%s is asked %d images at once, in %d threads", label, classifier.batch_size, classifier.workers)
        sized.append(replace(model, classifier=classifier))
    return sized, measured


def _batch_size_label(name: str, classifier: Classifier) -> str:
    """Return what the batch size of a model's trainings is kept under in a run."""
    return f"{name} on a GPU" if classifier.on_gpu else name


def find_inapplicable(models: Sequence[TrainedModel], suite: Suite) -> dict[tuple[str, int], dict[str, str]]:
    """Return why attacks cannot run on models, by the model's key and the attack's name; only where they cannot.

    Raises
    ------
    ModelError
        No attack of the suite can run on any of the models.
    """
    reasons = {
        model.key: {
            name: reason
            for name, attack in suite.attacks.items()
            if (reason := attack.not_applicable(model.classifier))
        }
        for model in models
    }
    if all(len(of_model) == len(suite.attacks) for of_model in reasons.values()):
        reason = next(iter(next(iter(reasons.values())).values()))
        raise ModelError(f"no attack of the suite {suite.name} can run on any of the models: {reason}")
    return reasons

"""The comparison from end to end: models and images in, a run on disk and its results out."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from .analysis.results import Results
from .attacks.suite import Suite, load_suite
from .errors import UsageError, check_count, check_seed
from .evaluation import Evaluation
from .files import digest
from .frameworks import Device
from .models.batches import check_batch_size
from .models.preflight import UNIT_BOUNDS, UNIT_REMEDY, check_images, check_labels
from .provenance import made_with
from .records.checks import Checked
from .records.manifest import FORMAT
from .records.store import Run
from .runs.assembly import assemble, declared_extras
from .runs.checks import run_checks
from .runs.control import agreement, is_control
from .runs.executor import Executor, execute_with_bar
from .runs.loading import Models, load, ready, with_batch_sizes
from .runs.plan import Plan, TrainedModel, plan
from .runs.subset import Subset, common
from .runs.transfer import run_transfer


@dataclass(frozen=True)
class Question:
    """What a comparison asks, checked before any work.

    Attributes
    ----------
    suite : Suite
        The attacks.
    images, labels : ndarray
        Every image that was passed, (N, H, W, C) float32 in [0, 1], and its class.
    n : int
        How many images are attacked at the most.
    repeats : dict of str to int
        How often each attack is repeated.
    seed : int
        The attacks' seed.
    batch_size : int, optional
        How many candidates are asked at once, if the caller says so.
    """

    suite: Suite
    images: NDArray[np.float32]
    labels: NDArray[np.int64]
    n: int
    repeats: dict[str, int]
    seed: int
    batch_size: int | None


def evaluate(
    models: Models,
    images: NDArray[np.float32],
    labels: NDArray[np.int64],
    *,
    suite: str | os.PathLike[str] | Suite = "guo2019",
    n: int | None = None,
    repeats: int | Mapping[str, int] | None = None,
    seed: int = 0,
    out: str | os.PathLike[str] | None = None,
    batch_size: int | None = None,
    keep_images: bool = True,
    progress: bool = True,
    about: dict[str, Any] | None = None,
    device: Device = "auto",
    executor: Executor | None = None,
) -> Evaluation:
    """Attack the images that all models classify correctly, and compare how often each model is fooled.

    Every finished cell (a model under an attack in a repeat) is stored at once; repeats are finished together where
    they share answers, as those of single pixel do, or where the images of one do not fill a batch. The same call with
    the same `out` does only what is missing.

    Parameters
    ----------
    models : dict of str to model, or to a list of models
        Foolbox models, from `wrap`, `load_model`, `fit` or Foolbox itself, or origins of `robustcmp.zoo.origins`, which
        are loaded here. A list holds trainings of one model that differ in their seed.
    images : ndarray of float32, shape (N, H, W, C)
        In [0, 1]; a model with other bounds is asked through Foolbox's `transform_bounds`. Pass the whole test set:
        the subset is chosen from it.
    labels : ndarray of int, shape (N,)
        The true classes.
    suite : str or path, default "guo2019"
        A suite's name or its TOML file.
    n : int, optional
        How many images are attacked; the suite's number if nothing is said.
    repeats : int or dict of str to int, optional
        How often they are attacked, or how often by the attacks that are named; the suite's number if nothing is said.
    seed : int, default 0
        The attacks' seed. Every draw is a function of (seed, attack, repeat, image).
    out : path, optional
        The run's directory. Without it nothing is kept after the returned object is gone.
    batch_size : int, optional
        How many candidates are asked at once; measured if nothing is said.
    keep_images : bool, default True
        Store the adversarial images.
    progress : bool, default True
        Show a progress bar on standard error.
    about : dict, optional
        Notes for the manifest, JSON types: ``model`` and ``dataset`` appear in headings.
    device : str, default "auto"
        Where origins are loaded: ``"auto"``, ``"cpu"`` or ``"cuda"``. A model that is passed stays where it is.
    executor : Executor, optional
        Who does the work, see `robustcmp.runs.executor`: this process if nothing is said.

    Returns
    -------
    Evaluation

    Raises
    ------
    UsageError
        An argument cannot be used; nothing was done.
    ModelError
        A model does not behave as a classifier that gives logits, no image is classified correctly by all, or no attack
        of the suite can run on any model.

    Notes
    -----
    An attack that cannot run on a model, as FGSM on one without a gradient, has no cells there; the reason stands in
    the manifest and in the tables, and R and the tests are over the attacks that every model ran.

    Examples
    --------
    >>> import robustcmp as rc
    >>> data = rc.load_dataset("digits")
    >>> models = {name: rc.load_model("lenet1", framework=name, dataset="digits") for name in ("torch", "jax")}
    >>> ev = rc.evaluate(models, data.images, data.labels, suite="smoke", n=5, repeats=1, progress=False)
    >>> ev.success_rate.sizes["attack"], sorted(ev.indicator)
    (3, ['jax', 'torch'])
    """
    question = validate(images, labels, suite, n, repeats, seed, batch_size)
    trained = ready(load(models, device), question.suite, question.images, question.labels)
    store = Run.create(out, keep_images)
    trained, batch_sizes = with_batch_sizes(trained, store, question.images, question.batch_size)
    subset = common(trained, question.images, question.labels, question.n, question.seed)
    chosen = subset.indices
    planned = plan(
        trained, question.suite, question.images[chosen], question.labels[chosen], question.repeats, question.seed
    )
    manifest = manifest_of(question, planned, subset, batch_sizes, about or {})
    store.write_manifest(manifest)
    execute_with_bar(planned, store, executor, progress)
    dataset = assemble(
        store,
        planned.cells,
        [model.key for model in trained],
        question.suite.records,
        question.repeats,
        chosen,
        planned.labels,
    )
    store.write_results(dataset, manifest)
    return Evaluation(store, dataset, manifest, ModelsAtHand(planned))


def validate(
    images: NDArray[np.float32],
    labels: NDArray[np.int64],
    suite: str | os.PathLike[str] | Suite,
    n: int | None,
    repeats: int | Mapping[str, int] | None,
    seed: int,
    batch_size: int | None,
) -> Question:
    """Return what is asked, checked; raise `UsageError` for what cannot be used. No model is looked at."""
    loaded = load_suite(suite)
    declared_extras(loaded.records)
    n = loaded.images if n is None else n
    repeated = loaded.repeated(repeats)
    check_numbers(n, batch_size, seed)
    images = check_images(images, UNIT_BOUNDS, UNIT_REMEDY)
    labels = check_labels(labels, len(images))
    if not len(images):
        raise UsageError("expected at least one image, received none")
    if batch_size is not None:
        check_batch_size(batch_size, images)
        batch_size = int(batch_size)  # JSON knows no NumPy
    return Question(loaded, images, labels, int(n), repeated, int(seed), batch_size)


def check_numbers(n: int | None, batch_size: int | None, seed: int) -> None:
    """Raise `UsageError` for a number that `evaluate` cannot use; None stands for what is found out later."""
    for name, count in (("n", n), ("batch_size", batch_size)):
        if count is not None:
            check_count(name, count)
    check_seed(seed)


def manifest_of(
    question: Question, planned: Plan, subset: Subset, batch_sizes: dict[str, int], about: dict[str, Any]
) -> dict[str, Any]:
    """Return what was asked, and of what and with what, as JSON types."""
    suite = question.suite
    return {
        "format": FORMAT,
        "about": about,
        "suite": {
            "name": suite.name,
            "description": suite.description,
            "attacks": msgspec.json.decode(msgspec.json.encode(suite.records)),
            "digest": suite.digest,
        },
        "batch_sizes": batch_sizes,
        "same_weights": control(planned.models, question.images),
        "seed": question.seed,
        "repeats": max(question.repeats.values()),
        "images": {
            "asked": question.n,
            "used": len(subset.indices),
            "of": len(question.images),
            "correct_by_all": subset.share,
            "digest": digest({"images": question.images, "labels": question.labels}),
        },
        "models": [
            {
                "name": model.name,
                "training_seed": model.training_seed,
                "framework": model.classifier.framework.name,
                "framework_version": model.classifier.framework.version(),
                "batch_size": model.classifier.batch_size,
                "clean_accuracy": float(correct.mean()),
                "logits": planned.logits[model.key],
                "info": model.info,
                "not_applicable": planned.not_applicable[model.key],
            }
            for model, correct in zip(planned.models, subset.correct, strict=True)
        ],
        "cells": [asdict(cell) for cell in planned.cells],
        "environment": made_with(),
    }


def control(models: list[TrainedModel], images: NDArray[np.float32]) -> dict[str, float] | None:
    """Return how far one training agrees in several frameworks, None where the models are no such control."""
    if not is_control(models):
        return None
    logits: dict[str, list[NDArray[np.float32]]] = {}
    for model in models:
        logits.setdefault(model.name, []).append(model.classifier.logits(images))
    return agreement(logits)


class ModelsAtHand:
    """The models of a comparison, for what is asked of them after their attacks.

    Parameters
    ----------
    plan : Plan
        What was executed.
    """

    def __init__(self, plan: Plan):
        self.plan = plan

    def run_checks(self, results: Results) -> Checked:
        """Make the health checks of every model."""
        models = [
            (label, model.classifier, results.dataset.sel(model=model.name, training_seed=model.training_seed))
            for label, model in zip(results.labels, self.plan.models, strict=True)
        ]
        return run_checks(models, self.plan.suite, self.plan.images, self.plan.labels, self.plan.seed)

    def run_transfer(self, results: Results) -> NDArray[np.int64]:
        """Count the adversarial images of every model that fool every other."""
        models, outcomes = self.plan.models, results.dataset.success

        def adversarials(source: int, attack: str) -> Iterator[tuple[NDArray[np.float32], NDArray[np.bool_]]]:
            name, seed = models[source].key
            if attack in self.plan.not_applicable[name, seed]:
                return
            success = outcomes.sel(model=name, training_seed=seed, attack=attack).values
            for repeat in range(1 if results.deterministic(attack) else results.repeats(attack)):
                yield results.adversarials(name, attack, training_seed=seed, repeat=repeat), success[repeat]

        return run_transfer([model.classifier for model in models], results.attacks, self.plan.labels, adversarials)

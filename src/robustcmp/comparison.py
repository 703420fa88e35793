"""The comparison from end to end: models and images in, a run on disk and its results out."""

from __future__ import annotations

import logging
import os
import shutil
import sys
import tempfile
import weakref
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any, cast

import foolbox as fb
import numpy as np
from numpy.typing import NDArray

from .analysis.control import HELD
from .analysis.results import Results
from .attacks.suite import Suite, load_suite
from .errors import ModelError, RobustcmpError, UsageError, check_count, check_seed
from .evaluation import Evaluation, open_run
from .files import digest
from .models.batches import check_batch_size, largest_batch_size
from .models.classifier import Classifier, unwrapped
from .models.preflight import (
    UNIT_BOUNDS,
    UNIT_REMEDY,
    check_gradient,
    check_images,
    check_labels,
    check_model,
    in_unit_bounds,
)
from .provenance import environment
from .records.checks import Checked
from .records.store import Run
from .runs.assembly import assemble
from .runs.checks import run_checks
from .runs.control import agreement, is_control
from .runs.executor import queries_left, run
from .runs.plan import Contestant, Plan, plan
from .runs.subset import Models, chosen
from .runs.transfer import run_transfer

if TYPE_CHECKING:
    pass

_log = logging.getLogger("robustcmp")


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
) -> Evaluation:
    """Attack the images that all models classify correctly, and compare how often each model is fooled.

    Every finished cell (a model under an attack in a repeat) is stored at once; repeats are finished together where
    they share answers, as those of single pixel do, or where the images of one do not fill a batch. The same call with
    the same `out` does only what is missing.

    Parameters
    ----------
    models : dict of str to model, or to a list of models
        Foolbox models, from `wrap`, `load_model`, `fit` or Foolbox itself. A list holds trainings of one model that
        differ in their seed.
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

    Returns
    -------
    Evaluation

    Raises
    ------
    UsageError
        An argument cannot be used; nothing was done.
    ModelError
        A model does not behave as a classifier that gives logits, or no image is classified correctly by all.

    Examples
    --------
    >>> import robustcmp as rc
    >>> data = rc.load_dataset("digits")
    >>> models = {name: rc.load_model("lenet1", framework=name, dataset="digits") for name in ("torch", "jax")}
    >>> ev = rc.evaluate(models, data.images, data.labels, suite="smoke", n=5, repeats=1, progress=False)
    >>> ev.success_rate.sizes["attack"], sorted(ev.indicator)
    (3, ['jax', 'torch'])
    """
    loaded = load_suite(suite)
    n = loaded.images if n is None else n
    repeated = loaded.repeated(repeats)
    check_question(n, batch_size, seed)
    n, seed, batch_size = int(n), int(seed), None if batch_size is None else int(batch_size)  # JSON knows no NumPy
    images = check_images(images, UNIT_BOUNDS, UNIT_REMEDY)
    labels = check_labels(labels, len(images))
    if not len(images):
        raise UsageError("expected at least one image, received none")
    contestants = _contestants(models)
    infos = [_info(contestant.classifier.model) for contestant in contestants]
    by_name: dict[str, list[dict[str, Any]]] = {contestant.name: [] for contestant in contestants}
    for contestant, info in zip(contestants, infos, strict=True):
        by_name[contestant.name].append(info)
    as_control = is_control(by_name)
    if as_control and not set(HELD) <= {type(attack).__name__ for attack in loaded.attacks.values()}:
        raise UsageError(f"the same-weights control is held to {' and '.join(HELD)}, and the suite lacks one of them")
    if batch_size is not None:
        check_batch_size(batch_size, images)
    contestants = [replace(one, classifier=one.classifier.compiled(images)) for one in contestants]
    for contestant in contestants:
        _check(contestant, loaded, images, labels)

    store = Run.create(tempfile.mkdtemp(prefix="robustcmp-") if out is None else out, keep_images)
    if out is None:
        store.temporary = True
        weakref.finalize(store, shutil.rmtree, store.directory, ignore_errors=True)
    contestants, batch_sizes = _with_batch_sizes(contestants, store, images, batch_size)
    correct = np.array([contestant.classifier.predict(images) == labels for contestant in contestants])
    by_all: NDArray[np.bool_] = np.all(correct, axis=0)
    subset = chosen(by_all, images, n, seed)
    if not len(subset):
        raise ModelError(
            "no image is classified correctly by all models, so there is nothing to compare. Their accuracies are "
            + ", ".join(f"{c.name}: {its.mean():.1%}" for c, its in zip(contestants, correct, strict=True))
            + ". Check labels, bounds and preprocessing."
        )

    control = None
    if as_control:
        logits: dict[str, list[NDArray[np.float32]]] = {contestant.name: [] for contestant in contestants}
        for contestant in contestants:
            logits[contestant.name].append(contestant.classifier.logits(images))
        control = agreement(logits)
    planned = plan(contestants, loaded, images[subset], labels[subset], repeated, seed)
    manifest = {
        "about": about or {},
        "suite": {
            "name": loaded.name,
            "description": loaded.description,
            "attacks": loaded.described,
            "digest": loaded.digest,
        },
        "batch_sizes": batch_sizes,
        "same_weights": control,
        "seed": seed,
        "repeats": max(repeated.values()),
        "images": {
            "asked": n,
            "used": len(subset),
            "of": len(images),
            "correct_by_all": float(by_all.mean()),
            "digest": digest({"images": images, "labels": labels}),
        },
        "models": [
            {
                "name": contestant.name,
                "training_seed": contestant.training_seed,
                "framework": contestant.classifier.framework.name,
                "framework_version": contestant.classifier.framework.version(),
                "batch_size": contestant.classifier.batch_size,
                "clean_accuracy": float(its.mean()),
                "logits": planned.logits[contestant.name, contestant.training_seed],
                "info": info,
            }
            for contestant, its, info in zip(contestants, correct, infos, strict=True)
        ],
        "cells": [asdict(cell) for cell in planned.cells],
        "environment": environment(),
    }
    store.write_manifest(manifest)
    _run_with_bar(planned, store, progress)
    grids = {name: attack.grid for name, attack in loaded.attacks.items() if attack.grid}
    results = assemble(store, planned.cells, subset, labels[subset], repeated, grids)
    store.write_results(results, manifest)
    return Evaluation(store, results, manifest, ModelsAtHand(planned))


class ModelsAtHand:
    """The models of a comparison, for what is asked of them after their attacks.

    Parameters
    ----------
    planned : Plan
        What was executed.
    """

    def __init__(self, planned: Plan):
        self._planned = planned

    def run_checks(self, results: Results) -> Checked:
        """Make the health checks of every model."""
        planned = self._planned
        models = [
            (label, model.classifier, results.dataset.sel(model=model.name, training_seed=model.training_seed))
            for label, model in zip(results.labels, planned.contestants, strict=True)
        ]
        return run_checks(models, planned.suite, planned.images, planned.labels, planned.seed)

    def run_transfer(self, results: Results) -> NDArray[np.int64]:
        """Count the adversarial images of every model that fool every other."""
        contestants, outcomes = self._planned.contestants, results.dataset.success

        def adversarials(source: int, attack: str) -> Iterator[tuple[NDArray[np.float32], NDArray[np.bool_]]]:
            name, seed = contestants[source].name, contestants[source].training_seed
            success = outcomes.sel(model=name, training_seed=seed, attack=attack).values
            for repeat in range(1 if results.deterministic(attack) else results.repeats(attack)):
                yield results.adversarials(name, attack, training_seed=seed, repeat=repeat), success[repeat]

        classifiers = [contestant.classifier for contestant in contestants]
        return run_transfer(classifiers, results.attacks, self._planned.labels, adversarials)


def check_question(n: int | None, batch_size: int | None, seed: int) -> None:
    """Raise `UsageError` for a number that `evaluate` cannot use; None stands for what is found out later."""
    for name, count in (("n", n), ("batch_size", batch_size)):
        if count is not None:
            check_count(name, count)
    check_seed(seed)


def answered(directory: str | os.PathLike[str], about: dict[str, Any]) -> Evaluation | None:
    """Return the finished run in a directory if its notes are just these, else None; no model is needed.

    What the notes say has to be all that the outcome depends on.
    """
    store = Run(directory)
    try:
        manifest = store.manifest()
        if manifest.get("about") == about:
            for cell in manifest["cells"]:
                store.load(cell["key"])  # a broken one is an error that should not be hidden
            return open_run(directory)
    except RobustcmpError:
        pass  # whatever it is, `evaluate` says so or mends it
    return None


def _contestants(models: Models) -> list[Contestant]:
    """Return all models with their training seeds: as they were trained where that is known, else counted."""
    if not models:
        raise UsageError("expected at least one model, received none")
    if not isinstance(models, Mapping):
        raise UsageError(f"expected a dict of models by name, received {type(models).__name__}")
    lists = {name: list(entry) if isinstance(entry, Sequence) else [entry] for name, entry in models.items()}
    known = {name: [_training_seed(model) for model in its] for name, its in lists.items()}
    as_trained = all(None not in seeds and len(set(seeds)) == len(seeds) for seeds in known.values())
    contestants = []
    for name, its in lists.items():
        if not its:
            raise UsageError(f"expected at least one model for {name!r}, received an empty list")
        for i, model in enumerate(its):
            seed = known[name][i] if as_trained else i
            contestants.append(Contestant(str(name), cast(int, seed), Classifier(in_unit_bounds(model))))
    return contestants


def _training_seed(model: fb.models.base.Model) -> int | None:
    seed: int | None = _info(model).get("training_seed")
    return seed


def _info(model: fb.models.base.Model) -> dict[str, Any]:
    """What is known of a model's training."""
    info: dict[str, Any] = getattr(unwrapped(model), "info", {})
    return info


def _check(contestant: Contestant, suite: Suite, images: NDArray[np.float32], labels: NDArray[np.int64]) -> None:
    check_model(contestant.name, contestant.classifier, images, labels)
    if any(attack.needs_gradient for attack in suite.attacks.values()):
        check_gradient(contestant.name, contestant.classifier, images)


def _with_batch_sizes(
    contestants: list[Contestant], store: Run, images: NDArray[np.float32], batch_size: int | None
) -> tuple[list[Contestant], dict[str, int]]:
    """Give every model its batch size: the caller's, or what an earlier session of the run found, or measured now.

    Return them with all that were ever found in the run, for its manifest.
    """
    found: dict[str, int] = dict(store.manifest().get("batch_sizes", {}))
    sized = []
    for contestant in contestants:
        classifier, label = contestant.classifier, f"{contestant.name}/{contestant.training_seed}"
        if classifier.on_gpu:
            label += " on a GPU"
        if batch_size is None and label not in found:
            found[label] = classifier.measured_batch_size(images)
        classifier = classifier.sized(batch_size or min(found[label], largest_batch_size(images)))
        _log.info("%s is asked %d images at once, in %d threads", label, classifier.batch_size, classifier.workers)
        sized.append(replace(contestant, classifier=classifier))
    return sized, found


def _run_with_bar(planned: Plan, store: Run, progress: bool) -> None:
    from tqdm import tqdm

    left = queries_left(planned, store)
    bar = tqdm(
        total=left, unit=" queries", unit_scale=True, disable=not progress or not left, file=sys.stderr, desc="attacks"
    )
    with bar:
        run(planned, store, bar.update)

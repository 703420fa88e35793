"""The whole comparison: from models and images to a run on disk and its results."""

from __future__ import annotations

import logging
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from .analysis.control import answers_alike
from .analysis.results import Results
from .attacks.suite import AnySuite, Suite
from .errors import ControlError, SealError, UsageError, enough_memory
from .evaluation import Evaluation
from .files import digest
from .frameworks import DataFormat, Device
from .models.batches import measure_rate
from .models.functions import FINITE_DIFFERENCES
from .processes import Limits
from .provenance import made_with, processor
from .records.checks import Checked
from .records.contested import Contested
from .records.manifest import FORMAT
from .records.manifest import check as check_manifest
from .records.store import Run
from .records.upkeep import discard_broken
from .report.progress import shown_progress
from .report.words import behaviour_notes
from .runs.accuracy import by_model, check_accuracies, with_causes
from .runs.assembly import assemble
from .runs.checks import run_checks
from .runs.conditioning import repeats_of, run_conditioning
from .runs.control import agreement, is_control
from .runs.deployed import converted, deployed, not_asked, parted, twins_by_deployment
from .runs.execution import Failures, execute
from .runs.executors import Executor, Isolated, choose_executor
from .runs.loading import Models, load, ready, with_batch_sizes
from .runs.plan import Plan, TrainedModel, plan
from .runs.progress import Progress, Unseen
from .runs.question import Question, validate
from .runs.subset import Subset, classify, common
from .runs.transfer import run_transfer
from .runs.trial import trials, try_models
from .runs.twins import twins

_log = logging.getLogger("robustcmp")
RATE_SECONDS = 0.3
ATTACK_TO_FORWARD = 1.5  # attacks take 1.1 to 2.1 times as long as their forward passes: docs/performance.md
LONG = 180.0  # seconds of attacks beside which processes of their own cost less than a twentieth: docs/scale.md


def evaluate(
    models: Models,
    images: NDArray[np.float32],
    labels: NDArray[np.int64],
    *,
    suite: AnySuite = "guo2019",
    n: int | None = None,
    repeats: int | Mapping[str, int] | None = None,
    spread_repeats: bool = False,
    seed: int = 0,
    out: str | os.PathLike[str] | None = None,
    batch_size: int | None = None,
    data_format: DataFormat | None = None,
    keep_images: bool = True,
    progress: bool | Progress = True,
    about: dict[str, Any] | None = None,
    device: Device = "auto",
    executor: str | None = None,
    group_seconds: float | None = None,
    group_memory: float | None = None,
    expected_accuracy: float | Mapping[str, float] | None = None,
) -> Evaluation:
    """Attack the images that all models classify correctly, and compare how often each model is fooled.

    Every finished cell (one model, attack and repeat) is stored at once. Repeats finish together if they share queries,
    as those of single pixel do, or if the images of one repeat do not fill a batch. Repeat the call with the same
    `out` to run only the missing cells.

    Parameters
    ----------
    models : dict of str to model, or to a list of models
        Foolbox models, from `wrap`, `load_model`, `fit` or Foolbox itself, or origins (`robustcmp.sources.deployed`),
        which are loaded here. A list holds trainings of one model with different seeds.
    images : ndarray of float32, shape (N, H, W, C)
        In [0, 1]; models with other bounds are converted with Foolbox's `transform_bounds`. Pass the whole test set:
        the attacked subset is chosen from it.
    labels : ndarray of int, shape (N,)
        The true classes.
    suite : str, path or dict of str to attack, default "guo2019"
        A suite's name or its TOML file, or attacks by the names that they have in results.
    n : int, optional
        How many images are attacked (default: the suite's number).
    repeats : int or dict of str to int, optional
        Repeats of all attacks, or of each named attack (default: the suite's number).
    spread_repeats : bool, default False
        Divide the repeats of an attack among the trainings of a model, rounded up to the same number for each, instead
        of running all of them on every training. Each training then has its own draws, and the suite's single pixel
        is not exact. Draws usually vary much less than trainings, so this compares frameworks at a fraction of the
        cost.
    seed : int, default 0
        The attacks' seed. Every draw is a function of (seed, attack, repeat, image).
    out : path, optional
        The run's directory. Without it, the run is deleted together with the returned object.
    batch_size : int, optional
        Images per forward pass (default: measured).
    data_format : str, optional
        ``"channels_last"`` or ``"channels_first"``: where the channels of the images are, (N, H, W, C) or
        (N, C, H, W). Without it they are last, and images that seem to have them first are refused.
    keep_images : bool, default True
        Store the adversarial images.
    progress : bool or Progress, default True
        Show the progress on standard error: a live table of rates in a terminal, elsewhere one line per
        attack. Pass a `robustcmp.runs.progress.Progress` to receive the progress yourself.
    about : dict, optional
        Notes for the manifest, JSON types: ``model`` and ``dataset`` appear in headings.
    device : str, default "auto"
        Where origins are loaded: ``"auto"``, ``"cpu"`` or ``"cuda"``. Models that are passed stay on their device.
    executor : str, optional
        Where the attacks run: in this process (the default), in a process of its own for each framework
        (``"isolated"``), on workers of Dask on this machine (``"dask:4"``), or on those of a scheduler of Dask
        (``"tcp://host:8786"``). ``"auto"`` is isolated where the attacks that are missing take more than about three
        minutes. All give the same results, bit for bit. Outside of this process, an exception, a crash or a limit
        ends one attack on one model (`Evaluation.failed`), and models that are not the zoo's are tried there before
        they are loaded here.
    group_seconds : float, optional
        How long one attack on one model may take, in all missing repeats, with loading the model. A limit means
        ``"isolated"`` unless an executor is named.
    group_memory : float, optional
        How many bytes of memory its process may hold; Linux only.
    expected_accuracy : float or dict of str to float, optional
        The accuracy on these images, a fraction in [0, 1], of all models, or of each that is named, as you measured it
        where it was trained. A model that is less accurate by more than three standard errors is an error before any
        attack. State it wherever you know it: a file cannot tell that its network has another activation, and most
        mistakes in preprocessing cost accuracy.

    Returns
    -------
    Evaluation

    Raises
    ------
    UsageError
        An argument is invalid; no work was started.
    ModelError
        A model is not a classifier that returns logits, it is less accurate than was expected, no image is classified
        correctly by all models, no attack of the suite can run on any model, or a model ended the process in which it
        was tried, or reached a limit there.
    StoreError
        A file of the run is broken, or another process is writing the run.
    DiskError
        The disk is full. What is finished is kept.

    Notes
    -----
    An attack that cannot run on a model, such as FGSM on a model without gradients, has no cells there. The manifest
    and the tables give the reason; R and the tests use only the attacks that every model ran. The same holds for an
    attack that failed on a model (`failed`) in another process; the same call tries it again.

    Examples
    --------
    >>> import robustcmp as rc
    >>> data = rc.load_dataset("digits")
    >>> models = {name: rc.load_model("lenet1", framework=name, dataset="digits") for name in ("torch", "jax")}
    >>> ev = rc.evaluate(models, data.images, data.labels, suite="smoke", n=5, repeats=1, progress=False)
    >>> ev.success_rate.sizes["attack"], sorted(ev.indicator)
    (3, ['jax', 'torch'])
    """
    expected = by_model(expected_accuracy, models)
    question = validate(images, labels, suite, n, repeats, spread_repeats, seed, batch_size, data_format, expected)
    chosen: Executor = choose_executor(executor, Limits(group_seconds, group_memory))
    chosen.check()
    with (
        _resumable(out, about),
        progress_of(progress) as shown,
        enough_memory("this comparison", "batch_size or n"),
        Run.create(out, keep_images).writing() as store,
    ):
        if chosen.limits is not None and (tasks := trials(models, question, store.manifest(), device)):
            shown.begin("trying models in another process", len(tasks))
            try_models(tasks, chosen.limits, shown)
        comparison = prepare(models, question, store, about or {}, device, shown)
        if executor == "auto" and chosen.limits is None and sum(comparison.seconds().values()) > LONG:
            chosen = Isolated(Limits())
        return comparison.execute(chosen, shown)


@contextmanager
def _resumable(out: str | os.PathLike[str] | None, about: dict[str, Any] | None) -> Iterator[None]:
    """Say what is kept if the caller interrupts a comparison; a command says it itself."""
    try:
        yield
    except KeyboardInterrupt:
        if "command" not in (about or {}):
            kept = (
                f"What is finished is kept in {out}: repeat the call to resume."
                if out
                else "Without out= nothing is kept."
            )
            _log.warning("interrupted. %s", kept)
        raise


class Estimate(NamedTuple):
    """What a comparison has to do.

    Attributes
    ----------
    models, images : int
        How many are compared, on how many images.
    cells, missing : dict of str to int
        How many cells each attack has, and how many of them are missing in the run.
    seconds : dict of str to float
        About how long each attack takes for what is missing.
    """

    models: int
    images: int
    cells: dict[str, int]
    missing: dict[str, int]
    seconds: dict[str, float]


def estimate(
    models: Models,
    question: Question,
    *,
    out: str | os.PathLike[str],
    progress: bool | Progress,
    device: Device,
) -> Estimate:
    """Return what `evaluate` would do for a question; nothing is attacked, and nothing is written."""
    with progress_of(progress) as shown:
        begun = out if Path(out).exists() else None
        comparison = prepare(models, question, Run.create(begun), {}, device, shown)
    planned = comparison.plan
    queries = planned.queries(comparison.store)
    cells = Counter(cell.attack for cell in planned.cells)
    missing = Counter(cell.attack for cell, count in queries.items() if count)
    return Estimate(
        len(planned.models),
        len(planned.images),
        {attack: cells[attack] for attack in question.suite.attacks},
        {attack: missing[attack] for attack in question.suite.attacks},
        comparison.seconds(),
    )


@contextmanager
def progress_of(progress: bool | Progress) -> Iterator[Progress]:
    """Return whom to tell of the progress, until it ends."""
    shown = progress if isinstance(progress, Progress) else shown_progress() if progress else Unseen()
    try:
        yield shown
    finally:
        shown.end()


def prepare(
    models: Models,
    question: Question,
    store: Run,
    about: dict[str, Any],
    device: Device,
    progress: Progress,
) -> Comparison:
    """Load the models, make them ready, choose the subset and plan the cells: everything before the first attack."""
    models, only_converted = parted(models)
    loaded = load(models, device, progress)
    networks = converted(only_converted, device)
    trained = ready(loaded, question.suite, question.images, question.labels, question.batch_size, progress)
    question = question.shared_by(trained)
    trained, batch_sizes = with_batch_sizes(trained, store, question.images, question.batch_size, question.queries)
    on_all = question.suite.subset == "all"
    correct = classify(trained, question.images, question.labels)
    trained = with_causes(trained, question.images, question.labels, correct, question.expected)
    check_accuracies(question.expected, trained, correct)
    subset = common(trained, correct, question.images, question.n, question.seed, on_all)
    which = "of the test set" if on_all else "that every model classifies correctly"
    progress.begin(f"attacks on {len(subset.indices)} images {which}", 0)
    planned = plan(
        trained,
        question.suite,
        question.images[subset.indices],
        question.labels[subset.indices],
        question.repeats,
        question.seed,
        question.spread,
        store.manifest(),
    )
    planned = replace(planned, keep_images=store.keep_images)
    manifest = manifest_of(question, planned, subset, batch_sizes, about)
    if networks and (entries := not_asked(networks, planned.models, planned.identities)):
        manifest["not_asked"] = entries
    try:
        check_manifest(manifest)
    except SealError as error:  # whoever reads the run would refuse it
        raise UsageError(f"a run cannot keep what is said of it or of a model: {error}") from None
    for sentence in behaviour_notes(manifest["models"]):
        _log.warning("%s", sentence)
    return Comparison(store, planned, subset, question, manifest)


@dataclass(frozen=True)
class Comparison:
    """A comparison that is ready to begin.

    Attributes
    ----------
    store : Run
        Where its cells are kept.
    plan : Plan
        Its cells.
    subset : Subset
        The images that are attacked.
    question : Question
        What was asked.
    manifest : dict
        What the run keeps about it.
    failures : dict
        Why attacks failed, by the model's key and the attack's name; what failed has no cells in the plan.
    """

    store: Run
    plan: Plan
    subset: Subset
    question: Question
    manifest: dict[str, Any]
    failures: Failures = field(default_factory=dict)

    def execute(self, executor: Executor, progress: Progress) -> Evaluation:
        """Run the attacks that are missing, and put all results together."""
        self.store.write_manifest(self.manifest)
        discard_broken(self.store)
        failures = execute(self.plan, self.store, executor, progress)
        return (self.without(failures) if failures else self).assembled()

    def without(self, failures: Failures) -> Comparison:
        """Return the comparison without what failed; the manifest says why."""
        cells = [
            cell for cell in self.plan.cells if cell.attack not in failures.get((cell.model, cell.training_seed), {})
        ]
        models = [
            about | {"failed": failures[model.key]} if model.key in failures else about
            for model, about in zip(self.plan.models, self.manifest["models"], strict=True)
        ]
        manifest = self.manifest | {"models": models, "cells": [asdict(cell) for cell in cells]}
        return replace(self, plan=replace(self.plan, cells=cells), manifest=manifest, failures=failures)

    def assembled(self) -> Evaluation:
        """Put all results together, and store them."""
        dataset = assemble(
            self.store,
            self.plan.cells,
            [model.key for model in self.plan.models],
            self.question.suite.records,
            self.question.repeats,
            self.subset.indices,
            self.plan.labels,
            self.plan.margins,
        )
        self.store.write_manifest(self.manifest)
        self.store.write_results(dataset, self.manifest)
        evaluation = Evaluation(self.store, dataset, self.store.manifest(), ModelsAtHand(self))
        self.store.write_clean(evaluation.question, self.plan.images)
        return evaluation

    def seconds(self) -> dict[str, float]:
        """Return about how long each attack would take for what is missing, by the forward rates of the models now."""
        rates: dict[str, float] = {}
        taken = dict.fromkeys(self.question.suite.attacks, 0.0)
        for cell, queries in self.plan.queries(self.store).items():
            if not queries:
                continue
            if cell.model not in rates:
                classifier = self.plan.model((cell.model, cell.training_seed)).classifier
                rates[cell.model] = measure_rate(classifier, self.plan.images, classifier.batch_size, RATE_SECONDS)
            taken[cell.attack] += ATTACK_TO_FORWARD * queries / rates[cell.model]
        return taken


def manifest_of(
    question: Question, planned: Plan, subset: Subset, batch_sizes: dict[str, int], about: dict[str, Any]
) -> dict[str, Any]:
    """Return what was asked, and of what and with what, as JSON types."""
    suite = question.suite
    deployments = deployed(planned.models, planned.identities, question.images)
    check_exact(deployments)
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
        "twins": twins(planned.models) + twins_by_deployment(deployments),
        **({"deployments": deployments} if deployments else {}),
        "seed": question.seed,
        "repeats": max(question.repeats.values()),
        "spread": question.spread,
        "images": {
            "asked": question.n,
            "used": len(subset.indices),
            "subset": suite.subset,
            "of": len(question.images),
            "correct_by_all": subset.share,
            "range": [float(question.images.min()), float(question.images.max())],
            "most_frequent": float(np.bincount(question.labels).max() / len(question.labels)),
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
                "identity": msgspec.to_builtins(planned.identities[model.key]),
                "depends_on_batch": model.depends_on_batch,
                "info": model.info,
                "not_applicable": planned.not_applicable[model.key],
                **({"slope_error": model.slope_error} if model.slope_error else {}),
                **({"cause": model.cause} if model.cause else {}),
                **gradients_of(model, suite),
            }
            for model, correct in zip(planned.models, subset.correct, strict=True)
        ],
        "cells": [asdict(cell) for cell in planned.cells],
        "environment": made_with() | {"processor": processor()},
    }


def gradients_of(model: TrainedModel, suite: Suite) -> dict[str, list[str]]:
    """Return the attacks that follow the gradient of the model that a deployed network was converted from, or its own.

    Its own is one by finite differences.
    """
    if model.classifier.gradient_source is not None:
        return {"source_gradient": [name for name, attack in suite.attacks.items() if attack.takes_source_gradient]}
    if model.info.get("deployment", {}).get("gradient") == FINITE_DIFFERENCES:
        return {"own_differences": [name for name, attack in suite.attacks.items() if attack.needs_gradient]}
    return {}


def check_exact(deployments: Sequence[Mapping[str, Any]]) -> None:
    """Raise `ControlError` for a deployed network in float32 that does not answer as its source."""
    for entry in deployments:
        if entry["exact"] and not answers_alike(entry["logits"], entry["changed"]):
            (name, seed), (source, _) = entry["model"], entry["source"]
            raise ControlError(
                f"{name}, training seed {seed}, does not answer as {source}: its logits differ by up to "
                f"{entry['logits']:.1g} of their spread, and {entry['changed']:.1%} of the images change their class. "
                "A conversion in float32 should change neither, so nothing was attacked. Report it, or leave it out."
            )


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
    comparison : Comparison
        What was executed.
    """

    def __init__(self, comparison: Comparison):
        self.comparison, self.plan = comparison, comparison.plan

    def _classified_by_all(self) -> NDArray[np.int64]:
        """Return the places of the attacked images that every model classifies correctly: all in a common subset."""
        images, labels = self.plan.images, self.plan.labels
        if self.plan.suite.subset == "common":
            return np.arange(len(images))
        right = [model.classifier.predict(images) == labels for model in self.plan.models]
        return np.flatnonzero(np.all(right, axis=0))

    def run_checks(self, results: Results, shown: bool = False) -> Checked:
        """Make the health checks of every model but those on which an attack failed, which may end this process."""
        models = [
            (label, model.classifier, results.dataset.sel(model=model.name, training_seed=model.training_seed))
            for label, model in zip(results.labels, self.plan.models, strict=True)
            if model.key not in self.comparison.failures
        ]
        right = self._classified_by_all()
        models = [(label, classifier, outcomes.isel(image=right)) for label, classifier, outcomes in models]
        images, labels = self.plan.images[right], self.plan.labels[right]
        with progress_of(shown) as progress:
            return run_checks(models, self.plan.suite, images, labels, self.plan.seed, progress)

    def run_transfer(self, results: Results, shown: bool = False) -> NDArray[np.int64]:
        """Count the adversarial images of every model that fool every other.

        A model on which an attack failed is not asked about those of others, which may end this process.
        """
        failures = self.comparison.failures
        models, outcomes, right = self.plan.models, results.dataset.success, self._classified_by_all()

        def adversarials(source: int, attack: str) -> Iterator[tuple[NDArray[np.float32], NDArray[np.bool_]]]:
            name, seed = models[source].key
            if attack in self.plan.not_applicable[name, seed] or attack in failures.get((name, seed), {}):
                return
            success = outcomes.sel(model=name, training_seed=seed, attack=attack).values
            for repeat in range(1 if results.deterministic(attack) else results.repeats(attack)):
                images = results.adversarials(name, attack, training_seed=seed, repeat=repeat)
                yield images[right], success[repeat][right]

        targets = [None if model.key in failures else model.classifier for model in models]
        with progress_of(shown) as progress:
            return run_transfer(targets, results.attacks, self.plan.labels[right], adversarials, progress)

    def run_conditioning(self, attacks: Sequence[str] | None, shown: bool = False) -> Contested:
        """Attack the images that some models classify correctly and others do not."""
        question = self.comparison.question
        with progress_of(shown) as progress:
            return run_conditioning(
                self.plan.models,
                question.suite,
                question.images,
                question.labels,
                self.comparison.subset.correct,
                repeats_of(self.plan.cells),
                n=question.n,
                seed=question.seed,
                attacks=attacks,
                progress=progress,
            )

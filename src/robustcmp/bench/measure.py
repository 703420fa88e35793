"""Measure training or prediction of one network design in several frameworks: a benchmark from end to end."""

from __future__ import annotations

import logging
import os
import shutil
import tempfile
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.util import find_spec
from itertools import product
from pathlib import Path
from typing import Any, Literal

import msgspec
import numpy as np

from .. import limits
from ..analysis.deployments import answers_alike
from ..data import load_dataset
from ..deployments import conversion
from ..errors import ControlError, GroupError, UsageError, check_count, check_seed, check_size
from ..files import file_digest, json_digest
from ..frameworks import NAMES, Device, check_device, check_framework, hosted, installed, versions
from ..limits import BATCH_SIZE, EPOCHS
from ..networks.architecture import get_architecture
from ..networks.weights import file_bytes
from ..provenance import made_with, processor
from ..runs.related import measure_agreement
from ..sources.deployed import AnyOrigin, FromDeployedFile, FromDeployment, deployments_of
from ..sources.from_code import FromFunction
from ..sources.from_zoo import FromZoo, check_names, find_weights, frameworks_with, no_weights
from ..sources.recipes import FALLBACK_DATASET, default_dataset, load_for, short_dataset
from ..threads import cores, processors
from .benchmark import Benchmark, open_benchmark
from .jobs import ControlJob, NotApplicable, Outcome, PredictionJob, TrainingJob
from .machine import need_device, need_psutil
from .measurement import SEMANTICS, Asked, Measurement, Task
from .process import Done, Failure, Job, run
from .store import FORMAT, BenchmarkStore, Manifest, Planned

EPOCHS_OF_DIGITS = 2.0  # the first, in which frameworks compile, and one more
SHARE = 0.05  # of an epoch, where a network has no recipe for the digits
CONTROL_IMAGES = 200
REPETITIONS = 5
BATCH_SIZES = {"train": (32, 64, 128), "predict": (1, 32, 128)}
_log = logging.getLogger("robustcmp")
Progress = Callable[[int, int, str], None]
Frameworks = Sequence[str] | Mapping[str, str] | None


def benchmark(
    what: Literal["train", "predict"],
    model: str = "lenet5",
    *,
    frameworks: Frameworks = None,
    deployments: Sequence[str] = (),
    models: Mapping[str, AnyOrigin] | None = None,
    dataset: str | None = None,
    recipe: str = "default",
    training_seed: int = 0,
    weights_of: str | None = None,
    batch_sizes: Sequence[int] | None = None,
    images: Sequence[int] = (1000,),
    epochs: float | None = None,
    accuracy: float | None = None,
    repetitions: int = REPETITIONS,
    threads: int | None = None,
    device: Device = "auto",
    seed: int = 0,
    out: str | os.PathLike[str] | None = None,
    data_dir: str | os.PathLike[str] | None = None,
    progress: Progress | None = None,
    command: str | None = None,
) -> Benchmark:
    """Measure how fast frameworks train a network, or predict with it, and what they use.

    Each measurement is a process of its own. Within a repetition they come in random order, and repetitions come one
    after another, so that a machine that slows down slows all frameworks alike. What is finished is kept in `out`; the
    same call measures only what is missing.

    Parameters
    ----------
    what : str
        ``"train"`` or ``"predict"``.
    model, dataset, recipe : str
        As for `load_model`. The dataset defaults to the recipe's first; for trainings to ``"digits"`` where the recipe
        has them, which takes seconds.
    frameworks : sequence of str, or mapping of str to str, optional
        Which ones (default: all that are installed; for predictions those that have weights, or can be given them).
        A mapping gives them other names, so that one can stand twice: ``{"a": "torch", "b": "torch"}``.
    deployments : sequence of str
        For predictions: what the weights are also converted to, as for `deploy`.
    models : mapping of str to origin, optional
        For predictions: networks from elsewhere, by their names, from `from_function` for instance.
    training_seed : int, default 0
        Whose weights predict; of trainings the first repetition's, and every further one has the next.
    weights_of : str, optional
        For predictions: the framework whose training is carried into all others (default: the first of `frameworks`
        that has weights), so that all compute the same function. They are checked to answer alike first.
    batch_sizes : sequence of int, optional
        Default: 32, 64, 128 for trainings, 1, 32, 128 for predictions. 1 is MLPerf's scenario "single stream", more is
        "offline".
    images : sequence of int, default (1000,)
        For predictions: how many test images, at least `batch_sizes`.
    epochs : float, optional
        For trainings; 0.1 is the first tenth of the steps of an epoch (default: 2, or 0.05 for a network without a
        recipe for the digits).
    accuracy : float, optional
        For trainings: the validation accuracy to which seconds are counted, 0 to 1.
    repetitions : int, default 5
        Of each measurement. With five, no paired test reaches p < 0.05; ten or more can.
    threads : int, optional
        Processors that each process may use (default: all).
    device : str, default "auto"
        ``"auto"``, ``"cpu"`` or ``"cuda"``.
    seed : int, default 0
        Of the random order.
    out : path, optional
        A directory; a temporary one if it is left out.
    data_dir : path, optional
        The directory of the dataset, see `load_dataset`.
    progress : callable, optional
        Called with the number of finished measurements, of all, and what is measured now.

    Returns
    -------
    Benchmark

    Raises
    ------
    UsageError
        A name or a number is invalid, psutil is not installed, or `out` is no benchmark.
    DataError
        The dataset is not available.
    WeightsError
        No framework has weights for predictions.
    GroupError
        Every measurement failed.
    ControlError
        Frameworks answer differently with the same weights, so their times are not of the same function.

    Examples
    --------
    >>> found = benchmark("train", "lenet1", frameworks=["torch"], dataset="digits", epochs=0.1, batch_sizes=[32],
    ...                   repetitions=1)
    >>> len(found.measurements[0].epochs)
    1
    """
    question = _Question(
        what, model, recipe, training_seed, device, dataset or usual_dataset(what, model, recipe), _as_text(data_dir)
    )
    check_count("repetitions", repetitions, limits.REPEATS)
    check_seed(seed)
    need_psutil()
    threads = cores() if threads is None else check_count("threads", threads, len(processors()) or None)
    sizes = list(
        dict.fromkeys(check_count("batch_sizes", size, BATCH_SIZE) for size in batch_sizes or BATCH_SIZES[what])
    )
    if accuracy is not None and not 0 < accuracy <= 1:
        raise UsageError(f"accuracy should be above 0 and at most 1, received {accuracy}", parameters=["accuracy"])
    if what == "train":
        if deployments or models or weights_of:
            raise UsageError("deployments, models and weights_of are for predictions: nothing of them is trained")
        epochs = usual_epochs(model, recipe) if epochs is None else check_size("epochs", epochs, EPOCHS)
        subjects = question.list_trainings(frameworks, sizes, epochs)
    else:
        epochs = None
        counts = list(dict.fromkeys(check_count("images", count, limits.IMAGES) for count in images))
        if min(counts, default=0) < max(sizes):
            raise UsageError(
                f"images should be at least the largest batch size, {max(sizes)}, received {min(counts, default=0)}",
                parameters=["images", "batch_sizes"],
            )
        question.find_origins(frameworks, deployments, models or {}, weights_of)
        subjects = question.list_predictions(sizes, counts)
    plan = _plan(question, subjects, repetitions, seed, threads)
    directory = tempfile.mkdtemp(prefix="robustcmp-") if out is None else out
    store = BenchmarkStore(directory)
    manifest = Manifest(
        FORMAT,
        about=question.about | {"what": what, "epochs": epochs, "command": command},
        plan=[planned for planned, _ in plan],
        seed=seed,
        failed={},
        control={},
        environment=made_with() | {"processor": processor(), "threads": threads},
        accuracy=accuracy,
        not_applicable=question.not_applicable,
    )
    with store.writing():
        _measure(store, manifest, plan, question, threads, progress)
    if not any(planned.key in store for planned in manifest.plan):
        reasons = dict.fromkeys([*manifest.failed.values(), *manifest.not_applicable.values()])
        raise GroupError(f"nothing could be measured: {'; '.join(reasons)}")
    measured = open_benchmark(directory)
    if out is None:
        weakref.finalize(measured, shutil.rmtree, directory, ignore_errors=True)
    return measured


def usual_dataset(what: str, model: str, recipe: str = "default") -> str:
    """Return the dataset of a benchmark that names none: trainings are short, predictions have the zoo's weights.

    Examples
    --------
    >>> usual_dataset("train", "lenet5"), usual_dataset("predict", "lenet5")
    ('digits', 'mnist')
    """
    return short_dataset(model, recipe) if what == "train" else default_dataset(model, recipe)


def usual_epochs(model: str, recipe: str = "default") -> float:
    """Return the epochs of a training for which none were asked: a share of one where a network has no short dataset.

    Examples
    --------
    >>> usual_epochs("lenet5"), usual_epochs("resnet20")
    (2.0, 0.05)
    """
    return EPOCHS_OF_DIGITS if short_dataset(model, recipe) == FALLBACK_DATASET else SHARE


@dataclass
class _Question:
    """What all measurements of a benchmark have in common."""

    what: str
    model: str
    recipe: str
    training_seed: int
    device: Device
    dataset: str
    data_dir: str | None
    not_applicable: dict[str, str] = field(default_factory=dict)
    origins: dict[str, AnyOrigin] = field(default_factory=dict)
    weights_of: str | None = None
    data: str = ""

    def __post_init__(self) -> None:
        if self.what not in BATCH_SIZES:
            raise UsageError(f"expected 'train' or 'predict', received {self.what!r}")
        check_device(self.device)
        need_device(self.device)
        check_seed(self.training_seed, "training_seed")
        check_names(self.model, self.dataset, seeds=[self.training_seed], frameworks=None, recipe=self.recipe)

    @property
    def about(self) -> dict[str, Any]:
        names = ("model", "dataset", "recipe", "training_seed", "weights_of", "data")
        return {name: getattr(self, name) for name in names}

    def list_trainings(self, frameworks: Frameworks, sizes: Sequence[int], epochs: float) -> list[_Subject]:
        """Return what is trained."""
        names = _name_frameworks(frameworks, installed(), self.device)
        data = load_for(self.model, self.dataset, "train", self.data_dir, self.recipe)
        self.data = data.digest
        subjects = []
        for name, framework in names.items():
            for size in sizes:
                job = TrainingJob(
                    model=self.model,
                    dataset=self.dataset,
                    recipe=self.recipe,
                    framework=framework,
                    seed=self.training_seed,
                    batch_size=size,
                    epochs=epochs,
                    device=self.device,
                    data_dir=self.data_dir,
                )
                job.check(len(data.labels))
                recipe = msgspec.to_builtins(job.settings)
                content = {"versions": versions(framework), "recipe": recipe, "epochs": epochs}
                subjects.append(_Subject("train", name, size, 0, job, content))
        return subjects

    def find_origins(
        self,
        frameworks: Frameworks,
        deployments: Sequence[str],
        models: Mapping[str, AnyOrigin],
        weights_of: str | None,
    ) -> None:
        """Find what predicts, all with the weights of one training but for models from elsewhere."""
        with_weights = frameworks_with(self.model, self.dataset, self.recipe, [self.training_seed])
        names = _name_frameworks(frameworks, [] if models and frameworks is None else installed(), self.device)
        if names:
            candidates = [framework for framework in names.values() if framework in with_weights]
            self.weights_of = weights_of or [*candidates, *with_weights, *names.values()][0]
            check_framework(self.weights_of)
            if find_weights(self._source(self.weights_of)) is None:
                raise no_weights([self._source(self.weights_of)])
            self.origins |= {name: self._source(self.weights_of, framework) for name, framework in names.items()}
        if deployments:
            if self.weights_of is None:
                raise UsageError("deployments are made from a framework's weights: name frameworks")
            sources = {self.weights_of: [self._source(self.weights_of)]}
            deployed = deployments_of(sources, deployments, self.dataset, self.data_dir)
            self.origins |= {name: origins[0] for name, origins in deployed.items()}
        if twice := [name for name in models if name in self.origins]:
            raise UsageError(f"two of the models are called {twice[0]}")
        self.origins |= models

    def list_predictions(self, sizes: Sequence[int], counts: Sequence[int]) -> list[_Subject]:
        """Return the predictions of all origins."""
        self.data = load_dataset(self.dataset, "test", data_dir=self.data_dir).digest
        subjects = []
        for name, origin in self.origins.items():
            content = _identify(origin)
            asked: dict[Task, Sequence[int]] = {"forward": counts}
            if isinstance(origin, FromDeployment):
                self.not_applicable[f"{name} forward-backward"] = "a deployed network has no gradient"
            else:
                asked["forward-backward"] = [min(counts)]
            for task in asked:
                for size, count in product(sizes, asked[task]):
                    job = PredictionJob(origin, self.dataset, task, count, size, self.device, self.data_dir)
                    subjects.append(_Subject(task, name, size, count, job, content))
        return subjects

    def _source(self, framework: str, into: str | None = None) -> FromZoo:
        return FromZoo(self.model, self.dataset, framework, self.recipe, self.training_seed, into)

    def check_same_answers(self, threads: int) -> dict[str, str]:
        """Check that all that have the same weights answer alike; return what was found, by subject.

        Raises
        ------
        ControlError
            One does not, though it computes with float32.
        """
        control: dict[str, str] = {}
        carried = {
            name: origin for name, origin in self.origins.items() if isinstance(origin, FromZoo | FromDeployment)
        }
        if len(carried) < 2:
            return control
        answers: dict[str, np.ndarray] = {}
        for name, origin in carried.items():
            job = ControlJob(origin, self.dataset, CONTROL_IMAGES, self.device, self.data_dir)
            try:
                answers[name] = np.array(run(job, threads).outcome.logits)
            except Failure as failure:
                control[name] = f"it did not answer: {failure}"
        first, *others = answers or [""]
        for name in others:
            measured = measure_agreement({first: [answers[first]], name: [answers[name]]})
            origin = carried[name]
            is_exact = not isinstance(origin, FromDeployment) or conversion(origin.name).is_exact
            difference = f"logits differ by {measured['logits']:.1g} of their spread"
            difference += f", {measured['predictions']:.1%} of classes change"
            if is_exact and not answers_alike(**measured):
                raise ControlError(
                    f"{name} does not answer as {first} with the same weights: {difference}. Their times would not be "
                    "of the same function, so nothing was measured. Leave one out."
                )
            control[name] = "passed" if is_exact else f"quantised: {difference} beside {first}"
        return control


@dataclass(frozen=True)
class _Subject:
    """What is measured again in each repetition, and what its times depend on."""

    task: Task
    name: str
    batch_size: int
    images: int
    job: TrainingJob | PredictionJob
    content: dict[str, Any]

    def repeat(self, repetition: int) -> tuple[Asked, Job]:
        """Return what a repetition asks for; of a training another one, so that accuracies are repeated, too."""
        asked = Asked(self.task, self.name, self.batch_size, self.images, repetition)
        if isinstance(self.job, PredictionJob):
            return asked, self.job
        return asked, msgspec.structs.replace(self.job, seed=self.job.seed + repetition)


def _name_frameworks(frameworks: Frameworks, otherwise: Sequence[str], device: Device) -> dict[str, str]:
    """Return frameworks by the names that they have here."""
    if isinstance(frameworks, Mapping):
        names = dict(frameworks)
    else:
        chosen = otherwise if frameworks is None else frameworks
        names = {name: name for name in chosen}
        if len(names) < len(chosen):
            raise UsageError(f"each framework can be given once, received {' '.join(chosen)}")
    for framework in names.values():
        check_framework(framework)
        if framework not in NAMES:
            hosted.check_device(framework, device)
    return names


def _identify(origin: AnyOrigin) -> dict[str, Any]:
    """Return what tells a network from others; for one that a function makes, the content of the function's file."""
    identity: dict[str, Any] = {"origin": msgspec.to_builtins(origin), "fingerprint": origin.fingerprint}
    if isinstance(origin, FromFunction):
        module = find_spec(origin.source.partition(":")[0])
        identity["code"] = file_digest(Path(module.origin)) if module and module.origin else None
    return identity


def _as_text(path: str | os.PathLike[str] | None) -> str | None:
    return None if path is None else os.fspath(path)


def _plan(
    question: _Question, subjects: Sequence[_Subject], repetitions: int, seed: int, threads: int
) -> list[tuple[Planned, Job]]:
    """Return all measurements in the order in which they are made: each repetition has its own random one."""
    common = question.about | {
        "semantics": SEMANTICS,
        "threads": threads,
        "device": question.device,
        "environment": made_with() | {"processor": processor(), "omp_num_threads": None},
    }
    del common["weights_of"]  # the origins say it
    plan = []
    for repetition in range(repetitions):
        key = np.array([seed & 0xFFFF_FFFF_FFFF_FFFF, repetition], np.uint64)
        for index in np.random.Generator(np.random.Philox(key=key)).permutation(len(subjects)):
            asked, job = subjects[index].repeat(repetition)
            content = common | subjects[index].content | {"asked": msgspec.to_builtins(asked)}
            plan.append((Planned(asked, json_digest(content)[:32]), job))
    return plan


def _measure(
    store: BenchmarkStore,
    manifest: Manifest,
    plan: Sequence[tuple[Planned, Job]],
    question: _Question,
    threads: int,
    progress: Progress | None,
) -> None:
    """Do what is missing, in its order."""
    if store.manifest_path.exists() and all(planned.key in store for planned, _ in plan):
        manifest.control |= store.manifest().control
    else:
        manifest.control |= question.check_same_answers(threads)
    store.write_manifest(manifest)
    for place, (planned, job) in enumerate(plan):
        asked = planned.asked
        if progress is not None:
            images = f", {asked.images:,} images" if asked.images else ""
            progress(place, len(plan), f"{asked.subject}, {asked.task}, batch {asked.batch_size}{images}")
        subject_and_task = f"{asked.subject} {asked.task}"
        if planned.key in store or subject_and_task in manifest.not_applicable:
            continue
        try:
            done = run(job, threads)
            store.save(_record(planned, place, done, threads, _file_bytes(job, done.outcome)))
        except NotApplicable as reason:
            manifest.not_applicable[subject_and_task] = str(reason)
            store.write_manifest(manifest)
        except Failure as failure:
            _log.warning("%s, %s, batch %d: %s", asked.subject, asked.task, asked.batch_size, failure)
            manifest.failed[planned.key] = str(failure)
            store.write_manifest(manifest)
    if progress is not None:
        progress(len(plan), len(plan), "")


def _file_bytes(job: Job, outcome: Outcome) -> int | None:
    """Return the size on disk of what a job measured, None where it is in no file of ours."""
    if isinstance(job, TrainingJob):
        return _weights_bytes(job.model)
    origin = job.origin
    if isinstance(origin, FromDeployment | FromDeployedFile):
        return outcome.bytes
    return origin.files["weights"].stat().st_size if isinstance(origin, FromZoo) else None


@cache
def _weights_bytes(model: str) -> int:
    return file_bytes(get_architecture(model))


def _record(planned: Planned, place: int, done: Done, threads: int, file_bytes: int | None) -> Measurement:
    outcome = done.outcome
    return Measurement(
        asked=planned.asked,
        key=planned.key,
        place=place,
        began=done.began,
        seconds=round(done.seconds, 6),
        ready_seconds=round(done.ready_seconds, 6),
        first_seconds=round(outcome.first, 9),
        calls=[round(seconds, 9) for seconds in outcome.calls],
        threads=threads,
        device=outcome.device,
        load_before=done.load_before,
        load_after=done.load_after,
        resources=done.resources,
        epochs=outcome.epochs,
        parameters=outcome.parameters,
        bytes=outcome.bytes,
        file_bytes=file_bytes,
        version=outcome.version,
        semantics=SEMANTICS,
    )

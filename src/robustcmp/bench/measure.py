"""Measure training or prediction of one network design in several frameworks: a benchmark from end to end."""

from __future__ import annotations

import logging
import os
import shutil
import tempfile
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

import msgspec
import numpy as np

from .. import limits
from ..analysis.control import answers_alike
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


def benchmark(
    what: Literal["train", "predict"],
    model: str = "lenet5",
    *,
    frameworks: Sequence[str] | Mapping[str, str] | None = None,
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
        what, model, recipe, training_seed, device, data_dir, dataset or usual_dataset(what, model, recipe)
    )
    check_count("repetitions", repetitions, limits.REPEATS)
    check_seed(seed)
    need_psutil()
    threads = cores() if threads is None else check_count("threads", threads, len(processors()) or None)
    sizes = _each_once(check_count("batch_sizes", size, BATCH_SIZE) for size in batch_sizes or BATCH_SIZES[what])
    accuracy = None if accuracy is None else _share("accuracy", accuracy)
    if what == "train":
        if deployments or models or weights_of:
            raise UsageError("deployments, models and weights_of are for predictions: nothing of them is trained")
        epochs = usual_epochs(model, recipe) if epochs is None else check_size("epochs", epochs, EPOCHS)
        subjects = question.trainings(frameworks, sizes, epochs)
    else:
        counts = _each_once(check_count("images", count, limits.IMAGES) for count in images)
        if min(counts, default=0) < max(sizes):
            raise UsageError(
                f"images should be at least the largest batch size, {max(sizes)}, received {min(counts, default=0)}",
                parameters=["images", "batch_sizes"],
            )
        subjects = question.predictions(frameworks, deployments, models or {}, weights_of, sizes, counts)
    plan = _plan(question, subjects, repetitions, seed, threads)
    directory = tempfile.mkdtemp(prefix="robustcmp-") if out is None else out
    store = BenchmarkStore(directory)
    manifest = Manifest(
        FORMAT,
        about=question.about | {"what": what, "epochs": epochs if what == "train" else None, "command": command},
        plan=[Planned(asked, key) for asked, key, _ in plan],
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
    found = open_benchmark(directory)
    if out is None:
        weakref.finalize(found, shutil.rmtree, directory, ignore_errors=True)
    return found


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
    data_dir: str | os.PathLike[str] | None
    dataset: str
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
        return {
            "model": self.model,
            "dataset": self.dataset,
            "recipe": self.recipe,
            "training_seed": self.training_seed,
            "weights_of": self.weights_of,
            "data": self.data,
        }

    @property
    def _place(self) -> str | None:
        return None if self.data_dir is None else os.fspath(self.data_dir)

    def trainings(
        self, frameworks: Sequence[str] | Mapping[str, str] | None, sizes: Sequence[int], epochs: float
    ) -> list[_Subject]:
        """Return what is trained."""
        named = _named(frameworks, installed(), self.device)
        data = load_for(self.model, self.dataset, "train", self.data_dir, self.recipe)
        self.data = data.digest
        subjects = []
        for name, framework in named.items():
            for size in sizes:
                job = TrainingJob(
                    *(self.model, self.dataset, self.recipe, framework, self.training_seed, size, epochs, self.device),
                    self._place,
                )
                job.check(len(data.labels))
                content = {
                    "versions": versions(framework),
                    "recipe": msgspec.to_builtins(job.settings),
                    "epochs": epochs,
                }
                subjects.append(_Subject("train", name, size, 0, job, content))
        return subjects

    def predictions(
        self,
        frameworks: Sequence[str] | Mapping[str, str] | None,
        deployments: Sequence[str],
        models: Mapping[str, AnyOrigin],
        weights_of: str | None,
        sizes: Sequence[int],
        counts: Sequence[int],
    ) -> list[_Subject]:
        """Return what predicts, all with the weights of one training but for models from elsewhere."""
        there = frameworks_with(self.model, self.dataset, self.recipe, [self.training_seed])
        named = _named(frameworks, [] if models and frameworks is None else installed(), self.device)
        if named:
            with_weights = [framework for framework in named.values() if framework in there]
            self.weights_of = weights_of or next(iter([*with_weights, *there]), next(iter(named.values())))
            check_framework(self.weights_of)
            if find_weights(self._source(self.weights_of)) is None:
                raise no_weights([self._source(self.weights_of)])
            self.origins |= {name: self._source(self.weights_of, framework) for name, framework in named.items()}
        if deployments:
            if self.weights_of is None:
                raise UsageError("deployments are made from a framework's weights: name frameworks")
            sources = {self.weights_of: [self._source(self.weights_of)]}
            made = deployments_of(sources, deployments, self.dataset, self._place)
            self.origins |= {name: each[0] for name, each in made.items()}
        if twice := [name for name in models if name in self.origins]:
            raise UsageError(f"two of the models are called {twice[0]}")
        self.origins |= models
        self.data = load_dataset(self.dataset, "test", data_dir=self.data_dir).digest
        tasks: tuple[Task, ...] = ("forward", "forward-backward")
        subjects = []
        for name, origin in self.origins.items():
            for task in tasks:
                if task == "forward-backward" and isinstance(origin, FromDeployment):
                    self.not_applicable[f"{name} {task}"] = "a deployed network has no gradient"
                    continue
                for size in sizes:
                    for count in counts if task == "forward" else [min(counts)]:
                        job = PredictionJob(origin, self.dataset, task, count, size, self.device, self._place)
                        subjects.append(_Subject(task, name, size, count, job, _identity(origin)))
        return subjects

    def _source(self, framework: str, into: str | None = None) -> FromZoo:
        return FromZoo(self.model, self.dataset, framework, self.recipe, self.training_seed, into)

    def control(self, threads: int) -> dict[str, str]:
        """Check that all that have the same weights answer alike; return what was found, by subject.

        Raises
        ------
        ControlError
            One does not, though it computes with float32.
        """
        found: dict[str, str] = {}
        carried = {
            name: origin for name, origin in self.origins.items() if isinstance(origin, FromZoo | FromDeployment)
        }
        if len(carried) < 2:
            return found
        answers: dict[str, np.ndarray] = {}
        for name, origin in carried.items():
            job = ControlJob(origin, self.dataset, CONTROL_IMAGES, self.device, self._place)
            try:
                answers[name] = np.array(run(job, threads).outcome.logits)
            except Failure as failure:
                found[name] = f"it did not answer: {failure}"
        first = next(iter(answers), None)
        for name in answers:
            if first is None or name == first:
                continue
            measured = measure_agreement({first: [answers[first]], name: [answers[name]]})
            origin = carried[name]
            exact = not isinstance(origin, FromDeployment) or conversion(origin.name).is_exact
            said = f"logits differ by {measured['logits']:.1g} of their spread"
            said += f", {measured['predictions']:.1%} of classes change"
            if exact and not answers_alike(**measured):
                raise ControlError(
                    f"{name} does not answer as {first} with the same weights: {said}. Their times would not be of the "
                    "same function, so nothing was measured. Leave one out."
                )
            found[name] = "passed" if exact else f"quantised: {said} beside {first}"
        return found


@dataclass(frozen=True)
class _Subject:
    """What is measured again in each repetition, and what its times depend on."""

    task: Task
    name: str
    batch_size: int
    images: int
    job: Job
    content: dict[str, Any]


def _named(
    frameworks: Sequence[str] | Mapping[str, str] | None, otherwise: Sequence[str], device: Device
) -> dict[str, str]:
    """Return frameworks by the names that they have here."""
    if frameworks is None:
        named = {name: name for name in otherwise}
    elif isinstance(frameworks, Mapping):
        named = dict(frameworks)
    else:
        named = {name: name for name in frameworks}
        if len(named) < len(frameworks):
            raise UsageError(f"each framework can be given once, received {' '.join(frameworks)}")
    for framework in named.values():
        check_framework(framework)
        if framework not in NAMES:
            hosted.check_device(framework, device)
    return named


def _identity(origin: AnyOrigin) -> dict[str, Any]:
    """Return what tells a network from others; for one that a function makes, the content of the function's file."""
    said: dict[str, Any] = {"origin": msgspec.to_builtins(origin), "fingerprint": origin.fingerprint}
    if isinstance(origin, FromFunction):
        found = find_spec(origin.source.partition(":")[0])
        said["code"] = file_digest(Path(found.origin)) if found and found.origin else None
    return said


def _each_once(numbers: Iterable[int]) -> list[int]:
    return [*dict.fromkeys(numbers)]


def _share(name: str, value: float) -> float:
    if not 0 < value <= 1:
        raise UsageError(f"{name} should be above 0 and at most 1, received {value}", parameters=[name])
    return float(value)


def _plan(
    question: _Question, subjects: Sequence[_Subject], repetitions: int, seed: int, threads: int
) -> list[tuple[Asked, str, Job]]:
    """Return all measurements in the order in which they are made: each repetition has its own random one."""
    common = {
        "semantics": SEMANTICS,
        **{name: said for name, said in question.about.items() if name != "weights_of"},
        "threads": threads,
        "device": question.device,
        "environment": made_with() | {"processor": processor(), "omp_num_threads": None},
    }
    plan = []
    for repetition in range(repetitions):
        order = np.random.Generator(
            np.random.Philox(key=np.array([seed & 0xFFFF_FFFF_FFFF_FFFF, repetition], np.uint64))
        )
        for place in order.permutation(len(subjects)):
            subject = subjects[place]
            asked = Asked(subject.task, subject.name, subject.batch_size, subject.images, repetition)
            key = json_digest(common | subject.content | {"asked": msgspec.to_builtins(asked)})[:32]
            plan.append((asked, key, _repeated(subject.job, repetition)))
    return plan


def _repeated(job: Job, repetition: int) -> Job:
    """Return a job as it is repeated: another training each time, so that accuracies are repeated as well as times."""
    return msgspec.structs.replace(job, seed=job.seed + repetition) if isinstance(job, TrainingJob) else job


def _measure(
    store: BenchmarkStore,
    manifest: Manifest,
    plan: Sequence[tuple[Asked, str, Job]],
    question: _Question,
    threads: int,
    progress: Progress | None,
) -> None:
    """Do what is missing, in its order."""
    missing = [key for _, key, _ in plan if key not in store]
    before = store.manifest().control if not missing and store.manifest_path.exists() else None
    manifest.control |= question.control(threads) if before is None else before
    store.write_manifest(manifest)
    for place, (asked, key, job) in enumerate(plan):
        if progress is not None:
            images = f", {asked.images:,} images" if asked.images else ""
            progress(place, len(plan), f"{asked.subject}, {asked.task}, batch {asked.batch_size}{images}")
        without = f"{asked.subject} {asked.task}"
        if key in store or without in manifest.not_applicable:
            continue
        try:
            done = run(job, threads)
            store.save(_measurement(asked, key, place, done, threads, _file_bytes(job, done.outcome)))
        except NotApplicable as reason:
            manifest.not_applicable[without] = str(reason)
            store.write_manifest(manifest)
        except Failure as failure:
            _log.warning("%s, %s, batch %d: %s", asked.subject, asked.task, asked.batch_size, failure)
            manifest.failed[key] = str(failure)
            store.write_manifest(manifest)
    if progress is not None:
        progress(len(plan), len(plan), "")


def _file_bytes(job: Job, outcome: Outcome) -> int | None:
    """Return the size on disk of what a job measured, None where it is in no file of ours."""
    if isinstance(job, TrainingJob):
        return _weights_file(job.model)
    origin = job.origin
    if isinstance(origin, FromDeployment | FromDeployedFile):
        return outcome.bytes
    return origin.files["weights"].stat().st_size if isinstance(origin, FromZoo) else None


@cache
def _weights_file(model: str) -> int:
    return file_bytes(get_architecture(model))


def _measurement(asked: Asked, key: str, place: int, done: Done, threads: int, file_bytes: int | None) -> Measurement:
    outcome = done.outcome
    return Measurement(
        asked=asked,
        key=key,
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

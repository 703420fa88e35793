"""Measure training or prediction of one network design in several frameworks: a benchmark from end to end."""

from __future__ import annotations

import os
import shutil
import tempfile
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from itertools import product
from pathlib import Path
from typing import Any, Literal, NamedTuple

import msgspec
import numpy as np

from .. import limits
from ..analysis.deployments import answers_alike
from ..data import load_dataset
from ..deployments import conversion
from ..errors import LOG, ControlError, GroupError, UsageError, check_count, check_seed, check_size
from ..files import file_digest, json_digest
from ..frameworks import NAMES, Device, check_device, check_framework, list_installed, require_gpu, versions
from ..networks.architecture import get_architecture
from ..provenance import made_with, processor
from ..runs.related import measure_agreement
from ..sources.deployed import AnyOrigin, FromDeployment, deployments_of
from ..sources.from_code import FromFunction
from ..sources.from_zoo import FromZoo, check_names, find_weights, frameworks_with, no_weights
from ..sources.recipes import FALLBACK_DATASET, default_dataset, load_for
from ..sources.training import check_batches
from ..threads import cores, processors
from .benchmark import Benchmark, open_benchmark
from .jobs import NotApplicable, PredictionJob, TrainingJob
from .measurement import SEMANTICS, Asked, Measurement, Task
from .process import Failure, Job, check_gpu, run
from .store import BenchmarkStore, Manifest, Planned
from .words import describe_measurement

EPOCHS_OF_DIGITS = 2.0  # the first, in which frameworks compile, and one more
SHARE = 0.05  # of an epoch, where a network has no recipe for the digits
CONTROL_IMAGES = 200
BATCH_SIZES = {"train": (32, 64, 128), "predict": (1, 32, 128)}
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
    batch_sizes: Sequence[int] | None = None,
    images: Sequence[int] = (1000,),
    epochs: float | None = None,
    repetitions: int = 5,
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
        A mapping gives them other names, so that one can stand twice: ``{"a": "torch", "b": "torch"}``. All predict
        with the weights of the first one that has some, and are checked to answer alike first.
    deployments : sequence of str
        For predictions: what the weights are also converted to, as for `deploy`.
    models : mapping of str to origin, optional
        For predictions: networks from elsewhere, by their names, from `from_function` for instance.
    training_seed : int, default 0
        Whose weights predict; of trainings the first repetition's, and every further one has the next.
    batch_sizes : sequence of int, optional
        Default: 32, 64, 128 for trainings, 1, 32, 128 for predictions. 1 is MLPerf's scenario "single stream", more is
        "offline".
    images : sequence of int, default (1000,)
        For predictions: how many test images, at least `batch_sizes`.
    epochs : float, optional
        For trainings; 0.1 is the first tenth of the steps of an epoch (default: 2, or 0.05 for a network without a
        recipe for the digits).
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
    if what not in BATCH_SIZES:
        raise UsageError(f"expected 'train' or 'predict', received {what!r}")
    check_device(device)
    if device == "cuda":
        check_gpu()
    origin = FromZoo(
        model, dataset or default_dataset(model, recipe, short=what == "train"), NAMES[0], recipe, training_seed
    )
    check_names(model, origin.dataset, seeds=[training_seed], frameworks=None, recipe=recipe)
    question = _Question(origin, device, None if data_dir is None else os.fspath(data_dir))
    check_count("repetitions", repetitions, limits.REPEATS)
    check_seed(seed)
    if find_spec("psutil") is None:
        raise UsageError("measurements need psutil: pip install 'robustcmp[bench]'")
    threads = cores() if threads is None else check_count("threads", threads, len(processors()) or None)
    sizes = [check_count("batch_sizes", size, limits.BATCH_SIZE) for size in batch_sizes or BATCH_SIZES[what]]
    if what == "train":
        if deployments or models:
            raise UsageError("deployments and models cannot be trained: leave them out, or measure predictions")
        epochs = _choose_epochs(model, recipe) if epochs is None else check_size("epochs", epochs, limits.EPOCHS)
        series = question.list_trainings(frameworks, [*dict.fromkeys(sizes)], epochs)
    else:
        counts = [check_count("images", count, limits.IMAGES) for count in images]
        if min(counts, default=0) < max(sizes):
            raise UsageError(
                f"images should be at least the largest batch size, {max(sizes)}, received {min(counts, default=0)}",
                parameters=["images", "batch_sizes"],
            )
        question.find_origins(frameworks, deployments, models or {})
        series = question.list_predictions([*dict.fromkeys(sizes)], [*dict.fromkeys(counts)])
    plan = _plan(question, series, repetitions, seed, threads)
    store = BenchmarkStore(tempfile.mkdtemp(prefix="robustcmp-") if out is None else out)
    manifest = Manifest(
        format="robustcmp benchmark 1",
        about=question.about | {"what": what, "epochs": epochs if what == "train" else None, "command": command},
        plan=[planned for planned, _ in plan],
        seed=seed,
        failed={},
        control={},
        environment=made_with() | {"processor": processor(), "threads": threads},
        not_applicable=question.not_applicable,
    )
    with store.lock():
        _measure(store, manifest, plan, question, threads, progress)
    if not any(planned.key in store for planned in manifest.plan):
        reasons = dict.fromkeys([*manifest.failed.values(), *manifest.not_applicable.values()])
        raise GroupError(f"nothing could be measured: {'; '.join(reasons)}")
    measured = open_benchmark(store.directory)
    if out is None:
        weakref.finalize(measured, shutil.rmtree, store.directory, ignore_errors=True)
    return measured


def _choose_epochs(model: str, recipe: str) -> float:
    """Return the epochs of a training by default: a share of one where a network has no short dataset."""
    return EPOCHS_OF_DIGITS if default_dataset(model, recipe, short=True) == FALLBACK_DATASET else SHARE


@dataclass
class _Question:
    """What all measurements of a benchmark have in common."""

    origin: FromZoo  # for any framework
    device: Device
    data_dir: str | None
    not_applicable: dict[str, str] = field(default_factory=dict)
    origins: dict[str, AnyOrigin] = field(default_factory=dict)
    weights_of: str | None = None
    data: str = ""

    @property
    def about(self) -> dict[str, Any]:
        origin = self.origin
        return {
            "model": origin.model,
            "dataset": origin.dataset,
            "recipe": origin.recipe,
            "training_seed": origin.seed,
            "weights_of": self.weights_of,
            "data": self.data,
        }

    def list_trainings(self, frameworks: Frameworks, sizes: Sequence[int], epochs: float) -> list[_Series]:
        """Return what is trained."""
        names = _name_frameworks(frameworks, list_installed(), self.device)
        origin = self.origin
        data = load_for(origin.model, origin.dataset, "train", self.data_dir, origin.recipe)
        self.data = data.digest
        series = []
        for (name, framework), size in product(names.items(), sizes):
            job = TrainingJob(self._carry(framework), size, epochs, self.device, self.data_dir)
            settings = job.load_settings()
            check_batches(get_architecture(origin.model), settings, len(data.labels))
            content = {"versions": versions(framework), "recipe": msgspec.to_builtins(settings), "epochs": epochs}
            series.append(_Series(Asked("train", name, size, 0, 0), job, content))
        return series

    def find_origins(self, frameworks: Frameworks, deployments: Sequence[str], models: Mapping[str, AnyOrigin]) -> None:
        """Find what predicts, all with the weights of one training but for models from elsewhere."""
        origin = self.origin
        with_weights = frameworks_with(origin.model, origin.dataset, origin.recipe, [origin.seed])
        names = _name_frameworks(frameworks, [] if models and frameworks is None else list_installed(), self.device)
        if names:
            candidates = [framework for framework in names.values() if framework in with_weights]
            self.weights_of = [*candidates, *with_weights, *names.values()][0]
            if find_weights(self._carry(self.weights_of)) is None:
                raise no_weights([self._carry(self.weights_of)])
            for name, framework in names.items():
                self.origins[name] = self._carry(self.weights_of, framework)
        if deployments:
            if self.weights_of is None:
                raise UsageError("deployments are converted from a framework's network: name at least one framework")
            sources = {self.weights_of: [self._carry(self.weights_of)]}
            deployed = deployments_of(sources, deployments, origin.dataset, self.data_dir)
            self.origins |= {name: origins[0] for name, origins in deployed.items()}
        if twice := self.origins.keys() & models.keys():
            raise UsageError(f"two models are called {sorted(twice)[0]}: rename one of them")
        self.origins |= models

    def list_predictions(self, sizes: Sequence[int], counts: Sequence[int]) -> list[_Series]:
        """Return the predictions of all origins."""
        self.data = load_dataset(self.origin.dataset, "test", data_dir=self.data_dir).digest
        series = []
        for name, origin in self.origins.items():
            content = _identify(origin)
            tasks: dict[Task, Sequence[int]] = {"forward": counts}
            if isinstance(origin, FromDeployment):
                self.not_applicable[f"{name} forward-backward"] = "a deployed network has no gradient"
            else:
                tasks["forward-backward"] = [min(counts)]
            for task in tasks:
                for size, count in product(sizes, tasks[task]):
                    job = PredictionJob(origin, self.origin.dataset, task, count, size, self.device, self.data_dir)
                    series.append(_Series(Asked(task, name, size, count, 0), job, content))
        return series

    def _carry(self, framework: str, into: str | None = None) -> FromZoo:
        return msgspec.structs.replace(self.origin, framework=framework, into=into)

    def check_same_answers(self, threads: int) -> dict[str, str]:
        """Check that all that have the same weights answer alike; return what was found, by subject.

        Raises
        ------
        ControlError
            One does not, though it computes with float32.
        """
        control: dict[str, str] = {}
        answers: dict[str, np.ndarray] = {}
        carried = {
            name: origin for name, origin in self.origins.items() if isinstance(origin, FromZoo | FromDeployment)
        }
        if len(carried) < 2:
            return control
        for name, origin in carried.items():
            images = CONTROL_IMAGES
            job = PredictionJob(origin, self.origin.dataset, None, images, images, self.device, self.data_dir)
            try:
                answers[name] = run(job, threads)["logits"]
            except Failure as failure:
                control[name] = f"it did not answer: {failure}"
        first = next(iter(answers), "")
        for name in [*answers][1:]:
            measured = measure_agreement({first: [answers[first]], name: [answers[name]]})
            origin = carried[name]
            is_exact = not isinstance(origin, FromDeployment) or conversion(origin.name).is_exact
            difference = (
                f"logits differ by {measured['logits']:.1g} of their spread, {measured['predictions']:.1%} of classes "
                "change"
            )
            if is_exact and not answers_alike(**measured):
                raise ControlError(
                    f"{name} and {first} have the same weights, but their answers differ: {difference}. Comparing "
                    "their times would mean nothing, so nothing was measured. Leave one out."
                )
            control[name] = "passed" if is_exact else f"quantised: {difference} beside {first}"
        return control


class _Series(NamedTuple):
    """What is measured again in each repetition, and what its times depend on."""

    asked: Asked
    job: Job
    content: dict[str, Any]


def _name_frameworks(frameworks: Frameworks, otherwise: Sequence[str], device: Device) -> dict[str, str]:
    """Return frameworks by the names that they have here."""
    if isinstance(frameworks, Mapping):
        names = dict(frameworks)
    else:
        names = {name: name for name in (otherwise if frameworks is None else frameworks)}
    for framework in names.values():
        check_framework(framework)
        if framework not in NAMES:
            require_gpu(framework, device, has_gpu=False)
    return names


def _identify(origin: AnyOrigin) -> dict[str, Any]:
    """Return what tells a network from others; for one that a function makes, the content of the function's file."""
    identity: dict[str, Any] = {"origin": msgspec.to_builtins(origin), "fingerprint": origin.fingerprint}
    if isinstance(origin, FromFunction):
        module = find_spec(origin.source.partition(":")[0])
        identity["code"] = file_digest(Path(module.origin)) if module and module.origin else None
    return identity


def _plan(
    question: _Question, series: Sequence[_Series], repetitions: int, seed: int, threads: int
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
        for index in np.random.Generator(np.random.Philox(key=key)).permutation(len(series)):
            request, job, content = series[index]
            request = msgspec.structs.replace(request, repetition=repetition)
            if isinstance(job, TrainingJob):  # another training, so that accuracies are repeated, too
                again = msgspec.structs.replace(job.origin, seed=job.origin.seed + repetition)
                job = msgspec.structs.replace(job, origin=again)
            content = common | content | {"asked": msgspec.to_builtins(request)}
            plan.append((Planned(request, json_digest(content)[:32]), job))
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
    report = progress or (lambda done, total, name: None)
    for done, (planned, job) in enumerate(plan):
        report(done, len(plan), describe_measurement(planned.asked))
        task = f"{planned.asked.subject} {planned.asked.task}"
        if planned.key in store or task in manifest.not_applicable:
            continue
        try:
            fields = run(job, threads)
            store.save(Measurement(asked=planned.asked, key=planned.key, semantics=SEMANTICS, **fields))
        except NotApplicable as reason:
            manifest.not_applicable[task] = str(reason)
            store.write_manifest(manifest)
        except Failure as failure:
            LOG.warning("%s: %s", describe_measurement(planned.asked), failure)
            manifest.failed[planned.key] = str(failure)
            store.write_manifest(manifest)
    report(len(plan), len(plan), "")

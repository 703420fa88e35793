"""How fast, and with what: all that a benchmark's records say of training and prediction."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..analysis.statistics.medians import Located, median_interval
from ..errors import StoreError, UsageError
from . import arrays as measured_arrays
from . import speed
from .measurement import NEW_SEEDS, TASKS, Measurement
from .processes import figures
from .speed import SETTING, Setting
from .store import BenchmarkStore, Planned

if TYPE_CHECKING:
    import pandas
    import xarray

OF_TRAINING = ["epoch_seconds", "first_epoch_seconds", "call_seconds", "seconds_to_accuracy", "convergence_epoch"]
OF_TRAINING += ["loss", "training_accuracy", "validation_accuracy", "cpu_seconds"]
OF_PREDICTION = ["first_seconds", "call_seconds", "p90", "p95", "p99", "throughput"]
OF_ONE_TRAINING = ("loss", "training_accuracy", "validation_accuracy")  # the same in all its repetitions
OF_ALL = ["ready_seconds", "processors", "peak_memory", "cpu_temperature"]
OF_ALL += ["gpu", "gpu_memory", "gpu_temperature", "gpu_power", "energy", "parameters", "bytes", "file_bytes"]
RESERVED = {*SETTING, "subject", "repetition", "time", "seconds"}  # no series is called so


class Absent(NamedTuple):
    """Measurements that are not there.

    Attributes
    ----------
    subject, task : str
    batch_size, images : int, optional
        None where the subject does not do the task at all.
    repetitions : int
        How many are not there.
    status : str
        ``"failed"``, ``"not applicable"`` or ``"not measured yet"``.
    reason : str
        Why.
    """

    subject: str
    task: str
    batch_size: int | None
    images: int | None
    repetitions: int
    status: str
    reason: str


class Performance:
    """What a benchmark measured, from its records.

    Raises
    ------
    UsageError
        The directory is no benchmark, or nothing was measured yet.
    StoreError
        A file is broken.
    """

    def __init__(self, store: BenchmarkStore):
        self.store = store
        self.manifest = store.manifest()
        self.measurements = [_load(store, planned) for planned in self.manifest.plan if planned.key in store]
        if not self.measurements and not self.manifest.failed:
            raise UsageError(
                f"{store.directory} has no finished measurement. Rerun the same command, or the same call of "
                "robustcmp.benchmark."
            )

    @property
    def subjects(self) -> list[str]:
        """The frameworks and deployments, in alphabetical order: that of the plan is random."""
        named = [planned.asked.subject for planned in self.manifest.plan]
        without = [subject for subject, _ in self._not_applicable]
        return sorted({*named, *without})

    @property
    def tasks(self) -> list[str]:
        """What was asked for of `TASKS`."""
        asked = {planned.asked.task for planned in self.manifest.plan}
        return [task for task in TASKS if task in asked]

    @property
    def repetitions(self) -> int:
        """How many processes were asked for of each measurement."""
        return 1 + max((planned.asked.repetition for planned in self.manifest.plan), default=-1)

    @property
    def out_of_order(self) -> int:
        """How many measurements were not made in the random order of the plan.

        These were added to a benchmark later, or repeated after they failed. It is the smallest number without which
        the others began in that order.
        """
        ends: list[str] = []  # of the longest rising sequences of each length
        for measurement in self.measurements:
            place = bisect_right(ends, measurement.began)
            ends[place : place + 1] = [measurement.began]
        return len(self.measurements) - len(ends)

    @property
    def has_one_training(self) -> bool:
        """Whether all repetitions of a training have one seed, so that only their times are repeated: old runs."""
        return any(each.epochs and each.semantics < NEW_SEEDS for each in self.measurements)

    @property
    def failed(self) -> dict[str, str]:
        """Why measurements failed, by what they are of."""
        failed = {key: why for key, why in self.manifest.failed.items() if key not in self._measured}
        return {_said(each): failed[each.key] for each in self.plan if each.key in failed}

    @property
    def settings(self) -> list[Setting]:
        """What subjects are compared in: each task with each number of images and each batch size."""
        asked = {
            Setting(each.asked.task, each.asked.images, each.asked.batch_size): None for each in self.manifest.plan
        }
        return sorted(asked, key=lambda setting: (TASKS.index(setting.task), *setting[1:]))

    @cached_property
    def absent(self) -> list[Absent]:
        """What is not there, and why."""
        manifest, found = self.manifest, {}
        for subject, task in self._not_applicable:
            reason = manifest.not_applicable[f"{subject} {task}"]
            yet = [each for each in manifest.plan if (each.asked.subject, each.asked.task) == (subject, task)]
            found[Absent(subject, task, None, None, 0, "not applicable", reason)] = len(yet)
        for each in manifest.plan:
            asked = each.asked
            if each.key in self._measured or (asked.subject, asked.task) in self._not_applicable:
                continue
            failed = each.key in manifest.failed
            status = "failed" if failed else "not measured yet"
            reason = manifest.failed.get(each.key, "rerun the same command")
            key = Absent(asked.subject, asked.task, asked.batch_size, asked.images, 0, status, reason)
            found[key] = found.get(key, 0) + 1
        return [key._replace(repetitions=count) for key, count in found.items()]

    @cached_property
    def processes(self) -> pandas.DataFrame:
        """A row a process, with all its figures; see `robustcmp.bench.processes.figures`."""
        import pandas

        rows = [figures(measurement, self.manifest.accuracy) for measurement in self.measurements]
        frame = pandas.DataFrame(rows)
        if not rows:
            return pandas.DataFrame(columns=[*SETTING, "subject", "repetition"])
        frame["order"] = frame.task.map(TASKS.index)
        ordered = frame.sort_values(["order", "images", "batch_size", "subject", "repetition"], ignore_index=True)
        return ordered.drop(columns="order")

    @cached_property
    def training(self) -> xarray.Dataset:
        """The trainings, over subject, batch_size and repetition.

        Of each epoch: seconds (without the accuracies), share, loss, training_accuracy, validation_accuracy, elapsed
        (seconds of training so far); of each step after the first: step_seconds; and of the process:
        seconds_to_accuracy, ready_seconds, first_seconds, cpu_seconds, peak_memory, parameters and bytes.
        """
        trained = [each for each in self.measurements if each.asked.task == "train"]
        return measured_arrays.training(trained, self.manifest.accuracy)

    @cached_property
    def prediction(self) -> xarray.Dataset:
        """The predictions, over task, subject, images, batch_size and repetition.

        call_seconds, over the calls after the first; of those after warm-up calls_after_warm_up (how many), p90, p95
        and p99 (NaN where there are too few calls, as their attribute ``missing`` says); ready_seconds,
        first_seconds, cpu_seconds, peak_memory, parameters and bytes.
        """
        return measured_arrays.prediction([each for each in self.measurements if each.asked.task != "train"])

    @cached_property
    def resources(self) -> xarray.Dataset:
        """What processes used, over task, subject, images, batch_size, repetition and time.

        ``seconds`` says when it was looked at, from the start of the process; cpu and others are in processors, memory
        in bytes, and what else the machine gives.
        """
        return measured_arrays.resources(self.measurements)

    def summary_of_training(self) -> pandas.DataFrame:
        """Return what training takes, a row a subject and batch size.

        Each figure is the median over processes, with the ends of its 95 % interval in the columns ``_low`` and
        ``_high``; these are infinite where there are fewer than six processes.

        Returns
        -------
        pandas.DataFrame
            subject, images (0), batch_size, n (processes), asked, busy (share of processes during which other programs
            were busy), reason (why there is none); epoch_seconds (of the epochs after the first), first_epoch_seconds,
            call_seconds (a step, after warm-up), seconds_to_accuracy (NaN if not reached by half of them) with reached
            (by how many), convergence_epoch (the first within a point of the best validation accuracy), loss,
            training_accuracy and validation_accuracy (of the last epoch), cpu_seconds (of the whole process),
            ready_seconds; from then on processors and gpu (used on average), gpu_power (on average, W),
            cpu_temperature and gpu_temperature (the highest, °C); peak_memory, gpu_memory (the most), energy (J, of the
            whole process), parameters, bytes (of them in memory), file_bytes (on disk).
        """
        return self._summary(["train"], [*OF_TRAINING, *OF_ALL])

    def summary_of_prediction(self) -> pandas.DataFrame:
        """Return what predictions take, a row a task, subject, number of images and batch size.

        Medians over processes with 95 % intervals, as in `summary_of_training`.

        Returns
        -------
        pandas.DataFrame
            task, subject, images, batch_size, n, asked, busy, reason; first_seconds (the first call, which compiles);
            of the calls after warm-up: call_seconds (their median), p90 (MLPerf's figure for a single stream), p95 and
            p99 (NaN where there are too few calls), throughput (images a second, MLPerf's for offline); and what stands
            from ready_seconds on in `summary_of_training`.
        """
        return self._summary([task for task in self.tasks if task != "train"], [*OF_PREDICTION, *OF_ALL])

    def steadiness(self) -> pandas.DataFrame:
        """Return warm-up and drift, a row a task, subject, number of images and batch size.

        Returns
        -------
        pandas.DataFrame
            task, subject, images, batch_size, n, calls (median), warmed_up (share of processes with warm-up), warm_up
            (median of its calls), warm_up_seconds, drift (median, as a share of the time of a call), drifts (share of
            processes that drift by more than 5 %), busy.
        """
        import pandas

        columns = ["task", "subject", "images", "batch_size", "n", "calls", "warmed_up", "warm_up", "warm_up_seconds"]
        rows = [
            [
                *(setting.task, subject, setting.images, setting.batch_size, len(own), own.calls.median()),
                *((own.warm_up > 0).mean(), own.warm_up.median(), own.warm_up_seconds.median()),
                *(own.drift.median(), own.drifts.mean(), own.busy.mean()),
            ]
            for setting, subject, own in self._groups()
            if len(own)
        ]
        return pandas.DataFrame(rows, columns=[*columns, "drift", "drifts", "busy"])

    def tests(self, measure: str | None = None) -> pandas.DataFrame:
        """Test for every pair of subjects whether one is faster, or has more of something else, in each setting.

        The unit is a process: its median seconds an epoch without the first, or the median of its calls after warm-up
        (of its steps, where there is one epoch). Processes of one repetition are a pair, and differences are between
        logarithms, so that they are ratios.

        Parameters
        ----------
        measure : str, optional
            A column of `to_dataframe` with positive values in the place of time: ``"validation_accuracy"``,
            ``"loss"``, ``"peak_memory"``, ``"energy"``. Its tests are a family of their own.

        Returns
        -------
        pandas.DataFrame
            task, images, batch_size, measure (``"epoch"``, ``"step"`` or ``"call"`` for times), a, b, n (pairs of
            processes), ratio (a's value over b's, by Hodges and Lehmann), low and high (its interval, not adjusted),
            coverage, p (Wilcoxon's signed-rank test, exact), p_adjusted (Holm, for all pairs and settings of the task),
            ks_p (Kolmogorov-Smirnov), a12 (the share of pairs of processes in which a has more, or takes longer),
            smallest_p (that n pairs can give), family (how many tests p is adjusted for), needed (repetitions with
            which one of so many tests can be significant).

        Raises
        ------
        UsageError
            There is no such column, or it has values that are not positive; `measure` is an accuracy, and all
            repetitions are of one training.
        """
        if measure is None:
            return self._tests.copy()
        if measure in OF_ONE_TRAINING and self.has_one_training:
            raise UsageError(f"{measure} cannot be tested: all repetitions of this benchmark are of one training")
        return speed.compare(self.processes, measure)

    @cached_property
    def _tests(self) -> pandas.DataFrame:
        return speed.compare(self.processes)

    def equivalence(self, margin: float = speed.MARGIN) -> pandas.DataFrame:
        """Test for every pair of subjects whether their times differ by less than a margin that was stated beforehand.

        Parameters
        ----------
        margin : float, default 1.05
            A ratio: between 1/1.05 and 1.05.

        Returns
        -------
        pandas.DataFrame
            task, images, batch_size, measure, a, b, n, ratio, low and high (its 90 % interval), p (two one-sided
            signed-rank tests), p_adjusted (Holm), equivalent (p_adjusted below 5 %).

        Raises
        ------
        UsageError
            The margin is not above 1.
        """
        return speed.equivalent(self.processes, margin)

    def times(self, setting: Setting) -> dict[str, pandas.Series[float]]:
        """Return the time of each process that `tests` compares, by its repetition, of each subject in a setting."""
        return speed.times(self.processes, setting)

    def measure(self, task: str) -> str:
        """Return what these times are of: ``"epoch"``, ``"step"`` or ``"call"``."""
        return speed.measure_of(self.processes, task)

    def of(self, setting: Setting, subject: str) -> list[Measurement]:
        """Return the measurements of a subject in a setting, in the order of repetitions."""
        found = [
            each
            for each in self.measurements
            if (each.asked.task, each.asked.images, each.asked.batch_size, each.asked.subject) == (*setting, subject)
        ]
        return sorted(found, key=lambda each: each.asked.repetition)

    def _summary(self, tasks: Sequence[str], columns: Sequence[str]) -> pandas.DataFrame:
        import pandas

        named = ["task", "subject", "images", "batch_size", "n", "asked", "busy", "reason"]
        ends = [name + end for name in columns for end in ("", "_low", "_high")]
        rows = []
        for setting, subject, own in self._groups():
            if setting.task not in tasks:
                continue
            row: dict[str, Any] = {
                **setting._asdict(),
                "subject": subject,
                "n": len(own),
                "asked": self.repetitions,
                "busy": own.busy.mean() if len(own) else math.nan,
                "reason": "" if len(own) else self._reason(setting, subject),
                "reached": int(own.seconds_to_accuracy.notna().sum()) if len(own) else 0,
            }
            for name in columns:
                found = _located(name, own[name].to_numpy(np.float64) if len(own) else np.empty(0))
                row |= {name: found.estimate, f"{name}_low": found.low, f"{name}_high": found.high}
            rows.append(row)
        reached = ["reached"] if "seconds_to_accuracy" in columns else []
        return pandas.DataFrame(rows, columns=[*named, *reached, *ends])

    def _groups(self) -> Iterator[tuple[Setting, str, pandas.DataFrame]]:
        """Yield the processes of every subject in every setting that was asked for, or that it has no way to do."""
        frame = self.processes
        asked = {(each.asked.task, each.asked.images, each.asked.batch_size, each.asked.subject) for each in self.plan}
        for setting in self.settings:
            for subject in self.subjects:
                if (*setting, subject) in asked or (subject, setting.task) in self._not_applicable:
                    own = frame[(frame[[*SETTING, "subject"]] == [*setting, subject]).all(axis=1)]
                    yield setting, subject, own

    @property
    def plan(self) -> list[Planned]:
        """All measurements that were asked for."""
        return self.manifest.plan

    @cached_property
    def _measured(self) -> set[str]:
        return {measurement.key for measurement in self.measurements}

    @cached_property
    def _not_applicable(self) -> dict[tuple[str, str], None]:
        """The subjects that do not do a task."""
        said = (name.rpartition(" ") for name in self.manifest.not_applicable)
        return {(subject, task): None for subject, _, task in said if subject and task in TASKS}

    def _reason(self, setting: Setting, subject: str) -> str:
        """Return why there is no measurement of a subject in a setting."""
        said = [
            f"{absent.status}: {absent.reason}"
            for absent in self.absent
            if (absent.subject, absent.task) == (subject, setting.task)
            and absent.batch_size in (None, setting.batch_size)
            and absent.images in (None, setting.images)
        ]
        return "; ".join(dict.fromkeys(said))


def _load(store: BenchmarkStore, planned: Planned) -> Measurement:
    """Return a measurement that is what was asked for, or raise `StoreError`."""
    measurement, path = store.load(planned.key), store.path(planned.key)
    again = "Delete it, and rerun the same command to measure it again."
    if measurement.asked != planned.asked:
        raise StoreError(f"{path} is of {measurement.asked}, but the manifest asks for {planned.asked}. {again}")
    looks = len(measurement.resources.seconds)
    for name, values in measurement.resources.series.items():
        if name in RESERVED or len(values) != looks:
            raise StoreError(f"{path}: its series {name!r} has {len(values)} values at {looks} times. {again}")
    return measurement


def _located(name: str, values: NDArray[np.float64]) -> Located:
    """Return the median of what is known, NaN where nothing is; an accuracy that was not reached takes forever."""
    missing = np.isnan(values)
    if missing.all():
        return Located(math.nan, math.nan, math.nan, math.nan)
    found = median_interval(np.where(missing, math.inf, values) if name == "seconds_to_accuracy" else values[~missing])
    return found._replace(estimate=found.estimate if found.estimate < math.inf else math.nan)


def _said(planned: Planned) -> str:
    """Say in a few words what was asked for."""
    asked = planned.asked
    images = f", {asked.images:,} images" if asked.images else ""
    return f"{asked.subject}, {asked.task}, batch {asked.batch_size}{images}, repetition {asked.repetition}"

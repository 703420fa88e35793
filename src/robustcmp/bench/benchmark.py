"""How fast frameworks train and predict: a benchmark, opened from its records."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..analysis.statistics.ranks import Located, median_interval
from ..errors import StoreError, UsageError
from ..files import write_named
from . import exports, page, pairs, text
from .figures import summarise
from .measurement import NEW_SEEDS, TASKS, Measurement
from .pairs import SETTING, Finding, Setting
from .store import BenchmarkStore, Planned
from .words import describe_measurement

if TYPE_CHECKING:
    import pandas

    from .plots import BenchmarkPlots

OF_TRAINING = ["epoch_seconds", "first_epoch_seconds", "call_seconds", "seconds_to_accuracy", "convergence_epoch"]
OF_TRAINING += ["loss", "training_accuracy", "validation_accuracy", "cpu_seconds"]
OF_ROW = ["task", "subject", "images", "batch_size", "n", "asked", "busy", "reason"]
OF_PREDICTION = ["first_seconds", "call_seconds", "p90", "p95", "p99", "throughput"]
OF_ONE_TRAINING = ("loss", "training_accuracy", "validation_accuracy")  # the same in all its repetitions
OF_ALL = ["ready_seconds", "processors", "peak_memory", "cpu_temperature"]
OF_ALL += ["gpu", "gpu_memory", "gpu_temperature", "gpu_power", "energy", "parameters", "bytes", "file_bytes"]


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


class Benchmark:
    """The measurements of a benchmark, from `benchmark` or `open_benchmark`. Printing it shows the summary.

    Attributes
    ----------
    manifest : Manifest
        What was asked for, and with what.
    measurements : list of Measurement
        What was measured, a process each, in the order of the plan.
    """

    def __init__(self, store: BenchmarkStore):
        self.store = store
        self.manifest = store.manifest()
        self.measurements = [_load(store, planned) for planned in self.manifest.plan if planned.key in store]
        if not self.measurements:
            reasons = "; ".join(dict.fromkeys(self.manifest.failed.values()))
            raise UsageError(
                f"{store.directory} has no finished measurement{f' ({reasons})' if reasons else ''}. Rerun the same "
                "command, or the same call of robustcmp.benchmark."
            )

    @property
    def subjects(self) -> list[str]:
        """The frameworks and deployments, in alphabetical order: that of the plan is random."""
        planned = {planned.asked.subject for planned in self.manifest.plan}
        return sorted(planned.union(subject for subject, _ in self._not_applicable))

    @property
    def tasks(self) -> list[str]:
        """What was asked for: ``"train"``, ``"forward"`` and ``"forward-backward"``."""
        asked = {planned.asked.task for planned in self.manifest.plan}
        return [task for task in TASKS if task in asked]

    @property
    def repetitions(self) -> int:
        """How many processes were asked for of each measurement."""
        return 1 + max(planned.asked.repetition for planned in self.manifest.plan)

    @property
    def settings(self) -> list[Setting]:
        """What subjects are compared in: each task with each number of images and each batch size."""
        asked = {planned.setting for planned in self.manifest.plan}
        return sorted((Setting(*each) for each in asked), key=lambda each: (TASKS.index(each.task), *each[1:]))

    @property
    def has_one_training(self) -> bool:
        """Whether all repetitions of a training have one seed, so that only their times are repeated: old runs."""
        return any(measured.epochs and measured.semantics < NEW_SEEDS for measured in self.measurements)

    @cached_property
    def absent(self) -> list[Absent]:
        """What is not there, and why."""
        counts: dict[Absent, int] = {}
        for subject, task in self._not_applicable:
            reason = self.manifest.not_applicable[f"{subject} {task}"]
            asked = [planned.asked for planned in self.manifest.plan]
            absent = Absent(subject, task, None, None, 0, "not applicable", reason)
            counts[absent] = sum((each.subject, each.task) == (subject, task) for each in asked)
        measured = {measurement.key for measurement in self.measurements}
        for planned in self.manifest.plan:
            asked_for = planned.asked
            if planned.key in measured or (asked_for.subject, asked_for.task) in self._not_applicable:
                continue
            status = "failed" if planned.key in self.manifest.failed else "not measured yet"
            reason = self.manifest.failed.get(planned.key, "rerun the same command")
            absent = Absent(
                asked_for.subject, asked_for.task, asked_for.batch_size, asked_for.images, 0, status, reason
            )
            counts[absent] = counts.get(absent, 0) + 1
        return [absent._replace(repetitions=count) for absent, count in counts.items()]

    @property
    def failed(self) -> dict[str, str]:
        """Why measurements failed, by what they are of."""
        reasons = self.manifest.failed
        failed = [planned for planned in self.manifest.plan if planned.key in reasons and planned.key not in self.store]
        return {describe_measurement(planned.asked): reasons[planned.key] for planned in failed}

    @cached_property
    def processes(self) -> pandas.DataFrame:
        """The rows of `to_dataframe`."""
        import pandas

        frame = pandas.DataFrame([summarise(measured, self.manifest.accuracy) for measured in self.measurements])
        frame["order"] = frame.task.map(TASKS.index)
        ordered = frame.sort_values(["order", "images", "batch_size", "subject", "repetition"], ignore_index=True)
        return ordered.drop(columns="order")

    def to_dataframe(self) -> pandas.DataFrame:
        """Return the benchmark as a tidy table, a row a process.

        Returns
        -------
        pandas.DataFrame
            task, subject, images, batch_size, repetition; call_seconds (the median after warm-up), p90, p95, p99,
            throughput; epochs, epoch_seconds, first_epoch_seconds, seconds_to_accuracy, convergence_epoch, loss,
            training_accuracy, validation_accuracy; ready_seconds, first_seconds, calls, warm_up
            (calls), warm_up_seconds, drift, drifts, seconds, cpu_seconds, peak_memory, gpu_memory, energy; processors,
            cpu_temperature, gpu, gpu_temperature, gpu_power from when it was ready; others (what other programs used
            of its processors), others_most (likewise, over two seconds), busy, load_before, load_after, threads,
            device, version, parameters, bytes, file_bytes, place (in the random order), began. NaN where there is none.
        """
        return self.processes.copy()

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
        return self._summarise(["train"], [*OF_TRAINING, *OF_ALL])

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
        return self._summarise([task for task in self.tasks if task != "train"], [*OF_PREDICTION, *OF_ALL])

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

        rows = []
        for setting, subject, frame in self._group():
            if len(frame):
                row = {"task": setting.task, "subject": subject, "images": setting.images}
                row |= {"batch_size": setting.batch_size, "n": len(frame), "calls": frame.calls.median()}
                row |= {"warmed_up": (frame.warm_up > 0).mean(), "warm_up": frame.warm_up.median()}
                row |= {"warm_up_seconds": frame.warm_up_seconds.median(), "drift": frame.drift.median()}
                rows.append(row | {"drifts": frame.drifts.mean(), "busy": frame.busy.mean()})
        return pandas.DataFrame(rows)

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
        return pairs.compare(self.processes, measure)

    @cached_property
    def _tests(self) -> pandas.DataFrame:
        return pairs.compare(self.processes)

    def equivalence(self, margin: float = pairs.MARGIN) -> pandas.DataFrame:
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
        return pairs.check_equivalence(self.processes, margin)

    def times(self, setting: Setting) -> dict[str, pandas.Series[float]]:
        """Return the time of each process that `tests` compares, by its repetition, of each subject in a setting."""
        return pairs.get_times(self.processes, setting)

    @cached_property
    def findings(self) -> list[Finding]:
        """What was found in each of `settings`."""
        return [pairs.compare_with_fastest(self, setting) for setting in self.settings]

    def select(self, setting: Setting, subject: str) -> list[Measurement]:
        """Return the measurements of a subject in a setting, in the order of repetitions."""
        chosen = [
            measured
            for measured in self.measurements
            if measured.asked.subject == subject
            and (measured.asked.task, measured.asked.images, measured.asked.batch_size) == setting
        ]
        return sorted(chosen, key=lambda measured: measured.asked.repetition)

    @property
    def plot(self) -> BenchmarkPlots:
        """The plots of the benchmark, as Matplotlib axes: ``found.plot.latency()``.

        Raises
        ------
        UsageError
            Matplotlib is not installed.
        """
        from .plots import BenchmarkPlots  # Matplotlib, which no other reader needs

        return BenchmarkPlots(self)

    def to_html(self, path: str | os.PathLike[str]) -> None:
        """Write one self-contained page: answers, tables, pictures, and what is not known.

        The page opens offline. Its pictures need Matplotlib (extra `plot`); without it the page has only tables.

        Raises
        ------
        UsageError
            The file cannot be written.
        """
        html = page.to_html(self)
        write_named(path, lambda temporary: temporary.write_text(html, encoding="utf-8"))

    def to_tensorboard(self, directory: str | os.PathLike[str]) -> list[Path]:
        """Write one log of TensorBoard for each training: loss, accuracies and seconds by epoch.

        Returns
        -------
        list of Path
            The logs' directories.

        Raises
        ------
        UsageError
            The directory cannot be written, or tensorboardX is not installed (extra `tensorboard`).
        """
        return exports.to_tensorboard(self.measurements, directory)

    def to_json(self) -> dict[str, Any]:
        """Return what was found as the types of JSON: the summaries, the tests, the answers, and what is absent."""
        return exports.to_json(self)

    def summary(self, *, width: int | None = None, color: bool = False) -> str:
        """Return the answer on one screen: what the command prints, and what ``print(found)`` shows.

        Parameters
        ----------
        width : int, optional
            In columns, at most 100 (the default).
        color : bool, default False
            Write escape sequences for a terminal's colours.
        """
        return text.summarise(self, width, color)

    def to_text(self, *, width: int | None = None, color: bool = False) -> str:
        """Return all tables and notes, as ``--full`` prints them.

        Parameters
        ----------
        width : int, optional
            In columns, 100 by default; wider tables are split between columns.
        color : bool, default False
            Write escape sequences for a terminal's colours.
        """
        return text.to_text(self, width, color)

    def __repr__(self) -> str:
        return self.summary()

    def _repr_html_(self) -> str:
        """Show the answers and the times in a notebook."""
        return page.to_notebook(self)

    def _summarise(self, tasks: Sequence[str], figures: Sequence[str]) -> pandas.DataFrame:
        """Return medians over processes with their intervals, a row a subject and setting of some tasks."""
        import pandas

        rows = []
        for setting, subject, frame in self._group():
            if setting.task in tasks:
                row = {"task": setting.task, "subject": subject, "images": setting.images}
                row |= {"batch_size": setting.batch_size, "n": len(frame), "asked": self.repetitions}
                row |= {"busy": frame.busy.mean(), "reason": "" if len(frame) else self._explain(setting, subject)}
                if "seconds_to_accuracy" in figures:
                    row["reached"] = int(frame.seconds_to_accuracy.notna().sum())
                for name in figures:
                    median = _locate(name, frame[name].to_numpy(np.float64))
                    row |= {name: median.estimate, f"{name}_low": median.low, f"{name}_high": median.high}
                rows.append(row)
        return pandas.DataFrame(rows) if rows else pandas.DataFrame(columns=[*OF_ROW, *figures])

    def _group(self) -> Iterator[tuple[Setting, str, pandas.DataFrame]]:
        """Yield the processes of every subject in every setting that was asked for, or that it has no way to do."""
        frame = self.processes
        asked = {(*planned.setting, planned.asked.subject) for planned in self.manifest.plan}
        for setting in self.settings:
            for subject in self.subjects:
                if (*setting, subject) in asked or (subject, setting.task) in self._not_applicable:
                    is_chosen = (frame[[*SETTING, "subject"]] == [*setting, subject]).all(axis=1)
                    yield setting, subject, frame[is_chosen]

    @cached_property
    def _not_applicable(self) -> list[tuple[str, str]]:
        """The subjects that do not do a task, with it."""
        names = [name.rpartition(" ") for name in self.manifest.not_applicable]
        return [(subject, task) for subject, _, task in names]

    def _explain(self, setting: Setting, subject: str) -> str:
        """Return why there is no measurement of a subject in a setting."""
        reasons = {
            f"{absent.status}: {absent.reason}": None
            for absent in self.absent
            if (absent.subject, absent.task) == (subject, setting.task)
            and absent.batch_size in (None, setting.batch_size)
            and absent.images in (None, setting.images)
        }
        return "; ".join(reasons)


def open_benchmark(directory: str | os.PathLike[str]) -> Benchmark:
    """Open a benchmark, finished or not. No framework is needed.

    Parameters
    ----------
    directory : path
        The directory that was passed as `out`.

    Raises
    ------
    UsageError
        The directory is not a benchmark, or has no finished measurement.
    StoreError
        A file is broken.

    Examples
    --------
    >>> open_benchmark("no-such-directory")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
        ...
    robustcmp.errors.UsageError: no-such-directory is not a benchmark of robustcmp: it has no manifest.json
    """
    return Benchmark(BenchmarkStore(directory))


def _load(store: BenchmarkStore, planned: Planned) -> Measurement:
    """Return a measurement that is what was asked for, or raise `StoreError`."""
    measurement = store.load(planned.key)
    path = store.path(planned.key)
    again = "Delete it, and rerun the same command to measure it again."
    if measurement.asked != planned.asked:
        raise StoreError(f"{path} is of {measurement.asked}, but the manifest asks for {planned.asked}. {again}")
    moments = len(measurement.resources.seconds)
    for name, values in measurement.resources.series.items():
        if len(values) != moments:
            raise StoreError(f"{path}: its series {name!r} has {len(values)} values at {moments} times. {again}")
    return measurement


def _locate(name: str, values: NDArray[np.float64]) -> Located:
    """Return the median of what is known, NaN where nothing is; an accuracy that was not reached takes forever."""
    missing = np.isnan(values)
    if missing.all():
        return Located(math.nan, math.nan, math.nan, math.nan)
    if name != "seconds_to_accuracy":
        return median_interval(values[~missing])
    median = median_interval(np.where(missing, math.inf, values))
    return median._replace(estimate=median.estimate if median.estimate < math.inf else math.nan)

"""How fast frameworks train and predict: a benchmark, opened from its records."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
import pandas
from numpy.typing import NDArray

from ..analysis.statistics.ranks import median_interval
from ..errors import UsageError
from ..files import write_named
from ..report.exports import without_nan
from ..report.layout import WIDTH, Table, write_text
from ..report.plots import require_matplotlib
from ..report.plots.style import Figure, bare, color, line, marker, panels
from . import page, pairs, words
from .figures import summarise
from .measurement import TASKS, Measurement, Setting
from .pairs import SETTING, Finding
from .store import BenchmarkStore
from .tables import make_tables

OF_TRAINING = [
    *("epoch_seconds", "first_epoch_seconds", "call_seconds"),
    *("loss", "training_accuracy", "validation_accuracy"),
]
OF_PREDICTION = ["first_seconds", "call_seconds", "p90", "p95", "p99", "throughput"]
OF_ALL = ["ready_seconds", "cpu_seconds", "processors", "peak_memory"]


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
        self.measurements = [store.load(planned) for planned in self.manifest.plan if planned.key in store]
        if not self.measurements:
            reasons = "; ".join(dict.fromkeys(self.manifest.failed.values()))
            raise UsageError(
                f"{store.directory} has no finished measurement{f' ({reasons})' if reasons else ''}. Rerun the same "
                "command, or the same call of robustcmp.benchmark."
            )

    @property
    def subjects(self) -> list[str]:
        """The frameworks and deployments, in alphabetical order."""
        return sorted({planned.asked.subject for planned in self.manifest.plan})

    @property
    def tasks(self) -> list[str]:
        """The tasks that were planned, of ``"train"``, ``"forward"`` and ``"forward-backward"``."""
        planned = {each.asked.task for each in self.manifest.plan}
        return [task for task in TASKS if task in planned]

    @property
    def repetitions(self) -> int:
        """The number of processes planned for each measurement."""
        return 1 + max(planned.asked.repetition for planned in self.manifest.plan)

    @property
    def settings(self) -> list[Setting]:
        """The settings in which subjects are compared: task, number of images and batch size."""
        planned = {each.asked.setting for each in self.manifest.plan}
        return sorted(planned, key=lambda each: (TASKS.index(each.task), *each[1:]))

    @cached_property
    def absent(self) -> Counter[tuple[str, str]]:
        """What is not there, and why, with the number of processes."""
        counts: Counter[tuple[str, str]] = Counter()
        not_applicable = self.manifest.not_applicable
        for name, reason in not_applicable.items():
            subject, _, task = name.rpartition(" ")
            counts[f"{subject}, {words.TASKS[task]}", f"not applicable: {reason}"] = self.repetitions
        for planned in self.manifest.plan:
            request = planned.asked
            if planned.key not in self.store and f"{request.subject} {request.task}" not in not_applicable:
                failure = self.manifest.failed.get(planned.key, "")
                reason = f"failed: {failure}" if failure else "not measured yet"
                counts[words.describe_measurement(request), reason] += 1
        return counts

    @property
    def failed(self) -> dict[str, str]:
        """Why measurements failed, by subject and task."""
        return {name: reason.removeprefix("failed: ") for name, reason in self.absent if reason.startswith("failed: ")}

    @cached_property
    def _rows(self) -> pandas.DataFrame:
        frame = pandas.DataFrame([summarise(measured) for measured in self.measurements])
        frame["order"] = frame.task.map(TASKS.index)
        ordered = frame.sort_values(["order", "images", "batch_size", "subject", "repetition"], ignore_index=True)
        return ordered.drop(columns="order")

    def to_dataframe(self) -> pandas.DataFrame:
        """Return the benchmark as a tidy table, one row for each process.

        Returns
        -------
        pandas.DataFrame
            task, subject, images, batch_size, repetition; call_seconds (the median after warm-up), p90, p95, p99,
            throughput; epoch_seconds, first_epoch_seconds, loss, training_accuracy, validation_accuracy;
            ready_seconds, first_seconds, calls, warm_up (calls), seconds, cpu_seconds, peak_memory;
            processors from when it was ready; others (what other programs used of its processors), busy, threads,
            device, version, began. NaN where there is none.
        """
        return self._rows.copy()

    def summary_of_training(self) -> pandas.DataFrame:
        """Return what training takes, one row for each subject and batch size.

        Each figure is the median over processes, with the ends of its 95 % interval in the columns ``_low`` and
        ``_high``; these are infinite where there are fewer than six processes.

        Returns
        -------
        pandas.DataFrame
            task, subject, images (0), batch_size, n (processes), busy (share of processes during which other programs
            were busy); epoch_seconds (of the epochs after the first), first_epoch_seconds, call_seconds (a step, after
            warm-up), loss, training_accuracy and validation_accuracy (of the last epoch); ready_seconds, cpu_seconds
            (of the whole process), processors (used on average), peak_memory.
        """
        return self._summarise(["train"], [*OF_TRAINING, *OF_ALL])

    def summary_of_prediction(self) -> pandas.DataFrame:
        """Return what predictions take, one row for each task, subject, number of images and batch size.

        Medians over processes with 95 % intervals, as in `summary_of_training`.

        Returns
        -------
        pandas.DataFrame
            task, subject, images, batch_size, n, busy; first_seconds (the first call, which compiles); of the calls
            after warm-up: call_seconds (their median), p90 (MLPerf's figure for a single stream), p95 and p99 (NaN
            where there are too few calls), throughput (images a second, MLPerf's for offline); and what stands from
            ready_seconds on in `summary_of_training`.
        """
        return self._summarise(["forward", "forward-backward"], [*OF_PREDICTION, *OF_ALL])

    def tests(self) -> pandas.DataFrame:
        """Test for every pair of subjects whether one is faster in each setting.

        The unit is a process: its median seconds an epoch without the first, or the median of its calls after warm-up
        (of its steps, where there is one epoch). Processes of one repetition are a pair, and differences are between
        logarithms, so that they are ratios.

        Returns
        -------
        pandas.DataFrame
            task, images, batch_size, measure (``"epoch"``, ``"step"`` or ``"call"``), a, b, n (pairs of processes),
            ratio (a's time over b's, by Hodges and Lehmann), low and high (its 95 % interval, not adjusted), p
            (Wilcoxon's signed-rank test, exact), p_adjusted (Holm, for all pairs and settings of the task), needed
            (repetitions with which one of so many tests can be significant).
        """
        return self._tests.copy()

    @cached_property
    def _tests(self) -> pandas.DataFrame:
        return pairs.compare(self._rows)

    @cached_property
    def findings(self) -> list[Finding]:
        """What was found in each of `settings`."""
        return [pairs.compare_with_fastest(self._rows, self._tests, setting) for setting in self.settings]

    def select(self, setting: Setting, subject: str) -> list[Measurement]:
        """Return the measurements of a subject in a setting, in the order of repetitions."""
        in_setting = [measured for measured in self.measurements if measured.asked.setting == setting]
        return [measured for measured in in_setting if measured.asked.subject == subject]

    def plot_learning(self, figure: Figure | None = None) -> NDArray[np.object_]:
        """Draw validation accuracy against seconds: a line for each training, a panel for each batch size.

        Parameters
        ----------
        figure : matplotlib.figure.Figure, optional
            Where to draw; a new figure if nothing is said.

        Returns
        -------
        ndarray of matplotlib.axes.Axes, shape (batch sizes,)

        Raises
        ------
        UsageError
            Nothing was trained, or Matplotlib is not installed.
        """
        require_matplotlib()
        if "train" not in self.tasks:
            raise UsageError("no training was measured, so there is nothing to draw")
        row: NDArray[np.object_] = panels(len(self.settings), figure)[0]
        for axes, setting in zip(row, self.settings, strict=True):
            for index, subject in enumerate(self.subjects):
                style = {"color": color(index), "linestyle": line(index), "marker": marker(index)}
                for number, measured in enumerate(self.select(setting, subject)):
                    x = np.cumsum([epoch.seconds for epoch in measured.epochs])
                    y = [epoch.validation_accuracy for epoch in measured.epochs]
                    name = subject if number == 0 else None
                    axes.plot(x, y, label=name, linewidth=1, markersize=3, alpha=0.7, **style)
            axes.set(title=f"batch {setting.batch_size}: validation accuracy", xlabel="seconds")
            axes.legend(frameon=False, loc="best")
            bare(axes)
        return row

    def to_html(self, path: str | os.PathLike[str]) -> None:
        """Write one self-contained page: answers, tables, pictures and limits.

        The page opens offline. Its pictures need Matplotlib (extra `plot`); without it the page has only tables.

        Raises
        ------
        UsageError
            The file cannot be written.
        """
        write_named(path, page.to_html(self))

    def to_json(self) -> dict[str, Any]:
        """Return the summaries, tests, answers and missing measurements as JSON types."""
        about = self.manifest.about
        content = {name: about.get(name) for name in ("what", "model", "dataset", "recipe", "training_seed")}
        content |= {
            "subjects": self.subjects,
            "repetitions": self.repetitions,
            "measured": len(self.measurements),
            "planned": len(self.manifest.plan),
            "busy": int(self._rows.busy.sum()),
            "absent": [
                {"what": name, "why": reason, "processes": count} for (name, reason), count in self.absent.items()
            ],
            "training": self.summary_of_training().to_dict("records"),
            "prediction": self.summary_of_prediction().to_dict("records"),
            "tests": self._tests.to_dict("records"),
            "answer": words.list_answers(self),
            "out": str(self.store.directory),
        }
        return dict(without_nan(content))

    def summary(self, *, width: int | None = None, color: bool = False) -> str:
        """Return the answer on one screen: what the command prints, and what ``print(found)`` shows.

        Parameters
        ----------
        width : int, optional
            In columns, at most 100 (the default).
        color : bool, default False
            Write escape sequences for a terminal's colours.
        """
        notes = words.list_notes(self)[: -len(words.METHODS)]
        return self._write([make_tables(self)["times"]], notes, min(width or WIDTH, WIDTH), color).rstrip("\n")

    def to_text(self, *, width: int | None = None, color: bool = False) -> str:
        """Return all tables and notes, as ``--full`` prints them.

        Parameters
        ----------
        width : int, optional
            In columns, 100 by default; wider tables are split between columns.
        color : bool, default False
            Write escape sequences for a terminal's colours.
        """
        return self._write([*make_tables(self).values()], words.list_notes(self), width, color)

    def _write(self, shown: Sequence[Table], notes: Sequence[str], width: int | None, color: bool) -> str:
        return write_text("\n".join(words.describe(self)), words.list_answers(self), shown, notes, width, color)

    def __repr__(self) -> str:
        return self.summary()

    def _summarise(self, tasks: Sequence[str], figures: Sequence[str]) -> pandas.DataFrame:
        """Return medians over processes with their intervals, a row a subject and setting of some tasks."""
        summaries = []
        chosen = self._rows[self._rows.task.isin(tasks)]
        for setting_and_subject, frame in chosen.groupby([*SETTING, "subject"], sort=False):
            row = dict(zip([*SETTING, "subject"], setting_and_subject, strict=True))
            row |= {"n": len(frame), "busy": frame.busy.mean()}
            for name in figures:
                median = median_interval(frame[name].dropna().to_numpy(np.float64))
                row |= {name: median.estimate, f"{name}_low": median.low, f"{name}_high": median.high}
            summaries.append(row)
        return pandas.DataFrame(summaries) if summaries else pandas.DataFrame(columns=["task", *figures])


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

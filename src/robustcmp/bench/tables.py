"""The tables of a benchmark: plain values, and the format of each column."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import pandas

from ..report.format import interval, number, p_value, percent, percent_2, ratio, seconds, significant, size
from ..report.layout import Column, Table, names
from .pairs import get_measure, is_significant
from .words import TASKS, UNITS

if TYPE_CHECKING:
    from .benchmark import Benchmark

SHOWN = ("p90", "p99")
TOO_FEW = "too few calls"  # after warm-up, of which a quantile would be the slowest
WHO = {"task": Column("task"), "subject": Column("subject"), "batch": Column("batch")}
USED = {
    "ready_seconds": Column("ready after", seconds),
    "first_seconds": Column("first call", seconds),
    "cpu_seconds": Column("processor time", seconds),
    "processors": Column("processors used", significant),
    "peak_memory": Column("peak memory", size),
    "busy": Column("busy", percent),
}


def make_tables(benchmark: Benchmark) -> dict[str, Table]:
    """Return the tables of a benchmark by name: times, what is learned and used, pairs, and what is not there."""
    if "train" in benchmark.tasks:
        tables = {"times": _tabulate_training(benchmark), "learning": _tabulate_learning(benchmark)}
    else:
        tables = {"times": _tabulate_prediction(benchmark)}
    tables["resources"] = _tabulate_resources(benchmark)
    if len(benchmark.tests()):
        tables["pairs"] = _tabulate_pairs(benchmark)
    if benchmark.absent:
        rows = [[name, reason, count] for (name, reason), count in benchmark.absent.items()]
        columns = [*names("what", "why"), Column("processes", str)]
        tables["absent"] = Table("Not measured, and why", columns, rows)
    return tables


def _tabulate_training(benchmark: Benchmark) -> Table:
    measure = get_measure(benchmark.to_dataframe(), "train")
    time = "epoch_seconds" if measure == "epoch" else "call_seconds"
    columns = {
        "subject": Column("subject"),
        "batch": Column("batch"),
        "n": Column("n", str),
        time: Column(UNITS[measure], seconds),
        f"{time}_interval": Column("95 %", interval(seconds)),
        "first_epoch_seconds": Column("first epoch", seconds),
    }
    rows = _read(benchmark.summary_of_training())
    return _lay_out("Training: medians over processes, without the accuracies between epochs", columns, rows)


def _tabulate_prediction(benchmark: Benchmark) -> Table:
    columns = WHO | {
        "n": Column("n", str),
        "call_seconds": Column("a call", seconds),
        "call_seconds_interval": Column("95 %", interval(seconds)),
        **{name: Column(name, seconds) for name in SHOWN},
        "throughput": Column("images a second", significant),
    }
    rows = _read(benchmark.summary_of_prediction())
    for row in rows:
        row |= {name: TOO_FEW for name in SHOWN if math.isnan(row[name])}
    return _lay_out("Prediction: medians over processes, of the calls after warm-up", columns, rows)


def _tabulate_learning(benchmark: Benchmark) -> Table:
    columns = WHO | {
        "loss": Column("last loss", number),
        "training_accuracy": Column("training accuracy", percent_2),
        "validation_accuracy": Column("validation accuracy", percent_2),
        "validation_accuracy_interval": Column("95 %", interval(percent_2)),
    }
    return _lay_out(
        "Learning: medians over processes, after the last epoch", columns, _read(benchmark.summary_of_training())
    )


def _tabulate_resources(benchmark: Benchmark) -> Table:
    rows = _read(benchmark.summary_of_training()) + _read(benchmark.summary_of_prediction())
    present = [name for name in USED if not all(math.isnan(row.get(name, math.nan)) for row in rows)]
    columns = WHO | {name: USED[name] for name in present}
    return _lay_out("Resources: medians over processes, and the share of them beside busy programs", columns, rows)


def _tabulate_pairs(benchmark: Benchmark) -> Table:
    columns = {
        "task": Column("task"),
        "batch": Column("batch"),
        "a": Column("subject"),
        "b": Column("versus"),
        "n": Column("n", str),
        "ratio": Column("ratio", ratio),
        "interval": Column("95 %, not adjusted", interval(ratio)),
        "p": Column("p", p_value),
        "p_adjusted": Column("p adjusted", p_value),
        "verdict": Column("verdict", str),
    }
    rows = _read(benchmark.tests())
    for row in rows:
        row["verdict"] = _give_verdict(row)
    return _lay_out("Pairs: the first one's time over the other's, paired by repetition", columns, rows)


def _read(frame: pandas.DataFrame) -> list[dict[str, Any]]:
    """Return rows with what a reader sees: the task's word, batches, and the two ends of each interval as one."""
    rows = []
    for record in frame.to_dict("records"):
        row = {str(name): value for name, value in record.items()}
        row["task"] = TASKS[row["task"]]
        row["batch"] = f"{row['batch_size']} of {row['images']:,}" if row["images"] else str(row["batch_size"])
        for name in record:
            if f"{name}_low" in record:
                row[f"{name}_interval"] = (row[f"{name}_low"], row[f"{name}_high"])
        if "low" in record:
            row["interval"] = (row["low"], row["high"])
        rows.append(row)
    return rows


def _lay_out(title: str, columns: Mapping[str, Column], rows: Iterable[Mapping[str, Any]]) -> Table:
    return Table(title, list(columns.values()), [[row[name] for name in columns] for row in rows])


def _give_verdict(test: Mapping[str, Any]) -> str:
    if not test["n"]:
        return "no pair"
    if is_significant(test):
        return "slower" if test["ratio"] > 1 else "faster"
    return "too few repetitions" if test["n"] < test["needed"] else "not significant"

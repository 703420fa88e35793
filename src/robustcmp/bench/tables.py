"""The tables of a benchmark: plain values, and the format of each column."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from ..analysis.significance import ALPHA
from ..report.format import (
    NOTHING,
    fixed,
    interval,
    number,
    p_value,
    percent,
    percent_2,
    ratio,
    seconds,
    significant,
    size,
    whole,
)
from ..report.layout import Column, Table
from .figures import QUANTILES
from .pairs import MARGIN, get_measure
from .published import Published
from .words import TASKS, UNITS

if TYPE_CHECKING:
    from .benchmark import Benchmark

Columns = dict[str, Column]
Row = Mapping[Any, Any]
INTERVAL = "95 %"
TOO_FEW = "too few calls"  # after warm-up, of which a quantile would be the slowest
TASK = {"task": Column("task")}
WHO = {"subject": Column("subject"), "batch": Column("batch")}
USED = {
    "cpu_seconds": Column("processor time, imports included", seconds),
    "processors": Column("processors used", significant),
    "cpu_temperature": Column("processor, °C", significant),
    "peak_memory": Column("peak memory", size),
    "gpu": Column("GPU used", percent),
    "gpu_memory": Column("GPU memory", size),
    "gpu_temperature": Column("GPU, °C", significant),
    "gpu_power": Column("GPU, W", significant),
    "energy": Column("energy, J", significant),
    "parameters": Column("parameters", whole),
    "bytes": Column("size", size),
    "file_bytes": Column("file on disk", size),
}


def list_tables(benchmark: Benchmark) -> list[Table]:
    """Return the tables of a benchmark: times, what is used, pairs, steadiness, and what is not there."""
    tables = []
    if "train" in benchmark.tasks:
        tables += [tabulate_training(benchmark), tabulate_learning(benchmark)]
    if any(task != "train" for task in benchmark.tasks):
        tables.append(tabulate_prediction(benchmark))
    tables.append(tabulate_resources(benchmark))
    if len(benchmark.tests()):
        tables.append(tabulate_pairs(benchmark))
        accuracies = benchmark.processes.validation_accuracy.dropna()  # of trainings
        if len(accuracies) and accuracies.all() and not benchmark.has_one_training:
            tables.append(tabulate_accuracies(benchmark))
    tables.append(tabulate_steadiness(benchmark))
    if benchmark.absent:
        tables.append(tabulate_absent(benchmark))
    return tables


def list_times(benchmark: Benchmark, brief: bool = False) -> list[Table]:
    """Return the tables of the times of what was measured; what is most asked for alone if it is brief."""
    tables = [tabulate_training(benchmark, brief)] if "train" in benchmark.tasks else []
    if any(task != "train" for task in benchmark.tasks):
        tables.append(tabulate_prediction(benchmark, brief))
    return tables


def tabulate_training(benchmark: Benchmark, brief: bool = False) -> Table:
    """Return how long training takes."""
    is_of_epochs = get_measure(benchmark.processes, "train") == "epoch"
    first = "epoch_seconds" if is_of_epochs else "call_seconds"
    accuracy = benchmark.manifest.accuracy
    columns = WHO | {"n": Column("n", str), first: Column("an epoch" if is_of_epochs else "a step", seconds)}
    columns[f"{first}_interval"] = Column(INTERVAL, interval(seconds))
    if is_of_epochs and not brief:
        columns["call_seconds"] = Column("a step", seconds)
    columns["first_epoch_seconds"] = Column("first epoch", seconds)
    if accuracy is not None:
        columns["seconds_to_accuracy"] = Column(f"to {percent(accuracy)}", seconds)
        columns["reached_of"] = Column("reached", str)
    columns |= (
        {"validation_accuracy": Column("accuracy", percent_2)}
        if brief
        else {"ready_seconds": Column("ready after", seconds)}
    )
    rows = _read(benchmark.summary_of_training().to_dict("records"))
    for row in rows:
        row["reached_of"] = f"{row['reached']} of {row['n']}"
    title = "Training: medians over processes, without the accuracies between epochs"
    return _lay_out(title, columns, rows, status_at=first)


def tabulate_learning(benchmark: Benchmark) -> Table:
    """Return how well, and how soon, networks learn."""
    columns = WHO | {
        "loss": Column("last loss", number),
        "training_accuracy": Column("training accuracy", percent_2),
        "validation_accuracy": Column("validation accuracy", percent_2),
    }
    if not benchmark.has_one_training:
        columns["validation_accuracy_interval"] = Column(INTERVAL, interval(percent_2))
    columns["convergence_epoch"] = Column("converged in epoch", _write_epoch)
    rows = _read(benchmark.summary_of_training().to_dict("records"))
    return _lay_out("Learning: medians over processes, after the last epoch", columns, rows, status_at="loss")


def tabulate_prediction(benchmark: Benchmark, brief: bool = False) -> Table:
    """Return how long predictions take."""
    columns = TASK | WHO | {"n": Column("n", str), "call_seconds": Column("a call", seconds)}
    columns["call_seconds_interval"] = Column(INTERVAL, interval(seconds))
    columns |= {name: Column(name, seconds) for name in QUANTILES if name == "p90" or not brief}
    columns["throughput"] = Column("images a second", significant)
    if not brief:
        columns["first_seconds"] = Column("first call", seconds)
        columns["ready_seconds"] = Column("ready after", seconds)
        columns["throughput_interval"] = Column(f"{INTERVAL} of images a second", interval(significant))
    rows = _read(benchmark.summary_of_prediction().to_dict("records"))
    for row in rows:
        row |= {name: TOO_FEW for name in QUANTILES if math.isnan(row[name])}
    title = "Prediction: medians over processes, of the calls after warm-up"
    return _lay_out(title, columns, rows, status_at="call_seconds")


def tabulate_resources(benchmark: Benchmark) -> Table:
    """Return what processes use."""
    summaries = [benchmark.summary_of_training(), benchmark.summary_of_prediction()]
    rows = _read(row for frame in summaries for row in frame.to_dict("records") if row["n"])
    columns = {name: column for name, column in USED.items() if any(_is_known(row.get(name)) for row in rows)}
    rows = [dict.fromkeys(columns, math.nan) | row for row in rows]
    title = "Resources: medians over processes, and the share of them beside busy programs"
    return _lay_out(title, TASK | WHO | columns | {"busy": Column("busy", percent)}, rows)


def tabulate_pairs(benchmark: Benchmark) -> Table:
    """Return every pair in every setting."""
    columns = {"time_of": Column("time of"), "batch": Column("batch"), "a": Column("subject"), "b": Column("versus")}
    columns |= {"n": Column("n", str), "ratio": Column("ratio", ratio)}
    columns |= {"interval": Column("95 %, not adjusted", interval(ratio)), "p_adjusted": Column("p adjusted", p_value)}
    columns |= {"verdict": Column("verdict", str), "p": Column("p", p_value), "ks_p": Column("KS p", p_value)}
    columns["a12"] = Column("A12", _write_share)
    rows = _read(benchmark.tests().to_dict("records"))
    for row, is_equivalent in zip(rows, benchmark.equivalence().equivalent, strict=True):
        row["time_of"] = f"{row['task']}, {UNITS[row['measure']]}"
        row["verdict"] = _give_verdict(row, bool(is_equivalent))
    return _lay_out("Pairs: the first one's time over the other's, paired by repetition", columns, rows)


def tabulate_accuracies(benchmark: Benchmark) -> Table:
    """Return whether networks learn as well in every pair, at every batch size."""
    columns = {"batch": Column("batch"), "a": Column("subject"), "b": Column("versus"), "n": Column("n", str)}
    columns |= {"ratio": Column("ratio", ratio), "interval": Column("95 %, not adjusted", interval(ratio))}
    columns |= {"p_adjusted": Column("p adjusted", p_value), "p": Column("p", p_value)}
    columns |= {"ks_p": Column("KS p", p_value), "a12": Column("A12", _write_share)}
    rows = _read(benchmark.tests("validation_accuracy").to_dict("records"))
    title = "Accuracies: the first one's validation accuracy over the other's, paired by repetition"
    return _lay_out(title, columns, rows)


def tabulate_steadiness(benchmark: Benchmark) -> Table:
    """Return warm-up and drift."""
    columns = TASK | WHO | {"calls": Column("calls", whole), "warmed_up": Column("with warm-up", percent)}
    columns |= {"warm_up": Column("calls of it", whole), "warm_up_seconds": Column("its time", seconds)}
    columns |= {"drift": Column("drift", _write_change), "drifts": Column("drift by > 5 %", percent)}
    title = "Steadiness: warm-up and drift within processes (shares of them, and medians)"
    return _lay_out(title, columns, _read(benchmark.steadiness().to_dict("records")))


def tabulate_absent(benchmark: Benchmark) -> Table:
    """Return what is not there, and why."""
    columns = TASK | {
        "subject": Column("subject"),
        "batch": Column("batch", str),
        "processes": Column("processes", str),
    }
    columns |= {"status": Column("status"), "reason": Column("reason")}
    rows = []
    for absent in benchmark.absent:
        size = "all" if absent.batch_size is None else str(absent.batch_size)
        processes = "all" if absent.batch_size is None else str(absent.repetitions)
        rows.append(absent._asdict() | {"task": TASKS[absent.task], "batch": size, "processes": processes})
    return _lay_out("Not measured, and why", columns, rows)


def tabulate_published(published: list[Published]) -> list[Table]:
    """Return the table of published times of the same data set; none where there are none."""
    if not published:
        return []
    columns = {"source": Column("source"), "of": Column("time of"), "hardware": Column("hardware")}
    columns |= {"framework": Column("framework"), "seconds": Column("published", seconds)}
    columns |= {"batch_size": Column("batch", str), "relative_to": Column("ratio to", str)}
    columns |= {"ratio": Column("published ratio", ratio), "ours": Column("ours", ratio)}
    columns["our_batch_size"] = Column("our batch", str)
    rows = []
    for time in published:
        row = time._asdict()
        row["batch_size"] = NOTHING if time.batch_size is None else time.batch_size
        row["our_batch_size"] = NOTHING if math.isnan(time.ours) else time.our_batch_size
        rows.append(row)
    return [_lay_out("Published times beside ours: only ratios within a source can be compared", columns, rows)]


def _read(records: Iterable[Row]) -> list[dict[str, Any]]:
    """Return rows with what a reader sees: the task's word, batches, and the two ends of each interval as one."""
    rows = []
    for record in records:
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


def _lay_out(title: str, columns: Columns, rows: Iterable[Row], status_at: str = "") -> Table:
    """Return a table; a row without processes has its status in one column, and nothing in those after it."""
    cells = []
    for row in rows:
        values = [row[name] for name in columns]
        if status_at and not row["n"]:
            start = list(columns).index(status_at)
            status = row["reason"].partition(":")[0]
            values[start:] = [status, *[""] * (len(values) - start - 1)]
        cells.append(values)
    return Table(title, list(columns.values()), cells)


def _give_verdict(test: Row, is_equivalent: bool) -> str:
    if not test["n"]:
        return "no pair"
    margin = f"within {percent(MARGIN - 1, 0)}"
    if test["p_adjusted"] < ALPHA:
        verdict = "slower" if test["ratio"] > 1 else "faster"
        return f"{verdict}, {margin}" if is_equivalent else verdict
    if is_equivalent:
        return f"equivalent {margin}"
    return "not significant" if test["family"] * test["smallest_p"] <= ALPHA else "too few repetitions"


def _is_known(value: float | None) -> bool:
    return value is not None and not math.isnan(value)


def _write_share(value: float) -> str:
    return NOTHING if math.isnan(value) else fixed(value, 2)


def _write_epoch(value: float) -> str:
    return significant(value) if value % 1 else whole(value)


def _write_change(value: float) -> str:
    return percent(value) if math.isnan(value) else f"{100 * value:+.1f} %"

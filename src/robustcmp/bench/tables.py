"""The tables of a benchmark: plain values, and the format of each column."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
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
from ..report.layout import Column, Table, names
from .performance import Performance
from .processes import QUANTILES, TOO_FEW
from .speed import MARGIN
from .words import TASKS, UNITS

if TYPE_CHECKING:
    import pandas

Write = Callable[[float], str]
Row = Mapping[Any, Any]
INTERVAL = "95 %"
NO_REPETITION = "no pair"


def tables(results: Performance) -> list[Table]:
    """Return the tables of a benchmark: times, what is used, pairs, steadiness, and what is not there."""
    found = [training(results), learned(results)] if "train" in results.tasks else []
    found += [prediction(results)] if any(task != "train" for task in results.tasks) else []
    found += [used(results)]
    if len(results.tests()):
        found += [pairs(results)]
        reached = results.processes.validation_accuracy.dropna()  # of trainings
        found += [accuracies(results)] if len(reached) and reached.all() and not results.has_one_training else []
    return [*found, steadiness(results), *([absent(results)] if results.absent else [])]


def training(results: Performance, brief: bool = False) -> Table:
    """How long training takes; what is most asked for alone if it is brief."""
    is_of_epochs = results.measure("train") == "epoch"
    figures: dict[str, str] = {"epoch_seconds": "an epoch"} if is_of_epochs else {}
    figures |= {"call_seconds": "a step", "first_epoch_seconds": "first epoch"}
    first, *others = [name for name in figures if not brief or name != "call_seconds" or not is_of_epochs]
    accuracy = results.manifest.accuracy
    columns = [*names("subject", "batch"), Column("n", str), Column(figures[first], seconds)]
    columns += [Column(INTERVAL, interval(seconds)), *(Column(figures[name], seconds) for name in others)]
    columns += [Column(f"to {percent(accuracy)}", seconds), Column("reached", str)] if accuracy is not None else []
    columns += [Column("accuracy", percent_2)] if brief else [Column("ready after", seconds)]
    rows = []
    for row in results.summary_of_training().to_dict("records"):
        values: list[Any] = [row["subject"], _batch(row), row["n"], row[first], _ends(row, first)]
        values += [row[name] for name in others]
        values += [row["seconds_to_accuracy"], f"{row['reached']} of {row['n']}"] if accuracy is not None else []
        rows.append(_or_status(row, [*values, row["validation_accuracy" if brief else "ready_seconds"]], 3))
    return Table("Training: medians over processes, without the accuracies between epochs", columns, rows)


def learned(results: Performance) -> Table:
    """How well, and how soon, networks learn."""
    columns = [*names("subject", "batch"), Column("last loss", number)]
    columns += [Column("training accuracy", percent_2), Column("validation accuracy", percent_2)]
    repeated = not results.has_one_training
    columns += [Column(INTERVAL, interval(percent_2))] * repeated + [Column("converged in epoch", _epoch)]
    rows = [
        _or_status(
            row,
            [
                *(row["subject"], _batch(row), row["loss"], row["training_accuracy"], row["validation_accuracy"]),
                *[_ends(row, "validation_accuracy")] * repeated,
                row["convergence_epoch"],
            ],
            2,
        )
        for row in results.summary_of_training().to_dict("records")
    ]
    return Table("Learning: medians over processes, after the last epoch", columns, rows)


def prediction(results: Performance, brief: bool = False) -> Table:
    """How long predictions take; what is most asked for alone if it is brief."""
    figures: dict[str, tuple[str, Write]] = {name: (name, seconds) for name in QUANTILES}
    figures |= {"throughput": ("images a second", significant), "first_seconds": ("first call", seconds)}
    figures |= {"ready_seconds": ("ready after", seconds)}
    shown = ["p90", "throughput"] if brief else [*figures]
    columns = [*names("task", "subject", "batch"), Column("n", str), Column("a call", seconds)]
    columns += [Column(INTERVAL, interval(seconds)), *(Column(*figures[name]) for name in shown)]
    columns += [] if brief else [Column(f"{INTERVAL} of images a second", interval(significant))]
    rows = [
        _or_status(
            row,
            [
                *(TASKS[row["task"]], row["subject"], _batch(row), row["n"], row["call_seconds"]),
                *(_ends(row, "call_seconds"), *(_known(row, name) for name in shown)),
                *([] if brief else [_ends(row, "throughput")]),
            ],
            4,
        )
        for row in results.summary_of_prediction().to_dict("records")
    ]
    return Table("Prediction: medians over processes, of the calls after warm-up", columns, rows)


def used(results: Performance) -> Table:
    """What processes use."""
    frame = _summaries(results)
    figures: dict[str, tuple[str, Write]] = {
        "cpu_seconds": ("processor time, imports included", seconds),
        "processors": ("processors used", significant),
        "cpu_temperature": ("processor, °C", significant),
        "peak_memory": ("peak memory", size),
        "gpu": ("GPU used", percent),
        "gpu_memory": ("GPU memory", size),
        "gpu_temperature": ("GPU, °C", significant),
        "gpu_power": ("GPU, W", significant),
        "energy": ("energy, J", significant),
        "parameters": ("parameters", whole),
        "bytes": ("size", size),
        "file_bytes": ("file on disk", size),
    }
    figures = {name: told for name, told in figures.items() if name in frame and frame[name].notna().any()}
    columns = [*names("task", "subject", "batch"), *(Column(*told) for told in figures.values())]
    rows = [
        [TASKS[row["task"]], row["subject"], _batch(row), *(row[name] for name in figures), row["busy"]]
        for row in frame[frame.n > 0].to_dict("records")
    ]
    title = "Resources: medians over processes, and the share of them beside busy programs"
    return Table(title, [*columns, Column("busy", percent)], rows)


def pairs(results: Performance) -> Table:
    """Every pair in every setting."""
    equivalent = results.equivalence().equivalent.tolist()
    columns = [*names("time of", "batch", "subject", "versus"), Column("n", str), Column("ratio", ratio)]
    columns += [Column("95 %, not adjusted", interval(ratio)), Column("p adjusted", p_value), Column("verdict", str)]
    columns += [Column("p", p_value), Column("KS p", p_value), Column("A12", _two_decimals)]
    rows = [
        [
            *(_time_of(test), _batch(test), test["a"], test["b"], test["n"], test["ratio"]),
            *((test["low"], test["high"]), test["p_adjusted"], _verdict(test, same)),
            *(test["p"], test["ks_p"], test["a12"]),
        ]
        for test, same in zip(results.tests().to_dict("records"), equivalent, strict=True)
    ]
    return Table("Pairs: the first one's time over the other's, paired by repetition", columns, rows)


def accuracies(results: Performance) -> Table:
    """Whether networks learn as well in every pair, at every batch size."""
    columns = [*names("batch", "subject", "versus"), Column("n", str), Column("ratio", ratio)]
    columns += [Column("95 %, not adjusted", interval(ratio)), Column("p adjusted", p_value)]
    columns += [Column("p", p_value), Column("KS p", p_value), Column("A12", _two_decimals)]
    rows = [
        [
            *(_batch(test), test["a"], test["b"], test["n"], test["ratio"], (test["low"], test["high"])),
            *(test["p_adjusted"], test["p"], test["ks_p"], test["a12"]),
        ]
        for test in results.tests("validation_accuracy").to_dict("records")
    ]
    return Table(
        "Accuracies: the first one's validation accuracy over the other's, paired by repetition", columns, rows
    )


def steadiness(results: Performance) -> Table:
    """Warm-up and drift."""
    columns = [*names("task", "subject", "batch"), Column("calls", whole), Column("with warm-up", percent)]
    columns += [Column("calls of it", whole), Column("its time", seconds)]
    columns += [Column("drift", _signed), Column("drift by > 5 %", percent)]
    rows = [
        [
            *(TASKS[row["task"]], row["subject"], _batch(row), row["calls"], row["warmed_up"], row["warm_up"]),
            *(row["warm_up_seconds"], row["drift"], row["drifts"]),
        ]
        for row in results.steadiness().to_dict("records")
    ]
    return Table("Steadiness: warm-up and drift within processes (shares of them, and medians)", columns, rows)


def absent(results: Performance) -> Table:
    """What is not there, and why."""
    rows = [
        [
            *(TASKS[each.task], each.subject, "all" if each.batch_size is None else str(each.batch_size)),
            *("all" if each.batch_size is None else str(each.repetitions), each.status, each.reason),
        ]
        for each in results.absent
    ]
    columns = [*names("task", "subject"), Column("batch", str), Column("processes", str), *names("status", "reason")]
    return Table("Not measured, and why", columns, rows)


def _batch(row: Row) -> str:
    """Write the size of batches, and of how many images they are."""
    return f"{row['batch_size']} of {row['images']:,}" if row["images"] else str(row["batch_size"])


def _known(row: Row, name: str) -> float | str:
    """Return a figure, or why there is none."""
    return TOO_FEW if name in QUANTILES and row["n"] and math.isnan(row[name]) else float(row[name])


def _two_decimals(value: float) -> str:
    return NOTHING if math.isnan(value) else fixed(value, 2)


def _ends(row: Row, name: str) -> tuple[float, float]:
    return row[f"{name}_low"], row[f"{name}_high"]


def _or_status(row: Row, values: list[Any], at: int) -> list[Any]:
    """Return a row's values, or in the place of the figures from `at` on why there are none."""
    if row["n"]:
        return values
    status = str(row["reason"]).partition(":")[0] or "not measured yet"
    return [*values[:at], status, *[""] * (len(values) - at - 1)]


def _summaries(results: Performance) -> pandas.DataFrame:
    import pandas

    both = [results.summary_of_training(), results.summary_of_prediction()]
    return pandas.concat([frame for frame in both if len(frame)], ignore_index=True)


def _time_of(test: Row) -> str:
    return f"{TASKS[test['task']]}, {UNITS[test['measure']]}"


def _verdict(test: Row, equivalent: bool) -> str:
    if not test["n"]:
        return NO_REPETITION
    if test["p_adjusted"] < ALPHA:
        verdict = "slower" if test["ratio"] > 1 else "faster"
        return f"{verdict}, within {_margin()}" if equivalent else verdict
    if equivalent:
        return f"equivalent within {_margin()}"
    return "not significant" if test["family"] * test["smallest_p"] <= ALPHA else "too few repetitions"


def _margin() -> str:
    return percent(MARGIN - 1, 0)


def _epoch(value: float) -> str:
    return significant(value) if value % 1 else whole(value)


def _signed(value: float) -> str:
    return percent(value) if math.isnan(value) else f"{100 * value:+.1f} %"

"""One self-contained page about a benchmark: answers, tables, pictures, and what is not known."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..report.format import percent, significant
from ..report.layout import Column, Table, names
from ..report.page import Block, Pictures, Section, render, render_page
from ..report.words import NO_PICTURES
from . import published_text as published_performance
from . import tables as measured_tables
from .headline import found, headline, said
from .notes import key_notes, notes
from .performance import Performance
from .plots import latency, learning, resources, time_to_accuracy
from .text import main_tables
from .words import named, setting, title

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST_NOTES = 7
Made = list[Block]


def to_html(results: Performance) -> str:
    """Return a page about a benchmark. Without Matplotlib it has the tables and no pictures."""
    return render_page(SECTIONS, [results], [title(results)], [setting(results)], [""])


def to_notebook(results: Performance) -> str:
    """Return the answers and the times of a benchmark as HTML that stands in a notebook."""
    return render(
        "notebook.html",
        title=title(results),
        setting=setting(results),
        answer=" ".join(headline(results)[:1]),
        verdicts=[said(results, found(results, each)) for each in results.settings[1:]],
        table=main_tables(results, brief=True)[0],
    )


def _answer(results: Performance, pictures: Pictures | None) -> Made:
    verdicts = [said(results, found(results, each)) for each in results.settings]
    return [
        Block("answer", _answered(results)),
        Block("verdicts", verdicts),
        Block("list", key_notes(results)[:MOST_NOTES]),
        *([Block("text", NO_PICTURES)] * (pictures is None)),
    ]


def _answered(results: Performance) -> str:
    """Return the answer in one sentence: in how many settings there is a difference."""
    differ = [found(results, each).is_different for each in results.settings]
    known = [each for each in differ if each is not None]
    if not known:
        return "Is one faster? Nothing could be compared."
    if not any(known):
        return "Is one faster? No significant difference in any setting."
    where = "every setting" if all(known) else f"{sum(known)} of {len(known)} settings"
    return f"Is one faster? Yes, in {where}." if len(known) > 1 else "Is one faster? Yes."


def _times(results: Performance, pictures: Pictures | None) -> Made:
    return [Block("table", table) for table in main_tables(results)]


def _learning(results: Performance, pictures: Pictures | None) -> Made:
    if not _trained(results):
        return []
    table = measured_tables.learned(results)
    curves = []
    for measure, column in (("validation_accuracy", 4), ("training_accuracy", 3), ("loss", 2)):
        described = "; ".join(f"{row[0]}, batch {row[1]}: {row[column]}" for row in table.written)
        curves.append((f"learning curves: {measure.replace('_', ' ')}", described, _curve(results, measure)))
    return [*_drawn(pictures, curves), Block("table", table)]


def _time_to_accuracy(results: Performance, pictures: Pictures | None) -> Made:
    if not _trained(results):
        return []
    accuracy = results.manifest.accuracy
    frame = results.summary_of_training()
    reached = [
        f"{row['subject']}, batch {row['batch_size']}: {row['reached']} of {row['n']} reached {percent(accuracy)}"
        for row in frame.to_dict("records")
        if accuracy is not None
    ]
    described = "; ".join(reached) or "No accuracy was stated to which seconds are counted."
    drawn = _drawn(
        pictures, [("time against accuracy", described, lambda figure: time_to_accuracy.draw(results, figure=figure))]
    )
    return [*drawn, Block("list", reached or [described])]


def _latency(results: Performance, pictures: Pictures | None) -> Made:
    frame = results.processes
    parts = []
    for each in latency.with_calls(results):
        own = frame[(frame[["task", "images", "batch_size"]] == list(each)).all(axis=1)]
        medians = own.groupby("subject").call_seconds.median()
        described = "; ".join(f"{subject}: median {significant(1e3 * value)} ms" for subject, value in medians.items())
        parts.append((named(each), described, _one(latency.draw, results, each)))
    return [*_drawn(pictures, parts), Block("table", measured_tables.steadiness(results))] if parts else []


def _pairs(results: Performance, pictures: Pictures | None) -> Made:
    return [Block("table", measured_tables.pairs(results))] if len(results.tests()) else []


def _resources(results: Performance, pictures: Pictures | None) -> Made:
    if not results.measurements:
        return []
    parts = [
        (f"{named(each)}: resources over time", "The figures stand in the table.", _one(resources.draw, results, each))
        for each in resources.with_series(results)
    ]
    return [*_drawn(pictures, parts), Block("table", measured_tables.used(results))]


def _machine(results: Performance, pictures: Pictures | None) -> Made:
    environment, frame = results.manifest.environment, results.processes
    facts = {
        "machine": ", ".join(
            str(environment[name]) for name in ("system", "machine", "processor") if environment.get(name)
        ),
        "processors": str(environment.get("cpus", "not known")),
    }
    if len(frame):
        load = frame[["load_before", "load_after"]].agg(["min", "max"])
        facts |= {
            "threads": _several(frame.threads),
            "device": _several(frame.device),
            "load average before": " to ".join(significant(value) for value in load.load_before),
            "load average after": " to ".join(significant(value) for value in load.load_after),
            "busy": f"{int(frame.busy.sum())} of {len(frame)} measurements",
            "measured": f"from {frame.began.min()} to {frame.began.max()}",
        }
    return [Block("facts", facts), Block("folded", [_versions(results)])]


def _versions(results: Performance) -> Table:
    versions = results.manifest.environment.get("versions")
    rows = [[str(name), str(made)] for name, made in versions.items() if made] if isinstance(versions, dict) else []
    frame = results.processes
    own = frame[["subject", "version"]].drop_duplicates().itertuples(index=False) if len(frame) else []
    return Table("Versions", names("package", "version"), [*([str(name), str(made)] for name, made in own), *rows])


def _published(results: Performance, pictures: Pictures | None) -> Made:
    tables = published_performance.tables(results)
    return [*(Block("table", table) for table in tables), Block("list", published_performance.notes(results))] * bool(
        tables
    )


def _missing(results: Performance, pictures: Pictures | None) -> Made:
    why = {name: said for each in results.measurements for name, said in each.resources.missing.items()}
    columns = [*names("what", "why"), Column("measurements", str)]
    counts = [sum(name in each.resources.missing for each in results.measurements) for name in why]
    rows = [[name, said, str(count)] for (name, said), count in zip(why.items(), counts, strict=True)]
    absent = [Block("table", measured_tables.absent(results))] if results.absent else []
    there = [Block("table", Table("Not to be had on this machine", columns, rows))] if rows else []
    return [*absent, *there] or [Block("text", "Nothing: all that was asked for was measured.")]


def _notes(results: Performance, pictures: Pictures | None) -> Made:
    return [Block("list", notes(results))]


def _settings(results: Performance, pictures: Pictures | None) -> Made:
    about = results.manifest.about
    facts = {
        name.replace("_", " "): str(about[name])
        for name in ("model", "dataset", "recipe", "training_seed", "weights_of", "epochs")
        if about.get(name) is not None
    }
    facts |= {"repetitions": str(results.repetitions), "seed of the order": str(results.manifest.seed)}
    return [*([Block("code", str(about["command"]))] if about.get("command") else []), Block("facts", facts)]


def _trained(results: Performance) -> bool:
    return any(each.epochs for each in results.measurements)


def _drawn(pictures: Pictures | None, parts: list[tuple[str, str, Callable[[Figure], object]]]) -> Made:
    if pictures is None:
        return []
    return [Block("pictures", [pictures.draw(draw, about, described) for about, described, draw in parts])]


def _curve(results: Performance, measure: str) -> Callable[[Figure], object]:
    return lambda figure: learning.draw(results, measure=measure, figure=figure)


def _one(draw: Callable[..., object], results: Performance, of: Any) -> Callable[[Figure], object]:
    return lambda figure: draw(results, setting=of, figure=figure)


def _several(values: Any) -> str:
    return ", ".join(sorted({str(value) for value in values}))


SECTIONS = (
    Section("answer", "The answer", "", _answer),
    Section(
        "times",
        "Times",
        "What a process takes: each figure is the median over processes of that process's own median. Intervals are "
        "between order statistics and need six processes.",
        _times,
    ),
    Section(
        "pairs",
        "Pairs",
        "The ratio of two subjects' times, with its interval and tests. The process is the unit, and processes of one "
        "repetition are a pair.",
        _pairs,
    ),
    Section(
        "learning",
        "Learning curves",
        "The validation accuracy after each epoch. A line is one process; all have the same batches in the same order, "
        "and each framework its own initialisation.",
        _learning,
    ),
    Section(
        "accuracy",
        "Time against accuracy",
        "The validation accuracy against the seconds of training, without the time of the accuracies. A curve "
        "further to the left learns sooner.",
        _time_to_accuracy,
    ),
    Section(
        "latency",
        "Latency",
        "The share of calls, or of steps, that take no longer than a time, after warm-up. A line is one process; lines "
        "further to the left are faster, and steep ones steadier.",
        _latency,
    ),
    Section(
        "resources",
        "Resources",
        "What processes use from their start to their end, looked at ten times a second. A line is one process.",
        _resources,
    ),
    Section(
        "machine",
        "The machine",
        "Where it was measured, and what else went on there.",
        _machine,
    ),
    Section("published", "Published times beside ours", published_performance.LEAD, _published),
    Section("missing", "What is missing", "What was not measured or cannot be had here, and why.", _missing),
    Section("notes", "Notes", "What the figures mean, and what they depend on.", _notes),
    Section("settings", "Settings", "", _settings),
)

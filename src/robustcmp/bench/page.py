"""One self-contained page about a benchmark: answers, tables, pictures, and what is not known."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from ..report.format import significant
from ..report.page import Block, Pictures, Section, render, render_page
from ..report.words import NO_PICTURES
from . import words
from .plots import latency, trainings
from .tables import make_tables

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from .benchmark import Benchmark


def to_html(benchmark: Benchmark) -> str:
    """Return a page about a benchmark. Without Matplotlib it has the tables and no pictures."""
    title, setup = words.describe(benchmark)
    return render_page(SECTIONS, benchmark, title, setup)


def to_notebook(benchmark: Benchmark) -> str:
    """Return the answers and the times of a benchmark as HTML that stands in a notebook."""
    title, setup = words.describe(benchmark)
    return render(
        "notebook.html",
        title=title,
        setting=setup,
        answer=words.answer_in_one_sentence(benchmark),
        verdicts=words.give_verdicts(benchmark),
        table=make_tables(benchmark)["times"],
    )


def _show_answer(benchmark: Benchmark, pictures: Pictures | None) -> list[Block]:
    blocks = [
        Block("answer", words.answer_in_one_sentence(benchmark)),
        Block("verdicts", words.give_verdicts(benchmark)),
    ]
    return blocks if pictures else [*blocks, Block("text", NO_PICTURES)]


def _show_table(name: str) -> Callable[[Benchmark, Pictures | None], list[Block]]:
    """Return what shows a table of `make_tables`, nothing where it is not there."""

    def show(benchmark: Benchmark, _: Pictures | None) -> list[Block]:
        table = make_tables(benchmark).get(name)
        return [Block("table", table)] if table else []

    return show


def _show_learning(benchmark: Benchmark, pictures: Pictures | None) -> list[Block]:
    if "train" not in benchmark.tasks:
        return []
    table = make_tables(benchmark)["learning"]
    description = "; ".join(f"{row[1]}, batch {row[2]}: {row[5]}" for row in table.written)
    against_time = partial(trainings.draw, benchmark, against="seconds")
    drawn = [
        *_draw(pictures, "validation accuracy by epoch", description, partial(trainings.draw, benchmark)),
        *_draw(pictures, "validation accuracy by time", description, against_time),
    ]
    return [*drawn, Block("table", table)]


def _show_latency(benchmark: Benchmark, pictures: Pictures | None) -> list[Block]:
    frame = benchmark.to_dataframe()
    blocks = []
    for setting in benchmark.settings:
        rows = frame[(frame.task == setting.task) & (frame.batch_size == setting.batch_size)]
        medians = rows[rows.images == setting.images].groupby("subject").call_seconds.median().dropna()
        description = "; ".join(f"{subject}: {significant(1e3 * value)} ms" for subject, value in medians.items())
        if len(medians):
            draw = partial(latency.draw, benchmark, setting=setting)
            blocks += _draw(pictures, words.name_setting(setting), description, draw)
    return blocks


def _show_notes(benchmark: Benchmark, _: Pictures | None) -> list[Block]:
    return [Block("list", words.list_notes(benchmark))]


def _show_settings(benchmark: Benchmark, _: Pictures | None) -> list[Block]:
    about = benchmark.manifest.about
    environment = benchmark.manifest.environment
    frame = benchmark.to_dataframe()
    facts = {name: about.get(name) for name in ("model", "dataset", "recipe", "training_seed", "weights_of", "epochs")}
    facts |= {name: environment.get(name) for name in ("system", "machine", "processor", "cpus", "threads")}
    facts |= {
        "devices": ", ".join(sorted({*frame.device})),
        "repetitions": benchmark.repetitions,
        "began": frame.began.min(),
    }
    shown = {name.replace("_", " "): str(value) for name, value in facts.items() if value is not None}
    versions = environment.get("versions", {}) | dict(zip(frame.subject, frame.version, strict=True))
    shown["versions"] = ", ".join(f"{name} {version}" for name, version in versions.items() if version)
    return [Block("code", str(about.get("command") or "robustcmp.benchmark")), Block("facts", shown)]


def _draw(pictures: Pictures | None, title: str, description: str, draw: Callable[..., object]) -> list[Block]:
    """Return a picture with its text alternative, nothing without Matplotlib."""
    if pictures is None:
        return []

    def draw_into(figure: Figure) -> object:
        return draw(figure=figure)

    return [Block("pictures", [pictures.draw(draw_into, title, description)])]


SECTIONS = (
    Section("answer", "The answer", "", _show_answer),
    Section(
        "times",
        "Times",
        "What a process takes: each figure is the median over processes of that process's own median. Intervals are "
        "between order statistics and need six processes.",
        _show_table("times"),
    ),
    Section(
        "pairs",
        "Pairs",
        "The ratio of two subjects' times, with its interval and test. The process is the unit, and processes of one "
        "repetition are a pair.",
        _show_table("pairs"),
    ),
    Section(
        "learning",
        "Learning",
        "The validation accuracy after each epoch, against epochs and against seconds of training. A line is one "
        "process; all have the same batches, and each framework its own initialisation.",
        _show_learning,
    ),
    Section(
        "latency",
        "Latency",
        "The share of calls, or of steps, that take no longer than a time, after warm-up. A line is one process; lines "
        "further to the left are faster, and steep ones steadier.",
        _show_latency,
    ),
    Section("resources", "Resources", "What processes use, looked at ten times a second.", _show_table("resources")),
    Section("missing", "What is missing", "What was not measured, and why.", _show_table("absent")),
    Section("notes", "Notes", "What the figures depend on.", _show_notes),
    Section("settings", "Settings", "", _show_settings),
)

"""One self-contained page about a benchmark: answers, tables, pictures, and what is not known."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING

from ..report.format import significant
from ..report.layout import Table, names
from ..report.page import Block, Pictures, Section, render, render_page
from ..report.words import NO_PICTURES
from . import tables, words
from .plots import latency, trainings

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from .benchmark import Benchmark


def to_html(benchmark: Benchmark) -> str:
    """Return a page about a benchmark. Without Matplotlib it has the tables and no pictures."""
    setup = words.describe_setup(benchmark)
    return render_page(SECTIONS, benchmark, words.title(benchmark), setup)


def to_notebook(benchmark: Benchmark) -> str:
    """Return the answers and the times of a benchmark as HTML that stands in a notebook."""
    return render(
        "notebook.html",
        title=words.title(benchmark),
        setting=words.describe_setup(benchmark),
        answer=words.answer_in_one_sentence(benchmark),
        verdicts=words.give_verdicts(benchmark),
        table=tables.list_times(benchmark)[0],
    )


def _show_answer(benchmark: Benchmark, pictures: Pictures | None) -> list[Block]:
    blocks = [
        Block("answer", words.answer_in_one_sentence(benchmark)),
        Block("verdicts", words.give_verdicts(benchmark)),
    ]
    return blocks if pictures else [*blocks, Block("text", NO_PICTURES)]


def _show_times(benchmark: Benchmark, _: Pictures | None) -> list[Block]:
    return [Block("table", table) for table in tables.list_times(benchmark)]


def _show_pairs(benchmark: Benchmark, _: Pictures | None) -> list[Block]:
    return [Block("table", tables.tabulate_pairs(benchmark))] if len(benchmark.tests()) else []


def _show_learning(benchmark: Benchmark, pictures: Pictures | None) -> list[Block]:
    if "train" not in benchmark.tasks:
        return []
    table = tables.tabulate_learning(benchmark)
    description = "; ".join(f"{row[1]}, batch {row[2]}: {row[5]}" for row in table.written)
    drawn = [
        *_draw(pictures, "validation accuracy by epoch", description, partial(trainings.draw, benchmark)),
        *_draw(pictures, "validation accuracy by time", description, partial(trainings.draw_times, benchmark)),
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


def _show_resources(benchmark: Benchmark, _: Pictures | None) -> list[Block]:
    return [Block("table", tables.tabulate_resources(benchmark))]


def _show_notes(benchmark: Benchmark, _: Pictures | None) -> list[Block]:
    notes = [Block("list", words.list_notes(benchmark))]
    return [Block("table", tables.tabulate_absent(benchmark)), *notes] if benchmark.absent else notes


def _show_settings(benchmark: Benchmark, _: Pictures | None) -> list[Block]:
    about = benchmark.manifest.about
    environment = benchmark.manifest.environment
    frame = benchmark.to_dataframe()
    facts = {name: about.get(name) for name in ("model", "dataset", "recipe", "training_seed", "weights_of", "epochs")}
    facts |= {name: environment.get(name) for name in ("system", "machine", "processor", "cpus", "threads")}
    facts |= {"devices": _join(frame.device), "repetitions": benchmark.repetitions, "began": frame.began.min()}
    shown = {name.replace("_", " "): str(value) for name, value in facts.items() if value is not None}
    versions = frame[["subject", "version"]].drop_duplicates().to_numpy().tolist()
    packages = environment.get("versions", {})
    versions += [[name, version] for name, version in packages.items() if version]
    table = Table("Versions", names("package", "version"), versions)
    command = [Block("code", str(about["command"]))] if about.get("command") else []
    return [*command, Block("facts", shown), Block("folded", [table])]


def _draw(pictures: Pictures | None, title: str, description: str, draw: Callable[..., object]) -> list[Block]:
    """Return a picture with its text alternative, nothing without Matplotlib."""
    if pictures is None:
        return []

    def draw_into(figure: Figure) -> object:
        return draw(figure=figure)

    return [Block("pictures", [pictures.draw(draw_into, title, description)])]


def _join(values: Iterable[object]) -> str:
    return ", ".join(sorted({str(value) for value in values}))


SECTIONS = (
    Section("answer", "The answer", "", _show_answer),
    Section(
        "times",
        "Times",
        "What a process takes: each figure is the median over processes of that process's own median. Intervals are "
        "between order statistics and need six processes.",
        _show_times,
    ),
    Section(
        "pairs",
        "Pairs",
        "The ratio of two subjects' times, with its interval and test. The process is the unit, and processes of one "
        "repetition are a pair.",
        _show_pairs,
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
    Section("resources", "Resources", "What processes use, looked at ten times a second.", _show_resources),
    Section("notes", "Notes", "What the figures depend on, and what is missing.", _show_notes),
    Section("settings", "Settings", "", _show_settings),
)

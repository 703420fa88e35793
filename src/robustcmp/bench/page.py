"""One self-contained page about a benchmark: answers, tables, pictures, and what is not known."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ..report.page import Block, Pictures, Section, render_page
from . import words
from .tables import make_tables

if TYPE_CHECKING:
    from .benchmark import Benchmark


def to_html(benchmark: Benchmark) -> str:
    """Return a page about a benchmark. Without Matplotlib it has the tables and no pictures."""
    title, setup = words.describe(benchmark)
    return render_page(SECTIONS, benchmark, title, setup)


def _show_answer(benchmark: Benchmark, _: Pictures | None) -> list[Block]:
    return [
        Block("answer", words.answer_in_one_sentence(benchmark)),
        Block("verdicts", words.give_verdicts(benchmark)),
    ]


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
    blocks = [Block("table", table)]
    if pictures:
        picture = pictures.draw(benchmark.plot_learning, "validation accuracy", description)
        blocks.insert(0, Block("pictures", [picture]))
    return blocks


def _show_settings(benchmark: Benchmark, _: Pictures | None) -> list[Block]:
    about = benchmark.manifest.about
    environment = benchmark.manifest.environment
    frame = benchmark.to_dataframe()
    facts = {
        **{name: about.get(name) for name in ("model", "dataset", "recipe", "training_seed", "weights_of", "epochs")},
        **{name: environment.get(name) for name in ("system", "machine", "processor", "cpus", "threads")},
        "devices": ", ".join(sorted({*frame.device})),
        "repetitions": benchmark.repetitions,
        "began": frame.began.min(),
    }
    shown = {name.replace("_", " "): str(value) for name, value in facts.items() if value is not None}
    versions = environment.get("versions", {}) | dict(zip(frame.subject, frame.version, strict=True))
    shown["versions"] = ", ".join(f"{name} {version}" for name, version in versions.items() if version)
    return [Block("code", str(about.get("command") or "robustcmp.benchmark")), Block("facts", shown)]


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
        "The validation accuracy after each epoch, against seconds of training. A line is one process; all have the "
        "same batches, and each framework its own initialisation.",
        _show_learning,
    ),
    Section("resources", "Resources", "What processes use, looked at ten times a second.", _show_table("resources")),
    Section("missing", "What is missing", "What was not measured, and why.", _show_table("absent")),
    Section(
        "notes",
        "Notes",
        "What the figures depend on.",
        lambda benchmark, _: [Block("list", words.list_notes(benchmark))],
    ),
    Section("settings", "Settings", "", _show_settings),
)

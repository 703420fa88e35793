"""One self-contained page about a benchmark: answers, tables, pictures, and what is not known."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from ..report.format import percent, significant
from ..report.layout import Column, Table, names
from ..report.page import Block, Pictures, Section, render, render_page
from ..report.words import NO_PICTURES
from . import tables, words
from .pairs import SETTING
from .plots import latency, resources, trainings
from .published import list_published

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from .benchmark import Benchmark

MOST_NOTES = 7


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
        answer=words.headline(benchmark)[0],
        verdicts=words.give_verdicts(benchmark)[1:],
        table=tables.list_times(benchmark, brief=True)[0],
    )


def _show_answer(benchmark: Benchmark, pictures: Pictures | None) -> list[Block]:
    blocks = [
        Block("answer", words.answer_in_one_sentence(benchmark)),
        Block("verdicts", words.give_verdicts(benchmark)),
        Block("list", words.list_key_notes(benchmark)[:MOST_NOTES]),
    ]
    if pictures is None:
        blocks.append(Block("text", NO_PICTURES))
    return blocks


def _show_times(benchmark: Benchmark, pictures: Pictures | None) -> list[Block]:
    return [Block("table", table) for table in tables.list_times(benchmark)]


def _show_pairs(benchmark: Benchmark, pictures: Pictures | None) -> list[Block]:
    return [Block("table", tables.tabulate_pairs(benchmark))] if len(benchmark.tests()) else []


def _show_learning(benchmark: Benchmark, pictures: Pictures | None) -> list[Block]:
    if "train" not in benchmark.tasks:
        return []
    table = tables.tabulate_learning(benchmark)
    curves = []
    for measure, column in (("validation_accuracy", 4), ("training_accuracy", 3), ("loss", 2)):
        text = "; ".join(f"{row[0]}, batch {row[1]}: {row[column]}" for row in table.written)
        draw = partial(trainings.draw, benchmark, measure=measure)
        curves.append((f"learning curves: {measure.replace('_', ' ')}", text, draw))
    return [*_draw(pictures, curves), Block("table", table)]


def _show_time_to_accuracy(benchmark: Benchmark, pictures: Pictures | None) -> list[Block]:
    if "train" not in benchmark.tasks:
        return []
    sentences = ["No accuracy was stated to which seconds are counted."]
    if benchmark.manifest.accuracy is not None:
        accuracy = percent(benchmark.manifest.accuracy)
        sentences = [
            f"{row['subject']}, batch {row['batch_size']}: {row['reached']} of {row['n']} reached {accuracy}"
            for row in benchmark.summary_of_training().to_dict("records")
        ]
    draw = partial(trainings.draw_times, benchmark)
    return [*_draw(pictures, [("time against accuracy", "; ".join(sentences), draw)]), Block("list", sentences)]


def _show_latency(benchmark: Benchmark, pictures: Pictures | None) -> list[Block]:
    frame = benchmark.processes
    parts = []
    for setting in latency.list_settings(benchmark):
        medians = frame[(frame[SETTING] == list(setting)).all(axis=1)].groupby("subject").call_seconds.median()
        text = "; ".join(f"{subject}: median {significant(1e3 * value)} ms" for subject, value in medians.items())
        parts.append((words.name_setting(setting), text, partial(latency.draw, benchmark, setting=setting)))
    return [*_draw(pictures, parts), Block("table", tables.tabulate_steadiness(benchmark))] if parts else []


def _show_resources(benchmark: Benchmark, pictures: Pictures | None) -> list[Block]:
    parts = []
    for setting in resources.list_settings(benchmark):
        title = f"{words.name_setting(setting)}: resources over time"
        draw = partial(resources.draw, benchmark, setting=setting)
        parts.append((title, "The figures stand in the table.", draw))
    return [*_draw(pictures, parts), Block("table", tables.tabulate_resources(benchmark))]


def _show_machine(benchmark: Benchmark, pictures: Pictures | None) -> list[Block]:
    environment = benchmark.manifest.environment
    frame = benchmark.processes
    load = frame[["load_before", "load_after"]].agg(["min", "max"])
    machine = [str(environment[name]) for name in ("system", "machine", "processor") if environment.get(name)]
    facts = {
        "machine": ", ".join(machine),
        "processors": str(environment.get("cpus", "not known")),
        "threads": _list_values(frame.threads),
        "device": _list_values(frame.device),
        "load average before": " to ".join(significant(value) for value in load.load_before),
        "load average after": " to ".join(significant(value) for value in load.load_after),
        "busy": f"{int(frame.busy.sum())} of {len(frame)} measurements",
        "measured": f"from {frame.began.min()} to {frame.began.max()}",
    }
    return [Block("facts", facts), Block("folded", [_tabulate_versions(benchmark)])]


def _tabulate_versions(benchmark: Benchmark) -> Table:
    versions = benchmark.processes[["subject", "version"]].drop_duplicates().to_numpy().tolist()
    packages = benchmark.manifest.environment.get("versions", {})
    versions += [[name, version] for name, version in packages.items() if version]
    return Table("Versions", names("package", "version"), versions)


def _show_published(benchmark: Benchmark, pictures: Pictures | None) -> list[Block]:
    published = list_published(benchmark)
    if not published:
        return []
    [table] = tables.tabulate_published(published)
    return [Block("table", table), Block("list", words.note_published(published))]


def _show_missing(benchmark: Benchmark, pictures: Pictures | None) -> list[Block]:
    reasons: dict[str, str] = {}
    for measured in benchmark.measurements:
        reasons |= measured.resources.missing
    rows = []
    for name, reason in reasons.items():
        count = sum(name in measured.resources.missing for measured in benchmark.measurements)
        rows.append([name, reason, str(count)])
    blocks = [Block("table", tables.tabulate_absent(benchmark))] if benchmark.absent else []
    if rows:
        columns = [*names("what", "why"), Column("measurements", str)]
        blocks.append(Block("table", Table("Not to be had on this machine", columns, rows)))
    return blocks or [Block("text", "Nothing: all that was asked for was measured.")]


def _show_notes(benchmark: Benchmark, pictures: Pictures | None) -> list[Block]:
    return [Block("list", words.list_notes(benchmark))]


def _show_settings(benchmark: Benchmark, pictures: Pictures | None) -> list[Block]:
    about = benchmark.manifest.about
    facts = {}
    for name in ("model", "dataset", "recipe", "training_seed", "weights_of", "epochs"):
        if about.get(name) is not None:
            facts[name.replace("_", " ")] = str(about[name])
    facts |= {"repetitions": str(benchmark.repetitions), "seed of the order": str(benchmark.manifest.seed)}
    command = [Block("code", str(about["command"]))] if about.get("command") else []
    return [*command, Block("facts", facts)]


def _draw(pictures: Pictures | None, parts: Sequence[tuple[str, str, Callable[..., object]]]) -> list[Block]:
    """Return pictures of parts: the title of each, its text alternative, and what draws it into a figure."""
    if pictures is None:
        return []

    def draw_into(draw: Callable[..., object]) -> Callable[[Figure], object]:
        return lambda figure: draw(figure=figure)

    return [Block("pictures", [pictures.draw(draw_into(draw), title, text) for title, text, draw in parts])]


def _list_values(values: Iterable[object]) -> str:
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
        "The ratio of two subjects' times, with its interval and tests. The process is the unit, and processes of one "
        "repetition are a pair.",
        _show_pairs,
    ),
    Section(
        "learning",
        "Learning curves",
        "The validation accuracy after each epoch. A line is one process; all have the same batches in the same order, "
        "and each framework its own initialisation.",
        _show_learning,
    ),
    Section(
        "accuracy",
        "Time against accuracy",
        "The validation accuracy against the seconds of training, without the time of the accuracies. A curve "
        "further to the left learns sooner.",
        _show_time_to_accuracy,
    ),
    Section(
        "latency",
        "Latency",
        "The share of calls, or of steps, that take no longer than a time, after warm-up. A line is one process; lines "
        "further to the left are faster, and steep ones steadier.",
        _show_latency,
    ),
    Section(
        "resources",
        "Resources",
        "What processes use from their start to their end, looked at ten times a second. A line is one process.",
        _show_resources,
    ),
    Section(
        "machine",
        "The machine",
        "Where it was measured, and what else went on there.",
        _show_machine,
    ),
    Section("published", "Published times beside ours", words.PUBLISHED, _show_published),
    Section("missing", "What is missing", "What was not measured or cannot be had here, and why.", _show_missing),
    Section("notes", "Notes", "What the figures mean, and what they depend on.", _show_notes),
    Section("settings", "Settings", "", _show_settings),
)

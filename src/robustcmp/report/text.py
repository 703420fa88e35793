"""A run as text: one screen, everything, and Markdown."""

from __future__ import annotations

from io import StringIO
from typing import TYPE_CHECKING

from ..analysis.results import Results
from . import tables, words
from .layout import console_for, fits, print_table, write_markdown, write_text

if TYPE_CHECKING:
    from rich.console import Console

WIDTH = 80
MOST_NOTES = 3


def to_text(results: Results, width: int | None = None, color: bool = False) -> str:
    """Return all tables and notes for a terminal."""
    sentences = [f"{words.describe_setting(results)}.", *words.answers(results)]
    return write_text(words.title(results), sentences, tables.tables(results), words.notes(results), width, color)


def to_markdown(results: Results) -> str:
    """Return the tables and notes as Markdown."""
    return write_markdown(words.answers(results), tables.tables(results), words.notes(results))


def summary(results: Results, width: int | None = None, color: bool = False) -> str:
    """Return one screen, at most 80 columns by 22 lines for a few models under a few attacks."""
    stream = StringIO()
    console = console_for(stream, min(width or WIDTH, WIDTH), color)
    console.print(words.title(results), style="bold")
    console.print(words.describe_setting(results))
    console.print()
    rates = tables.rates(results)
    if not fits(rates, console.width):
        rates = tables.rates(results, has_intervals=False)
    print_table(console, rates)
    console.print(f"{rates.title}.", style="dim")
    console.print()
    if results.compares_sources:
        _print_answer(console, results)
    if results.has_deployments:
        console.print(words.answer_deployed(results), style="bold")
    has_failed = bool(results.checked and words.find_failed(results.checked))
    for line in words.check_lines(results):
        console.print(line, style="red" if has_failed else None)
    warnings = words.warnings(results)
    for warning in warnings[:MOST_NOTES]:
        console.print(f"• {warning}")
    if len(warnings) > MOST_NOTES:
        console.print(f"• and {len(warnings) - MOST_NOTES} more, with --full")
    return "\n".join(line.rstrip() for line in stream.getvalue().rstrip("\n").splitlines())


def _print_answer(console: Console, results: Results) -> None:
    from rich.table import Table

    console.print(words.answer(results), style="bold")
    grid = Table.grid(padding=(0, 0, 0, 2), pad_edge=True)
    for statement in words.state(results):
        grid.add_row(statement.attack, statement.word)
    if grid.rows:
        console.print(grid)
    for sentence in words.remarks(results):
        console.print(sentence)

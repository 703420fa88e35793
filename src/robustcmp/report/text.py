"""A run as text: one screen, everything, and Markdown."""

from __future__ import annotations

from io import StringIO
from typing import TYPE_CHECKING

from ..analysis.results import Results
from . import tables, words
from .layout import WIDTH, console_for, fits, print_table, write_markdown, write_text

if TYPE_CHECKING:
    from rich.console import Console

MOST_NOTES = 3


def to_text(results: Results, width: int | None = None, color: bool = False) -> str:
    """Return all tables and notes for a terminal."""
    sentences = words.headline(results)
    return write_text(words.title(results), sentences, tables.tables(results), words.notes(results), width, color)


def to_markdown(results: Results) -> str:
    """Return the tables and notes as Markdown."""
    return write_markdown(words.headline(results), tables.tables(results), words.notes(results))


def summary(results: Results, width: int | None = None, color: bool = False) -> str:
    """Return one screen, at most 100 columns by 40 lines for a few models under a few attacks."""
    stream = StringIO()
    console = console_for(stream, min(width or WIDTH, WIDTH), color)
    console.print(words.title(results), style="bold")
    console.print(words.setting(results))
    console.print()
    rates = tables.rates(results)
    console.print(rates.title)
    print_table(console, rates if fits(rates, console.width) else tables.rates(results, "\n"))
    if results.has_deployments:
        for table in (tables.networks(results), tables.deployments(results)):
            console.print(f"\n{table.title}")
            print_table(console, table)
        console.print()
    for line in words.check_lines(results):
        console.print(line, style="red")
    answers = words.answers(results)
    for note in [*words.file_notes(results), *words.key_notes(results)[:MOST_NOTES], *answers.together]:
        console.print(f"• {note}")
    console.print()
    if answers.sources:
        console.print(answers.sources, style="bold")
        _print_verdicts(console, results)
    if answers.deployed:
        console.print(answers.deployed, style="bold")
    return stream.getvalue().rstrip("\n")


def _print_verdicts(console: Console, results: Results) -> None:
    from rich.table import Table

    grid = Table.grid(padding=(0, 2, 0, 0))
    for verdict in results.verdicts:
        grid.add_row(*words.verdict_line(verdict))
    console.print(grid)
    for sentence in words.explain_lines(results):
        console.print(sentence, style="dim")

"""A benchmark as text: one screen, or all of it."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

from ..report.layout import WIDTH, console_for, print_table, write_text
from .published import list_published
from .tables import list_tables, list_times, tabulate_published
from .words import describe_setup, headline, list_key_notes, list_notes, note_published, title

if TYPE_CHECKING:
    from .benchmark import Benchmark

MOST_NOTES = 6
MOST_SENTENCES = 8


def to_text(benchmark: Benchmark, width: int | None = None, color: bool = False) -> str:
    """Return all tables and notes for a terminal."""
    published = list_published(benchmark)
    return write_text(
        f"{title(benchmark)}\n{describe_setup(benchmark)}",
        headline(benchmark),
        [*list_tables(benchmark), *tabulate_published(published)],
        [*list_notes(benchmark), *note_published(published)],
        width,
        color,
    )


def summarise(benchmark: Benchmark, width: int | None = None, color: bool = False) -> str:
    """Return one screen: the times, the main notes, and the answers at the end."""
    stream = io.StringIO()
    console = console_for(stream, min(width or WIDTH, WIDTH), color)
    console.print(title(benchmark), style="bold")
    console.print(describe_setup(benchmark))
    for table in list_times(benchmark, brief=True):
        console.print(f"\n{table.title}")
        print_table(console, table)
    console.print()
    for note in list_key_notes(benchmark)[:MOST_NOTES]:
        console.print(f"• {note}")
    console.print()
    sentences = headline(benchmark)
    for sentence in sentences[:MOST_SENTENCES]:
        console.print(sentence, style="bold")
    if len(sentences) > MOST_SENTENCES:
        console.print(f"… and {len(sentences) - MOST_SENTENCES} more settings, in the full report.")
    return stream.getvalue().rstrip("\n")

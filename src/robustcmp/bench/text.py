"""A benchmark as text: one screen, all of it, and Markdown."""

from __future__ import annotations

import io

from ..report.layout import WIDTH, Table, console_for, print_table, write_markdown, write_text
from . import published_text as published_performance
from .headline import headline
from .notes import key_notes, notes
from .performance import Performance
from .tables import prediction, tables, training
from .words import setting, title

MOST_NOTES = 6
MOST_SENTENCES = 8


def everything(results: Performance) -> list[Table]:
    """Return all tables, those of published figures last."""
    return [*tables(results), *published_performance.tables(results)]


def to_text(results: Performance, width: int | None = None, color: bool = False) -> str:
    """Return all tables and notes for a terminal."""
    heading = f"{title(results)}\n{setting(results)}"
    return write_text(heading, headline(results), everything(results), _all_notes(results), width, color)


def to_markdown(results: Performance) -> str:
    """Return the tables and notes as Markdown."""
    return write_markdown(headline(results), everything(results), _all_notes(results))


def summary(results: Performance, width: int | None = None, color: bool = False) -> str:
    """Return one screen: the times, the main notes, and the answers at the end."""
    stream = io.StringIO()
    console = console_for(stream, min(width or WIDTH, WIDTH), color)
    console.print(title(results), style="bold")
    console.print(setting(results))
    for table in main_tables(results, brief=True):
        console.print(f"\n{table.title}")
        print_table(console, table)
    console.print()
    for note in key_notes(results)[:MOST_NOTES]:
        console.print(f"• {note}")
    console.print()
    sentences = headline(results)
    for sentence in sentences[:MOST_SENTENCES]:
        console.print(sentence, style="bold")
    if len(sentences) > MOST_SENTENCES:
        console.print(f"… and {len(sentences) - MOST_SENTENCES} more settings, in the full report.")
    return stream.getvalue().rstrip("\n")


def main_tables(results: Performance, brief: bool = False) -> list[Table]:
    """Return the table of times of what was measured."""
    found = [training(results, brief)] if "train" in results.tasks else []
    return found + ([prediction(results, brief)] if any(task != "train" for task in results.tasks) else [])


def _all_notes(results: Performance) -> list[str]:
    return [*notes(results), *published_performance.notes(results)]

"""A benchmark as text: one screen, or all of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..report.layout import WIDTH, write_text
from .tables import make_tables
from .words import METHODS, describe, list_answers, list_notes

if TYPE_CHECKING:
    from .benchmark import Benchmark


def write(benchmark: Benchmark, is_full: bool, width: int | None = None, color: bool = False) -> str:
    """Return all tables and notes for a terminal, or one screen: the answers, the times and the main notes."""
    heading = "\n".join(describe(benchmark))
    answers = list_answers(benchmark)
    tables = make_tables(benchmark)
    notes = list_notes(benchmark)
    if is_full:
        return write_text(heading, answers, [*tables.values()], notes, width, color)
    narrow = min(width or WIDTH, WIDTH)
    return write_text(heading, answers, [tables["times"]], notes[: -len(METHODS)], narrow, color).rstrip("\n")

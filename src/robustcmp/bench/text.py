"""A benchmark as text: one screen, or all of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..report.layout import WIDTH, write_text
from .tables import list_tables, list_times
from .words import METHODS, answer, describe_setup, list_notes, title

if TYPE_CHECKING:
    from .benchmark import Benchmark

MOST_SENTENCES = 8


def to_text(benchmark: Benchmark, width: int | None = None, color: bool = False) -> str:
    """Return all tables and notes for a terminal."""
    heading = f"{title(benchmark)}\n{describe_setup(benchmark)}"
    return write_text(heading, answer(benchmark), list_tables(benchmark), list_notes(benchmark), width, color)


def summarise(benchmark: Benchmark, width: int | None = None, color: bool = False) -> str:
    """Return one screen: the answers, the times and the main notes."""
    heading = f"{title(benchmark)}\n{describe_setup(benchmark)}"
    sentences = answer(benchmark)
    if len(sentences) > MOST_SENTENCES:
        sentences[MOST_SENTENCES:] = [f"… and {len(sentences) - MOST_SENTENCES} more settings, in the full report."]
    notes = list_notes(benchmark)[: -len(METHODS)]
    written = write_text(heading, sentences, list_times(benchmark), notes, min(width or WIDTH, WIDTH), color)
    return written.rstrip("\n")

"""The tables and notes of a run as text, for a terminal and as Markdown."""

from __future__ import annotations

import io

from ..analysis.results import Results
from .headline import headline
from .notes import notes
from .tables import tables
from .terminal import console_for, print_table


def title(results: Results) -> str:
    """Return the heading of a run."""
    about = results.manifest["about"]
    what = " on ".join(about[key] for key in ("model", "dataset") if key in about)
    return ", ".join(part for part in (what, f"suite {results.manifest['suite']['name']}") if part)


def to_text(results: Results, width: int | None = None, color: bool = False) -> str:
    """Return all tables and notes for a terminal."""
    stream = io.StringIO()
    console = console_for(stream, width, color)
    console.print(title(results), style="bold underline")
    for sentence in headline(results):
        console.print(sentence)
    for table in tables(results):
        console.print(f"\n{table.title}", style="bold")
        print_table(console, table)
    console.print()
    for note in notes(results):
        console.print(f"• {note}")
    return stream.getvalue()


def to_markdown(results: Results) -> str:
    """Return the tables and notes as Markdown."""
    parts = headline(results)
    for table in tables(results):
        rule = ["---" if column.is_name else "---:" for column in table.columns]
        rows = ([cell.replace("|", "\\|") for cell in row] for row in (table.names, rule, *table.written))
        lines = [" | ".join(row) for row in rows]
        parts.append(f"**{table.title}**\n\n" + "\n".join(f"| {line} |" for line in lines))
    return "\n\n".join([*parts, "\n".join(f"- {note}" for note in notes(results))]) + "\n"

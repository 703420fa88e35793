"""The tables and notes of a run as text, for a terminal and as Markdown."""

from __future__ import annotations

import io
import re

from ..analysis.results import Results
from ..printable import printable
from .headline import headline
from .notes import notes
from .tables import tables
from .terminal import console_for, print_table


def title(results: Results) -> str:
    """Return the heading of a run."""
    about = results.manifest["about"]
    what = " on ".join(about[key] for key in ("model", "dataset") if about.get(key))
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
    """Return the tables and notes as Markdown, in which names are neither HTML nor links."""
    parts = [_literal(sentence) for sentence in headline(results)]
    for table in tables(results):
        rule = ["---" if column.is_name else "---:" for column in table.columns]
        rows = ([_literal(cell).replace("|", "\\|") for cell in row] for row in (table.names, *table.written))
        lines = [" | ".join(row) for row in rows]
        lines.insert(1, " | ".join(rule))
        parts.append(f"**{_literal(table.title)}**\n\n" + "\n".join(f"| {line} |" for line in lines))
    return "\n\n".join([*parts, "\n".join(f"- {_literal(note)}" for note in notes(results))]) + "\n"


def _literal(text: str) -> str:
    """Return text that Markdown shows as it is: ``<`` before a tag and ``&`` before an entity are written out."""
    shown = printable(text.replace("\n", " "))
    shown = re.sub(r"&(?=#?\w+;)", "&amp;", shown)
    shown = re.sub(r"<(?=[A-Za-z/!?])", "&lt;", shown)
    return shown.replace("](", "]\\(")

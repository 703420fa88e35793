"""The tables and notes of a run as text, for a terminal and as Markdown."""

from __future__ import annotations

import io
import re
from collections.abc import Sequence

from ..analysis.results import Results
from ..errors import printable
from .headline import headline
from .notes import notes
from .table import Table
from .tables import tables
from .terminal import console_for, print_table


def title(results: Results) -> str:
    """Return the heading of a run."""
    about = results.manifest["about"]
    what = " on ".join(about[key] for key in ("model", "dataset") if about.get(key))
    return ", ".join(part for part in (what, f"suite {results.manifest['suite']['name']}") if part)


def to_text(results: Results, width: int | None = None, color: bool = False) -> str:
    """Return all tables and notes for a terminal."""
    return written(title(results), headline(results), tables(results), notes(results), width, color)


def written(
    heading: str,
    sentences: Sequence[str],
    shown: Sequence[Table],
    remarks: Sequence[str],
    width: int | None = None,
    color: bool = False,
) -> str:
    """Return a report for a terminal: a heading, sentences, tables and notes."""
    stream = io.StringIO()
    console = console_for(stream, width, color)
    console.print(heading, style="bold underline")
    for sentence in sentences:
        console.print(sentence)
    for table in shown:
        console.print(f"\n{table.title}", style="bold")
        print_table(console, table)
    console.print()
    for remark in remarks:
        console.print(f"• {remark}")
    return stream.getvalue()


def to_markdown(results: Results) -> str:
    """Return the tables and notes as Markdown, in which names are neither HTML nor links."""
    return as_markdown(headline(results), tables(results), notes(results))


def as_markdown(sentences: Sequence[str], shown: Sequence[Table], remarks: Sequence[str]) -> str:
    """Return a report as Markdown: sentences, tables and notes."""
    parts = [_literal(sentence) for sentence in sentences]
    for table in shown:
        rule = ["---" if column.is_name else "---:" for column in table.columns]
        rows = ([_literal(cell).replace("|", "\\|") for cell in row] for row in (table.names, *table.written))
        lines = [" | ".join(row) for row in rows]
        lines.insert(1, " | ".join(rule))
        parts.append(f"**{_literal(table.title)}**\n\n" + "\n".join(f"| {line} |" for line in lines))
    return "\n\n".join([*parts, "\n".join(f"- {_literal(remark)}" for remark in remarks)]) + "\n"


def _literal(text: str) -> str:
    """Return text that Markdown shows as it is: ``<`` before a tag and ``&`` before an entity are written out."""
    shown = printable(text.replace("\n", " "))
    shown = re.sub(r"&(?=#?\w+;)", "&amp;", shown)
    shown = re.sub(r"<(?=[A-Za-z/!?])", "&lt;", shown)
    return shown.replace("](", "]\\(")

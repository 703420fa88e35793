"""A table, which is rows of plain values and how each column is written, laid out for a terminal and as Markdown."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from io import StringIO
from typing import TYPE_CHECKING, Any, TextIO

from ..errors import printable

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table as Drawn

WIDTH = 100
GAP = 3  # between two columns
NARROW = 12  # what is left of a column that has to give way, and whose entries wrap


@dataclass(frozen=True)
class Column:
    """A column of a table.

    Attributes
    ----------
    name : str
        Its heading.
    write : callable, optional
        How its values become text; without it they are names. Text is left as it is.
    """

    name: str
    write: Callable[[Any], str] | None = None

    @property
    def is_name(self) -> bool:
        """Whether it holds names and no figures."""
        return self.write is None

    def text(self, value: Any) -> str:
        """Return a value as text."""
        if self.write is None or isinstance(value, str):
            return str(value)
        return self.write(value)


@dataclass(frozen=True)
class Table:
    """A heading, columns, and rows of plain values."""

    title: str
    columns: Sequence[Column]
    rows: Sequence[Sequence[Any]]

    @property
    def names(self) -> list[str]:
        """The columns' headings."""
        return [column.name for column in self.columns]

    @property
    def written(self) -> list[list[str]]:
        """The rows as text."""
        return [[column.text(value) for column, value in zip(self.columns, row, strict=True)] for row in self.rows]


def names(*columns: str) -> list[Column]:
    """Return columns that hold names."""
    return [Column(column) for column in columns]


# at a terminal ---------------------------------------------------------------------------------------------------


def make_console(**options: Any) -> Console:
    """Return a console of rich, in which texts are what they say: no markup, and control characters escaped."""
    from rich.console import Console
    from rich.text import Text

    class Screen(Console):
        def render_str(self, text: str, **given: Any) -> Text:
            return super().render_str(printable(text), **given)

    return Screen(markup=False, highlight=False, emoji=False, **options)


def console_for(stream: TextIO, width: int | None, color: bool) -> Console:
    """Return a console that writes plain text, and escape sequences only for colours that were asked for."""
    return make_console(
        file=stream, width=width or WIDTH, force_terminal=color, no_color=not color, force_jupyter=False
    )


def write_text(
    heading: str,
    sentences: Sequence[str],
    tables: Sequence[Table],
    notes: Sequence[str],
    width: int | None = None,
    color: bool = False,
) -> str:
    """Return a report for a terminal: a heading, sentences, tables and notes."""
    stream = StringIO()
    console = console_for(stream, width, color)
    console.print(heading, style="bold underline")
    for sentence in sentences:
        console.print(sentence)
    for table in tables:
        console.print(f"\n{table.title}", style="bold")
        print_table(console, table)
    console.print()
    for note in notes:
        console.print(f"• {note}")
    return stream.getvalue()


def print_table(console: Console, table: Table) -> None:
    """Print a table; one that is too wide is cut between figures, and each part has all names."""
    for part in _cut(table, console.width):
        console.print(part)


def fits(table: Table, width: int) -> bool:
    """Return whether a table fits in one part."""
    return sum(_narrowest(table)) + GAP * len(table.columns) <= width


def _cut(table: Table, width: int) -> Iterator[Drawn]:
    """Yield a table cut so that each part fits."""
    texts = table.written
    narrowest = _narrowest(table)
    named = [i for i, column in enumerate(table.columns) if column.is_name]
    part = named
    for i, column in enumerate(table.columns):
        if column.is_name:
            continue
        wider = [*part, i]
        if part != named and sum(narrowest[j] for j in wider) + GAP * len(wider) > width:
            yield _draw(table, texts, sorted(part), width)
            wider = [*named, i]
        part = wider
    if part != named:
        yield _draw(table, texts, sorted(part), width)


def _draw(table: Table, texts: list[list[str]], shown: Sequence[int], width: int) -> Drawn:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table as Drawn

    room = width - GAP * len(shown)
    narrowest = _narrowest(table)
    widths = [max(narrowest[i], len(table.names[i])) for i in shown]  # no heading is wrapped
    if sum(widths) > room:
        widths = [narrowest[i] for i in shown]
    longest = widths.index(max(widths))
    widths[longest] -= max(0, min(sum(widths) - room, widths[longest] - NARROW))
    drawn = Drawn(box=SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for i, column_width in zip(shown, widths, strict=True):
        justify = "left" if table.columns[i].is_name else "right"
        drawn.add_column(table.names[i], justify=justify, width=column_width, overflow="fold")  # type: ignore[arg-type]
    for row in texts:
        drawn.add_row(*(row[i] for i in shown))
    return drawn


def _narrowest(table: Table) -> list[int]:
    """Return columns so narrow that headings are wrapped between words, and values are not."""
    widths = [max(map(len, name.split())) for name in table.names]
    for row in table.written:
        for i, text in enumerate(row):
            widths[i] = max(widths[i], *map(len, text.split("\n")))
    return widths


# as Markdown -----------------------------------------------------------------------------------------------------


def write_markdown(sentences: Sequence[str], tables: Sequence[Table], notes: Sequence[str]) -> str:
    """Return a report as Markdown: sentences, tables and notes, in which names are neither HTML nor links."""
    parts = [_literal(sentence) for sentence in sentences]
    for table in tables:
        rule = " | ".join("---" if column.is_name else "---:" for column in table.columns)
        rows = ([_literal(cell).replace("|", "\\|") for cell in row] for row in (table.names, *table.written))
        heading, *lines = (" | ".join(row) for row in rows)
        parts.append(f"**{_literal(table.title)}**\n\n" + "\n".join(f"| {line} |" for line in (heading, rule, *lines)))
    return "\n\n".join([*parts, "\n".join(f"- {_literal(note)}" for note in notes)]) + "\n"


def _literal(text: str) -> str:
    """Return text that Markdown shows as it is: ``<`` before a tag and ``&`` before an entity are written out."""
    shown = printable(text.replace("\n", " "))
    shown = re.sub(r"&(?=#?\w+;)", "&amp;", shown)
    shown = re.sub(r"<(?=[A-Za-z/!?])", "&lt;", shown)
    return shown.replace("](", "]\\(")

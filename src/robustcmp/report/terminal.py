"""Tables at a terminal: in as many parts as its width makes necessary."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, TextIO

from ..errors import printable
from .table import Table

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table as Drawn

WIDTH = 100
GAP = 3  # between two columns
NARROW = 12  # what is left of a column that has to give way, and whose entries wrap


def screen(**options: Any) -> Console:
    """Return a console of rich, in which texts are what they say: no markup, and control characters escaped."""
    from rich.console import Console
    from rich.text import Text

    class Screen(Console):
        def render_str(self, text: str, **given: Any) -> Text:
            return super().render_str(printable(text), **given)

    return Screen(markup=False, highlight=False, emoji=False, **options)


def console_for(stream: TextIO, width: int | None, color: bool) -> Console:
    """Return a console that writes plain text, and escape sequences only for colours that were asked for."""
    return screen(file=stream, width=width or WIDTH, force_terminal=color, no_color=not color, force_jupyter=False)


def print_table(console: Console, table: Table) -> None:
    """Print a table; one that is too wide is cut between figures, and each part has all names."""
    for part in parts(table, console.width):
        console.print(part)


def fits(table: Table, width: int) -> bool:
    """Say whether a table fits in one part."""
    every = range(len(table.columns))
    return sum(_narrowest(table, every)) + GAP * len(every) <= width


def parts(table: Table, width: int) -> Iterator[Drawn]:
    """Yield a table cut so that each part fits."""
    named = [i for i, column in enumerate(table.columns) if column.is_name]
    figures = [i for i, column in enumerate(table.columns) if not column.is_name]
    while figures:
        count = len(figures)
        while count > 1 and sum(_narrowest(table, [*named, *figures[:count]])) + GAP * (len(named) + count) > width:
            count -= 1
        yield _drawn(table, sorted([*named, *figures[:count]]), width)
        figures = figures[count:]


def _drawn(table: Table, shown: Sequence[int], width: int) -> Drawn:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table as Drawn

    drawn = Drawn(box=SIMPLE_HEAD, show_edge=False, pad_edge=False)
    widths = _widest(table, shown)
    if sum(widths) + GAP * len(shown) > width:
        widths = _narrowest(table, shown)
    longest = widths.index(max(widths))
    widths[longest] -= max(0, min(sum(widths) + GAP * len(shown) - width, widths[longest] - NARROW))
    for i, column_width in zip(shown, widths, strict=True):
        column = table.columns[i]
        drawn.add_column(
            column.name, justify="left" if column.is_name else "right", width=column_width, overflow="fold"
        )
    for row in table.written:
        drawn.add_row(*(row[i] for i in shown))
    return drawn


def _widest(table: Table, shown: Sequence[int]) -> list[int]:
    """Return columns so wide that no heading is wrapped."""
    return [max(_values(table, i), len(table.names[i])) for i in shown]


def _narrowest(table: Table, shown: Sequence[int]) -> list[int]:
    """Return columns so narrow that headings are wrapped between words, and values are not."""
    return [max(_values(table, i), *map(len, table.names[i].split())) for i in shown]


def _values(table: Table, i: int) -> int:
    return max((len(line) for row in table.written for line in row[i].split("\n")), default=1)

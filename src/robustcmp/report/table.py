"""A table: rows of plain values, and how each column is written."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple


@dataclass(frozen=True)
class Column:
    """A column of a table.

    Attributes
    ----------
    name : str
        Its heading.
    write : callable, optional
        How its values become text; without it they are names. Text, and what is not known (None), is left as it is.
    """

    name: str
    write: Callable[[Any], str] | None = None

    @property
    def is_name(self) -> bool:
        """Whether it holds names and no figures."""
        return self.write is None

    def text(self, value: Any) -> str:
        """Return a value as text."""
        if isinstance(value, Marked):
            return f"{self.text(value.value)} {value.mark}"
        if self.write is None or isinstance(value, str):
            return str(value)
        return self.write(value)


class Marked(NamedTuple):
    """A value with a remark beside it."""

    value: Any
    mark: str


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

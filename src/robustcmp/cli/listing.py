"""What the commands that list something share."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import Any

from .command import Parser
from .screen import screen_width, use_color


def listing_parser(name: str, description: str, examples: str = "") -> Parser:
    """Return the parser of a command that lists something."""
    parser = Parser(f"robustcmp {name}", description, examples)
    parser.add_argument("--json", action="store_true", help="print a JSON list of objects instead of a table")
    return parser


def print_listing(rows: Sequence[dict[str, Any]], as_json: bool, *, sentences: bool = False) -> None:
    """Print rows, a table whose columns are their keys: as wide as the terminal, or as needed where there is none.

    Rows that have whole sentences are wrapped there as well, at the width of results; their names are not.
    """
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    from ..report.layout import screen

    if as_json:
        print(json.dumps(rows, indent=1))
        return
    width = screen_width() if sentences else None if sys.stdout.isatty() else 10_000
    console = screen(width=width, force_terminal=use_color(sys.stdout))
    table = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for name in rows[0] if rows else ():
        table.add_column(name.replace("_", " "), overflow="fold", no_wrap=sentences and not table.columns)
    for row in rows:
        table.add_row(*("–" if value is None else str(value) for value in row.values()))
    console.print(table)

"""The terminal that results are printed to."""

from __future__ import annotations

import os
import shutil
from typing import TextIO

from ..printable import printable

WIDEST = 100  # longer lines are hard to read


def screen_width() -> int:
    """Return the width to print results with, in columns."""
    return min(shutil.get_terminal_size((WIDEST, 24)).columns, WIDEST)


def show(text: object, *, flush: bool = False) -> None:
    """Print a result that names something; tables, which may have colours, are made printable where they are drawn."""
    print(printable(str(text)), flush=flush)


def use_color(stream: TextIO) -> bool:
    """Say whether a stream is a terminal with colours, and its user has not set ``NO_COLOR`` (https://no-color.org)."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"

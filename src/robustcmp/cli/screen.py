"""The terminal that results are printed to."""

from __future__ import annotations

import os
import re
import shutil
import textwrap
from typing import TextIO

from ..errors import printable

WIDEST = 100  # longer lines are hard to read
COMMAND = re.compile(r"\s+\S*(python\S* -m|robustcmp) ")


def screen_width() -> int:
    """Return the width to print results with, in columns."""
    return min(shutil.get_terminal_size((WIDEST, 24)).columns, WIDEST)


def show(text: object, *, flush: bool = False) -> None:
    """Print a result that names something; tables, which may have colours, are made printable where they are drawn."""
    print(printable(str(text)), flush=flush)


def wrap(text: str, stream: TextIO) -> str:
    """Return text broken between words if a stream is a terminal, which would break it within them.

    Commands stay on one line, so that they can be copied.
    """
    if not stream.isatty():
        return text
    width = min(os.get_terminal_size(stream.fileno()).columns or WIDEST, WIDEST)
    filler = textwrap.TextWrapper(width, break_long_words=False, break_on_hyphens=False)
    return "\n".join(line if COMMAND.match(line) else filler.fill(line) for line in text.split("\n"))


def use_color(stream: TextIO) -> bool:
    """Say whether a stream is a terminal with colours, and its user has not set ``NO_COLOR`` (https://no-color.org)."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"

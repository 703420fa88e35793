"""The terminal that results are printed to."""

from __future__ import annotations

import io
import os
import re
import shutil
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from subprocess import TimeoutExpired
from typing import TextIO

from ..errors import printable
from ..processes import Process

WIDEST = 100  # longer lines are hard to read
COMMAND = re.compile(r"\s+\S*(python\S* -m|robustcmp) ")
# Of absl, also before a level can be set: I0000 00:00:1795466579.336773    3933 port.cc:153] oneDNN …
LOG_LINE = rb"[IW]\d{4} [\d:.]+\s+\d+ \S+\.(cc|h):\d+\] |WARNING: All log messages before absl::"
FILTER = f"""
import re, sys
screen = open(int(sys.argv[1]), "wb", buffering=0)
for line in sys.stdin.buffer:
    if not re.match({LOG_LINE!r}, line):
        screen.write(line)
"""
STDERR = 2


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


@contextmanager
def drop_log_lines() -> Iterator[None]:
    """Drop lines that C++ libraries log to standard error at the levels INFO and WARNING; all else comes through.

    Another process reads them, so that the last words of this one arrive even where it aborts. Python's own standard
    error goes past it and stays a terminal where it is one.
    """
    if sys.stderr is None:  # closed
        yield
        return
    screen = os.dup(STDERR)
    read, write = os.pipe()
    with open(read, "rb") as lines:
        reader = Process([sys.executable, "-S", "-E", "-c", FILTER, str(screen)], descriptors=[screen], stdin=lines)
    os.dup2(write, STDERR)
    os.close(write)
    before = sys.stderr
    with suppress(OSError, ValueError, AttributeError):  # it writes into memory
        if before.fileno() == STDERR:
            terminal = io.FileIO(screen, "w", closefd=False)
            sys.stderr = io.TextIOWrapper(
                terminal, before.encoding, "backslashreplace", line_buffering=True, write_through=True
            )
    try:
        yield
    finally:
        sys.stderr.flush()
        sys.stderr = before
        os.dup2(screen, STDERR)  # ends the reader, unless a child of ours still writes
        os.close(screen)
        with suppress(TimeoutExpired):
            reader.wait(2)
        reader.output.close()

"""Standard error as a command writes it: log lines of C++ libraries are kept from the screen."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from subprocess import TimeoutExpired

from ..processes import Process

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

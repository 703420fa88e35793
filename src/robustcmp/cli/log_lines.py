"""Keeps the log lines of C++ libraries away from the user's screen."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from .streams import descriptor_of, opened

# Of absl, also before a level can be set: I0000 00:00:1795466579.336773    3933 port.cc:153] oneDNN …
LOG_LINE = rb"[IW]\d{4} [\d:.]+\s+\d+ \S+\.(cc|h):\d+\] |WARNING: All log messages before absl::"
FILTER = f"""
import re, sys
for line in sys.stdin.buffer:
    if not re.match({LOG_LINE!r}, line):
        sys.stdout.buffer.write(line)
        sys.stdout.buffer.flush()
"""
STDERR = 2


@contextmanager
def log_lines_dropped() -> Iterator[None]:
    """Drop lines that C++ libraries log to standard error at the levels INFO and WARNING; all else comes through.

    Another process reads them, so that the last words of this one arrive even where it aborts. Python's own standard
    error goes past it and stays a terminal where it is one.
    """
    try:
        screen = os.dup(STDERR)
    except OSError:  # closed
        yield
        return
    # In a session of its own: Ctrl-C is for this process.
    command = [sys.executable, "-S", "-E", "-c", FILTER]
    reader = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=screen, stderr=screen, start_new_session=True)
    assert reader.stdin is not None
    os.dup2(reader.stdin.fileno(), STDERR)
    reader.stdin.close()
    before = sys.stderr
    if descriptor_of(before) == STDERR:
        sys.stderr = opened(screen, like=before)
    try:
        yield
    finally:
        sys.stderr.flush()
        sys.stderr = before
        os.dup2(screen, STDERR)  # ends the reader, unless a child of ours still writes
        os.close(screen)
        with suppress(subprocess.TimeoutExpired):
            reader.wait(timeout=2)

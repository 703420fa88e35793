"""Standard output and error as a command writes them: in what they can encode, also where nobody reads them.

Log lines of C++ libraries are kept from the screen.
"""

from __future__ import annotations

import codecs
import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from subprocess import TimeoutExpired
from typing import TYPE_CHECKING, TextIO

from ..processes import Process

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

SPELLED = {
    "−": "-",
    "–": "-",
    "─": "-",
    "•": "-",
    "·": ".",
    "…": "...",
    "×": "x",
    "±": "+-",
    "≤": "<=",
    "∞": "inf",
    "ε": "eps",
    "√": "sqrt ",
}
"""Characters of reports that ASCII or cp1252 lacks, in letters that every encoding has."""
RAISING = ("strict", "surrogateescape", "backslashreplace")  # Python's choices; any other is the user's


def _spell(error: UnicodeError) -> tuple[str, int]:
    """Return what to write in place of what cannot be encoded, as `codecs.register_error` wants it."""
    assert isinstance(error, UnicodeEncodeError)
    lacking = error.object[error.start : error.end]
    return "".join(SPELLED.get(c) or c.encode("unicode_escape").decode("ascii") for c in lacking), error.end


codecs.register_error("robustcmp", _spell)


class _Written(io.FileIO):
    """A stream that ends where its reader has read enough, as ``head`` does, or where its disk is full.

    The rest goes nowhere; only of a disk there is an error, once.
    """

    has_ended = False

    def write(self, data: ReadableBuffer) -> int:
        if not self.has_ended:
            try:
                return super().write(data)
            except OSError as error:
                self.has_ended = True
                if not isinstance(error, BrokenPipeError):
                    raise
        return memoryview(data).nbytes


def descriptor_of(stream: TextIO) -> int | None:
    """Return the file descriptor that a stream writes to, None where it writes into memory."""
    with suppress(OSError, ValueError, AttributeError):
        return stream.fileno()
    return None


def open_like(descriptor: int, like: TextIO) -> TextIO:
    """Return a stream that writes as another one does, but for what it cannot encode and for readers that are gone."""
    return io.TextIOWrapper(
        io.BufferedWriter(_Written(descriptor, "wb", closefd=False)),
        encoding=like.encoding,
        errors="robustcmp" if like.errors in RAISING else like.errors,
        line_buffering=True,
    )


@contextmanager
def standard_streams() -> Iterator[None]:
    """Let a command write to standard output and error what they can encode, also where they are closed."""
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = map(_reopen, before)
    try:
        yield
    finally:
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError):
                stream.flush()
        sys.stdout, sys.stderr = before


def _reopen(stream: TextIO | None) -> TextIO:
    if stream is None:  # closed
        return io.StringIO()
    descriptor = descriptor_of(stream)
    if descriptor is None or (os.name == "nt" and stream.isatty()):  # a console there takes every character
        return stream
    stream.flush()
    return open_like(descriptor, like=stream)


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
    try:
        screen = os.dup(STDERR)
    except OSError:  # closed
        yield
        return
    read, write = os.pipe()
    with open(read, "rb") as lines:
        reader = Process([sys.executable, "-S", "-E", "-c", FILTER, str(screen)], descriptors=[screen], stdin=lines)
    os.dup2(write, STDERR)
    os.close(write)
    before = sys.stderr
    if descriptor_of(before) == STDERR:
        sys.stderr = open_like(screen, like=before)
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

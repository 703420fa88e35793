"""What libraries print while they convert and open networks: for nobody, unless they fail."""

from __future__ import annotations

import io
import logging
import os
import sys
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, redirect_stderr, redirect_stdout
from typing import IO

from ..errors import DeploymentError

LAST = 10  # lines that an error quotes
STREAMS = (1, 2)  # standard output and standard error, as C++ libraries know them


@contextmanager
def silence() -> Iterator[None]:
    """Keep what libraries print, warn and log from the terminal; a `DeploymentError` quotes the end of it.

    Also what C++ prints past Python. Log lines up to the level WARNING are dropped.
    """
    before = logging.root.manager.disable
    with ExitStack() as stack:
        buffer = stack.enter_context(tempfile.TemporaryFile())
        for stream, redirect in zip(STREAMS, (redirect_stdout, redirect_stderr), strict=True):
            stack.enter_context(_redirect(buffer, stream))
            # It stays open: a library that is imported here may keep it.
            descriptor = io.FileIO(stream, "w", closefd=False)
            text = io.TextIOWrapper(descriptor, encoding="utf-8", errors="backslashreplace", write_through=True)
            stack.enter_context(redirect(text))
        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore")
        logging.disable(max(before, logging.WARNING))
        stack.callback(logging.disable, before)
        try:
            yield
        except DeploymentError as error:
            buffer.seek(0)
            lines = buffer.read().decode(errors="replace").strip().splitlines()[-LAST:]
            if not lines:
                raise
            raise DeploymentError("\n  ".join([f"{error}\nThe last of what was printed:", *lines])) from error


@contextmanager
def _redirect(buffer: IO[bytes], stream: int) -> Iterator[None]:
    """Send what is written to a descriptor of this process elsewhere."""
    for writer in (sys.stdout, sys.stderr):
        if writer is not None and not writer.closed:
            writer.flush()
    screen = os.dup(stream)
    os.dup2(buffer.fileno(), stream)
    try:
        yield
    finally:
        os.dup2(screen, stream)
        os.close(screen)

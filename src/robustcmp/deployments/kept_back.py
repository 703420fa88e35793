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
def kept_back() -> Iterator[None]:
    """Keep what libraries print, warn and log from the terminal; a `DeploymentError` quotes the end of it.

    Also what C++ prints past Python. Log lines up to the level WARNING are dropped.
    """
    before = logging.root.manager.disable
    with ExitStack() as stack:
        kept = stack.enter_context(tempfile.TemporaryFile())
        printed = io.TextIOWrapper(io.FileIO(os.dup(kept.fileno()), "w"), errors="backslashreplace", write_through=True)
        stack.enter_context(printed)
        for stream in STREAMS:
            stack.enter_context(_sent_to(kept, stream))
        stack.enter_context(redirect_stdout(printed))
        stack.enter_context(redirect_stderr(printed))
        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore")
        logging.disable(max(before, logging.WARNING))
        stack.callback(logging.disable, before)
        try:
            yield
        except DeploymentError as error:
            kept.seek(0)
            lines = kept.read().decode(errors="replace").strip().splitlines()[-LAST:]
            if not lines:
                raise
            raise DeploymentError("\n  ".join([f"{error}\nThe last of what was printed:", *lines])) from error


@contextmanager
def _sent_to(kept: IO[bytes], stream: int) -> Iterator[None]:
    """Send what is written to a descriptor of this process elsewhere."""
    for own in (sys.stdout, sys.stderr):
        if own is not None and not own.closed:
            own.flush()
    try:
        screen = os.dup(stream)
    except OSError:  # closed
        yield
        return
    try:
        os.dup2(kept.fileno(), stream)
        yield
    finally:
        os.dup2(screen, stream)
        os.close(screen)

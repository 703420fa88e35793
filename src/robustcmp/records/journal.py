"""What happened in a run, for people: a line an event in ``log.txt``. Nothing reads it, and no result depends on it."""

from __future__ import annotations

import time
from pathlib import Path

from ..files import append_line

NAME = "log.txt"


class Journal:
    """The log of a run.

    Parameters
    ----------
    directory : Path
        The run's.
    silent : bool, default False
        Note nothing.
    """

    def __init__(self, directory: Path, silent: bool = False):
        self._path, self._silent = directory / NAME, silent

    def note(self, event: str) -> None:
        """Add a line with the local time; what cannot be printed is left out."""
        if self._silent:
            return
        text = "".join(character if character.isprintable() else " " for character in event)
        append_line(self._path, f"{time.strftime('%Y-%m-%d %H:%M:%S')} {text}")

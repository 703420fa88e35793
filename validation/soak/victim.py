"""A command that ends itself with SIGKILL when it touches its files for the n-th time, or a moment later.

``python -m soak.victim FOLDER AT DELAY MODULE ARGUMENT...``: FOLDER is where its files are, AT is the number of the
touch (0: none), DELAY is in seconds. Python's own audit events tell of every file that it opens for writing, renames or
removes; `os.fsync` has none and is wrapped. The last line of standard error says how often it touched its files.
"""

from __future__ import annotations

import os
import runpy
import signal
import sys
import threading
from pathlib import Path
from typing import Any

EVENTS = ("open", "os.rename", "os.remove", "os.mkdir", "os.truncate", "os.link")


class Victim:
    """Counts touches, and dies at one of them."""

    def __init__(self, folder: Path, at: int, delay: float):
        self.folder, self.at, self.delay, self.touched = str(folder), at, delay, 0
        self._fsync = os.fsync

    def hear(self, event: str, arguments: tuple[Any, ...]) -> None:
        """Be told of an audit event."""
        if event not in EVENTS or not isinstance(arguments[0], str | os.PathLike):
            return
        if event == "open" and not int(arguments[2] or 0) & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
            return
        if os.path.abspath(os.fspath(arguments[0])).startswith(self.folder):
            self.touch()

    def fsync(self, file: Any) -> None:
        """Flush a file, which is two touches: one before it and one after it."""
        self.touch()
        self._fsync(file)
        self.touch()

    def touch(self) -> None:
        """Count, and die if it is time."""
        self.touched += 1
        if self.touched == self.at:
            if not self.delay:
                self.die()
            threading.Timer(self.delay, self.die).start()

    @staticmethod
    def die() -> None:
        """End this process as a power cut would."""
        os.kill(os.getpid(), signal.SIGKILL)


def main() -> None:
    """Run a module as ``python -m`` does."""
    folder, at, delay, module = sys.argv[1:5]
    victim = Victim(Path(folder).resolve(), int(at), float(delay))
    os.fsync = victim.fsync  # type: ignore[assignment]
    sys.addaudithook(victim.hear)
    sys.argv[:5] = [module]
    sys.path[0] = os.getcwd()
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    finally:
        sys.stderr.write(f"\ntouched {victim.touched}\n")


if __name__ == "__main__":
    main()

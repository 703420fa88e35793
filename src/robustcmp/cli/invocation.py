"""How this command was called, so that it can be told how to be called again."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path


def called(module: str, given: Sequence[str]) -> str:
    """Return a line that runs the same command again from the same directory.

    Parameters
    ----------
    module : str
        What is run with ``python -m``: ``"robustcmp.eval"``, or ``"robustcmp hosts"``.
    given : sequence of str
        Its arguments.
    """
    return shlex.join([_python(), "-m", *module.split(), *given])


def _python() -> str:
    """Return ``python`` if that is this interpreter, else its path, relative where it lies below this directory."""
    this = Path(os.path.abspath(sys.executable))  # a link in a virtual environment is not what it points to
    python = shutil.which("python")
    if python and Path(os.path.abspath(python)) == this:
        return "python"
    return os.path.relpath(this) if this.is_relative_to(Path.cwd()) else str(this)

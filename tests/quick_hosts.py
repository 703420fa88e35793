"""``robustcmp hosts`` with the NumPy at hand in new environments, so that nothing has to be downloaded for it."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import numpy as np

from robustcmp.cli import hosts as hosting
from robustcmp.cli.ending import run_process
from robustcmp.hosts import environments

run = environments._run


def run_and_lend(name: str, command: list[str], advice: str = "") -> None:
    run(name, command, advice)
    if "venv" in command:
        [site] = Path(command[-1]).glob("lib/python*/site-packages")
        (site / "numpy.pth").write_text(str(Path(np.__file__).parents[1]))


if __name__ == "__main__":
    # A shell that starts the tests in the background has its children ignore the signal.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    environments._run = run_and_lend
    sys.exit(run_process(hosting.main, "robustcmp.hosts"))

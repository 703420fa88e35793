"""The console script ``robustcmp``, which loads nothing before it handles interrupts."""

from __future__ import annotations

from collections.abc import Sequence

from .ending import run_process


def main(arguments: Sequence[str] | None = None) -> int:
    """Run ``robustcmp COMMAND …``, as this process if there are no arguments, and return the exit status."""
    return run_process(_run, "robustcmp") if arguments is None else _run(arguments)


def _run(arguments: Sequence[str] | None = None) -> int:
    from .command import run_named

    return run_named(arguments)

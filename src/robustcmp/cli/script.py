"""What processes run: the console script ``robustcmp``, and one command. Interrupts are handled before all else."""

from __future__ import annotations

from collections.abc import Sequence

from .ending import run_process


def main(arguments: Sequence[str] | None = None) -> int:
    """Run ``robustcmp COMMAND …``, as this process if there are no arguments, and return the exit status."""
    return run_process(_run, "robustcmp") if arguments is None else _run(arguments)


def _run(arguments: Sequence[str] | None = None) -> int:
    from .command import run_named

    return run_named(arguments)


def run_module(name: str) -> int:
    """Run a command as ``python -m robustcmp.NAME`` does, and return the exit status."""

    def run() -> int:
        from importlib import import_module

        return int(import_module(f".{name}", __package__).main())

    return run_process(run, f"robustcmp.{name}")

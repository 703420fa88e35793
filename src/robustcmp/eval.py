"""``python -m robustcmp.eval``: compare trained models."""

import sys
from collections.abc import Sequence

from .cli.ending import run_process


def main(arguments: Sequence[str] | None = None) -> int:
    """Compare what the arguments name and return the exit status."""
    from .cli.eval import main as evaluate

    return evaluate(arguments)


if __name__ == "__main__":
    sys.exit(run_process(main, "robustcmp.eval"))

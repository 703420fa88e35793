"""``python -m robustcmp.bench``: measure training and prediction."""

import sys
from collections.abc import Sequence

from ..cli.ending import run_process


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure what the arguments name and return the exit status."""
    from ..cli.bench import main as bench

    return bench(arguments)


if __name__ == "__main__":
    sys.exit(run_process(main, "robustcmp.bench"))

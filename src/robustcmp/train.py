"""``python -m robustcmp.train``: train models with a recipe of the zoo."""

import sys
from collections.abc import Sequence

from .cli.ending import run_process


def main(arguments: Sequence[str] | None = None) -> int:
    """Train what the arguments name and return the exit status."""
    from .cli.train import main as train

    return train(arguments)


if __name__ == "__main__":
    sys.exit(run_process(main, "robustcmp.train"))

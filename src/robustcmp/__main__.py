"""``python -m robustcmp``, and the console script."""

import sys

from .cli.ending import run_process


def main() -> int:
    """Run ``robustcmp COMMAND …`` as this process and return the exit status."""
    return run_process(_run, "robustcmp")


def _run() -> int:
    from .cli.command import main

    return main()


if __name__ == "__main__":
    sys.exit(main())

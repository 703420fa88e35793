"""``python -m robustcmp.eval``: compare trained models."""

import sys

from .cli.script import run_module

if __name__ == "__main__":
    sys.exit(run_module("eval"))

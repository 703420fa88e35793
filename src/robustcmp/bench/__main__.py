"""``python -m robustcmp.bench``: measure training and prediction."""

import sys

from ..cli.script import run_module

if __name__ == "__main__":
    sys.exit(run_module("bench"))

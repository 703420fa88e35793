"""``python -m robustcmp.train``: train models with a recipe of the zoo."""

import sys

from .cli.script import run_module

if __name__ == "__main__":
    sys.exit(run_module("train"))

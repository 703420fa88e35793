"""``python -m robustcmp.eval``: compare trained models."""

import sys

from .cli.eval import main

if __name__ == "__main__":
    sys.exit(main())

"""``python -m robustcmp.train``: train models of the zoo."""

import sys

from .cli.train import main

if __name__ == "__main__":
    sys.exit(main())

"""``python -m robustcmp``: the console script."""

import sys

from .cli.script import main

if __name__ == "__main__":
    sys.exit(main())

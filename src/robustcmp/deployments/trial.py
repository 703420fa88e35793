"""One file of a runtime, from standard input, opened and asked in a process of its own, which it may crash.

A script: its arguments are another one, which opens and asks the file, and the seconds of processor time that it may
take. It prints why that fails, and then its exit status is 1.
"""

from __future__ import annotations

import os
import runpy
import sys


def limit(seconds: int) -> None:
    """Take no more memory than the machine has, so that this process fails and not another one, nor more time."""
    try:
        import resource
    except ImportError:  # not on every system
        return
    most = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (most if hard == resource.RLIM_INFINITY else min(most, hard), hard))
    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    resource.setrlimit(resource.RLIMIT_CPU, (seconds if hard == resource.RLIM_INFINITY else min(seconds, hard), hard))


if __name__ == "__main__":
    limit(int(sys.argv[2]))
    try:
        runpy.run_path(sys.argv[1], run_name="__main__")
    except Exception as error:
        print(error)
        sys.exit(1)

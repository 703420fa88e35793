"""Keeps Chromium and its profile no longer than the program that asked for it, however either of the two ends.

It is run by its path, in a session of its own: ``python chromium_keeper.py READ WRITE PROFILE CHROMIUM OPTION …``.
Chromium takes commands from the descriptor READ, answers to WRITE, and ends when they are closed. This process ends
what is left of it, and removes the profile. It ends when its standard input does.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import suppress

GRACE = 2.0  # seconds for Chromium to end by itself
EXPECTED = (3, 4)  # the descriptors that Chromium looks at
SHORT = 30  # characters of a folder in which the sockets of Chromium have names that the system takes
ATTEMPTS = 20  # to remove a profile that helpers of Chromium, which end after it, may still write to


def main() -> int:
    import fcntl  # not on every system

    for ignored in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(ignored, signal.SIG_IGN)  # it ends when the program or Chromium does
    kept = [fcntl.fcntl(int(given), fcntl.F_DUPFD, 10) for given in sys.argv[1:3]]  # either may be 3 or 4
    for ours, expected in zip(kept, EXPECTED, strict=True):
        os.dup2(ours, expected)
    for number in {*kept, *map(int, sys.argv[1:3])} - {*EXPECTED}:
        os.close(number)
    profile = sys.argv[3]
    try:
        process = subprocess.Popen(
            [*sys.argv[4:], f"--user-data-dir={profile}"],
            stdin=subprocess.DEVNULL,
            pass_fds=EXPECTED,
            start_new_session=True,
            env={**os.environ, "TMPDIR": profile},
        )
        for expected in EXPECTED:
            os.close(expected)
        threading.Thread(target=_end_with_input, args=[process], daemon=True).start()
        status = process.wait()
        _kill(process.pid)
        return abs(status)
    except OSError as error:
        print(f"{sys.argv[4]} cannot be started: {error}", file=sys.stderr)
        return 1
    finally:
        remove(profile)


def new_profile() -> str:
    """Return a folder for what Chromium writes."""
    folder = tempfile.gettempdir()
    return tempfile.mkdtemp(prefix="robustcmp-chromium-", dir=folder if len(folder) <= SHORT else "/tmp")


def remove(profile: str) -> None:
    """Remove what Chromium has written."""
    for _ in range(ATTEMPTS):
        shutil.rmtree(profile, ignore_errors=True)
        if not os.path.exists(profile):
            return
        time.sleep(0.1)


def _end_with_input(process: subprocess.Popen[bytes]) -> None:
    sys.stdin.buffer.read()
    with suppress(subprocess.TimeoutExpired):
        process.wait(GRACE)
    _kill(process.pid)


def _kill(group: int) -> None:
    with suppress(ProcessLookupError):
        os.killpg(group, signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(main())

"""How a command ends when Ctrl-C or a signal asks it to: at once, whatever hangs, since finished work is on disk.

The first thing that a command's process loads: it imports next to nothing, so that an interrupt is handled while all
else is imported.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType
    from typing import NoReturn

NAMES = ("SIGINT", "SIGHUP", "SIGTERM")
SIGNALS = [signal.Signals[name] for name in NAMES if name in signal.Signals.__members__]


def describe_end(number: int, command: str, given: Sequence[str]) -> str:
    """Say that a signal ended a command, and how to resume it."""
    cause = "interrupted" if number == signal.SIGINT else f"ended by {signal.Signals(number).name}"
    return f"\n{cause}. What is finished is kept; rerun the command to resume:\n  {_format_command(command, given)}"


def _format_command(command: str, given: Sequence[str]) -> str:
    """Return a line that runs the same command again from the same directory."""
    import shlex
    import shutil

    python = "python" if shutil.which("python") == sys.executable else sys.executable
    return shlex.join([python, "-m", *command.split(), *given])


def run_process(main: Callable[[], int], command: str) -> int:
    """Run a command as all that this process does, and return its exit status.

    A signal ends the process at once, with everything that it has started: a model's own code may not return, and
    Python would wait for its threads. Work is safe at any time, since files get their names when they are complete.

    Parameters
    ----------
    main : callable
        Imports and runs the command, and returns its exit status.
    command : str
        What ``python -m`` runs.
    """
    if os.name == "posix":
        _watch(command)
    return main()


def _watch(command: str) -> None:
    """Start the thread that ends the process, for the signals that nobody else handles or ignores, as nohup does."""
    import shlex  # noqa: F401
    import shutil  # noqa: F401  # for the last words: nothing can be imported in the middle of an import
    import threading

    mine = [number for number in SIGNALS if signal.getsignal(number) in (signal.SIG_DFL, signal.default_int_handler)]
    reader, writer = os.pipe()
    os.set_blocking(writer, False)

    def wait() -> None:
        number = 0
        while number not in mine or signal.getsignal(number) is not _leave_to_thread:
            [number] = os.read(reader, 1)
        _end(number, command)

    # The system writes the numbers of signals there, also while the main thread is in code that is not Python's.
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    for number in mine:
        signal.signal(number, _leave_to_thread)
    threading.Thread(target=wait, name="robustcmp-ending", daemon=True).start()


def _leave_to_thread(number: int, frame: FrameType | None) -> None:
    """Leave a signal to the thread that waits for it."""


def _end(number: int, command: str) -> NoReturn:
    """End this process, which is not unwound, and what it has started."""
    children = list(_list_children())
    text = describe_end(number, command, sys.argv[1:]) + "\n"
    with suppress(AttributeError, OSError, ValueError):  # standard error is closed, or the terminal is
        screen = sys.stderr.fileno()
        if os.isatty(screen):
            text = "\x1b[?25h" + text  # shows the cursor, which a table that is being drawn hides
        os.write(screen, text.encode())  # past locks that a thread may hold which hangs
    for child in children:
        with suppress(OSError):
            if os.getpgid(child) == child:
                os.killpg(child, signal.SIGKILL)
            else:
                os.kill(child, signal.SIGKILL)
    os._exit(128 + number)


def _list_children() -> Iterator[int]:
    """Yield the processes that this one has started, where the system has /proc; hosts see elsewhere that it ends."""
    with suppress(OSError):
        os.waitpid(-1, os.WNOHANG)  # an error where there are none: to look through /proc takes long on a busy machine
        for entry in os.listdir("/proc"):
            with suppress(OSError, ValueError), open(f"/proc/{int(entry)}/stat", "rb") as file:
                _, parent = file.read().rpartition(b")")[2].split()[:2]  # its name may hold anything
                if int(parent) == os.getpid():
                    yield int(entry)

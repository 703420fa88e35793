"""How a command ends when Ctrl-C or a signal asks it to: finished work is kept, and it takes a few seconds at most.

The first thing that a command's process loads: it imports next to nothing, so that an interrupt is handled while all
else is imported.
"""

from __future__ import annotations

import _thread
import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType
    from typing import NoReturn

SECONDS = 5.0  # from the first signal to the end of the process, whatever hangs
TWICE = 0.2  # seconds within which a signal is the same one sent twice, to the process and to its group
NAMES = ("SIGINT", "SIGHUP", "SIGTERM")
SIGNALS = [signal.Signals[name] for name in NAMES if name in signal.Signals.__members__]


class _Interrupted(KeyboardInterrupt):
    """A signal asks the process to end; all that minds Ctrl-C minds the others as well."""

    def __init__(self, number: int):
        super().__init__(signal.Signals(number).name)
        self.number = number


class _Ending:
    """What is known of the end of this process.

    Attributes
    ----------
    number : int
        The signal that asked for it first, 0 if none did.
    is_told : bool
        Whether the user knows.
    telling : lock
        Held by the thread that is telling.
    status : int or None
        The exit status, once there is nothing left to do but exit.
    watched : str
        The command, where a thread sees that the process ends.
    """

    number = 0
    is_told = False
    telling = _thread.allocate_lock()
    status: int | None = None
    watched = ""


_ending = _Ending()


def _interrupt(number: int, frame: FrameType | None) -> None:
    if _ending.status is not None:  # only Python's own end was under way
        os._exit(_ending.status)
    if _ending.number and (_ending.watched or number != signal.SIGINT):  # it is ending
        return
    _ending.number = _ending.number or number
    if _ending.watched and _imports(frame):
        _end(number, _ending.watched)
    raise _Interrupted(_ending.number)


def _imports(frame: FrameType | None) -> bool:
    """Say whether an import is under way; exceptions get lost there, and some extensions crash."""
    while frame is not None and frame.f_globals.get("__name__") != "importlib._bootstrap":
        frame = frame.f_back
    return frame is not None


def _handle() -> dict[signal.Signals, object]:
    """Handle the signals that nobody else handles or ignores (as nohup does), and return their handlers so far."""
    mine = [number for number in SIGNALS if signal.getsignal(number) in (signal.SIG_DFL, signal.default_int_handler)]
    return {number: signal.signal(number, _interrupt) for number in mine}


@contextmanager
def end_on_signals() -> Iterator[None]:
    """Let the first signal that asks this process to end raise `Interrupted` inside of a ``with`` block.

    It does so at the block's end where an import or a library made another error of it. In other threads than the main
    one, and for signals that are ignored or handled already, nothing changes.
    """
    try:
        before = _handle()
    except ValueError:  # another thread's signals are not its own
        before = {}
    try:
        yield
    except BaseException as error:
        if _ending.number and not isinstance(error, _Interrupted):
            raise _Interrupted(_ending.number) from None
        raise
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)  # type: ignore[arg-type]
        if before:
            vars(_ending).clear()


def report_interrupt(error: KeyboardInterrupt, command: str, given: Sequence[str]) -> int:
    """Tell the user that a command was interrupted and how to resume it, and return its exit status."""
    number = getattr(error, "number", signal.SIGINT)
    _tell(number, command, given)
    return 128 + int(number)


def _tell(number: int, command: str, given: Sequence[str]) -> None:
    if sys.stderr is None:
        return
    cause = "interrupted" if number == signal.SIGINT else f"ended by {signal.Signals(number).name}"
    lines = f"\n{cause}. What is finished is kept; rerun the command to resume:\n  {_format_command(command, given)}\n"
    with _ending.telling:  # two threads may want to say it
        if _ending.is_told:
            return
        with suppress(OSError, ValueError):  # a terminal that was closed
            sys.stderr.write(lines)  # as one, so that no progress bar of another thread gets between
            sys.stderr.flush()
        _ending.is_told = bool(_ending.watched)


def _format_command(command: str, given: Sequence[str]) -> str:
    """Return a line that runs the same command again from the same directory."""
    import shlex
    import shutil

    python = "python" if shutil.which("python") == sys.executable else sys.executable
    return shlex.join([python, "-m", *command.split(), *given])


def _import_for_last_words() -> None:
    """Import what `_format_command` needs, since nothing can be imported in the middle of an import."""
    import shlex  # noqa: F401
    import shutil  # noqa: F401


def run_process(main: Callable[[], int], command: str) -> int:
    """Run a command as all that this process does, and return its exit status.

    After an interrupt the process ends within `SECONDS`, at once after a second Ctrl-C, with everything that it has
    started: a model's own code may not return, and Python would wait for its threads. Work is safe at any time, since
    files get their names when they are complete.

    Parameters
    ----------
    main : callable
        Imports and runs the command, and returns its exit status.
    command : str
        What ``python -m`` runs.
    """
    try:
        _handle()
        _watch(command)
        _ending.status = main()
    except BaseException as error:
        if not _ending.number:
            if isinstance(error, SystemExit) and isinstance(error.code, int | None):  # after --help
                _ending.status = error.code or 0
            raise
    status = _ending.status
    if status is None or status == 128 + _ending.number:
        _end(_ending.number, command)
    return status


def _watch(command: str) -> None:
    """Start the thread that sees that the process ends."""
    if os.name != "posix":
        return
    import select
    import threading
    import time

    _import_for_last_words()

    reader, writer = os.pipe()
    os.set_blocking(writer, False)

    def wait() -> None:
        first = 0
        since = 0.0
        left = None
        while select.select([reader], [], [], left)[0]:
            [number] = os.read(reader, 1)
            if number not in SIGNALS or signal.getsignal(number) is not _interrupt:
                continue
            if first and number == signal.SIGINT and time.monotonic() - since > TWICE:
                break
            first = first or number
            since = since or time.monotonic()
            left = max(0.0, since + SECONDS - time.monotonic())
        _end(first, command)

    # The system writes the numbers of signals there, also while the main thread is in code that is not Python's.
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    threading.Thread(target=wait, name="robustcmp-ending", daemon=True).start()
    _ending.watched = command
    report = sys.unraisablehook
    sys.unraisablehook = lambda lost: None if isinstance(lost.exc_value, KeyboardInterrupt) else report(lost)


def _end(number: int, command: str) -> NoReturn:
    """End this process without waiting for anything, and what it has started.

    Nothing that was registered for Python's end is done. A machine that is busy with other things may give a process a
    hundredth of a core, and frameworks that are unloaded need a second of that.
    """
    import threading

    _import_for_last_words()  # at the very beginning it may take longer than the words are waited for

    status = 128 + number if _ending.status is None else _ending.status
    # A terminal may be stopped, or its lock be held by a thread that hangs.
    teller = threading.Thread(target=_last_words, args=(number, command), daemon=True)
    with suppress(RuntimeError):  # too late for another thread
        teller.start()
        teller.join(1)
    for child in _children():
        with suppress(OSError):
            if os.getpgid(child) == child:
                os.killpg(child, signal.SIGKILL)
            else:
                os.kill(child, signal.SIGKILL)
    os._exit(status)


def _last_words(number: int, command: str) -> None:
    if _ending.status in (None, 128 + number):  # else its work was done before
        _tell(number, command, sys.argv[1:])
    with suppress(Exception):
        if sys.stderr.isatty():
            print("\x1b[?25h", end="", file=sys.stderr, flush=True)  # which a table that is being drawn hides
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # on a busy machine, the main thread may get to close its bar now
    with suppress(Exception):
        sys.stdout.flush()


def _children() -> Iterator[int]:
    """Yield the processes that this one has started, where the system has /proc; hosts see elsewhere that it ends."""
    with suppress(OSError):
        os.waitpid(-1, os.WNOHANG)  # an error where there are none: to look through /proc takes long on a busy machine
        for entry in os.listdir("/proc"):
            with suppress(OSError, ValueError), open(f"/proc/{int(entry)}/stat", "rb") as file:
                _, parent = file.read().rpartition(b")")[2].split()[:2]  # its name may hold anything
                if int(parent) == os.getpid():
                    yield int(entry)

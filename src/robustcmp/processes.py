"""Child processes: started in sessions of their own, watched, and ended with all that they started."""

from __future__ import annotations

import faulthandler
import json
import math
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from multiprocessing.connection import Connection, Pipe
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from typing import IO, Any, NamedTuple

from .errors import UsageError

START = """
import json, sys
sys.path[:] = json.loads(sys.argv[3])
from robustcmp.processes import _call_target
_call_target(int(sys.argv[1]), sys.argv[2])
"""
LOOK_SECONDS = 0.2  # between two looks at the limits
TAIL = 2**16  # bytes at the end of the output that are searched for the reason of an end
LINES = 4  # of the output that a reason shows
GIB = 2**30


class Limits(NamedTuple):
    """What one task may take; None for no limit.

    Attributes
    ----------
    seconds : float, optional
        Of time.
    memory : float, optional
        Bytes of resident memory, of its process and all that this one started.
    """

    seconds: float | None = None
    memory: float | None = None

    def check(self) -> None:
        """Raise `UsageError` for limits that cannot be."""
        for name, value in (("group_seconds", self.seconds), ("group_memory", self.memory)):
            if value is not None and not 0 < value < math.inf:
                raise UsageError(f"{name} should be above 0, received {value}", parameters=[name])
        if self.memory is not None and not Path("/proc/self/statm").exists():
            raise UsageError("group_memory needs Linux: this system does not say how much memory a process uses")


class _Died(Exception):
    """A process ended, or was ended, before its work was done; the message says how."""


class Ended(NamedTuple):
    """A child's last message about a request: why it came to nothing, and whether the child refused it."""

    reason: str = ""
    is_refused: bool = False


class Process(subprocess.Popen[bytes]):
    """A program that runs beside this one, in a session of its own: Ctrl-C is for this process alone.

    Parameters
    ----------
    command : sequence of str
        The program and its arguments.
    environment : dict of str to str, optional
        Its variables (default: those of this process).
    descriptors : sequence of int
        Open files that it shares.
    stdin : open file, optional
        Where it reads from (default: nothing).
    errors : open file, optional
        Where its standard error goes (default: to its output).
    """

    def __init__(
        self,
        command: Sequence[str],
        environment: Mapping[str, str] | None = None,
        descriptors: Sequence[int] = (),
        stdin: IO[bytes] | None = None,
        errors: IO[bytes] | None = None,
    ):
        self.output = tempfile.TemporaryFile()  # noqa: SIM115, as long as the process
        try:
            super().__init__(
                command,
                stdin=stdin or subprocess.DEVNULL,
                stdout=self.output,
                stderr=errors or self.output,
                pass_fds=descriptors,
                start_new_session=True,
                env=environment,
            )
        except OSError:
            self.output.close()
            raise

    def kill(self) -> None:
        """End it with all that it started; any thread may do so."""
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)

    def close(self) -> None:
        """End it and forget its output."""
        self.kill()
        self.wait()
        self.output.close()

    def read_tail(self, most: int = TAIL) -> str:
        """Return the end of its output."""
        return _read_tail(self.output, most)

    def describe_end(self) -> str:
        """Return how it ended and what it wrote last."""
        try:
            status = self.wait(5)
        except subprocess.TimeoutExpired:  # it has closed its connection and lives on
            return "its process hung up."
        how = signal.Signals(-status).name if status < 0 else f"exit status {status}"
        text = _last_lines(self.read_tail())
        return f"its process ended by {how}." + (f" It wrote last: {text}" if text else "")


def run(
    command: Sequence[str], *, seconds: float | None = None, content: bytes = b"", descriptors: Sequence[int] = ()
) -> tuple[int, str, str]:
    """Run a program to its end; return its exit status, and the ends of its output and of its standard error.

    Parameters
    ----------
    command : sequence of str
        The program and its arguments.
    seconds : float, optional
        How long it may take; `subprocess.TimeoutExpired` is raised after that.
    content : bytes
        What it reads from its standard input.
    descriptors : sequence of int
        Open files that it shares.
    """
    with tempfile.TemporaryFile() as stdin, tempfile.TemporaryFile() as errors:
        stdin.write(content)
        stdin.seek(0)
        process = Process(command, descriptors=descriptors, stdin=stdin, errors=errors)
        try:
            return process.wait(seconds), process.read_tail(), _read_tail(errors)
        finally:
            process.close()


def _read_tail(file: IO[bytes], most: int = TAIL) -> str:
    file.seek(max(0, file.seek(0, os.SEEK_END) - most))
    return file.read().decode("utf-8", "replace")


def start_child(target: str, environment: Mapping[str, str] | None = None) -> tuple[Process, Connection[Any, Any]]:
    """Start Python with a function, ``"module:function"``, that is called with a connection to this process."""
    ours, theirs = Pipe()
    with theirs:
        descriptor = theirs.fileno()
        command = [sys.executable, "-c", START, str(descriptor), target, json.dumps(sys.path)]
        return Process(command, environment, [descriptor]), ours


def _call_target(descriptor: int, target: str) -> None:
    """Call a child's function with its connection."""
    faulthandler.enable(all_threads=False)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # its parent says when it ends
    module, _, name = target.partition(":")
    getattr(import_module(module), name)(Connection(descriptor))


class Child:
    """A process that answers requests one after another, started when it is first needed and anew after it died.

    Parameters
    ----------
    target : str
        The function that it calls, see `start_child`: it receives requests and sends messages, of which `Ended` is the
        last for each.
    limits : Limits
        For each request.
    environment : dict of str to str, optional
        Its variables (default: those of this process).
    """

    def __init__(self, target: str, limits: Limits, environment: Mapping[str, str] | None = None):
        self._target = target
        self._limits = limits
        self._environment = environment
        self._process: Process | None = None
        self._connection: Connection[Any, Any]

    def start(self) -> Process:
        """Return its process, which is started if there is none."""
        if self._process is not None and self._process.poll() is not None:
            self.close()  # it was long idle, or killed
        if self._process is None:
            self._process, self._connection = start_child(self._target, self._environment)
        return self._process

    def request(self, content: Any) -> Iterator[Any]:
        """Send a request, and yield the messages that come back; the last one is `Ended`.

        It is made here where the process ended before that, or reached a limit and was ended.
        """
        process = self.start()
        begun = time.monotonic()
        message = None
        try:
            self._send(process, content)
            while not isinstance(message, Ended):
                message = self._receive(process, begun)
                yield message
        except _Died as death:
            yield Ended(str(death))
        finally:
            if not isinstance(message, Ended):  # it is in the middle of something
                self.close()

    def _send(self, process: Process, content: Any) -> None:
        packed = ForkingPickler.dumps(content)
        try:
            self._connection.send_bytes(packed)
        except OSError:
            raise _Died(process.describe_end()) from None

    def _receive(self, process: Process, begun: float) -> Any:
        while not self._connection.poll(LOOK_SECONDS):
            if excess := self._excess(process, begun):
                raise _Died(excess)
        try:
            message = self._connection.recv()
        except (EOFError, OSError):
            raise _Died(process.describe_end()) from None
        if excess := self._excess(process, begun):  # also of one that talks all the time
            raise _Died(excess)
        return message

    def _excess(self, process: Process, begun: float) -> str:
        """Return which limit is exceeded, "" if none is."""
        seconds, memory = self._limits
        if seconds is not None and time.monotonic() - begun > seconds:
            return f"it took longer than the {seconds:g} s that a group may take, loading its model included."
        if memory is not None and (resident := _resident_memory(process.pid)) > memory:
            return f"it held {resident / GIB:.2f} GiB, more than the {memory / GIB:.2f} GiB that a group may hold."
        return ""

    def kill(self) -> None:
        """End the process; another thread may wait for its messages meanwhile."""
        if (process := self._process) is not None:
            process.kill()

    def close(self) -> None:
        """End the process, if there is one."""
        if self._process is not None:
            process = self._process
            self._process = None
            self._connection.close()
            process.close()


def _last_lines(text: str) -> str:
    """Return the last lines of an output as one, or those in which Python says how and where it crashed."""
    text = text.partition("\nExtension modules:")[0]  # hundreds of names, at the end of a crash
    crash = text.rfind("Fatal Python error")
    lines = [line.strip() for line in text[max(crash, 0) :].splitlines() if line.strip()]
    shown = lines[:LINES] if crash >= 0 else lines[-LINES:]
    return "".join(letter if letter.isprintable() else " " for letter in " | ".join(shown))


def _resident_memory(pid: int) -> int:
    """Return how many bytes a process and all that it started hold in memory; 0 if it is gone."""
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
        children = [pid for path in Path(f"/proc/{pid}/task").glob("*/children") for pid in path.read_text().split()]
    except OSError:
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE") + sum(_resident_memory(int(child)) for child in children)

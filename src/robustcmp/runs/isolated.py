"""Groups in processes of their own, one for each framework: what ends such a process ends one group and no other."""

from __future__ import annotations

import json
import logging
import math
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from itertools import groupby
from multiprocessing.connection import Connection, Pipe
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from typing import IO, Any, NamedTuple

from ..errors import ModelError, UsageError
from .child import Asked, End, Message, Raised, Refused, Wanted
from .executor import Failed, Finished, InProcess
from .plan import Plan, Task
from .progress import Progress
from .trial import Trial, process_of
from .work import Packer, Timed, Work

START = """
import json, sys
sys.path[:] = json.loads(sys.argv[2])
from robustcmp.runs.child import main
main(int(sys.argv[1]))
"""
LOOK_SECONDS = 0.2  # between two looks at the limits
TAIL = 2**16  # bytes at the end of what a process wrote that are looked at, and
LINES = 4  # lines of them that a reason shows
GIB = 2**30

_log = logging.getLogger("robustcmp")


class Limits(NamedTuple):
    """What one group may take; None for no limit.

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
            raise UsageError("group_memory needs Linux: this system does not say what a process holds")


class Died(Exception):
    """A process ended, or was ended, before its work was done."""


class Child:
    """A process that does works, started when it is first needed and anew after it died.

    Parameters
    ----------
    limits : Limits
        For each work.
    environment : dict of str to str, optional
        Its variables; those of this process if nothing is said.
    """

    def __init__(self, limits: Limits, environment: Mapping[str, str] | None = None):
        self._limits, self._environment = limits, environment
        self._process: subprocess.Popen[bytes] | None = None
        self._connection: Connection[Any, Any]
        self._output: IO[bytes]

    def messages(self, work: Work | Trial, luggage: Mapping[str, Any], at_once: int | None) -> Iterator[Message]:
        """Yield what it says while it does a work, which it gets from the luggage; the last is how it ended.

        Raises
        ------
        Died
            The process ended before it said so, or reached a limit and was ended; the message says how.
        """
        if self._process is not None and self._process.poll() is not None:
            self.close()  # it was long idle, or killed
        if self._process is None:
            self._start()
        begun, whole = time.monotonic(), False
        try:
            self._send((work, at_once), begun)
            while not whole:
                message = self._received(begun)
                if isinstance(message, Wanted):
                    self._send(luggage.get(message.sha), begun)
                    continue
                whole = isinstance(message, End)
                yield message
        finally:
            if not whole:  # it is in the middle of something
                self.close()

    def _start(self) -> None:
        self._output = tempfile.TemporaryFile()  # noqa: SIM115, as long as the process
        self._connection, theirs = Pipe()
        with theirs:
            arguments = [str(theirs.fileno()), json.dumps(sys.path)]
            self._process = subprocess.Popen(
                [sys.executable, "-c", START, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=self._output,
                stderr=self._output,
                pass_fds=[theirs.fileno()],
                start_new_session=True,  # Ctrl-C is for this process
                env=self._environment,
            )

    def _send(self, content: Any, begun: float) -> None:
        """Send something, and end the process if it reaches a limit meanwhile: one that is stopped takes nothing."""
        packed = ForkingPickler.dumps(content)
        ended: list[OSError] = []

        def send() -> None:
            try:
                self._connection.send_bytes(packed)
            except OSError as error:
                ended.append(error)

        sender = threading.Thread(target=send, name="robustcmp sender", daemon=True)
        sender.start()
        while sender.is_alive():
            sender.join(LOOK_SECONDS)
            if sender.is_alive() and (reached := self._reached(begun)):
                self.kill()  # which ends the sending
                sender.join()
                raise Died(reached)
        if ended:
            raise Died(self._death())

    def _received(self, begun: float) -> Message:
        """Wait for a message, and end the process if it reaches a limit."""
        while not self._connection.poll(LOOK_SECONDS):
            if reached := self._reached(begun):
                raise Died(reached)
        try:
            message: Message = self._connection.recv()
        except (EOFError, OSError):
            raise Died(self._death()) from None
        if reached := self._reached(begun):  # also one that talks all the time
            raise Died(reached)
        return message

    def _reached(self, begun: float) -> str:
        """Say which limit is reached, if one is."""
        seconds, memory = self._limits
        if seconds is not None and time.monotonic() - begun > seconds:
            return f"it took longer than the {seconds:g} s that a group may take, loading its model included."
        if memory is not None and self._process and (held := resident(self._process.pid)) > memory:
            return f"it held {held / GIB:.2f} GiB, more than the {memory / GIB:.2f} GiB that a group may hold."
        return ""

    def _death(self) -> str:
        """Return how the process ended, and what it wrote last."""
        assert self._process is not None
        try:
            status = self._process.wait(5)
        except subprocess.TimeoutExpired:  # it has closed the connection and lives on
            return "its process hung up."
        return death(status, self._output)

    def kill(self) -> None:
        """End the process; may be called while another thread waits for its messages."""
        if (process := self._process) is not None:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)

    def close(self) -> None:
        """End the process, with all that it started."""
        if self._process is None:
            return
        self.kill()
        process, self._process = self._process, None
        self._connection.close()
        process.wait()
        self._output.close()


def death(status: int, output: IO[bytes]) -> str:
    """Say how a process ended, and what it wrote last, from its status and its output."""
    how = signal.Signals(-status).name if status < 0 else f"exit status {status}"
    output.seek(max(0, output.seek(0, os.SEEK_END) - TAIL))
    wrote = last_lines(output.read().decode("utf-8", "replace"))
    return f"its process ended by {how}." + (f" It wrote last: {wrote}" if wrote else "")


def last_lines(text: str) -> str:
    """Return what a process wrote last in a line: where Python says that it crashed, how and where."""
    text = text.partition("\nExtension modules:")[0]  # hundreds of names, at the end of a crash
    crash = text.rfind("Fatal Python error")
    lines = [line.strip() for line in text[max(crash, 0) :].splitlines() if line.strip()]
    some = lines[:LINES] if crash >= 0 else lines[-LINES:]
    return "".join(letter if letter.isprintable() else " " for letter in " | ".join(some))


def resident(pid: int) -> int:
    """Return how many bytes a process and all that it started hold in memory; 0 if it is gone."""
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
        started = [child for path in Path(f"/proc/{pid}/task").glob("*/children") for child in path.read_text().split()]
    except OSError:
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE") + sum(resident(int(child)) for child in started)


def try_out(trials: Iterable[Trial], limits: Limits, progress: Progress) -> None:
    """Try models in a process for each framework, before they are loaded in this one.

    Raises
    ------
    ModelError
        A model ended its process, or reached a limit.
    """
    for _, alike in groupby(trials, process_of):
        child = Child(limits)
        try:
            for trial in alike:
                for _ in child.messages(trial, {}, None):
                    pass
                progress.step()
        except Died as death:
            raise ModelError(
                f"the model {trial.label} ({trial.origin.source}) could not be loaded and asked in a process of its "
                f"own, and nothing was begun. Mend the model, or leave it out. What came: {death}"
            ) from None
        finally:
            child.close()


class Isolated:
    """One group after the other, in a process for each framework; each uses all cores.

    A process that dies, hangs, or reaches a limit is one group's failure (`Evaluation.failed`), as is an exception, and
    is started anew for the next group. Models travel as what they are loaded from. One that was passed itself, and an
    attack that cannot be imported, is done in the process of the comparison, where an exception ends all.

    A model that is not the zoo's is tried in such a process before this one loads it. If it does not survive that,
    `evaluate` ends with a `ModelError` before any work.

    Parameters
    ----------
    group_seconds : float, optional
        How long a group (a model under an attack, in all missing repeats) may take, its model's loading included.
    group_memory : float, optional
        How many bytes of memory its process may hold; looked at five times a second. Linux only.

    Raises
    ------
    UsageError
        A limit is not above 0, or this system does not say how much memory a process holds.
    """

    def __init__(self, *, group_seconds: float | None = None, group_memory: float | None = None):
        self.limits = Limits(group_seconds, group_memory)
        self.limits.check()

    def execute(
        self, plan: Plan, tasks: Iterable[Task], asked: Callable[[str, int], object]
    ) -> Iterator[Finished | Failed]:
        """Yield each cell of the tasks with its result and its costs, or why a task failed, in their order."""
        packer, children, different = Packer(plan), dict[str, Child](), set[tuple[str, int]]()
        try:
            for task in tasks:
                work = packer.work(task)
                if work is None or task.model in different:
                    yield from InProcess().execute(plan, [task], asked)
                    continue
                child = children.setdefault(work.frameworks[0], Child(self.limits))
                heard = partial(asked, task.attack)
                cells = iter(task.cells)
                try:
                    for message in child.messages(work, packer.luggage, None):
                        if isinstance(message, Asked):
                            heard(message.queries)
                        elif isinstance(message, Timed):
                            yield Finished(next(cells), *message, worker=work.frameworks[0])
                        elif isinstance(message, Raised):
                            yield Failed(task, message.reason, work.frameworks[0])
                        elif isinstance(message, Refused):
                            different.add(task.model)
                            _log.warning("%s/%s stays in this process: in another, %s", *task.model, message.reason)
                            yield from InProcess().execute(plan, [task], asked)
                except Died as death:
                    yield Failed(task, str(death), work.frameworks[0])
        finally:
            for child in children.values():
                child.close()

"""A host's process: started on demand, asked one thing at a time, and never left behind."""

from __future__ import annotations

import mmap
import os
import socket
import subprocess
import threading
import weakref
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from numpy.typing import NDArray

from ..errors import HostError
from ..processes import Process
from .protocol import MEMORY, MEMORY_SIZE, Channel, Closed, ProtocolError
from .variables import select_variables

Arrays = dict[str, NDArray[Any]]
Answer = tuple[dict[str, Any], Arrays]
START_SECONDS = 300.0  # frameworks take long to import, most of all the first time and beside other work
CALL_SECONDS = 1800.0  # Theano compiles in its first calls
TAIL = 2000  # characters of standard error that an error shows
MOST_OUTPUT = 2**24  # bytes of what it prints that are kept


class HostProcess:
    """A child process that answers the calls of `robustcmp.hosts.protocol`.

    Parameters
    ----------
    name : str
        What it is called in errors.
    command : sequence of str
        What starts it; the number of its socket is added at the end.
    environment : dict of str to str, optional
        Variables beside those of this process that `robustcmp.hosts.variables` selects.
    start_seconds, call_seconds : float, optional
        How long it may take to greet, and to answer.

    Attributes
    ----------
    greeting : dict
        What it said of itself: framework, version, differences, python, numpy.

    Raises
    ------
    HostError
        It cannot be started, or does not greet in time.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        environment: dict[str, str] | None = None,
        start_seconds: float = START_SECONDS,
        call_seconds: float = CALL_SECONDS,
    ):
        self.name = name
        self._seconds = call_seconds
        self._one_at_a_time = threading.Lock()
        self._unused: deque[int] = deque()
        ours, theirs = socket.socketpair()
        try:
            with theirs, _share_memory() as (memory, variables, files):
                self._process = Process(
                    [*command, str(theirs.fileno())],
                    {**select_variables(os.environ), **(environment or {}), **variables},
                    [theirs.fileno(), *files],
                )
        except OSError as error:
            ours.close()
            raise HostError(f"the host {name} cannot be started: {error}") from None
        self._channel = Channel(ours)
        self.close = weakref.finalize(self, _end, self._channel, self._process)
        self.greeting, _ = self._converse("greet", start_seconds)
        if self.greeting.get("shares_memory") is True:
            self._channel.memory = memory

    @property
    def alive(self) -> bool:
        """Whether it can be asked."""
        return bool(self.close.alive) and self._process.poll() is None

    def call(self, call: str, arrays: Arrays | None = None, **content: Any) -> Answer:
        """Ask one thing and return the answer.

        Raises
        ------
        HostError
            It raised an error; or it died, answered no message, or not in time, and was ended.
        """
        with self._one_at_a_time:
            while self._unused:
                self._ask("forget", None, of=self._unused.popleft())
            return self._ask(call, arrays, **content)

    def forget(self, number: int) -> None:
        """Let it forget a network or a trainer before the next call; may be called while another call is under way."""
        self._unused.append(number)

    def _ask(self, call: str, arrays: Arrays | None, **content: Any) -> Answer:
        answer, answered = self._converse(f"answer {call}", self._seconds, {"call": call, **content}, arrays)
        output = self._process.output.fileno()
        if os.fstat(output).st_blocks * 512 > MOST_OUTPUT:
            os.ftruncate(output, 0)  # it goes on where it was; what lies before takes no room
        if "error" in answer:
            full = bool(answer.get("out_of_memory"))
            raise HostError(f"the host {self.name} failed in {call}: {answer['error']}", out_of_memory=full)
        return answer, answered

    def _converse(
        self,
        task: str,
        seconds: float,
        question: dict[str, Any] | None = None,
        arrays: Arrays | None = None,
    ) -> Answer:
        """Send a question, if there is one, and return the next message."""
        died = False
        try:
            if question is not None:
                self._channel.send(question, arrays, seconds)
            return self._channel.receive(seconds)
        except Closed:
            died = True
            reason = f"died and did not {task}"
        except TimeoutError:
            reason = f"did not {task} within {seconds:g} seconds"
        except ProtocolError as error:
            reason = f"did not {task} as it should: {error}"
        except BaseException:  # an interrupt between question and answer: the next answer would be this one's
            self.close()
            raise
        tail = self.close()
        last = f" It wrote last:\n{tail}" if tail else " It wrote nothing."
        status = f" (exit status {self._process.poll()})" if died else ""
        raise HostError(f"the host {self.name} {reason}{status}.{last}")


@contextmanager
def _share_memory() -> Iterator[tuple[mmap.mmap | None, dict[str, str], list[int]]]:
    """Memory that a child can map, the variables that tell it so, and the files that it needs for that."""
    if not hasattr(os, "memfd_create"):  # a file elsewhere may lie on a disk, which may be full
        yield None, {}, []
        return
    file = os.memfd_create("robustcmp")
    try:
        os.ftruncate(file, MEMORY_SIZE)
        yield mmap.mmap(file, MEMORY_SIZE), {MEMORY: str(file)}, [file]
    finally:
        os.close(file)


def _end(channel: Channel, process: Process) -> str:
    """Hang up, which ends a host, see that it ends with all that it started, and return what it wrote last."""
    channel.close()
    with suppress(subprocess.TimeoutExpired):
        process.wait(2)
    process.kill()
    process.wait()
    text = process.read_tail(TAIL).strip("\0").strip()
    process.close()
    return text

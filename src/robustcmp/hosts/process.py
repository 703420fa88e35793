"""A host's process: started on demand, asked one thing at a time, and never left behind."""

from __future__ import annotations

import math
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

from ..errors import HostError, UsageError
from ..processes import Process
from .protocol import MEMORY, MEMORY_SIZE, VERSION, Channel, Closed, ProtocolError
from .variables import passed_on

START_SECONDS = 300.0  # frameworks take long to import, most of all the first time and beside other work
CALL_SECONDS = 1800.0  # Theano compiles in its first calls
SECONDS = "ROBUSTCMP_HOST_SECONDS"  # the variable that has another number of seconds for a call
GREETING = ("framework", "version", "python", "numpy")  # texts; and differences, texts by name
TAIL = 2000  # characters of standard error that an error shows
MOST_OUTPUT = 2**24  # bytes of what it prints that are kept
LONGEST = 1e9  # seconds that may be waited for


class HostProcess:
    """A child process that answers the calls of `robustcmp.hosts.protocol`.

    Parameters
    ----------
    name : str
        What it is called in errors.
    command : sequence of str
        What starts it; the number of its socket is added at the end.
    environment : dict of str to str, optional
        Variables beside those of this process that `robustcmp.hosts.variables` passes on.
    start_seconds, call_seconds : float, optional
        How long it may take to greet, and to answer: ``$ROBUSTCMP_HOST_SECONDS`` or half an hour if nothing is said.

    Attributes
    ----------
    greeting : dict
        What it said of itself: framework, version, differences, python, numpy.

    Raises
    ------
    HostError
        It cannot be started, does not greet in time, or speaks another version of the protocol.
    UsageError
        The variable is no number of seconds.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        environment: dict[str, str] | None = None,
        start_seconds: float = START_SECONDS,
        call_seconds: float | None = None,
    ):
        self.name = name
        self._seconds = _patience() if call_seconds is None else call_seconds
        self._one_at_a_time = threading.Lock()
        self._unused: deque[int] = deque()
        ours, theirs = socket.socketpair()
        try:
            with theirs, _shared() as (memory, variables, files):
                self._process = Process(
                    [*command, str(theirs.fileno())],
                    {**passed_on(os.environ), **(environment or {}), **variables},
                    [theirs.fileno(), *files],
                )
        except OSError as error:
            ours.close()
            raise HostError(f"the host {name} cannot be started: {error}") from None
        self._channel = Channel(ours)
        self.close = weakref.finalize(self, _end, self._channel, self._process)
        self._died = False
        try:
            self.greeting, _ = self._received(start_seconds, "greet")
        except BaseException:
            self.close()
            raise
        if self.greeting.get("protocol") != VERSION:
            self.close()
            raise HostError(
                f"the host {name} speaks version {self.greeting.get('protocol')} of the protocol, expected {VERSION}. "
                "A host's file should end with serve() of the protocol module next to it."
            )
        differences = self.greeting.get("differences")
        texts = list(differences.values()) if isinstance(differences, dict) else [None]
        wrong = [key for key in GREETING if not isinstance(self.greeting.get(key), str)]
        wrong += ["differences"] * (not all(isinstance(text, str) for text in texts))
        if wrong:
            self.close()
            raise HostError(
                f"the greeting of the host {name} should have text values, and differences as texts by name; received "
                + ", ".join(f"{key} {self.greeting.get(key)!r}" for key in wrong)
            )
        if self.greeting.get("shares_memory") is True:
            self._channel.memory = memory

    @property
    def pid(self) -> int:
        """The process's number."""
        return self._process.pid

    @property
    def alive(self) -> bool:
        """Whether it can be asked."""
        return bool(self.close.alive) and self._process.poll() is None

    @property
    def died(self) -> bool:
        """Whether it ended by itself."""
        return self._died or (bool(self.close.alive) and self._process.poll() is not None)

    def call(
        self, call: str, arrays: dict[str, NDArray[Any]] | None = None, **content: Any
    ) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Ask one thing and return the answer.

        Raises
        ------
        HostError
            It raised an error; or it died, answered no message, or not in time, and was ended.
        """
        with self._one_at_a_time:
            while self._unused:
                self._asked("forget", None, of=self._unused.popleft())
            return self._asked(call, arrays, **content)

    def forget(self, number: int) -> None:
        """Let it forget a network or a trainer before the next call; may be called while another call is under way."""
        self._unused.append(number)

    def _asked(
        self, call: str, arrays: dict[str, NDArray[Any]] | None, **content: Any
    ) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        try:
            self._channel.send({"call": call, **content}, arrays, self._seconds)
            answer, answered = self._received(
                self._seconds, f"answer {call}", f" ({SECONDS} sets how long it may take)"
            )
        except Closed:
            raise self._ended(f"died before {call}", died=True) from None
        except TimeoutError:
            raise self._ended(
                f"did not take {call} within {self._seconds:g} seconds ({SECONDS} sets how long it may take)"
            ) from None
        except ProtocolError as error:
            raise HostError(f"the host {self.name} cannot run {call}: {error}") from None
        except HostError:
            raise
        except BaseException:  # an interrupt between question and answer: the next answer would be this one's
            self.close()
            raise
        output = self._process.output.fileno()
        if os.fstat(output).st_blocks * 512 > MOST_OUTPUT:
            os.ftruncate(output, 0)  # it goes on where it was; what lies before takes no room
        if "error" in answer:
            full = bool(answer.get("out_of_memory"))
            raise HostError(f"the host {self.name} failed in {call}: {answer['error']}", out_of_memory=full)
        return answer, answered

    def _received(self, seconds: float, what: str, hint: str = "") -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        try:
            return self._channel.receive(seconds)
        except Closed:
            raise self._ended(f"died and did not {what}", died=True) from None
        except TimeoutError:
            raise self._ended(f"did not {what} within {seconds:g} seconds{hint}") from None
        except ProtocolError as error:
            raise self._ended(f"did not {what} as it should: {error}") from None

    def _ended(self, what: str, died: bool = False) -> HostError:
        """End the process and return the error that says why."""
        tail = self.close()
        self._died = died
        last = f" It wrote last:\n{tail}" if tail else " It wrote nothing."
        status = f" (exit status {self._process.poll()})" if died else ""
        return HostError(f"the host {self.name} {what}{status}.{last}", died=died)


def _patience() -> float:
    """Return how many seconds a call may take."""
    given = os.environ.get(SECONDS)
    try:
        seconds = CALL_SECONDS if given is None else float(given)
    except ValueError:
        seconds = math.nan
    if not 0 < seconds <= LONGEST:
        raise UsageError(f"{SECONDS} should be a number of seconds above 0, at most {LONGEST:g}, received {given!r}")
    return seconds


@contextmanager
def _shared() -> Iterator[tuple[mmap.mmap | None, dict[str, str], list[int]]]:
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

"""The process that does works for another one, over a connection: `robustcmp.runs.isolated` has the other end."""

from __future__ import annotations

import faulthandler
import os
import queue
import signal
import threading
import time
import traceback
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

from ..errors import RobustcmpError
from .trial import Trial
from .work import Bench, Other, Timed, Work

TELL_SECONDS = 0.2  # between two messages about what was asked
IDLE_SECONDS = 1800  # after which a process that nobody needs ends itself


class Asked(NamedTuple):
    """So many queries more were asked."""

    queries: int


class Wanted(NamedTuple):
    """Arrays or a file of this digest are wanted; the answer is None if they are not at the other end."""

    sha: str


class Lacking(NamedTuple):
    """The work needs what was not at the other end; what it got stays here."""

    sha: str


class Refused(NamedTuple):
    """The model is not the same here."""

    reason: str


class Raised(NamedTuple):
    """The work ended with an error."""

    reason: str


class Done(NamedTuple):
    """The work is done."""


End = Done | Lacking | Refused | Raised
Message = Asked | Wanted | Timed | End


class _Missing(Exception):
    """What is wanted is not at the other end."""


class _Teller:
    """Tells of queries now and then; called from several threads."""

    def __init__(self, connection: Connection[Any, Any]):
        self._connection, self._lock = connection, threading.Lock()
        self._queries, self._told = 0, time.monotonic()

    def asked(self, queries: int) -> None:
        """Tell of queries, and at once of none, which says that the model is ready."""
        with self._lock:
            self._queries += queries
            if not queries or time.monotonic() - self._told > TELL_SECONDS:
                self._tell()

    def send(self, message: Message) -> None:
        with self._lock:
            if self._queries:
                self._tell()
            self._connection.send(message)

    def _tell(self) -> None:
        self._connection.send(Asked(self._queries))
        self._queries, self._told = 0, time.monotonic()


def main(descriptor: int) -> None:
    """Do works until the other end hangs up, which ends this process also in the middle of one."""
    faulthandler.enable(all_threads=False)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # who started it says when it ends
    connection: Connection[Any, Any] = Connection(descriptor)
    inbox: queue.SimpleQueue[Any] = queue.SimpleQueue()
    threading.Thread(target=_receive, args=(connection, inbox), daemon=True).start()
    teller = _Teller(connection)

    def fetch(sha: str) -> Any:
        teller.send(Wanted(sha))
        content = inbox.get()
        if content is None:
            raise _Missing(sha)
        return content

    bench = Bench(fetch)
    while True:
        try:
            work, at_once = inbox.get(timeout=IDLE_SECONDS)
        except queue.Empty:
            return
        teller.send(_done(bench, work, at_once, teller))


def _receive(connection: Connection[Any, Any], inbox: queue.SimpleQueue[Any]) -> None:
    try:
        while True:
            inbox.put(connection.recv())
    except (EOFError, OSError):
        os._exit(0)
    except Exception:  # what came needs a module that is not here; nobody else would say so
        traceback.print_exc()
        os._exit(1)


def _done(bench: Bench, work: Work | Trial, at_once: int | None, teller: _Teller) -> End:
    """Do a work, or a trial, and return how it ended."""
    try:
        if isinstance(work, Trial):
            work.run()
            return Done()
        for timed in bench.outcomes(work, at_once, teller.asked):
            teller.send(timed)
    except _Missing as error:
        return Lacking(str(error))
    except Other as error:
        return Refused(str(error))
    except Exception as error:  # whatever a model raises is about this work alone
        return Raised(str(error) if isinstance(error, RobustcmpError) else f"{type(error).__name__}: {error}")
    return Done()

"""One measurement: a process is started for it, watched, and its answer read. It is never left behind."""

from __future__ import annotations

import os
import threading
import time
from contextlib import suppress
from datetime import UTC, datetime
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

from ..processes import Process, start_child
from ..threads import processors
from .child import Answer, Job, Request
from .machine import LOOK_SECONDS, Watch, load, waited_children
from .measurement import Resources
from .outcome import NotApplicable, Outcome


class Failure(Exception):
    """A process measured nothing; the message says why."""


class Done(NamedTuple):
    """A process that has ended, what it measured of itself, and what was seen of it."""

    outcome: Outcome
    resources: Resources
    began: str
    seconds: float
    ready_seconds: float
    load_before: float | None
    load_after: float | None


def run(job: Job, threads: int) -> Done:
    """Do a job in a process of its own with so many threads.

    Raises
    ------
    Failure
        It raised an error, or died.
    NotApplicable
        There is no such thing to measure.
    """
    on = processors()[:threads]
    before, moment, began = load(), datetime.now(UTC).isoformat(timespec="seconds"), time.monotonic()
    with waited_children() as cpu_seconds:
        environment = os.environ | {"OMP_NUM_THREADS": str(threads)}
        process, connection = start_child(f"{__package__}.child:measure", environment)
        try:
            watch = Watch(process.pid, began, on)
            answers: list[Answer] = []
            ended = _await_answer(process, connection, Request(job, on), answers)
            next_look = began + LOOK_SECONDS
            while not ended.wait(max(0.0, next_look - time.monotonic())):
                watch.look()
                next_look = max(next_look + LOOK_SECONDS, time.monotonic())
            seconds = time.monotonic() - began
            resources = watch.ended(cpu_seconds())
            if not answers:
                raise Failure(process.describe_end())
        finally:
            connection.close()
            process.close()
    answer = answers[0]
    if not answer.applicable:
        raise NotApplicable(answer.error)
    if answer.error:
        raise Failure(answer.error)
    return Done(answer.outcome or Outcome(), resources, moment, seconds, max(0.0, answer.ready - began), before, load())


def _await_answer(
    process: Process, connection: Connection[Any, Any], request: Request, answers: list[Answer]
) -> threading.Event:
    """Return what is set when a process has ended; a wait with a timeout would poll, which costs as much as a look."""
    ended = threading.Event()

    def wait() -> None:
        with suppress(EOFError, OSError):  # it died
            connection.send(request)
            answers.append(connection.recv())
        process.wait()
        ended.set()

    threading.Thread(target=wait, daemon=True).start()
    return ended

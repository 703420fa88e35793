"""One measurement: a process is started for it, watched, and its answer read. It is never left behind."""

from __future__ import annotations

import os
import threading
import time
from contextlib import suppress
from datetime import UTC, datetime
from multiprocessing.connection import Connection
from typing import Any

from ..processes import start_child
from ..threads import processors
from .jobs import NotApplicable, PredictionJob, TrainingJob
from .machine import LOOK_SECONDS, Watch

Job = TrainingJob | PredictionJob


class Failure(Exception):
    """A process measured nothing; the message says why."""


def run(job: Job, threads: int) -> dict[str, Any]:
    """Do a job in a process of its own with so many threads, and return fields of a `Measurement`, or logits.

    Raises
    ------
    Failure
        It raised an error, or died.
    NotApplicable
        There is no such thing to measure.
    """
    began = datetime.now(UTC).isoformat(timespec="seconds")
    chosen = processors()[:threads]
    start = time.monotonic()
    answers: list[tuple[Any, float]] = []
    process, connection = start_child(f"{__name__}:measure", os.environ | {"OMP_NUM_THREADS": str(threads)})
    try:
        watch = Watch(process.pid, start, chosen)
        has_ended = threading.Event()  # a wait with a timeout would poll, which costs as much as a look

        def wait() -> None:
            with suppress(EOFError, OSError):  # it died
                connection.send((job, chosen))
                answers.append(connection.recv())
            process.wait()
            has_ended.set()

        threading.Thread(target=wait, daemon=True).start()
        next_look = start + LOOK_SECONDS
        while not has_ended.wait(max(0.0, next_look - time.monotonic())):
            watch.look()
            next_look = max(next_look + LOOK_SECONDS, time.monotonic())
        seconds = time.monotonic() - start
        resources = watch.finish()
        result, ready = answers[0] if answers else (Failure(process.describe_end()), start)
    finally:
        connection.close()
        process.close()
    if isinstance(result, Exception):
        raise result
    fields: dict[str, Any] = {
        "threads": threads,
        "resources": resources,
        "began": began,
        "seconds": round(seconds, 6),
        "ready_seconds": round(max(0.0, ready - start), 6),
    }
    fields.update(result)
    return fields


def measure(connection: Connection[Any, Any]) -> None:
    """Receive a job with its processors, and send what came of it and when it was ready: what the process does."""
    job, chosen = connection.recv()
    if chosen:  # frameworks differ in which variables they heed, and none can leave these
        os.sched_setaffinity(0, chosen)
    moments = [time.monotonic()]
    result: dict[str, Any] | NotApplicable | Failure
    try:
        result = job.do(lambda: moments.append(time.monotonic()))
    except NotApplicable as reason:
        result = reason
    except Exception as error:
        result = Failure(f"{type(error).__name__}: {error}")
    connection.send((result, moments[-1]))

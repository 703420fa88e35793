"""One measurement: a process is started for it, watched, and its answer read. It is never left behind."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from typing import IO, NamedTuple

import msgspec

from ..runs.isolated import death
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
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as errors, waited_children() as cpu_seconds:
        with _started(threads, out, errors) as process:
            watch = Watch(process.pid, began, on)
            assert process.stdin is not None
            with suppress(BrokenPipeError):  # it has died, which is seen below
                process.stdin.write(pickle.dumps(Request(job, on)))
                process.stdin.close()
            next_look, ended = began + LOOK_SECONDS, _end_of(process)
            while not ended.wait(max(0.0, next_look - time.monotonic())):
                watch.look()
                next_look = max(next_look + LOOK_SECONDS, time.monotonic())
        seconds = time.monotonic() - began
        resources = watch.ended(cpu_seconds())
        answer = _answer(process, out, errors)
    return Done(answer.outcome or Outcome(), resources, moment, seconds, max(0.0, answer.ready - began), before, load())


@contextmanager
def _started(threads: int, out: IO[bytes], errors: IO[bytes]) -> Iterator[subprocess.Popen[bytes]]:
    """A process that waits for its job; it is killed, with all that it started, if it is left before its end."""
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join(entry or os.getcwd() for entry in sys.path),
        "OMP_NUM_THREADS": str(threads),
    }
    process = subprocess.Popen(
        [sys.executable, "-m", f"{__package__}.child"],
        stdin=subprocess.PIPE,
        stdout=out,
        stderr=errors,
        start_new_session=True,  # Ctrl-C is for this process
        env=environment,
    )
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _end_of(process: subprocess.Popen[bytes]) -> threading.Event:
    """Return what is set when a process ends; a wait with a timeout would poll, which costs as much as a look."""
    ended = threading.Event()

    def wait() -> None:
        process.wait()
        ended.set()

    threading.Thread(target=wait, daemon=True).start()
    return ended


def _answer(process: subprocess.Popen[bytes], out: IO[bytes], errors: IO[bytes]) -> Answer:
    out.seek(0)
    try:
        answer = msgspec.json.decode(out.read(), type=Answer)
    except msgspec.DecodeError:
        raise Failure(death(process.returncode, errors)) from None
    if not answer.applicable:
        raise NotApplicable(answer.error)
    if answer.error:
        raise Failure(answer.error)
    return answer

"""The process of one measurement: ``python -m robustcmp.bench.child``, a job on its standard input."""

from __future__ import annotations

import os
import pickle
import sys
import time
from typing import NamedTuple

import msgspec

from ..errors import RobustcmpError
from .outcome import NotApplicable, Outcome
from .prediction import ControlJob, PredictionJob
from .training import TrainingJob

Job = TrainingJob | PredictionJob | ControlJob


class Request(NamedTuple):
    """What a process is to do, and on which processors; none where the system knows no such thing."""

    job: Job
    processors: list[int]


class Answer(msgspec.Struct, frozen=True):
    """What a process says at its end.

    Attributes
    ----------
    ready : float
        When it was ready, on the system's monotonic clock.
    outcome : Outcome, optional
        What it measured, or
    error : str
        why it did not, and
    applicable : bool
        whether it could have.
    """

    ready: float
    outcome: Outcome | None = None
    error: str = ""
    applicable: bool = True


def main() -> None:
    """Do the job on standard input, and write the answer to standard output, where nothing else is written."""
    out = os.dup(1)
    os.dup2(2, 1)
    request: Request = pickle.load(sys.stdin.buffer)  # from the process that started this one
    if request.processors:  # frameworks differ in which variables they heed, and none can leave these
        os.sched_setaffinity(0, request.processors)
    moments = [time.monotonic()]
    try:
        answer = Answer(0.0, request.job.do(lambda: moments.append(time.monotonic())))
    except NotApplicable as reason:
        answer = Answer(0.0, error=str(reason), applicable=False)
    except Exception as error:
        answer = Answer(
            0.0, error=str(error) if isinstance(error, RobustcmpError) else f"{type(error).__name__}: {error}"
        )
    with os.fdopen(out, "wb") as file:
        file.write(msgspec.json.encode(msgspec.structs.replace(answer, ready=moments[-1])))


if __name__ == "__main__":
    main()

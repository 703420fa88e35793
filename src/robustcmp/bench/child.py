"""What the process of one measurement does."""

from __future__ import annotations

import os
import time
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

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


def measure(connection: Connection[Any, Any]) -> None:
    """Receive a request and send the answer."""
    request: Request = connection.recv()
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
    connection.send(msgspec.structs.replace(answer, ready=moments[-1]))

"""What a job says when it is done: plain data, for the process that started it."""

from __future__ import annotations

import msgspec

from .measurement import Epoch


class NotApplicable(Exception):
    """What is measured has no such thing; the message says why."""


class Outcome(msgspec.Struct, frozen=True):
    """What a process measured of itself.

    Attributes
    ----------
    first : float
        Seconds of the first step or call, and of compiling before it.
    calls : list of float
        Seconds of each other one, in their order.
    version, device : str
        As in `robustcmp.bench.measurement.Measurement`, as are
    epochs, parameters, bytes
        these.
    logits : list of list of float
        What a network answered, of a job that asks for that alone.
    """

    first: float = 0.0
    calls: list[float] = []
    version: str = ""
    device: str = "cpu"
    epochs: list[Epoch] = []
    parameters: int | None = None
    bytes: int | None = None
    logits: list[list[float]] = []

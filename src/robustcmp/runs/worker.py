"""What a worker of Dask says of itself, and how it does a work that the head hands it: in a process of its own."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from threading import Lock
from typing import Any, NamedTuple

from .. import frameworks
from ..provenance import own_version
from ..threads import processors
from .child import Asked, Done, End, Raised
from .isolated import Child, Died, Limits
from .work import Timed, Work

THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")  # the variables on which last bits may depend


class About(NamedTuple):
    """What a worker can do.

    Attributes
    ----------
    version : str
        Of robustcmp.
    frameworks : dict of str to list
        What tells the installations of frameworks apart, hosts with an environment among them.
    gpus : int
        How many GPUs it has.
    """

    version: str
    frameworks: dict[str, list[str | None]]
    gpus: int

    def lacks(self, work: Work) -> str:
        """Say what it lacks for a work, nothing if it can do it."""
        if self.version != _own_version():
            return f"robustcmp {_own_version()} (it has {self.version})"
        for name in work.frameworks:
            if name == "numpy":
                continue
            if name not in self.frameworks:
                return name
            if self.frameworks[name] != _versions(name):
                return f"{name} in the version of this process"
        return "a GPU" if work.device == "cuda" and not self.gpus else ""


_versions, _own_version = cache(frameworks.versions), cache(own_version)  # looking them up takes milliseconds


def about() -> About:
    """Say what this process can do, without importing a framework."""
    return About(own_version(), {name: frameworks.versions(name) for name in frameworks.available()}, _gpus())


def resources() -> str:
    """Return what this process can do as resources of a Dask worker, for other clients: the head asks `about`."""
    here = about()
    entries = {f"robustcmp-{name}": 1 for name in here.frameworks} | {"robustcmp-gpu": here.gpus}
    return " ".join(f"{name}={count}" for name, count in entries.items() if count)


def _gpus() -> int:
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    with suppress(OSError):
        there = len(os.listdir("/proc/driver/nvidia/gpus"))
        return there if visible is None else min(there, len([name for name in visible.split(",") if name.strip()]))
    return 0


class Terms(NamedTuple):
    """What holds for all works of a session.

    Attributes
    ----------
    limits : Limits
        For each work.
    variables : tuple of (str, str)
        The variables of threads that the head has.
    cores : int
        How many cores the head counts.
    """

    limits: Limits
    variables: tuple[tuple[str, str], ...]
    cores: int

    @property
    def environment(self) -> dict[str, str]:
        """The variables of a process with as many threads as the head, on which the last bits may depend."""
        own = {name: value for name, value in os.environ.items() if name not in THREADS} | dict(self.variables)
        there = len(processors()) or os.cpu_count()
        return own if "OMP_NUM_THREADS" in own or there == self.cores else own | {"OMP_NUM_THREADS": str(self.cores)}


class Outcome(NamedTuple):
    """What became of a work: the repeats that were finished, and how it ended."""

    finished: list[Timed]
    end: End


_children: dict[tuple[str, str], Child] = {}  # by framework and topic, which is one for each head
_dismissed: set[str] = set()
_turn = Lock()  # a worker with several threads is handed what is next beside what was cancelled, and other heads' works


def attend(work: Work, luggage: Mapping[str, Any], terms: Terms, topic: str) -> Outcome:
    """Do a work on a worker, in a process of its own, and tell of its queries under a topic; one work at a time."""
    from distributed import get_worker

    worker = get_worker()
    finished: list[Timed] = []
    end: End = Done()
    with _turn:
        if topic in _dismissed:
            return Outcome([], Raised("its head is gone."))
        child = _children.setdefault((work.frameworks[0], topic), Child(terms.limits, terms.environment))
        try:
            for message in child.messages(work, luggage, worker.state.nthreads):
                if isinstance(message, Asked):
                    worker.log_event(topic, [work.attack_name, message.queries])
                elif isinstance(message, Timed):
                    finished.append(message)
                elif isinstance(message, End):
                    end = message
        except Died as death:
            end = Raised(str(death))
    return Outcome(finished, end)


def dismiss(topic: str) -> None:
    """End the processes that a worker has for one head, and begin nothing more for it."""
    _dismissed.add(topic)
    for key in list(_children):
        if key[1] == topic:
            _children.pop(key).kill()

"""One measurement: a process is started for it, watched, and its answer read. It is never left behind.

What it and all that it started use is looked at, and what others use meanwhile.
"""

from __future__ import annotations

import ctypes
import math
import os
import sys
import threading
import time
from contextlib import suppress
from datetime import UTC, datetime
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from ..errors import UsageError
from ..processes import start_child
from ..threads import processors
from .jobs import NotApplicable, PredictionJob, TrainingJob
from .measurement import Resources

Job = TrainingJob | PredictionJob
AMD = Path("/dev/kfd")  # torch for GPUs of AMD calls them cuda, too
LOOK_SECONDS = 0.1
LIST_SECONDS = 1.0  # between two looks at which processes there are
IDLE = ("idle", "iowait", "guest", "guest_nice")  # a guest's time is counted as its user's, too


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
        watch = _Watch(process.pid, start, chosen)
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
    return {
        "threads": threads,
        "resources": resources,
        "began": began,
        "seconds": round(seconds, 6),
        "ready_seconds": round(max(0.0, ready - start), 6),
        **result,
    }


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


def check_gpu() -> None:
    """Raise `UsageError` where no GPU is there; the driver is asked, which reserves nothing on one."""
    count = ctypes.c_int(0)
    with suppress(OSError, AttributeError):  # there is no driver
        driver = ctypes.CDLL("libcuda.so.1")
        driver.cuInit(0)
        driver.cuDeviceGetCount(ctypes.byref(count))
    if not count.value and not AMD.exists():
        raise UsageError("no such device: 'cuda' was requested, but this machine shows no GPU. Use 'cpu' or 'auto'.")


class _Watch:
    """Looks at a process and all that it started, and at the machine.

    Parameters
    ----------
    pid : int
        The process.
    began : float
        When it was started, on the system's monotonic clock.
    processors : list of int
        The processors that it is kept to: what others use of them is looked at. None are all.
    """

    def __init__(self, pid: int, began: float, processors: list[int]):
        import psutil  # type: ignore[import-untyped, unused-ignore]

        self._began = began
        self._processors = processors
        self._looking_began = time.thread_time()
        self._process = psutil.Process(pid)
        self._family: list[Any] = []
        self._listed = -math.inf
        self._cpu_seconds: dict[int, float] = {}  # of each process that was ever seen
        self._used = 0.0
        self._children_seconds = _read_children_seconds()
        self._peak_memory = 0
        self._seconds: list[float] = []
        self._series: dict[str, list[float | None]] = {}
        self._last = (began, 0.0, _read_busy(processors))

    def look(self) -> None:
        """Take down what is used now."""
        now = time.monotonic()
        memory = self._look_at_family(now)
        busy = _read_busy(self._processors)
        last, cpu_seconds_before, busy_before = self._last
        self._last = (now, self._used, busy)
        elapsed = max(now - last, 1e-6)
        used = (self._used - cpu_seconds_before) / elapsed
        values = {"cpu": used, "memory": float(memory)}
        if sys.platform == "linux":  # elsewhere, children are not seen and would count as others
            values["others"] = max(0.0, (busy - busy_before) / elapsed - used)
        self._peak_memory = max(self._peak_memory, memory)
        self._seconds.append(round(now - self._began, 3))
        for name, value in values.items():
            self._series.setdefault(name, []).append(round(value, 3))

    def _look_at_family(self, now: float) -> int:
        """Return the memory of all processes that are there, and count their processor time."""
        import psutil

        gone = suppress(psutil.NoSuchProcess, psutil.AccessDenied)
        if now - self._listed >= LIST_SECONDS:
            self._listed = now
            with gone:
                self._family = [self._process, *self._process.children(recursive=True)]
        memory = 0
        waited_for = 0.0
        for process in self._family:
            with gone, process.oneshot():
                times = process.cpu_times()
                self._cpu_seconds[process.pid] = times.user + times.system
                # Compilers begin and end between two looks; who waited for one has its time.
                waited_for += times.user + times.system + times.children_user + times.children_system
                memory += process.memory_info().rss
        # Neither counts anything twice, and either may miss something: who was not waited for, or not seen.
        self._used = max(self._used, sum(self._cpu_seconds.values()), waited_for)
        return memory

    def finish(self) -> Resources:
        """Return all that was seen, after the end of the process."""
        counted = _read_children_seconds() - self._children_seconds
        return Resources(
            seconds=self._seconds,
            series=self._series,
            cpu_seconds=round(max(counted, self._used), 4),  # not all is waited for
            peak_memory=self._peak_memory,
            sampling_seconds=round(time.thread_time() - self._looking_began, 4),
        )


def _read_busy(processors: list[int]) -> float:
    """Return what these processors, or all, have worked so far, with what the host of a virtual machine took."""
    import psutil

    every = psutil.cpu_times(percpu=True)
    chosen = [every[number] for number in processors if number < len(every)] or every
    return float(sum(value for times in chosen for name, value in times._asdict().items() if name not in IDLE))


def _read_children_seconds() -> float:
    """Return how much processor time those children have used that were waited for."""
    import resource

    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime

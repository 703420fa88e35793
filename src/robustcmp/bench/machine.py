"""What a process and all that it started use, and what others use meanwhile."""

from __future__ import annotations

import ctypes
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from ..errors import UsageError
from .measurement import Resources

PROC = Path("/proc")
AMD = Path("/dev/kfd")  # torch for GPUs of AMD calls them cuda, too
LOOK_SECONDS = 0.1
CHILDREN_SECONDS = 1.0  # between two looks at which processes there are, where no new one was seen
IDLE = ("idle", "iowait", "guest", "guest_nice")  # a guest's time is counted as its user's, too


def check_psutil() -> None:
    """Raise `UsageError` where psutil is not installed."""
    try:
        import psutil  # type: ignore[import-untyped, unused-ignore]  # noqa: F401
    except ImportError as error:
        raise UsageError(f"measurements need psutil ({error}): pip install 'robustcmp[bench]'") from None


def check_gpu() -> None:
    """Raise `UsageError` where no GPU is there; the driver is asked, which reserves nothing on one."""
    count = ctypes.c_int(0)
    with suppress(OSError, AttributeError):  # there is no driver
        driver = ctypes.CDLL("libcuda.so.1")
        driver.cuInit(0)
        driver.cuDeviceGetCount(ctypes.byref(count))
    if not count.value and not AMD.exists():
        raise UsageError("no such device: 'cuda' was requested, but this machine shows no GPU. Use 'cpu' or 'auto'.")


class Watch:
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
        self._began = began
        self._processors = processors
        self._looking_began = time.thread_time()
        self._family = _Family(pid)
        self._children_seconds = _read_children_seconds()
        self._peak_memory = 0
        self._gpu = _find_gpu()
        self._seconds: list[float] = []
        self._series: dict[str, list[float | None]] = {}
        self._last = (began, 0.0, _read_busy(processors))

    def look(self) -> None:
        """Take down what is used now."""
        now = time.monotonic()
        cpu_seconds, memory = self._family.look(now)
        busy = _read_busy(self._processors)
        last, cpu_seconds_before, busy_before = self._last
        self._last = (now, cpu_seconds, busy)
        elapsed = max(now - last, 1e-6)
        used = (cpu_seconds - cpu_seconds_before) / elapsed
        values: dict[str, float | None] = {"cpu": used, "memory": float(memory)}
        if sys.platform == "linux":  # elsewhere, children are not seen and would count as others
            values["others"] = max(0.0, (busy - busy_before) / elapsed - used)
        for name, read in self._gpu.items():
            try:
                values[name] = read()
            except Exception:  # pynvml raises many kinds now and then: a value that is not there
                values[name] = None
        self._peak_memory = max(self._peak_memory, memory)
        self._seconds.append(round(now - self._began, 3))
        for name, value in values.items():
            self._series.setdefault(name, []).append(None if value is None else round(value, 3))

    def finish(self) -> Resources:
        """Return all that was seen, after the end of the process."""
        counted = _read_children_seconds() - self._children_seconds
        return Resources(
            seconds=self._seconds,
            series=self._series,
            cpu_seconds=round(max(counted, self._family.used), 4),  # not all is waited for
            peak_memory=self._peak_memory,
            sampling_seconds=round(time.thread_time() - self._looking_began, 4),
        )


class _Family:
    """A process and all that it started; on other systems than Linux itself alone."""

    def __init__(self, pid: int):
        self._pid = pid
        self._processes: dict[int, Any] = {}
        self._cpu_seconds: dict[int, float] = {}  # of each process that was ever seen
        self.used = 0.0
        self._listed = float("-inf")
        self._newest = ""

    def look(self, now: float) -> tuple[float, int]:
        """Return the processor time of all that was started so far, and the memory of what is there."""
        import psutil

        gone = suppress(psutil.NoSuchProcess, psutil.AccessDenied, psutil.ZombieProcess)
        with gone:
            self._processes = {pid: self._processes.get(pid) or psutil.Process(pid) for pid in self._list(now)}
        memory = 0
        waited_for = 0.0
        for pid, process in self._processes.items():
            with gone, process.oneshot():
                times = process.cpu_times()
                self._cpu_seconds[pid] = times.user + times.system
                # Compilers begin and end between two looks; who waited for one has its time.
                waited_for += self._cpu_seconds[pid] + times.children_user + times.children_system
                memory += process.memory_info().rss
        # Neither counts anything twice, and either may miss something: who was not waited for, or not seen.
        self.used = max(self.used, sum(self._cpu_seconds.values()), waited_for)
        return self.used, memory

    def _list(self, now: float) -> list[int]:
        """Return the processes; where one is new, it is there at the next look."""
        newest = _read_newest()
        if newest != self._newest or now - self._listed >= CHILDREN_SECONDS:
            self._listed = now
            self._newest = newest
            return list(_find_descendants(self._pid))
        return list(self._processes)


def _find_descendants(pid: int) -> Iterator[int]:
    """Yield a process and those that it and its threads have started, and that are there."""
    yield pid
    with suppress(OSError):  # it ended meanwhile
        for thread in os.listdir(f"{PROC}/{pid}/task"):  # at every look, so faster than pathlib's glob
            with suppress(OSError), open(f"{PROC}/{pid}/task/{thread}/children", "rb", 0) as children:
                for child in children.read().split():
                    yield from _find_descendants(int(child))


def _read_newest() -> str:
    """Return the number of the newest process or thread on the machine: while it stays, nothing was started."""
    try:
        with open(f"{PROC}/loadavg", "rb", 0) as file:  # unbuffered bytes cost least
            return file.read().rpartition(b" ")[2].decode()
    except OSError:
        return ""


def _read_busy(processors: list[int]) -> float:
    """Return what these processors, or all, have worked so far, with what the host of a virtual machine took."""
    import psutil

    every = psutil.cpu_times(percpu=True)
    chosen = [every[number] for number in processors if number < len(every)] or every
    return float(sum(value for times in chosen for name, value in times._asdict().items() if name not in IDLE))


def _find_gpu() -> dict[str, Callable[[], float]]:
    """Return what reads the GPU that frameworks take, the first that they may see; nothing where none is."""
    try:
        import pynvml  # type: ignore[import-not-found, import-untyped, unused-ignore]
    except ImportError:
        return {}
    first = os.environ.get("CUDA_VISIBLE_DEVICES", "0").partition(",")[0].strip()
    try:
        pynvml.nvmlInit()
        find = pynvml.nvmlDeviceGetHandleByIndex if first.isdigit() else pynvml.nvmlDeviceGetHandleByUUID
        gpu = find(int(first) if first.isdigit() else first)
    except pynvml.NVMLError:
        return {}
    return {
        "gpu": lambda: pynvml.nvmlDeviceGetUtilizationRates(gpu).gpu / 100,
        "gpu_memory": lambda: float(pynvml.nvmlDeviceGetMemoryInfo(gpu).used),
        "gpu_power": lambda: pynvml.nvmlDeviceGetPowerUsage(gpu) / 1000,
    }


def _read_children_seconds() -> float:
    """Return how much processor time those children have used that were waited for."""
    import resource

    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime

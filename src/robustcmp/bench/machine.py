"""What a machine and the processes on it use, where the system says it; where not, the reason."""

from __future__ import annotations

import ctypes
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from ..errors import UsageError
from .measurement import Resources

POWERCAP = Path("/sys/class/powercap")
PROC = Path("/proc")
AMD = Path("/dev/kfd")  # torch for GPUs of AMD calls them cuda, too
OF_PROCESSORS = ("coretemp", "k10temp", "zenpower", "cpu_thermal")  # sensors of temperature
LOOK_SECONDS = 0.1
CHILDREN_SECONDS = 1.0  # between two looks at which processes there are, where no new one was seen
FAMILY_SECONDS = 2.0  # likewise where each takes longer than all else
ENERGY_SECONDS = 10.0  # between two looks at counters that may wrap in minutes


def need_psutil() -> None:
    """Raise `UsageError` where psutil is not installed."""
    try:
        import psutil  # type: ignore[import-untyped, unused-ignore]  # noqa: F401
    except ImportError as error:
        raise UsageError(f"measurements need psutil ({error}): pip install 'robustcmp[bench]'") from None


def need_device(device: str) -> None:
    """Raise `UsageError` where a GPU is asked for and none is there; no framework is imported to find out."""
    if device == "cuda" and not _has_gpu():
        raise UsageError("no such device: 'cuda' was requested, but this machine shows no GPU. Use 'cpu' or 'auto'.")


def _has_gpu() -> bool:
    """Ask the driver, which reserves nothing on a GPU."""
    count = ctypes.c_int(0)
    with suppress(OSError, AttributeError):  # there is no driver
        driver = ctypes.CDLL("nvcuda.dll" if os.name == "nt" else "libcuda.so.1")
        if driver.cuInit(0) == 0 and driver.cuDeviceGetCount(ctypes.byref(count)) == 0 and count.value:
            return True
    return AMD.exists()


def load() -> float | None:
    """Return the machine's load average over a minute, None where the system does not tell."""
    try:
        return round(os.getloadavg()[0], 2)
    except (AttributeError, OSError):
        return None


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
    powercap : Path
        Where the system shows counters of energy.
    """

    def __init__(self, pid: int, began: float, processors: list[int], powercap: Path = POWERCAP):
        import psutil

        self._psutil, self._began, self._pid = psutil, began, pid
        self._processors = processors
        self._spent = time.thread_time()
        self._family: dict[int, Any] = {}
        self._cpu: dict[int, float] = {}  # of each process that was ever seen
        self._used = 0.0
        self._family_seen, self._newest = float("-inf"), ""
        self._is_told_of_children = any(PROC.glob("self/task/*/children"))
        self._peak = 0
        self._energy, self._energy_seen = _Energy(powercap), began
        self.missing: dict[str, str] = {}
        self._more: dict[str, Callable[[], float]] = {}
        self._failures: dict[str, str] = {}
        self._find("cpu_temperature", _temperatures())
        self._more |= self._gpu()
        self._seconds: list[float] = []
        self._series: dict[str, list[float | None]] = {name: [] for name in ("cpu", "memory", "others", *self._more)}
        self._last = (began, 0.0, _busy(psutil, processors))

    def _find(self, name: str, found: Callable[[], float] | str) -> None:
        if isinstance(found, str):
            self.missing[name] = found
        else:
            self._more[name] = found

    def _gpu(self) -> dict[str, Callable[[], float]]:
        found = _gpu()
        if isinstance(found, str):
            self.missing["gpu"] = found
            return {}
        return found

    def look(self) -> None:
        """Take down what is used now."""
        now = time.monotonic()
        own, memory = self._own(now)
        busy = _busy(self._psutil, self._processors)
        then, own_before, busy_before = self._last
        self._last = (now, own, busy)
        elapsed = max(now - then, 1e-6)
        used = (own - own_before) / elapsed
        self._peak = max(self._peak, memory)
        values = {"cpu": used, "memory": float(memory), "others": max(0.0, (busy - busy_before) / elapsed - used)}
        values |= self._sensed()
        if now - self._energy_seen >= ENERGY_SECONDS:
            self._energy_seen = now
            self._energy.look()
        self._seconds.append(round(now - self._began, 3))
        for name, series in self._series.items():
            value = values.get(name)
            series.append(None if value is None else round(value, 3))

    def _sensed(self) -> dict[str, float]:
        """Return what sensors say; one that fails now and then is a value that is not there."""
        values = {}
        for name, sensor in self._more.items():
            try:
                values[name] = sensor()
            except Exception as error:
                self._failures[name] = str(error) or type(error).__name__
        return values

    def _own(self, now: float) -> tuple[float, int]:
        """Return the processor time of all that was started so far, and the memory of what is there."""
        gone = (self._psutil.NoSuchProcess, self._psutil.AccessDenied, self._psutil.ZombieProcess)
        with suppress(*gone):
            there = self._started(now)
            self._family = {pid: self._family.get(pid) or self._psutil.Process(pid) for pid in there}
        memory, there_and_waited_for = 0, 0.0
        for pid, process in list(self._family.items()):
            with suppress(*gone), process.oneshot():
                times = process.cpu_times()
                self._cpu[pid] = times.user + times.system
                # Compilers begin and end between two looks; who waited for one has its time.
                waited_for = getattr(times, "children_user", 0.0) + getattr(times, "children_system", 0.0)
                there_and_waited_for += self._cpu[pid] + waited_for
                memory += process.memory_info().rss
        # Neither counts anything twice, and either may miss something: who was not waited for, or not seen.
        self._used = max(self._used, sum(self._cpu.values()), there_and_waited_for)
        return self._used, memory

    def _started(self, now: float) -> list[int]:
        """Return the process and all that it has started; on Linux, where one is new, it is there at the next look."""
        if self._is_told_of_children:
            newest = _newest()
            if newest and newest == self._newest and now - self._family_seen < CHILDREN_SECONDS:
                return list(self._family)
            self._newest, self._family_seen = newest, now
            return list(_descendants(self._pid))
        if now - self._family_seen >= FAMILY_SECONDS:
            self._family_seen = now
            others = self._psutil.Process(self._pid).children(recursive=True)
            return [self._pid, *(process.pid for process in others)]
        return list(self._family)

    def finish(self, cpu_seconds: float) -> Resources:
        """Return all that was seen, given the processor time that the system counted in the end."""
        energy, why = self._energy.joules()
        if why:
            self.missing["energy"] = why
        for name, failure in self._failures.items():
            if all(value is None for value in self._series[name]):
                self.missing[name] = f"it could not be read: {failure}"
                del self._series[name]
        return Resources(
            seconds=self._seconds,
            series=self._series,
            cpu_seconds=round(max(cpu_seconds, self._used), 4),  # not all is waited for
            peak_memory=self._peak,
            energy=energy,
            missing=self.missing,
            sampling_seconds=round(time.thread_time() - self._spent, 4),
        )


def _descendants(pid: int) -> Iterator[int]:
    """Yield a process and those that it and its threads have started, and that are there."""
    yield pid
    with suppress(OSError):  # it ended meanwhile
        for thread in os.listdir(f"{PROC}/{pid}/task"):  # at every look, so faster than pathlib's glob
            with suppress(OSError), open(f"{PROC}/{pid}/task/{thread}/children", "rb", 0) as children:
                for child in children.read().split():
                    yield from _descendants(int(child))


def _newest() -> str:
    """Return the number of the newest process or thread on the machine: while it stays, nothing was started."""
    try:
        with open(f"{PROC}/loadavg", "rb", 0) as file:  # unbuffered bytes cost least
            return file.read().rpartition(b" ")[2].decode()
    except OSError:
        return ""


def _busy(psutil: Any, processors: list[int]) -> float:
    """Return what these processors, or all, have worked so far, with what the host of a virtual machine took."""
    idle = ("idle", "iowait", "guest", "guest_nice")  # a guest's time is counted as its user's, too
    each = psutil.cpu_times(percpu=True)
    asked = [each[number] for number in processors if number < len(each)] or each
    return float(sum(value for times in asked for name, value in times._asdict().items() if name not in idle))


def _temperatures() -> Callable[[], float] | str:
    import psutil

    if not hasattr(psutil, "sensors_temperatures"):
        return "this system has no sensors that psutil reads"
    shown = psutil.sensors_temperatures()
    name = next((name for name in OF_PROCESSORS if shown.get(name)), None)
    if name is None:
        return "this machine shows no processor temperature"

    def hottest() -> float:
        if not (sensors := psutil.sensors_temperatures().get(name)):
            raise LookupError(f"{name} is no longer there")
        return max(float(sensor.current) for sensor in sensors)

    return hottest


def _gpu() -> dict[str, Callable[[], float]] | str:
    """Return how to look at the GPU that frameworks take, the first that they may see, or why that cannot be."""
    try:
        import pynvml  # type: ignore[import-not-found, import-untyped, unused-ignore]
    except ImportError:
        return "nvidia-ml-py is not installed"
    first = os.environ.get("CUDA_VISIBLE_DEVICES", "0").partition(",")[0].strip()
    if first in ("", "-1"):
        return "CUDA_VISIBLE_DEVICES hides all GPUs"
    try:
        pynvml.nvmlInit()
        found = pynvml.nvmlDeviceGetHandleByIndex if first.isdigit() else pynvml.nvmlDeviceGetHandleByUUID
        gpu = found(int(first) if first.isdigit() else first)
    except pynvml.NVMLError as error:
        return f"there is no GPU of NVIDIA here ({error})"
    return {
        "gpu": lambda: pynvml.nvmlDeviceGetUtilizationRates(gpu).gpu / 100,
        "gpu_memory": lambda: float(pynvml.nvmlDeviceGetMemoryInfo(gpu).used),
        "gpu_temperature": lambda: float(pynvml.nvmlDeviceGetTemperature(gpu, pynvml.NVML_TEMPERATURE_GPU)),
        "gpu_power": lambda: pynvml.nvmlDeviceGetPowerUsage(gpu) / 1000,
    }


class _Energy:
    """The counters of energy of the processor's packages (RAPL)."""

    def __init__(self, powercap: Path = POWERCAP) -> None:
        zones = sorted(powercap.glob("intel-rapl:*")) if powercap.is_dir() else []
        # One zone may be the whole platform ("psys"), which contains the packages; their parts are zones, too.
        self._packages = [zone for zone in zones if _text(zone / "name").startswith("package")]
        self._used = 0  # in microjoules
        self._why = "" if self._packages else "this machine shows no counters of energy (RAPL)"
        self._last = self._read()
        self._ranges = self._read("max_energy_range_uj")

    def _read(self, name: str = "energy_uj") -> list[int]:
        try:
            return [int((package / name).read_text()) for package in self._packages]
        except PermissionError:
            self._why = "the counters of energy (RAPL) may not be read by this user"
        except (OSError, ValueError) as error:
            self._why = f"the counters of energy (RAPL) could not be read: {error}"
        return []

    def look(self) -> None:
        """Add what was used since the last look, between which a counter may wrap once."""
        now = self._read()
        if not self._why:
            for last, value, wraps in zip(self._last, now, self._ranges, strict=True):
                self._used += (value - last) % wraps if wraps else max(0, value - last)
            self._last = now

    def joules(self) -> tuple[float | None, str]:
        """Return what was used since this was made, or why that is not known."""
        self.look()
        return (None, self._why) if self._why else (self._used / 1e6, "")


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""


@contextmanager
def waited_children() -> Iterator[Callable[[], float]]:
    """A way to say how much processor time those children used that were waited for inside a ``with`` block."""
    import resource

    def used() -> float:
        usage = resource.getrusage(resource.RUSAGE_CHILDREN)
        return usage.ru_utime + usage.ru_stime

    before = used()
    yield lambda: used() - before

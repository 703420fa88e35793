"""What a machine and the processes on it use, where the system says it; where not, the reason."""

from __future__ import annotations

import ctypes
import os
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
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

Sensors = dict[str, Callable[[], float]]


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
        driver = ctypes.CDLL("libcuda.so.1")
        if driver.cuInit(0) == 0 and driver.cuDeviceGetCount(ctypes.byref(count)) == 0 and count.value:
            return True
    return AMD.exists()


def load() -> float | None:
    """Return the machine's load average over a minute, None where the system does not tell."""
    try:
        return round(os.getloadavg()[0], 2)
    except OSError:
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
        self._began = began
        self._processors = processors
        self._looking_began = time.thread_time()
        self._family = _Family(pid)
        self._peak_memory = 0
        self._energy = _Energy(powercap)
        self._energy_seen = began
        self._sensors, self._missing = _find_sensors()
        self._failures: dict[str, str] = {}
        self._seconds: list[float] = []
        self._series: dict[str, list[float | None]] = {name: [] for name in ("cpu", "memory", "others", *self._sensors)}
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
        values = {"cpu": used, "memory": float(memory), "others": max(0.0, (busy - busy_before) / elapsed - used)}
        for name, sensor in self._sensors.items():
            try:
                values[name] = sensor()
            except Exception as error:  # now and then: a value that is not there
                self._failures[name] = str(error) or type(error).__name__
        self._peak_memory = max(self._peak_memory, memory)
        if now - self._energy_seen >= ENERGY_SECONDS:
            self._energy_seen = now
            self._energy.look()
        self._seconds.append(round(now - self._began, 3))
        for name, series in self._series.items():
            series.append(round(values[name], 3) if name in values else None)

    def finish(self, cpu_seconds: float) -> Resources:
        """Return all that was seen, given the processor time that the system counted in the end."""
        energy, reason = self._energy.joules()
        if reason:
            self._missing["energy"] = reason
        for name, failure in self._failures.items():
            if all(value is None for value in self._series[name]):
                self._missing[name] = f"it could not be read: {failure}"
                del self._series[name]
        return Resources(
            seconds=self._seconds,
            series=self._series,
            cpu_seconds=round(max(cpu_seconds, self._family.used), 4),  # not all is waited for
            peak_memory=self._peak_memory,
            energy=energy,
            missing=self._missing,
            sampling_seconds=round(time.thread_time() - self._looking_began, 4),
        )


class _Family:
    """A process and all that it started."""

    def __init__(self, pid: int):
        self._pid = pid
        self._processes: dict[int, Any] = {}
        self._cpu_seconds: dict[int, float] = {}  # of each process that was ever seen
        self.used = 0.0
        self._listed = float("-inf")
        self._newest = ""
        self._has_children_files = any(PROC.glob("self/task/*/children"))

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
                waited_for += getattr(times, "children_user", 0.0) + getattr(times, "children_system", 0.0)
                waited_for += self._cpu_seconds[pid]
                memory += process.memory_info().rss
        # Neither counts anything twice, and either may miss something: who was not waited for, or not seen.
        self.used = max(self.used, sum(self._cpu_seconds.values()), waited_for)
        return self.used, memory

    def _list(self, now: float) -> list[int]:
        """Return the processes; on Linux, where one is new, it is there at the next look."""
        import psutil

        newest = _newest() if self._has_children_files else ""
        pause = CHILDREN_SECONDS if self._has_children_files else FAMILY_SECONDS
        if newest == self._newest and now - self._listed < pause:
            return list(self._processes)
        self._listed = now
        self._newest = newest
        if self._has_children_files:
            return list(_descendants(self._pid))
        return [self._pid, *(child.pid for child in psutil.Process(self._pid).children(recursive=True))]


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


def _read_busy(processors: list[int]) -> float:
    """Return what these processors, or all, have worked so far, with what the host of a virtual machine took."""
    import psutil

    idle = ("idle", "iowait", "guest", "guest_nice")  # a guest's time is counted as its user's, too
    every = psutil.cpu_times(percpu=True)
    chosen = [every[number] for number in processors if number < len(every)] or every
    return float(sum(value for times in chosen for name, value in times._asdict().items() if name not in idle))


def _find_sensors() -> tuple[Sensors, dict[str, str]]:
    """Return what reads each series that this machine has, and why others are missing."""
    sensors: Sensors = {}
    missing = {}
    for name, find in (("cpu_temperature", _find_temperature), ("gpu", _find_gpu)):
        try:
            sensors |= find()
        except LookupError as reason:
            missing[name] = str(reason.args[0])
    return sensors, missing


def _find_temperature() -> Sensors:
    """Return what reads the temperature of the hottest core, or raise `LookupError`."""
    import psutil

    if not hasattr(psutil, "sensors_temperatures"):
        raise LookupError("this system has no sensors that psutil reads")
    shown = psutil.sensors_temperatures()
    name = next((name for name in OF_PROCESSORS if shown.get(name)), None)
    if name is None:
        raise LookupError("this machine shows no processor temperature")

    def read_hottest() -> float:
        if not (cores := psutil.sensors_temperatures().get(name)):
            raise LookupError(f"{name} is no longer there")
        return max(float(core.current) for core in cores)

    return {"cpu_temperature": read_hottest}


def _find_gpu() -> Sensors:
    """Return what looks at the GPU that frameworks take, the first that they may see, or raise `LookupError`."""
    try:
        import pynvml  # type: ignore[import-not-found, import-untyped, unused-ignore]
    except ImportError:
        raise LookupError("nvidia-ml-py is not installed") from None
    first = os.environ.get("CUDA_VISIBLE_DEVICES", "0").partition(",")[0].strip()
    if first in ("", "-1"):
        raise LookupError("CUDA_VISIBLE_DEVICES hides all GPUs")
    try:
        pynvml.nvmlInit()
        is_index = first.isdigit()
        gpu = pynvml.nvmlDeviceGetHandleByIndex(int(first)) if is_index else pynvml.nvmlDeviceGetHandleByUUID(first)
    except pynvml.NVMLError as error:
        raise LookupError(f"there is no GPU of NVIDIA here ({error})") from None
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
        self._reason = "" if self._packages else "this machine shows no counters of energy (RAPL)"
        self._last = self._read()
        self._ranges = self._read("max_energy_range_uj")

    def _read(self, name: str = "energy_uj") -> list[int]:
        try:
            return [int((package / name).read_text()) for package in self._packages]
        except PermissionError:
            self._reason = "the counters of energy (RAPL) may not be read by this user"
        except (OSError, ValueError) as error:
            self._reason = f"the counters of energy (RAPL) could not be read: {error}"
        return []

    def look(self) -> None:
        """Add what was used since the last look, between which a counter may wrap once."""
        now = self._read()
        if not self._reason:
            for last, value, wraps in zip(self._last, now, self._ranges, strict=True):
                self._used += (value - last) % wraps if wraps else max(0, value - last)
            self._last = now

    def joules(self) -> tuple[float | None, str]:
        """Return what was used since this was made, or the reason why that is not known."""
        self.look()
        return (None, self._reason) if self._reason else (self._used / 1e6, "")


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""


def read_children_seconds() -> float:
    """Return how much processor time those children have used that were waited for."""
    import resource

    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime

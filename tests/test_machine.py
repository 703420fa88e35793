"""What a machine gives: sensors, GPUs and counters of energy, by fakes of what the system shows."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections import namedtuple
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pynvml
import pytest

from robustcmp.bench import machine
from robustcmp.bench.measurement import Resources

Temperature = namedtuple("Temperature", "label current high critical")
NO_GPU = pynvml.NVMLError_LibraryNotFound()


def watched(looks: int = 3, powercap: Path = Path("/nowhere")) -> Resources:
    """What is seen of this process in some looks."""
    watch = machine.Watch(os.getpid(), time.monotonic(), [], powercap)
    for _ in range(looks):
        watch.look()
    return watch.finish(0.0)


def failing(error: Exception) -> Callable[..., Any]:
    def fails(*arguments: Any) -> Any:
        raise error

    return fails


@pytest.fixture(autouse=True)
def bare(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that has nothing of it."""
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(pynvml, "nvmlInit", failing(NO_GPU))
    monkeypatch.setattr(psutil, "sensors_temperatures", dict, raising=False)


# GPUs


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """A GPU as nvidia-ml-py shows one."""
    of_gpu = {
        "nvmlDeviceGetUtilizationRates": SimpleNamespace(gpu=37, memory=5),
        "nvmlDeviceGetMemoryInfo": SimpleNamespace(total=80 * 2**30, free=79 * 2**30, used=2**30),
        "nvmlDeviceGetPowerUsage": 61_500,  # milliwatts
    }
    monkeypatch.setattr(pynvml, "nvmlInit", lambda: None)
    monkeypatch.setattr(pynvml, "nvmlDeviceGetHandleByIndex", lambda index: ("gpu", index))
    for name, value in of_gpu.items():
        assert hasattr(pynvml, name)
        monkeypatch.setattr(pynvml, name, lambda handle, value=value: value)
    monkeypatch.setattr(pynvml, "nvmlDeviceGetTemperature", lambda handle, sensor: 41)


def test_a_gpu_is_looked_at(gpu: None) -> None:
    seen = watched()
    expected = {"gpu": 0.37, "gpu_memory": 2.0**30, "gpu_temperature": 41.0, "gpu_power": 61.5}
    assert {name: seen.series[name] for name in expected} == {name: [value] * 3 for name, value in expected.items()}
    assert not {*expected} & {*seen.missing}


def test_what_a_gpu_never_says_has_its_reason(gpu: None, monkeypatch: pytest.MonkeyPatch) -> None:
    not_supported = pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
    monkeypatch.setattr(pynvml, "nvmlDeviceGetPowerUsage", failing(not_supported))
    seen = watched()
    assert seen.missing["gpu_power"] == "it could not be read: Not Supported"
    assert "gpu_power" not in seen.series
    assert seen.series["gpu"] == [0.37] * 3


def test_what_a_gpu_does_not_say_at_times_is_a_gap(gpu: None, monkeypatch: pytest.MonkeyPatch) -> None:
    answers = iter([61_500, pynvml.NVMLError(pynvml.NVML_ERROR_TIMEOUT), 70_000])

    def power(handle: object) -> int:
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(pynvml, "nvmlDeviceGetPowerUsage", power)
    seen = watched()
    assert seen.series["gpu_power"] == [61.5, None, 70.0]
    assert "gpu_power" not in seen.missing


@pytest.mark.parametrize(
    ("visible", "handle"),
    [("3,1", ("gpu", 3)), (" 2", ("gpu", 2)), ("GPU-8932f937,GPU-d72c", ("gpu", "GPU-8932f937"))],
)
def test_the_gpu_is_that_which_frameworks_may_see(
    gpu: None, monkeypatch: pytest.MonkeyPatch, visible: str, handle: tuple[str, object]
) -> None:
    asked = []
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    monkeypatch.setattr(pynvml, "nvmlDeviceGetHandleByUUID", lambda uuid: ("gpu", uuid))
    monkeypatch.setattr(pynvml, "nvmlDeviceGetPowerUsage", lambda handle: asked.append(handle) or 1000)
    assert watched().series["gpu_power"] == [1.0] * 3
    assert asked == [handle] * 3


@pytest.mark.parametrize("visible", ["", "-1"])
def test_where_gpus_are_hidden_none_is_looked_at(gpu: None, monkeypatch: pytest.MonkeyPatch, visible: str) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert watched().missing["gpu"] == "CUDA_VISIBLE_DEVICES hides all GPUs"


@pytest.mark.parametrize("error", [NO_GPU, pynvml.NVMLError(pynvml.NVML_ERROR_DRIVER_NOT_LOADED)])
def test_without_a_gpu_the_reason_is_said(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pynvml, "nvmlInit", failing(error))
    assert watched().missing["gpu"] == f"there is no GPU of NVIDIA here ({error})"


# temperatures


def test_the_temperature_is_that_of_the_hottest_core(monkeypatch: pytest.MonkeyPatch) -> None:
    cores = [Temperature(f"Core {number}", 50.0 + number, 100.0, 100.0) for number in range(4)]
    others = [Temperature("", 90.0, None, None)]
    monkeypatch.setattr(psutil, "sensors_temperatures", lambda: {"nvme": others, "coretemp": cores}, raising=False)
    seen = watched()
    assert seen.series["cpu_temperature"] == [53.0] * 3
    assert "cpu_temperature" not in seen.missing


def test_a_temperature_that_is_gone_has_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = {"k10temp": [Temperature("Tctl", 60.0, None, None)]}
    monkeypatch.setattr(psutil, "sensors_temperatures", lambda: shown, raising=False)
    watch = machine.Watch(os.getpid(), time.monotonic(), [], Path("/nowhere"))
    shown.clear()
    watch.look()
    seen = watch.finish(0.0)
    assert seen.missing["cpu_temperature"] == "it could not be read: k10temp is no longer there"
    assert "cpu_temperature" not in seen.series


def test_without_temperatures_the_reason_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(psutil, "sensors_temperatures", lambda: {"nvme": [Temperature("", 40.0, None, None)]})
    assert watched().missing["cpu_temperature"] == "this machine shows no processor temperature"
    monkeypatch.delattr(psutil, "sensors_temperatures")
    assert watched().missing["cpu_temperature"] == "this system has no sensors that psutil reads"


# energy

RANGE = 262_143_328_850


@pytest.fixture
def powercap(tmp_path: Path) -> Path:
    """Counters of two packages as Linux shows them, with a part of one, and the platform, which contains both."""
    zones = {"intel-rapl:0": "package-0", "intel-rapl:0:0": "core", "intel-rapl:1": "package-1", "intel-rapl:2": "psys"}
    for zone, name in zones.items():
        (tmp_path / zone).mkdir()
        (tmp_path / zone / "name").write_text(f"{name}\n")
        (tmp_path / zone / "max_energy_range_uj").write_text(f"{RANGE}\n")
        counted(tmp_path, zone, 1_000_000)
    return tmp_path


def counted(powercap: Path, zone: str, microjoules: int) -> None:
    (powercap / zone / "energy_uj").write_text(f"{microjoules}\n")


def test_energy_is_that_of_the_packages(powercap: Path) -> None:
    energy = machine._Energy(powercap)
    counted(powercap, "intel-rapl:0", 31_000_000)
    counted(powercap, "intel-rapl:1", 13_000_000)
    counted(powercap, "intel-rapl:2", 99_000_000)
    counted(powercap, "intel-rapl:0:0", 20_000_000)
    assert energy.joules() == (42.0, "")


def test_counters_of_energy_wrap(powercap: Path) -> None:
    counted(powercap, "intel-rapl:0", RANGE - 2_000_000)
    energy = machine._Energy(powercap)
    counted(powercap, "intel-rapl:0", 3_000_000)
    energy.look()
    counted(powercap, "intel-rapl:0", RANGE - 1_000_000)
    energy.look()
    counted(powercap, "intel-rapl:0", 1_000_000)
    assert energy.joules() == (5 + (RANGE / 1e6 - 4) + 2, "")


def test_energy_is_looked_at_before_it_can_wrap_twice(powercap: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "ENERGY_SECONDS", 0.0)
    watch = machine.Watch(os.getpid(), time.monotonic(), [], powercap)
    for _ in range(3):  # round and round
        for part in (1, 2, 3):
            counted(powercap, "intel-rapl:1", 1_000_000 + part * RANGE // 3)
            watch.look()
        counted(powercap, "intel-rapl:1", 1_000_000)
        watch.look()
    assert watch.finish(0.0).energy == pytest.approx(3 * RANGE / 1e6)


def test_without_counters_of_energy_the_reason_is_said(tmp_path: Path) -> None:
    for powercap in (tmp_path, tmp_path / "none"):
        seen = watched(powercap=powercap)
        assert seen.energy is None
        assert seen.missing["energy"] == "this machine shows no counters of energy (RAPL)"


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (PermissionError(13, "Permission denied"), "the counters of energy (RAPL) may not be read by this user"),
        (OSError(61, "No data"), "the counters of energy (RAPL) could not be read: [Errno 61] No data"),
    ],
)
def test_counters_that_cannot_be_read_have_their_reason(
    powercap: Path, monkeypatch: pytest.MonkeyPatch, error: OSError, reason: str
) -> None:
    read = Path.read_text  # root may read what others may not

    def refused(path: Path, *arguments: Any, **named: Any) -> str:
        if path.name == "energy_uj":
            raise error
        return read(path, *arguments, **named)

    monkeypatch.setattr(Path, "read_text", refused)
    seen = watched(powercap=powercap)
    assert seen.energy is None
    assert seen.missing["energy"] == reason


def test_a_counter_that_is_no_number_has_its_reason(powercap: Path) -> None:
    counted(powercap, "intel-rapl:0", 5_000_000)
    energy = machine._Energy(powercap)
    (powercap / "intel-rapl:0" / "energy_uj").write_text("")
    used, why = energy.joules()
    assert used is None
    assert "could not be read: invalid literal" in why


# processes


BURN = """
import multiprocessing, os, subprocess, sys, time

def burn(seconds=0.4):
    until = time.process_time() + seconds
    while time.process_time() < until:
        pass

def look():
    print("look", flush=True)
    sys.stdin.readline()

def burn_and_stay(burnt, end):
    memory = bytearray(60_000_000)
    burn()
    burnt.set()
    end.wait()

def start():
    context = multiprocessing.get_context("fork")
    burnt, end = context.Event(), context.Event()
    child = context.Process(target=burn_and_stay, args=(burnt, end))
    child.start()
    burnt.wait()
    look()
    end.set()
    child.join()
"""
SHORT_LIVED = (
    f"{BURN}\nsubprocess.run([sys.executable, '-S', '-c', 'import time\\nwhile time.process_time() < 0.4: 0'])"
)


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="this system does not tell at once who was started")
@pytest.mark.parametrize(
    "code",
    [f"{BURN}\nburn(); start()", f"{BURN}\nlook(); start()", f"{SHORT_LIVED}\nlook()"],
    ids=["it and its child", "a child that starts between two looks", "a child that is there at no look"],
)
def test_what_a_process_and_its_children_use_is_seen(code: str) -> None:
    """They burn so much processor time, however long it takes, and wait to be looked at."""
    before = machine.read_children_seconds()
    process = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    watch = machine.Watch(process.pid, time.monotonic(), [])
    with process:
        assert process.stdin is not None
        assert process.stdout is not None
        for _ in process.stdout:
            watch.look()
            process.stdin.write(b"\n")
            process.stdin.flush()
    seen, counted = watch.finish(0.0), machine.read_children_seconds() - before
    assert 0.4 <= seen.cpu_seconds < 1.1 * counted + 0.05, "nothing is missed, and nothing counted twice"
    if code.startswith(f"{BURN}\nburn()"):
        assert seen.cpu_seconds > 0.8
        assert seen.peak_memory > 60_000_000
    assert set(seen.series) >= {"cpu", "memory", "others"}
    assert all(len(series) == len(seen.seconds) for series in seen.series.values())
    assert seen.missing.keys() | seen.series.keys() >= {"cpu_temperature", "gpu"}
    assert (seen.energy is None) == ("energy" in seen.missing)


def test_others_are_looked_for_on_the_processors_of_the_process_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    Times = namedtuple("Times", "user system idle")
    times = [Times(1.0, 0.5, 10.0), Times(4.0, 0.0, 10.0), Times(16.0, 0.0, 10.0)]
    monkeypatch.setattr(psutil, "cpu_times", lambda percpu: times)
    assert [machine._read_busy(processors) for processors in ([0], [0, 2], [])] == [1.5, 17.5, 21.5]


@pytest.mark.skipif(sys.platform != "linux", reason="the driver has another name")
def test_a_gpu_is_there_where_torch_sees_one() -> None:
    import torch

    assert machine._has_gpu() == torch.cuda.is_available()

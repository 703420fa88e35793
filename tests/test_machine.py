"""What is seen of a process and of a machine."""

from __future__ import annotations

import subprocess
import sys
import time
from collections import namedtuple
from pathlib import Path

import psutil
import pytest

from robustcmp.bench.process import _read_busy, _read_children_seconds, _Watch, check_gpu
from robustcmp.errors import UsageError


@pytest.mark.skipif(sys.platform != "linux", reason="the driver has another name")
def test_a_gpu_is_there_where_torch_sees_one() -> None:
    import torch

    if torch.cuda.is_available():
        check_gpu()
    else:
        with pytest.raises(UsageError, match="this machine shows no GPU"):
            check_gpu()


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
    before = _read_children_seconds()
    process = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    watch = _Watch(process.pid, time.monotonic(), [])
    with process:
        assert process.stdin is not None
        assert process.stdout is not None
        for _ in process.stdout:
            watch.look()
            process.stdin.write(b"\n")
            process.stdin.flush()
    seen, counted = watch.finish(), _read_children_seconds() - before
    assert 0.4 <= seen.cpu_seconds < 1.1 * counted + 0.05, "nothing is missed, and nothing counted twice"
    if code.startswith(f"{BURN}\nburn()"):
        assert seen.cpu_seconds > 0.8
        assert seen.peak_memory > 60_000_000
    assert all(len(series) == len(seen.seconds) for series in seen.series.values())


def test_others_are_looked_for_on_the_processors_of_the_process_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    Times = namedtuple("Times", "user system idle")
    times = [Times(1.0, 0.5, 10.0), Times(4.0, 0.0, 10.0), Times(16.0, 0.0, 10.0)]
    monkeypatch.setattr(psutil, "cpu_times", lambda percpu: times)
    assert [_read_busy(processors) for processors in ([0], [0, 2], [])] == [1.5, 17.5, 21.5]

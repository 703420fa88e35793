"""Threads that hand results back in order, in bounded memory, and stop when nobody waits any more."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from robustcmp.workers import cores, in_order

Check = Callable[[], None]


def test_results_come_in_order_and_side_by_side() -> None:
    together = threading.Barrier(2, timeout=20)  # broken unless two tasks are at work at once

    def work(task: int, check: Check) -> int:
        together.wait()
        return task * task

    assert list(in_order(work, range(10), 2)) == [task * task for task in range(10)]


def test_no_more_tasks_are_begun_than_are_waited_for() -> None:
    taken = []

    def tasks() -> Iterator[int]:
        for task in range(100):
            taken.append(task)
            yield task

    results = in_order(lambda task, check: task, tasks(), 2)
    assert next(results) == 0
    assert len(taken) == 4
    assert next(results) == 1
    assert len(taken) == 5


def test_an_error_reaches_the_caller_and_stops_the_others() -> None:
    begun, ended = threading.Event(), threading.Event()

    def work(task: int, check: Check) -> None:
        if task == 0:
            assert begun.wait(20)
            raise ValueError("task 0")
        begun.set()
        try:
            while True:
                check()
                time.sleep(0.001)
        finally:
            ended.set()

    with pytest.raises(ValueError, match="task 0"):
        list(in_order(work, [0, 1], 2))
    assert ended.wait(20)


FREED = """
import sys
from pathlib import Path
from robustcmp import workers

def held():
    [line] = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmRSS")]
    return int(line.split()[1]) / 1024

def work(task, check):
    return [bytes(4096) for _ in range(5000)][-1]  # 20 MiB, of which the last is kept

before = held()
results = list(workers.in_order(work, range(20), 4))
print(held() - before, workers._malloc_trim is not None)
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the system does not tell what a process holds")
def test_what_a_task_frees_goes_back_to_the_system() -> None:
    done = subprocess.run([sys.executable, "-c", FREED], capture_output=True, text=True, check=True)
    grown, can_give_back = done.stdout.split()
    if can_give_back == "False":
        pytest.skip("this C library has no malloc_trim")
    assert float(grown) < 30  # MiB; it is 80 where nothing is given back


def test_cores_are_those_that_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    assert cores() == 3
    for unusable in ("", "0", "many"):
        monkeypatch.setenv("OMP_NUM_THREADS", unusable)
        assert cores() >= 1

"""Threads that hand results back in order, in bounded memory, and stop when nobody waits any more."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator

import pytest

from robustcmp.threads import cores, in_order

Check = Callable[[], None]


def test_results_come_in_order_and_side_by_side() -> None:
    together = threading.Barrier(2, timeout=120)  # broken unless two tasks are at work at once

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
            assert begun.wait(120)
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
    assert ended.wait(120)


def test_cores_are_those_that_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    assert cores() == 3
    for unusable in ("", "0", "many"):
        monkeypatch.setenv("OMP_NUM_THREADS", unusable)
        assert cores() >= 1

"""Threads that do the parts of one job side by side, handed back in order and in bounded memory."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import TypeVar

Task = TypeVar("Task")
Result = TypeVar("Result")
MOST_WORKERS = 8  # Python's own share of the work is done by one thread at a time
PATIENCE = 2.0  # seconds for tasks whose results nobody waits for


class _Stopped(BaseException):
    """Raised inside a worker whose result nobody waits for any more."""


def cores() -> int:
    """Return how many cores there are for this process: OMP_NUM_THREADS if it is set, else those it may run on."""
    stated = os.environ.get("OMP_NUM_THREADS", "")
    if stated.isdigit() and int(stated) > 0:
        return int(stated)
    return len(processors()) or os.cpu_count() or 1


def processors() -> list[int]:
    """Return the numbers of the processors that this process may run on; none where the system does not tell."""
    affinity = getattr(os, "sched_getaffinity", None)
    return sorted(affinity(0)) if affinity else []


def in_order(
    function: Callable[[Task, Callable[[], None]], Result],
    tasks: Iterable[Task],
    workers: int,
    begin: Callable[[], None] = lambda: None,
) -> Iterator[Result]:
    """Yield function(task, check) of each task, in their order, computed by so many threads.

    At most twice as many tasks as workers are begun and not yet handed back, so results do not pile up. An error or an
    interrupt waits a few seconds for the other tasks, and leaves them to themselves if they hang.

    Parameters
    ----------
    function : callable
        Its second argument raises `_Stopped` once the caller has gone, through an error or an interruption; long work
        should call it now and then.
    tasks : iterable
        What to do.
    workers : int
        How many threads.
    begin : callable, optional
        Called once in each thread.
    """
    gone = threading.Event()

    def check() -> None:
        if gone.is_set():
            raise _Stopped

    pool = ThreadPoolExecutor(workers, thread_name_prefix="robustcmp", initializer=begin)
    begun: deque[Future[Result]] = deque()

    def first() -> Result:
        result = begun[0].result()
        begun.popleft()  # only now: after an interrupt, those at work are still here
        return result

    try:
        for task in tasks:
            begun.append(pool.submit(function, task, check))
            if len(begun) == 2 * workers:
                yield first()
        while begun:
            yield first()
    finally:
        gone.set()
        pool.shutdown(wait=False, cancel_futures=True)
        at_work = [task for task in begun if not task.cancelled()]
        if not wait(at_work, PATIENCE).not_done:
            pool.shutdown()

"""Executors: they do the tasks of a plan, and hand back each cell as soon as it is finished."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Protocol

from ..records.cell import AttackResult, Cell
from ..records.store import Run
from .plan import Plan, Task


class Executor(Protocol):
    """Does tasks, here or elsewhere. Whoever calls it keeps the results: an executor writes nothing."""

    def execute(
        self, plan: Plan, tasks: Iterable[Task], progress: Callable[[int], object]
    ) -> Iterator[tuple[Cell, AttackResult]]:
        """Yield each cell of the tasks with its result, in any order.

        Parameters
        ----------
        plan : Plan
            What the tasks belong to.
        tasks : iterable of Task
            What to do; nothing in them is done yet. What a task needs is loaded as it is taken.
        progress : callable
            Called with a number of queries that are done, of as many as `Plan.most_queries` says in all.
        """
        ...


class InProcess:
    """One task after the other, with the models of this process; each uses all cores."""

    def execute(
        self, plan: Plan, tasks: Iterable[Task], progress: Callable[[int], object]
    ) -> Iterator[tuple[Cell, AttackResult]]:
        """Yield each cell of the tasks with its result, in their order."""
        for task in tasks:
            classifier = plan.model(task.model).classifier
            meter = _Meter(progress, plan.most_queries(task), len(task.cells))
            results = plan.attack(task).outcomes(
                classifier.with_callback(meter.count),
                plan.images,
                plan.labels,
                plan.seed,
                [cell.repeat for cell in task.cells],
            )
            classifier.framework.reset_retries()
            for cell, result in zip(task.cells, results, strict=True):
                yield cell, result
                meter.finish_cell()
                classifier.framework.reset_retries()


def execute(
    plan: Plan, store: Run, executor: Executor | None = None, progress: Callable[[int], object] | None = None
) -> None:
    """Do what is missing of a plan, and save each cell as soon as it is finished.

    Parameters
    ----------
    plan : Plan
        From `robustcmp.runs.plan.plan`.
    store : Run
        What is in it is not done again.
    executor : Executor, optional
        `InProcess` if nothing is said.
    progress : callable, optional
        Called with a number of queries that are done, of `queries_left` in all.
    """
    tasks, report = plan.missing(store), progress or (lambda queries: None)
    for cell, result in (executor or InProcess()).execute(plan, tasks, report):
        store.save(cell, result)


def execute_with_bar(plan: Plan, store: Run, executor: Executor | None, progress: bool) -> None:
    """Do what is missing of a plan, with a bar on standard error."""
    from tqdm import tqdm

    left = queries_left(plan, store)
    with tqdm(
        total=left, unit=" queries", unit_scale=True, disable=not progress or not left, file=sys.stderr, desc="attacks"
    ) as bar:
        execute(plan, store, executor, bar.update)


def queries_left(plan: Plan, store: Run) -> int:
    """Return how many queries the missing cells take at the most."""
    return sum(plan.most_queries(task) for task in plan.missing(store))


class _Meter:
    """Turns queries into progress: never more than all cells can take, and each cell's share once it is finished."""

    def __init__(self, progress: Callable[[int], object], most: int, cells: int):
        self._progress, self._most, self._cells = progress, most, cells
        self._done = self._finished = 0
        self._one_at_a_time = threading.Lock()

    def count(self, queries: int) -> None:
        with self._one_at_a_time:
            self._go_to(min(self._done + queries, self._most))

    def finish_cell(self) -> None:
        with self._one_at_a_time:
            self._finished += 1
            self._go_to(max(self._done, self._most * self._finished // self._cells))

    def _go_to(self, done: int) -> None:
        self._progress(done - self._done)
        self._done = done

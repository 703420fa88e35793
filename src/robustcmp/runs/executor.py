"""Executors: they do the tasks of a plan, and hand back each cell as soon as it is finished."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Protocol

from ..records.cell import AttackResult, Cell
from ..records.store import Run
from .plan import Plan, Task
from .progress import Progress, Unseen


class Executor(Protocol):
    """Does tasks, here or elsewhere. Whoever calls it keeps the results: an executor writes nothing."""

    def execute(
        self, plan: Plan, tasks: Iterable[Task], asked: Callable[[str, int], object]
    ) -> Iterator[tuple[Cell, AttackResult]]:
        """Yield each cell of the tasks with its result, in any order.

        Parameters
        ----------
        plan : Plan
            What the tasks belong to.
        tasks : iterable of Task
            What to do; nothing in them is done yet. What a task needs is loaded as it is taken.
        asked : callable
            Called with an attack's name and a number of queries, as they are asked.
        """
        ...


class InProcess:
    """One task after the other, with the models of this process; each uses all cores."""

    def execute(
        self, plan: Plan, tasks: Iterable[Task], asked: Callable[[str, int], object]
    ) -> Iterator[tuple[Cell, AttackResult]]:
        """Yield each cell of the tasks with its result, in their order."""
        for task in tasks:
            classifier = plan.model(task.model).classifier
            results = plan.attack(task).outcomes(
                classifier.with_callback(partial(asked, task.attack)),
                plan.images,
                plan.labels,
                plan.seed,
                [cell.repeat for cell in task.cells],
            )
            classifier.framework.reset_retries()
            for cell, result in zip(task.cells, results, strict=True):
                yield cell, result
                classifier.framework.reset_retries()


def execute(plan: Plan, store: Run, executor: Executor | None = None, progress: Progress | None = None) -> None:
    """Do what is missing of a plan, and save each cell as soon as it is finished.

    Parameters
    ----------
    plan : Plan
        From `robustcmp.runs.plan.plan`.
    store : Run
        What is in it is not done again.
    executor : Executor, optional
        `InProcess` if nothing is said.
    progress : Progress, optional
        Is told what was asked, and of every cell.
    """
    progress = progress or Unseen()
    progress.begin_attacks(plan.queries(store))
    for cell in plan.cells:
        if cell.key in store:
            progress.finished(cell, store.load(cell.key)["success"])
    for cell, result in (executor or InProcess()).execute(plan, plan.missing(store), progress.asked):
        store.save(cell, result)
        for same in plan.cells:  # models that are alike share a cell
            if same.key == cell.key:
                progress.finished(same, result.success)

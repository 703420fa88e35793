"""Executors: they do the tasks of a plan, and hand back each cell as soon as it is finished, with the time it took."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import groupby
from operator import attrgetter
from time import perf_counter
from typing import NamedTuple, Protocol

import msgspec

from ..records.cell import AttackResult, Cell
from ..records.costs import Cost
from ..records.store import Run
from .plan import Plan, Task
from .progress import Progress, Unseen


class Finished(NamedTuple):
    """A cell with its result.

    Attributes
    ----------
    cell : Cell
        The cell.
    result : AttackResult
        What the attack did.
    seconds : float
        The time since the task began, or since its previous cell. Of cells that finish together, the first has all of
        it and the others next to nothing.
    """

    cell: Cell
    result: AttackResult
    seconds: float

    @property
    def task(self) -> tuple[str, int, str]:
        """The model, the training seed and the attack."""
        return self.cell.model, self.cell.training_seed, self.cell.attack


class Executor(Protocol):
    """Does tasks, here or elsewhere. Whoever calls it keeps the results: an executor writes nothing."""

    def execute(self, plan: Plan, tasks: Iterable[Task], asked: Callable[[str, int], object]) -> Iterator[Finished]:
        """Yield each cell of the tasks with its result and its time, in any order.

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

    def execute(self, plan: Plan, tasks: Iterable[Task], asked: Callable[[str, int], object]) -> Iterator[Finished]:
        """Yield each cell of the tasks with its result and its time, in their order."""
        for task in tasks:
            previous = perf_counter()
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
                now = perf_counter()
                yield Finished(cell, result, now - previous)
                previous = now
                classifier.framework.reset_retries()


def execute(plan: Plan, store: Run, executor: Executor | None = None, progress: Progress | None = None) -> None:
    """Do what is missing of a plan; save each cell as soon as it is finished, and log what each task cost.

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
    finished = (executor or InProcess()).execute(plan, plan.missing(store), progress.asked)
    for _, of_task in groupby(finished, attrgetter("task")):
        with _logging(store) as spent:
            for cell, result, seconds in of_task:
                spent.append(_cost(cell, result, seconds))
                store.save(cell, result)
                for same in plan.cells:  # models that are alike share a cell
                    if same.key == cell.key:
                        progress.finished(same, result.success)


@contextmanager
def _logging(store: Run) -> Iterator[list[Cost]]:
    """Collect the costs of a task's cells, and log them as one record, also if the task is interrupted."""
    spent: list[Cost] = []
    try:
        yield spent
    finally:
        if spent:
            store.log_cost(_summed(spent))


def _cost(cell: Cell, result: AttackResult, seconds: float) -> Cost:
    counts = bool((result.queries >= 0).all())
    queries = int(result.queries.sum()) if counts else None
    images = len(result.success)
    return Cost(cell.model, cell.training_seed, cell.attack, [cell.key], images, seconds, queries, _peak_memory())


def _summed(spent: Sequence[Cost]) -> Cost:
    """Return what the cells of a task cost together."""
    queries = [cost.queries for cost in spent if cost.queries is not None]
    return msgspec.structs.replace(
        spent[-1],
        cells=[key for cost in spent for key in cost.cells],
        seconds=sum(cost.seconds for cost in spent),
        queries=sum(queries) if len(queries) == len(spent) else None,
    )


def _peak_memory() -> int | None:
    """Return the largest resident memory of this process so far, in bytes."""
    try:
        import resource
    except ImportError:  # Windows
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else 1024 * peak

"""Executors do the tasks of a plan: here, in a process for each framework, or on workers of Dask.

All of them give the same results, bit for bit. What they do is saved cell by cell, and logged.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator
from functools import partial
from typing import NamedTuple, Protocol

import msgspec

from ..errors import LOG, UsageError
from ..processes import Child, Limits
from ..records.attack import Cell
from ..records.store import Cost, Run
from .blame import blame_each
from .child import Asked
from .plan import Plan, Task
from .progress import Progress
from .tasks import CHILD, Finished, find_needs, pack, time_repeats


class Failed(NamedTuple):
    """A task that came to nothing from here on; those of its cells that were finished before stay.

    Attributes
    ----------
    task : Task
        The task.
    reason : str
        What happened, for the table: how the process ended, which limit was reached, or which error was raised.
    worker : str, optional
        Who tried; None for this process.
    """

    task: Task
    reason: str
    worker: str | None = None


class Executor(Protocol):
    """Does tasks, here or elsewhere. Whoever calls it keeps the results: an executor writes nothing."""

    def execute(
        self, plan: Plan, tasks: Iterable[Task], count: Callable[[str, int], object]
    ) -> Iterator[Finished | Failed]:
        """Yield each cell of the tasks with its result and its costs, or why a task failed.

        Cells come in any order, those of one task in theirs. An exception ends the comparison.

        Parameters
        ----------
        plan : Plan
            What the tasks belong to.
        tasks : iterable of Task
            What to do; nothing in them is done yet.
        count : callable
            Called with an attack's name and a number of queries, as they are asked.
        """


class InProcess:
    """One task after the other, with the models of this process; each uses all cores. An exception ends all of them."""

    def execute(self, plan: Plan, tasks: Iterable[Task], count: Callable[[str, int], object]) -> Iterator[Finished]:
        """Yield each cell of the tasks with its result and its costs, in their order."""
        for task in tasks:
            classifier = plan.model(task.model).classifier.with_callback(partial(count, task.attack))
            attack = plan.suite.attacks[task.attack]
            results = time_repeats(classifier, attack, plan.images, plan.labels, plan.question.seed, task.cells)
            yield from blame_each(f"attacking {task.model[0]}/{task.model[1]} with {task.attack}", results)


class Isolated:
    """One task after the other, in a process for each framework; each uses all cores.

    A process that dies, hangs, or reaches a limit is one task's failure, as is an exception; another one is started for
    the next task. What cannot be sent there, and models that differ there, are done in this process.
    """

    def __init__(self, limits: Limits):
        self._limits = limits

    def execute(
        self, plan: Plan, tasks: Iterable[Task], count: Callable[[str, int], object]
    ) -> Iterator[Finished | Failed]:
        """Yield each cell of the tasks with its result and its costs, or why a task failed, in their order."""
        children: dict[str, Child] = {}
        different: set[tuple[str, int]] = set()
        try:
            for task in tasks:
                needs = find_needs(plan, task)
                if needs is None or task.model in different:
                    yield from InProcess().execute(plan, [task], count)
                    continue
                framework = needs.frameworks[0]
                child = children.setdefault(framework, Child(CHILD, self._limits))
                for message in child.request((pack(plan, task, needs.device), None)):
                    if isinstance(message, Asked):
                        count(task.attack, message.queries)
                    elif isinstance(message, Finished):
                        yield message._replace(worker=framework)
                    elif message.is_refused:
                        different.add(task.model)
                        LOG.warning("%s/%s stays in this process: in another, %s", *task.model, message.reason)
                        yield from InProcess().execute(plan, [task], count)
                    elif message.reason:
                        yield Failed(task, message.reason, framework)
        finally:
            for child in children.values():
                child.close()


def choose_executor(name: str | None, limits: Limits) -> Executor:
    """Return the executor of a name; with limits, `Isolated` if there is none.

    Parameters
    ----------
    name : str or None
        ``"in-process"`` (the default), ``"isolated"``, ``"dask:4"`` for workers on this machine, the address of a
        scheduler of Dask, or ``"auto"``, which is in-process until it is known how long the attacks take.
    limits : Limits
        For each task.

    Raises
    ------
    UsageError
        There is none of that name, or a limit is not above 0 or needs a process.
    """
    limits.check()
    is_limited = any(limit is not None for limit in limits)
    if name == "in-process" and is_limited:
        raise UsageError(
            'limits need a process that can be ended: executor="in-process" cannot be combined with group_seconds or '
            "group_memory",
            parameters=["executor"],
        )
    if name == "isolated" or (is_limited and name in (None, "auto")):
        return Isolated(limits)
    if name in (None, "auto", "in-process"):
        return InProcess()
    if str(name).startswith("dask:") or "://" in str(name):
        from .dask import Dask

        return Dask(str(name), limits)
    raise UsageError(
        'executor should be "isolated", "dask:4" for four workers on this machine, the address of a scheduler of Dask '
        f'such as "tcp://host:8786", "auto", "in-process" or None; received {name!r}',
        parameters=["executor"],
    )


def execute(plan: Plan, store: Run, executor: Executor, progress: Progress) -> None:
    """Do what is missing of a plan; save each cell as soon as it is finished, and log what each task cost.

    What failed is left out of the plan and is not in the store, so the next call tries it again.

    Parameters
    ----------
    plan : Plan
        From `robustcmp.runs.plan.make_plan`.
    store : Run
        What is in it is not done again.
    executor : Executor
        Does what is missing.
    progress : Progress
        Is told what was asked, and of every cell.
    """
    progress.begin_attacks(plan.queries(store))
    same_key: dict[str, list[Cell]] = {}  # models that are alike share a cell
    for cell in plan.cells:
        same_key.setdefault(cell.key, []).append(cell)
        if cell.key in store:
            progress.finish(cell, store.load(cell.key)["success"])
    tasks = [*plan.list_missing(store)]
    sizes = {task.key: len(task.cells) for task in tasks}
    cost: Cost | None = None  # of the task under way, whose cells come one after another
    outcomes = executor.execute(plan, tasks, progress.count)
    try:
        for outcome in outcomes:
            if isinstance(outcome, Failed):
                missing = [cell for cell in outcome.task.cells if cell.key not in store]
                cells = [alike for cell in missing for alike in same_key[cell.key]]
                plan.fail(cells, outcome.reason)
                progress.fail(cells, outcome.reason)
            else:
                cost = _add_cost(cost, outcome)
                store.save(outcome.cell, outcome.result)
                for alike in same_key[outcome.cell.key]:
                    progress.finish(alike, outcome.result.success)
            if cost is not None and (isinstance(outcome, Failed) or len(cost.cells) == sizes[outcome.cell.task]):
                store.log_cost(cost)
                cost = None
    finally:
        if isinstance(outcomes, Generator):
            outcomes.close()  # at once, as it may have processes that nobody waits for any more
        if cost is not None:
            store.log_cost(cost)


def _add_cost(before: Cost | None, finished: Finished) -> Cost:
    """Return what the cells of a task cost up to one that is finished."""
    queries = finished.result.queries
    counted = int(queries.sum()) if (queries >= 0).all() else None
    cost = Cost(
        *finished.cell.task,
        [finished.cell.key],
        len(queries),
        finished.seconds,
        counted,
        finished.worker,
    )
    if before is None:
        return cost
    return msgspec.structs.replace(
        cost,
        cells=before.cells + cost.cells,
        seconds=before.seconds + cost.seconds,
        queries=None if before.queries is None or counted is None else before.queries + counted,
    )

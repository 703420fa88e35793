"""Executors do the tasks of a plan: here, in a process for each framework, or on workers of Dask.

All of them give the same results, bit for bit. What they do is saved cell by cell, and logged.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple, Protocol

import msgspec

from ..errors import UsageError
from ..processes import Child, Died, Limits
from ..records.attack import Cell
from ..records.logs import Cost
from ..records.store import Run
from .blame import blame_each
from .child import Asked
from .plan import Failures, Plan, Task, TaskKey
from .progress import Progress, SeesFailures, Unseen
from .tasks import CHILD, Finished, Packer, time_repeats

_log = logging.getLogger("robustcmp")


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
        self, plan: Plan, tasks: Iterable[Task], asked: Callable[[str, int], object]
    ) -> Iterator[Finished | Failed]:
        """Yield each cell of the tasks with its result and its costs, or why a task failed.

        Cells come in any order, those of one task in theirs. An exception ends the comparison.

        Parameters
        ----------
        plan : Plan
            What the tasks belong to.
        tasks : iterable of Task
            What to do; nothing in them is done yet.
        asked : callable
            Called with an attack's name and a number of queries, as they are asked.
        """
        ...


class InProcess:
    """One task after the other, with the models of this process; each uses all cores. An exception ends all of them."""

    def execute(self, plan: Plan, tasks: Iterable[Task], asked: Callable[[str, int], object]) -> Iterator[Finished]:
        """Yield each cell of the tasks with its result and its costs, in their order."""
        for task in tasks:
            classifier = plan.model(task.model).classifier.with_callback(partial(asked, task.attack))
            attack = plan.suite.attacks[task.attack]
            results = time_repeats(classifier, attack, plan.images, plan.labels, plan.seed, task.cells)
            yield from blame_each(f"attacking {task.model[0]}/{task.model[1]} with {task.attack}", results)


class Isolated:
    """One task after the other, in a process for each framework; each uses all cores.

    A process that dies, hangs, or reaches a limit is one task's failure, as is an exception; another one is started for
    the next task. What cannot be sent there, and models that differ there, are done in this process.
    """

    def __init__(self, limits: Limits):
        self._limits = limits

    def execute(
        self, plan: Plan, tasks: Iterable[Task], asked: Callable[[str, int], object]
    ) -> Iterator[Finished | Failed]:
        """Yield each cell of the tasks with its result and its costs, or why a task failed, in their order."""
        packer, children, different = Packer(plan), dict[str, Child](), set[tuple[str, int]]()
        try:
            for task in tasks:
                remote = packer.pack(task)
                if remote is None or task.model in different:
                    yield from InProcess().execute(plan, [task], asked)
                    continue
                framework = remote.frameworks[0]
                child = children.setdefault(framework, Child(CHILD, self._limits))
                try:
                    for message in child.request((remote, None), packer.find):
                        if isinstance(message, Asked):
                            asked(task.attack, message.queries)
                        elif isinstance(message, Finished):
                            yield message._replace(worker=framework)
                        elif message.is_refused:
                            different.add(task.model)
                            _log.warning("%s/%s stays in this process: in another, %s", *task.model, message.reason)
                            yield from InProcess().execute(plan, [task], asked)
                        elif message.reason:
                            yield Failed(task, message.reason, framework)
                except Died as death:
                    yield Failed(task, str(death), framework)
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


def execute(plan: Plan, store: Run, executor: Executor, progress: Progress | None = None) -> Failures:
    """Do what is missing of a plan; save each cell as soon as it is finished, and log what each task cost.

    Return why attacks failed. What failed is not in the store, so the next call tries it again.

    Parameters
    ----------
    plan : Plan
        From `robustcmp.runs.plan.plan`.
    store : Run
        What is in it is not done again.
    executor : Executor
        Does what is missing.
    progress : Progress, optional
        Is told what was asked, and of every cell.
    """
    progress = progress or Unseen()
    queries = plan.queries(store)
    progress.begin_attacks(queries)
    for cell in plan.cells:
        if cell.key in store:
            progress.finished(cell, store.load(cell.key)["success"])
    session = _Session(plan, store, progress, queries)
    outcomes = executor.execute(plan, plan.missing(store), progress.asked)
    try:
        for outcome in outcomes:
            if isinstance(outcome, Failed):
                session.note_failure(outcome)
            else:
                session.save(outcome)
    finally:
        if isinstance(outcomes, Generator):
            outcomes.close()  # at once, as it may have processes that nobody waits for any more
        session.log_rest()
    return session.failures


class _Session:
    """Keeps what comes out of a plan's tasks, with its costs, and tells of it."""

    def __init__(self, plan: Plan, store: Run, progress: Progress, queries: Mapping[Cell, int]):
        self._plan, self._store, self._progress = plan, store, progress
        self.failures: Failures = {}
        self._left = Counter((cell.model, cell.training_seed, cell.attack) for cell, n in queries.items() if n)
        self._spent: dict[TaskKey, list[Cost]] = {}  # in the tasks under way
        self._alike: dict[str, list[Cell]] = {}  # models that are alike share a cell
        for cell in plan.cells:
            self._alike.setdefault(cell.key, []).append(cell)

    def save(self, finished: Finished) -> None:
        """Save a cell."""
        key, cell, result = finished.key, finished.cell, finished.result
        self._spent.setdefault(key, []).append(_cost(finished))
        self._store.save(cell, result)
        for alike in self._alike[cell.key]:
            self._progress.finished(alike, result.success)
        self._left[key] -= 1
        if not self._left[key]:
            self._log_costs(key)

    def note_failure(self, failed: Failed) -> None:
        """Remember why a task failed."""
        self._log_costs(failed.task.key)
        missing = [cell for cell in failed.task.cells if cell.key not in self._store]
        cells = [alike for cell in missing for alike in self._alike[cell.key]]
        for cell in cells:
            self.failures.setdefault((cell.model, cell.training_seed), {})[cell.attack] = failed.reason
        if isinstance(self._progress, SeesFailures):
            self._progress.failed(cells, failed.reason)

    def log_rest(self) -> None:
        """Log what tasks that did not end have cost."""
        for key in list(self._spent):
            self._log_costs(key)

    def _log_costs(self, key: TaskKey) -> None:
        """Log what a task has cost as one record."""
        if key not in self._spent:
            return
        self._store.log_cost(_sum(self._spent.pop(key)))


def _cost(finished: Finished) -> Cost:
    cell, result, seconds, peak_memory, worker = finished
    counts = bool((result.queries >= 0).all())
    queries = int(result.queries.sum()) if counts else None
    images = len(result.success)
    of_cell = cell.model, cell.training_seed, cell.attack, [cell.key], images
    return Cost(*of_cell, seconds, queries, peak_memory, worker)


def _sum(spent: Sequence[Cost]) -> Cost:
    """Return what the cells of a task cost together."""
    queries = [cost.queries for cost in spent if cost.queries is not None]
    return msgspec.structs.replace(
        spent[-1],
        cells=[key for cost in spent for key in cost.cells],
        seconds=sum(cost.seconds for cost in spent),
        queries=sum(queries) if len(queries) == len(spent) else None,
    )

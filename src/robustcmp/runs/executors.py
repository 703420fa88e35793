"""Executors do the tasks of a plan: here, in a process for each framework, or on workers of Dask.

All of them give the same results, bit for bit.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import NamedTuple, Protocol

from ..errors import UsageError
from ..processes import Child, Died, Ended, Limits
from ..records.cell import AttackResult, Cell
from .blame import blaming_each
from .child import Asked, Raised, Refused
from .plan import Plan, Task, TaskKey
from .tasks import CHILD, Packer, Timed, timed

_log = logging.getLogger("robustcmp")


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
    peak_memory : int, optional
        The largest resident memory of the process that did it since the task began, in bytes.
    worker : str, optional
        Who did it; None for this process.
    """

    cell: Cell
    result: AttackResult
    seconds: float
    peak_memory: int | None = None
    worker: str | None = None

    @property
    def key(self) -> TaskKey:
        """The key of its task."""
        return self.cell.model, self.cell.training_seed, self.cell.attack


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
    """Does tasks, here or elsewhere. Whoever calls it keeps the results: an executor writes nothing.

    Attributes
    ----------
    name : str
        What the run's log calls it.
    limits : Limits or None
        For each task; None where a model can end this process, so that models are not tried before.
    """

    @property
    def name(self) -> str: ...
    @property
    def limits(self) -> Limits | None: ...

    def check(self) -> None:
        """Raise `UsageError` if what it needs does not answer; called before models are loaded."""
        ...

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
            What to do; nothing in them is done yet. What a task needs is loaded as it is taken.
        asked : callable
            Called with an attack's name and a number of queries, as they are asked.
        """
        ...


class InProcess:
    """One task after the other, with the models of this process; each uses all cores. An exception ends all of them."""

    name = "in-process"
    limits = None

    def check(self) -> None:
        """Need nothing."""

    def execute(self, plan: Plan, tasks: Iterable[Task], asked: Callable[[str, int], object]) -> Iterator[Finished]:
        """Yield each cell of the tasks with its result and its costs, in their order."""
        for task in tasks:
            classifier = plan.model(task.model).classifier.with_callback(partial(asked, task.attack))
            attack = plan.attack(task) if task.remote is None else task.remote.attack
            results = timed(classifier, attack, plan.images, plan.labels, plan.seed, task.repeats)
            what = f"attacking {task.model[0]}/{task.model[1]} with {task.attack}"
            for cell, result in zip(task.cells, blaming_each(what, results), strict=True):
                yield Finished(cell, *result)


class Isolated:
    """One task after the other, in a process for each framework; each uses all cores.

    A process that dies, hangs, or reaches a limit is one task's failure, as is an exception; another one is started for
    the next task. What cannot be sent there, and models that differ there, are done in this process.
    """

    name = "isolated"

    def __init__(self, limits: Limits):
        self.limits = limits

    def check(self) -> None:
        """Need nothing."""

    def execute(
        self, plan: Plan, tasks: Iterable[Task], asked: Callable[[str, int], object]
    ) -> Iterator[Finished | Failed]:
        """Yield each cell of the tasks with its result and its costs, or why a task failed, in their order."""
        packer, children, different = Packer(plan), dict[str, Child](), set[tuple[str, int]]()
        try:
            for task in map(packer.pack, tasks):
                if task.remote is None or task.model in different:
                    yield from InProcess().execute(plan, [task], asked)
                    continue
                framework = task.remote.frameworks[0]
                child = children.setdefault(framework, Child(CHILD, self.limits))
                cells = iter(task.cells)
                try:
                    for message in child.request((task, None), packer.luggage.get):
                        if isinstance(message, Asked):
                            asked(task.attack, message.queries)
                        elif isinstance(message, Timed):
                            yield Finished(next(cells), *message, worker=framework)
                        elif isinstance(message, Ended) and isinstance(message.result, Raised):
                            yield Failed(task, message.result.reason, framework)
                        elif isinstance(message, Ended) and isinstance(message.result, Refused):
                            different.add(task.model)
                            reason = message.result.reason
                            _log.warning("%s/%s stays in this process: in another, %s", *task.model, reason)
                            yield from InProcess().execute(plan, [task], asked)
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

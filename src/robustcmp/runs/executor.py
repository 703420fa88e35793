"""Executors: they do the groups of a plan, and hand back each cell with what it cost, or why a group failed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, Protocol, runtime_checkable

import msgspec

from ..records.cell import AttackResult, Cell
from ..records.costs import Cost
from ..records.journal import Journal
from ..records.store import Run
from .blame import blaming_each
from .plan import Plan, Task
from .progress import Progress, SeesFailures, Unseen
from .work import timed

if TYPE_CHECKING:
    from .isolated import Limits

Group = tuple[str, int, str]
Failures = dict[tuple[str, int], dict[str, str]]
"""Why attacks failed, by the model's key and the attack's name; only where one did."""


class Finished(NamedTuple):
    """A cell with its result.

    Attributes
    ----------
    cell : Cell
        The cell.
    result : AttackResult
        What the attack did.
    seconds : float
        The time since the group began, or since its previous cell. Of cells that finish together, the first has all of
        it and the others next to nothing.
    peak_memory : int, optional
        The largest resident memory of the process that did it since the group began, in bytes.
    worker : str, optional
        Who did it; None for this process.
    """

    cell: Cell
    result: AttackResult
    seconds: float
    peak_memory: int | None = None
    worker: str | None = None

    @property
    def group(self) -> Group:
        """The model, the training seed and the attack."""
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

    @property
    def group(self) -> Group:
        """The model, the training seed and the attack."""
        return (*self.task.model, self.task.attack)


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
            What to do; nothing in them is done yet. What a task needs is loaded as it is taken.
        asked : callable
            Called with an attack's name and a number of queries, as they are asked.
        """
        ...


@runtime_checkable
class LooksAhead(Protocol):
    """An executor that can say before any work whether it could begin."""

    def check(self) -> None:
        """Raise `UsageError` if what it needs does not answer; called before models are loaded."""
        ...


@runtime_checkable
class SurvivesModels(Protocol):
    """An executor that a model cannot end, so that models are tried before this process loads them.

    Attributes
    ----------
    limits : Limits
        For each group, and for each trial.
    """

    limits: Limits


class InProcess:
    """One task after the other, with the models of this process; each uses all cores. An exception ends all of them."""

    def execute(self, plan: Plan, tasks: Iterable[Task], asked: Callable[[str, int], object]) -> Iterator[Finished]:
        """Yield each cell of the tasks with its result and its costs, in their order."""
        for task in tasks:
            classifier = plan.model(task.model).classifier.with_callback(partial(asked, task.attack))
            repeats = [cell.repeat for cell in task.cells]
            results = timed(classifier, plan.attack(task), plan.images, plan.labels, plan.seed, repeats)
            what = f"attacking {task.model[0]}/{task.model[1]} with {task.attack}"
            for cell, result in zip(task.cells, blaming_each(what, results), strict=True):
                yield Finished(cell, *result)


def execute(plan: Plan, store: Run, executor: Executor | None = None, progress: Progress | None = None) -> Failures:
    """Do what is missing of a plan; save each cell as soon as it is finished, and log what each task cost.

    Return why attacks failed. What failed is not in the store, so the next call tries it again.

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
    executor, progress = executor or InProcess(), progress or Unseen()
    queries = plan.queries(store)
    progress.begin_attacks(queries)
    for cell in plan.cells:
        if cell.key in store:
            progress.finished(cell, store.load(cell.key)["success"])
    session = _Session(plan, store, progress, queries)
    outcomes = executor.execute(plan, plan.missing(store), progress.asked)
    with session.noted(type(executor).__name__), _closed(outcomes):
        for outcome in outcomes:
            if isinstance(outcome, Failed):
                session.failed(outcome)
            else:
                session.finished(outcome)
    return session.failures


@contextmanager
def _closed(outcomes: Iterator[Finished | Failed]) -> Iterator[None]:
    """End an executor at once when nobody waits for it any more: it may have processes."""
    try:
        yield
    finally:
        if isinstance(outcomes, Generator):
            outcomes.close()


class _Session:
    """Keeps what comes out of a plan's tasks, with its costs, and tells of it."""

    def __init__(self, plan: Plan, store: Run, progress: Progress, queries: Mapping[Cell, int]):
        self._plan, self._store, self._progress = plan, store, progress
        self.failures: Failures = {}
        self._left = Counter((cell.model, cell.training_seed, cell.attack) for cell, n in queries.items() if n)
        self._journal = Journal(store.directory, silent=not self._left)
        self._spent: dict[Group, list[Cost]] = {}  # in the groups under way
        self._alike: dict[str, list[Cell]] = {}  # models that are alike share a cell
        for cell in plan.cells:
            self._alike.setdefault(cell.key, []).append(cell)

    @contextmanager
    def noted(self, how: str) -> Iterator[None]:
        """Note in the run's log when a session begins and how it ends."""
        plan, groups = self._plan, len(self._left)
        self._journal.note(
            f"begun: {groups} groups (a model under an attack) have missing cells, {len(plan.images)} images, suite "
            f"{plan.suite.name}, {how}"
        )
        try:
            yield
            end = f"finished, {sum(map(len, self.failures.values()))} failed" if self.failures else "finished"
        except KeyboardInterrupt:
            end = "interrupted"
            raise
        except BaseException as error:
            end = f"ended by {type(error).__name__}: {error}"
            raise
        finally:
            for group in list(self._spent):
                self._log_costs(group)
            self._journal.note(end)

    def finished(self, finished: Finished) -> None:
        """Save a cell."""
        group, cell, result = finished.group, finished.cell, finished.result
        self._spent.setdefault(group, []).append(_cost(finished))
        self._store.save(cell, result)
        for alike in self._alike[cell.key]:
            self._progress.finished(alike, result.success)
        self._left[group] -= 1
        if not self._left[group]:
            self._log_costs(group)

    def failed(self, failed: Failed) -> None:
        """Remember why a task failed."""
        self._log_costs(failed.group)
        self._journal.note(f"{_named(*failed.group)} failed: {failed.reason}{_by(failed.worker)}")
        missing = [cell for cell in failed.task.cells if cell.key not in self._store]
        cells = [alike for cell in missing for alike in self._alike[cell.key]]
        for cell in cells:
            self.failures.setdefault((cell.model, cell.training_seed), {})[cell.attack] = failed.reason
        if isinstance(self._progress, SeesFailures):
            self._progress.failed(cells, failed.reason)

    def _log_costs(self, group: Group) -> None:
        """Log what a group has cost as one record."""
        if group not in self._spent:
            return
        cost = _summed(self._spent.pop(group))
        self._store.log_cost(cost)
        named, count = _named(*group), len(cost.cells)
        self._journal.note(f"{named}: {count} cell{'s' * (count > 1)} in {cost.seconds:.1f} s{_by(cost.worker)}")


def _named(model: str, seed: int, attack: str) -> str:
    return f"{attack} on {model}/{seed}"


def _by(worker: str | None) -> str:
    return f" ({worker})" if worker else ""


def _cost(finished: Finished) -> Cost:
    cell, result, seconds, peak_memory, worker = finished
    counts = bool((result.queries >= 0).all())
    queries = int(result.queries.sum()) if counts else None
    images = len(result.success)
    of_cell = cell.model, cell.training_seed, cell.attack, [cell.key], images
    return Cost(*of_cell, seconds, queries, peak_memory, worker)


def _summed(spent: Sequence[Cost]) -> Cost:
    """Return what the cells of a task cost together."""
    queries = [cost.queries for cost in spent if cost.queries is not None]
    return msgspec.structs.replace(
        spent[-1],
        cells=[key for cost in spent for key in cost.cells],
        seconds=sum(cost.seconds for cost in spent),
        queries=sum(queries) if len(queries) == len(spent) else None,
    )

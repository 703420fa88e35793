"""What is missing of a plan is done by an executor, saved cell by cell, and logged."""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager

import msgspec

from ..records.cell import Cell
from ..records.costs import Cost
from ..records.journal import Journal
from ..records.store import Run
from .executors import Executor, Failed, Finished
from .plan import Failures, Plan, TaskKey
from .progress import Progress, SeesFailures, Unseen


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
    with session.noted(executor.name), _closed(outcomes):
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
        self._spent: dict[TaskKey, list[Cost]] = {}  # in the tasks under way
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
            for key in list(self._spent):
                self._log_costs(key)
            self._journal.note(end)

    def finished(self, finished: Finished) -> None:
        """Save a cell."""
        key, cell, result = finished.key, finished.cell, finished.result
        self._spent.setdefault(key, []).append(_cost(finished))
        self._store.save(cell, result)
        for alike in self._alike[cell.key]:
            self._progress.finished(alike, result.success)
        self._left[key] -= 1
        if not self._left[key]:
            self._log_costs(key)

    def failed(self, failed: Failed) -> None:
        """Remember why a task failed."""
        self._log_costs(failed.task.key)
        self._journal.note(f"{_named(*failed.task.key)} failed: {failed.reason}{_by(failed.worker)}")
        missing = [cell for cell in failed.task.cells if cell.key not in self._store]
        cells = [alike for cell in missing for alike in self._alike[cell.key]]
        for cell in cells:
            self.failures.setdefault((cell.model, cell.training_seed), {})[cell.attack] = failed.reason
        if isinstance(self._progress, SeesFailures):
            self._progress.failed(cells, failed.reason)

    def _log_costs(self, key: TaskKey) -> None:
        """Log what a task has cost as one record."""
        if key not in self._spent:
            return
        cost = _sum(self._spent.pop(key))
        self._store.log_cost(cost)
        named, count = _named(*key), len(cost.cells)
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


def _sum(spent: Sequence[Cost]) -> Cost:
    """Return what the cells of a task cost together."""
    queries = [cost.queries for cost in spent if cost.queries is not None]
    return msgspec.structs.replace(
        spent[-1],
        cells=[key for cost in spent for key in cost.cells],
        seconds=sum(cost.seconds for cost in spent),
        queries=sum(queries) if len(queries) == len(spent) else None,
    )

"""Executes what is missing of a plan."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from itertools import groupby

from ..attacks.base import pixels
from ..attacks.suite import RunnableAttack
from ..records.cell import Cell
from .plan import Cells, Contestant, Plan


def run(planned: Plan, cells: Cells, progress: Callable[[int], object] | None = None) -> None:
    """Do the cells that are missing, one after another, and save each as soon as it is finished.

    Parameters
    ----------
    planned : Plan
        From `plan`.
    cells : Cells
        What is in it is not done again.
    progress : callable, optional
        Called with a number of queries that are done, of `queries_left` in all.
    """
    for contestant, attack, missing in _missing(planned, cells):
        most = most_queries(planned, attack, len(missing))
        meter = _Meter(progress or (lambda queries: None), most, len(missing))
        results = attack.outcomes(
            contestant.classifier.watched(meter.count),
            planned.images,
            planned.labels,
            planned.seed,
            [cell.repeat for cell in missing],
        )
        contestant.classifier.framework.cell_begins()
        for cell, result in zip(missing, results, strict=True):
            cells.save(cell, result)
            meter.finish_cell()
            contestant.classifier.framework.cell_begins()


def queries_left(planned: Plan, cells: Cells) -> int:
    """Return how many queries the missing cells take at the most."""
    return sum(most_queries(planned, attack, len(missing)) for _, attack, missing in _missing(planned, cells))


def most_queries(planned: Plan, attack: RunnableAttack, repeats: int) -> int:
    """Return how many queries so many repeats of an attack on one model take at the most."""
    return attack.most_queries(pixels(planned.images), repeats) * len(planned.images)


def _missing(planned: Plan, cells: Cells) -> Iterator[tuple[Contestant, RunnableAttack, list[Cell]]]:
    """Yield each model and attack of which cells are not there yet, with these; the attack knows what is there."""
    contestants = {(contestant.name, contestant.training_seed): contestant for contestant in planned.contestants}
    for (model, seed, name), group in groupby(
        planned.cells, key=lambda cell: (cell.model, cell.training_seed, cell.attack)
    ):
        its_cells = list(group)
        missing = [cell for cell in its_cells if cell.key not in cells]
        done = next((cell for cell in its_cells if cell.key in cells), None)
        if missing:
            attack = planned.suite.attacks[name]
            yield contestants[model, seed], attack.knowing(cells.extras(done.key)) if done else attack, missing


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

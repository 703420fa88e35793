"""The progress of a comparison: a table that fills in at a terminal, elsewhere a line an attack."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..errors import printable
from ..records.attack import Cell
from .format import duration, percent
from .layout import make_console

if TYPE_CHECKING:
    from rich.console import RenderableType

REFRESHES = 4  # a second


def make_progress() -> _Lines | _LiveTable:
    """Return a progress that is shown on standard error."""
    return _LiveTable() if sys.stderr is not None and sys.stderr.isatty() else _Lines()


def _tell(text: str) -> None:
    if sys.stderr is not None:
        print(printable(text), file=sys.stderr, flush=True)


@dataclass
class _Tally:
    """What is known of one attack so far.

    Attributes
    ----------
    cells, finished : int
        How many there are, and how many are finished or kept.
    expected, covered : int
        About how many queries the missing cells take, and the part of that of those that are finished by now.
    asked, asked_for_covered : int
        How many queries were really asked, and how many of them for cells that are finished.
    seconds : float
        How long that took, with the time until models were ready.
    rates : dict
        The success rate of each repeat, by model and training seed.
    """

    cells: int = 0
    finished: int = 0
    expected: int = 0
    covered: int = 0
    asked: int = 0
    asked_for_covered: int = 0
    seconds: float = 0.0
    rates: dict[str, dict[int, list[float]]] = field(default_factory=dict)

    @property
    def is_finished(self) -> bool:
        return self.finished == self.cells

    @property
    def queries_left(self) -> float:
        """By what finished cells really took; before there is one, by what is usual."""
        if self.is_finished:
            return 0.0
        per_expected = self.asked_for_covered / self.covered if self.covered and self.asked_for_covered else 1.0
        return max(self.expected * per_expected - self.asked, 0.0)

    def describe(self, model: str) -> str:
        """Return the mean rate of a model's trainings, with their number while some are missing."""
        trainings = list(self.rates.get(model, {}).values())  # another thread may add one
        if not trainings:
            return "·"
        count = "" if self.is_finished else f" ({len(trainings)})"
        return f"{percent(float(np.mean([np.mean(repeats) for repeats in trainings])))}{count}"


class _Shown:
    """What is known of a comparison under way; it is told as `robustcmp.runs.progress.Progress` says."""

    def __init__(self) -> None:
        self.attacks: dict[str, _Tally] = {}
        self.models: list[str] = []
        self._expected: dict[Cell, int] = {}
        self._last = time.monotonic()
        self._one_at_a_time = threading.Lock()

    def begin(self, what: str, steps: int) -> None: ...

    def step(self) -> None: ...

    def begin_attacks(self, cells: Mapping[Cell, int]) -> None:
        self.models = list(dict.fromkeys(cell.model for cell in cells))
        self._expected = dict(cells)
        self._last = time.monotonic()
        attacks = {cell.attack: _Tally() for cell in cells}
        for cell, queries in cells.items():
            attacks[cell.attack].cells += 1
            attacks[cell.attack].expected += queries
        self.attacks = attacks

    def count(self, attack: str, queries: int) -> None:
        if attack not in self.attacks:  # an attack of the follow-ups
            return
        with self._one_at_a_time:
            passed = time.monotonic() - self._last
            self._last += passed
            self.attacks[attack].asked += queries
            self.attacks[attack].seconds += passed

    def finish(self, cell: Cell, success: NDArray[np.bool_]) -> None:
        tally = self.attacks.get(cell.attack)
        if tally is None:
            return
        with self._one_at_a_time:
            tally.rates.setdefault(cell.model, {}).setdefault(cell.training_seed, []).append(float(success.mean()))
            if self._expected[cell]:
                tally.covered += self._expected[cell]
                tally.asked_for_covered = tally.asked
            tally.finished += 1

    def fail(self, cells: Sequence[Cell], reason: str) -> None:
        tally = self.attacks.get(cells[0].attack)
        if tally is None:
            return
        tally.cells -= len(cells)
        tally.expected -= sum(self._expected[cell] for cell in cells)

    def end(self) -> None: ...

    @property
    def seconds_left(self) -> float | None:
        """None before anything was asked."""
        asked = sum(tally.asked for tally in self.attacks.values())
        if not asked:
            return None
        a_query = sum(tally.seconds for tally in self.attacks.values()) / asked
        return sum(
            tally.queries_left * (tally.seconds / tally.asked if tally.asked else a_query)
            for tally in self.attacks.values()
        )

    def _say_left(self) -> str:
        seconds = self.seconds_left
        return f"about {duration(seconds)} left for the attacks" if seconds else ""


def _describe_failure(cells: Sequence[Cell], reason: str) -> str:
    models = ", ".join(dict.fromkeys(f"{cell.model}/{cell.training_seed}" for cell in cells))
    return f"{cells[0].attack} on {models} failed: {reason}"


class _Lines(_Shown):
    """A line for each step and attack, for a log."""

    def begin(self, what: str, steps: int) -> None:
        _tell(f"{what}: {steps}" if steps else what)

    def finish(self, cell: Cell, success: NDArray[np.bool_]) -> None:
        super().finish(cell, success)
        self._tell_of(cell.attack)

    def fail(self, cells: Sequence[Cell], reason: str) -> None:
        super().fail(cells, reason)
        _tell(_describe_failure(cells, reason))
        self._tell_of(cells[0].attack)

    def _tell_of(self, attack: str) -> None:
        """Tell of an attack once it is finished."""
        tally = self.attacks.get(attack)
        if tally and tally.is_finished and tally.rates:
            rates = ", ".join(f"{model} {tally.describe(model)}" for model in tally.rates)
            _tell("; ".join(filter(None, [f"{attack}: {rates}", self._say_left()])))


class _LiveTable(_Shown):
    """One view that is drawn again and again: what is done, what is under way, and the time that is left."""

    def __init__(self) -> None:
        from rich.live import Live

        super().__init__()
        self._step = ""
        self._steps = 0
        self._done = 0
        self._attack = ""
        self._failures: list[str] = []
        self._began = time.monotonic()
        console = make_console(stderr=True)
        self._live = Live(console=console, get_renderable=self._draw, refresh_per_second=REFRESHES, transient=True)
        self._live.start()

    def begin(self, what: str, steps: int) -> None:
        self._step = what
        self._steps = steps
        self._done = 0
        self._live.start()  # once more for health checks, below the rates that were found

    def step(self) -> None:
        self._done += 1

    def begin_attacks(self, cells: Mapping[Cell, int]) -> None:
        super().begin_attacks(cells)
        self._step = ""

    def count(self, attack: str, queries: int) -> None:
        super().count(attack, queries)
        self._attack = attack

    def fail(self, cells: Sequence[Cell], reason: str) -> None:
        super().fail(cells, reason)
        self._failures.append(_describe_failure(cells, reason))

    def end(self) -> None:
        if not all(tally.is_finished for tally in self.attacks.values()):
            self._live.transient = False  # interrupted: what was found so far stays on the screen
        self._live.stop()

    def _draw(self) -> RenderableType:
        from rich.console import Group
        from rich.text import Text

        passed = duration(time.monotonic() - self._began)
        if self._step:
            count = f": {self._done} of {self._steps}" if self._steps else ""
            passed = f"{printable(self._step)}{count} · {passed}"
        elif self._attack in self.attacks:
            tally = self.attacks[self._attack]
            parts = [f"{self._attack}: {tally.finished} of {tally.cells}", passed, self._say_left()]
            passed = " · ".join(filter(None, parts))
        status = Text(passed, style="bold")
        if not self.attacks:
            return status
        return Group(self._table(), *map(Text, self._failures), status)

    def _table(self) -> Any:
        from rich.box import SIMPLE_HEAD
        from rich.table import Table

        table = Table(box=SIMPLE_HEAD, show_edge=False)
        table.add_column("images fooled")
        for attack in self.attacks:
            table.add_column(attack, justify="right")
        for model in self.models:
            table.add_row(model, *(tally.describe(model) for tally in self.attacks.values()))
        return table

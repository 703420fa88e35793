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

from ..analysis.statistics import brown_forsythe, detectable_between_groups
from ..analysis.verdicts import few_outcomes
from ..errors import printable
from ..records.attack import Cell
from .format import detectable_points, duration, p_text, percent, points
from .layout import screen

if TYPE_CHECKING:
    from rich.console import RenderableType

REFRESHES = 4  # a second


def shown_progress() -> Lines | LiveTable:
    """Return a progress that is shown on standard error."""
    return LiveTable() if sys.stderr is not None and sys.stderr.isatty() else Lines()


def _tell(text: str) -> None:
    if sys.stderr is not None:
        print(printable(text), file=sys.stderr, flush=True)


@dataclass
class Tally:
    """What is known of one attack so far.

    Attributes
    ----------
    cells, finished : int
        How many there are, and how many are finished or kept.
    expected, covered : int
        About how many queries the missing cells take, and the part of that of those that are finished by now.
    asked : int
        How many queries were really asked, and
    asked_for_covered : int
        how many of them for cells that are finished.
    seconds : float
        How long the attack has taken, and
    starting : float
        the part of that until models were ready in processes of their own, which is paid once a model.
    success : dict
        Which images fell in each repeat, by model and training seed.
    """

    cells: int = 0
    finished: int = 0
    expected: int = 0
    covered: int = 0
    asked: int = 0
    asked_for_covered: int = 0
    seconds: float = 0.0
    starting: float = 0.0
    success: dict[str, dict[int, list[NDArray[np.bool_]]]] = field(default_factory=dict)

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

    @property
    def asking(self) -> float:
        """The seconds in which queries were asked."""
        return self.seconds - self.starting

    def rates(self, model: str) -> NDArray[np.float64]:
        """Return the rate of each training of a model that has a finished repeat."""
        trainings = list(self.success.get(model, {}).values())  # another thread may add one
        return np.array([float(np.mean(repeats)) for repeats in trainings])


class Tallies:
    """What is known of all attacks so far, and the time that is left."""

    def __init__(self, cells: Mapping[Cell, int]):
        self.expected = dict(cells)
        self.models = list(dict.fromkeys(cell.model for cell in cells))
        self.attacks = {cell.attack: Tally() for cell in cells}
        for cell, queries in cells.items():
            self.attacks[cell.attack].cells += 1
            self.attacks[cell.attack].expected += queries
        self._to_start = len({(cell.model, cell.training_seed) for cell, queries in cells.items() if queries})
        self._starts: list[float] = []
        self._last = time.monotonic()
        self._one_at_a_time = threading.Lock()

    def asked(self, attack: str, queries: int) -> None:
        with self._one_at_a_time:
            tally = self.attacks[attack]
            passed = time.monotonic() - self._last
            self._last += passed
            tally.seconds += passed
            tally.asked += queries
            if not queries:  # a model is ready, in a process of its own
                tally.starting += passed
                self._starts.append(passed)

    def finished(self, cell: Cell, success: NDArray[np.bool_]) -> None:
        tally = self.attacks[cell.attack]
        with self._one_at_a_time:
            tally.success.setdefault(cell.model, {}).setdefault(cell.training_seed, []).append(success)
            if self.expected[cell]:
                tally.covered += self.expected[cell]
                tally.asked_for_covered = tally.asked
            tally.finished += 1

    def failed(self, cells: Sequence[Cell]) -> None:
        for cell in cells:
            tally = self.attacks[cell.attack]
            tally.cells -= 1
            tally.expected -= self.expected[cell]

    @property
    def seconds_left(self) -> float | None:
        """None before anything was asked."""
        asked, asking = (sum(getattr(tally, name) for tally in self.attacks.values()) for name in ("asked", "asking"))
        if not asked:
            return None
        first = self._starts[: self._to_start]  # a model's first attack comes before any second one
        left = (self._to_start - len(first)) * sum(first) / len(first) if first else 0.0
        for tally in self.attacks.values():
            a_query = tally.asking / tally.asked if tally.asked else asking / asked
            left += tally.queries_left * a_query
        return left

    @property
    def left(self) -> str:
        seconds = self.seconds_left
        return f"about {duration(seconds)} left for the attacks" if seconds else ""

    def so_far(self, attack: str) -> str:
        """Say how far the means of the models are apart, and which difference would have been detected."""
        tally = self.attacks[attack]
        with self._one_at_a_time:  # another thread may add what is finished
            groups = [rates for model in self.models if len(rates := tally.rates(model))]
            trainings = [
                np.mean(repeats, axis=0) for of_model in tally.success.values() for repeats in of_model.values()
            ]
        if len(groups) < 2:
            return ""
        means = [float(rates.mean()) for rates in groups]
        apart = f"means differ by {points(max(means) - min(means))} points"
        if min(map(len, groups)) < 2:
            return apart
        detectable = detectable_between_groups(groups, 0.05 / len(self.attacks))
        if not detectable > 0:
            return apart
        if few := few_outcomes(np.array(trainings), len(groups)):
            return f"{apart} ({few}: too few)"
        p = p_text(min(1.0, len(self.attacks) * brown_forsythe(groups).p))  # adjusted as the level is
        return f"{apart}, {detectable_points(detectable)} would be detected ({p})"


def failure(cells: Sequence[Cell], reason: str) -> str:
    """Say that cells of one model and attack failed."""
    models = ", ".join(dict.fromkeys(f"{cell.model}/{cell.training_seed}" for cell in cells))
    return f"{cells[0].attack} on {models} failed: {reason}"


class ShownProgress:
    """What is known of a comparison under way; it is told as `robustcmp.runs.progress.Progress` says."""

    def __init__(self) -> None:
        self.tallies: Tallies | None = None

    def begin(self, what: str, steps: int) -> None: ...

    def step(self) -> None: ...

    def begin_attacks(self, cells: Mapping[Cell, int]) -> None:
        self.tallies = Tallies(cells)

    def asked(self, attack: str, queries: int) -> None:
        if self.tallies:
            self.tallies.asked(attack, queries)

    def finished(self, cell: Cell, success: NDArray[np.bool_]) -> None:
        if self.tallies:
            self.tallies.finished(cell, success)

    def failed(self, cells: Sequence[Cell], reason: str) -> None:
        if self.tallies:
            self.tallies.failed(cells)

    def end(self) -> None: ...


class Lines(ShownProgress):
    """A line for each step and attack, for a log."""

    def begin(self, what: str, steps: int) -> None:
        _tell(f"{what}: {steps}" if steps else what)

    def finished(self, cell: Cell, success: NDArray[np.bool_]) -> None:
        super().finished(cell, success)
        self._tell_of(cell.attack)

    def failed(self, cells: Sequence[Cell], reason: str) -> None:
        super().failed(cells, reason)
        if self.tallies:
            _tell(failure(cells, reason))
            self._tell_of(cells[0].attack)

    def _tell_of(self, attack: str) -> None:
        """Tell of an attack once it is finished."""
        if self.tallies is None:
            return
        tally = self.tallies.attacks[attack]
        if tally.is_finished and tally.success:
            rates = ", ".join(f"{model} {percent(float(tally.rates(model).mean()))}" for model in tally.success)
            more = (self.tallies.so_far(attack), duration(tally.seconds), self.tallies.left)
            _tell("; ".join([f"{attack}: {rates}", *filter(None, more)]))


class LiveTable(ShownProgress):
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
        self._live = Live(
            console=screen(stderr=True),
            get_renderable=self._draw,
            refresh_per_second=REFRESHES,
            transient=True,
        )
        self._live.start()

    def begin(self, what: str, steps: int) -> None:
        self._step = what
        self._steps = steps
        self._done = 0

    def step(self) -> None:
        self._done += 1

    def begin_attacks(self, cells: Mapping[Cell, int]) -> None:
        super().begin_attacks(cells)
        self._step = ""

    def asked(self, attack: str, queries: int) -> None:
        super().asked(attack, queries)
        self._attack = attack

    def failed(self, cells: Sequence[Cell], reason: str) -> None:
        super().failed(cells, reason)
        if self.tallies:
            self._failures.append(failure(cells, reason))

    def end(self) -> None:
        if self.tallies and not all(tally.is_finished for tally in self.tallies.attacks.values()):
            self._live.transient = False  # interrupted: what was found so far stays on the screen
        self._live.stop()

    def _draw(self) -> RenderableType:
        from rich.console import Group
        from rich.text import Text

        passed = duration(time.monotonic() - self._began)
        if self._step or self.tallies is None:
            count = f"{self._done} of {self._steps}" if self._steps else ""
            parts = [": ".join(filter(None, [printable(self._step), count])), passed]
            return Text(" · ".join(filter(None, parts)), style="bold")
        tally = self.tallies.attacks.get(self._attack)
        under_way = f"{self._attack}: {tally.finished} of {tally.cells} · " if tally and tally.cells else ""
        verdicts = [
            f"{attack}: {text}"
            for attack, other in self.tallies.attacks.items()
            if other.is_finished and (text := self.tallies.so_far(attack))
        ]
        status = Text(f"{under_way}{passed} · {self.tallies.left}", style="bold")
        return Group(self._table(self.tallies), *verdicts, *map(Text, self._failures), status)

    def _table(self, tallies: Tallies) -> Any:
        from rich.box import SIMPLE_HEAD
        from rich.table import Table

        table = Table(box=SIMPLE_HEAD, show_edge=False)
        table.add_column("success rate")
        for attack in tallies.attacks:
            table.add_column(attack, justify="right")
        for model in tallies.models:
            table.add_row(model, *(self._entry(tally, model) for tally in tallies.attacks.values()))
        return table

    def _entry(self, tally: Tally, model: str) -> str:
        rates = tally.rates(model)
        if not len(rates):
            return "·"
        count = f" ({len(rates)})" if not tally.is_finished else ""
        return f"{percent(float(rates.mean()))}{count}"

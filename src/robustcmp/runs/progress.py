"""What a comparison tells of its progress."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from ..records.attack import Cell


@runtime_checkable
class Progress(Protocol):
    """Is told what a comparison does; how that is shown is its own."""

    def begin(self, what: str, steps: int) -> None:
        """Begin one of the steps before and after the attacks, such as "loading models", of so many parts."""

    def step(self) -> None:
        """Note that one part is done."""

    def begin_attacks(self, cells: Mapping[Cell, int]) -> None:
        """Begin the attacks: all cells, and about how many queries an attack takes for each, 0 for what is kept."""

    def count(self, attack: str, queries: int) -> None:
        """Note that so many queries more were asked; called from several threads.

        None were where a model has just become ready for this attack in a process of its own.
        """

    def finish(self, cell: Cell, success: NDArray[np.bool_]) -> None:
        """Note a cell that is finished, or was kept from an earlier call: which images fell, (N,)."""

    def fail(self, cells: Sequence[Cell], reason: str) -> None:
        """Note cells, of one model and attack, that will not be finished."""

    def end(self) -> None:
        """Note that nothing more comes."""


class Unseen(Progress):
    """A progress that nobody looks at."""

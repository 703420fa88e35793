"""The log of a run: what each task cost, a line of JSON each.

It describes the machine, not the answer, so no key and no other file of a run depends on it.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from ..errors import SealError
from ..sealed import LARGEST_JSON, from_json, read_bytes

KIND = "cost"


class Cost(msgspec.Struct, frozen=True):
    """What a task cost: one model under one attack, in the repeats that were finished together in one session.

    Attributes
    ----------
    model, training_seed, attack
        What was attacked, and with what.
    cells : list of str
        The keys of the cells that were finished, one for each repeat.
    images : int
        How many images were attacked in each repeat.
    seconds : float
        From the start of the task to the end of the last of these cells.
    queries : int, optional
        What the attack's definition asked in all of these cells, as in `AttackResult.queries`; None if the attack does
        not count.
    peak_memory : int, optional
        The largest resident memory of its process meanwhile, in bytes; since the process began on other systems than
        Linux; None where the system does not tell.
    worker : str, optional
        Who did it, None for the process of the comparison itself.
    """

    model: str
    training_seed: int
    attack: str
    cells: list[str]
    images: int
    seconds: float
    queries: int | None = None
    peak_memory: int | None = None
    worker: str | None = None


def read_costs(path: Path) -> tuple[list[Cost], int]:
    """Return the records of a log, none if there is no log, and how many lines are no records or were changed.

    A last line without a line break is what a killed process left.
    """
    costs: list[Cost] = []
    broken = 0
    try:
        lines = read_bytes(path, LARGEST_JSON).split(b"\n")[:-1]
    except FileNotFoundError:
        return costs, broken
    for line in filter(bytes.strip, lines):
        try:
            costs.append(msgspec.convert(from_json(line, KIND), Cost))
        except (SealError, msgspec.ValidationError):
            broken += 1
    return costs, broken

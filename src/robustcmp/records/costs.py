"""What the tasks of a run cost: a log with one line of JSON for each, in the order in which they ended.

Costs describe the machine, not the answer, so no key and no other file of a run depends on them.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec

from ..files import append_line


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
        The largest resident memory of its process until then, in bytes; None where the system does not tell.
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


def log(path: Path, cost: Cost) -> None:
    """Append a record to a log, which is made if it is not there."""
    append_line(path, msgspec.json.encode(cost).decode())


def logged(path: Path) -> Iterator[Cost]:
    """Yield the records of a log, none if there is no log.

    A line that is no record is left out: a process that is killed while it writes leaves part of one.
    """
    if not path.exists():
        return
    for line in path.read_bytes().splitlines():
        try:
            yield msgspec.json.decode(line, type=Cost)
        except (msgspec.DecodeError, UnicodeDecodeError):
            continue

"""What the tasks of a run cost."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from .recorded import Recorded

if TYPE_CHECKING:
    import pandas

COLUMNS = ("model", "training_seed", "attack", "repeats", "images", "seconds", "queries", "peak_memory", "worker")


def costs(recorded: Recorded) -> pandas.DataFrame:
    """Return what each task that made cells of a run cost, one row per task and session, in the order of their ends.

    Returns
    -------
    pandas.DataFrame
        model, training_seed, attack, repeats (how many were finished), images (in each of them), seconds, queries (as
        the attack's definition counts them), peak_memory (of its process meanwhile, in bytes; on other systems than
        Linux since the process began), worker (empty for the process of the comparison itself). NaN for what is not
        known. Without rows if a run's costs were not logged.
    """
    import pandas

    keys = {cell["key"] for cell in recorded.manifest["cells"]}
    rows = [
        (
            *(cost.model, cost.training_seed, cost.attack, len(cost.cells), cost.images, cost.seconds),
            *(math.nan if value is None else value for value in (cost.queries, cost.peak_memory)),
            cost.worker or "",
        )
        for cost in recorded.run.costs()
        if keys.intersection(cost.cells)
    ]
    return pandas.DataFrame(rows, columns=list(COLUMNS))

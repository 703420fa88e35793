"""A benchmark as data frames and JSON, for other programs."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from ..report.exports import as_csv
from .headline import headline
from .performance import Performance

if TYPE_CHECKING:
    import pandas


def to_csv(results: Performance) -> str:
    """Return the processes as CSV, in which no text is a formula to a spreadsheet."""
    return as_csv(results.processes)


def to_json(results: Performance) -> dict[str, Any]:
    """Return what was found as JSON's types; what is not known, or has no end, is None."""
    about = results.manifest.about
    return {
        **{name: about.get(name) for name in ("what", "model", "dataset", "recipe", "training_seed")},
        "subjects": results.subjects,
        "repetitions": results.repetitions,
        "measured": len(results.measurements),
        "planned": len(results.plan),
        "busy": int(results.processes.busy.sum()) if len(results.processes) else 0,
        "absent": [each._asdict() for each in results.absent],
        "training": _records(results.summary_of_training()),
        "prediction": _records(results.summary_of_prediction()),
        "tests": _records(results.tests()),
        "answer": headline(results),
        "out": str(results.store.directory),
    }


def _records(frame: pandas.DataFrame) -> list[dict[str, Any]]:
    return [{str(name): _plain(value) for name, value in row.items()} for row in frame.to_dict("records")]


def _plain(value: Any) -> Any:
    value = value.item() if hasattr(value, "item") else value
    return None if isinstance(value, float) and not math.isfinite(value) else value

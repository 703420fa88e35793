"""A benchmark for other programs: JSON, and logs of TensorBoard."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable
from datetime import datetime
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import UsageError
from ..files import as_path, make_directory
from .measurement import Measurement
from .words import headline

if TYPE_CHECKING:
    import pandas

    from .benchmark import Benchmark

SCALARS = ("loss", "training_accuracy", "validation_accuracy", "seconds")


def to_json(benchmark: Benchmark) -> dict[str, Any]:
    """Return a benchmark as JSON's types; what is not known, or has no end, is None."""
    about = benchmark.manifest.about
    content = {name: about.get(name) for name in ("what", "model", "dataset", "recipe", "training_seed")}
    return content | {
        "subjects": benchmark.subjects,
        "repetitions": benchmark.repetitions,
        "measured": len(benchmark.measurements),
        "planned": len(benchmark.manifest.plan),
        "busy": int(benchmark.processes.busy.sum()),
        "absent": [absent._asdict() for absent in benchmark.absent],
        "training": _to_records(benchmark.summary_of_training()),
        "prediction": _to_records(benchmark.summary_of_prediction()),
        "tests": _to_records(benchmark.tests()),
        "answer": headline(benchmark),
        "out": str(benchmark.store.directory),
    }


def _to_records(frame: pandas.DataFrame) -> list[dict[str, Any]]:
    return [{str(name): _to_plain(value) for name, value in row.items()} for row in frame.to_dict("records")]


def _to_plain(value: Any) -> Any:
    value = value.item() if hasattr(value, "item") else value
    return None if isinstance(value, float) and not math.isfinite(value) else value


def to_tensorboard(measurements: Iterable[Measurement], directory: str | os.PathLike[str]) -> list[Path]:
    """Write one log for each training, and return their directories."""
    try:
        # It imports no framework, unlike TensorBoard's own.
        from tensorboardX import SummaryWriter  # type: ignore[import-untyped, unused-ignore]
    except ImportError as error:
        raise UsageError(f"logs need TensorBoard ({error}): pip install 'robustcmp[tensorboard]'") from None
    directory = as_path(directory, "directory")
    make_directory(directory)
    logs = []
    for measurement in measurements:
        asked = measurement.asked
        if asked.task != "train":
            continue
        log = directory / f"{asked.subject}-batch-{asked.batch_size}-repetition-{asked.repetition}"
        for earlier in log.glob("events.out.tfevents.*"):
            earlier.unlink()  # of the same training: two logs in one directory are read as one
        writer = SummaryWriter(str(log), write_to_disk=True)
        began = datetime.fromisoformat(measurement.began).timestamp() + measurement.ready_seconds
        ends = accumulate(epoch.seconds for epoch in measurement.epochs)
        for step, (epoch, end) in enumerate(zip(measurement.epochs, ends, strict=True), 1):
            for name in SCALARS:
                if (value := getattr(epoch, name)) is not None:
                    writer.add_scalar(name, value, step, walltime=began + end)
        writer.close()
        logs.append(log)
    return logs

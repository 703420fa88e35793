"""Measured trainings as logs of TensorBoard."""

from __future__ import annotations

import os
from collections.abc import Iterable
from datetime import datetime
from itertools import accumulate
from pathlib import Path

from ..errors import UsageError
from ..files import as_path, make_directory
from .measurement import Epoch, Measurement

SCALARS = ("loss", "training_accuracy", "validation_accuracy", "seconds")


def to_tensorboard(measurements: Iterable[Measurement], directory: str | os.PathLike[str]) -> list[Path]:
    """Write one log for each training, and return their directories.

    Raises
    ------
    UsageError
        The directory cannot be written, or tensorboardX is not installed.
    """
    try:
        # It imports no framework, unlike TensorBoard's own.
        from tensorboardX import SummaryWriter  # type: ignore[import-untyped, unused-ignore]
    except ImportError as error:
        raise UsageError(f"logs need TensorBoard ({error}): pip install 'robustcmp[tensorboard]'") from None
    directory = as_path(directory, "directory")
    make_directory(directory)
    written = []
    for measured in measurements:
        asked = measured.asked
        if asked.task != "train":
            continue
        path = Path(directory, f"{asked.subject}-batch-{asked.batch_size}-repetition-{asked.repetition}")
        for old in path.glob("events.out.tfevents.*"):
            old.unlink()  # of the same training: two logs in one directory are read as one
        writer = SummaryWriter(str(path), write_to_disk=True)
        began = datetime.fromisoformat(measured.began).timestamp() + measured.ready_seconds
        ends = accumulate(epoch.seconds for epoch in measured.epochs)
        for step, (epoch, end) in enumerate(zip(measured.epochs, ends, strict=True), 1):
            for name, value in _scalars(epoch):
                writer.add_scalar(name, value, step, walltime=began + end)
        writer.close()
        written.append(path)
    return written


def _scalars(epoch: Epoch) -> Iterable[tuple[str, float]]:
    values = ((name, getattr(epoch, name)) for name in SCALARS)
    return ((name, value) for name, value in values if value is not None)

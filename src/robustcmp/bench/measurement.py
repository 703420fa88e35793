"""A measurement: one framework or runtime that trained, or predicted, in a process of its own; the unit of resuming.

Times are in seconds, memory is in bytes.
"""

from __future__ import annotations

from typing import Annotated, Literal, NamedTuple

import msgspec

from ..records.attack import CellKey, Whole
from ..records.manifest import Positive, Share

SEMANTICS = 4  # of measured values: those of another number are not resumed, and stay readable
TASKS = ("train", "forward", "forward-backward")
# What is measured: steps of a training; predictions; predictions with the gradient of the images.
Task = Literal["train", "forward", "forward-backward"]

Time = Annotated[float, msgspec.Meta(ge=0, le=1e12)]
Times = Annotated[list[Time], msgspec.Meta(max_length=2**24)]
Epochs = Annotated[list["Epoch"], msgspec.Meta(max_length=2**16)]


class Setting(NamedTuple):
    """What subjects are compared in."""

    task: Task
    images: int
    batch_size: int


class Asked(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What one measurement is of.

    Attributes
    ----------
    task : str
        One of `TASKS`.
    subject : str
        The framework or the deployment.
    batch_size : int
        Of a step or a call; 1 is MLPerf's single stream, more is its offline.
    images : int
        How many are asked about. 0 for a training, which has epochs.
    repetition : int
        From 0: the same again, in another process.
    """

    task: Task
    subject: str
    batch_size: Positive
    images: Whole
    repetition: Whole

    @property
    def setting(self) -> Setting:
        """What other subjects are measured in, too."""
        return Setting(self.task, self.images, self.batch_size)


class Epoch(msgspec.Struct, frozen=True):
    """An epoch of a training, or the share of one.

    Attributes
    ----------
    share : float
        How many of an epoch's steps it had, as a share.
    seconds : float
        Of its steps alone, without the two accuracies. In the first, frameworks compile.
    loss : float
        The mean cross-entropy of its batches while it went on. None where the training diverged.
    training_accuracy, validation_accuracy : float
        After it, on as many images of the training set as are held out, and on those that are held out.
    """

    share: Share
    seconds: Time
    loss: float | None
    training_accuracy: Share
    validation_accuracy: Share


class Resources(msgspec.Struct, frozen=True):
    """What a process used, with all that it started, looked at ten times a second.

    Attributes
    ----------
    seconds : list of float
        When it was looked at, from the start of the process.
    series : dict of str to list
        Values at these times, None where one was not to be had: ``cpu`` (processors used since the last look, 1.0 is
        one core), ``memory`` (resident, bytes), and on Linux ``others`` (what all other processes used of the
        processors that it was kept to).
    cpu_seconds : float
        Processor time in all.
    peak_memory : int
        The largest resident memory that was seen, in bytes.
    sampling_seconds : float
        Processor time of looking.
    """

    seconds: list[float]
    series: dict[str, list[float | None]]
    cpu_seconds: Time
    peak_memory: Whole
    sampling_seconds: Time


class Measurement(msgspec.Struct, frozen=True):
    """What came of one process.

    Attributes
    ----------
    asked : Asked
        What it is of.
    key : str
        A digest of all that it depends on but the machine's state.
    began : str
        When, in UTC, as ISO 8601.
    seconds : float
        From the start of the process to its end.
    ready_seconds : float
        From its start until the framework, the network and the images were there: imports, above all.
    first_seconds : float
        The first step or call, in which frameworks compile.
    calls : list of float
        All steps or calls after it in their order. Which of them are warm-up is for the reader to say.
    threads : int
        How many threads it was given.
    device : str
        ``"cpu"`` or ``"cuda"``.
    resources : Resources
        What it used.
    epochs : list of Epoch
        Of a training.
    version : str
        Of the framework or the runtime.
    semantics : int
        The `SEMANTICS` of its values.
    """

    asked: Asked
    key: CellKey
    began: str
    seconds: Time
    ready_seconds: Time
    first_seconds: Time
    calls: Times
    threads: Positive
    device: str
    resources: Resources
    epochs: Epochs = []
    version: str = ""
    semantics: Positive = 1

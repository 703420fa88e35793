"""Tasks on their way to other processes, and how a task is done in any of them."""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..attacks.base import Attack
from ..data.arrays import Images, Labels
from ..frameworks import Device
from ..models.classifier import Classifier
from ..records.attack import AttackResult, Cell
from ..sources.deployed import Origin
from .identity import Identity
from .plan import Plan, Task

CHILD = f"{__package__}.child:serve"  # what another process runs to do tasks


class Finished(NamedTuple):
    """A cell with its result.

    Attributes
    ----------
    cell : Cell
        The cell.
    result : AttackResult
        What the attack did.
    seconds : float
        The time since the task began, or since its previous cell. Of cells that finish together, the first has all of
        it and the others next to nothing.
    worker : str, optional
        Who did it; None for this process.
    """

    cell: Cell
    result: AttackResult
    seconds: float
    worker: str | None = None


def time_repeats(
    classifier: Classifier,
    attack: Attack,
    images: Images,
    labels: Labels,
    seed: int,
    cells: Sequence[Cell],
) -> Iterator[Finished]:
    """Yield each cell with its result and the time since the one before."""
    previous = perf_counter()
    results = attack.outcomes(classifier, images, labels, seed, [cell.repeat for cell in cells])
    for cell, result in zip(cells, results, strict=True):
        now = perf_counter()
        yield Finished(cell, result, now - previous)
        previous = perf_counter()


@dataclass(frozen=True)
class RemoteTask:
    """All that another process needs to do a task.

    Attributes
    ----------
    origin : Origin
        What the model is loaded from.
    files : dict of str to (str, bytes)
        Name and content of each file that the origin is loaded from, by the origin's field.
    device : str
        Where it runs.
    identity : Identity
        What the model has to be there as well.
    attack : attack
        With its settings.
    cells : list of Cell
        The repeats that are missing.
    images, labels, traced : ndarray
        What is attacked, its classes, and the images that the model is compiled with, none where it is not compiled.
    seed : int
        The attacks' seed.
    batch_size, parts : int
        How many candidates are asked at once, and in how many parts the images are worked on side by side.
    keep_images : bool
        Whether the adversarial images are wanted; they are most of what goes back.
    """

    origin: Origin
    files: dict[str, tuple[str, bytes]]
    device: Device
    identity: Identity
    attack: Attack
    cells: list[Cell]
    images: Images
    labels: Labels
    traced: NDArray[np.float32]
    seed: int
    batch_size: int
    parts: int
    keep_images: bool


class Needs(NamedTuple):
    """What a process has to have for a task: a device, and frameworks, of which the first runs it."""

    frameworks: tuple[str, ...]
    device: Device


def find_needs(plan: Plan, task: Task) -> Needs | None:
    """Return what a task needs elsewhere, None if its model has no origin or its attack cannot be imported there."""
    model = plan.model(task.model)
    if model.origin is None or not _can_travel(plan.suite.attacks[task.attack]):
        return None
    names = dict.fromkeys([model.classifier.framework.name, *model.origin.frameworks])
    return Needs(tuple(names), "cuda" if model.classifier.on_gpu else "cpu")


def pack(plan: Plan, task: Task, device: Device) -> RemoteTask:
    """Return what is sent."""
    model = plan.model(task.model)
    assert model.origin is not None
    classifier = model.classifier
    return RemoteTask(
        origin=model.origin,
        files={name: (path.name, path.read_bytes()) for name, path in model.origin.files.items()},
        device=device,
        identity=model.identity,
        attack=plan.suite.attacks[task.attack],
        cells=task.cells,
        images=plan.images,
        labels=plan.labels,
        traced=plan.images[:0] if classifier.traced is None else classifier.traced,
        seed=plan.question.seed,
        batch_size=classifier.batch_size,
        parts=classifier.workers,
        keep_images=plan.keep_images,
    )


def _can_travel(attack: Attack) -> bool:
    try:
        return b"__main__" not in pickle.dumps(attack)  # a class or a function that only this process has
    except Exception:  # whatever an attack of the user's holds
        return False

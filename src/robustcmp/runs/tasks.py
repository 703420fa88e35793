"""Tasks on their way to other processes, and how a task is done in any of them."""

from __future__ import annotations

import pickle
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..attacks.base import Attack
from ..files import digest, file_digest
from ..frameworks import Device
from ..models.classifier import Classifier
from ..records.attack import AttackResult, Cell
from ..sources.deployed import Origin
from .identity import Identity
from .plan import Plan, Task, TaskKey

CHILD = f"{__package__}.child:serve"  # what another process runs to do tasks
Arrays = dict[str, NDArray[Any]]


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
    peak_memory : int, optional
        The largest resident memory of the process that did it since the task began, in bytes.
    worker : str, optional
        Who did it; None for this process.
    """

    cell: Cell
    result: AttackResult
    seconds: float
    peak_memory: int | None = None
    worker: str | None = None

    @property
    def key(self) -> TaskKey:
        """The key of its task."""
        return self.cell.model, self.cell.training_seed, self.cell.attack


def time_repeats(
    classifier: Classifier,
    attack: Attack,
    images: NDArray[np.float32],
    labels: NDArray[np.int64],
    seed: int,
    cells: Sequence[Cell],
) -> Iterator[Finished]:
    """Yield each cell with its result, the time since the one before and the memory since the first."""
    forget_peak_memory()
    previous = perf_counter()
    results = attack.outcomes(classifier, images, labels, seed, [cell.repeat for cell in cells])
    for cell, result in zip(cells, results, strict=True):
        now = perf_counter()
        yield Finished(cell, result, now - previous, peak_memory())
        previous = perf_counter()


def forget_peak_memory() -> bool:
    """Let `peak_memory` be that from now on, and say whether it is: only Linux knows more than one peak a process."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return False
    return True


def peak_memory() -> int | None:
    """Return the largest resident memory of this process, in bytes: since it was forgotten, or ever."""
    try:
        match = re.search(r"VmHWM:\s*(\d+) kB", Path("/proc/self/status").read_text())
        if match:
            return 1024 * int(match[1])
    except OSError:
        pass
    try:
        import resource  # a child begins with its parent's peak, so it is the second choice
    except ImportError:  # Windows
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else 1024 * peak


@dataclass(frozen=True)
class RemoteTask:
    """What another process needs to do a task; arrays and files go by their digests.

    Attributes
    ----------
    origin : Origin
        What the model is loaded from.
    files : dict of str to (str, str)
        Name and digest of each file that the origin is loaded from, by the origin's field.
    frameworks : tuple of str
        Those that it needs; the first is the one that it runs in.
    device : str
        Where it runs.
    identity : Identity
        What the model has to be there as well.
    attack : attack
        With its settings.
    cells : list of Cell
        The repeats that are missing.
    data : str
        The digest of the images, their labels, and those that the model is compiled with.
    seed : int
        The attacks' seed.
    batch_size, parts : int
        How many candidates are asked at once, and in how many parts the images are worked on side by side.
    keep_images : bool
        Whether the adversarial images are wanted; they are most of what goes back.
    """

    origin: Origin
    files: dict[str, tuple[str, str]]
    frameworks: tuple[str, ...]
    device: Device
    identity: Identity
    attack: Attack
    cells: list[Cell]
    data: str
    seed: int
    batch_size: int
    parts: int
    keep_images: bool


class Packer:
    """Makes of the tasks of a plan what other processes can do, and finds what they need for it."""

    def __init__(self, plan: Plan):
        self._plan = plan
        self._arrays: dict[str, Arrays] = {}
        self._paths: dict[str, Path] = {}

    def pack(self, task: Task) -> RemoteTask | None:
        """Return what can be sent, None if the model has no origin or the attack cannot be imported."""
        plan = self._plan
        model, attack = plan.model(task.model), plan.suite.attacks[task.attack]
        if model.origin is None or not _can_travel(attack):
            return None
        files = {}
        for name, path in model.origin.files.items():
            sha = file_digest(path)
            files[name] = (path.name, sha)
            self._paths[sha] = path
        classifier = model.classifier
        traced = classifier.traced if classifier.traced is not None else plan.images[:0]
        arrays: Arrays = {"images": plan.images, "labels": plan.labels, "traced": traced}
        data = digest(arrays)
        self._arrays.setdefault(data, arrays)
        return RemoteTask(
            origin=model.origin,
            files=files,
            frameworks=tuple(dict.fromkeys([classifier.framework.name, *model.origin.frameworks])),
            device="cuda" if classifier.on_gpu else "cpu",
            identity=plan.identities[model.key],
            attack=attack,
            cells=task.cells,
            data=data,
            seed=plan.seed,
            batch_size=classifier.batch_size,
            parts=classifier.workers,
            keep_images=plan.keep_images,
        )

    def find(self, sha: str) -> Any:
        """Return the arrays or the bytes of the file with a digest."""
        return self._arrays[sha] if sha in self._arrays else self._paths[sha].read_bytes()

    def contents(self, remote: RemoteTask) -> dict[str, Any]:
        """Return all that a task needs, by digest."""
        return {sha: self.find(sha) for sha in [remote.data, *(sha for _, sha in remote.files.values())]}


def _can_travel(attack: Attack) -> bool:
    try:
        return b"__main__" not in pickle.dumps(attack)  # a class or a function that only this process has
    except Exception:  # whatever an attack of the user's holds
        return False

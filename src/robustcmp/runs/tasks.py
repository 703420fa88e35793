"""Tasks on their way to other processes, and how a task is done in any of them."""

from __future__ import annotations

import pickle
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..attacks.base import Attack
from ..files import digest, file_digest
from ..models.classifier import Classifier
from ..records.attack import AttackResult
from .plan import ModelKey, Plan, Remote, Task

CHILD = f"{__package__}.child:serve"  # what another process runs to do tasks
Arrays = dict[str, NDArray[Any]]


class Timed(NamedTuple):
    """One repeat's result, with its costs: as the fields of `robustcmp.runs.executors.Finished`."""

    result: AttackResult
    seconds: float
    peak_memory: int | None


def time_repeats(
    classifier: Classifier,
    attack: Attack,
    images: NDArray[np.float32],
    labels: NDArray[np.int64],
    seed: int,
    repeats: Sequence[int],
) -> Iterator[Timed]:
    """Yield the result of each of the repeats, with the time since the one before and the memory since the first."""
    forget_peak_memory()
    previous = perf_counter()
    for result in attack.outcomes(classifier, images, labels, seed, repeats):
        now = perf_counter()
        yield Timed(result, now - previous, peak_memory())
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
        held = re.search(r"VmHWM:\s*(\d+) kB", Path("/proc/self/status").read_text())
        if held:
            return 1024 * int(held[1])
    except OSError:
        pass
    try:
        import resource  # a child begins with its parent's peak, so it is the second choice
    except ImportError:  # Windows
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else 1024 * peak


class Luggage(Mapping[str, Any]):
    """What tasks need, by digest: arrays, and the bytes of files, read when they are asked for."""

    def __init__(self) -> None:
        self._arrays: dict[str, Arrays] = {}
        self._paths: dict[str, Path] = {}

    def add_arrays(self, arrays: Arrays) -> str:
        sha = digest(arrays)
        self._arrays[sha] = arrays
        return sha

    def add_file(self, path: Path) -> str:
        sha = file_digest(path)
        self._paths[sha] = path
        return sha

    def __getitem__(self, sha: str) -> Any:
        return self._arrays[sha] if sha in self._arrays else self._paths[sha].read_bytes()

    def __iter__(self) -> Iterator[str]:
        yield from (*self._arrays, *self._paths)

    def __len__(self) -> int:
        return len(self._arrays) + len(self._paths)


class Packer:
    """Adds to the tasks of a plan what other processes need to do them."""

    def __init__(self, plan: Plan):
        self.plan, self.luggage = plan, Luggage()
        self._files: dict[ModelKey, dict[str, tuple[str, str]]] = {}
        self._data: dict[bytes, str] = {}  # digests, by the images that models are compiled with

    def pack(self, task: Task) -> Task:
        """Return a task that can be sent; as it is if its model has no origin or its attack cannot be imported."""
        model, attack = self.plan.model(task.model), self.plan.attack(task)
        if model.origin is None or not _can_travel(attack):
            return task
        if model.key not in self._files:
            files = model.origin.files
            self._files[model.key] = {name: (path.name, self.luggage.add_file(path)) for name, path in files.items()}
        classifier = model.classifier
        traced = classifier.traced if classifier.traced is not None else self.plan.images[:0]
        framework = classifier.framework.name
        remote = Remote(
            origin=model.origin,
            files=self._files[model.key],
            frameworks=tuple(dict.fromkeys([framework, *model.origin.frameworks])),
            device="cuda" if classifier.on_gpu else "cpu",
            identity=self.plan.identities[model.key],
            attack=attack,
            data=self._data_digest(traced),
            seed=self.plan.seed,
            parts=classifier.workers,
            keep_images=self.plan.keep_images,
        )
        return replace(task, remote=remote)

    def _data_digest(self, traced: NDArray[np.float32]) -> str:
        key = traced.tobytes()
        if key not in self._data:
            arrays: Arrays = {"images": self.plan.images, "labels": self.plan.labels, "traced": traced}
            self._data[key] = self.luggage.add_arrays(arrays)
        return self._data[key]


def _can_travel(attack: Attack) -> bool:
    try:
        return b"__main__" not in pickle.dumps(attack)  # a class or a function that only this process has
    except Exception:  # whatever an attack of the user's holds
        return False

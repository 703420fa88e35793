"""A task as a value that travels: what another process needs to do it, and how it is done there."""

from __future__ import annotations

import pickle
import re
import sys
import tempfile
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..attacks.suite import RunnableAttack
from ..files import digest, file_digest
from ..frameworks import Device
from ..models.classifier import Classifier
from ..models.preflight import in_unit_bounds
from ..records.cell import AttackResult
from ..sources.deployed import Origin
from .identity import Identity, identify_once
from .plan import Plan, Task

MOST_MODELS = 64  # that a process keeps ready, of
KEPT_BYTES = 2**29  # of weights together, and more only where a single model has them;
UNKNOWN_BYTES = 2**26  # is what a model counts that does not say what it has learned
MOST_DATA = 2  # sets of images
Arrays = dict[str, NDArray[Any]]


class Timed(NamedTuple):
    """One repeat's result, with its costs: as the fields of `robustcmp.runs.executor.Finished`."""

    result: AttackResult
    seconds: float
    peak_memory: int | None


def timed(
    classifier: Classifier,
    attack: RunnableAttack,
    images: NDArray[np.float32],
    labels: NDArray[np.int64],
    seed: int,
    repeats: Sequence[int],
) -> Iterator[Timed]:
    """Yield the result of each of the repeats, with the time since the one before and the memory since the first."""
    forget_peak_memory()
    previous = perf_counter()
    classifier.framework.reset_retries()
    for result in attack.outcomes(classifier, images, labels, seed, repeats):
        now = perf_counter()
        yield Timed(result, now - previous, peak_memory())
        previous = perf_counter()
        classifier.framework.reset_retries()


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


@dataclass(frozen=True)
class Work:
    """What another process needs to do a task; arrays and files go by their digests.

    Attributes
    ----------
    model : tuple of (str, int)
        The model's name and training seed.
    origin : Origin
        What it is loaded from.
    files : dict of str to (str, str)
        Name and digest of each file that the origin is loaded from, by the origin's field.
    frameworks : tuple of str
        Those that it needs; the first is the one that it runs in.
    device : str
        Where it runs.
    identity : Identity
        What it has to be there as well.
    attack : attack
        With its settings, and what is known of finished repeats.
    attack_name : str
        What it is called in its suite.
    data : str
        The digest of the images, their labels, and those that it is compiled with.
    seed : int
        The attacks' seed.
    repeats : list of int
        What to do.
    batch_size, parts : int
        How many candidates are asked at once, and in how many parts the images are worked on side by side.
    keep_images : bool
        Whether the adversarial images are wanted; they are most of what goes back.
    """

    model: tuple[str, int]
    origin: Origin
    files: dict[str, tuple[str, str]]
    frameworks: tuple[str, ...]
    device: Device
    identity: Identity
    attack: RunnableAttack
    attack_name: str
    data: str
    seed: int
    repeats: list[int]
    batch_size: int
    parts: int
    keep_images: bool

    @property
    def needs(self) -> tuple[Any, ...]:
        """What a worker has to have for it."""
        return self.frameworks, self.device


class Luggage(Mapping[str, Any]):
    """What works need, by digest: arrays, and the bytes of files, read when they are asked for."""

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
    """Makes works of the tasks of a plan."""

    def __init__(self, plan: Plan):
        self.plan, self.luggage = plan, Luggage()
        self._files: dict[tuple[str, int], dict[str, tuple[str, str]]] = {}
        self._data: dict[bytes, str] = {}  # digests, by the images that models are compiled with

    def work(self, task: Task) -> Work | None:
        """Return a task as a value that travels; None for one that cannot, so that it is done by this process.

        The model has to have an origin, and the attack to be importable.
        """
        model, attack = self.plan.model(task.model), self.plan.attack(task)
        if model.origin is None or not _travels(attack):
            return None
        if model.key not in self._files:
            files = model.origin.files
            self._files[model.key] = {name: (path.name, self.luggage.add_file(path)) for name, path in files.items()}
        classifier = model.classifier
        traced = classifier.traced if classifier.traced is not None else self.plan.images[:0]
        framework = classifier.framework.name
        return Work(
            model=model.key,
            origin=model.origin,
            files=self._files[model.key],
            frameworks=tuple(dict.fromkeys([framework, *model.origin.frameworks])),
            device="cuda" if classifier.on_gpu else "cpu",
            identity=self.plan.identities[model.key],
            attack=attack,
            attack_name=task.attack,
            data=self._data_digest(traced),
            seed=self.plan.seed,
            repeats=[cell.repeat for cell in task.cells],
            batch_size=task.batch_size,
            parts=classifier.workers,
            keep_images=self.plan.keep_images,
        )

    def _data_digest(self, traced: NDArray[np.float32]) -> str:
        key = traced.tobytes()
        if key not in self._data:
            arrays: Arrays = {"images": self.plan.images, "labels": self.plan.labels, "traced": traced}
            self._data[key] = self.luggage.add_arrays(arrays)
        return self._data[key]


def _travels(attack: RunnableAttack) -> bool:
    try:
        return b"__main__" not in pickle.dumps(attack)  # a class or a function that only this process has
    except Exception:  # whatever an attack of the user's holds
        return False


class Other(Exception):
    """A model is not the same here as where its work was made, so its results would not be either."""


class _Ready(NamedTuple):
    """A loaded model, what of it was compared with the one that its works were made for, and how large it is."""

    classifier: Classifier
    compared: set[str]
    bytes: int


class Bench:
    """Where works are done: models stay ready from one to the next.

    Parameters
    ----------
    fetch : callable
        Returns arrays, or the bytes of a file, by digest.
    """

    def __init__(self, fetch: Callable[[str], Any]):
        self._fetch = fetch
        self._data: OrderedDict[str, Arrays] = OrderedDict()
        self._models: OrderedDict[tuple[Any, ...], _Ready] = OrderedDict()

    def outcomes(self, work: Work, at_once: int | None, asked: Callable[[int], object]) -> Iterator[Timed]:
        """Yield the result of each repeat of a work.

        Parameters
        ----------
        work : Work
            What to do.
        at_once : int, optional
            How many parts are worked on at the same time; all if nothing is said.
        asked : callable
            Called with a number of queries, as they are asked; with none once the model is ready.

        Raises
        ------
        Other
            The model is not the same here.
        """
        if work.data not in self._data:
            self._data[work.data] = self._fetch(work.data)
            while len(self._data) > MOST_DATA:
                self._data.popitem(last=False)
        self._data.move_to_end(work.data)
        data = self._data[work.data]
        ready = self._ready(work, data)
        _compare(ready, work, data)
        asked(0)  # from here on time goes into queries
        classifier = ready.classifier.with_callback(asked)
        classifier.at_once = at_once
        for made in timed(classifier, work.attack, data["images"], data["labels"], work.seed, work.repeats):
            yield made if work.keep_images else made._replace(result=replace(made.result, adversarials=None))

    def _loaded(self, work: Work, data: Arrays) -> Classifier:
        """Return a model, loaded and compiled as it was where the work was made."""
        with tempfile.TemporaryDirectory(prefix="robustcmp-") as directory:
            paths = {}
            for field, (name, sha) in work.files.items():
                paths[field] = Path(directory, name)
                paths[field].write_bytes(self._fetch(sha))
            classifier = Classifier(in_unit_bounds(work.origin.load_from(paths, work.device)))
        if len(data["traced"]):
            classifier = classifier.compiled(data["traced"])
            if classifier.traced is None:
                raise Other("it cannot be compiled, as it was in the process that compares")
        classifier = classifier.with_batch_size(work.batch_size)
        classifier.workers = work.parts
        return classifier

    def _ready(self, work: Work, data: Arrays) -> _Ready:
        """Return a model that is kept, or is loaded now in the place of those that were not used for longest."""
        same = work.identity.in_key(needs_gradient=True).values()
        key = (work.origin, *work.files.items(), work.device, work.batch_size, work.parts, work.data, *same)
        if key not in self._models:
            classifier = self._loaded(work, data)
            parameters = classifier.parameters()
            size = UNKNOWN_BYTES if parameters is None else sum(array.nbytes for array in parameters)
            self._models[key] = _Ready(classifier, set(), size)
            while len(self._models) > 1 and (
                len(self._models) > MOST_MODELS or sum(ready.bytes for ready in self._models.values()) > KEPT_BYTES
            ):
                self._models.popitem(last=False)
        self._models.move_to_end(key)
        return self._models[key]


def _compare(ready: _Ready, work: Work, data: Arrays) -> None:
    """Raise `Other` if what a work's cells depend on is not as in the process that compares; asked once a model."""
    needs_gradient = work.attack.needs_gradient
    names = work.identity.in_key(needs_gradient).keys()
    if names <= ready.compared:
        return
    here = identify_once(ready.classifier, data["images"], data["labels"], needs_gradient)
    if differing := work.identity.difference(here, needs_gradient):
        raise Other(f"{differing} differ, if only in their last bits, from those in the process that compares")
    ready.compared.update(names)

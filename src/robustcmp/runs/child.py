"""What a process does that attacks for the one of the comparison; `robustcmp.processes.Child` is its other end."""

from __future__ import annotations

import os
import queue
import tempfile
import threading
import time
import traceback
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

from ..errors import RobustcmpError
from ..models.classifier import Classifier
from ..models.preflight import in_unit_bounds
from ..processes import Ended, Wanted
from .identity import identify_once
from .tasks import Arrays, Finished, RemoteTask, time_repeats

TELL_SECONDS = 0.2  # between two messages about queries
IDLE_SECONDS = 1800  # after which a process that nobody needs ends itself
KEPT_BYTES = 2**29  # of weights together, more only where a single model has them
UNKNOWN_BYTES = 2**26  # for a model that does not say what it has learned


class Asked(NamedTuple):
    """So many queries more were asked."""

    queries: int


class _Teller:
    """Tells of queries now and then; called from several threads."""

    def __init__(self, connection: Connection[Any, Any]):
        self._connection, self._lock = connection, threading.Lock()
        self._queries, self._told = 0, time.monotonic()

    def count(self, queries: int) -> None:
        """Tell of queries, and at once of none, which says that the model is ready."""
        with self._lock:
            self._queries += queries
            if not queries or time.monotonic() - self._told > TELL_SECONDS:
                self._tell()

    def send(self, message: Wanted | Finished | Ended) -> None:
        with self._lock:
            if self._queries:
                self._tell()
            self._connection.send(message)

    def _tell(self) -> None:
        self._connection.send(Asked(self._queries))
        self._queries, self._told = 0, time.monotonic()


def serve(connection: Connection[Any, Any]) -> None:
    """Do tasks until the other end hangs up, which ends this process also in the middle of one."""
    inbox: queue.SimpleQueue[Any] = queue.SimpleQueue()
    threading.Thread(target=_receive, args=(connection, inbox), daemon=True).start()
    teller = _Teller(connection)

    def fetch(sha: str) -> Any:
        teller.send(Wanted(sha))
        return inbox.get()

    bench = _Bench(fetch)
    while True:
        try:
            task, at_once = inbox.get(timeout=IDLE_SECONDS)
        except queue.Empty:
            return
        teller.send(_do(bench, task, at_once, teller))


def _receive(connection: Connection[Any, Any], inbox: queue.SimpleQueue[Any]) -> None:
    try:
        while True:
            inbox.put(connection.recv())
    except (EOFError, OSError):
        os._exit(0)
    except Exception:  # what came needs a module that is not here; nobody else would say so
        traceback.print_exc()
        os._exit(1)


def _do(bench: _Bench, task: RemoteTask, at_once: int | None, teller: _Teller) -> Ended:
    """Do a task and return how it ended."""
    try:
        for finished in bench.attack(task, at_once, teller.count):
            teller.send(finished)
    except _DifferentModel as error:
        return Ended(str(error), is_refused=True)
    except Exception as error:  # whatever a model raises is about this task alone
        return Ended(str(error) if isinstance(error, RobustcmpError) else f"{type(error).__name__}: {error}")
    return Ended()


class _DifferentModel(Exception):
    """A model is not the same here as in the process that compares, so its results would not be either."""


class _Ready(NamedTuple):
    """A loaded model, what of it was compared with the one in the process that compares, and how large it is."""

    classifier: Classifier
    compared: set[str]
    bytes: int


class _Bench:
    """Where tasks are done: models stay ready from one to the next.

    Parameters
    ----------
    fetch : callable
        Returns arrays, or the bytes of a file, by digest.
    """

    def __init__(self, fetch: Callable[[str], Any]):
        self._fetch = fetch
        self._data: dict[str, Arrays] = {}
        self._models: OrderedDict[tuple[Any, ...], _Ready] = OrderedDict()

    def attack(self, task: RemoteTask, at_once: int | None, asked: Callable[[int], object]) -> Iterator[Finished]:
        """Yield each cell of a task with its result.

        Parameters
        ----------
        task : RemoteTask
            What to do.
        at_once : int, optional
            How many parts are worked on at the same time (default: all).
        asked : callable
            Called with a number of queries, as they are asked; with none once the model is ready.

        Raises
        ------
        _DifferentModel
            The model is not the same here.
        """
        if task.data not in self._data:
            self._data = {task.data: self._fetch(task.data)}
        data = self._data[task.data]
        ready = self._find_model(task, data)
        _compare(ready, task, data)
        asked(0)  # from here on time goes into queries
        classifier = ready.classifier.with_callback(asked)
        classifier.at_once = at_once
        for made in time_repeats(classifier, task.attack, data["images"], data["labels"], task.seed, task.cells):
            yield made if task.keep_images else made._replace(result=replace(made.result, adversarials=None))

    def _load(self, task: RemoteTask, data: Arrays) -> Classifier:
        """Load and compile a model as in the process that compares."""
        with tempfile.TemporaryDirectory(prefix="robustcmp-") as directory:
            paths = {}
            for field, (name, sha) in task.files.items():
                paths[field] = Path(directory, name)
                paths[field].write_bytes(self._fetch(sha))
            classifier = Classifier(in_unit_bounds(task.origin.load_from(paths, task.device)))
        if len(data["traced"]):
            classifier = classifier.compile(data["traced"])
            if classifier.traced is None:
                raise _DifferentModel("it cannot be compiled, as it was in the process that compares")
        classifier = classifier.with_batch_size(task.batch_size)
        classifier.workers = task.parts
        return classifier

    def _find_model(self, task: RemoteTask, data: Arrays) -> _Ready:
        """Return a model that is kept, or load it in the place of those that were not used for longest."""
        same = task.identity.in_key(needs_gradient=True).values()
        key = (task.origin, *task.files.items(), task.device, task.batch_size, task.parts, task.data, *same)
        if key not in self._models:
            classifier = self._load(task, data)
            parameters = classifier.parameters()
            size = UNKNOWN_BYTES if parameters is None else sum(array.nbytes for array in parameters)
            self._models[key] = _Ready(classifier, set(), size)
            while len(self._models) > 1 and sum(ready.bytes for ready in self._models.values()) > KEPT_BYTES:
                self._models.popitem(last=False)
        self._models.move_to_end(key)
        return self._models[key]


def _compare(ready: _Ready, task: RemoteTask, data: Arrays) -> None:
    """Raise `_DifferentModel` if what cells depend on is not as in the process that compares; asked once a model."""
    needs_gradient = task.attack.needs_gradient
    names = task.identity.in_key(needs_gradient).keys()
    if names <= ready.compared:
        return
    here = identify_once(ready.classifier, data["images"], data["labels"], needs_gradient)
    if difference := task.identity.difference(here, needs_gradient):
        raise _DifferentModel(
            f"{difference} differ, if only in their last bits, from those in the process that compares"
        )
    ready.compared.update(names)

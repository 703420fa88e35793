"""What a process does that attacks for the one of the comparison; `robustcmp.processes.Child` is its other end."""

from __future__ import annotations

import os
import queue
import tempfile
import threading
import time
import traceback
from collections import OrderedDict
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

from ..errors import RobustcmpError
from ..models.classifier import Classifier
from ..models.preflight import in_unit_bounds
from ..processes import Ended
from .identity import identify_once
from .tasks import Finished, RemoteTask, time_repeats

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
        self._connection = connection
        self._lock = threading.Lock()
        self._queries = 0
        self._told = time.monotonic()

    def count(self, queries: int) -> None:
        """Tell of queries, and at once of none, which says that the model is ready."""
        with self._lock:
            self._queries += queries
            if not queries or time.monotonic() - self._told > TELL_SECONDS:
                self._tell()

    def send(self, message: Finished | Ended) -> None:
        with self._lock:
            if self._queries:
                self._tell()
            self._connection.send(message)

    def _tell(self) -> None:
        self._connection.send(Asked(self._queries))
        self._queries = 0
        self._told = time.monotonic()


def serve(connection: Connection[Any, Any]) -> None:
    """Do tasks until the other end hangs up, which ends this process also in the middle of one."""
    inbox: queue.SimpleQueue[Any] = queue.SimpleQueue()
    threading.Thread(target=_receive, args=(connection, inbox), daemon=True).start()
    teller = _Teller(connection)
    models: OrderedDict[tuple[Any, ...], _Ready] = OrderedDict()
    while True:
        try:
            task, at_once = inbox.get(timeout=IDLE_SECONDS)
        except queue.Empty:
            return
        teller.send(_do(models, task, at_once, teller))


def _receive(connection: Connection[Any, Any], inbox: queue.SimpleQueue[Any]) -> None:
    try:
        while True:
            inbox.put(connection.recv())
    except (EOFError, OSError):
        os._exit(0)
    except Exception:  # what came needs a module that is not here; nobody else would say so
        traceback.print_exc()
        os._exit(1)


class _DifferentModel(Exception):
    """A model is not the same here as in the process that compares, so its results would not be either."""


class _Ready(NamedTuple):
    """A loaded model, what of it was compared with the one in the process that compares, and how large it is."""

    classifier: Classifier
    compared: set[str]
    bytes: int


def _do(models: OrderedDict[tuple[Any, ...], _Ready], task: RemoteTask, at_once: int | None, teller: _Teller) -> Ended:
    """Do a task, of which at most so many parts are worked on at the same time, and return how it ended."""
    try:
        ready = _find_model(models, task)
        _compare(ready, task)
        teller.count(0)  # from here on time goes into queries
        classifier = ready.classifier.with_callback(teller.count)
        classifier.at_once = at_once
        for made in time_repeats(classifier, task.attack, task.images, task.labels, task.seed, task.cells):
            result = made.result if task.keep_images else replace(made.result, adversarials=None)
            teller.send(made._replace(result=result))
    except _DifferentModel as error:
        return Ended(str(error), is_refused=True)
    except Exception as error:  # whatever a model raises is about this task alone
        models.clear()  # those of a host that died, too
        return Ended(str(error) if isinstance(error, RobustcmpError) else f"{type(error).__name__}: {error}")
    return Ended()


def _find_model(models: OrderedDict[tuple[Any, ...], _Ready], task: RemoteTask) -> _Ready:
    """Return a model that is kept, or load it in the place of those that were not used for longest."""
    same = task.identity.in_key(needs_gradient=True).values()
    key = (task.origin, task.device, task.batch_size, task.parts, task.traced.tobytes(), *same)
    if key not in models:
        classifier = _load(task)
        parameters = classifier.parameters()
        size = UNKNOWN_BYTES if parameters is None else sum(array.nbytes for array in parameters)
        models[key] = _Ready(classifier, set(), size)
        while len(models) > 1 and sum(ready.bytes for ready in models.values()) > KEPT_BYTES:
            models.popitem(last=False)
    models.move_to_end(key)
    return models[key]


def _load(task: RemoteTask) -> Classifier:
    """Load and compile a model as in the process that compares."""
    with tempfile.TemporaryDirectory(prefix="robustcmp-") as directory:
        paths = {}
        for field, (name, content) in task.files.items():
            paths[field] = Path(directory, name)
            paths[field].write_bytes(content)
        classifier = Classifier(in_unit_bounds(task.origin.load_from(paths, task.device)))
    if len(task.traced):
        classifier = classifier.compile(task.traced)
        if classifier.traced is None:
            raise _DifferentModel("it cannot be compiled, as it was in the main process")
    classifier = classifier.with_batch_size(task.batch_size)
    classifier.workers = task.parts
    return classifier


def _compare(ready: _Ready, task: RemoteTask) -> None:
    """Raise `_DifferentModel` if what cells depend on is not as in the process that compares; asked once a model."""
    needs_gradient = task.attack.needs_gradient
    names = task.identity.in_key(needs_gradient).keys()
    if names <= ready.compared:
        return
    received = identify_once(ready.classifier, task.images, task.labels, needs_gradient)
    if difference := task.identity.difference(received, needs_gradient):
        raise _DifferentModel(f"{difference} differ, if only in their last bits, from those in the main process")
    ready.compared.update(names)

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
from typing import TYPE_CHECKING, Any, NamedTuple

from ..errors import RobustcmpError
from ..models.classifier import Classifier
from ..models.preflight import in_unit_bounds
from ..processes import Ended, Wanted
from .identity import identify_once
from .plan import Remote, Task
from .tasks import Arrays, Timed, time_repeats

if TYPE_CHECKING:
    from .trial import TrialTask

TELL_SECONDS = 0.2  # between two messages about queries
IDLE_SECONDS = 1800  # after which a process that nobody needs ends itself
MOST_MODELS = 64  # that a process keeps ready
KEPT_BYTES = 2**29  # of weights together, more only where a single model has them
UNKNOWN_BYTES = 2**26  # for a model that does not say what it has learned
MOST_DATA = 2  # sets of images


class Asked(NamedTuple):
    """So many queries more were asked."""

    queries: int


class Lacking(NamedTuple):
    """The task needs what was not at the other end; what it got stays here."""

    sha: str


class Refused(NamedTuple):
    """The model is not the same here."""

    reason: str


class Raised(NamedTuple):
    """The task ended with an error."""

    reason: str


Result = Lacking | Refused | Raised | None
"""How a task ended; None for a task that is done."""


class _Missing(Exception):
    """What is wanted is not at the other end."""


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

    def send(self, message: Wanted | Timed | Ended) -> None:
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
        content = inbox.get()
        if content is None:
            raise _Missing(sha)
        return content

    bench = Bench(fetch)
    while True:
        try:
            task, at_once = inbox.get(timeout=IDLE_SECONDS)
        except queue.Empty:
            return
        teller.send(Ended(_do(bench, task, at_once, teller)))


def _receive(connection: Connection[Any, Any], inbox: queue.SimpleQueue[Any]) -> None:
    try:
        while True:
            inbox.put(connection.recv())
    except (EOFError, OSError):
        os._exit(0)
    except Exception:  # what came needs a module that is not here; nobody else would say so
        traceback.print_exc()
        os._exit(1)


def _do(bench: Bench, task: Task | TrialTask, at_once: int | None, teller: _Teller) -> Result:
    """Do a task and return how it ended."""
    try:
        if isinstance(task, Task):
            for repeat in bench.outcomes(task, at_once, teller.count):
                teller.send(repeat)
        else:
            task.run()
    except _Missing as error:
        return Lacking(str(error))
    except DifferentModel as error:
        return Refused(str(error))
    except Exception as error:  # whatever a model raises is about this task alone
        return Raised(str(error) if isinstance(error, RobustcmpError) else f"{type(error).__name__}: {error}")
    return None


class DifferentModel(Exception):
    """A model is not the same here as in the process that compares, so its results would not be either."""


class _Ready(NamedTuple):
    """A loaded model, what of it was compared with the one in the process that compares, and how large it is."""

    classifier: Classifier
    compared: set[str]
    bytes: int


class Bench:
    """Where tasks are done: models stay ready from one to the next.

    Parameters
    ----------
    fetch : callable
        Returns arrays, or the bytes of a file, by digest.
    """

    def __init__(self, fetch: Callable[[str], Any]):
        self._fetch = fetch
        self._data: OrderedDict[str, Arrays] = OrderedDict()
        self._models: OrderedDict[tuple[Any, ...], _Ready] = OrderedDict()

    def outcomes(self, task: Task, at_once: int | None, asked: Callable[[int], object]) -> Iterator[Timed]:
        """Yield the result of each repeat of a task.

        Parameters
        ----------
        task : Task
            What to do.
        at_once : int, optional
            How many parts are worked on at the same time (default: all).
        asked : callable
            Called with a number of queries, as they are asked; with none once the model is ready.

        Raises
        ------
        DifferentModel
            The model is not the same here.
        """
        remote = task.remote
        assert remote is not None
        if remote.data not in self._data:
            self._data[remote.data] = self._fetch(remote.data)
            while len(self._data) > MOST_DATA:
                self._data.popitem(last=False)
        self._data.move_to_end(remote.data)
        data = self._data[remote.data]
        ready = self._ready(remote, task.batch_size, data)
        _compare(ready, remote, data)
        asked(0)  # from here on time goes into queries
        classifier = ready.classifier.with_callback(asked)
        classifier.at_once = at_once
        for made in time_repeats(classifier, remote.attack, data["images"], data["labels"], remote.seed, task.repeats):
            yield made if remote.keep_images else made._replace(result=replace(made.result, adversarials=None))

    def _load(self, remote: Remote, batch_size: int, data: Arrays) -> Classifier:
        """Load and compile a model as in the process that compares."""
        with tempfile.TemporaryDirectory(prefix="robustcmp-") as directory:
            paths = {}
            for field, (name, sha) in remote.files.items():
                paths[field] = Path(directory, name)
                paths[field].write_bytes(self._fetch(sha))
            classifier = Classifier(in_unit_bounds(remote.origin.load_from(paths, remote.device)))
        if len(data["traced"]):
            classifier = classifier.compile(data["traced"])
            if classifier.traced is None:
                raise DifferentModel("it cannot be compiled, as it was in the process that compares")
        classifier = classifier.with_batch_size(batch_size)
        classifier.workers = remote.parts
        return classifier

    def _ready(self, remote: Remote, batch_size: int, data: Arrays) -> _Ready:
        """Return a model that is kept, or load it in the place of those that were not used for longest."""
        same = remote.identity.in_key(needs_gradient=True).values()
        key = (remote.origin, *remote.files.items(), remote.device, batch_size, remote.parts, remote.data, *same)
        if key not in self._models:
            classifier = self._load(remote, batch_size, data)
            parameters = classifier.parameters()
            size = UNKNOWN_BYTES if parameters is None else sum(array.nbytes for array in parameters)
            self._models[key] = _Ready(classifier, set(), size)
            while len(self._models) > 1 and (
                len(self._models) > MOST_MODELS or sum(ready.bytes for ready in self._models.values()) > KEPT_BYTES
            ):
                self._models.popitem(last=False)
        self._models.move_to_end(key)
        return self._models[key]


def _compare(ready: _Ready, remote: Remote, data: Arrays) -> None:
    """Raise `DifferentModel` if what cells depend on is not as in the process that compares; asked once a model."""
    needs_gradient = remote.attack.needs_gradient
    names = remote.identity.in_key(needs_gradient).keys()
    if names <= ready.compared:
        return
    here = identify_once(ready.classifier, data["images"], data["labels"], needs_gradient)
    if difference := remote.identity.difference(here, needs_gradient):
        raise DifferentModel(
            f"{difference} differ, if only in their last bits, from those in the process that compares"
        )
    ready.compared.update(names)

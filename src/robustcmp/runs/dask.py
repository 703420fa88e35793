"""Tasks on workers of Dask: on this machine, or of a scheduler that is there.

The head, the process of the comparison, keeps all tasks, has one of them in flight for each worker, and alone writes. A
worker does each in a process of its own (`robustcmp.runs.child`), so that no model ends a worker.
"""

from __future__ import annotations

import logging
import math
import os
import queue
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache
from importlib.util import find_spec
from itertools import groupby
from typing import Any, NamedTuple
from uuid import uuid4

from .. import frameworks
from ..errors import RobustcmpError, UsageError, check_count
from ..processes import Child, Died, Ended, Limits
from ..provenance import own_version
from ..threads import cores, processors
from .child import Asked, Lacking, Raised, Refused, Result
from .executors import Failed, Finished, InProcess
from .plan import Plan, Remote, Task, TaskKey
from .tasks import CHILD, Packer, Timed

THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")  # the variables on which last bits may depend
LOOK_SECONDS = 1.0  # between two looks at which workers there are
CONNECT_SECONDS = 10  # for a scheduler to answer
CLOSE_SECONDS = 5
IGNORE_INTERRUPTS = "import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\n"  # Ctrl-C is for the head

_log = logging.getLogger("robustcmp")


class Dask:
    """Tasks on workers of Dask, one at a time on each.

    Parameters
    ----------
    name : str
        ``"dask:4"`` for so many workers on this machine, or the address of a scheduler.
    limits : Limits
        For each task.

    Raises
    ------
    UsageError
        The number of workers is none, or Dask is not installed.
    """

    def __init__(self, name: str, limits: Limits):
        self.name, self.limits = name, limits
        self._workers = 0
        if name.startswith("dask:"):
            number = name.removeprefix("dask:")
            check_count("workers", int(number) if number.isdecimal() else number)
            self._workers = int(number)
        if find_spec("distributed") is None:
            raise UsageError("workers need Dask: pip install 'robustcmp[distributed]'", parameters=["executor"])

    def check(self) -> None:
        """Raise `UsageError` if the scheduler does not answer."""
        if not self._workers:
            with self._connect():
                pass

    @contextmanager
    def _connect(self) -> Iterator[Any]:
        """Yield a client of the scheduler, which is started for workers on this machine."""
        from distributed import Client, LocalCluster

        with ExitStack() as stack:
            address = self.name
            if self._workers:
                directory = stack.enter_context(tempfile.TemporaryDirectory(prefix="robustcmp-workers-"))
                cluster = LocalCluster(
                    n_workers=self._workers,
                    threads_per_worker=max(1, cores() // self._workers),
                    memory_limit=0,
                    host="127.0.0.1",
                    protocol="tcp://",
                    dashboard_address=None,
                    local_directory=directory,
                    preload=[IGNORE_INTERRUPTS],
                    silence_logs=logging.CRITICAL,
                )
                stack.callback(cluster.close, timeout=CLOSE_SECONDS)
                address = cluster.scheduler_address
            try:
                client = Client(address, set_as_default=False, timeout=CONNECT_SECONDS, name="robustcmp")
            except (OSError, ValueError, TypeError, ImportError) as error:
                reason = str(error) or f"no answer within {CONNECT_SECONDS} s"
                raise UsageError(
                    f"no scheduler of Dask answers at {address}: {reason}", parameters=["executor"]
                ) from None
            stack.callback(_close, client)
            yield client

    def execute(
        self, plan: Plan, tasks: Iterable[Task], asked: Callable[[str, int], object]
    ) -> Iterator[Finished | Failed]:
        """Yield each cell of the tasks with its result and its costs, or why a task failed, as they come.

        Tasks that cannot be sent, and models that differ on all workers, are done here at the end.

        Raises
        ------
        UsageError
            No scheduler answers, or there is a task that no worker can do; no work was started.
        RobustcmpError
            The scheduler is gone.
        """
        packer = Packer(plan)
        packed = [packer.pack(task) for task in tasks]
        at_home = [task for task in packed if task.remote is None]
        if len(at_home) < len(packed):
            with self._connect() as client:
                head = _Head(client, self.name, packer, self.limits, asked)
                try:
                    yield from head.run([task for task in packed if task.remote is not None])
                finally:
                    head.dismiss_workers()
                at_home += head.at_home
        yield from InProcess().execute(plan, at_home, asked)


def _close(client: Any) -> None:
    with suppress(Exception):  # of a connection that broke before
        client.close(timeout=CLOSE_SECONDS)
    client.status = "closed"  # else it tries once more, for a minute, when it is collected


@dataclass(eq=False)
class _Worker:
    """A worker, as the head knows it.

    Attributes
    ----------
    name, address : str
        What it is called, and where it is.
    about : About, optional
        What it can do; None until it has said so.
    different : set
        The models that are not the same there.
    known : set
        The models that it has attacked.
    task : Task, optional
        What it does.
    luggage : dict
        What its process has lacked for that.
    future : Future, optional
        What it was asked last, as long as that is not answered.
    """

    name: str
    address: str
    about: About | None = None
    different: set[tuple[str, int]] = field(default_factory=set)
    known: set[tuple[str, int]] = field(default_factory=set)
    task: Task | None = None
    luggage: dict[str, Any] = field(default_factory=dict)
    future: Any = None

    def is_able(self, task: Task) -> bool:
        """Say whether it has what a task needs."""
        return self.about is not None and not self.about.find_lack(task)


class _Head:
    """Hands tasks to workers."""

    def __init__(self, client: Any, name: str, packer: Packer, limits: Limits, asked: Callable[[str, int], object]):
        self._client, self._name, self._packer = client, name, packer
        variables = {name: os.environ[name] for name in THREADS if name in os.environ}
        self._terms = Terms(limits, variables, cores(), f"robustcmp-{uuid4().hex}")
        self._workers: dict[str, _Worker] = {}
        self._waiting: list[Task] = []
        self._lost: dict[TaskKey, str] = {}  # the worker that was lost with a task
        self._answers: queue.SimpleQueue[tuple[_Worker, Any, Any]] = queue.SimpleQueue()
        self._looked = -math.inf
        self.at_home: list[Task] = []
        client.subscribe_topic(self._terms.topic, lambda event: asked(*event[1]))

    def run(self, tasks: Sequence[Task]) -> Iterator[Finished | Failed]:
        """Yield what comes of tasks."""
        while not self._workers or any(worker.about is None for worker in self._workers.values()):
            yield from self._look()
            yield from self._collect()
        self._waiting = [*tasks]
        self._refuse_what_nobody_can_do()
        while self._waiting or any(worker.task for worker in self._workers.values()):
            yield from self._look()
            for worker in self._workers.values():
                if worker.future is None and (task := self._take_task(worker)) is not None:
                    worker.task, worker.luggage = task, {}
                    worker.known.add(task.model)
                    self._send_task(worker)
            yield from self._collect()

    def dismiss_workers(self) -> None:
        """End the processes of workers."""

        def dismiss_all() -> None:
            with suppress(Exception):  # of a connection that broke; they then end with their workers
                self._client.run(dismiss, self._terms.topic, on_error="ignore")

        thread = threading.Thread(target=dismiss_all, daemon=True)
        thread.start()
        thread.join(CLOSE_SECONDS)  # a worker that is stopped answers nothing

    def _look(self) -> Iterator[Failed]:
        """See now and then which workers have come and which are gone."""
        if time.monotonic() - self._looked < LOOK_SECONDS:
            return
        self._looked = time.monotonic()
        try:
            identity = self._client.sync(self._client.scheduler.identity, callback_timeout=CONNECT_SECONDS)
        except Exception as error:
            raise self._gone() from error
        names = {address: str(info["name"]) for address, info in identity["workers"].items()}
        for address in self._workers.keys() - names.keys():
            yield from self._lose(self._workers.pop(address))
        for address in names.keys() - self._workers.keys():
            worker = self._workers[address] = _Worker(names[address], address)
            self._submit(worker, describe_worker)
        if not names:
            _log.warning("waiting for workers of %s", self._name)
            self._client.wait_for_workers(1)

    def _gone(self) -> RobustcmpError:
        return RobustcmpError(
            f"the scheduler {self._name} is gone. What is finished is kept: rerun the same command once it is back."
        )

    def _lose(self, worker: _Worker) -> Iterator[Failed]:
        """Let the task of a worker that is gone be done by another one, once."""
        task, worker.task, worker.future = worker.task, None, None
        if task is not None and task.key in self._lost:
            yield Failed(task, f"two workers were lost while they did it: {self._lost[task.key]}, {worker.name}.")
        elif task is not None:
            self._lost[task.key] = worker.name
            self._waiting.insert(0, task)
        yield from self._set_aside()

    def _refuse_what_nobody_can_do(self) -> None:
        for task in self._waiting:
            reasons = {worker.name: worker.about.find_lack(task) for worker in self._workers.values() if worker.about}
            if all(reasons.values()):
                each = "; ".join(f"{name} lacks {reason}" for name, reason in reasons.items())
                model, seed = task.model
                raise UsageError(f"no worker can attack {model}/{seed}: {each}", parameters=["executor"])

    def _set_aside(self) -> Iterator[Failed]:
        """Let tasks fail that no worker can do any more, and keep those of models that differ on all workers."""
        if not self._workers or any(worker.about is None for worker in self._workers.values()):
            return  # somebody may come who can
        waiting, self._waiting = self._waiting, []
        for task in waiting:
            able = [worker for worker in self._workers.values() if worker.is_able(task)]
            if not able:
                yield Failed(task, f"no worker is left that has {', '.join(_remote(task).frameworks)}.")
            elif all(task.model in worker.different for worker in able):
                self.at_home.append(task)
            else:
                self._waiting.append(task)

    def _take_task(self, worker: _Worker) -> Task | None:
        """Take a task that a worker can do: of the first attack, and of a model that it knows or else no other does."""
        others = {model for other in self._workers.values() if other is not worker for model in other.known}
        for _, tasks in groupby(self._waiting, lambda task: task.attack):
            able = [task for task in tasks if worker.is_able(task) and task.model not in worker.different]
            if able:
                chosen = min(able, key=lambda task: (task.model not in worker.known, task.model in others))
                self._waiting = [task for task in self._waiting if task is not chosen]
                return chosen
        return None

    def _send_task(self, worker: _Worker) -> None:
        self._submit(worker, do_task, worker.task, worker.luggage, self._terms)

    def _submit(self, worker: _Worker, function: Callable[..., object], *arguments: Any) -> None:
        """Ask a worker something, and wait for the answer in a thread: from one that is lost, none comes."""
        import dask

        with dask.config.set({"distributed.admin.large-graph-warning-threshold": "1TB"}):  # images go with a task, once
            future = self._client.submit(
                function,
                *arguments,
                key=f"robustcmp-{uuid4().hex}",
                workers=[worker.address],
                allow_other_workers=False,
            )
        worker.future = future

        def wait() -> None:
            try:
                answer = future.result()
            except BaseException as error:
                answer = error.with_traceback(None)  # which would hold this frame, and with it the future
            self._answers.put((worker, future, answer))

        threading.Thread(target=wait, name="robustcmp answer", daemon=True).start()

    def _collect(self) -> Iterator[Finished | Failed]:
        """Yield what comes of the answers that are there, or come within a moment."""
        with suppress(queue.Empty):
            worker, future, answer = self._answers.get(timeout=LOOK_SECONDS)
            while True:
                if future is worker.future:
                    yield from self._take_answer(worker, answer)
                worker, future, answer = self._answers.get_nowait()

    def _take_answer(self, worker: _Worker, answer: Any) -> Iterator[Finished | Failed]:
        if isinstance(answer, CancelledError):  # all are, if the connection breaks
            raise self._gone() from answer
        task, worker.future = worker.task, None
        if isinstance(answer, BaseException):  # it could not even begin: its Python lacks something
            reason = f"{type(answer).__name__}: {answer}"
            if task is None:
                raise RobustcmpError(f"the worker {worker.name} cannot say what it can do: {reason}") from answer
            answer = Outcome([], Raised(reason))
        if isinstance(answer, About):
            worker.about = answer
            yield from self._set_aside()
        elif task is not None:
            yield from self._end_task(worker, task, answer)

    def _end_task(self, worker: _Worker, task: Task, outcome: Outcome) -> Iterator[Finished | Failed]:
        result = outcome.result
        if isinstance(result, Lacking) and result.sha not in worker.luggage:
            worker.luggage[result.sha] = self._packer.luggage[result.sha]
            self._send_task(worker)
            return
        worker.task, worker.luggage = None, {}
        for cell, repeat in zip(task.cells, outcome.finished, strict=False):
            yield Finished(cell, *repeat, worker=worker.name)
        if isinstance(result, Lacking):
            yield Failed(task, "the worker does not keep what it was sent.", worker.name)
        elif isinstance(result, Raised):
            yield Failed(task, result.reason, worker.name)
        elif isinstance(result, Refused):
            worker.different.add(task.model)
            _log.warning("%s/%s is not attacked by the worker %s: there, %s", *task.model, worker.name, result.reason)
            self._waiting.insert(0, task)
            yield from self._set_aside()


def _remote(task: Task) -> Remote:
    assert task.remote is not None
    return task.remote


# on a worker ---------------------------------------------------------------------------------------------------------


class About(NamedTuple):
    """What a worker can do.

    Attributes
    ----------
    version : str
        Of robustcmp.
    frameworks : dict of str to list
        What tells the installations of frameworks apart, hosts with an environment among them.
    gpus : int
        How many GPUs it has.
    """

    version: str
    frameworks: dict[str, list[str | None]]
    gpus: int

    def find_lack(self, task: Task) -> str:
        """Return what it lacks for a task, "" if it can do it."""
        remote = _remote(task)
        if self.version != _own_version():
            return f"robustcmp {_own_version()} (it has {self.version})"
        for name in remote.frameworks:
            if name == "numpy":
                continue
            if name not in self.frameworks:
                return name
            if self.frameworks[name] != _versions(name):
                return f"{name} in the version of this process"
        return "a GPU" if remote.device == "cuda" and not self.gpus else ""


_versions, _own_version = cache(frameworks.versions), cache(own_version)  # looking them up takes milliseconds


def describe_worker() -> About:
    """Return what this process can do, without importing a framework."""
    return About(own_version(), {name: frameworks.versions(name) for name in frameworks.available()}, _count_gpus())


def _count_gpus() -> int:
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    with suppress(OSError):
        count = len(os.listdir("/proc/driver/nvidia/gpus"))
        return count if visible is None else min(count, len([name for name in visible.split(",") if name.strip()]))
    return 0


class Terms(NamedTuple):
    """What holds for all tasks of a session.

    Attributes
    ----------
    limits : Limits
        For each task.
    variables : dict of str to str
        The variables of threads that the head has.
    cores : int
        How many cores the head counts.
    topic : str
        What a worker tells the head of queries under.
    """

    limits: Limits
    variables: dict[str, str]
    cores: int
    topic: str

    @property
    def environment(self) -> dict[str, str]:
        """The variables of a process with as many threads as the head, on which the last bits may depend."""
        environment = {name: value for name, value in os.environ.items() if name not in THREADS} | self.variables
        count = len(processors()) or os.cpu_count()
        if "OMP_NUM_THREADS" not in environment and count != self.cores:
            environment["OMP_NUM_THREADS"] = str(self.cores)
        return environment


class Outcome(NamedTuple):
    """What became of a task: the repeats that were finished, and how it ended."""

    finished: list[Timed]
    result: Result


_children: dict[tuple[str, str], Child] = {}  # by framework and topic, which is one for each head
_turn = threading.Lock()  # a worker with several threads may serve several heads


def do_task(task: Task, luggage: Mapping[str, Any], terms: Terms) -> Outcome:
    """Do a task on a worker, in a process of its own, and tell of its queries; one task at a time."""
    from distributed import get_worker

    worker = get_worker()
    finished: list[Timed] = []
    result: Result = None
    with _turn:
        child = _children.setdefault(
            (_remote(task).frameworks[0], terms.topic), Child(CHILD, terms.limits, terms.environment)
        )
        try:
            for message in child.request((task, worker.state.nthreads), luggage.get):
                if isinstance(message, Asked):
                    worker.log_event(terms.topic, [task.attack, message.queries])
                elif isinstance(message, Timed):
                    finished.append(message)
                elif isinstance(message, Ended):
                    result = message.result
        except Died as death:
            result = Raised(str(death))
    return Outcome(finished, result)


def dismiss(topic: str) -> None:
    """End the processes that a worker has for one head."""
    for key in list(_children):
        if key[1] == topic:
            _children.pop(key).kill()

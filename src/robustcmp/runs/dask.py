"""Tasks on workers of Dask: on this machine, or of a scheduler that is there.

The head, the process of the comparison, keeps all tasks, has one of them in flight for each worker, and alone writes. A
worker does each in a process of its own (`robustcmp.runs.child`), so that no model ends a worker. The task of a worker
that is gone goes to another one.
"""

from __future__ import annotations

import logging
import os
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import CancelledError
from contextlib import ExitStack, contextmanager, suppress
from importlib.util import find_spec
from typing import Any, NamedTuple
from uuid import uuid4

from .. import frameworks
from ..errors import LOG, RobustcmpError, UsageError, check_count
from ..processes import Child, Ended, Limits
from ..provenance import own_version
from ..records.attack import TaskKey
from ..threads import cores, processors
from .child import Asked
from .executors import Failed, InProcess
from .plan import Plan, Task
from .tasks import CHILD, Finished, Needs, RemoteTask, find_needs, pack

THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")  # the variables on which last bits may depend
CONNECT_SECONDS = 10  # for a scheduler to answer
CLOSE_SECONDS = 5
TWO_LOST = "two workers were lost while they did it."
IGNORE_INTERRUPTS = "import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\n"  # Ctrl-C is for the head


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
        The number of workers is none, Dask is not installed, or no scheduler answers.
    """

    def __init__(self, name: str, limits: Limits):
        self._name = name
        self._limits = limits
        self._workers = 0
        if name.startswith("dask:"):
            number = name.removeprefix("dask:")
            check_count("workers", int(number) if number.isdecimal() else number)
            self._workers = int(number)
        if find_spec("distributed") is None:
            raise UsageError("workers need Dask: pip install 'robustcmp[distributed]'", parameters=["executor"])
        if not self._workers:
            with self._connect():
                pass

    @contextmanager
    def _connect(self) -> Iterator[Any]:
        """Yield a client of the scheduler, which is started for workers on this machine."""
        import dask
        from distributed import Client, LocalCluster

        with ExitStack() as stack:
            address = self._name
            stack.enter_context(
                dask.config.set(
                    {
                        "distributed.scheduler.allowed-failures": 1,  # the second worker lost fails a task
                        "distributed.admin.large-graph-warning-threshold": "1TB",  # images go with each task
                        "scheduler": None,  # clients in two threads leave theirs behind
                    }
                )
            )
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
        self, plan: Plan, tasks: Iterable[Task], count: Callable[[str, int], object]
    ) -> Iterator[Finished | Failed]:
        """Yield each cell of the tasks with its result and its costs, or why a task failed, as they come.

        Tasks that cannot be sent, and models that differ on a worker, are done here at the end.

        Raises
        ------
        UsageError
            There is a task that no worker can do; no work was started.
        RobustcmpError
            The scheduler is gone.
        """
        waiting: list[tuple[Task, Needs]] = []
        at_home: list[Task] = []
        for task in tasks:
            needs = find_needs(plan, task)
            if needs is None:
                at_home.append(task)
            else:
                waiting.append((task, needs))
        if waiting:
            with self._connect() as client:
                for outcome in self._hand_out(client, plan, waiting, count):
                    if isinstance(outcome, Task):
                        at_home.append(outcome)
                    else:
                        yield outcome
        yield from InProcess().execute(plan, at_home, count)

    def _hand_out(
        self, client: Any, plan: Plan, waiting: list[tuple[Task, Needs]], count: Callable[[str, int], object]
    ) -> Iterator[Finished | Failed | Task]:
        """Yield what comes of tasks that workers do; a task whose model differs there, as it is."""
        from distributed import wait

        variables = {name: os.environ[name] for name in THREADS if name in os.environ}
        terms = _Terms(self._limits, variables, cores(), f"robustcmp-{uuid4().hex}")
        client.subscribe_topic(terms.topic, lambda event: count(*event[1]))
        doing: dict[Any, tuple[Task, Needs, str]] = {}
        lost: set[TaskKey] = set()
        workers = self._describe_workers(client, {})
        _refuse_what_nobody_can_do(waiting, workers)
        try:
            while waiting or doing:
                workers = self._describe_workers(client, workers)
                for task, needs in list(waiting):
                    able = [address for address, about in workers.items() if not about.find_lack(needs)]
                    if not able:
                        yield Failed(task, f"no worker is left that has {', '.join(needs.frameworks)}.")
                    elif free := {*able} - {where for *_, where in doing.values()}:
                        address = min(free)
                        future = client.submit(
                            _do_task,
                            needs.frameworks[0],
                            task.attack,
                            pack(plan, task, needs.device),
                            terms,
                            key=f"robustcmp-{uuid4().hex}",
                            workers=[address],
                            allow_other_workers=False,
                        )
                        doing[future] = task, needs, address
                    else:
                        continue
                    waiting.remove((task, needs))
                with suppress(TimeoutError, CancelledError), client.as_current():
                    wait(list(doing), timeout=1, return_when="FIRST_COMPLETED")
                for future in list(doing):
                    task, needs, address = doing[future]
                    if future.done():
                        with suppress(TimeoutError):  # its worker was lost before it was read
                            outcomes = [*self._read(future, task)]
                            del doing[future]
                            yield from outcomes
                    elif address not in workers:  # Dask would wait for them for ever
                        del doing[future]
                        future.cancel()
                        if task.key in lost:
                            yield Failed(task, TWO_LOST)
                        else:
                            waiting.insert(0, (task, needs))
                        lost.add(task.key)
        finally:
            with suppress(Exception):  # of a connection that broke; its workers' processes then end by themselves
                client.cancel(list(doing))
                client.run(_dismiss, terms.topic, on_error="ignore")

    def _describe_workers(self, client: Any, described: Mapping[str, _About]) -> dict[str, _About]:
        """Return what each worker can do, by address, once there is one; ask only those that are new."""
        try:
            while True:
                addresses = client.nthreads()
                workers = {address: about for address, about in described.items() if address in addresses}
                new = [address for address in addresses if address not in described]
                for address, answer in client.run(_describe_worker, workers=new, on_error="return").items():
                    workers[address] = answer if isinstance(answer, _About) else _About(address, str(answer), {}, False)
                if workers:
                    return workers
                LOG.warning("waiting for workers of %s", self._name)
                client.wait_for_workers(1)
        except Exception as error:
            raise self._gone() from error

    def _read(self, future: Any, task: Task) -> Iterator[Finished | Failed | Task]:
        """Yield what became of a task."""
        from distributed.scheduler import KilledWorker

        if future.status == "cancelled":  # all are, if the connection breaks
            raise self._gone()
        error = future.exception()
        if error is not None:  # it could not even begin: its Python lacks something, or it is gone
            reason = TWO_LOST if isinstance(error, KilledWorker) else f"{type(error).__name__}: {error}"
            yield Failed(task, reason)
            return
        worker, finished, end = future.result(CONNECT_SECONDS)
        for each in finished:
            yield each._replace(worker=worker)
        if end.is_refused:
            LOG.warning("%s/%s stays in this process: on the worker %s, %s", *task.model, worker, end.reason)
            yield task
        elif end.reason:
            yield Failed(task, end.reason, worker)

    def _gone(self) -> RobustcmpError:
        return RobustcmpError(
            f"the scheduler {self._name} is gone. What is finished is kept: rerun the same command once it is back."
        )


def _close(client: Any) -> None:
    with suppress(Exception):  # of a connection that broke before
        client.close(timeout=CLOSE_SECONDS)
    client.status = "closed"  # else it tries once more, for a minute, when it is collected


def _refuse_what_nobody_can_do(tasks: Iterable[tuple[Task, Needs]], workers: Mapping[str, _About]) -> None:
    for task, needs in tasks:
        reasons = {about.name: about.find_lack(needs) for about in workers.values()}
        if all(reasons.values()):
            each = "; ".join(f"{name} lacks {reason}" for name, reason in reasons.items())
            model, seed = task.model
            raise UsageError(f"no worker can attack {model}/{seed}: {each}", parameters=["executor"])


# on a worker ---------------------------------------------------------------------------------------------------------


class _About(NamedTuple):
    """What a worker can do.

    Attributes
    ----------
    name, version : str
        What it is called, and the version of its robustcmp, or why there is none.
    frameworks : dict of str to list
        What tells the installations of frameworks apart, hosts with an environment among them.
    has_gpu : bool
        Whether it has a GPU.
    """

    name: str
    version: str
    frameworks: dict[str, list[str | None]]
    has_gpu: bool

    def find_lack(self, needs: Needs) -> str:
        """Return what it lacks for a task, "" if it can do it."""
        if self.version != own_version():
            return f"robustcmp {own_version()} (it has {self.version})"
        for name in needs.frameworks:
            if name == "numpy":
                continue
            if name not in self.frameworks:
                return name
            if self.frameworks[name] != frameworks.versions(name):
                return f"{name} in the version of this process"
        return "a GPU" if needs.device == "cuda" and not self.has_gpu else ""


def _describe_worker(dask_worker: Any) -> _About:
    """Return what a worker can do, without importing a framework; Dask passes it by this name."""
    versions = {name: frameworks.versions(name) for name in frameworks.available()}
    has_gpu = os.path.exists("/proc/driver/nvidia/version") and os.environ.get("CUDA_VISIBLE_DEVICES") != ""
    return _About(str(dask_worker.name), own_version(), versions, has_gpu)


class _Terms(NamedTuple):
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


_children: dict[tuple[str, str], Child] = {}  # by framework and topic, which is one for each head
_turn = threading.Lock()  # a worker with several threads may serve several heads


def _do_task(framework: str, attack: str, task: RemoteTask, terms: _Terms) -> tuple[str, list[Finished], Ended]:
    """Do a task on a worker, in a process of its own, and tell of its queries; one task at a time.

    Return who did it, the cells that were finished, and how it ended.
    """
    from distributed import get_worker

    worker = get_worker()
    finished: list[Finished] = []
    end = Ended()
    with _turn:
        child = _children.setdefault((framework, terms.topic), Child(CHILD, terms.limits, terms.environment))
        for message in child.request((task, worker.state.nthreads)):
            if isinstance(message, Asked):
                worker.log_event(terms.topic, [attack, message.queries])
            elif isinstance(message, Finished):
                finished.append(message)
            else:
                end = message
    return str(worker.name), finished, end


def _dismiss(topic: str) -> None:
    """End the processes that a worker has for one head."""
    for key in list(_children):
        if key[1] == topic:
            _children.pop(key).kill()

"""Groups on workers of Dask: on this machine, or on a cluster that is there.

The head (the process of the comparison) keeps all groups, hands every worker one at a time, and alone writes. A worker
does each in a process of its own (`robustcmp.runs.worker`), so that no model ends a worker.
"""

from __future__ import annotations

import asyncio
import logging
import math
import os
import queue
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import CancelledError, Future
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from functools import partial
from importlib.util import find_spec
from itertools import chain
from typing import Any
from uuid import uuid4

from ..errors import RobustcmpError, UsageError, check_count
from ..threads import Stopped, cores
from .child import Lacking, Raised, Refused
from .executor import Failed, Finished, InProcess
from .isolated import Limits
from .local_workers import CLOSE_SECONDS, CONNECT_SECONDS, LocalWorkers
from .plan import Plan, Task
from .work import Packer, Work
from .worker import THREADS, About, Outcome, Terms, about, attend, dismiss, resources

LOOK_SECONDS = 0.5  # between two looks at who is there
GREET_SECONDS = 10  # for a scheduler to say that it is there, before models are loaded
CANCELLED_SECONDS = 10  # after which a cancelled group is handed out again, if its worker is still there
ANSWER_SECONDS = 600  # for the results of a group to arrive
MOST_KILLED = 3  # workers, by one group
LONELY_SECONDS = 60  # how long a group waits once no worker is there that could do it

_log = logging.getLogger("robustcmp")


@dataclass(eq=False)
class _Group:
    """A task that travels, those workers that were lost while they did it, and what its present one has lacked."""

    task: Task
    work: Work
    lost: list[str] = field(default_factory=list)
    lacked: list[str] = field(default_factory=list)


@dataclass(eq=False)
class _Hand:
    """A worker, as the head knows it.

    Attributes
    ----------
    name, address : str
        What it is called, and where it is.
    about : About, optional
        What it can do; None until it has said so.
    different : set
        The models that are not the same there, and
    known : set
        those that it has done something with.
    group : _Group, optional
        What it does.
    future : Future, optional
        What it was asked last, as long as that is not answered.
    cancelled : float, optional
        Since when that is known to be cancelled.
    """

    name: str
    address: str
    about: About | None = None
    different: set[tuple[str, int]] = field(default_factory=set)
    known: set[tuple[str, int]] = field(default_factory=set)
    group: _Group | None = None
    future: Any = None
    cancelled: float | None = None

    def has_what(self, work: Work) -> bool:
        """Whether it has what a work needs, and any other one with the same needs."""
        return self.about is not None and not self.about.lacks(work)

    def can_do(self, work: Work) -> bool:
        """Whether it can do a work with the same bits."""
        return self.has_what(work) and work.model not in self.different


class _Waiting:
    """The groups that nobody does yet: attack by attack, then by what they need, then by model.

    There is one of a model and an attack.
    """

    def __init__(self, groups: Iterable[_Group]):
        self._groups: dict[str, dict[tuple[Any, ...], dict[tuple[str, int], _Group]]] = {}
        for group in groups:
            self.add(group)

    def __iter__(self) -> Iterator[_Group]:
        for alike in self._alike():
            yield from alike.values()

    def __bool__(self) -> bool:
        return any(self._alike())

    def _alike(self) -> Iterator[dict[tuple[str, int], _Group]]:
        return chain.from_iterable(of_attack.values() for of_attack in self._groups.values())

    def add(self, group: _Group) -> None:
        alike = self._groups.setdefault(group.task.attack, {}).setdefault(group.work.needs, {})
        alike[group.work.model] = group

    def take(self, hand: _Hand, hands: Iterable[_Hand]) -> _Group | None:
        """Take a group that a worker can do, of the first attack that has one, without a look at all that wait.

        Rather with a model that the worker knows, or else that no worker knows.
        """
        others = {model for other in hands if other is not hand for model in other.known}
        for of_attack in self._groups.values():
            able = [alike for alike in of_attack.values() if alike and hand.has_what(next(iter(alike.values())).work)]
            known = ((alike, model) for alike in able for model in hand.known if model in alike)
            nobodys = ((alike, model) for alike in able for model in alike if model not in others)
            for place, model in chain(known, nobodys, ((alike, model) for alike in able for model in alike)):
                if model not in hand.different:
                    return place.pop(model)
        return None

    def take_all(self, model: tuple[str, int]) -> list[_Group]:
        """Take all groups of a model."""
        return [alike.pop(model) for alike in self._alike() if model in alike]


class Distributed:
    """Groups on workers of Dask, one at a time on each; needs the extra ``distributed``.

    Models travel as what they are loaded from, their files and the images by digest. A model that was passed itself, an
    attack that cannot be imported, and a model that is another on every worker, are done in the process of the
    comparison meanwhile. A group whose process dies, hangs, or reaches a limit is a failure (`Evaluation.failed`), as
    with `Isolated`. One whose worker is lost is done by another, and fails with the third. Models that are not the
    zoo's are tried on this machine first, as with `Isolated`.

    Parameters
    ----------
    workers : int, optional
        Start so many workers on this machine, each with its share of the cores.
    scheduler : str, optional
        Use the workers of this scheduler instead, ``"tcp://host:8786"``; those that come later as well.
    group_seconds, group_memory : float, optional
        As for `Isolated`.

    Raises
    ------
    UsageError
        There is neither a number of workers nor a scheduler, or both; a limit is not above 0; or Dask is not installed.
    """

    def __init__(
        self,
        *,
        workers: int | None = None,
        scheduler: str | None = None,
        group_seconds: float | None = None,
        group_memory: float | None = None,
    ):
        if (workers is None) == (scheduler is None):
            raise UsageError("expected either workers, a number, or scheduler, an address", parameters=["workers"])
        if workers is not None:
            check_count("workers", workers)
        if find_spec("distributed") is None:
            raise UsageError("workers need Dask: pip install 'robustcmp[distributed]'", parameters=["workers"])
        self.workers, self.scheduler = workers, scheduler
        self.limits = Limits(group_seconds, group_memory)
        self.limits.check()

    def check(self) -> None:
        """Raise `UsageError` if the scheduler does not answer."""
        if self.scheduler is None:
            return
        asked: Future[None] = Future()

        def ask(address: str) -> None:
            try:
                asyncio.run(_greet(address))
                asked.set_result(None)
            except BaseException as error:
                asked.set_exception(error)

        # A notebook has a loop of its own in this thread.
        threading.Thread(target=ask, args=(self.scheduler,), name="robustcmp greeting", daemon=True).start()
        try:
            asked.result()
        except (OSError, ValueError, TypeError, ImportError) as error:
            raise _no_answer(self.scheduler, error) from None

    def execute(
        self, plan: Plan, tasks: Iterable[Task], asked: Callable[[str, int], object]
    ) -> Iterator[Finished | Failed]:
        """Yield each cell of the tasks with its result and its costs, or why a task failed, as they come.

        Raises
        ------
        UsageError
            No scheduler answers, or there is a task that no worker can do; no work was started.
        RobustcmpError
            The workers of this machine do not start.
        """
        packer = Packer(plan)
        groups, home = [], []
        for task in tasks:
            work = packer.work(task)
            if work is None:
                home.append(task)
            else:
                groups.append(_Group(task, work))
        if not groups:
            yield from InProcess().execute(plan, home, asked)
            return
        with ExitStack() as stack:
            local = stack.enter_context(LocalWorkers(self.workers, resources())) if self.workers is not None else None
            address = local.address if local else self.scheduler or ""
            head = stack.enter_context(_Head(address, local, plan, packer, self.limits, asked))
            yield from head.done(groups, home)


async def _greet(address: str) -> None:
    """Ask a scheduler who it is, or raise `OSError` if nobody answers, `ValueError` if it is no scheduler."""
    from distributed import Security, rpc

    async with rpc(address, timeout=GREET_SECONDS, connection_args=Security().get_connection_args("client")) as peer:
        said = await asyncio.wait_for(peer.identity(), GREET_SECONDS)
    if said.get("type") != "Scheduler":
        raise ValueError(f"a {str(said.get('type'))[:40].lower()} of Dask answers there")


def _no_answer(address: str, error: Exception) -> UsageError:
    reason = str(error) or f"no answer within {GREET_SECONDS} s"
    return UsageError(f"no scheduler of Dask answers at {address}: {reason}", parameters=["scheduler"])


class _Head:
    """Hands groups to workers."""

    def __init__(
        self,
        address: str,
        local: LocalWorkers | None,
        plan: Plan,
        packer: Packer,
        limits: Limits,
        asked: Callable[[str, int], object],
    ):
        self._address, self._local, self._plan, self._packer, self._asked = address, local, plan, packer, asked
        variables = tuple((name, os.environ[name]) for name in THREADS if name in os.environ)
        self._terms, self._topic = Terms(limits, variables, cores()), f"robustcmp-{uuid4().hex}"
        self._hands: dict[str, _Hand] = {}
        self._waiting = _Waiting([])
        self._events: queue.SimpleQueue[Callable[[], Iterator[Finished | Failed]]] = queue.SimpleQueue()
        self._home: queue.SimpleQueue[Task] = queue.SimpleQueue()
        self._at_home, self._gone = 0, threading.Event()
        self._looked = -math.inf

    def __enter__(self) -> _Head:
        self._client = self._connected()
        threading.Thread(target=self._work_at_home, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._gone.set()
        addresses = [hand.address for hand in self._hands.values()]
        if self._local is None and addresses:  # others end with their workers
            thread = threading.Thread(target=self._dismiss, args=(addresses,), daemon=True)
            thread.start()
            thread.join(CLOSE_SECONDS)  # one that is stopped answers nothing
        self._hang_up()

    def _connected(self) -> Any:
        from distributed import Client

        try:
            client = Client(self._address, set_as_default=False, timeout=CONNECT_SECONDS, name="robustcmp")
        except (OSError, ValueError) as error:
            raise _no_answer(self._address, error) from None
        client.subscribe_topic(self._topic, lambda event: self._asked(*event[1]))
        return client

    def _dismiss(self, addresses: list[str]) -> None:
        with suppress(Exception):  # of a connection that breaks; the processes then end with their workers
            self._client.run(dismiss, self._topic, workers=addresses, on_error="ignore")

    def _hang_up(self) -> None:
        try:
            self._client.close(timeout=CLOSE_SECONDS)
        except Exception as error:  # of a connection that broke before
            _log.debug("the connection to the scheduler %s was not closed: %r", self._address, error)
            self._client.status = "closed"  # else it tries once more, for a minute, when it is collected

    def done(self, groups: list[_Group], home: list[Task]) -> Iterator[Finished | Failed]:
        """Yield what comes of the groups, from workers, and of the tasks that stay at home."""
        self._await_workers()
        self._waiting = _Waiting(groups)
        self._refuse_what_nobody_can_do()
        for task in home:
            self._stay(task)
        lonely = time.monotonic()
        while self._waiting or self._at_home or any(hand.group for hand in self._hands.values()):
            yield from self._look()
            self._hand_out()
            if any(hand.group for hand in self._hands.values()) or not self._hands:
                lonely = time.monotonic()
            elif time.monotonic() - lonely > LONELY_SECONDS:
                yield from self._give_up()
            yield from self._take_in(LOOK_SECONDS)

    def _take_in(self, seconds: float) -> Iterator[Finished | Failed]:
        """Yield what has come, or comes within some seconds."""
        with suppress(queue.Empty):
            yield from self._events.get(timeout=seconds)()
            while True:
                yield from self._events.get_nowait()()

    # who is there ------------------------------------------------------------------------------------------------

    def _look(self) -> Iterator[Finished | Failed]:
        """See now and then who has come and who is gone; what a worker did that is gone goes back, or fails."""
        if time.monotonic() - self._looked < LOOK_SECONDS:
            return
        self._looked = time.monotonic()
        if self._client.status != "running":
            yield from self._connect_again()
        try:  # not its `scheduler_info`: that answers without workers now and then
            workers = self._client.sync(self._client.scheduler.identity, callback_timeout=CONNECT_SECONDS)["workers"]
        except (OSError, RuntimeError, AttributeError):  # it breaks just now
            return
        there = {address: str(info["name"]) for address, info in workers.items()}
        for address, name in there.items():
            if address not in self._hands:
                self._hands[address] = hand = _Hand(name, address)
                self._ask(hand, about)
        for address in self._hands.keys() - there.keys():
            yield from self._lost(self._hands.pop(address))
        for hand in self._hands.values():
            self._ask_again(hand)
        if self._local:
            self._local.restart({hand.name for hand in self._hands.values()})

    def _connect_again(self) -> Iterator[Finished | Failed]:
        """Replace a connection that broke, and ask again what was asked through it.

        Dask replaces it, too, but if that fails (a message of the scheduler that came at once is enough), never again.
        """
        _log.warning("the connection to the scheduler %s broke; connecting again", self._address)
        self._hang_up()
        try:
            self._client = self._connected()
        except UsageError as error:
            with suppress(Exception):  # nobody can be asked once more
                yield from self._take_in(0)
            raise RobustcmpError(
                f"the scheduler {self._address} is gone. What is finished is kept: rerun the same command once it is "
                "back."
            ) from error
        yield from self._take_in(0)
        for hand in self._hands.values():
            if hand.future is not None and hand.future.client is not self._client:
                self._take_back(hand)

    def _ask_again(self, hand: _Hand) -> None:
        """Take back what was cancelled without its worker, once that is certain: the scheduler tells of it late."""
        if hand.future is None or hand.future.status not in ("cancelled", "lost"):
            hand.cancelled = None
        elif hand.cancelled is None:
            hand.cancelled = time.monotonic()
        elif time.monotonic() - hand.cancelled > CANCELLED_SECONDS:
            self._take_back(hand)

    def _take_back(self, hand: _Hand) -> None:
        """Let what a worker does be done again, or ask it again what it can do."""
        group, future, hand.group, hand.future, hand.cancelled = hand.group, hand.future, None, None, None
        future.release()
        if group is None:
            self._ask(hand, about)
        else:
            group.lacked.clear()
            self._waiting.add(group)

    def _lost(self, hand: _Hand) -> Iterator[Failed]:
        group, future, hand.group, hand.future = hand.group, hand.future, None, None
        if future is not None:
            future.release()
        if not self._hands:
            _log.warning("no worker of the scheduler %s is left; waiting for others", self._address)
        if group is None:
            return
        group.lacked.clear()
        group.lost.append(hand.name)
        if len(group.lost) < MOST_KILLED:
            self._waiting.add(group)
        else:
            reason = f"{MOST_KILLED} workers were lost while they did it: {', '.join(group.lost)}."
            yield Failed(group.task, reason, hand.name)

    def _await_workers(self) -> None:
        """Wait until there is a worker, and all that are there have said what they can do."""
        said = False
        while not self._hands or any(hand.about is None for hand in self._hands.values()):
            for _ in self._look():
                pass
            if not self._hands and self._local is None and not said:
                _log.warning("waiting for workers of the scheduler %s", self._address)
                said = True
            for _ in self._take_in(LOOK_SECONDS):
                pass

    def _refuse_what_nobody_can_do(self) -> None:
        for group in self._waiting:
            reasons = {hand.name: hand.about.lacks(group.work) for hand in self._hands.values() if hand.about}
            if all(reasons.values()):
                each = "; ".join(f"{name} lacks {reason}" for name, reason in reasons.items())
                model, seed = group.task.model
                raise UsageError(f"no worker can attack {model}/{seed}: {each}", parameters=["scheduler"])

    def _give_up(self) -> Iterator[Failed]:
        """Do what is left at home if models are different on all workers, or else let it fail."""
        for group in self._waiting:
            if all(hand.about and hand.about.lacks(group.work) for hand in self._hands.values()):
                yield Failed(group.task, f"no worker is left that has {', '.join(group.work.frameworks)}.")
            else:
                self._stay(group.task)
        self._waiting = _Waiting([])

    # handing out -------------------------------------------------------------------------------------------------

    def _hand_out(self) -> None:
        for hand in self._hands.values():
            if hand.future is None and (group := self._waiting.take(hand, self._hands.values())) is not None:
                self._begin(hand, group, {})

    def _begin(self, hand: _Hand, group: _Group, luggage: dict[str, Any]) -> None:
        hand.group = group
        hand.known.add(group.work.model)
        self._ask(hand, attend, group.work, luggage, self._terms, self._topic)

    def _ask(self, hand: _Hand, function: Callable[..., object], *arguments: Any) -> None:
        import dask

        with dask.config.set({"distributed.admin.large-graph-warning-threshold": "1TB"}):  # images go with a task, once
            future = self._client.submit(
                function, *arguments, key=f"robustcmp-{uuid4().hex}", workers=[hand.address], allow_other_workers=False
            )
        hand.future = future
        future.add_done_callback(partial(self._arriving, hand))

    def _arriving(self, hand: _Hand, future: Any) -> None:
        """Fetch what a worker answers in a thread of its own: from one that is lost just then, nothing comes."""
        try:
            threading.Thread(target=self._fetch, args=(hand, future), daemon=True).start()
        except RuntimeError as error:  # there are too many threads
            self._events.put(partial(self._answered, hand, future, error))

    def _fetch(self, hand: _Hand, future: Any) -> None:
        if self._gone.is_set():
            return
        try:
            answer = future.result(timeout=ANSWER_SECONDS)
        except CancelledError:  # `_look` sees whether the worker is gone as well
            return
        except Exception as error:
            answer = error.with_traceback(None)  # which would hold this frame, and with it the future
        self._events.put(partial(self._answered, hand, future, answer))

    def _answered(self, hand: _Hand, future: Any, answer: Any) -> Iterator[Finished | Failed]:
        """Take what a worker answered."""
        if future is not hand.future:
            return
        group = hand.group
        if isinstance(answer, OSError) and future.status != "error":  # of the connection, such as `TimeoutError`
            if future.status not in ("cancelled", "lost"):  # `_look` sees to these
                _log.warning("what the worker %s answered did not arrive (%s); it is asked again", hand.name, answer)
                self._take_back(hand)
            return
        if isinstance(answer, Exception):  # it could not even begin: its Python lacks something
            reason = f"{type(answer).__name__}: {answer}"
            if group is None:
                raise RobustcmpError(f"the worker {hand.name} cannot say what it can do: {reason}") from answer
            answer = Outcome([], Raised(reason))
        hand.group = hand.future = None
        if isinstance(answer, About):
            hand.about = answer
        elif group is not None:
            yield from self._ended(hand, group, answer)

    def _ended(self, hand: _Hand, group: _Group, outcome: Outcome) -> Iterator[Finished | Failed]:
        end, task = outcome.end, group.task
        if isinstance(end, Lacking) and group.lacked.count(end.sha) < 2:
            group.lacked.append(end.sha)
            # Files are kept no longer than a model is loaded: one of several that is lacking again goes with the rest.
            sent = group.lacked if group.lacked.count(end.sha) > 1 else [end.sha]
            self._begin(hand, group, {sha: self._packer.luggage[sha] for sha in sent})
            return
        group.lacked.clear()
        if isinstance(end, Lacking):
            end = Raised("the worker does not keep what it was sent.")
        for cell, timed in zip(task.cells, outcome.finished, strict=False):
            yield Finished(cell, *timed, worker=hand.name)
        if isinstance(end, Raised):
            yield Failed(task, end.reason, hand.name)
        elif isinstance(end, Refused):
            hand.different.add(group.work.model)
            _log.warning("%s/%s is not attacked by the worker %s: there, %s", *task.model, hand.name, end.reason)
            self._waiting.add(group)
            if not any(other.can_do(group.work) for other in self._hands.values()):
                for each in self._waiting.take_all(group.work.model):
                    self._stay(each.task)

    # at home -----------------------------------------------------------------------------------------------------

    def _stay(self, task: Task) -> None:
        self._at_home += 1
        self._home.put(task)

    def _work_at_home(self) -> None:
        """Do tasks in this process, beside what the workers do."""

        def asked(attack: str, queries: int) -> None:
            if self._gone.is_set():
                raise Stopped
            self._asked(attack, queries)

        while not self._gone.is_set():
            with suppress(queue.Empty, Stopped):
                task = self._home.get(timeout=LOOK_SECONDS)
                try:
                    for finished in InProcess().execute(self._plan, [task], asked):
                        self._events.put(partial(iter, [finished]))
                except Exception as error:  # is raised where it ends the comparison
                    self._events.put(partial(_raised, error))
                self._events.put(self._left_home)

    def _left_home(self) -> Iterator[Finished | Failed]:
        self._at_home -= 1
        return iter(())


def _raised(error: Exception) -> Iterator[Finished | Failed]:
    raise error

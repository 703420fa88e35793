"""Workers of Dask: separate processes with different frameworks, of which some are killed or stopped."""

from __future__ import annotations

import gc
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import planted
import pytest
from conftest import answers
from test_executors import Evaluate, children, evaluate, made  # noqa: F401, a fixture
from test_own_network import NETWORK

import robustcmp as rc
from robustcmp import frameworks
from robustcmp.errors import RobustcmpError, UsageError
from robustcmp.executors import Distributed, Isolated
from robustcmp.networks.architecture import get_architecture
from robustcmp.networks.weights import WeightsFile, write_weights
from robustcmp.runs import distributed, work
from robustcmp.runs.local_workers import LocalWorkers
from robustcmp.runs.worker import about, resources
from robustcmp.sources.from_files import FromFile
from robustcmp.sources.from_zoo import FromZoo

pytest.importorskip("distributed")

MODELS = {"a": made("sound"), "b": made("other"), "home": planted.sound(0.45)}


class Watching:
    """A progress that does something once, when the first cell is finished."""

    def __init__(self, what: Any):
        self.what, self.done, self.asked_of = what, False, dict[str, int]()

    def begin(self, what: str, steps: int) -> None: ...
    def step(self) -> None: ...
    def begin_attacks(self, cells: Any) -> None: ...
    def end(self) -> None: ...

    def asked(self, attack: str, queries: int) -> None:
        self.asked_of[attack] = self.asked_of.get(attack, 0) + queries

    def finished(self, cell: Any, success: Any) -> None:
        if not self.done:
            self.done = True
            self.what()


def command_of(pid: str) -> str:
    return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()


def local_workers() -> list[int]:
    return sorted(int(pid) for pid in children() if "dask_worker" in command_of(pid))


def left_over() -> set[str]:
    """Directories and processes of workers."""
    directories = {path.name for path in Path(tempfile.gettempdir()).glob("robustcmp-workers-*")}
    return directories | {pid for pid in children() if "dask" in command_of(pid)}


@pytest.fixture
def none_left(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Fail if something is left over; temporary directories are the test's own, since others run beside it."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path_factory.mktemp("temporary")))
    before = left_over()
    yield
    assert left_over() == before


def test_arguments_are_checked() -> None:
    for arguments in ({}, {"workers": 2, "scheduler": "tcp://127.0.0.1:1"}):
        with pytest.raises(UsageError, match="expected either workers, a number, or scheduler, an address"):
            Distributed(**arguments)  # type: ignore[arg-type]
    for wrong in (0, 1.5):
        with pytest.raises(UsageError, match="workers should be 1 or more"):
            Distributed(workers=wrong)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="group_seconds should be above 0"):
        Distributed(workers=1, group_seconds=-1)


def test_without_dask_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(distributed, "find_spec", lambda name: None)
    with pytest.raises(UsageError, match=r"pip install 'robustcmp\[distributed\]'"):
        Distributed(workers=1)


@pytest.mark.usefixtures("none_left")
def test_workers_of_this_machine_say_as_resources_what_they_have(monkeypatch: pytest.MonkeyPatch) -> None:
    from distributed import Client

    monkeypatch.setattr("robustcmp.runs.worker._gpus", lambda: 2)
    with LocalWorkers(1, resources()) as local, Client(local.address, set_as_default=False) as client:
        client.wait_for_workers(1, timeout=60)
        [worker] = client.scheduler_info()["workers"].values()
    expected = {f"robustcmp-{name}": 1 for name in about().frameworks} | {"robustcmp-gpu": 2}
    assert worker["resources"] == expected


def test_what_a_worker_lacks_is_named() -> None:
    here = about()
    assert set(frameworks.installed()) <= set(here.frameworks)

    class Work:
        frameworks, device = ("torch", "numpy"), "cpu"

    work: Any = Work()
    there = here._replace(frameworks={"torch": frameworks.versions("torch")})
    assert there.lacks(work) == ""
    assert there._replace(version="9").lacks(work).startswith("robustcmp ")
    assert there._replace(frameworks={}).lacks(work) == "torch"
    assert there._replace(frameworks={"torch": ["0"]}).lacks(work) == "torch in the version of this process"
    work.device = "cuda"
    assert there._replace(gpus=0).lacks(work) == "a GPU"
    assert there._replace(gpus=1).lacks(work) == ""


def test_a_worker_gets_a_group_of_a_model_it_knows_and_few_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    models = [("m", seed) for seed in range(1000)]
    looked_at: list[Any] = []

    def has_what(hand: Any, work: Any) -> bool:
        looked_at.append(work)
        return work.needs[0] in hand.name

    monkeypatch.setattr(distributed._Hand, "has_what", has_what)

    def group(model: tuple[str, int], attack: str, framework: str = "torch") -> Any:
        task = SimpleNamespace(model=model, attack=attack)
        work = SimpleNamespace(model=model, needs=(framework, "cpu"))
        return distributed._Group(task, work)  # type: ignore[arg-type]

    of_jax = [("jax", seed) for seed in range(1000)]  # wait before the others, and no worker has it
    waiting = distributed._Waiting(group(model, attack, "jax") for attack in ("fgsm", "boundary") for model in of_jax)
    for attack in ("fgsm", "boundary"):
        for model in models:
            waiting.add(group(model, attack))
    hands = [distributed._Hand(name, name) for name in ("torch one", "torch two")]
    taken = []
    for turn in range(2 * len(models)):
        hand = hands[turn % 2]
        taken.append(waiting.take(hand, hands))
        assert taken[-1] is not None
        hand.known.add(taken[-1].work.model)
    assert [each.task.attack for each in taken if each] == ["fgsm"] * 1000 + ["boundary"] * 1000
    assert hands[0].known == {model for model in models if model[1] % 2 == 0}, "under each attack the same"
    assert len(looked_at) == 2 * 1000 + 1 * 1000 + 2 * 1000, "the first of each kind, and not each that waits"
    assert waiting.take(hands[0], hands) is None
    for model in of_jax:
        assert len(waiting.take_all(model)) == 2
    assert not waiting
    waiting.add(group(models[1], "fgsm"))
    assert waiting.take(hands[0], hands) is not None, "of a model that only another worker knows"
    for attack in ("fgsm", "boundary"):
        waiting.add(group(models[3], attack))
    assert len(waiting.take_all(models[3])) == 2
    assert not waiting
    waiting.add(group(models[5], "fgsm"))
    hands[0].different.add(models[5])
    assert waiting.take(hands[0], hands) is None
    assert waiting.take(hands[1], hands) is not None


@pytest.mark.usefixtures("none_left")
def test_workers_and_home_give_the_same_bits(evaluate: Evaluate, tmp_path: Path) -> None:  # noqa: F811
    here = evaluate(MODELS, out=tmp_path / "here")
    progress = Watching(lambda: None)
    there = evaluate(MODELS, Distributed(workers=2), progress=progress)
    assert answers(here.results.run.directory) == answers(there.results.run.directory)
    costs = there.costs
    assert set(costs[costs.model == "home"].worker) == {""}
    assert set(costs[costs.model != "home"].worker) <= {"local-0", "local-1"}
    assert progress.asked_of["walk"] > 0


@pytest.mark.slow
@pytest.mark.usefixtures("none_left")
@pytest.mark.parametrize(
    "executor", [Isolated(), *(Distributed(workers=n) for n in (1, 2, 4))], ids=["isolated", "1", "2", "4"]
)
def test_trained_models_are_the_same_on_any_number_of_workers(
    executor: Any, digits: rc.Dataset, tmp_path: Path
) -> None:
    names = [name for name in frameworks.installed() if name != "tensorflow"]
    origins = {name: [FromZoo("lenet1", "digits", name, seed=seed) for seed in (0, 1)] for name in names}
    asked = {"suite": "smoke", "n": 9, "repeats": 2, "batch_size": 16, "progress": False}
    runs = [
        rc.evaluate(origins, digits.images, digits.labels, **asked, out=tmp_path / str(place), executor=each)
        for place, each in enumerate((None, executor))
    ]
    assert answers(runs[0].results.run.directory) == answers(runs[1].results.run.directory)
    assert not runs[1].failed


@pytest.mark.slow
@pytest.mark.usefixtures("none_left")
@pytest.mark.parametrize("ending", [signal.SIGKILL, signal.SIGSTOP], ids=["killed", "stopped"])
def test_a_worker_that_is_lost_loses_no_group(
    ending: signal.Signals,
    evaluate: Evaluate,  # noqa: F811
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("robustcmp.runs.local_workers.TTL_SECONDS", 5)
    models = {"a": made("sound"), "b": made("slow"), "c": made("other")}
    lost: list[int] = []

    def end() -> None:
        lost.append(local_workers()[0])
        os.kill(lost[0], ending)

    ev = evaluate(models, Distributed(workers=2), progress=Watching(end))
    assert lost
    assert not Path(f"/proc/{lost[0]}").exists()
    assert not ev.failed
    assert ev.dataset.identical(evaluate(models, out=tmp_path / "straight").dataset)


@pytest.mark.slow
@pytest.mark.usefixtures("none_left")
def test_a_worker_that_is_lost_before_it_hands_over_its_results_loses_no_group(
    evaluate: Evaluate,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("robustcmp.runs.local_workers.TTL_SECONDS", 5)
    monkeypatch.setattr(distributed, "ANSWER_SECONDS", 60)
    fetch, stopped, beside = distributed._Head._fetch, list[str](), list[str]()
    waits = threading.Event()

    def fetch_from_a_stopped_one(self: Any, hand: Any, future: Any) -> None:
        if hand.group is not None and not stopped:  # it has done a group, and the scheduler knows
            stopped.append(hand.name)
            os.kill(local_workers()[int(hand.name.removeprefix("local-"))], signal.SIGSTOP)
            waits.set()
            fetch(self, hand, future)
            waits.clear()
            return
        fetch(self, hand, future)
        if waits.is_set():
            beside.append(hand.name)

    monkeypatch.setattr(distributed._Head, "_fetch", fetch_from_a_stopped_one)
    ev = evaluate({"a": made("sound"), "b": made("other")}, Distributed(workers=2))
    assert stopped
    assert beside
    assert not ev.failed
    assert stopped[0] not in set(ev.costs.worker)


@pytest.mark.slow
@pytest.mark.usefixtures("none_left")
@pytest.mark.parametrize("again", [True, False], ids=["Dask connects again", "Dask fails to connect again"])
def test_what_goes_on_when_the_connection_breaks_is_not_mixed_with_what_is_next(
    again: bool,
    evaluate: Evaluate,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    tmp_path: Path,
) -> None:
    async def fails(client: Any) -> None:
        raise AssertionError  # as Dask does if the scheduler's first message comes with a second one

    if not again:
        monkeypatch.setattr("distributed.Client._reconnect", fails)
    monkeypatch.setattr("robustcmp.runs.local_workers.cores", lambda: 2)  # threads of the one worker
    monkeypatch.setattr(distributed, "CANCELLED_SECONDS", 1)
    begin, broken = distributed._Head._begin, list[Any]()

    def break_the_connection(self: Any, hand: Any, group: Any, luggage: Any) -> None:
        begin(self, hand, group, luggage)
        if group.task.model[0] == "slow" and not broken:
            broken.append(hand.future)
            comm = self._client.scheduler_comm.comm
            threading.Timer(2, self._client.loop.add_callback, [comm.abort]).start()

    monkeypatch.setattr(distributed._Head, "_begin", break_the_connection)
    models = {"slow": made("slow"), "a": made("sound"), "c": made("other")}
    ev = evaluate(models, Distributed(workers=1), repeats=4)
    assert broken[0].cancelled() if again else "connecting again" in caplog.text
    assert not ev.failed
    assert ev.dataset.identical(evaluate(models, out=tmp_path / "straight", repeats=4).dataset)


@pytest.mark.slow
@pytest.mark.usefixtures("none_left")
def test_what_is_cancelled_without_its_worker_is_done_again(
    evaluate: Evaluate,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(distributed, "CANCELLED_SECONDS", 1)
    begin, cancelled = distributed._Head._begin, []

    def begin_once(self: Any, hand: Any, *arguments: Any) -> None:
        begin(self, hand, *arguments)
        if not cancelled:
            cancelled.append(hand.future.key)
            self._client.cancel([hand.future], force=True)

    monkeypatch.setattr(distributed._Head, "_begin", begin_once)
    ev = evaluate({"a": made("sound")}, Distributed(workers=1))
    assert cancelled
    assert not ev.failed


@pytest.mark.slow
@pytest.mark.usefixtures("none_left")
def test_a_group_that_kills_three_workers_is_not_tried_for_ever(evaluate: Evaluate) -> None:  # noqa: F811
    ev = evaluate({"a": made("sound"), "bad": made("kills_its_worker")}, Distributed(workers=1))
    assert list(ev.failed) == ["bad"]
    reason = r"3 workers were lost while they did it: local-\d, local-\d, local-\d\."
    assert re.fullmatch(reason, ev.failed["bad"]["pixel"])
    assert not ev.failed["bad"].keys() - {"pixel"}


@pytest.mark.usefixtures("none_left")
def test_on_a_worker_a_crash_ends_one_group(evaluate: Evaluate) -> None:  # noqa: F811
    ev = evaluate({"a": made("sound"), "bad": made("segfaults")}, Distributed(workers=1))
    assert list(ev.failed) == ["bad"]
    assert ev.failed["bad"]["pixel"].startswith("its process ended by SIGSEGV.")
    assert set(ev.costs.worker) == {"local-0"}  # it lives on


@pytest.mark.slow
@pytest.mark.usefixtures("none_left")
def test_a_model_that_differs_on_workers_is_attacked_at_home(
    evaluate: Evaluate,  # noqa: F811
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    models = {"a": made("sound"), "b": made("differs")}
    ev = evaluate(models, Distributed(workers=2))
    said = [record.getMessage() for record in caplog.records if record.name == "robustcmp"]
    assert any(text.startswith("b/0 is not attacked by the worker local-") for text in said)
    assert set(ev.costs.set_index("model").worker["b"]) == {""}
    assert ev.dataset.identical(evaluate(models, out=tmp_path / "straight").dataset)


@pytest.mark.slow
@pytest.mark.usefixtures("none_left")
def test_an_interruption_keeps_what_is_finished(evaluate: Evaluate, tmp_path: Path) -> None:  # noqa: F811
    def interrupt() -> None:
        raise KeyboardInterrupt

    models, before = {"a": made("sound"), "b": made("slow")}, children()
    with pytest.raises(KeyboardInterrupt):
        evaluate(models, Distributed(workers=2), progress=Watching(interrupt))
    assert list((tmp_path / "run" / "cells").glob("*.h5"))
    assert children() <= before  # of other tests, such as a browser
    assert not evaluate(models, Distributed(workers=2)).failed


# a cluster that is there ---------------------------------------------------------------------------------------------

HIDE = """
import os
from importlib.machinery import PathFinder

hidden, find_spec = os.environ["HIDDEN"].split(), PathFinder.find_spec
PathFinder.find_spec = lambda name, *more: None if name.partition(".")[0] in hidden else find_spec(name, *more)
"""


class Cluster:
    """A scheduler and workers, each a process as the command ``dask`` starts it."""

    def __init__(self, directory: Path):
        self.directory, self.processes = directory, list[subprocess.Popen[bytes]]()
        (directory / "sitecustomize.py").write_text(HIDE)
        file = directory / "scheduler.json"
        self._start("dask_scheduler", "--scheduler-file", str(file), "--host", "127.0.0.1", "--port", "0")
        limit = time.monotonic() + 60
        while not file.exists() or not file.read_text().endswith("}"):
            assert time.monotonic() < limit
            time.sleep(0.05)
        self.address = re.search(r"tcp://[\d.]+:\d+", file.read_text())[0]  # type: ignore[index]

    def start_worker(self, name: str, hidden: Sequence[str] = (), threads: int = 1) -> None:
        self._start("dask_worker", self.address, "--name", name, "--nthreads", str(threads), hidden=hidden)

    def _start(self, command: str, *options: str, hidden: Sequence[str] = ()) -> None:
        tests = str(Path(__file__).parent)
        own = {
            "HIDDEN": " ".join(hidden),
            "PYTHONPATH": os.pathsep.join([str(self.directory), tests]),
            "ROBUSTCMP_CACHE": str(self.directory / "cache"),
        }
        arguments = [sys.executable, "-m", f"distributed.cli.{command}", "--no-dashboard", *options]
        self.processes.append(
            subprocess.Popen(
                arguments,
                cwd=self.directory,
                env=os.environ | own,
                start_new_session=True,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
        )

    def close(self) -> None:
        for process in reversed(self.processes):
            process.terminate()
        for process in self.processes:
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    directory = tmp_path / "cluster"
    directory.mkdir()
    started = Cluster(directory)
    yield started
    started.close()


@pytest.mark.slow
def test_workers_with_different_frameworks_share_the_work(
    cluster: Cluster, digits: rc.Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("torch", "jax"):
        pytest.importorskip(name)
    monkeypatch.chdir(tmp_path)
    write_weights(tmp_path / "mine.h5", FromZoo("lenet1", "digits", "torch", seed=3).weights())
    origins = {
        "torch": [FromZoo("lenet1", "digits", "torch"), FromFile("mine.h5", "torch", "lenet1")],  # there is none there
        "jax": FromZoo("lenet1", "digits", "jax"),
    }
    cluster.start_worker("with-torch", hidden=["jax", "tensorflow"])
    cluster.start_worker("with-jax", hidden=["torch", "tensorflow"])
    asked = {"suite": "smoke", "n": 9, "repeats": 2, "batch_size": 16, "progress": False}
    executor = Distributed(scheduler=cluster.address)
    there = rc.evaluate(origins, digits.images, digits.labels, **asked, out="there", executor=executor)
    here = rc.evaluate(origins, digits.images, digits.labels, **asked, out="here")
    assert answers(here.results.run.directory) == answers(there.results.run.directory)
    costs = there.costs
    assert {(row.model, row.worker) for row in costs.itertuples()} == {("torch", "with-torch"), ("jax", "with-jax")}


@pytest.mark.slow
def test_two_comparisons_share_a_worker(cluster: Cluster, evaluate: Evaluate, tmp_path: Path) -> None:  # noqa: F811
    cluster.start_worker("shared", threads=4)
    models = {"first": {"slow": made("slow")}, "second": {"other": made("other")}}

    def compare(name: str) -> rc.Evaluation:
        return evaluate(models[name], Distributed(scheduler=cluster.address), out=tmp_path / name, repeats=4)

    with ThreadPoolExecutor() as pool:
        evaluations = dict(zip(models, pool.map(compare, models), strict=True))
    for name, ev in evaluations.items():
        assert not ev.failed
        assert ev.dataset.identical(evaluate(models[name], out=tmp_path / f"{name} alone", repeats=4).dataset)


@pytest.mark.slow
def test_what_nobody_can_do_is_an_error_before_work(cluster: Cluster, digits: rc.Dataset, tmp_path: Path) -> None:
    pytest.importorskip("jax")
    cluster.start_worker("plain", hidden=["jax"])
    origins = {"jax": FromZoo("lenet1", "digits", "jax"), "torch": FromZoo("lenet1", "digits", "torch")}
    with pytest.raises(UsageError, match="no worker can attack jax/0: plain lacks jax"):
        rc.evaluate(
            origins,
            digits.images,
            digits.labels,
            suite="smoke",
            n=5,
            repeats=1,
            batch_size=16,
            progress=False,
            out=tmp_path / "run",
            executor=Distributed(scheduler=cluster.address),
        )
    assert not list((tmp_path / "run").glob("cells/*"))


@pytest.mark.slow
def test_a_worker_that_comes_later_is_used_and_left_without_processes(
    cluster: Cluster,
    evaluate: Evaluate,  # noqa: F811
    caplog: pytest.LogCaptureFixture,
) -> None:
    timer = threading.Timer(2, cluster.start_worker, ["late"])
    timer.start()
    ev = evaluate({"a": made("sound"), "b": made("other")}, Distributed(scheduler=cluster.address))
    timer.join()
    assert set(ev.costs.worker) == {"late"}
    assert f"waiting for workers of the scheduler {cluster.address}" in [r.getMessage() for r in caplog.records]
    limit = time.monotonic() + 20
    while any("runs.child" in command for command in below(cluster.processes[-1].pid)):
        assert time.monotonic() < limit
        time.sleep(0.1)


@pytest.mark.slow
def test_what_is_finished_is_kept_if_the_scheduler_goes(
    cluster: Cluster,
    evaluate: Evaluate,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.setattr(distributed, "CONNECT_SECONDS", 3)
    cluster.start_worker("only")
    models, scheduler = {"a": made("sound"), "b": made("slow")}, cluster.processes[0]
    with pytest.raises(RobustcmpError, match=f"the scheduler {cluster.address} is gone. What is finished is kept: rer"):
        evaluate(models, Distributed(scheduler=cluster.address), progress=Watching(scheduler.kill), repeats=4)
    kept = len(list((tmp_path / "run" / "cells").glob("*.h5")))
    ev = evaluate(models, repeats=4)
    assert 0 < kept < len(list((tmp_path / "run" / "cells").glob("*.h5")))
    assert ev.dataset.identical(evaluate(models, out=tmp_path / "straight", repeats=4).dataset)


def below(pid: int) -> Iterator[str]:
    """The commands of all that a process has started."""
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in path.read_text().split():
            yield command_of(child)
            yield from below(int(child))


def test_no_scheduler_is_a_usage_error_before_anything_else(
    evaluate: Evaluate,  # noqa: F811
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(distributed, "GREET_SECONDS", 1)
    for address in ("tcp://127.0.0.1:9", "127.0.0.1", "tcp://127.0.0.1:many", "nowhere://127.0.0.1:9"):
        with pytest.raises(UsageError, match=rf"no scheduler of Dask answers at {address}: .") as no:
            evaluate({"a": rc.from_function("no_such_module:model")}, Distributed(scheduler=address))
        assert no.value.parameters == ("scheduler",)
    assert not (tmp_path / "run").exists()
    gc.collect()
    assert capfd.readouterr().err == ""


@pytest.mark.slow
@pytest.mark.usefixtures("none_left")
def test_a_model_of_two_files_reaches_a_worker(
    digits: rc.Dataset, random_weights: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("torch")
    monkeypatch.chdir(tmp_path)
    Path("mine.toml").write_text(NETWORK)
    write_weights(tmp_path / "mine.h5", WeightsFile(random_weights(get_architecture("mine.toml"), 0), {}))
    origin = FromFile("mine.h5", "torch", "mine.toml")
    assert len(origin.files) == 2
    asked = {"suite": "smoke", "n": 5, "repeats": 1, "batch_size": 16, "progress": False}
    ev = rc.evaluate({"mine": origin}, digits.images, digits.labels, **asked, executor=Distributed(workers=1))
    assert not ev.failed
    assert set(ev.costs.worker) == {"local-0"}


@pytest.mark.slow
def test_files_and_images_go_to_a_worker_once(
    cluster: Cluster, digits: rc.Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("torch")
    read: list[str] = []
    luggage = work.Luggage.__getitem__

    def reading(self: work.Luggage, sha: str) -> Any:
        read.append(sha)
        return luggage(self, sha)

    monkeypatch.setattr(work.Luggage, "__getitem__", reading)
    cluster.start_worker("only", hidden=["jax", "tensorflow"])
    origins = {"torch": [FromZoo("lenet1", "digits", "torch", seed=seed) for seed in (0, 1)]}
    asked = {"suite": "smoke", "n": 5, "repeats": 1, "batch_size": 16, "progress": False}
    executor = Distributed(scheduler=cluster.address)
    ev = rc.evaluate(origins, digits.images, digits.labels, **asked, executor=executor)
    assert len(ev.costs) == 6
    assert len(read) == len(set(read)) == 3  # the images, and two files of weights

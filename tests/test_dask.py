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

import robustcmp as rc
from robustcmp import frameworks
from robustcmp.data.dataset import Dataset
from robustcmp.errors import RobustcmpError, UsageError
from robustcmp.networks.weights import write_weights
from robustcmp.runs import dask
from robustcmp.runs.progress import Unseen
from robustcmp.sources.from_files import FromFile
from robustcmp.sources.from_zoo import FromZoo

distributed = pytest.importorskip("distributed")

MODELS = {"a": made("sound"), "b": made("other"), "home": planted.sound(0.45)}


class Watching(Unseen):
    """A progress that does something once, when the first cell is finished."""

    def __init__(self, what: Any):
        self.what, self.done, self.asked_of = what, False, dict[str, int]()

    def count(self, attack: str, queries: int) -> None:
        self.asked_of[attack] = self.asked_of.get(attack, 0) + queries

    def finish(self, cell: Any, success: Any) -> None:
        if not self.done:
            self.done = True
            self.what()


def command_of(pid: str) -> str:
    return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()


def local_workers() -> list[int]:
    return sorted(int(pid) for pid in children() if "spawn_main" in command_of(pid))


def left_over() -> set[str]:
    """Directories and processes of workers."""
    directories = {path.name for path in Path(tempfile.gettempdir()).glob("robustcmp-workers-*")}
    return directories | {pid for pid in children() if "spawn_main" in command_of(pid)}


@pytest.fixture
def none_left(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Fail if something is left over; temporary directories are the test's own, since others run beside it."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path_factory.mktemp("temporary")))
    before = left_over()
    yield
    assert left_over() == before


def test_without_dask_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch, evaluate: Evaluate) -> None:  # noqa: F811
    monkeypatch.setattr(dask, "find_spec", lambda name: None)
    with pytest.raises(UsageError, match=r"pip install 'robustcmp\[distributed\]'"):
        evaluate({}, "dask:1")


def test_what_a_worker_lacks_is_named() -> None:
    here = dask._describe_worker(SimpleNamespace(name="here"))
    assert set(frameworks.list_installed()) <= set(here.frameworks)

    task: Any = SimpleNamespace(frameworks=("torch", "numpy"), device="cpu")
    there = here._replace(frameworks={"torch": frameworks.versions("torch")})
    assert there.find_lack(task) == ""
    assert there._replace(version="9").find_lack(task).startswith("robustcmp ")
    assert there._replace(frameworks={}).find_lack(task) == "torch"
    assert there._replace(frameworks={"torch": ["0"]}).find_lack(task) == "torch in the version of this process"
    task.device = "cuda"
    assert there._replace(has_gpu=False).find_lack(task) == "a GPU"
    assert there._replace(has_gpu=True).find_lack(task) == ""


@pytest.mark.usefixtures("none_left")
def test_workers_and_home_give_the_same_bits(
    evaluate: Evaluate,  # noqa: F811
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    here = evaluate(MODELS, out=tmp_path / "here")
    progress = Watching(lambda: None)
    asked: list[str] = []
    run = distributed.Client.run

    def count(client: Any, function: Any, *given: Any, **options: Any) -> Any:
        if function is dask._describe_worker:
            asked.extend(options["workers"])
        return run(client, function, *given, **options)

    monkeypatch.setattr(distributed.Client, "run", count)
    there = evaluate(MODELS, "dask:2", progress=progress)
    assert answers(here.results.run.directory) == answers(there.results.run.directory)
    costs = there.costs
    assert set(costs[costs.model == "home"].worker) == {""}
    assert set(costs[costs.model != "home"].worker) <= {"0", "1"}
    assert progress.asked_of["walk"] > 0
    assert len(set(asked)) == len(asked) == 2  # what a worker can do is asked of it once


@pytest.mark.slow
@pytest.mark.usefixtures("none_left")
def test_the_task_of_a_worker_that_is_killed_is_done_by_another(
    evaluate: Evaluate,  # noqa: F811
    tmp_path: Path,
) -> None:
    models = {"a": made("sound"), "b": made("slow"), "c": made("other")}
    lost: list[int] = []

    def kill() -> None:
        lost.append(local_workers()[0])
        os.kill(lost[0], signal.SIGKILL)

    ev = evaluate(models, "dask:2", progress=Watching(kill))
    assert lost
    assert not ev.failed
    assert ev.dataset.identical(evaluate(models, out=tmp_path / "straight").dataset)


@pytest.mark.slow
@pytest.mark.usefixtures("none_left")
def test_a_task_that_kills_two_workers_has_failed(evaluate: Evaluate) -> None:  # noqa: F811
    ev = evaluate({"a": made("sound"), "bad": made("kills_its_worker")}, "dask:2")
    assert ev.failed == {"bad": {"pixel": "two workers were lost while they did it."}}


@pytest.mark.usefixtures("none_left")
def test_on_a_worker_a_crash_ends_one_group(evaluate: Evaluate) -> None:  # noqa: F811
    ev = evaluate({"a": made("sound"), "bad": made("segfaults")}, "dask:1")
    assert list(ev.failed) == ["bad"]
    assert ev.failed["bad"]["pixel"].startswith("its process ended by SIGSEGV.")
    assert set(ev.costs.worker) == {"0"}  # it lives on


@pytest.mark.slow
@pytest.mark.usefixtures("none_left")
def test_a_model_that_differs_on_workers_is_attacked_at_home(
    evaluate: Evaluate,  # noqa: F811
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    models = {"a": made("sound"), "b": made("differs")}
    ev = evaluate(models, "dask:2")
    said = [record.getMessage() for record in caplog.records if record.name == "robustcmp"]
    assert any(text.startswith("b/0 stays in this process: on the worker ") for text in said)
    assert set(ev.costs.set_index("model").worker["b"]) == {""}
    assert ev.dataset.identical(evaluate(models, out=tmp_path / "straight").dataset)


@pytest.mark.slow
def test_ctrl_c_at_a_terminal_is_for_the_head_alone(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    asked = "--model lenet1 --framework torch --training-seeds 0 1 --dataset digits --suite smoke --images 100"
    command = [sys.executable, "-m", "robustcmp.eval", *asked.split(), "--repeats", "300", "--executor", "dask:2"]
    command = ["env", "--default-signal=INT", *command]  # a shell's background job ignores it
    with subprocess.Popen(command, cwd=tmp_path, start_new_session=True, stderr=subprocess.PIPE, text=True) as head:
        limit = time.monotonic() + 120
        while not list(tmp_path.glob("runs/*/cells/*.h5")):
            assert time.monotonic() < limit
            time.sleep(0.1)
        os.killpg(head.pid, signal.SIGINT)
        _, errors = head.communicate(timeout=300)
    assert head.returncode == 130
    assert "Traceback" not in errors


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
    cluster: Cluster, digits: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
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
    with distributed.Client(cluster.address) as client:
        client.wait_for_workers(2)
    asked = {"suite": "smoke", "n": 9, "repeats": 2, "batch_size": 16, "progress": False}
    executor = cluster.address
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
        return evaluate(models[name], cluster.address, out=tmp_path / name, repeats=4)

    with ThreadPoolExecutor() as pool:
        evaluations = dict(zip(models, pool.map(compare, models), strict=True))
    for name, ev in evaluations.items():
        ev.dataset[["success"]].to_netcdf(tmp_path / f"{name}.nc")  # it does not look for a client that is gone
        assert ev.dataset.identical(evaluate(models[name], out=tmp_path / f"{name} alone", repeats=4).dataset)


@pytest.mark.slow
@pytest.mark.parametrize(("hidden", "lack"), [("jax", "plain lacks jax"), ("robustcmp", r"tcp://\S+ lacks robustcmp")])
def test_what_nobody_can_do_is_an_error_before_work(
    hidden: str, lack: str, cluster: Cluster, digits: Dataset, tmp_path: Path
) -> None:
    pytest.importorskip("jax")
    cluster.start_worker("plain", hidden=[hidden])
    origins = {"jax": FromZoo("lenet1", "digits", "jax"), "torch": FromZoo("lenet1", "digits", "torch")}
    with pytest.raises(UsageError, match=f"no worker can attack jax/0: .*{lack}"):
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
            executor=cluster.address,
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
    ev = evaluate({"a": made("sound"), "b": made("other")}, cluster.address)
    timer.join()
    assert set(ev.costs.worker) == {"late"}
    assert f"waiting for workers of {cluster.address}" in [r.getMessage() for r in caplog.records]
    limit = time.monotonic() + 120
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
    monkeypatch.setattr(dask, "CONNECT_SECONDS", 3)
    cluster.start_worker("only")
    models, scheduler = {"a": made("sound"), "b": made("slow")}, cluster.processes[0]
    with pytest.raises(RobustcmpError, match=f"the scheduler {cluster.address} is gone. What is finished is kept: rer"):
        evaluate(models, cluster.address, progress=Watching(scheduler.kill), repeats=4)
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
    monkeypatch.setattr(dask, "CONNECT_SECONDS", 1)
    for address in ("tcp://127.0.0.1:9", "tcp://127.0.0.1:many", "nowhere://127.0.0.1:9"):
        with pytest.raises(UsageError, match=rf"no scheduler of Dask answers at {address}: .") as no:
            evaluate({"a": rc.from_function("no_such_module:model")}, address)
        assert no.value.parameters == ("executor",)
    assert not (tmp_path / "run").exists()
    gc.collect()
    assert capfd.readouterr().err == ""

"""Training and prediction measured: real processes, one for each measurement."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections import namedtuple
from collections.abc import Callable
from importlib.metadata import version
from itertools import product
from pathlib import Path
from typing import Any

import made_up
import msgspec
import numpy as np
import psutil
import pytest
from test_executors import children

import robustcmp as rc
from robustcmp.bench import measure, process
from robustcmp.bench.jobs import PredictionJob, TrainingJob
from robustcmp.bench.measurement import Asked, Epoch, Measurement
from robustcmp.bench.process import Failure, _read_busy, _read_children_seconds, _Watch, check_gpu
from robustcmp.bench.store import BenchmarkStore, Planned
from robustcmp.cli import bench
from robustcmp.errors import ControlError, UsageError
from robustcmp.sources.from_zoo import FromZoo
from robustcmp.sources.recipes import default_dataset

OTHERS = """
import os, signal, time
import numpy as np
import robustcmp as rc

def plain(images):
    return images.reshape(len(images), -1)[:, 300:310]

def slow():
    def ask(images):
        time.sleep(0.01)
        return plain(images)
    return rc.wrap_functions(logits=ask, bounds=(0, 1))

def crashes():
    os.kill(os.getpid(), signal.SIGSEGV)

def raises():
    raise ValueError("no such network")

def threads():
    count = float(len(os.sched_getaffinity(0)))
    return rc.wrap_functions(logits=lambda images: np.full((len(images), 2), count, np.float32), bounds=(0, 1))
"""
COMMAND = ["train", "--model", "lenet1", "--framework", "torch", "--dataset", "digits", "--epochs", "1.25"]
COMMAND += ["--batch-size", "32", "--repetitions", "1"]
SHORT: dict[str, Any] = {"dataset": "digits", "repetitions": 1, "batch_sizes": [32, 32]}  # the same twice is one


@pytest.fixture
def others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Any]:
    (tmp_path / "other_networks.py").write_text(OTHERS)
    monkeypatch.syspath_prepend(str(tmp_path))
    return lambda name: rc.from_function(f"other_networks:{name}")


def stored(directory: Path) -> list[Measurement]:
    store = BenchmarkStore(directory)
    return [store.load(planned) for planned in store.manifest().plan if planned.key in store]


def no_driver(name: str) -> None:
    raise OSError(f"{name} is not there")


@pytest.fixture
def never_run(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(job: object, threads: int) -> None:
        raise AssertionError("a process was started")

    monkeypatch.setattr(measure, "run", run)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A training that the command measured in a process."""
    out = tmp_path_factory.mktemp("measured") / "run"
    assert bench.main([*COMMAND, "--out", str(out), "--quiet"]) == 0
    return out


def test_a_training_is_measured_step_by_step(run: Path) -> None:
    [measured] = stored(run)
    whole = 37  # steps of an epoch: nine tenths of 1,297 images in batches of 32
    assert len(measured.calls) == whole + 9 - 1
    assert [epoch.share for epoch in measured.epochs] == [1, 9 / 37], "a quarter has no whole steps"
    seconds = sum(epoch.seconds for epoch in measured.epochs)
    assert seconds == pytest.approx(measured.first_seconds + sum(measured.calls))
    assert measured.version == version("torch")
    assert 0 < measured.ready_seconds < measured.seconds
    assert measured.epochs[-1].loss is not None
    assert measured.epochs[-1].loss < np.log(10) + 0.1
    assert measured.device == "cpu"
    assert measured.resources.cpu_seconds > 0


def test_the_command_writes_a_page_and_measures_nothing_again(
    run: Path, never_run: None, capsys: pytest.CaptureFixture[str]
) -> None:
    before = {path: path.read_bytes() for path in run.rglob("*.json")}
    assert "<html" in (run / "report.html").read_text()
    assert bench.main([*COMMAND, "--out", str(run), "--json"]) == 0
    assert '"torch"' in capsys.readouterr().out
    assert {path: path.read_bytes() for path in run.rglob("*.json") if path.name != "manifest.json"} == {
        path: content for path, content in before.items() if path.name != "manifest.json"
    }
    assert bench.main([*COMMAND, "--batch-size", "0", "--out", str(run)]) == 2
    error = "error: batch_sizes should be 1 or more, received 0\nSee --batch-size.\n"
    assert capsys.readouterr().err == error, "no bar before it"


@pytest.mark.parametrize(("epochs", "shares"), [(1.01, [1, 0.1]), (0.26, [0.3]), (0.001, [0.1]), (2.0, [1, 1])])
def test_the_share_of_an_epoch_is_that_of_its_steps(epochs: float, shares: list[float]) -> None:
    job = TrainingJob(FromZoo("lenet1", "digits", "torch"), 128, epochs)
    outcome = job.do(lambda: None)
    assert [epoch.share for epoch in outcome["epochs"]] == shares
    assert 1 + len(outcome["calls"]) == round(10 * sum(shares))


@pytest.mark.slow
def test_a_measured_training_takes_the_steps_of_fit(tmp_path: Path) -> None:
    job = TrainingJob(FromZoo("lenet1", "digits", "torch"), 32, 1)
    measured = job.do(lambda: None)
    fitted = rc.fit("lenet1", framework="torch", dataset="digits", epochs=1, out=tmp_path)
    assert fitted.info["validation_accuracy"] == measured["epochs"][0].validation_accuracy


@pytest.mark.slow
def test_predictions_have_the_same_weights_behind_the_control(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    deployments = ["onnxruntime", "onnxruntime-int8"]
    rc.benchmark(
        "predict",
        "lenet1",
        frameworks=["torch", "jax"],
        deployments=deployments,
        images=[100],
        out=tmp_path / "run",
        **SHORT,
    )
    manifest = BenchmarkStore(tmp_path / "run").manifest()
    assert (manifest.control["jax"], manifest.control["onnxruntime"]) == ("passed", "passed")
    assert manifest.control["onnxruntime-int8"].startswith("quantised: logits differ by ")
    assert manifest.about["weights_of"] == "torch"
    assert manifest.failed == {}
    assert {*manifest.not_applicable} == {f"{name} forward-backward" for name in deployments}
    by = {(each.asked.subject, each.asked.task): each for each in stored(tmp_path / "run")}
    assert {*by} == {*product(["torch", "jax"], ["forward", "forward-backward"]), *product(deployments, ["forward"])}
    assert len(by["jax", "forward"].calls) == 40, "three full batches, again and again: enough for p95"


def test_frameworks_that_answer_differently_are_not_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)

    def run(job: object, threads: int) -> dict[str, Any]:
        assert isinstance(job, PredictionJob)
        return {"logits": rng.normal(size=(200, 10))}

    monkeypatch.setattr(measure, "run", run)
    with pytest.raises(ControlError, match="jax and torch have the same weights, but their answers differ"):
        rc.benchmark("predict", "lenet1", frameworks=["torch", "jax"], images=[32], out=tmp_path / "run", **SHORT)
    assert not list((tmp_path / "run" / "measurements").iterdir())


def test_a_process_that_dies_fails_alone(tmp_path: Path, others: Callable[[str], Any]) -> None:
    models = {name: others(name) for name in ("slow", "crashes", "raises")}
    found = rc.benchmark("predict", models=models, frameworks=[], images=[32], out=tmp_path / "run", **SHORT)
    assert found.manifest.not_applicable.keys() == {"slow forward-backward"}, "it has no vjp"
    assert "SIGSEGV" in found.failed["crashes, prediction, batch 32, 32 images"]
    assert "no such network" in found.failed["raises, prediction, batch 32, 32 images"]
    [measured] = found.measurements
    assert min(measured.calls) >= 0.01, "it sleeps so long"


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="this system keeps no process to some processors")
def test_a_process_has_its_threads_and_is_ended(others: Callable[[str], Any], monkeypatch: pytest.MonkeyPatch) -> None:
    job = PredictionJob(others("threads"), "digits", None, 2, 2)
    assert process.run(job, 1)["logits"].tolist() == [[1, 1], [1, 1]]

    def interrupt(watch: process._Watch) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(process._Watch, "look", interrupt)
    with pytest.raises(KeyboardInterrupt):
        process.run(job, 1)
    assert not [pid for pid in children() if b"bench.process" in Path(f"/proc/{pid}/cmdline").read_bytes()]


def done(epochs: list[Epoch]) -> dict[str, Any]:
    """Return what a process measured of a training."""
    asked = Asked("train", "torch", 32, 0, 0)
    measured = made_up.measurement(asked, [0.1] * 3, epochs=epochs)
    fields = msgspec.structs.asdict(measured)
    return {name: value for name, value in fields.items() if name not in ("asked", "key", "semantics")}


def test_what_is_finished_is_kept_and_what_failed_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    seeds = []
    endings: list[Exception | KeyboardInterrupt | None] = []

    def run(job: TrainingJob, threads: int) -> dict[str, Any]:
        seeds.append(job.origin.seed)
        if (ending := endings.pop(0)) is not None:
            raise ending
        return done([Epoch(0.1, 0.4, 2.0, 0.1, 0.1)])

    monkeypatch.setattr(measure, "run", run)
    command = ["train", "--model", "lenet1", "--framework", "torch", "--dataset", "digits", "--batch-size", "32"]
    command += ["--repetitions", "3", "--out", str(tmp_path / "run"), "--quiet"]
    for round_endings, status, measured in (
        ([None, KeyboardInterrupt()], 130, 1),
        ([Failure("its process ended by SIGKILL."), None], 1, 2),
        ([None], 0, 3),
        ([], 0, 3),
    ):
        endings[:] = round_endings
        assert bench.main(command) == status
        assert not endings
        assert ("its process ended by SIGKILL." in capsys.readouterr().err) == (status == 1)
        assert len(stored(tmp_path / "run")) == measured
    assert seeds == [0, 1, 1, 2, 1], "each repetition is another training"


def test_each_repetition_has_a_random_order_of_its_own() -> None:
    question = measure._Question(FromZoo("lenet1", "digits", "torch"), "auto", None)
    subjects = question.list_trainings({"a": "torch", "b": "torch"}, [8, 16, 32, 64], 1)
    assert {subject.asked.subject for subject in subjects} == {"a", "b"}, "one framework can stand twice"

    def plan(seed: int) -> list[Planned]:
        return [planned for planned, _ in measure._plan(question, subjects, 5, seed, 2)]

    asked = [planned.asked for planned in plan(0)]
    orders = [[(a.subject, a.batch_size) for a in asked if a.repetition == repetition] for repetition in range(5)]
    assert [a.repetition for a in asked] == sorted(a.repetition for a in asked)
    assert all(sorted(order) == sorted(orders[0]) for order in orders)
    assert len({tuple(order) for order in orders}) == 5
    assert plan(0) == plan(0) != plan(1)
    assert {planned.key for planned in plan(0)} == {planned.key for planned in plan(1)}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"what": "learn"}, "expected 'train' or 'predict'"),
        ({"batch_sizes": [0]}, "batch_sizes should be 1 or more"),
        ({"device": "tpu"}, "unknown device 'tpu'"),
        ({"device": "cuda"}, "no such device: 'cuda' was requested, but this machine shows no GPU"),
        ({"frameworks": ["torhc"]}, "did you mean 'torch'"),
        ({"repetitions": 0}, "repetitions should be 1 or more"),
        ({"epochs": 0}, "epochs should be more than 0"),
        ({"threads": 4096}, "threads should be at most"),
        ({"deployments": ["onnxruntime"]}, "deployments and models cannot be trained"),
        ({"what": "predict", "images": [16]}, "images should be at least the largest batch size, 32, received 16"),
        ({"what": "predict", "images": []}, "the largest batch size, 32, received 0"),
        ({"what": "predict", "deployments": ["onnxruntime-int9"]}, "unknown"),
        ({"dataset": "svhn"}, "svhn"),
    ],
)
def test_what_cannot_be_is_said_before_any_work(
    arguments: dict[str, Any],
    message: str,
    tmp_path: Path,
    never_run: None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(process.ctypes, "CDLL", no_driver)
    for load in ("load_for", "load_dataset"):
        monkeypatch.setattr(measure, load, None)  # images are not needed to say it
    given = {"what": "train", "frameworks": ["torch"], "out": tmp_path / "run", **SHORT, **arguments}
    with pytest.raises(UsageError, match=message):
        rc.benchmark(given.pop("what"), "lenet1", **given)
    assert not (tmp_path / "run").exists()


def test_a_host_sees_no_gpu_and_that_is_said_before_any_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, never_run: None
) -> None:
    monkeypatch.setattr(measure, "check_gpu", lambda: None)
    monkeypatch.setattr(measure, "check_framework", lambda name: None)  # no environment is needed to say so
    with pytest.raises(UsageError, match="'cuda' was requested, but theano sees no GPU"):
        rc.benchmark("train", "lenet1", frameworks=["theano"], device="cuda", out=tmp_path / "run", **SHORT)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(("model", "short"), [("lenet1", ("digits", 2.0)), ("resnet20", ("cifar10", 0.05))])
def test_a_training_is_short_by_default_and_whole_on_request(model: str, short: tuple[str, float]) -> None:
    assert (default_dataset(model, short=True), measure._choose_epochs(model, "default")) == short
    assert default_dataset("lenet1") == "mnist", "whose weights the zoo has"


def test_a_directory_with_something_else_is_left_alone(tmp_path: Path, never_run: None) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(UsageError, match="is not empty and is not a benchmark"):
        rc.benchmark("train", "lenet1", frameworks=["torch"], out=tmp_path, **SHORT)


def test_without_psutil_the_error_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psutil", None)
    with pytest.raises(UsageError, match=r"pip install 'robustcmp\[bench\]'"):
        rc.benchmark("train", "lenet1", frameworks=["torch"], out=tmp_path / "run", **SHORT)


# what is seen of a process and of a machine ---------------------------------------------------------------------------


@pytest.mark.skipif(sys.platform != "linux", reason="the driver has another name")
def test_a_gpu_is_there_where_torch_sees_one() -> None:
    import torch

    if torch.cuda.is_available():
        check_gpu()
    else:
        with pytest.raises(UsageError, match="this machine shows no GPU"):
            check_gpu()


BURN = """
import multiprocessing, os, subprocess, sys, time

def burn(seconds=0.4):
    until = time.process_time() + seconds
    while time.process_time() < until:
        pass

def look():
    print("look", flush=True)
    sys.stdin.readline()

def burn_and_stay(burnt, end):
    memory = bytearray(60_000_000)
    burn()
    burnt.set()
    end.wait()

def start():
    context = multiprocessing.get_context("fork")
    burnt, end = context.Event(), context.Event()
    child = context.Process(target=burn_and_stay, args=(burnt, end))
    child.start()
    burnt.wait()
    look()
    end.set()
    child.join()
"""
SHORT_LIVED = (
    f"{BURN}\nsubprocess.run([sys.executable, '-S', '-c', 'import time\\nwhile time.process_time() < 0.4: 0'])"
)


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="this system does not tell at once who was started")
@pytest.mark.parametrize(
    "code",
    [f"{BURN}\nburn(); start()", f"{BURN}\nlook(); start()", f"{SHORT_LIVED}\nlook()"],
    ids=["it and its child", "a child that starts between two looks", "a child that is there at no look"],
)
def test_what_a_process_and_its_children_use_is_seen(code: str) -> None:
    """They burn so much processor time, however long it takes, and wait to be looked at."""
    before = _read_children_seconds()
    process = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    watch = _Watch(process.pid, time.monotonic(), [])
    with process:
        assert process.stdin is not None
        assert process.stdout is not None
        for _ in process.stdout:
            watch.look()
            process.stdin.write(b"\n")
            process.stdin.flush()
    seen, counted = watch.finish(), _read_children_seconds() - before
    assert 0.4 <= seen.cpu_seconds < 1.1 * counted + 0.05, "nothing is missed, and nothing counted twice"
    if code.startswith(f"{BURN}\nburn()"):
        assert seen.cpu_seconds > 0.8
        assert seen.peak_memory > 60_000_000
    assert all(len(series) == len(seen.seconds) for series in seen.series.values())


def test_others_are_looked_for_on_the_processors_of_the_process_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    Times = namedtuple("Times", "user system idle")
    times = [Times(1.0, 0.5, 10.0), Times(4.0, 0.0, 10.0), Times(16.0, 0.0, 10.0)]
    monkeypatch.setattr(psutil, "cpu_times", lambda percpu: times)
    assert [_read_busy(processors) for processors in ([0], [0, 2], [])] == [1.5, 17.5, 21.5]

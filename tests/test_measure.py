"""Training and prediction measured: real processes, one for each measurement."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections import namedtuple
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_executors import children

import robustcmp as rc
from robustcmp.bench import machine, process
from robustcmp.bench import measure as measuring
from robustcmp.bench.jobs import ControlJob, TrainingJob
from robustcmp.bench.measurement import Measurement, Resources
from robustcmp.bench.process import Failure
from robustcmp.bench.store import BenchmarkStore
from robustcmp.cli import bench
from robustcmp.errors import ControlError, DataError, StoreError, UsageError
from robustcmp.networks.architecture import get_architecture
from robustcmp.sources.from_zoo import FromZoo

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
SHORT: dict[str, Any] = {"dataset": "digits", "repetitions": 1, "batch_sizes": [32, 32]}  # the same twice is one


@pytest.fixture
def others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Any]:
    (tmp_path / "other_networks.py").write_text(OTHERS)
    monkeypatch.syspath_prepend(str(tmp_path))
    return lambda name: rc.from_function(f"other_networks:{name}")


def stored(directory: Path) -> list[Measurement]:
    store = BenchmarkStore(directory)
    return [store.load(planned.key) for planned in store.manifest().plan if planned.key in store]


@pytest.fixture
def without_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "_has_gpu", lambda: False)


@pytest.fixture
def never_run(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(job: object, threads: int) -> None:
        raise AssertionError("a process was started")

    monkeypatch.setattr(measuring, "run", run)


def test_a_training_is_measured_step_by_step(tmp_path: Path) -> None:
    rc.benchmark("train", "lenet1", frameworks=["torch"], epochs=1.25, out=tmp_path / "run", **SHORT)
    [measured] = stored(tmp_path / "run")
    whole = 37  # steps of an epoch: nine tenths of 1,297 images in batches of 32
    assert len(measured.calls) == whole + 9 - 1
    assert [epoch.share for epoch in measured.epochs] == [1, 9 / 37], "a quarter has no whole steps"
    assert sum(epoch.seconds for epoch in measured.epochs) == pytest.approx(
        measured.first_seconds + sum(measured.calls)
    )
    assert measured.parameters == get_architecture("lenet1").parameters
    assert measured.bytes == 4 * get_architecture("lenet1").parameters
    shipped = FromZoo("lenet1", "digits", "torch").files["weights"].stat().st_size
    assert measured.file_bytes == pytest.approx(shipped, rel=0.5), "which also has curves"
    assert measured.file_bytes > measured.bytes
    assert measured.version == version("torch")
    assert 0 < measured.ready_seconds < measured.seconds
    assert measured.epochs[-1].loss is not None
    assert measured.epochs[-1].loss < np.log(10) + 0.1
    assert measured.device == "cpu"


@pytest.mark.parametrize(("epochs", "shares"), [(1.01, [1, 0.1]), (0.26, [0.3]), (0.001, [0.1]), (2.0, [1, 1])])
def test_the_share_of_an_epoch_is_that_of_its_steps(epochs: float, shares: list[float]) -> None:
    job = TrainingJob("lenet1", "digits", "default", "torch", 0, 128, epochs)
    outcome = job.do(lambda: None)
    assert [epoch.share for epoch in outcome.epochs] == shares
    assert 1 + len(outcome.calls) == round(10 * sum(shares))


@pytest.mark.slow
def test_a_measured_training_takes_the_steps_of_fit(tmp_path: Path) -> None:
    job = TrainingJob("lenet1", "digits", "default", "torch", 0, 32, 1)
    measured = job.do(lambda: None)
    fitted = rc.fit("lenet1", framework="torch", dataset="digits", epochs=1, out=tmp_path)
    assert fitted.info["validation_accuracy"] == measured.epochs[0].validation_accuracy


def test_what_is_finished_is_not_measured_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[Any] = []

    def run(job: Any, threads: int) -> Any:
        ran.append(job)
        return process.run(job, threads)

    monkeypatch.setattr(measuring, "run", run)
    arguments: dict[str, Any] = {"frameworks": ["torch"], "epochs": 0.05, "out": tmp_path / "run", **SHORT}
    rc.benchmark("train", "lenet1", **arguments)
    before = {path: path.read_bytes() for path in (tmp_path / "run").rglob("*.json")}
    assert len(ran) == 1
    rc.benchmark("train", "lenet1", **arguments)
    assert len(ran) == 1
    assert {path: path.read_bytes() for path in (tmp_path / "run").rglob("*.json")} == before
    rc.benchmark("train", "lenet1", **arguments | {"repetitions": 2})
    assert len(ran) == 2
    assert [job.seed for job in ran] == [0, 1], "each repetition is another training"
    losses = [epoch.loss for measured in stored(tmp_path / "run") for epoch in measured.epochs]
    assert len({*losses}) == 2


@pytest.mark.slow
def test_predictions_have_the_same_weights_behind_the_control(tmp_path: Path) -> None:
    rc.benchmark(
        "predict",
        "lenet1",
        frameworks=["torch", "jax"],
        images=[100],
        out=tmp_path / "run",
        **SHORT,
    )
    manifest = BenchmarkStore(tmp_path / "run").manifest()
    assert manifest.control == {"jax": "passed"}
    assert manifest.about["weights_of"] == "torch"
    assert manifest.failed == {}
    by = {(each.asked.subject, each.asked.task, each.asked.batch_size): each for each in stored(tmp_path / "run")}
    assert {key[0] for key in by} == {"torch", "jax"}
    assert {key[1] for key in by} == {"forward", "forward-backward"}
    assert len(by["jax", "forward", 32].calls) == 40, "three full batches, again and again: enough for p95"
    assert all(each.parameters == get_architecture("lenet1").parameters for each in by.values())


@pytest.mark.slow
def test_deployments_predict_and_have_no_gradient(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    arguments: dict[str, Any] = {
        "frameworks": ["torch"],
        "deployments": ["onnxruntime", "onnxruntime-int8"],
        "images": [64],
    }
    rc.benchmark("predict", "lenet1", out=tmp_path / "run", **arguments, **SHORT)
    manifest = BenchmarkStore(tmp_path / "run").manifest()
    assert manifest.control["onnxruntime"] == "passed"
    assert manifest.control["onnxruntime-int8"].startswith("quantised: logits differ by ")
    assert set(manifest.not_applicable) == {"onnxruntime forward-backward", "onnxruntime-int8 forward-backward"}
    sizes = {each.asked.subject: each.bytes for each in stored(tmp_path / "run")}
    assert sizes["onnxruntime"] > sizes["onnxruntime-int8"] > 0  # type: ignore[operator]
    on_disk = {each.asked.subject: each.file_bytes for each in stored(tmp_path / "run")}
    assert on_disk == sizes | {"torch": FromZoo("lenet1", "digits", "torch").files["weights"].stat().st_size}


@pytest.mark.slow
def test_frameworks_that_answer_differently_are_not_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measuring, "answers_alike", lambda logits, predictions: False)
    with pytest.raises(ControlError, match="jax does not answer as torch with the same weights"):
        rc.benchmark("predict", "lenet1", frameworks=["torch", "jax"], images=[32], out=tmp_path / "run", **SHORT)
    assert not list((tmp_path / "run" / "measurements").iterdir())


@pytest.mark.slow
def test_one_framework_can_stand_twice(tmp_path: Path) -> None:
    rc.benchmark("train", "lenet1", frameworks={"a": "torch", "b": "torch"}, epochs=0.05, out=tmp_path / "run", **SHORT)
    assert sorted(each.asked.subject for each in stored(tmp_path / "run")) == ["a", "b"]


def test_a_process_that_dies_fails_alone(tmp_path: Path, others: Callable[[str], Any]) -> None:
    models = {name: others(name) for name in ("slow", "crashes", "raises")}
    found = rc.benchmark("predict", models=models, frameworks=[], images=[32], out=tmp_path / "run", **SHORT)
    manifest = BenchmarkStore(tmp_path / "run").manifest()
    assert manifest.not_applicable.keys() == {"slow forward-backward"}, "it has no vjp"
    reasons = {
        planned.asked.subject: manifest.failed.get(planned.key)
        for planned in manifest.plan
        if planned.asked.task == "forward"
    }
    assert reasons["slow"] is None
    assert "SIGSEGV" in str(reasons["crashes"])
    assert "no such network" in str(reasons["raises"])
    assert found.failed


@pytest.mark.slow
def test_a_slow_network_is_slow(tmp_path: Path, others: Callable[[str], Any]) -> None:
    rc.benchmark("predict", models={"slow": others("slow")}, frameworks=[], images=[32], out=tmp_path / "run", **SHORT)
    measured = next(each for each in stored(tmp_path / "run") if each.asked.task == "forward")
    assert min(measured.calls) >= 0.01
    assert measured.parameters is None


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="this system keeps no process to some processors")
def test_a_process_has_the_threads_that_it_was_given(others: Callable[[str], Any]) -> None:
    done = process.run(ControlJob(others("threads"), "digits", 2), 1)
    assert done.outcome.logits == [[1, 1], [1, 1]]


def test_each_repetition_has_a_random_order_of_its_own(never_run: None) -> None:
    question = measuring._Question("train", "lenet1", "default", 0, "auto", None, "digits")
    subjects = question.trainings(["torch", "jax"], [8, 16, 32, 64], 1)
    plan = measuring._plan(question, subjects, 5, 0, 2)
    orders = [[(a.subject, a.batch_size) for a, *_ in plan if a.repetition == repetition] for repetition in range(5)]
    assert [a.repetition for a, *_ in plan] == sorted(a.repetition for a, *_ in plan)
    assert all(sorted(order) == sorted(orders[0]) for order in orders)
    assert len({tuple(order) for order in orders}) == 5
    assert plan == measuring._plan(question, subjects, 5, 0, 2)
    assert [key for _, key, _ in plan] != [key for _, key, _ in measuring._plan(question, subjects, 5, 1, 2)]
    assert {key for _, key, _ in plan} == {key for _, key, _ in measuring._plan(question, subjects, 5, 1, 2)}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"what": "learn"}, "expected 'train' or 'predict'"),
        ({"batch_sizes": [0]}, "batch_sizes should be 1 or more"),
        ({"device": "tpu"}, "unknown device 'tpu'"),
        ({"device": "cuda:7"}, "unknown device 'cuda:7': did you mean 'cuda'"),
        ({"device": "cuda"}, "no such device: 'cuda' was requested, but this machine shows no GPU"),
        ({"frameworks": ["torhc"]}, "did you mean 'torch'"),
        ({"frameworks": ["torch", "torch"]}, "each framework can be given once"),
        ({"repetitions": 0}, "repetitions should be 1 or more"),
        ({"epochs": 0}, "epochs should be more than 0"),
        ({"accuracy": 1.5}, "accuracy should be above 0 and at most 1"),
        ({"threads": 0}, "threads should be 1 or more"),
        ({"threads": 4096}, "threads should be at most"),
        ({"deployments": ["onnxruntime"]}, "deployments, models and weights_of are for predictions"),
        ({"what": "predict", "images": [16]}, "images should be at least the largest batch size, 32, received 16"),
        ({"what": "predict", "images": [1000, 16]}, "the largest batch size, 32, received 16"),
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
    without_gpu: None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for load in ("load_for", "load_dataset"):
        monkeypatch.setattr(measuring, load, None)  # images are not needed to say it
    given = {"what": "train", "frameworks": ["torch"], "out": tmp_path / "run", **SHORT, **arguments}
    with pytest.raises(UsageError, match=message):
        rc.benchmark(given.pop("what"), "lenet1", **given)
    assert not (tmp_path / "run").exists()


def test_a_host_sees_no_gpu_and_that_is_said_before_any_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, never_run: None
) -> None:
    monkeypatch.setattr(machine, "_has_gpu", lambda: True)
    monkeypatch.setattr(measuring, "check_framework", lambda name: None)  # no environment is needed to say so
    with pytest.raises(UsageError, match="'cuda' was requested, but theano sees no GPU"):
        rc.benchmark("train", "lenet1", frameworks=["theano"], device="cuda", out=tmp_path / "run", **SHORT)
    assert not (tmp_path / "run").exists()


@pytest.mark.skipif(sys.platform != "linux", reason="the driver has another name")
def test_a_gpu_is_there_where_torch_sees_one() -> None:
    import torch

    assert machine._has_gpu() == torch.cuda.is_available()


@pytest.mark.parametrize(("model", "short"), [("lenet1", ("digits", 2.0)), ("resnet20", ("cifar10", 0.05))])
def test_a_training_is_short_by_default_and_whole_on_request(model: str, short: tuple[str, float]) -> None:
    assert (measuring.usual_dataset("train", model), measuring.usual_epochs(model)) == short
    assert measuring.usual_dataset("predict", "lenet1") == "mnist", "whose weights the zoo has"


def test_a_share_of_an_epoch_is_said_before_it_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def benchmark(*arguments: object, **named: Any) -> None:
        raise UsageError(f"{named['epochs']} of {named['dataset']}")

    monkeypatch.setattr(measuring, "benchmark", benchmark)
    out = ["--out", str(tmp_path / "run")]
    bench.main(["train", "--model", "resnet20", *out])
    said = "Trains for 5.0 % of an epoch; --epochs 1 measures a whole one.\n"
    assert capsys.readouterr().err == f"{said}error: 0.05 of cifar10\n"
    bench.main(["train", "--model", "resnet20", "--epochs", "1", *out])
    bench.main(["train", "--model", "lenet1", *out])
    assert capsys.readouterr().err == "error: 1.0 of cifar10\nerror: 2.0 of digits\n"


def test_a_dataset_that_is_not_there_is_said_before_any_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, never_run: None
) -> None:
    with pytest.raises(DataError, match="mnist"):
        rc.benchmark("train", frameworks=["torch"], dataset="mnist", data_dir=tmp_path, out=tmp_path / "run")


def test_a_directory_with_something_else_is_left_alone(tmp_path: Path, never_run: None) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(UsageError, match="is not empty and is not a benchmark"):
        rc.benchmark("train", "lenet1", frameworks=["torch"], out=tmp_path, **SHORT)


def test_a_run_is_no_benchmark(never_run: None) -> None:
    run = Path(__file__).parents[1] / "docs" / "results" / "lenet5-mnist-guo2019"
    with pytest.raises(UsageError, match="is a run, not a benchmark"):
        rc.open_benchmark(run)


def test_without_psutil_the_error_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psutil", None)
    with pytest.raises(UsageError, match=r"pip install 'robustcmp\[bench\]'"):
        rc.benchmark("train", "lenet1", frameworks=["torch"], out=tmp_path / "run", **SHORT)


def test_a_broken_measurement_is_refused(tmp_path: Path) -> None:
    rc.benchmark("train", "lenet1", frameworks=["torch"], epochs=0.05, out=tmp_path / "run", **SHORT)
    store = BenchmarkStore(tmp_path / "run")
    [planned] = store.manifest().plan
    path = store.path(planned.key)
    path.write_text(path.read_text().replace('"threads": ', '"threads": 1', 1))
    with pytest.raises(StoreError, match="Delete it, and rerun the same command to measure it again"):
        store.load(planned.key)


BUSY = """
import multiprocessing, time
def burn():
    held, until = bytearray(60_000_000), time.monotonic() + 2
    while time.monotonic() < until:
        pass
if __name__ == "__main__":
    child = multiprocessing.get_context("fork").Process(target=burn)
    child.start(); burn(); child.join()
"""


def watched(code: str) -> tuple[Resources, float]:
    """What was seen of a process that runs some code, and the processor time that the system counted."""
    with machine.waited_children() as cpu_seconds:
        began = time.monotonic()
        process = subprocess.Popen([sys.executable, "-c", code])
        watch = machine.Watch(process.pid, began, [])
        while process.poll() is None:
            watch.look()
            time.sleep(machine.LOOK_SECONDS)
        return watch.finish(0.0), cpu_seconds()


def test_what_a_process_and_its_children_use_is_seen() -> None:
    seen, counted = watched(BUSY)
    assert seen.cpu_seconds == pytest.approx(counted, rel=0.3)
    assert counted > 1, "two processes burnt two seconds of two processors, or of what was left of them"
    assert seen.peak_memory > 120_000_000
    assert set(seen.series) >= {"cpu", "memory", "others"}
    assert all(len(series) == len(seen.seconds) for series in seen.series.values())
    assert seen.missing.keys() | seen.series.keys() >= {"cpu_temperature", "gpu"}
    assert (seen.energy is None) == ("energy" in seen.missing)


def test_others_are_looked_for_on_the_processors_of_the_process_alone() -> None:
    class Psutil:
        Times = namedtuple("Times", "user system idle")

        @classmethod
        def cpu_times(cls, percpu: bool) -> list[Any]:
            assert percpu
            return [cls.Times(1.0, 0.5, 10.0), cls.Times(4.0, 0.0, 10.0), cls.Times(16.0, 0.0, 10.0)]

    assert [machine._busy(Psutil, on) for on in ([0], [0, 2], [])] == [1.5, 17.5, 21.5]


LATE = """
import os, subprocess, sys, time
time.sleep(0.3)
subprocess.Popen([sys.executable, "-c", "import time; end = time.monotonic() + 1\\nwhile time.monotonic() < end: pass"])
time.sleep(1.2)
os._exit(0)
"""


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="this system does not tell at once who was started")
def test_what_starts_late_and_briefly_is_not_taken_for_another_program() -> None:
    seen, _ = watched(LATE)
    assert seen.cpu_seconds > 0.3, "what it was given of a second"


BETWEEN_LOOKS = """
import subprocess, sys, time
until = time.monotonic() + 2
while time.monotonic() < until:
    subprocess.run([sys.executable, "-S", "-c", "sum(range(300_000))"])
"""


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="this system does not tell what was waited for")
def test_what_begins_and_ends_between_two_looks_is_counted() -> None:
    seen, counted = watched(BETWEEN_LOOKS)
    assert seen.cpu_seconds > 0.8 * counted, "of short processes, one after the other"
    assert seen.cpu_seconds < 1.1 * counted + 0.05, "nothing is counted twice"


# The interrupt can come while psutil has a file of /proc open, which Python then closes and complains about.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_an_interruption_ends_the_process_and_keeps_what_is_finished(
    tmp_path: Path, others: Callable[[str], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def measuring_processes() -> list[str]:
        return [pid for pid in children() if b"bench.child" in Path(f"/proc/{pid}/cmdline").read_bytes()]

    def interrupt(done: int, of: int, what: str) -> None:
        if done == 1:
            threading.Timer(1.0, lambda: os.kill(os.getpid(), signal.SIGINT)).start()

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            rc.benchmark(
                "train",
                "lenet1",
                frameworks={"a": "torch", "b": "torch", "c": "torch"},
                epochs=0.1,
                out=tmp_path / "run",
                progress=interrupt,
                **SHORT,
            )
    finally:
        signal.signal(signal.SIGINT, before)
    assert not measuring_processes()
    assert len(stored(tmp_path / "run")) == 1


def test_the_command_measures_and_writes_a_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = [
        "--framework",
        "torch",
        "--dataset",
        "digits",
        "--epochs",
        "0.05",
        "--batch-size",
        "32",
        "--repetitions",
        "1",
    ]
    out = tmp_path / "run"
    assert bench.main(["train", "--model", "lenet1", *options, "--out", str(out), "--quiet"]) == 0
    assert "torch" in capsys.readouterr().out
    assert "<html" in (out / "report.html").read_text()
    assert bench.main(["train", "--model", "lenet1", *options, "--out", str(out), "--json"]) == 0
    assert '"torch"' in capsys.readouterr().out
    assert bench.main(["train", "--model", "lenet1", *options, "--batch-size", "0", "--out", str(out)]) == 2
    error = "error: batch_sizes should be 1 or more, received 0\nSee --batch-size.\n"
    assert capsys.readouterr().err == error, "no bar before it"


@pytest.mark.slow
def test_a_failure_is_the_status_of_the_command_and_is_tried_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(job: object, threads: int) -> None:
        raise Failure("its process ended by SIGKILL.")

    options = [
        "--framework",
        "torch",
        "--dataset",
        "digits",
        "--epochs",
        "0.05",
        "--batch-size",
        "32",
        "--repetitions",
        "1",
    ]
    command = ["train", "--model", "lenet1", *options, "--out", str(tmp_path / "run"), "--quiet"]
    with monkeypatch.context() as patch:
        patch.setattr(measuring, "run", fails)
        assert bench.main(command) == 1
        assert "its process ended by SIGKILL." in capsys.readouterr().err
    assert bench.main(command) == 0

"""The commands, from the arguments to the exit status."""

from __future__ import annotations

import importlib.metadata
import io
import json
import os
import shutil
import subprocess
import sys
import termios
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from conftest import files, left_by_a_dead_writer

import robustcmp as rc
from robustcmp.attacks import AttackResult
from robustcmp.cli import command, screen
from robustcmp.cli import eval as eval_command
from robustcmp.cli import train as train_command
from robustcmp.frameworks import list_installed
from robustcmp.networks.weights import read_weights
from robustcmp.records.attack import Cell
from robustcmp.records.store import Run
from robustcmp.report.text import summary

QUICK = """
description = "two attacks without a long search"
images = 4
repeats = 2
[attacks.fgsm]
attack = "FGSM"
epsilons = 4
[attacks.pixel]
attack = "SinglePixel"
max_pixels = 3
"""
KEYS = [
    "model",
    "dataset",
    "recipe",
    "training_seeds",
    "suite",
    "images",
    "repeats",
    "seed",
    "frameworks",
    "success_rate",
    "success_std",
    "indicator",
    "clean_accuracy",
    "correct_by_all",
    "out",
]


UNCERTAINTY = ["verdicts", "intervals", "tests", "indicator_ranges", "versions"]


class Done(NamedTuple):
    """How a command ended and what it said."""

    status: int
    out: str
    err: str


Call = Callable[..., Done]


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Run in a directory of the test's own, with a quick suite in it; return it."""
    directory = tmp_path / "work"
    directory.mkdir()
    (directory / "quick.toml").write_text(QUICK)
    monkeypatch.chdir(directory)
    monkeypatch.setenv("COLUMNS", "80")
    return directory


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run of a quick comparison, for tests to copy."""
    directory = tmp_path_factory.mktemp("finished")
    (directory / "quick.toml").write_text(QUICK)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(directory)
        assert eval_command.main(quick(out="run")) == 0
    return directory / "run"


@pytest.fixture
def stored(finished: Path, elsewhere: Path) -> Path:
    """A finished run in this test's directory."""
    return Path(shutil.copytree(finished, elsewhere / "run"))


@pytest.fixture
def run(capfd: pytest.CaptureFixture[str]) -> Call:
    """Return a function that runs a command's main; what any library writes to the terminal counts as well."""

    def call(main: Callable[[list[str]], int], *arguments: object) -> Done:
        capfd.readouterr()
        status = main([str(argument) for argument in arguments])
        done = Done(status, *capfd.readouterr())
        assert "Traceback" not in done.err + done.out
        return done

    return call


def quick(**options: Any) -> list[str]:
    """Arguments of a comparison that takes a second; None leaves an option out, and a list is its values."""
    given = {"model": "lenet1", "framework": "torch", "dataset": "digits", "suite": "quick.toml", "batch_size": 64}
    given |= {"training_seeds": 0, "repeats": 2}
    arguments = []
    for name, value in (given | options).items():
        values = value if isinstance(value, list) else [value]
        if value is not None:
            arguments += [f"--{name.replace('_', '-')}", *map(str, values)]
    return arguments


# eval


def test_json_is_one_object_and_nothing_else(run: Call, elsewhere: Path) -> None:
    done = run(eval_command.main, *quick(framework=["torch", "jax"], repeats=1), "--json")
    assert done.status == 0, done.err
    assert done.out.count("\n") == 1
    summary = json.loads(done.out)
    assert set(summary) == {*KEYS, "checks", *UNCERTAINTY}
    assert {check["model"] for check in summary["checks"]} == {"torch", "jax"}
    assert (summary["model"], summary["dataset"], summary["recipe"]) == ("lenet1", "digits", "default")
    assert (summary["images"], summary["repeats"], summary["seed"]) == (4, 1, 0)
    assert summary["training_seeds"] == [0]
    assert summary["suite"] == "quick"
    assert summary["frameworks"] == ["torch", "jax"]
    assert summary["out"] == "runs/lenet1-digits-quick"
    for key in ("success_rate", "success_std"):
        assert {name: set(its) for name, its in summary[key].items()} == {
            "torch": {"fgsm", "pixel"},
            "jax": {"fgsm", "pixel"},
        }
    # A deviation over one repeat is undefined; FGSM has none at all.
    assert summary["success_std"]["torch"] == {"fgsm": 0.0, "pixel": None}
    ev = rc.open_run(elsewhere / summary["out"])
    assert summary == ev.to_json() | {"out": summary["out"]}
    assert summary["indicator"] == rc.robustness_indicator(summary["success_rate"])
    assert 0.9 < summary["correct_by_all"] <= min(summary["clean_accuracy"].values())


def test_the_table_names_what_was_compared(run: Call, elsewhere: Path) -> None:
    done = run(eval_command.main, *quick(framework=["jax", "torch"]))
    assert done.status == 0
    ev = rc.open_run(elsewhere / "runs" / "lenet1-digits-quick")
    page = "runs/lenet1-digits-quick/report.html"
    assert done.out == f"{summary(ev.results)}\n\nReport: {page}   All tables: --full\n"
    assert (elsewhere / page).exists()
    assert done.out.startswith("lenet1 on digits, suite quick\n")
    rows = [line.split()[0] for line in done.out.splitlines() if line.strip()]
    assert [name for name in rows if name in ("jax", "torch", "fgsm", "pixel")] == ["jax", "torch", "fgsm", "pixel"]
    assert "lenet1 on digits: jax, torch; one training each, from the zoo that ships" in done.err
    assert (ev.manifest["images"]["used"], ev.manifest["repeats"]) == (4, 2)  # as the suite says


def test_the_same_command_again_changes_no_byte(run: Call, elsewhere: Path) -> None:
    # Without --batch-size: the one that was measured stands in the manifest and is used again.
    arguments = quick(suite="smoke", images=3, batch_size=None)
    first = run(eval_command.main, *arguments)
    before = files(elsewhere)
    [page] = elsewhere.rglob("report.html")
    left_by_a_dead_writer(page)
    again = run(eval_command.main, *arguments)
    assert (first.status, again.status) == (0, 0)
    assert again.out == first.out
    assert files(elsewhere) == before
    assert len([name for name in before if "/cells/" in name]) == 1 + 2 + 2


def test_checks_that_were_interrupted_are_made_by_the_same_command(
    run: Call, elsewhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(self: rc.Evaluation, **_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(rc.Evaluation, "run_checks", interrupted)
        assert run(eval_command.main, *quick()).status == 130
    stored = rc.open_run(elsewhere / "runs" / "lenet1-digits-quick")
    assert stored.results.checked is None
    assert "Health checks have not been run" in summary(stored.results)
    assert run(eval_command.main, *quick()).status == 0
    assert rc.open_run(elsewhere / "runs" / "lenet1-digits-quick").results.checked is not None


def test_options_reach_the_run(run: Call, elsewhere: Path) -> None:
    done = run(
        eval_command.main,
        *quick(images=2, repeats=3, seed=7, out="deep/er", batch_size=16, device="cpu"),
        "--no-images",
    )
    assert done.status == 0
    ev = rc.open_run(elsewhere / "deep" / "er")
    assert (ev.manifest["images"]["used"], ev.manifest["repeats"], ev.manifest["seed"]) == (2, 3, 7)
    assert ev.manifest["models"][0]["batch_size"] == 16
    assert not ev.results.has_adversarials("torch", "fgsm")
    assert not (elsewhere / "runs").exists()


def test_single_attacks_may_be_repeated_otherwise(run: Call, elsewhere: Path) -> None:
    done = run(eval_command.main, *quick(images=2, repeats=[3, "pixel=1"]), "--json")
    summary = json.loads(done.out)
    assert (summary["repeats"], summary["own_repeats"]) == (3, {"pixel": 1})
    assert summary["success_std"]["torch"]["pixel"] is None


def test_a_finished_run_is_shown_without_a_framework(run: Call, stored: Path) -> None:
    before = files(stored)
    code = (
        "import sys; from robustcmp.cli.command import main; status = main(sys.argv[1:]); "
        "print(*{'torch', 'tensorflow', 'jax'} & set(sys.modules), file=sys.stderr); sys.exit(status)"
    )
    command_line = [sys.executable, "-c", code, "eval", *quick(out="run"), "--json"]
    done = subprocess.run(command_line, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "\n")
    assert json.loads(done.stdout) == rc.open_run(stored).to_json() | {"out": "run"}
    assert files(stored) == before


# interruption


def test_an_interruption_ends_with_the_command_that_goes_on(
    run: Call, elsewhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save = Run.save

    def interrupted(self: Run, cell: Cell, result: AttackResult) -> None:
        save(self, cell, result)
        raise KeyboardInterrupt

    monkeypatch.setattr(Run, "save", interrupted)
    done = run(eval_command.main, *quick(out="with space"))
    assert done.status == 130
    assert done.out == ""
    last = done.err.splitlines()[-1].strip()
    assert last.split(" -m ", 1)[1].startswith("robustcmp.eval --model lenet1 --framework torch --dataset digits")
    assert "--out 'with space'" in last


# bad input

UNUSABLE: dict[str, tuple[dict[str, Any], list[str]]] = {
    "model": ({"model": "lenet55"}, ["unknown model 'lenet55'", "did you mean 'lenet5'", "lenet1, lenet5"]),
    "framework": ({"framework": "pytorch"}, ["unknown framework 'pytorch'", "did you mean 'torch'", "tensorflow"]),
    "dataset": ({"dataset": "mnits"}, ["unknown dataset 'mnits'", "did you mean 'mnist'", "cifar10"]),
    "suite": ({"suite": "guo2091"}, ["unknown suite 'guo2091'", "did you mean 'guo2019'", "smoke"]),
    "recipe": ({"recipe": "defalt"}, ["unknown recipe for lenet1 'defalt'", "did you mean 'default'"]),
    "framework by another name": ({"framework": "keras"}, ["unknown framework 'keras'", "did you mean 'tensorflow'"]),
    "gpu": ({"device": "gpu"}, ["unknown device 'gpu'", "did you mean 'cuda'"]),
    "no images": ({"images": 0}, ["n should be 1 or more, received 0", "See --images."]),
    "no repeats": ({"repeats": 0}, ["repeats should be 1 or more, received 0", "See --repeats."]),
    "repeats in words": ({"repeats": "ten"}, ["--repeats", "numbers like 10 or boundary=2", "'ten'"]),
    "repeats of an unknown attack": ({"repeats": [3, "pixl=2"]}, ["unknown attack 'pixl'", "did you mean 'pixel'"]),
    "no batch": ({"batch_size": 0}, ["batch_size should be 1 or more, received 0", "See --batch-size."]),
    "negative training seed": ({"training_seeds": -1}, ["received -1"]),
    "framework twice": (
        {"framework": ["torch", "jax", "torch"]},
        ["a framework was given twice: torch, jax, torch"],
    ),
    "seed": ({"seed": 2**63}, ["seed should be a 64-bit integer", str(2**63)]),
    "suite that is not there": ({"suite": "nowhere.toml"}, ["nowhere.toml cannot be read", "No such file"]),
    "unknown option": ({"imges": 3}, ["unknown option --imges: did you mean --images?", "--help"]),
    "abbreviated option": ({"image": 3}, ["unknown option --image: did you mean --images?", "--help"]),
    "no value": ({"out": []}, ["--out", "expected one argument"]),
    "no dataset": ({"dataset": "fashion_mnist"}, ["unknown dataset 'fashion_mnist'", "npz:FILE or folder:DIR"]),
    "runtime by another name": ({"deploy": "onnx"}, ["unknown deployment 'onnx': did you mean 'onnxruntime'?"]),
    "another analysis": ({"also": "transfers"}, ["unknown --also 'transfers'", "did you mean 'transfer'"]),
    "a limit of what": ({"executor": "isolated,minutes=5"}, ["seconds=S or memory=GIB", "'minutes=5'"]),
    "no time for an attack": ({"executor": "seconds=0"}, ["group_seconds should be above 0", "See --executor."]),
    "no unit": ({"within": 10}, ["a time such as 90s, 10m or 1h, received 10"]),
    "images and a time": (
        {"within": "10m", "images": 4},
        ["--within chooses the number of images: leave out --images"],
    ),
    "no model": ({"model": None}, ["one of the arguments --model --weights is required", "--help"]),
}


@pytest.mark.parametrize("mistake", UNUSABLE)
def test_unusable_arguments_end_with_2_before_any_work(mistake: str, run: Call, elsewhere: Path) -> None:
    options, parts = UNUSABLE[mistake]
    done = run(eval_command.main, *quick(**options))
    assert done.status == 2, done.err
    assert done.out == ""
    _, *errors = done.err.split("error: ")
    assert len(errors) == 1
    assert [part for part in parts if part not in errors[0]] == [], errors[0]
    assert len(errors[0].splitlines()) <= 2  # the message, and the options that it is about
    assert [path.name for path in elsewhere.iterdir()] == ["quick.toml"]


def test_a_file_where_the_run_should_be(run: Call, elsewhere: Path) -> None:
    (elsewhere / "taken").write_text("mine")
    for out in ("taken", "taken/below"):
        done = run(eval_command.main, *quick(out=out))
        assert done.status == 2
        assert f"error: {out} cannot be written: " in done.err
    assert (elsewhere / "taken").read_text() == "mine"


def test_a_framework_that_is_not_installed(run: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("robustcmp.frameworks.list_installed", lambda: ["torch"])
    done = run(eval_command.main, *quick(framework="jax"))
    assert done.status == 2
    assert "error: the framework 'jax' is not installed. Install it with: pip install 'robustcmp[jax]'" in done.err


def test_no_framework_at_all(run: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("robustcmp.sources.from_zoo.list_installed", list)
    done = run(eval_command.main, *quick(framework=None))
    assert done.status == 2
    assert "no framework is installed. Install one with: pip install 'robustcmp[torch]'" in done.err


# what only running shows


def test_a_directory_without_the_dataset(run: Call, elsewhere: Path) -> None:
    for dataset in ("mnist", None):
        done = run(eval_command.main, *quick(dataset=dataset, data_dir="empty"))
        assert done.status == 1
        assert "t10k-images-idx3-ubyte" in done.err
        assert "received no directory" in done.err
    assert not (elsewhere / "runs").exists()


def test_weights_that_nobody_trained(run: Call) -> None:
    done = run(eval_command.main, *quick(training_seeds=[0, 41]))
    assert done.status == 1
    assert "error: there are no weights of lenet1 on digits (recipe default) with these training seeds: " in done.err
    assert "torch: 41." in done.err
    assert "python -m robustcmp.train --model lenet1 --dataset digits --framework torch --recipe default" in done.err
    nowhere = run(eval_command.main, *quick(training_seeds=[40, 41], framework=None))
    assert nowhere.status == 1
    assert all(f"{name}: 40, 41" in nowhere.err for name in list_installed())
    assert nowhere.err.count("--training-seeds 40 41") == len(list_installed())


# train


def training_of(**options: Any) -> list[str]:
    """Arguments of a training that takes seconds."""
    given = {"model": "lenet1", "framework": "torch", "dataset": "digits", "epochs": 1, "out": "trained"}
    arguments = []
    for name, value in (given | options).items():
        if value is not None:
            arguments += [f"--{name.replace('_', '-')}", *map(str, value if isinstance(value, list) else [value])]
    return arguments


def test_a_training(run: Call, elsewhere: Path) -> None:
    done = run(train_command.main, *training_of(framework=["torch", "jax"], training_seeds=4))
    assert done.status == 0, done.err
    assert done.out == ""
    assert done.err.count("test accuracy 0.") == 2
    names = {f"lenet1-digits-{framework}-default-4.h5" for framework in ("torch", "jax")}
    assert {path.name for path in (elsewhere / "trained").iterdir()} == names
    content = read_weights(elsewhere / "trained" / "lenet1-digits-jax-default-4.h5")
    assert content.metadata["settings"]["epochs"] == 1
    assert content.metadata["training_seed"] == 4
    # A finished training is not done again.
    before = files(elsewhere)
    assert run(train_command.main, *training_of(framework=["torch", "jax"], training_seeds=4)).status == 0
    assert files(elsewhere) == before


UNTRAINABLE: dict[str, tuple[dict[str, Any], int, list[str]]] = {
    "model": ({"model": "lenet6"}, 2, ["unknown model 'lenet6'", "did you mean 'lenet5'"]),
    "framework": ({"framework": "touch"}, 2, ["unknown framework 'touch'", "did you mean 'torch'"]),
    "no environment": ({"framework": "theano"}, 2, ["no environment yet", "robustcmp hosts create theano"]),
    "dataset": ({"dataset": "digit"}, 2, ["unknown dataset 'digit'", "did you mean 'digits'"]),
    "recipe": ({"recipe": "defalt"}, 2, ["unknown recipe for lenet1 'defalt'", "did you mean 'default'"]),
    "dataset without a recipe": ({"dataset": "cifar10"}, 2, ["unknown dataset for lenet1", "digits, mnist"]),
    "device": ({"device": "gpu"}, 2, ["unknown device 'gpu': did you mean 'cuda'", "auto, cpu, cuda"]),
    "no epochs": ({"epochs": 0}, 2, ["epochs should be 1 or more, received 0"]),
    "negative epochs": ({"epochs": -2}, 2, ["epochs should be 1 or more, received -2"]),
    "epochs in words": ({"epochs": "two"}, 2, ["--epochs", "'two'", "--help"]),
    "negative seed": ({"training_seeds": -1}, 2, ["received -1"]),
    "file in the way": ({"out": "quick.toml"}, 2, ["quick.toml cannot be written: File exists"]),
    "file above": ({"out": "quick.toml/x"}, 2, ["quick.toml/x cannot be written: Not a directory"]),
    "abbreviated option": ({"epoch": 3}, 2, ["unknown option --epoch: did you mean --epochs?", "--help"]),
    "no framework": ({"framework": None}, 2, ["required: --framework", "--help"]),
    "no data": ({"dataset": "mnist", "data_dir": "empty"}, 1, ["train-images-idx3-ubyte", "received no directory"]),
}


@pytest.mark.parametrize("mistake", UNTRAINABLE)
def test_a_training_that_cannot_be(mistake: str, run: Call, elsewhere: Path) -> None:
    options, status, parts = UNTRAINABLE[mistake]
    done = run(train_command.main, *training_of(**options))
    assert done.status == status, done.err
    assert done.out == ""
    (error,) = (line for line in done.err.splitlines() if line.startswith("error: "))
    assert [part for part in parts if part not in error] == [], error
    assert not list(elsewhere.rglob("*.h5"))


# robustcmp, and processes


def test_the_installed_script_ends_with_the_status_of_its_command() -> None:
    script = Path(sys.executable).with_name("robustcmp")
    done = subprocess.run([script, "eval", "--model", "lenet1", "--imagse", "3"], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (2, "")
    assert "unknown option --imagse: did you mean --images?" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (["evil"], ["unknown command 'evil'", "did you mean 'eval'", "train"]),
        (["lst"], ["unknown command 'lst'", "did you mean 'list'"]),
        (["list", "suits"], ["unknown kind 'suits'", "did you mean 'suites'"]),
        (["list", "zoo", "runs"], ["only runs are listed by directory"]),
        (["--verison"], ["unknown option --verison: did you mean --version?"]),
        (["eval"], ["--model --weights is required", "robustcmp.eval --help"]),
        (["eval", "--mdel", "lenet1"], ["unknown option --mdel: did you mean --model?"]),
        (["train", "--model", "lenet1"], ["required: --framework", "robustcmp.train --help"]),
        (["hosts", "mk"], ["unknown action 'mk'", "create, remove"]),
        (["report", "run", "--format", "cvs"], ["unknown --format 'cvs'", "did you mean 'csv'"]),
    ],
)
def test_mistakes_are_answered_with_what_there_is(arguments: list[str], parts: list[str], run: Call) -> None:
    done = run(command.main, *arguments)
    assert done.status == 2
    assert done.out == ""
    assert done.err.startswith("error: ")
    assert [part for part in parts if part not in done.err] == []


def test_without_a_command_there_is_help(run: Call) -> None:
    done = run(command.main)
    assert (done.status, done.err) == (0, "")
    assert all(f"  {name}" in done.out and summary in done.out for name, summary in command.COMMANDS.items())


def test_the_version_is_that_of_the_package(capsys: pytest.CaptureFixture[str]) -> None:
    version = importlib.metadata.version("robustcmp")
    with pytest.raises(SystemExit, match="0"):
        command.main(["--version"])
    assert capsys.readouterr().out == f"robustcmp {version}\n"
    assert rc.__version__ == version


def test_what_needs_no_framework_loads_none() -> None:
    heavy = ["torch", "tensorflow", "jax", "keras", "sklearn", "foolbox", "eagerpy", "xarray", "pandas", "scipy"]
    cases = [[], ["--version"], ["list", "suites"], ["list", "runs"], ["eval", "--model", "lenet1", "--imagse", "3"]]
    cases += [[name, "--help"] for name in command.COMMANDS]
    code = (
        "import sys; from robustcmp.cli.command import main\n"
        f"for arguments in {cases}:\n"
        "    try: main(arguments)\n    except SystemExit: pass\n"
        f"    print('loaded', arguments, *{{*{heavy}}} & {{*sys.modules}})"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    lines = [line for line in done.stdout.splitlines() if line.startswith("loaded")]
    assert lines == [f"loaded {arguments}" for arguments in cases]


@pytest.mark.parametrize("name", command.COMMANDS)
def test_help_has_examples_and_no_empty_default(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        command.main([name, "--help"])
    text = capsys.readouterr().out
    assert "(default: None)" not in text
    assert "(default: False)" not in text
    _, examples = text.split("\nexamples:\n")
    assert all(f"robustcmp {name}" in line or f"robustcmp.{name}" in line for line in examples.splitlines())


def test_output_that_nobody_reads_ends_a_command(stored: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with monkeypatch.context() as patch, os.fdopen(writer, "w") as stream:
        patch.setattr(sys, "stdout", stream)
        assert command.main(["report", "run", "--format", "csv"]) == 1


def test_output_that_cannot_be_encoded_is_escaped(stored: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch, open("printed", "w", encoding="ascii") as stream:
        patch.setattr(sys, "stdout", stream)
        assert command.main(["report", "run", "--format", "text"]) == 0
    assert "\\u03b5" in Path("printed").read_text(encoding="ascii")  # ε


def test_lines_at_a_terminal_are_broken_between_words() -> None:
    terminal, end = os.openpty()
    termios.tcsetwinsize(terminal, (24, 30))
    command = "  python -m robustcmp.train --model lenet1 --dataset digits"
    with open(end, "w") as stream:
        said = screen.wrap(
            f"boundary on torch/0 and on jax/0 failed\n{command}\n  fgsm on torch/0: it failed, too", stream
        )
    os.close(terminal)
    assert said.splitlines() == [
        "boundary on torch/0 and on",
        "jax/0 failed",
        command,
        "  fgsm on torch/0: it failed,",
        "too",
    ]
    assert screen.wrap("word " * 30, io.StringIO()) == "word " * 30

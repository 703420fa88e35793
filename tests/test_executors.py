"""Executors: the same results everywhere, and what ends a process ends one group and no other."""

from __future__ import annotations

import json
import logging
import math
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import planted
import pytest
from conftest import answers
from planted import PIXEL_AND_WALK

import robustcmp as rc
from robustcmp import compare as comparison
from robustcmp.cli.eval import main
from robustcmp.data.dataset import Dataset
from robustcmp.errors import ModelError, UsageError
from robustcmp.evaluation import find_finished
from robustcmp.frameworks import NAMES
from robustcmp.report.tables import tables
from robustcmp.report.text import summary, to_text
from robustcmp.report.words import notes
from robustcmp.runs import plan
from robustcmp.runs.identity import Identity
from robustcmp.runs.progress import Unseen

GIB = 2**30
FGSM = """
[attacks.fgsm]
attack = "FGSM"
epsilons = 4
"""
Evaluate = Callable[..., rc.Evaluation]


def made(name: str) -> Any:
    return rc.from_function(f"planted:{name}")


@pytest.fixture
def evaluate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Evaluate:
    """Return `robustcmp.evaluate` of planted models under two random attacks, into ``tmp_path / "run"``."""
    monkeypatch.setenv(planted.HEAD, str(os.getpid()))
    suite = tmp_path / "suite.toml"
    suite.write_text(PIXEL_AND_WALK)

    def call(models: dict[str, Any], executor: str | None = None, **options: Any) -> rc.Evaluation:
        defaults = {"suite": suite, "n": 5, "repeats": 2, "out": tmp_path / "run", "batch_size": 5, "progress": False}
        return rc.evaluate(models, planted.IMAGES, planted.LABELS, executor=executor, **defaults | options)

    return call


# the same results ----------------------------------------------------------------------------------------------------


def test_isolation_changes_no_bit(evaluate: Evaluate, tmp_path: Path) -> None:
    models = {"a": made("sound"), "b": [made("other")], "home": planted.sound(0.45)}
    here = evaluate(models, None, out=tmp_path / "here")
    there = evaluate(models, "isolated")
    assert answers(here.results.run.directory) == answers(there.results.run.directory)
    assert there.dataset.identical(here.dataset)
    costs = there.costs.set_index(["model", "attack"])
    assert costs.worker.to_dict() == {
        ("a", "pixel"): "numpy",
        ("b", "pixel"): "numpy",
        ("home", "pixel"): "",
        ("a", "walk"): "numpy",
        ("b", "walk"): "numpy",
        ("home", "walk"): "",
    }
    assert (costs.seconds > 0).all()
    assert costs.queries.to_dict() == here.costs.set_index(["model", "attack"]).queries.to_dict()


@pytest.mark.parametrize("framework", ["torch", *(pytest.param(name, marks=pytest.mark.slow) for name in NAMES[1:])])
def test_trained_models_are_the_same_in_another_process(framework: str, digits: Dataset, tmp_path: Path) -> None:
    from robustcmp.sources.from_zoo import zoo_origins

    pytest.importorskip(framework)
    origins = zoo_origins("lenet1", dataset="digits", frameworks=[framework])
    asked = {"suite": "smoke", "n": 7, "repeats": 2, "batch_size": 8, "progress": False}
    runs = [
        rc.evaluate(origins, digits.images, digits.labels, **asked, out=tmp_path / str(place), executor=executor)
        for place, executor in enumerate((None, "isolated"))
    ]
    assert answers(runs[0].results.run.directory) == answers(runs[1].results.run.directory)
    assert not runs[1].failed


def test_missing_repeats_are_added_in_another_process(evaluate: Evaluate, tmp_path: Path) -> None:
    models = {"a": made("sound"), "b": made("other")}
    evaluate(models, "isolated", repeats=1)
    more = evaluate(models, "isolated", repeats=3)
    assert more.dataset.identical(evaluate(models, out=tmp_path / "straight", repeats=3).dataset)
    assert [len(cost.cells) for cost in more.results.run.costs()] == [1, 1, 1, 1, 2, 2, 2, 2]


@pytest.mark.parametrize(
    ("kind", "differing", "suite"),
    [
        ("differs", "its clean logits", PIXEL_AND_WALK),
        ("differs_on_perturbed", "its logits on perturbed images", PIXEL_AND_WALK),
        ("differs_in_gradient", "its gradients", FGSM),
    ],
)
def test_a_model_that_differs_in_another_process_stays_in_this_one(
    kind: str, differing: str, suite: str, evaluate: Evaluate, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "suite.toml").write_text(suite)
    models = {"a": made("sound"), "b": made(kind)}
    with caplog.at_level(logging.WARNING, logger="robustcmp"):
        ev = evaluate(models, "isolated")
    assert [record.getMessage() for record in caplog.records] == [
        f"b/0 stays in this process: in another, {differing} differ, if only in their last bits, from those in the "
        "main process"
    ]
    here = evaluate(models, out=tmp_path / "here")
    assert answers(ev.results.run.directory) == answers(here.results.run.directory)
    costs = ev.costs
    assert set(costs[costs.model == "b"].worker) == {""}


def test_a_gradient_that_no_attack_follows_may_differ_in_another_process(evaluate: Evaluate) -> None:
    ev = evaluate({"b": made("differs_in_gradient")}, "isolated")
    assert set(ev.costs.worker) == {"numpy"}


def test_a_gradient_that_varies_is_compared_by_its_sketch() -> None:
    one = Identity("w", "l", "p", "g", [1.0, 2.0], [1.0, -1.0], gradient_noise=1e-7)
    other = msgspec.structs.replace(one, gradient="other")
    assert one.difference(other, needs_gradient=True) == ""
    masked = msgspec.structs.replace(other, gradient_sketch=[-1.0, 1.0])
    assert one.difference(masked, needs_gradient=True) == "its gradients"
    steady = msgspec.structs.replace(one, gradient_noise=0.0)
    assert steady.difference(other, needs_gradient=True) == "its gradients"
    assert steady.difference(other, needs_gradient=False) == ""
    assert one.difference(msgspec.structs.replace(one, weights=None), needs_gradient=False) == "its weights"


# failures ------------------------------------------------------------------------------------------------------------

KINDS: dict[str, tuple[dict[str, Any], str]] = {
    "segfaults": (
        {"executor": "isolated"},
        r"its process ended by SIGSEGV\. It wrote last: Fatal Python error: Segmentation .*planted",
    ),
    "aborts": ({"executor": "isolated"}, r"its process ended by SIGABRT\. It wrote last: .*planted"),
    "exits": ({"executor": "isolated"}, r"its process ended by exit status 7\."),
    "raises": ({"executor": "isolated"}, r"ArithmeticError: no such logits"),
    "hangs": (
        {"group_seconds": 20},
        r"it took longer than the 20 s that a group may take, loading its model included\.",
    ),
    "grows": (
        {"group_memory": GIB // 2},
        r"it held 0\.\d\d GiB, more than the 0\.50 GiB that a group may hold\.",
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=pytest.mark.slow if kind in ("hangs", "grows") else ()) for kind in KINDS]
)
def test_what_ends_a_process_is_the_failure_of_one_group(
    kind: str, evaluate: Evaluate, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options, reason = KINDS[kind]
    models = {"a": made("sound"), "bad": made(kind), "c": made("other")}
    ev = evaluate(models, **options)
    assert list(ev.failed) == ["bad"]
    assert list(ev.failed["bad"]) == ["pixel"]
    assert re.fullmatch(reason + ".*", ev.failed["bad"]["pixel"])
    rates = ev.results.rates()
    assert math.isnan(rates["bad"]["pixel"])
    assert not math.isnan(rates["bad"]["walk"])
    assert ev.results.common_attacks == ["walk"]
    monkeypatch.setenv(planted.MENDED, "1")
    again = evaluate(models, **options)
    assert not again.failed
    assert len(again.results.run.costs()) == 6  # one group of six was tried again
    assert again.dataset.identical(evaluate(models, out=tmp_path / "straight").dataset)


def test_a_failure_stands_everywhere(evaluate: Evaluate, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    about = {"model": "planted", "question": {"models": ["a"]}}
    ev = evaluate({"a": made("sound"), "bad": made("exits")}, "isolated", about=about)
    reason = "its process ended by exit status 7."
    stored = json.loads((ev.results.run.directory / "manifest.json").read_text())
    assert [model.get("failed") for model in stored["models"]] == [None, {"pixel": reason}]
    assert {(cell["model"], cell["attack"]) for cell in stored["cells"]} == {
        ("a", "pixel"),
        ("a", "walk"),
        ("bad", "walk"),
    }
    assert find_finished(ev.results.run.directory, about) is None  # so that a command tries again
    opened = rc.open_run(ev.results.run.directory)
    for shown in (ev, opened):
        assert shown.failed == {"bad": {"pixel": reason}}
        assert shown.to_json()["failed"] == shown.failed
        assert shown.to_json()["success_rate"]["bad"]["pixel"] is None
        assert f"pixel failed on bad: {reason} Rerun the same command to try it again." in notes(shown.results)
        assert "Excluded from R because not every model ran it: pixel." in notes(shown.results)
        row = next(row for row in tables(shown.results)[0].written if row[:2] == ["pixel", "bad"])
        assert row[2] == "failed"
        assert "failed" in to_text(shown.results)
        assert "failed" in summary(shown.results)
        shown.to_html(tmp_path / "page.html")
        assert reason in (tmp_path / "page.html").read_text()
    assert set(ev.run_checks().model) == {"a"}
    assert "No health checks of bad, because an attack failed." in notes(ev.results)
    monkeypatch.setenv(planted.HEAD, "none")  # what ends other processes would end this one
    shares = ev.run_transfer().of_all
    assert shares.sel(source="bad", attack="pixel").isnull().all()
    assert shares.sel(source="a", target="bad").isnull().all(), "it is not asked about images that may end it"
    assert shares.sel(source="bad", attack="walk").notnull().all(), "its own images can be asked about"


def test_what_failed_elsewhere_is_not_conditioned_on_here(evaluate: Evaluate, monkeypatch: pytest.MonkeyPatch) -> None:
    images = planted.IMAGES.copy()
    images[0, 0, 0, 0] = 0.45  # "bad" alone classifies it correctly
    monkeypatch.setattr(planted, "IMAGES", images)
    ev = evaluate({"a": made("sound"), "bad": made("exits")}, "isolated")
    assert list(ev.failed["bad"]) == ["pixel"]
    monkeypatch.setenv(planted.HEAD, "none")  # what ends other processes would end this one
    ev.run_conditioning()
    curves = ev.conditioning
    assert {*curves[(curves.model == "bad") & curves.success_rate.isna()].attack} == {"pixel"}


def test_an_attack_that_failed_everywhere_has_nothing_of_its_own(evaluate: Evaluate, tmp_path: Path) -> None:
    ev = evaluate({"bad": made("refuses")}, "isolated", suite="smoke")
    assert ev.failed["bad"].keys() == {"single_pixel", "boundary"}
    assert "start" not in ev.dataset
    assert ev.results.values("bad", "boundary", "start").size == 0
    for text in (str(ev), to_text(ev.results)):
        assert "boundary failed on bad: ArithmeticError: no such logits" in " ".join(text.split())
    assert r"bad & -- & -- & -- & -- & -- & -- \\" in ev.to_latex()
    ev.to_html(tmp_path / "page.html")


def test_in_this_process_an_error_ends_the_comparison(evaluate: Evaluate, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(planted.HEAD, "none")
    with pytest.raises(ArithmeticError, match="no such logits"):
        evaluate({"a": made("sound"), "bad": made("raises")})
    with pytest.raises(ArithmeticError, match="no such logits"):
        evaluate({"a": made("sound"), "bad": planted.raises()}, "isolated")


@pytest.mark.parametrize("executor", [None, "isolated"], ids=["in process", "isolated"])
def test_sys_exit_in_a_model_ends_in_a_line_that_names_it(executor: str | None, evaluate: Evaluate) -> None:
    with pytest.raises(ModelError, match=r"^sys\.exit\(3\) was called while loading bad/0: .* leave the model out\.$"):
        evaluate({"bad": made("exits_at_load")}, executor)


def test_an_interruption_ends_the_processes(evaluate: Evaluate, tmp_path: Path) -> None:
    class Impatient(Unseen):
        def finish(self, cell: Any, success: Any) -> None:
            raise KeyboardInterrupt

    before = children()
    with pytest.raises(KeyboardInterrupt):
        evaluate({"a": made("sound"), "b": made("other")}, "isolated", progress=Impatient())
    assert children() == before
    assert not evaluate({"a": made("sound"), "b": made("other")}, "isolated").failed


def children() -> set[str]:
    """The processes that this one has started."""
    return {pid for path in Path("/proc/self/task").glob("*/children") for pid in path.read_text().split()}


# the rest ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"group_seconds": 0}, "group_seconds should be above 0, received 0"),
        ({"group_memory": -1}, "group_memory should be above 0, received -1"),
        ({"group_seconds": math.inf}, "group_seconds should be above 0, received inf"),
        ({"executor": "in-process", "group_seconds": 9}, "limits need a process that can be ended"),
        ({"executor": "threads"}, "executor should be \"isolated\", .*; received 'threads'"),
        ({"executor": "dask:0"}, "workers should be 1 or more, received 0"),
        ({"executor": "dask:many"}, "workers should be 1 or more, received 'many'"),
    ],
)
def test_where_attacks_cannot_run_is_an_error_before_work(
    arguments: dict[str, Any], message: str, evaluate: Evaluate
) -> None:
    with pytest.raises(UsageError, match=message):
        evaluate({}, **arguments)


@pytest.mark.parametrize(("seconds", "worker"), [(0, "numpy"), (comparison.LONG, "")])
def test_what_takes_long_is_isolated_by_itself(
    evaluate: Evaluate, monkeypatch: pytest.MonkeyPatch, seconds: float, worker: str
) -> None:
    monkeypatch.setattr(comparison, "LONG", seconds)
    ev = evaluate({"a": made("sound")}, "auto")
    assert {*ev.costs.worker} == {worker}
    monkeypatch.setattr(plan, "measure_rate", None)  # nothing is missing, so nothing is measured
    evaluate({"a": made("sound")}, "auto")


# the command ---------------------------------------------------------------------------------------------------------

NETWORKS = ["--weights", "torch=planted:torch_exits", "--dataset", "digits", "--suite", "smoke"]


@pytest.mark.slow
def test_a_command_with_a_failure_prints_and_ends_with_1(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("torch")
    monkeypatch.setenv(planted.HEAD, str(os.getpid()))
    of_run = ["--images", "5", "--repeats", "1", "--batch-size", "32", "--out", str(tmp_path / "run")]
    command = [*NETWORKS, *of_run, "--executor", "isolated"]
    assert main(command) == 1
    shown = capsys.readouterr()
    assert "failed" in shown.out
    assert (tmp_path / "run" / "report.html").exists()
    assert "fgsm on torch: its process ended by exit status 7." in shown.err
    assert "fgsm on torch/0 failed: its process ended by exit status 7." in shown.err
    assert "the same command tries only these again" in shown.err
    before = {path.name for path in (tmp_path / "run" / "cells").glob("*")}
    monkeypatch.setenv(planted.MENDED, "1")
    assert main([*command, "--json"]) == 0
    assert "failed" not in json.loads(capsys.readouterr().out)
    assert len({path.name for path in (tmp_path / "run" / "cells").glob("*")} - before) == 1


def command(*networks: str, out: Path, options: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    """What a command for networks of torch does, as a process of its own."""
    weights = ["--weights", *(f"torch=planted:{network}" for network in networks)]
    asked = ["--dataset", "digits", "--suite", "smoke", "--images", "5", "--batch-size", "32", "--out", str(out)]
    return subprocess.run(
        [sys.executable, "-m", "robustcmp.eval", *weights, *asked, "--quiet", *options],
        env={**os.environ, "PYTHONPATH": str(Path(planted.__file__).parent)},
        capture_output=True,
        text=True,
        timeout=500,
    )


def test_a_crash_of_the_command_says_which_model_was_asked(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    done = command("torch_segfaults", out=tmp_path / "run")
    assert done.returncode == -signal.SIGSEGV
    assert "Fatal Python error: Segmentation fault" in done.stderr
    assert 'File "while checking torch/0", line' in done.stderr

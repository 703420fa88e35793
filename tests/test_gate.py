"""The gate: verdicts about a new model that follow from how often each of two models is fooled."""

from __future__ import annotations

import json
import math
from importlib import import_module
from importlib.resources import files
from pathlib import Path
from xml.etree import ElementTree

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar

import robustcmp as rc
from robustcmp.analysis.gate import Gate, _judge_attacks, _ModelPair
from robustcmp.analysis.statistics.paired_rates import PairedRates, images_to_show, pair_rates
from robustcmp.cli import gate as gate_command
from robustcmp.cli import plan as plan_command
from robustcmp.errors import ModelError, UsageError
from robustcmp.report.text import to_text
from robustcmp.runs.plan import Plan

RESULTS = Path(__file__).parents[1] / "docs" / "results"
COUNTS = st.integers(0, 40)


def outcomes(only_a: int, only_b: int, both: int, images: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    a, b = np.zeros((2, images))
    a[: only_a + both] = 1
    b[only_a : only_a + both + only_b] = 1
    return a, b


# the score -----------------------------------------------------------------------------------------------------------


@given(COUNTS, COUNTS, st.integers(1, 200), st.floats(-0.9, 0.9))
def test_the_score_is_that_of_the_likeliest_probabilities(
    only_a: int, only_b: int, more: int, difference: float
) -> None:
    n = only_a + only_b + more

    def unlikelihood(p_b: float) -> float:
        p_a = p_b + difference
        terms = [(only_a, p_a), (only_b, p_b), (more, 1 - p_a - p_b)]
        return -sum(count * math.log(max(p, 1e-300)) for count, p in terms if count)

    bounds = (max(0.0, -difference), (1 - difference) / 2)
    p_b = float(minimize_scalar(unlikelihood, bounds=bounds, method="bounded", options={"xatol": 1e-10}).x)
    variance = n * (2 * p_b + difference - difference**2)
    if variance < 1e-3:
        return
    expected = (only_a - only_b - n * difference) / math.sqrt(variance)
    assert PairedRates(only_a, only_b, n).score(difference) == pytest.approx(expected, rel=0.01, abs=0.01)


@given(COUNTS, COUNTS, st.integers(0, 200), st.floats(0.001, 0.5))
def test_bounds_and_p_values_agree_and_change_sides_with_the_models(
    only_a: int, only_b: int, more: int, margin: float
) -> None:
    rates = PairedRates(only_a, only_b, only_a + only_b + more + 1)
    low, high = rates.interval()
    assert low <= rates.difference <= high
    assert low < high  # also where no image differs
    if abs(high - margin) > 1e-6:
        assert (high < margin) == (rates.p_below(margin) < 0.05)
    if abs(low - margin) > 1e-6:
        assert (low > margin) == (rates.p_above(margin) < 0.05)
    other = PairedRates(only_b, only_a, rates.images)
    assert other.interval() == pytest.approx((-high, -low), abs=1e-6)


def test_the_interval_is_the_published_one() -> None:
    # Tango 1998 and Newcombe 1998, table II: airway hyper-responsiveness, 12 and 2 of 50 pairs are discordant.
    assert PairedRates(12, 2, 50).interval(0.025) == pytest.approx((0.0611, 0.3447), abs=5e-5)


@given(st.integers(1, 20), st.integers(2, 50), st.integers(0, 2**32 - 1))
def test_repeats_never_say_more_than_as_many_images(repeats: int, images: int, seed: int) -> None:
    a, b = np.random.default_rng(seed).binomial(repeats, 0.3, (2, images)) / repeats
    rates = pair_rates(a, b, repeats)
    assert images - 1e-9 <= rates.images <= images * repeats + 1e-9
    assert rates.difference == pytest.approx(a.mean() - b.mean())
    once = pair_rates(a, b)
    assert rates.interval()[1] <= once.interval()[1] + 1e-9
    assert pair_rates(a, a, repeats).images == images


def test_images_to_show_are_enough() -> None:
    rng = np.random.default_rng(0)
    images = images_to_show(0.05, 0.02, 0.8)
    draws = rng.multinomial(images, [0.025, 0.025, 0.95], 1000)
    shown = [PairedRates(float(a), float(b), images).p_below(0.02) < 0.05 for a, b, _ in draws]
    assert 0.76 < np.mean(shown) < 0.86
    assert images_to_show(0.05, 0.02, 0.8, difference=0.01) > 3 * images
    with pytest.raises(UsageError, match=r"below the margin of 0\.02, received 0\.02"):
        images_to_show(0.05, 0.02, 0.8, difference=0.02)


# verdicts ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("only_new", "only_old", "both", "answer"),
    [
        (0, 0, 300, "not easier"),
        (10, 12, 300, "not easier"),
        (60, 5, 300, "easier"),
        (30, 10, 300, "not shown"),
        (10, 10, 20, "uninformative"),
        (10, 10, 960, "uninformative"),
        (80, 0, 0, "easier"),  # 8 % of the new model's images, none of the baseline's
    ],
)
def test_an_attack_is_answered(only_new: int, only_old: int, both: int, answer: str) -> None:
    new, old = outcomes(only_new, only_old, both, 1000)
    [verdict] = _judge_attacks("new", [_ModelPair("fgsm", old[None], new[None], 1, paired=False)], 0.02)
    assert verdict.answer == answer
    assert verdict.difference == pytest.approx((only_new - only_old) / 1000)
    assert verdict.low < verdict.difference < verdict.high
    assert (verdict.images_needed or 0) > 0 if answer == "not shown" and only_new < 20 else True
    assert (verdict.p_easier is None) == (answer == "uninformative")


def test_easier_is_adjusted_for_the_number_of_attacks() -> None:
    new, old = outcomes(31, 1, 300, 1000)
    pairs = [_ModelPair(str(k), old[None], new[None] if k == 0 else old[None], 1, paired=False) for k in range(10)]
    assert _judge_attacks("new", pairs[:1], 0.02)[0].answer == "easier"
    assert _judge_attacks("new", pairs, 0.02)[0].answer == "not shown"


@pytest.mark.parametrize("paired", [True, False])
def test_trainings_are_the_unit_where_there_are_several(paired: bool) -> None:
    rng = np.random.default_rng(0)
    rates = np.array([0.1, 0.2, 0.3, 0.4])[:, None]
    old = (rng.random((4, 2000)) < rates).astype(float)
    new = old.copy()
    [verdict] = _judge_attacks("new", [_ModelPair("fgsm", old, new, 1, paired=paired)], 0.02)
    assert verdict.unit == "training"
    assert verdict.answer == ("not easier" if paired else "not shown")
    assert verdict.images_needed is None


def test_a_stored_run_is_gated() -> None:
    ev = rc.open_run(RESULTS / "lenet5-mnist-deployed")
    gate = ev.gate()
    assert gate.outcome == "passed"
    assert {verdict.answer for verdict in gate.attacks} == {"not easier", "uninformative"}
    gradients = {verdict.model: verdict.gradient_of for verdict in gate.attacks if verdict.attack == "fgsm"}
    assert gradients["onnxruntime"] is None
    assert gradients["onnxruntime-int8"] == "torch"
    for entry in ev.results.manifest["deployments"]:
        entry["distance"] = 0.5  # as of two trainings
    assert {v.answer for v in ev.gate().attacks if v.gradient_of} == {"uninformative"}
    for model in ev.results.manifest["models"][:10]:  # the baseline's
        model["clean_accuracy"] = 0.1
    with pytest.raises(ModelError, match=r"no verdict: torch classifies 10.0 % of the images"):
        ev.gate()
    ev = rc.open_run(RESULTS / "lenet5-mnist-ten-trainings")
    assert ev.gate().outcome == "not shown"
    assert ev.gate(accuracy_margin=1e-6).accuracies[0].answer == "not shown"
    for margin in (0, 2, math.nan):
        with pytest.raises(UsageError, match="margin"):
            ev.gate(margin=margin)


# the command ---------------------------------------------------------------------------------------------------------

CODE = """
import torch, robustcmp as rc

def old():
    return rc.load_model("lenet1", framework="torch", dataset="digits").native

def same():
    return old()

def worse():
    network = old()
    with torch.no_grad():
        for weight in network.parameters():
            weight.mul_(1 + 0.6 * torch.sin(torch.arange(weight.numel())).reshape(weight.shape))
    return network

def linear(pixels, classes):
    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(pixels, classes)).eval()

def wide():
    return linear(784, 12)

def large():
    return linear(1024, 10)

def few():
    return linear(784, 5)

def five():
    return linear(784, 5)
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    pytest.importorskip("torch")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    name = f"gated_{tmp_path.name.replace('-', '_')}"
    (tmp_path / f"{name}.py").write_text(CODE)
    (tmp_path / "suite.toml").write_text(
        'description = "short"\nimages = 300\nrepeats = 1\n[attacks.fgsm]\nattack = "FGSM"\nmax_epsilon = 0.05\n'
    )
    return Path(name)


@pytest.mark.parametrize(("new", "status", "outcome"), [("same", 0, "passed"), ("worse", 3, "easier")])
def test_a_gate_says_whether_a_new_model_may_replace_an_old_one(
    folder: Path, new: str, status: int, outcome: str, capsys: pytest.CaptureFixture[str]
) -> None:
    models = [f"{folder}:old", f"{folder}:{new}"]
    arguments = [*models, "--dataset", "digits", "--suite", "suite.toml", "--accuracy-margin", "30"]
    files = ["--junit", "gate.xml", "--markdown", "gate.md"]
    assert gate_command.main([*arguments, *files, "--json", "--quiet"]) == status
    output = capsys.readouterr().out
    gate = msgspec.json.decode(output, type=Gate)
    assert gate.outcome == outcome
    assert gate.baseline == "old"
    suite = ElementTree.fromstring(Path("gate.xml").read_text())
    assert (suite.get("tests"), suite.get("failures")) == ("2", "0" if status == 0 else "1")
    assert ("Passed" if status == 0 else "Not passed: easier to fool than old") in Path("gate.md").read_text()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["a.onnx", "--dataset", "digits"], "expected two models or more, the baseline first; received a.onnx alone"),
        (["a.onnx", "b.onnx", "--dataset", "digits", "--margin", "0.02"], "--margin should be points above 0.1"),
        (["a.onnx", "b.onnx", "--dataset", "digits", "--margin", "200"], "below 100, such as 2, received 200"),
        (
            ["a.onnx", "b.onnx", "--dataset", "digits", "--junit", "no/x.xml"],
            "--junit should name a file in a directory",
        ),
        (["a.onnx", "b.onnx", "--dataset", "digits"], "there is no file a.onnx"),
        (["a.onnx", "b.onnx", "--dataset", "digits", "--within", "10"], "a time such as 90s, 10m or 1h, received 10"),
        (["a.txt", "a.txt", "--dataset", "digits"], "a.txt is of no known kind. Files end in .bin, .caffemodel, .ckpt"),
        (["a.pt", "x/a.pt", "--dataset", "digits"], "a.pt holds only weights: name their network with architecture"),
        (["CODE:old", "CODE:wide", "--dataset", "digits"], "different numbers of classes: old 10, wide 12"),
        (["CODE:old", "CODE:large", "--dataset", "digits"], "does not accept images of shape (28, 28, 1)"),
        (["CODE:few", "CODE:five", "--dataset", "digits"], "labels should be from 0 to 4"),
        (["CODE:old", "CODE:worse", "--dataset", "npz:one.npz"], "received one class in npz:one.npz"),
    ],
)
def test_what_cannot_be_gated_is_one_line(
    arguments: list[str], message: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("x").mkdir()
    for name in ("a.txt", "a.pt", "x/a.pt"):
        Path(name).write_text("some content")
    np.savez("one.npz", images=np.zeros((3, 28, 28, 1), np.float32), labels=np.zeros(3, np.int64))
    status = gate_command.main([argument.replace("CODE", str(folder)) for argument in arguments])
    assert status in (1, 2)
    assert not [*Path("runs").glob("*")]
    assert message in " ".join(capsys.readouterr().err.split())


def test_images_and_attacks_fit_into_a_time_and_a_rerun_uses_the_same(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import torch

    networks = import_module(str(folder))
    for name in ("old", "worse"):
        torch.save(getattr(networks, name)().state_dict(), f"{name}.pt")
    of_run = ["--dataset", "digits", "--suite", "suite.toml", "--out", "run", "--accuracy-margin", "30"]
    arguments = ["old.pt", "worse.pt", "--architecture", "lenet1", *of_run]

    def choose(models: list[str], seconds: float) -> int:
        monkeypatch.setattr(Plan, "time_attacks", lambda self, store, longest: {"fgsm": seconds})
        assert gate_command.main([*models, "--within", "1h"]) == 3
        about = rc.open_run("run").manifest["about"]
        images: int = about["within"]["images"]
        assert about["command"].endswith(f"--images {images}")
        assert "--within" not in about["command"]
        return images

    assert gate_command.main([*arguments, "--within", "1s"]) == 2
    assert "--within 1 s leaves no time for an image" in " ".join(capsys.readouterr().err.split())
    images = choose(arguments, 10_000.0)
    assert 10 < images < 110  # of 300, which would take three hours
    assert choose(arguments, 5_000.0) == images
    functions = [f"{folder}:old", f"{folder}:worse", *of_run]
    assert choose(functions, 1.0) == 300  # all that the suite wants
    assert choose(functions, 10_000.0) < 110  # what functions return may have changed, so it is measured again


def test_a_model_that_expects_other_images_has_no_verdict(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    import torch

    networks = import_module(str(folder))
    for name in ("old", "worse"):
        torch.save(getattr(networks, name)().state_dict(), f"{name}.pt")
    arguments = ["old.pt,mean=0.9,std=0.1", "worse.pt", "--architecture", "lenet1", "--dataset", "digits"]
    assert gate_command.main([*arguments, "--suite", "suite.toml", "--images", "20"]) == 2
    assert "no verdict. old.pt is probably not asked as it was trained" in " ".join(capsys.readouterr().err.split())


def test_success_after_rounding_to_8_bits_is_beside_success_of_images_from_files(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from PIL import Image

    data = rc.load_dataset("digits")
    for number, (image, label) in enumerate(zip(data.images[:60], data.labels[:60], strict=True)):
        path = Path("images", f"digit {label}", f"{number}.png")
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.rint(255 * image[..., 0]).astype(np.uint8)).save(path)
    models = [f"{folder}:old", f"{folder}:worse"]
    arguments = [*models, "--dataset", "folder:images", "--suite", "suite.toml", "--out", "run", "--quiet"]
    assert gate_command.main([*arguments, "--json"]) in (3, 4)
    [verdict] = msgspec.json.decode(capsys.readouterr().out, type=Gate).attacks
    assert verdict.rounded is not None
    assert abs(verdict.rounded - verdict.rate) < 0.1
    results = rc.open_run("run").results
    assert results.rounded_rate("worse", "fgsm") == verdict.rounded
    assert "in 8 bits" in to_text(results)
    page = Path("run/gate.html").read_text(encoding="utf-8")
    assert page.index('id="gate"') < page.index('id="answer"')  # which is that of the comparison, without a margin
    assert "class digit " in page


def test_a_gate_is_planned_from_a_run(capsys: pytest.CaptureFixture[str]) -> None:
    run = str(RESULTS / "lenet5-mnist-deployed")
    assert plan_command.main(["--pilot", run, "--margin", "2", "--json"]) == 0
    planned = json.loads(capsys.readouterr().out)
    assert planned
    assert all(attack["images"] > 0 for attack in planned if attack["images"] is not None)


def test_the_schema_that_ships_is_that_of_the_types() -> None:
    schema = files("robustcmp.report").joinpath("gate.schema.json").read_text(encoding="utf-8")
    assert schema == json.dumps(msgspec.json.schema(Gate), indent=2, ensure_ascii=False) + "\n"

"""The same-weights control: it passes on honest copies, and fails where one weight is another."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import robustcmp as rc
from robustcmp.analysis.deployments import answers_alike, judge_control
from robustcmp.cli import eval as eval_command
from robustcmp.data.dataset import Dataset
from robustcmp.errors import UsageError
from robustcmp.frameworks import get_framework, list_installed
from robustcmp.models.model import Model
from robustcmp.networks.architecture import get_architecture
from robustcmp.runs.related import measure_agreement
from robustcmp.sources import from_zoo

SUITE = """
images = 60
repeats = 2
[attacks.fgsm]
attack = "FGSM"
[attacks.pixel]
attack = "SinglePixel"
max_pixels = 20
[attacks.walk]
attack = "Boundary"
iterations = 3
"""

QUICKER = """
[attacks.fgsm]
attack = "FGSM"
epsilons = 1
[attacks.pixel]
attack = "SinglePixel"
max_pixels = 1
"""


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    path = tmp_path / "quick.toml"
    path.write_text(SUITE)
    return path


def perturbed(model: Model, by: float) -> None:
    """Change one weight of a network in place."""
    framework, architecture = get_framework(model.framework), get_architecture(model.info["model"])
    weights = framework.get_weights(model.native, architecture)
    weights["logits/bias"][4] += by
    framework.set_weights(model.native, architecture, weights)


def carry_carelessly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let what is carried into JAX arrive with another weight."""
    honest = from_zoo.same_weights

    def careless(*given: Any, **options: Any) -> dict[str, Model]:
        models = honest(*given, **options)
        if "jax" in models:
            perturbed(models["jax"], 0.5)
        return models

    monkeypatch.setattr(from_zoo, "same_weights", careless)


def control(models: dict[str, Model], data: Dataset, suite: Path) -> rc.Evaluation:
    return rc.evaluate(models, data.images, data.labels, suite=suite, progress=False, about={"model": "lenet5"})


def test_what_cannot_be_carried() -> None:
    with pytest.raises(UsageError, match="expected a model of the zoo"):
        rc.same_weights(rc.wrap(lambda x: x.mean(axis=(1, 2)), framework="jax"))
    with pytest.raises(UsageError, match="unknown framework 'troch': did you mean 'torch'"):
        rc.same_weights(rc.load_model("lenet1", framework="torch", dataset="digits"), ["troch"])


def test_the_command_needs_two_frameworks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    arguments = ["--model", "lenet1", "--dataset", "digits", "--framework", "torch", "--same-weights", "torch"]
    assert eval_command.main(arguments) == 2
    assert "needs at least two frameworks" in capfd.readouterr().err


def test_agreement_is_the_largest_of_all_pairs_and_trainings() -> None:
    a = np.array([[0.0, 2.0], [0.0, 2.0]], np.float32)  # a deviation of 1
    b, c = a.copy(), a.copy()
    b[0, 1] += 0.25
    c[1] = (3, 2)
    assert measure_agreement({"x": [a, a], "y": [a, b]}) == {"logits": 0.25, "predictions": 0.0}
    assert measure_agreement({"x": [a, a], "y": [a, b], "z": [c, a]}) == {"logits": 3.0, "predictions": 0.5}
    undefined = measure_agreement({"x": [a, a], "y": [np.full_like(a, np.nan), a]})
    assert not answers_alike(**undefined)


@pytest.mark.parametrize(
    ("logits", "predictions", "images", "passed"),
    [
        (1e-4, 1e-3, 1000, True),
        (1.1e-4, 0.0, 1000, False),
        (0.0, 1.1e-3, 1000, False),
        (0.0, 0.0, 999, False),
    ],
)
def test_what_passes(logits: float, predictions: float, images: int, passed: bool) -> None:
    """An image that falls in one alone counts once, in however many trainings and repeats; 2 in 1,000 may."""
    success = dict.fromkeys("xz", np.zeros((2, 3, 5), np.bool_))
    success["y"] = success["x"].copy()
    success["y"][:, :, 1] = True
    success["y"][0, 2, 4] = True
    run = SimpleNamespace(
        manifest={"same_weights": {"logits": logits, "predictions": predictions}, "images": {"used": images}},
        models=["x", "y", "z"],
        attack_records={"fgsm": SimpleNamespace(in_control=True), "walk": SimpleNamespace(in_control=False)},
        values=lambda model, attack: success[model],
    )
    judged = judge_control(run)  # type: ignore[arg-type]
    assert judged is not None
    assert judged["passed"] is passed
    assert judged["differ"]["fgsm"] == judged["differ"]["walk"] == {"x|y": 2, "x|z": 0, "y|z": 2}


def quickly(models: dict[str, Model], data: Dataset, suite: Path) -> rc.Evaluation:
    suite.write_text(QUICKER)
    return rc.evaluate(models, data.images, data.labels, suite=suite, n=8, repeats=1, batch_size=64, progress=False)


def test_a_few_images_pass_in_every_framework_and_fail_with_another_weight(digits: Dataset, suite: Path) -> None:
    models = rc.same_weights(rc.load_model("lenet1", framework="torch", dataset="digits", device="cpu"), device="cpu")
    assert list(models) == list_installed()
    ev = quickly(models, digits, suite)
    result = ev.results.same_weights
    assert result is not None
    assert result["passed"] is True
    assert result["predictions"] == 0
    pairs = len(models) * (len(models) - 1) // 2
    assert {attack: len(differ) for attack, differ in result["differ"].items()} == dict.fromkeys(
        ev.results.attacks, pairs
    )
    assert ev.indicator == {}
    assert ev.to_json()["same_weights"] == result
    assert "Passed: the same weights give the same results" in " ".join(repr(ev).split())
    perturbed(models["torch"], 0.01)
    result = quickly(models, digits, suite).results.same_weights
    assert result is not None
    assert result["passed"] is False
    assert result["logits"] > 1e-4


def test_networks_that_were_trained_apart_are_no_control(zoo_model: Any, digits: Dataset, suite: Path) -> None:
    one, other = zoo_model("torch", "lenet1"), zoo_model("jax", "lenet1")
    carried = rc.same_weights(one, ["jax"], device="cpu")["jax"]
    mixed = quickly({"torch": one, "jax": carried}, digits, suite).results.same_weights
    assert mixed is not None
    assert mixed["passed"]
    two = quickly({"torch's": carried, "jax's": other}, digits, suite)
    assert two.results.same_weights is None
    assert set(two.indicator) == {"torch's", "jax's"}
    suite.write_text('[attacks.fgsm]\nattack = "FGSM"\n')
    with pytest.raises(UsageError, match="needs FGSM and SinglePixel, and the suite lacks one"):
        control({"torch": one, "jax": carried}, digits, suite)


def test_the_command_ends_with_1_where_a_few_images_fail(
    tmp_path: Path, suite: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    suite.write_text(QUICKER)
    arguments = ["--model", "lenet1", "--dataset", "digits", "--framework", "torch", "jax", "--suite", str(suite)]
    arguments += ["--same-weights", "torch", "--json", "--images", "4", "--repeats", "1", "--batch-size", "64"]
    assert eval_command.main(arguments) == 0
    assert json.loads(capfd.readouterr().out)["same_weights"]["passed"] is True
    carry_carelessly(monkeypatch)
    for _ in range(2):  # the finished run says it again
        assert eval_command.main([*arguments, "--out", "careless"]) == 1
        assert "these frameworks give different results for the same weights" in capfd.readouterr().err

"""An attack that cannot run on a model is a value with a reason, and no failure of the others."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import robustcmp as rc
from robustcmp import frameworks
from robustcmp.attacks import FGSM, SinglePixel
from robustcmp.attacks.suite import Suite
from robustcmp.data.dataset import Dataset
from robustcmp.errors import ModelError, UsageError
from robustcmp.report.tables import tables
from robustcmp.report.text import to_text
from robustcmp.report.words import answers, notes

SUITE = Suite("two", "", 10, 2, {"fgsm": FGSM(epsilons=4), "pixel": SinglePixel(max_pixels=9)})


def linear(seed: int) -> dict[str, Any]:
    weights = np.random.default_rng(seed).normal(size=(784, 10)).astype(np.float32)
    return {"logits": lambda x: x.reshape(len(x), -1) @ weights, "vjp": lambda x, v: (v @ weights.T).reshape(x.shape)}


@pytest.fixture(scope="module")
def asked(digits: Dataset) -> dict[str, Any]:
    with_gradient, without = rc.wrap_functions(**linear(0)), rc.wrap_functions(logits=linear(0)["logits"])
    labels = linear(0)["logits"](digits.images).argmax(axis=1)
    models = {"whole": with_gradient, "blind": [without, rc.wrap_functions(**linear(0))], "copy": with_gradient}
    return {"models": models, "images": digits.images, "labels": labels, "suite": SUITE, "progress": False}


@pytest.fixture(scope="module")
def ev(asked: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> rc.Evaluation:
    return rc.evaluate(**asked, out=tmp_path_factory.mktemp("blind") / "run", batch_size=64)


def test_its_cells_are_empty_and_the_others_are_there(ev: rc.Evaluation) -> None:
    ran = ev.dataset.ran.sel(training_seed=0).to_pandas()
    assert ran.loc["blind"].to_dict() == {"fgsm": False, "pixel": True}
    assert ran.loc["whole"].to_dict() == {"fgsm": True, "pixel": True}
    blind = ev.dataset.sel(model="blind", training_seed=0, attack="fgsm")
    assert blind.l2.isnull().all()
    assert not blind.success.any()
    assert ev.success_rate.sel(model="blind", training_seed=0, attack="fgsm").isnull().all()
    assert ev.results.seeds("blind", "fgsm") == [1]
    assert {
        cell["attack"] for cell in ev.manifest["cells"] if (cell["model"], cell["training_seed"]) == ("blind", 0)
    } == {"pixel"}


def test_the_reason_stands_in_the_manifest_and_the_notes(ev: rc.Evaluation) -> None:
    reason = ev.results.reasons("not_applicable")["blind/0"]["fgsm"]
    assert "this model has no gradient, as robustcmp.wrap_functions got no vjp" in reason
    assert list(ev.results.reasons("not_applicable")) == ["blind/0"]
    stored = json.loads((ev.results.run.directory / "manifest.json").read_text())["models"]
    assert [model["not_applicable"] for model in stored] == [{}, {"fgsm": reason}, {}, {}]
    opened = rc.open_run(ev.results.run.directory)
    assert opened.results.reasons("not_applicable") == ev.results.reasons("not_applicable")
    assert f"fgsm is not applicable to blind/0: {reason}" in notes(opened.results)


def test_of_trainings_of_which_one_is_blind_the_attack_is_not_in_r(ev: rc.Evaluation) -> None:
    assert ev.results.common_attacks == ["pixel"]
    assert not math.isnan(ev.results.rates()["blind"]["fgsm"])  # of the training that ran it
    assert set(ev.tests().attack) == {"pixel"}
    assert ev.indicator == rc.robustness_indicator(ev.results.rates(ev.results.indicator_attacks))
    assert "Excluded from R because not every model ran it: fgsm." in notes(ev.results)


def test_without_an_attack_in_common_nothing_is_compared(asked: dict[str, Any], tmp_path: Path) -> None:
    gradients = Suite("one", "", 10, 1, {"fgsm": FGSM(epsilons=4)})
    models = {"whole": asked["models"]["whole"], "blind": asked["models"]["blind"][0]}
    ev = rc.evaluate(**asked | {"models": models, "suite": gradients})
    assert all(math.isnan(r) for r in ev.indicator.values())
    assert ev.to_json()["indicator"] == {"whole": None, "blind": None}
    assert ev.to_json()["not_applicable"] == ev.results.reasons("not_applicable")
    assert answers(ev.results) == ["No attack ran on every model: there is nothing to compare."]
    assert [table.title.split(":")[0] for table in tables(ev.results)] == ["Success rates", "Robustness indicator R"]
    assert [row[1] for row in tables(ev.results)[1].written] == ["–", "–"]
    assert to_text(ev.results)
    ev.to_html(tmp_path / "page.html")


def test_checks_and_transfer_go_round_it(ev: rc.Evaluation) -> None:
    checks = ev.run_checks().query("model == 'blind/0'").set_index("check")
    assert checks.outcome["pgd reaches fgsm"] == "not applicable"
    shares = ev.run_transfer()
    assert shares.of_all.sel(source="blind/0", attack="fgsm").isnull().all()
    assert not shares.of_all.sel(source="blind/0", attack="pixel").isnull().any()
    assert ev.results.transfer_blocks.of_all.notnull().all()


def test_where_nothing_can_run_it_is_an_error_before_work(asked: dict[str, Any], tmp_path: Path) -> None:
    gradients = Suite("one", "", 10, 1, {"fgsm": FGSM()})
    models = {"blind": asked["models"]["blind"][0]}
    with pytest.raises(ModelError, match=r"no attack of the suite one can run on any of the models: .*got no vjp"):
        rc.evaluate(**asked | {"models": models, "suite": gradients}, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_foolboxs_gradient_attacks_need_torch_for_functions(
    asked: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    suite = tmp_path / "pgd.toml"
    suite.write_text('[attacks.pgd]\nattack = "LinfPGD"\nepsilons = [0.1]\n[attacks.pixel]\nattack = "SinglePixel"\n')
    monkeypatch.setattr(frameworks, "list_installed", lambda: ["jax"])
    ev = rc.evaluate(**asked | {"models": {"m": asked["models"]["whole"]}, "suite": suite}, n=4, repeats=1)
    assert "through torch, which is not installed" in ev.results.reasons("not_applicable")["m"]["pgd"]


def test_a_gradient_that_is_there_and_means_nothing_is_still_an_error(asked: dict[str, Any]) -> None:
    flat = rc.wrap_functions(logits=linear(0)["logits"], vjp=lambda x, v: np.zeros_like(x))
    with pytest.raises(ModelError, match="gradient of model 'flat' is zero"):
        rc.evaluate(**asked | {"models": {"flat": flat}})
    with pytest.raises(UsageError, match="expected at least one model"):
        rc.evaluate(**asked | {"models": {}})

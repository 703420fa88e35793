"""Clean margins: stored for every image, and rates with the margin held fixed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import robustcmp as rc
from robustcmp.analysis.margins import Margins
from robustcmp.attacks import FGSM
from robustcmp.attacks.suite import Suite
from robustcmp.data.dataset import Dataset
from robustcmp.errors import UsageError
from robustcmp.models.classifier import Classifier

SUITE = Suite("one", "", 60, 1, {"fgsm": FGSM(epsilons=20, max_epsilon=0.15)})
RUNS = Path(__file__).parents[1] / "docs" / "results"


@pytest.fixture(scope="module")
def models(zoo_model: Any) -> dict[str, Any]:
    return {"jax": [zoo_model("jax", "lenet1", seed=s) for s in (0, 1)], "torch": [zoo_model("torch", "lenet1")]}


@pytest.fixture(scope="module")
def ev(models: dict[str, Any], digits: Dataset, tmp_path_factory: pytest.TempPathFactory) -> rc.Evaluation:
    out = tmp_path_factory.mktemp("margins") / "run"
    return rc.evaluate(models, digits.images, digits.labels, suite=SUITE, out=out, progress=False)


def test_margins_are_those_of_the_logits(ev: rc.Evaluation, models: dict[str, Any], digits: Dataset) -> None:
    index = ev.dataset.image.values
    labels = digits.labels[index]
    for name, trainings in models.items():
        trainings = trainings if isinstance(trainings, list) else [trainings]
        assert ev.results.margins.values(name).shape == (len(trainings), 60)
        for margins, model in zip(ev.results.margins.values(name), trainings, strict=True):
            logits = Classifier(model).logits(digits.images[index]).astype(np.float64)
            others = np.where(np.arange(10) == labels[:, None], -np.inf, logits)
            assert margins == pytest.approx(logits[np.arange(60), labels] - others.max(axis=1), abs=1e-4)
            assert (margins > 0).all()  # every model classifies these images correctly
    opened = rc.open_run(ev.results.run.directory)
    assert opened.dataset.margin.identical(ev.dataset.margin)
    assert np.isnan(opened.dataset.margin.sel(model="torch", training_seed=1)).all()


def test_rates_by_margin_count_every_outcome_once(ev: rc.Evaluation) -> None:
    table = ev.results.margins.rates("fgsm", 4)
    assert table.groupby("model").n.sum().to_dict() == {"jax": 120, "torch": 60}
    for model, rows in table.groupby("model"):
        assert (rows.n * rows.success_rate.fillna(0)).sum() / rows.n.sum() == pytest.approx(
            ev.results.rate(str(model), "fgsm")
        )
    falls = table.groupby("stratum")[["n", "success_rate"]].apply(
        lambda rows: np.average(rows.success_rate, weights=rows.n)
    )
    assert falls[0] > falls[3]  # images near a decision boundary fall first


class Stub:
    """A run of two models whose rates differ only because their margins do."""

    def __init__(self, margins: dict[str, list[float]], falls: dict[str, list[bool]]):
        import xarray

        names = list(margins)
        values = np.array([margins[name] for name in names])[:, None]
        self.models = names
        self.dataset = xarray.Dataset(
            {"margin": (("model", "training_seed", "image"), values)}, {"model": names, "training_seed": [0]}
        )
        self._falls = {name: np.array(fell)[None, None] for name, fell in falls.items()}

    def values(self, model: str, attack: str) -> np.ndarray:
        return self._falls[model]


def test_larger_margins_alone_are_no_robustness() -> None:
    margins = {"near": [1.0] * 6 + [2.0] * 2, "far": [1.0] * 2 + [2.0] * 6}
    falls = {"near": [True] * 6 + [False] * 2, "far": [True] * 2 + [False] * 6}
    table = Margins(Stub(margins, falls)).standardised("fgsm", strata=2)  # type: ignore[arg-type]
    assert table.success_rate.to_dict() == {"near": 0.75, "far": 0.25}
    assert table.at_equal_margins.to_dict() == {"near": 0.5, "far": 0.5}
    assert table.covered.to_dict() == {"near": 1.0, "far": 1.0}
    assert table.median_margin.to_dict() == {"near": 1.0, "far": 2.0}


def test_margins_that_do_not_overlap_say_nothing() -> None:
    margins = {"near": [1.0] * 4, "far": [2.0] * 4}
    falls = {"near": [True] * 4, "far": [False] * 4}
    table = Margins(Stub(margins, falls)).standardised("fgsm", strata=2)  # type: ignore[arg-type]
    assert table.at_equal_margins.isna().all()
    assert (table.covered == 0).all()


def test_a_run_without_margins_says_what_to_do(ev: rc.Evaluation) -> None:
    opened = rc.open_run(RUNS / "lenet5-mnist-guo2019")
    with pytest.raises(UsageError, match="without clean margins"):
        opened.results.margins.values("torch")
    with pytest.raises(UsageError, match="tensorflow"):
        ev.results.margins.values("tensorflow")
    with pytest.raises(UsageError, match="strata"):
        ev.results.margins.rates("fgsm", 0)

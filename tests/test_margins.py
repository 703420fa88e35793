"""Clean margins: stored for every image."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import robustcmp as rc
from robustcmp.attacks import FGSM
from robustcmp.attacks.suite import Suite
from robustcmp.data.dataset import Dataset
from robustcmp.models.classifier import Classifier

SUITE = Suite("one", "", 60, 1, {"fgsm": FGSM(epsilons=20, max_epsilon=0.15)})


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
        for margins, model in zip(ev.dataset.margin.sel(model=name).values, trainings, strict=False):
            logits = Classifier(model).logits(digits.images[index]).astype(np.float64)
            others = np.where(np.arange(10) == labels[:, None], -np.inf, logits)
            assert margins == pytest.approx(logits[np.arange(60), labels] - others.max(axis=1), abs=1e-4)
            assert (margins > 0).all()  # every model classifies these images correctly
    opened = rc.open_run(ev.results.run.directory)
    assert opened.dataset.margin.identical(ev.dataset.margin)
    assert np.isnan(opened.dataset.margin.sel(model="torch", training_seed=1)).all()

"""Rates on the subsets of fewer models: counted again by attacking each of these subsets itself."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import pytest

import robustcmp as rc
from robustcmp.analysis.followups import Conditioning
from robustcmp.analysis.twins import Twins
from robustcmp.attacks import APGD, FGSM, SinglePixel
from robustcmp.attacks.suite import Suite
from robustcmp.data.dataset import Dataset
from robustcmp.errors import UsageError
from robustcmp.models.model import Model
from robustcmp.records.answers import Contested
from robustcmp.report.tables import tables

SEED = 3
REPEATS = 2
SUITE = Suite(
    "two", "", 1000, REPEATS, {"fgsm": FGSM(epsilons=4, max_epsilon=0.02), "pixel": SinglePixel(max_pixels=9)}
)


def linear(seed: int) -> Model:
    """A linear model; those of different seeds disagree about some images."""
    weights = np.random.default_rng(0).normal(size=(784, 10)) + 0.25 * np.random.default_rng(seed).normal(
        size=(784, 10)
    )
    weights = weights.astype(np.float32)
    return rc.wrap_functions(
        logits=lambda x: x.reshape(len(x), -1) @ weights, vjp=lambda x, v: (v @ weights.T).reshape(x.shape)
    )


MODELS = {"a": [linear(1), linear(2)], "b": [linear(3), linear(4)], "c": [linear(5), linear(6)]}
FLAT = [(name, training, model) for name, trainings in MODELS.items() for training, model in enumerate(trainings)]


@pytest.fixture(scope="module")
def asked(digits: Dataset) -> dict[str, Any]:
    images = digits.images[:200]
    labels = rc.predict(linear(0), images)
    return {"models": MODELS, "images": images, "labels": labels, "suite": SUITE, "seed": SEED, "progress": False}


@pytest.fixture(scope="module")
def ev(asked: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> rc.Evaluation:
    evaluation = rc.evaluate(**asked, out=tmp_path_factory.mktemp("conditioning") / "run", batch_size=64)
    evaluation.run_conditioning()
    return evaluation


@pytest.mark.parametrize("members", [(0,), (4, 1), (5, 0, 2), (1, 2, 3, 4, 0)])
def test_a_rate_is_that_of_the_subset_itself(
    ev: rc.Evaluation, asked: dict[str, Any], members: tuple[int, ...]
) -> None:
    assert ev.results.conditioned is not None
    images, labels = asked["images"], asked["labels"]
    subset = rc.common_subset({str(i): FLAT[i][2] for i in members}, images, labels)
    model = FLAT[members[0]][2]
    rates, sizes = ev.results.conditioned.rates(members[0], np.array(members[1:], np.int64))
    assert sizes[-1] == len(subset) > len(ev.dataset.image)
    for attack, rate in zip(SUITE.attacks.values(), rates[-1], strict=True):
        falls = [
            attack.attack(model, images[subset], labels[subset], seed=SEED, repeat=repeat).success
            for repeat in range(REPEATS)
        ]
        assert rate == pytest.approx(np.mean(falls))


def test_the_curve_ends_with_the_rates_of_the_run(ev: rc.Evaluation) -> None:
    curve = ev.conditioning
    assert curve.groupby(["attack", "model"], sort=False).models.apply(list).tolist() == [[1, 2, 3, 4, 5, 6]] * 6
    last = curve[curve.models == 6].set_index(["attack", "model"])
    for attack in ev.results.attacks:
        for model in ev.results.models:
            assert last.success_rate[attack, model] == pytest.approx(ev.results.rate(model, attack))
    assert last.images.to_numpy() == pytest.approx(ev.manifest["images"]["correct_by_all"])
    assert (curve.low <= curve.success_rate + 1e-12).all()
    assert (curve.success_rate <= curve.high + 1e-12).all()
    fewer = curve.groupby(["attack", "model"]).images.apply(lambda images: np.diff(images).max())
    assert (fewer <= 0).all()
    assert ev.conditioning.equals(curve)  # drawn again alike


def test_outcomes_are_stored_and_shown(ev: rc.Evaluation) -> None:
    opened = rc.open_run(ev.results.run.directory)
    assert opened.conditioning.equals(ev.conditioning)
    (table,) = (table for table in tables(opened.results) if "so many models" in table.title)
    assert [column.name for column in table.columns][2:] == ["1 model", "3 models", "6 models"]
    axes = opened.plot.conditioning(attacks=["fgsm"])
    assert [len(line.get_xdata()) for line in axes[0].lines] == [6, 6, 6]


def test_a_suite_on_all_images_is_not_conditional(asked: dict[str, Any]) -> None:
    suite = Suite("all", "", 20, 1, {"apgd": APGD(loss="ce", epsilon=0.01, steps=2, restarts=1)}, "all")
    evaluation = rc.evaluate(**asked | {"suite": suite}, batch_size=64)
    with pytest.raises(UsageError, match="attacks all images"):
        evaluation.run_conditioning()


def test_what_cannot_run_is_nan(asked: dict[str, Any]) -> None:
    blind = rc.wrap_functions(logits=lambda x: linear(1)(x))
    evaluation = rc.evaluate(**asked | {"models": {"blind": blind, "a": linear(2)}}, batch_size=64)
    curve = evaluation.run_conditioning().set_index(["attack", "model", "models"]).success_rate.sort_index()
    assert curve["fgsm", "blind"].isna().all()
    assert curve["fgsm", "a"].notna().all()
    assert curve["pixel", "blind"].notna().all()


def made(right: list[list[bool]], success: list[list[float]], counts: tuple[int, int]) -> Contested:
    share = np.where(np.array(right), np.array(success, np.float64), np.nan)
    return Contested(["fgsm"], np.arange(len(right[0])), np.array(right), share[:, None], np.array(counts))


class Stub:
    """As much of a run as conditioning reads: models of one training each, with their rates on the common subset."""

    twins: ClassVar[list[Twins]] = []

    def __init__(self, rates: list[float], n: int = 100):
        self.models = self.sources = [str(place) for place in range(len(rates))]
        self.manifest = {
            "models": [{"name": name, "training_seed": 0} for name in self.models],
            "images": {"of": 1000},
        }
        self._falls = {
            name: (np.arange(n) < round(rate * n))[None, None] for name, rate in zip(self.models, rates, strict=True)
        }

    @property
    def keys(self) -> list[tuple[str, int]]:
        return [(name, 0) for name in self.models]

    def seeds(self, model: str, attack: str) -> list[int]:
        return [0]

    def values(self, model: str, attack: str, *, training_seed: int = 0) -> np.ndarray:
        return self._falls[model]


def test_strata_are_weighted_by_all_their_images() -> None:
    # 800 images that all classify correctly, of which 10 % fall; 200 that some do not, of which two stand for all.
    contested = made([[True, True], [True, False]], [[1, 0], [1, 0]], (800, 200))
    conditioning = Conditioning(Stub([0.1, 0.2]), contested)  # type: ignore[arg-type]
    rates, images = conditioning.rates(0, np.array([1]))
    assert images.tolist() == [1000, 900]
    assert rates[:, 0] == pytest.approx([(80 + 100) / 1000, (80 + 100) / 900])

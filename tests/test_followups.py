"""Transfer: what fools one trained model and another, counted again from the adversarial images."""

from __future__ import annotations

import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import foolbox as fb
import numpy as np
import pytest

import robustcmp as rc
from robustcmp.analysis.followups import Conditioning, _as_dataset, average_blocks
from robustcmp.analysis.twins import Twins
from robustcmp.attacks import APGD, FGSM, SinglePixel
from robustcmp.attacks.suite import Suite
from robustcmp.cli import command
from robustcmp.cli import eval as eval_command
from robustcmp.data.dataset import Dataset
from robustcmp.errors import UsageError
from robustcmp.models.classifier import Classifier
from robustcmp.models.model import Model
from robustcmp.records.answers import Contested
from robustcmp.report.tables import tables
from robustcmp.runs.followups import _count_transfers
from robustcmp.runs.progress import Unseen

SUITE = """
images = 30
repeats = 2
[attacks.fgsm]
attack = "FGSM"
max_epsilon = 0.15
[attacks.pixel]
attack = "SinglePixel"
max_pixels = 40
[attacks.never]
attack = "SinglePixel"
max_pixels = 1
"""


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    path = tmp_path / "quick.toml"
    path.write_text(SUITE)
    return path


@pytest.fixture(scope="module")
def models(zoo_model: Any) -> dict[str, list[Model]]:
    return {
        "two": [zoo_model("torch", "lenet1"), zoo_model("torch", "lenet5")],
        "one": [zoo_model("torch", "lenet1", seed=1)],
    }


def test_every_pair_is_counted_again(models: Any, digits: Dataset, suite: Path, tmp_path: Path) -> None:
    ev = rc.evaluate(models, digits.images, digits.labels, suite=suite, out=tmp_path / "run", progress=False)
    found = ev.run_transfer()
    assert dict(found.sizes) == {"source": 3, "target": 3, "attack": 3}
    assert found.source.values.tolist() == found.target.values.tolist() == ["two/0", "two/1", "one/0"]
    flat = [("two", 0, models["two"][0]), ("two", 1, models["two"][1]), ("one", 0, models["one"][0])]
    labels = digits.labels[ev.dataset.image]
    for attack in ev.results.attacks:
        for source, (name, seed, _) in enumerate(flat):
            repeats = range(1 if attack == "fgsm" else 2)
            success = ev.dataset.success.sel(model=name, training_seed=seed, attack=attack).values[list(repeats)]
            images = np.array([ev.adversarials(name, attack, training_seed=seed, repeat=i) for i in repeats])
            for target, (*_, model) in enumerate(flat):
                fooled = np.array([rc.predict(model, its) != labels for its in images])
                its = found.isel(source=source, target=target).sel(attack=attack)
                assert float(its.of_all) == pytest.approx((fooled & success).mean())
                if success.any():
                    assert float(its.of_successes) == pytest.approx(fooled[success].mean())
                else:
                    assert math.isnan(float(its.of_successes))
    own = [float(found.of_all.isel(source=i, target=i).sel(attack="fgsm")) for i in range(3)]
    assert own == [
        pytest.approx(ev.success_rate.sel(attack="fgsm").values[i, j, 0]) for i, j in ((0, 0), (0, 1), (1, 0))
    ]

    # Stored, and read again; without it the error names the command.
    opened = rc.open_run(tmp_path / "run")
    assert opened.transfer.identical(found)
    assert opened.results.transfer_blocks.equals(ev.results.transfer_blocks)
    (table,) = (table for table in tables(opened.results) if table.title.startswith("Transfer"))
    assert [row[1] for row in table.written[:3]] == ["within two", "within", "across"]
    assert table.names[-1] == "p (within > across)"
    assert table.written[0][-1] == table.written[2][-1] == "–"
    assert 0 < float(opened.results.transfer_blocks.p[1]) <= 1
    (tmp_path / "run" / "transfer.json").unlink()
    with pytest.raises(UsageError, match=r"stored without transfer.*robustcmp\.evaluate.*run_transfer"):
        _ = rc.open_run(tmp_path / "run").transfer
    with pytest.raises(UsageError, match="stored without transfer"):
        _ = rc.open_run(tmp_path / "run").results.transfer_blocks


def test_targets_are_asked_about_adversarial_images_alone(digits: Dataset) -> None:
    asked: list[int] = []

    def target(label: int) -> Classifier:
        logits = np.eye(10, dtype=np.float32)[label]
        model = fb.NumPyModel(lambda x: np.tile(logits, (len(x), 1)), bounds=(0, 1), data_format="channels_last")
        return Classifier(model, asked=asked.append)

    labels, success = np.array([1, 1, 2, 2]), np.array([True, False, True, True])
    counts = _count_transfers(
        [target(1), target(2)], ["a"], labels, lambda *_: [(digits.images[:4], success)], Unseen()
    )
    assert counts[..., 0, :].tolist() == [[[3, 3, 4], [1, 3, 4]], [[2, 3, 4], [3, 3, 4]]]
    assert sum(asked) == 6


def test_blocks_are_means_within_and_across_frameworks() -> None:
    counts = np.zeros((4, 4, 1, 3), np.int64)
    counts[..., 2], counts[..., 1] = 10, 5
    counts[:2, :2, 0, 0], counts[2:, 2:, 0, 0] = 4, 3
    counts[:2, 2:, 0, 0], counts[2:, :2, 0, 0] = 1, 2
    counts[3, :, 0, 1] = 0  # nothing succeeded there
    counts[3, :, 0, 0] = 0
    keys = [("a", 0), ("a", 1), ("b", 0), ("b", 1)]
    transfer = _as_dataset(counts, [f"{name}/{seed}" for name, seed in keys], ["x"])
    run = SimpleNamespace(keys=keys, sources=["a", "b"], twins=[], transferred=transfer)
    found = average_blocks(run).set_index("block")  # type: ignore[arg-type]
    assert found.pairs.to_dict() == {"within a": 2, "within b": 2, "within": 4, "across": 8}
    assert found.of_all.to_dict() == pytest.approx({"within a": 0.4, "within b": 0.15, "within": 0.275, "across": 0.1})
    assert found.of_successes["within b"] == pytest.approx(0.6)


def test_the_command_makes_it_of_a_few_images(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    given = ["--model", "lenet1", "--dataset", "digits", "--framework", "torch", "--suite", "smoke"]
    given += ["--images", "4", "--repeats", "1", "--batch-size", "64", "--training-seeds", "0", "1"]
    assert eval_command.main([*given, "--also", "transfer", "conditioning"]) == 0
    assert command.main(["report", "runs/lenet1-digits-smoke", "--format", "text"]) == 0
    text = capfd.readouterr().out
    assert "Transfer: adversarial images of one model that also fool another" in text
    assert "so many models" in text
    assert rc.open_run("runs/lenet1-digits-smoke").transfer.sizes["source"] == 2
    assert eval_command.main([*given, "--also", "transfer", "--no-images"]) == 2
    assert "--also transfer needs the adversarial images" in capfd.readouterr().err


# rates on the subsets of fewer models, counted again by attacking each of them ----------------------------------------

SEED = 3
REPEATS = 2
CONDITIONED = Suite(
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
    return {"models": MODELS, "images": images, "labels": labels, "suite": CONDITIONED, "seed": SEED, "progress": False}


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
    for attack, rate in zip(CONDITIONED.attacks.values(), rates[-1], strict=True):
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


def contest(right: list[list[bool]], success: list[list[float]], counts: tuple[int, int]) -> Contested:
    share = np.where(np.array(right), np.array(success, np.float64), np.nan)
    return Contested(["fgsm"], np.arange(len(right[0])), np.array(right), share[:, None], np.array(counts))


class Rates:
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
    contested = contest([[True, True], [True, False]], [[1, 0], [1, 0]], (800, 200))
    conditioning = Conditioning(Rates([0.1, 0.2]), contested)  # type: ignore[arg-type]
    rates, images = conditioning.rates(0, np.array([1]))
    assert images.tolist() == [1000, 900]
    assert rates[:, 0] == pytest.approx([(80 + 100) / 1000, (80 + 100) / 900])

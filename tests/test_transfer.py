"""Transfer: what fools one trained model and another, counted again from the adversarial images."""

from __future__ import annotations

import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import foolbox as fb
import numpy as np
import pytest

import robustcmp as rc
from robustcmp.analysis.followups import _as_dataset, average_blocks
from robustcmp.cli import command
from robustcmp.cli import eval as eval_command
from robustcmp.data.dataset import Dataset
from robustcmp.errors import UsageError
from robustcmp.models.classifier import Classifier
from robustcmp.models.model import Model
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

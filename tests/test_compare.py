"""A comparison from end to end: what is computed, what is kept, and what is not done twice."""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import foolbox as fb
import numpy as np
import pytest
from conftest import answers
from numpy.typing import NDArray

import robustcmp as rc
from robustcmp import Evaluation
from robustcmp.data.dataset import Dataset
from robustcmp.errors import ModelError, UsageError
from robustcmp.models.classifier import Classifier
from robustcmp.models.model import Model
from robustcmp.records.attack import Cell
from robustcmp.report.words import find_own_repeats
from robustcmp.runs import loading

Zoo = Callable[..., Model]

SUITE = """
[attacks.fgsm]
attack = "FGSM"
epsilons = 10

[attacks.single_pixel]
attack = "SinglePixel"
max_pixels = 20

[attacks.boundary]
attack = "Boundary"
iterations = 12
max_directions = 2
"""


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    """All three attacks, short."""
    path = tmp_path / "short.toml"
    path.write_text(SUITE, encoding="utf-8")
    return path


@pytest.fixture
def compare(zoo_model: Zoo, digits: Dataset, suite: Path) -> Callable[..., Evaluation]:
    """Return a function that compares two LeNet-1 on a few digits; every keyword can be replaced."""
    models = {name: zoo_model(name, "lenet1") for name in ("torch", "jax")}

    def run(**changes: Any) -> Evaluation:
        given = {
            "models": models,
            "images": digits.images,
            "labels": digits.labels,
            "suite": suite,
            "n": 8,
            "repeats": 3,
            "batch_size": 64,
            "progress": False,
        }
        return rc.evaluate(**(given | changes))

    return run


# cells ---------------------------------------------------------------------------------------------------------------


def test_cells_are_models_by_attacks_by_repeats_and_made_attack_by_attack_cheapest_first(
    compare: Callable[..., Evaluation], saved: list[Cell]
) -> None:
    ev = compare()
    repeats = {"fgsm": 1, "single_pixel": 3, "boundary": 3}
    asked = [(model, attack, n) for model in ("torch", "jax") for attack in repeats for n in range(repeats[attack])]
    assert [(cell["model"], cell["attack"], cell["repeat"]) for cell in ev.manifest["cells"]] == asked
    made = sorted(asked, key=lambda cell: list(repeats).index(cell[1]))  # a stable sort
    assert [(cell.model, cell.attack, cell.repeat) for cell in saved] == made
    assert len({cell.key for cell in saved}) == len(saved)


COMMAND = [
    *(sys.executable, "-m", "robustcmp.eval", "--model", "lenet1", "--dataset", "digits", "--framework", "torch"),
    *("--images", "8", "--repeats", "6", "--batch-size", "64"),
]


@pytest.mark.slow
def test_a_run_that_was_killed_goes_on(suite: Path, tmp_path: Path) -> None:
    """Killed for real, between two instructions, several times over."""
    environment = os.environ | {"OMP_NUM_THREADS": "1"}

    def start(folder: Path) -> subprocess.Popen[bytes]:
        folder.mkdir(exist_ok=True)
        command = [*COMMAND, "--suite", str(suite), "--out", "run"]  # the command is part of the run
        return subprocess.Popen(
            command, env=environment, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )

    assert start(tmp_path / "whole").wait() == 0
    killed = tmp_path / "killed"
    for cells in (1, 4, 9):
        process = start(killed)
        while process.poll() is None and len(list(killed.glob("run/cells/*.h5"))) < cells:
            time.sleep(0.002)
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert start(killed).wait() == 0
    assert answers(killed / "run") == answers(tmp_path / "whole" / "run")


def test_what_determines_a_cell_is_in_its_key(
    compare: Callable[..., Evaluation], saved: list[Cell], tmp_path: Path, zoo_model: Zoo
) -> None:
    models = {"a": zoo_model("torch", "lenet1")}
    compare(out=tmp_path / "run", models=models, repeats=1)
    keys = {cell.key for cell in saved}
    for change in ({"seed": 1}, {"n": 7}, {"batch_size": 7}, {"models": {"a": zoo_model("jax", "lenet1")}}):
        saved.clear()
        compare(out=tmp_path / "run", **{"models": models, "repeats": 1, **change})
        assert len(saved) == 3
        assert not keys & {cell.key for cell in saved}
        keys |= {cell.key for cell in saved}


def test_the_batch_size_that_was_found_is_kept(
    compare: Callable[..., Evaluation], saved: list[Cell], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loading, "measure_batch_size", lambda classifier, images: 32)
    compare(out=tmp_path / "run", batch_size=None, repeats=1)
    saved.clear()
    monkeypatch.setattr(loading, "measure_batch_size", lambda classifier, images: 128)
    again = compare(out=tmp_path / "run", batch_size=None, repeats=1)
    assert saved == []
    assert {model["batch_size"] for model in again.manifest["models"]} == {32}


# results do not depend on how they were computed ---------------------------------------------------------------------


def by_image(ev: Evaluation, images: NDArray[np.float32]) -> dict[tuple[Any, ...], tuple[Any, ...]]:
    """Every outcome by model, attack, repeat and the image itself."""
    outcomes = {}
    stacked = ev.dataset.isel(training_seed=0)
    for name in ("success", "l2", "adversarial_class", "queries"):
        values = stacked[name].transpose("model", "attack", "repeat", "image").values
        for place in np.ndindex(values.shape):
            image = images[int(ev.dataset.image[place[3]])].tobytes()
            outcomes.setdefault((*place[:3], image), {})[name] = values[place]  # type: ignore[arg-type]
    return outcomes  # type: ignore[return-value]


@pytest.mark.slow
@pytest.mark.parametrize("change", ["batch size 1", "batch size 7", "found", "reversed"])
def test_a_run_does_not_depend_on_the_batch_size_or_the_order(
    compare: Callable[..., Evaluation], digits: Dataset, change: str
) -> None:
    # Half the contrast: images that fall to single pixel, too.
    images = (digits.images * 0.5).astype(np.float32)
    n = 10 if change == "batch size 1" else 30
    whole = compare(images=images, n=n)
    changed: dict[str, Any] = {"images": images, "n": n}
    other_images = images
    if change == "reversed":
        other_images = np.ascontiguousarray(images[::-1])
        changed |= {"images": other_images, "labels": digits.labels[::-1]}
    elif change == "found":
        changed["batch_size"] = None
    else:
        changed["batch_size"] = int(change.rpartition(" ")[2])
    other = compare(**changed)
    expected, received = by_image(whole, images), by_image(other, other_images)
    assert expected.keys() == received.keys()
    parted = 0
    for key, outcome in expected.items():
        theirs: Any = received[key]
        ours: Any = outcome
        same = all(ours[name] == theirs[name] for name in ("success", "adversarial_class", "queries"))
        parted += not (same and np.isclose(ours["l2"], theirs["l2"], rtol=1e-6))
    assert parted <= 0.05 * len(expected)


# models --------------------------------------------------------------------------------------------------------------


def test_training_seeds(compare: Callable[..., Evaluation], zoo_model: Zoo) -> None:
    models = {"a": [zoo_model("torch", "lenet1"), zoo_model("jax", "lenet1")], "b": zoo_model("tensorflow", "lenet1")}
    ev = compare(models=models)
    assert ev.dataset.sizes["training_seed"] == 2
    assert ev.dataset.ran.sel(model="b").values.tolist() == [[True] * 3, [False] * 3]
    assert np.isnan(ev.success_rate.sel(model="b", training_seed=1)).all()
    expected = ev.success_rate.sel(model="a").mean(("training_seed", "repeat"))
    for attack in ev.results.attacks:
        assert ev.results.rates()["a"][attack] == pytest.approx(float(expected.sel(attack=attack)))


def test_foolbox_attacks_beside_ours(compare: Callable[..., Evaluation], tmp_path: Path, zoo_model: Zoo) -> None:
    path = tmp_path / "both.toml"
    path.write_text(
        '[attacks.fgsm]\nattack = "FGSM"\n'
        '[attacks.pgd]\nattack = "LinfPGD"\nepsilons = [0.03, 0.1]\nsteps = 20\nrandom_start = false\n',
        encoding="utf-8",
    )
    models = {name: zoo_model(name, "lenet1") for name in ("torch", "tensorflow", "jax")}
    state = np.random.get_state()  # noqa: NPY002
    ev = compare(models=models, suite=path, n=40, repeats=1)
    np.testing.assert_equal(np.random.get_state(), state)  # noqa: NPY002
    for model, rates in ev.results.rates().items():
        assert rates["pgd"] > 0, model
        assert rates["fgsm"] > 0, model
        assert float(ev.epsilon_curve.sel(model=model, attack="pgd", epsilon=0.1).item()) == rates["pgd"]
    assert (ev.dataset.queries.sel(attack="pgd") == -1).all()
    linf = ev.dataset.linf.sel(attack="pgd").values
    assert (linf[np.isfinite(linf)] <= 0.1 + 1e-6).all()


def test_foolbox_attacks_repeat_themselves(compare: Callable[..., Evaluation], tmp_path: Path, zoo_model: Zoo) -> None:
    path = tmp_path / "noise.toml"
    path.write_text('[attacks.noise]\nattack = "LinfAdditiveUniformNoiseAttack"\nepsilons = [2.0]\n', encoding="utf-8")
    for name in ("torch", "tensorflow", "jax"):
        models = {name: zoo_model(name, "lenet1")}
        a, b, other = (compare(models=models, suite=path, seed=seed, n=20) for seed in (0, 0, 1))
        np.testing.assert_array_equal(a.adversarials(name, "noise"), b.adversarials(name, "noise"))
        assert not np.array_equal(a.adversarials(name, "noise"), a.adversarials(name, "noise", repeat=1))
        assert not np.array_equal(a.adversarials(name, "noise"), other.adversarials(name, "noise"))


# what is refused -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"n": 0}, r"n should be 1 or more, received 0"),
        ({"repeats": -1}, "repeats should be 1 or more, received -1"),
        ({"repeats": {"boundary": 0}}, "repeats should be 1 or more, received 0"),
        ({"repeats": {"boundry": 2}}, "unknown attack 'boundry'.*did you mean 'boundary'"),
        ({"batch_size": 0}, "batch_size should be 1 or more, received 0"),
        ({"suite": "guo2018"}, "unknown suite 'guo2018': did you mean 'guo2019'"),
        ({"models": {}}, "expected at least one model, received none"),
        ({"models": {"a": []}}, "expected at least one model for 'a'"),
        ({"models": {"a": "lenet5"}}, "expected a Foolbox model, received str"),
        ({"images": np.zeros((0, 28, 28, 1), np.float32), "labels": np.zeros(0, np.int64)}, "at least one image"),
        ({"images": np.full((2, 28, 28, 1), np.nan, np.float32), "labels": np.zeros(2, np.int64)}, "hold NaN"),
        ({"images": np.full((2, 28, 28, 1), 255, np.float32), "labels": np.zeros(2, np.int64)}, "within the bounds"),
        ({"images": np.zeros((2, 28, 28), np.float32), "labels": np.zeros(2, np.int64)}, r"shape \(N, H, W, C\)"),
        ({"images": np.zeros((2, 28, 28, 1), np.float32), "labels": np.array([0, 10])}, "should be from 0 to 9"),
        ({"seed": 2**63}, "64-bit"),
    ],
)
def test_bad_input_is_refused_before_any_work(
    compare: Callable[..., Evaluation], tmp_path: Path, change: dict[str, Any], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        compare(out=tmp_path / "run", **change)
    assert not (tmp_path / "run").exists()


def test_models_that_cannot_be_compared(compare: Callable[..., Evaluation], digits: Dataset, tmp_path: Path) -> None:
    def always(answer: Any) -> Any:
        return fb.NumPyModel(
            lambda x: np.tile(np.asarray(answer, np.float32), (len(x), 1)), bounds=(0, 1), data_format="channels_last"
        )

    single_pixel = tmp_path / "pixel.toml"
    single_pixel.write_text('[attacks.pixel]\nattack = "SinglePixel"\n', encoding="utf-8")
    wrong = (digits.labels + 1) % 10
    with pytest.raises(ModelError, match="no image is classified correctly by all models"):
        compare(labels=wrong[digits.labels == 0][:5], images=digits.images[digits.labels == 0][:5])
    with pytest.raises(ModelError, match="returns probabilities"):
        compare(models={"a": always([1.0] + [0.0] * 9)}, suite=single_pixel)
    of_numpy = compare(models={"a": always([5.0] + [0.0] * 9)})
    assert "has no gradients" in of_numpy.results.reasons("not_applicable")["a"]["fgsm"]
    assert compare(models={"a": always([5.0] + [0.0] * 9)}, suite=single_pixel).results.rates() == {"a": {"pixel": 0.0}}


def test_one_attack_may_have_fewer_repeats(compare: Callable[..., Evaluation], zoo_model: Zoo, suite: Path) -> None:
    suite.write_text("repeats = 2\n" + SUITE, encoding="utf-8")
    ev = compare(models={"torch": zoo_model("torch", "lenet1")}, n=4, repeats={"boundary": 1})
    assert (ev.manifest["repeats"], find_own_repeats(ev.results)) == (2, {"boundary": 1})
    rates = ev.success_rate.sel(model="torch", training_seed=0)
    assert rates.sel(attack="boundary").isnull().values.tolist() == [False, True]
    assert rates.sel(attack="single_pixel").notnull().all()
    assert ev.results.rates()["torch"]["boundary"] == float(rates.sel(attack="boundary", repeat=0))
    assert math.isnan(ev.results.repeat_std("torch", "boundary"))
    with pytest.raises(UsageError, match="no repeat 1 of boundary"):
        ev.adversarials("torch", "boundary", repeat=1)


def test_margins_are_those_of_the_logits(
    compare: Callable[..., Evaluation], digits: Dataset, tmp_path: Path, zoo_model: Zoo
) -> None:
    models = {"jax": [zoo_model("jax", "lenet1", seed=s) for s in (0, 1)], "torch": [zoo_model("torch", "lenet1")]}
    ev = compare(models=models, n=60, suite={"fgsm": rc.attacks.FGSM(epsilons=1)}, out=tmp_path / "run")
    index = ev.dataset.image.values
    labels = digits.labels[index]
    for name, trainings in models.items():
        for margins, model in zip(ev.dataset.margin.sel(model=name).values, trainings, strict=False):
            logits = Classifier(model).logits(digits.images[index]).astype(np.float64)
            others = np.where(np.arange(10) == labels[:, None], -np.inf, logits)
            assert margins == pytest.approx(logits[np.arange(60), labels] - others.max(axis=1), abs=1e-4)
            assert (margins > 0).all()  # every model classifies these images correctly
    assert rc.open_run(tmp_path / "run").dataset.margin.identical(ev.dataset.margin)
    assert np.isnan(ev.dataset.margin.sel(model="torch", training_seed=1)).all()

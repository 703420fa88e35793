"""Repeats that are spread over the trainings of a model: each training has draws of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import robustcmp as rc
from robustcmp.attacks.suite import load_suite
from robustcmp.data.dataset import Dataset
from robustcmp.report.text import to_text
from robustcmp.sources.from_zoo import FromZoo, common_seeds, list_seeds

SUITE = """
images = 6
repeats = 4
[attacks.fgsm]
attack = "FGSM"
epsilons = 3
[attacks.pixel]
attack = "SinglePixel"
max_pixels = 30
exact = true
[attacks.boundary]
attack = "Boundary"
iterations = 5
max_directions = 2
"""
FRAMEWORKS = ("torch", "jax")


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    suite = tmp_path_factory.mktemp("spread") / "mine.toml"
    suite.write_text(SUITE, encoding="utf-8")
    data = rc.load_dataset("digits")
    models = {name: [FromZoo("lenet1", "digits", name, seed=seed) for seed in (3, 5, 8)] for name in FRAMEWORKS}
    return {
        "models": models,
        "images": data.images,
        "labels": data.labels,
        "suite": suite,
        "batch_size": 32,
        "progress": False,
    }


@pytest.fixture(scope="module")
def spread(asked: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> rc.Evaluation:
    return rc.evaluate(**asked, spread_repeats=True, out=tmp_path_factory.mktemp("spread") / "run")


def test_each_training_has_draws_of_its_own(spread: rc.Evaluation) -> None:
    """Four repeats over three trainings are two on each, six in all."""
    drawn: dict[tuple[str, int, str], list[int]] = {}
    for cell in spread.manifest["cells"]:
        drawn.setdefault((cell["model"], cell["training_seed"], cell["attack"]), []).append(cell["repeat"])
    for framework in FRAMEWORKS:
        for attack in ("pixel", "boundary"):
            assert [drawn[framework, seed, attack] for seed in (3, 5, 8)] == [[0, 1], [2, 3], [4, 5]]
        assert [drawn[framework, seed, "fgsm"] for seed in (3, 5, 8)] == [[0], [0], [0]]
    assert spread.manifest["spread"]
    assert [spread.results.repeats(attack) for attack in spread.results.attacks] == [2, 2, 2]
    assert dict(spread.dataset.sizes)["repeat"] == 2
    assert spread.dataset.ran.all()
    assert "2 repeats per training, each with its own draws" in " ".join(to_text(spread.results).split())


@pytest.mark.slow
def test_its_outcomes_are_those_of_the_same_draws(spread: rc.Evaluation, asked: dict[str, Any]) -> None:
    """A training's n-th repeat is the draw of that number, whatever the others have."""
    drawn_by_all = rc.evaluate(**(asked | {"suite": load_suite(asked["suite"]).only_draws()}), repeats=6)
    for place, seed in enumerate((3, 5, 8)):
        for attack in spread.results.attacks:
            own = spread.dataset.sel(training_seed=seed, attack=attack)
            all_draws = drawn_by_all.dataset.sel(training_seed=seed, attack=attack)
            first = 2 * place
            for name in ("success", "l2", "adversarial_class", "queries"):
                np.testing.assert_array_equal(own[name].values, all_draws[name].values[:, first : first + 2])


def test_images_and_repeats_of_a_training_count_from_its_first(spread: rc.Evaluation) -> None:
    opened = rc.open_run(spread.results.run.directory)
    assert opened.dataset.identical(spread.dataset)
    images = opened.adversarials("torch", "boundary", training_seed=5, repeat=1)
    fell = opened.dataset.success.sel(model="torch", attack="boundary", training_seed=5, repeat=1).values
    classes = rc.predict(rc.load_model("lenet1", framework="torch", dataset="digits", seed=5), images)
    np.testing.assert_array_equal((classes != opened.dataset.label.values), fell)
    with pytest.raises(rc.RobustcmpError, match="has no repeat 2 of boundary"):
        opened.adversarials("torch", "boundary", training_seed=5, repeat=2)


def test_one_training_has_all_repeats(asked: dict[str, Any]) -> None:
    models = {name: origins[:1] for name, origins in asked["models"].items()}
    ev = rc.evaluate(**(asked | {"models": models}), spread_repeats=True, repeats=2)
    assert not ev.manifest["spread"]
    assert ev.results.repeats("boundary") == 2
    assert ev.exact_pixel.attacks == ["pixel"]


def test_seeds_that_every_framework_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, digits: Dataset) -> None:
    assert common_seeds("lenet5", "digits", ["torch", "tensorflow", "jax"]) == list(range(10))
    assert common_seeds("lenet5", "mnist", ["torch", "theano"]) == list(range(5))
    assert common_seeds("vgg16", "cifar10", ["torch"]) == [0]  # there are none: the error says how to train it
    monkeypatch.setattr("robustcmp.sources.from_zoo.weights_directory", lambda: tmp_path)
    (tmp_path / "lenet5-mnist-theano-default-7.h5").touch()
    (tmp_path / "lenet5-mnist-theano-default-0.checkpoint.h5").touch()
    assert list_seeds("lenet5", "mnist", "theano") == [0, 1, 2, 3, 4, 7]

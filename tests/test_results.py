"""The figures of a run, read again from its outcomes, and the tables that show them."""

from __future__ import annotations

import copy
import json
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import foolbox as fb
import msgspec
import numpy as np
import pytest
from numpy.typing import NDArray

import robustcmp as rc
from robustcmp.analysis.figures import find_failed_starts
from robustcmp.analysis.outcomes import Outcomes, split_variance
from robustcmp.analysis.results import Results
from robustcmp.analysis.statistics.intervals import bootstrap_interval, wilson_interval
from robustcmp.analysis.verdicts import find_within_noise
from robustcmp.data.dataset import Dataset
from robustcmp.errors import ModelError, UsageError
from robustcmp.models.model import Classifier, Model
from robustcmp.records.manifest import FORMAT
from robustcmp.report.format import points as written_points
from robustcmp.report.layout import Table
from robustcmp.report.tables import tables
from robustcmp.report.text import to_markdown, to_text
from robustcmp.report.words import notes

BATCH = 32
ZooModel = Callable[..., Model]

# every attack on trained models

ALL = """
[attacks.fgsm]
attack = "FGSM"
epsilons = 10
max_epsilon = 0.1
[attacks.single_pixel]
attack = "SinglePixel"
max_pixels = 30
[attacks.boundary]
attack = "Boundary"
iterations = 10
max_directions = 2
[attacks.pgd]
attack = "LinfPGD"
epsilons = [0.1, 0.025, 0.05]
steps = 4
rel_stepsize = 0.3
"""


@pytest.fixture(scope="module")
def trained(zoo_model: ZooModel) -> dict[str, list[Model]]:
    """Two trainings of one name and one of another: two networks stand in for two training seeds."""
    return {
        "both": [zoo_model("torch", "lenet1"), zoo_model("torch", "lenet5")],
        "torch": [zoo_model("torch", "lenet1", seed=1)],
    }


@pytest.fixture(scope="module")
def real(trained: dict[str, list[Model]], digits: Dataset, tmp_path_factory: pytest.TempPathFactory) -> rc.Evaluation:
    """Every attack on trained models."""
    directory = tmp_path_factory.mktemp("real")
    (directory / "all.toml").write_text(ALL)
    return rc.evaluate(
        trained,
        digits.images,
        digits.labels,
        suite=directory / "all.toml",
        n=6,
        repeats=2,
        seed=3,
        out=directory / "run",
        batch_size=BATCH,
        progress=False,
        about={"model": "lenet1", "dataset": "digits", "recipe": "default"},
    )


def cells(ev: Results) -> list[tuple[str, int, str, int]]:
    """All (model, training seed, attack, repeat) that ran."""
    return [
        (model, seed, attack, repeat)
        for model in ev.models
        for seed in ev.dataset.training_seed.values.tolist()
        for attack in ev.attacks
        for repeat in range(ev.manifest["repeats"])
        if ev.dataset.ran.sel(model=model, training_seed=seed, attack=attack)
    ]


def test_dimensions_and_dtypes(real: rc.Evaluation, digits: Dataset) -> None:
    data = real.dataset
    assert dict(data.sizes) == {
        "model": 2,
        "training_seed": 2,
        "attack": 4,
        "repeat": 2,
        "image": 6,
        "epsilon": len(data.epsilon),
    }
    per_image = {"success": bool, "l0": float, "l2": float, "linf": float, "adversarial_class": int, "queries": int}
    extras = ("smallest_epsilon", "start", "source_step", "spherical_step", "l2_half")
    for name, dtype in (per_image | dict.fromkeys(extras, float)).items():
        assert data[name].dims == ("model", "training_seed", "attack", "repeat", "image")
        assert data[name].dtype == np.dtype(dtype), name
    assert data.ran.dims == ("model", "training_seed", "attack")
    assert data.epsilon_curve.dims == ("model", "training_seed", "attack", "epsilon")
    assert data.model.values.tolist() == real.results.models == ["both", "torch"]
    assert data.attack.values.tolist() == real.results.attacks == ["fgsm", "single_pixel", "boundary", "pgd"]
    assert data.training_seed.values.tolist() == [0, 1]
    assert data.repeat.values.tolist() == [0, 1]
    np.testing.assert_array_equal(data.label, digits.labels[data.image])


def test_unequal_numbers_of_trainings(real: rc.Evaluation) -> None:
    assert real.dataset.ran.sel(model="both").values.all()
    assert real.dataset.ran.sel(model="torch", training_seed=0).values.all()
    missing = real.dataset.sel(model="torch", training_seed=1)
    assert not missing.ran.values.any()
    assert np.isnan(missing.l2).all()
    assert np.isnan(missing.epsilon_curve).all()
    assert np.isnan(real.success_rate.sel(model="torch", training_seed=1)).all()
    with pytest.raises(UsageError, match="the run has no repeat 0 of fgsm on torch, training seed 1"):
        real.adversarials("torch", "fgsm", training_seed=1)


def test_the_success_rate_is_counted(real: rc.Evaluation) -> None:
    rate = real.success_rate
    assert rate.dims == ("model", "training_seed", "attack", "repeat")
    assert rate.name == "success_rate"
    for model, seed, attack, repeat in cells(real.results):
        where = {"model": model, "training_seed": seed, "attack": attack, "repeat": repeat}
        assert float(rate.sel(where)) == np.count_nonzero(real.dataset.success.sel(where)) / 6
    assert int(np.isfinite(rate).sum()) == len(cells(real.results)) == (2 + 1) * 4 * 2


def test_rounding_noise_decides_no_digit() -> None:
    for value in (0.0245, np.nextafter(0.0245, 0), np.nextafter(0.0245, 1)):
        assert written_points(value) == written_points(0.0245) == "2.5"
    assert [written_points(value) for value in (0.0124, -0.0012, 0.0, 0.00994)] == ["1.2", "-0.12", "0.0", "0.99"]


def test_rates_are_means_over_trainings_and_repeats(real: rc.Evaluation) -> None:
    rates = real.results.rates()
    for attack in real.results.attacks:
        success = real.dataset.success.sel(attack=attack)
        assert rates["both"][attack] == np.count_nonzero(success.sel(model="both")) / (2 * 2 * 6)
        assert rates["torch"][attack] == np.count_nonzero(success.sel(model="torch", training_seed=0)) / (2 * 6)
    assert real.indicator == rc.robustness_indicator(rates)
    assert 0 < rates["both"]["fgsm"] < 1  # else little is tested here
    assert rates["both"]["boundary"] == rates["torch"]["boundary"] == 1


def test_a_deterministic_attack_is_one_cell_for_all_repeats(real: rc.Evaluation) -> None:
    repeats: dict[str, set[int]] = {attack: set() for attack in real.results.attacks}
    for cell in real.manifest["cells"]:
        repeats[cell["attack"]].add(cell["repeat"])
    assert repeats == {"fgsm": {0}, "single_pixel": {0, 1}, "boundary": {0, 1}, "pgd": {0, 1}}
    assert [attack for attack in real.results.attacks if real.results.attack_records[attack].deterministic] == ["fgsm"]
    fgsm = real.dataset.sel(attack="fgsm").drop_vars("ran")
    assert fgsm.sel(repeat=0).drop_vars("repeat").identical(fgsm.sel(repeat=1).drop_vars("repeat"))
    boundary = real.dataset.l2.sel(attack="boundary", model="torch", training_seed=0)
    assert (boundary.sel(repeat=0).values != boundary.sel(repeat=1).values).any()


def test_the_adversarial_images_fool_and_lie_where_it_is_said(
    real: rc.Evaluation, trained: dict[str, list[Model]], digits: Dataset
) -> None:
    index = real.dataset.image.values
    clean, labels = digits.images[index], digits.labels[index]
    for model, seed, attack, repeat in cells(real.results):
        outcome = real.dataset.sel(model=model, training_seed=seed, attack=attack, repeat=repeat)
        images = real.adversarials(model, attack, training_seed=seed, repeat=repeat)
        success = outcome.success.values
        assert images.dtype == np.float32
        assert images.shape == clean.shape
        assert 0 <= images.min() <= images.max() <= 1
        np.testing.assert_array_equal(images[~success], clean[~success])
        classes = np.full(len(index), -1)
        classes[success] = Classifier(trained[model][seed], BATCH).predict(images[success])
        np.testing.assert_array_equal(outcome.adversarial_class, classes)
        assert (classes[success] != labels[success]).all()
        change = images.astype(np.float64) - clean
        l2 = np.sqrt((change**2).sum(axis=(1, 2, 3)))
        for name, distance in (
            ("l0", (change != 0).any(axis=3).sum(axis=(1, 2))),
            ("l2", l2),
            ("linf", np.abs(change).max(axis=(1, 2, 3))),
        ):
            np.testing.assert_allclose(outcome[name], np.where(success, distance, np.inf), rtol=1e-12)


def test_what_only_one_attack_has(real: rc.Evaluation) -> None:
    ran = real.dataset.ran
    for name, owner in (
        ("smallest_epsilon", "fgsm"),
        ("start", "boundary"),
        ("source_step", "boundary"),
        ("spherical_step", "boundary"),
        ("l2_half", "boundary"),
    ):
        known = real.dataset[name].notnull()
        for attack in real.results.attacks:
            expected = ran.sel(attack=attack) if attack == owner else ran.sel(attack=attack) & False
            assert (known.sel(attack=attack) == expected).all(), (name, attack)
    fgsm = real.dataset.sel(attack="fgsm", model="both")
    # The grid's ε is the distance, but for what the bounds cut off.
    assert (fgsm.linf <= fgsm.smallest_epsilon + 1e-6).all()
    assert (np.isfinite(fgsm.smallest_epsilon) == fgsm.success).all()
    walk = real.dataset.sel(attack="boundary", model="both")
    assert (walk.l2 <= walk.l2_half + 1e-9).all()


def test_the_epsilon_curve_of_fgsm_is_success_at_each_epsilon(real: rc.Evaluation) -> None:
    curve = real.epsilon_curve.sel(attack="fgsm")
    smallest = real.dataset.smallest_epsilon.sel(attack="fgsm", repeat=0)
    grid = [0.1 * k / 10 for k in range(1, 11)]
    for epsilon in real.dataset.epsilon.values:
        at = curve.sel(epsilon=epsilon)
        if epsilon in grid:
            expected = (smallest <= epsilon).mean("image").where(real.dataset.ran.sel(attack="fgsm"))
            np.testing.assert_array_equal(at, expected)
        else:
            assert np.isnan(at).all()
    on_grid = curve.sel(epsilon=grid, training_seed=0)
    assert (on_grid.diff("epsilon") >= 0).all()
    assert float(on_grid.min()) < float(on_grid.max())
    np.testing.assert_array_equal(on_grid.isel(epsilon=-1), real.success_rate.sel(attack="fgsm").isel(repeat=0)[:, 0])


def test_intervals(real: rc.Evaluation) -> None:
    data = real.dataset
    hits = int(data.success.sel(model="torch", attack="fgsm", training_seed=0, repeat=0).sum())
    assert real.results.interval("torch", "fgsm") == wilson_interval(hits, 6)
    # Two trainings, or an attack with draws: the bootstrap of the images' means.
    means = data.success.sel(model="both", attack="fgsm").mean(["training_seed", "repeat"]).values
    assert real.results.interval("both", "fgsm") == bootstrap_interval(means)
    assert real.results.interval("both", "fgsm") != wilson_interval(int(means.sum()), 6)
    assert real.results.interval("both", "boundary") == wilson_interval(6, 6)
    for model in real.results.models:
        for attack in real.results.attacks:
            low, high = real.results.interval(model, attack)
            assert low <= real.results.rates()[model][attack] <= high


def test_the_summary(real: rc.Evaluation) -> None:
    summary = real.to_json()
    assert summary["success_rate"] == real.results.rates()
    assert summary["indicator"] == real.indicator
    assert summary["frameworks"] == ["both", "torch"]
    assert summary["training_seeds"] == [0, 1]
    assert (summary["images"], summary["repeats"], summary["seed"], summary["suite"]) == (6, 2, 3, "all")
    assert (summary["model"], summary["dataset"], summary["recipe"]) == ("lenet1", "digits", "default")
    assert summary["clean_accuracy"] == real.results.clean_accuracy
    assert summary["correct_by_all"] == real.manifest["images"]["correct_by_all"]
    assert summary["out"] == str(real.results.run.directory)
    assert summary["success_std"]["torch"]["fgsm"] == 0.0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("bothh", "fgsm"), r"unknown model 'bothh': did you mean 'both'\?"),
        (("both", "fgms"), r"unknown attack 'fgms': did you mean 'fgsm'\?"),
    ],
)
def test_a_cell_that_is_not_there(real: rc.Evaluation, arguments: tuple[str, str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        real.adversarials(*arguments)
    with pytest.raises(UsageError, match="the run has no repeat 2 of boundary on torch, training seed 0"):
        real.adversarials("torch", "boundary", repeat=2)


def test_training_seeds_in_any_order_stay_with_their_images(
    trained: dict[str, list[Model]], digits: Dataset, tmp_path: Path
) -> None:
    # A seed is known by what the model says of itself, not by its place in the list.
    def known(model: Model, seed: int) -> Model:
        model = copy.copy(model)
        model.info = {"training_seed": seed}
        return model

    first, second = trained["both"]
    (tmp_path / "fgsm.toml").write_text('[attacks.fgsm]\nattack = "FGSM"\nepsilons = 4\n')
    ev = rc.evaluate(
        {"both": [known(first, 9), known(second, 2)]},
        digits.images,
        digits.labels,
        suite=tmp_path / "fgsm.toml",
        n=6,
        repeats=1,
        batch_size=BATCH,
        progress=False,
    )
    assert ev.dataset.training_seed.values.tolist() == [2, 9]
    for seed, model in ((9, first), (2, second)):
        outcome = ev.dataset.sel(model="both", training_seed=seed, attack="fgsm", repeat=0)
        images = ev.adversarials("both", "fgsm", training_seed=seed)[outcome.success.values]
        np.testing.assert_array_equal(
            rc.predict(model, images), outcome.adversarial_class.values[outcome.success.values]
        )
    np.testing.assert_array_equal(ev.adversarials("both", "fgsm"), ev.adversarials("both", "fgsm", training_seed=2))


# planted models, whose every vulnerable pixel is known

SIDE, N = 8, 24
PLANTED = """
[attacks.exact]
attack = "SinglePixel"
max_pixels = 12
exact = true
[attacks.drawn]
attack = "SinglePixel"
max_pixels = 12
[attacks.walk]
attack = "Boundary"
iterations = 3
max_directions = 1
"""


def region(columns: int, threshold: float) -> fb.NumPyModel:
    """Class 0 where the first columns are bright together: every pixel of noise, so class 0 has no start."""

    def logits(x: NDArray[Any]) -> NDArray[np.float32]:
        gap = x[:, :, :columns, 0].sum(axis=(1, 2)) - np.float32(threshold)
        return np.stack([gap, -gap], axis=1)

    return fb.NumPyModel(logits, bounds=(0, 1))


def corner() -> fb.NumPyModel:
    """Class 0 where the last pixel is bright: one vulnerable pixel, and a start for every image."""

    def logits(x: NDArray[Any]) -> NDArray[np.float32]:
        gap = x[:, -1, -1, 0] - np.float32(0.3)
        return np.stack([gap, -gap], axis=1)

    return fb.NumPyModel(logits, bounds=(0, 1))


MODELS = {"region": [region(2, 1.5), region(2, 1.2)], "corner": [corner()]}
LABELS = np.arange(N) % 2
IMAGES = np.full((N, SIDE, SIDE, 1), 0.5, np.float32)
IMAGES[1::2] = 0
_random = np.random.default_rng(8)
IMAGES[1::2, :, :2] = _random.random((N // 2, SIDE, 2, 1))
# Their sums are from 0.3 to 1.15, so that between no pixel and all of the region are vulnerable.
IMAGES[1::2, :, :2] *= (np.linspace(0.3, 1.15, N // 2) / IMAGES[1::2, :, :2].sum(axis=(1, 2, 3)))[:, None, None, None]


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> rc.Evaluation:
    """Attacks that need no gradient, on models whose weak points are known."""
    directory = tmp_path_factory.mktemp("planted")
    (directory / "planted.toml").write_text(PLANTED)
    return rc.evaluate(
        MODELS,
        IMAGES,
        LABELS,
        suite=directory / "planted.toml",
        n=100,
        repeats=4,
        out=directory / "run",
        batch_size=64,
        progress=False,
    )


def test_the_expected_success_rate_is_exact(planted: rc.Evaluation) -> None:
    rate, sd = planted.exact_pixel.success_rate, planted.exact_pixel.success_sd
    for result in (rate, sd):
        assert result.dims == ("model", "training_seed", "attack")
        assert np.isnan(result.sel(attack=["drawn", "walk"])).all()
        assert np.isnan(result.sel(model="corner", training_seed=1)).all()
    everything = math.comb(64, 12)
    for name, its in MODELS.items():
        for seed in range(len(its)):
            where = {"model": name, "training_seed": seed, "attack": "exact"}
            k = planted.dataset.vulnerable_pixels.sel(where).isel(repeat=0).values.astype(int)
            falls = [1 - math.comb(64 - int(count), 12) / everything for count in k]
            assert float(rate.sel(where)) == pytest.approx(sum(falls) / N, abs=1e-12)
            assert float(sd.sel(where)) == pytest.approx(math.sqrt(sum(p * (1 - p) for p in falls)) / N, abs=1e-12)
    assert float(rate.sel(model="corner", training_seed=0, attack="exact")) == pytest.approx(12 / 64, abs=1e-12)


def weak(model: fb.NumPyModel, image: NDArray[np.float32], label: int) -> NDArray[np.bool_]:
    """Which pixels fool a model when they are set to 0 or to 1."""
    candidates = np.repeat(image.reshape(1, 1, -1), 2 * SIDE * SIDE, axis=1).reshape(SIDE * SIDE, 2, SIDE * SIDE)
    for position in range(SIDE * SIDE):
        candidates[position, :, position] = 0, 1
    return (model(candidates.reshape(-1, SIDE, SIDE, 1)).argmax(axis=1) != label).reshape(-1, 2).any(axis=1)


def test_two_models_under_the_same_draws(planted: rc.Evaluation) -> None:
    found = planted.exact_pixel.common_draws("exact", "region", "corner")
    maps = [
        np.array([weak(MODELS[name][0], image, label) for image, label in zip(IMAGES, LABELS, strict=True)])
        for name in ("region", "corner")
    ]
    rng = np.random.default_rng(5)
    draws = np.array([[rng.permutation(SIDE * SIDE)[:12] for _ in range(N)] for _ in range(4000)])
    falls = [np.array([its[np.arange(N)[:, None], draw].any(axis=1) for draw in draws]) for its in maps]
    difference = falls[0].mean(axis=1) - falls[1].mean(axis=1)
    assert difference.std() == pytest.approx(found.sd, rel=0.1)
    assert difference.mean() == pytest.approx(found.difference, abs=4 * found.sd / math.sqrt(4000))
    for expected, share in (
        (found.both, falls[0] & falls[1]),
        (found.only_a, falls[0] & ~falls[1]),
        (found.only_b, ~falls[0] & falls[1]),
    ):
        assert share.mean() == pytest.approx(expected, abs=4 * share.std() / math.sqrt(4000 * N) + 1e-12)
    assert planted.exact_pixel.common_draws("exact", "corner", "corner") == (0, 0, pytest.approx(12 / 64), 0, 0)
    with pytest.raises(UsageError, match="exact = true, received drawn"):
        planted.exact_pixel.common_draws("drawn", "region", "corner")


def test_tests_and_variances_are_about_the_expectation_where_it_is_known(planted: rc.Evaluation) -> None:
    """And about the draws that were made where it is not."""
    expected, drawn = planted.results.outcomes[:2]
    rate = planted.exact_pixel.success_rate.sel(attack="exact")
    assert expected.rates["region"] == pytest.approx(rate.sel(model="region").values)
    assert drawn.expected is None
    assert drawn.rates["region"] == pytest.approx(
        planted.success_rate.sel(model="region", attack="drawn").mean("repeat")
    )
    assert planted.exact_pixel.attacks == ["exact"]

    tests = planted.tests("models").set_index(["attack", "a", "b"])
    difference = float(rate.sel(model="region", training_seed=0) - rate.sel(model="corner", training_seed=0))
    assert tests.effect["exact", "region/0", "corner/0"] == pytest.approx(difference)
    drawn_difference = drawn.rates["region"][0] - drawn.rates["corner"][0]
    assert tests.effect["drawn", "region/0", "corner/0"] == pytest.approx(drawn_difference)
    assert abs(difference - drawn_difference) > 1e-3

    ends = planted.trainings.difference_interval("exact", "region", "region")
    assert ends.low < 0 < ends.high


def test_the_variance_of_repeats_is_exact_where_the_expectation_is_known() -> None:
    """Two rates of five draws each, over 20,000 such runs: their variance, which the formula gives without a draw."""
    p = np.random.default_rng(0).random((2, 2, 30))
    fell = np.random.default_rng(1).random((20_000, 2, 2, 5, 30)) < p[:, :, None]
    rates = fell.mean(axis=(3, 4))
    its = Outcomes("x", False, {"a": fell[0, 0], "b": fell[0, 1]}, {"a": [0, 1], "b": [0, 1]}, {"a": p[0], "b": p[1]})
    [row] = split_variance([its]).to_dict("records")
    assert row["repeat"] == pytest.approx(rates.var(axis=0).mean(), rel=0.03)
    assert row["image"] == pytest.approx(p.var(axis=2, ddof=1).mean() / 30)


def test_without_exact_nothing_is_expected(real: rc.Evaluation) -> None:
    for name in ("success_rate", "success_sd"):
        with pytest.raises(UsageError, match="exact = true in the suite"):
            getattr(real.exact_pixel, name)
    with pytest.raises(UsageError, match="exact = true, received single_pixel"):
        real.exact_pixel.common_draws("single_pixel", *real.results.models)


def test_deviations_over_repeats_and_trainings(planted: rc.Evaluation) -> None:
    rates = planted.dataset.success.sel(attack="drawn").mean("image").values  # (model, training seed, repeat)
    assert planted.results.repeat_std("corner", "drawn") == pytest.approx(np.std(rates[1, 0], ddof=1))
    within = np.sqrt(np.mean([np.var(rates[0, seed], ddof=1) for seed in range(2)]))
    assert planted.results.repeat_std("region", "drawn") == pytest.approx(within)
    assert within > 0
    assert planted.trainings.std("region", "drawn") == pytest.approx(np.std(rates[0].mean(axis=1), ddof=1))
    assert planted.trainings.std("region", "drawn") > 0
    assert math.isnan(planted.trainings.std("corner", "drawn"))


def test_a_deviation_over_one_repeat_is_nothing(tmp_path: Path) -> None:
    (tmp_path / "x.toml").write_text(PLANTED)
    ev = rc.evaluate(
        {"corner": corner()}, IMAGES, LABELS, suite=tmp_path / "x.toml", n=4, repeats=1, batch_size=64, progress=False
    )
    assert math.isnan(ev.results.repeat_std("corner", "drawn"))
    assert ev.to_json()["success_std"] == {"corner": {"exact": None, "drawn": None, "walk": None}}
    assert {row[4] for row in tables(ev.results)[0].written} == {"–"}
    assert ev.success_rate.dims == ("model", "training_seed", "attack", "repeat")
    assert ev.success_rate.shape == (1, 1, 3, 1)
    # One model alone has nobody to be compared with.
    assert ev.indicator == {"corner": 0.0}
    assert any("Only one model" in note for note in notes(ev.results))


def test_quantiles_and_budgets_count_failures_as_infinite(planted: rc.Evaluation) -> None:
    for model, trainings in (("region", 2), ("corner", 1)):
        values = np.sort(planted.dataset.l2.sel(model=model, attack="walk").values[:trainings].ravel())
        assert np.isinf(values).any() == (model == "region")
        for q in (0.0, 0.25, 0.5, 0.9, 1.0):
            expected = values[math.ceil(q * (len(values) - 1))]
            assert planted.distances.quantile(model, "walk", q=q) == expected
        for budget in (0.0, 0.2, 1.0, 2.0, 100.0):
            assert planted.distances.success_within(model, "walk", budget) == np.count_nonzero(values <= budget) / len(
                values
            )
    assert planted.distances.success_within("region", "walk", 1e9) == planted.results.rates()["region"]["walk"] < 1
    assert planted.distances.quantile("corner", "drawn", "l0") == math.inf
    assert planted.distances.success_within("corner", "drawn", 1, "l0") == planted.results.rates()["corner"]["drawn"]


# starts that fail


def test_an_image_without_a_start_is_that_images_failure(planted: rc.Evaluation) -> None:
    walk = planted.dataset.sel(model="region", attack="walk")
    dark = LABELS[planted.dataset.image.values] == 1
    np.testing.assert_array_equal(walk.start.values, np.broadcast_to(dark, walk.start.shape))
    np.testing.assert_array_equal(walk.success.values, walk.start.values.astype(bool))
    assert np.isinf(walk.l2.values[..., ~dark]).all()
    assert (walk.adversarial_class.values[..., ~dark] == -1).all()
    # 1,000 draws and 1,000 blends, and nothing after that.
    assert (walk.queries.values[..., ~dark] == 2000).all()
    assert find_failed_starts(planted.results) == ["walk"]


def test_a_failed_start_is_marked_and_r_is_given_without_it(planted: rc.Evaluation) -> None:
    assert any(note.startswith("walk: some images have no starting point") for note in notes(planted.results))
    table = tables(planted.results)[1]
    assert list(table.names)[:5] == ["model", "R", "bootstrap range", "rank 1 / 2", "R without walk"]
    ranks = [
        [f"{100 * share:.0f}" for share in planted.indicator_ranges[model].ranks] for model in planted.results.models
    ]
    assert column(table, "rank 1 / 2") == [" / ".join(its) + " %" for its in ranks]
    without = rc.robustness_indicator(
        {model: {a: rate for a, rate in its.items() if a != "walk"} for model, its in planted.results.rates().items()}
    )
    assert column(table, "R without walk") == [f"{without[model]:.3f}" for model in planted.results.models]
    assert without != planted.indicator


# tables


def column(table: Table, name: str) -> list[str]:
    place = list(table.names).index(name)
    return [row[place] for row in table.written]


def test_one_framework_alone_with_several_trainings(tmp_path: Path) -> None:
    """Its trainings are compared as models, and nothing is said of one training beside several."""
    (tmp_path / "planted.toml").write_text(PLANTED)
    models = {"region": MODELS["region"]}
    ev = rc.evaluate(models, IMAGES, LABELS, suite=tmp_path / "planted.toml", n=100, repeats=2, progress=False)
    said = notes(ev.results)
    assert "Only one framework: P and R are 0, and the pairs compare its trainings." in said
    assert not any("one training" in note for note in said)
    (pairs,) = (table for table in tables(ev.results) if table.title.startswith("Differences between"))
    assert {tuple(row[1:3]) for row in pairs.written} == {("region/0", "region/1")}
    assert find_within_noise(ev.results)
    with pytest.raises(UsageError, match="at least two frameworks"):
        ev.variance()


def test_text_holds_every_cell(real: rc.Evaluation) -> None:
    text = to_text(real.results)
    assert text.startswith("lenet1 on digits, suite all\n")
    assert "\x1b" not in text
    assert "\x1b[" in to_text(real.results, color=True)
    text = to_text(real.results, width=200)
    for table in tables(real.results):
        assert table.title in text
        for row in table.written:
            assert any(re.findall(r"\S+", " ".join(row)) == line.split() for line in text.splitlines()), row


def test_markdown_tables_are_whole(real: rc.Evaluation) -> None:
    blocks = to_markdown(real.results).split("\n\n")
    drawn = [block.splitlines() for block in blocks if block.startswith("|")]
    assert len(drawn) == len(tables(real.results))
    for lines, table in zip(drawn, tables(real.results), strict=True):
        assert f"**{table.title}**" in blocks
        rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
        assert rows[0] == list(table.names)
        assert all(re.fullmatch(r"---:?", cell) for cell in rows[1])
        assert len(rows[1]) == len(rows[0])
        assert rows[2:] == [list(row) for row in table.written]
    assert blocks[-1].splitlines() == [f"- {note}" for note in notes(real.results)]


# what cannot be run


def test_an_attack_of_foolboxs_that_cannot_run_is_one_error(tmp_path: Path) -> None:
    (tmp_path / "x.toml").write_text('[attacks.x]\nattack = "DatasetAttack"\n')
    with pytest.raises(ModelError, match=r"Foolbox's DatasetAttack cannot attack a model of numpy: ValueError: "):
        rc.evaluate({"a": corner()}, IMAGES, LABELS, suite=tmp_path / "x.toml", n=2, batch_size=8, progress=False)


RUNS = Path(__file__).parents[1] / "docs" / "results"


@pytest.mark.parametrize("run", sorted(path.parent.relative_to(RUNS).as_posix() for path in RUNS.glob("**/results.h5")))
def test_published_runs_open_with_what_their_attacks_are(run: str) -> None:
    stored = json.loads((RUNS / run / "manifest.json").read_text(encoding="utf-8"))
    ev = rc.open_run(RUNS / run)
    assert ev.manifest["format"] == FORMAT
    for name, said in stored["suite"]["attacks"].items():
        record = ev.results.attack_records[name]
        if said["class"] == "Ensemble":  # of runs from before AutoAttack
            continue
        expected = getattr(rc.attacks, said["class"])(**said["settings"]).record
        # The semantics are those of the run; all else is what the class says today.
        assert msgspec.structs.replace(record, semantics=expected.semantics) == expected
        assert record.semantics == said["semantics"]

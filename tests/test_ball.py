"""The reference attacks: within the ball, counted exactly, repeatable, on all images, and beside R."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import reference as ref
from conftest import CAPABILITIES
from scipy.optimize import linprog, minimize

import robustcmp as rc
from robustcmp.attacks import (
    APGD,
    APGDTargeted,
    Attack,
    AttackResult,
    AutoAttack,
    FABTargeted,
    MinimumL2,
    MinimumLinf,
    Square,
)
from robustcmp.attacks.apgd import _dlr
from robustcmp.attacks.ball import BallAttack
from robustcmp.attacks.gradients import cross_entropy, margin
from robustcmp.attacks.square import _bumps, _square_side
from robustcmp.attacks.suite import Suite, load_suite
from robustcmp.attacks.targeted import _project_onto_plane, _rank_other_classes, _targeted_dlr, _targeted_margin
from robustcmp.data.dataset import Dataset
from robustcmp.errors import ModelError, UsageError
from robustcmp.frameworks import TrainableFramework
from robustcmp.models.classifier import Classifier
from robustcmp.models.model import Model
from robustcmp.records.attack import Norm
from robustcmp.report.page import to_html
from robustcmp.report.text import summary

EPSILON, EPSILON_L2 = 0.05, 0.5
SUITE = Path(__file__).parents[1] / "attacks/reference.toml"
BALL: list[Attack] = [
    APGD(loss="ce", epsilon=EPSILON, steps=10, restarts=2),
    APGD(loss="dlr", epsilon=EPSILON, steps=10, restarts=2),
    Square(epsilon=EPSILON, iterations=120),
    APGDTargeted(epsilon=EPSILON, steps=10, targets=3),
    FABTargeted(epsilon=EPSILON, steps=10, targets=3),
    APGD(loss="ce", epsilon=EPSILON_L2, steps=10, restarts=2, norm="l2"),
    APGDTargeted(epsilon=EPSILON_L2, steps=10, targets=3, norm="l2"),
    FABTargeted(epsilon=EPSILON_L2, steps=10, targets=3, norm="l2"),
    Square(epsilon=EPSILON_L2, iterations=120, norm="l2"),
]
NEAREST: list[Attack] = [MinimumL2(steps=40), MinimumLinf(steps=40)]


class Short(AutoAttack):
    """AutoAttack with a few steps."""

    @property
    def parts(self) -> tuple[BallAttack, ...]:
        return (
            APGD(loss="ce", epsilon=self.epsilon, steps=2, restarts=1),
            APGDTargeted(epsilon=self.epsilon, steps=3, targets=2),
            FABTargeted(epsilon=self.epsilon, steps=3, targets=2),
            Square(epsilon=self.epsilon, iterations=20),
        )


Zoo = Callable[..., Model]
UNIT = (0.0, 1.0)
# How far smallest distances may be apart, relative to themselves. Where a framework has a rule of its own for equal
# values in a pool's window, which the flat background of an image has, the gradients of the first steps differ.
ALIKE, OWN_RULE = 1e-4, 0.02
NEAR_TIE = 1e-4  # the margin of the top two logits below which floating point may decide


def name(attack: Attack) -> str:
    return f"{type(attack).__name__}{getattr(attack, 'loss', '')}{'-l2' if attack.norm == 'l2' else ''}"


@pytest.mark.parametrize("loss", [margin, _dlr, cross_entropy])
def test_gradients_of_losses_are_their_slopes(loss: Callable[..., tuple[np.ndarray, np.ndarray]]) -> None:
    rng = np.random.default_rng(0)
    z = rng.normal(size=(20, 6))
    y = z.argmax(axis=1)  # attacks ask for no gradient once the model is fooled
    _, v = loss(z, y)
    slopes = np.zeros_like(z)
    for k in range(6):
        h = 1e-6 * np.eye(6)[k]
        slopes[:, k] = (loss(z + h, y)[0] - loss(z - h, y)[0]) / 2e-6
    largest = np.abs(slopes).max(axis=1, keepdims=True)
    np.testing.assert_allclose(v / np.abs(v).max(axis=1, keepdims=True), slopes / largest, atol=1e-4)


@pytest.mark.parametrize("attack", [*BALL, *NEAREST], ids=name)
def test_outcomes_hold_and_are_counted(attack: Attack, zoo_model: Zoo, digits: Dataset) -> None:
    model = zoo_model("torch")
    x, y = digits.images[:24], digits.labels[:24].copy()
    y[:2] = (y[:2] + 1) % 10  # misclassified: these have fallen
    asked: list[int] = []
    classifier = Classifier(model, asked=asked.append)
    (result,) = attack.outcomes(classifier, x, y, 3, [0])
    confirmed = int(result.success.sum())
    assert sum(asked) == result.queries.sum() + confirmed
    assert result.success[:2].all()
    assert (result.linf[:2] == 0).all()
    assert (result.adversarials >= 0).all()
    assert (result.adversarials <= 1).all()
    if attack in BALL:
        assert (getattr(result, attack.norm)[result.success] <= attack.settings["epsilon"] + 1e-6).all()
    (again,) = attack.outcomes(Classifier(model), x, y, 3, [0])
    np.testing.assert_array_equal(again.adversarials, result.adversarials)
    assert confirmed > 2


def by_the_definition(attack: Attack, classifier: Classifier, image: ref.Array32, label: int) -> ref.Outcome:
    """Attack one image by the attack's definition in plain NumPy, with seed 3 and repeat 1."""
    logits, vjp = classifier.logits, classifier.vjp
    if isinstance(attack, APGD):
        settings = (attack.loss, attack.epsilon, attack.steps, attack.restarts)
        return ref.apgd(logits, vjp, image, label, UNIT, 3, 1, *settings)
    if isinstance(attack, Square):
        return ref.square(logits, image, label, UNIT, 3, 1, attack.epsilon, attack.iterations)
    assert isinstance(attack, (MinimumL2, MinimumLinf))
    return ref.minimum_norm(logits, vjp, image, label, UNIT, attack.norm, attack.steps)


@pytest.mark.parametrize("attack", [*BALL[:3], *NEAREST], ids=name)
def test_attacks_agree_with_the_reference(
    attack: Attack, framework: TrainableFramework, zoo_model: Zoo, digits: Dataset
) -> None:
    model = zoo_model(framework)
    x, y = digits.images[:6], digits.labels[:6].copy()
    y[0] = (y[0] + 1) % 10
    result = attack.attack(model, x, y, seed=3, repeat=1)
    one = Classifier(model, batch_size=1)
    halvings = 0
    for i in range(len(x)):
        outcome = by_the_definition(attack, one, x[i], int(y[i]))
        assert bool(result.success[i]) == outcome.success
        assert result.queries[i] == outcome.queries
        assert result.adversarial_class[i] == outcome.adversarial_class
        np.testing.assert_allclose(getattr(result, attack.norm)[i], getattr(outcome, attack.norm), rtol=ALIKE)
        if attack in BALL:  # the others balance on the boundary, where rounding decides which way a point goes
            np.testing.assert_allclose(result.adversarials[i], outcome.adversarial, atol=1e-6)
        halvings += outcome.extras.get("halvings", 0)
    assert halvings > 0 or not isinstance(attack, APGD)


@pytest.mark.parametrize("attack", [BALL[0], Short(epsilon=0.03), NEAREST[0]], ids=name)
def test_the_same_weights_fall_alike_in_every_framework(
    attack: Attack, framework: TrainableFramework, zoo_model: Zoo, digits: Dataset
) -> None:
    model = zoo_model("torch")
    (carried,) = rc.same_weights(model, [framework.name], device="cpu").values()
    x, y = digits.images[:40], digits.labels[:40]
    there, here = (attack.attack(network, x, y, seed=3) for network in (carried, model))
    differ = np.flatnonzero(there.success != here.success)
    assert all(nearest_margin(model, result, differ) < NEAR_TIE for result in (there, here) if len(differ))
    if attack in NEAREST:
        distance, other = (np.asarray(getattr(result, attack.norm)) for result in (there, here))
        alike = np.isclose(
            distance, other, rtol=ALIKE if "first of equals" in CAPABILITIES[framework.name] else OWN_RULE
        )
    else:
        alike = there.queries == here.queries
    assert alike.sum() >= len(x) - 1


def nearest_margin(model: Model, result: AttackResult, rows: np.ndarray) -> float:
    """Return the smallest difference between the top two logits of some of the images that an attack ended with."""
    top = np.sort(Classifier(model).logits(result.adversarials[rows]), axis=1)
    return float((top[:, -1] - top[:, -2]).min())


@pytest.mark.parametrize(
    ("attack", "queries", "gradients"),
    [
        (APGD(loss="ce", epsilon=1e-6, steps=10, restarts=2), 1 + 2 * 11, 2 * 10),
        (Square(epsilon=1e-6, iterations=30), 1 + 31, 0),
        (APGDTargeted(epsilon=1e-6, steps=10, targets=3), 2 + 3 * 11, 3 * 10),
        (MinimumL2(steps=20), 20, 19),
    ],
    ids=lambda value: name(value) if isinstance(value, Attack) else "",
)
def test_a_robust_image_costs_what_the_documentation_says(
    attack: Attack, queries: int, gradients: int, zoo_model: Zoo, digits: Dataset
) -> None:
    class Counting(Classifier):
        pulled = 0

        def vjp(self, images: np.ndarray, v: np.ndarray) -> np.ndarray:
            self.pulled += len(images)
            return super().vjp(images, v)

        def logits_and_vjp(self, images: np.ndarray, rise: Any, *arrays: np.ndarray) -> Any:
            self.pulled += len(images)
            return super().logits_and_vjp(images, rise, *arrays)

    model = zoo_model("torch")
    right = rc.predict(model, digits.images) == digits.labels
    x, y = digits.images[right][:5], digits.labels[right][:5]
    classifier = Counting(model)
    (result,) = attack.outcomes(classifier, x, y, 0, [0])
    assert (result.queries == queries).all()
    assert classifier.pulled == 5 * gradients


def test_steps_end_where_the_authors_code_looks_back() -> None:
    """The checkpoints of 100 steps by `attack_single_run` in auto-attack, commit a392200, worked out by hand."""
    assert ref.apgd_checkpoints(100) == [22, 41, 57, 70, 80, 87, 93, 99]


def test_squares_shrink_as_in_the_authors_code() -> None:
    """The sides for 28 × 28 of `p_selection` in auto-attack, commit a392200, evaluated by hand."""
    assert [_square_side(i, 28, 28) for i in (0, 10, 11, 51, 201, 501, 1001, 2001, 4001)] == [
        25, 25, 18, 13, 9, 6, 4, 3, 2,
    ]  # fmt: skip


def test_epsilon_follows_the_channels() -> None:
    attack = Square(epsilon=0.1, epsilon_colour=2 / 255)
    assert attack.radius(np.zeros((1, 2, 2, 1), np.float32)) == 0.1
    assert attack.radius(np.zeros((1, 2, 2, 3), np.float32)) == 2 / 255


def test_the_suite_is_on_all_images_and_beside_r(zoo_model: Zoo, digits: Dataset, tmp_path: Path) -> None:
    suite = load_suite(SUITE)
    assert suite.subset == "all"
    assert not any(record.in_indicator for record in suite.records.values())
    file = tmp_path / "short.toml"
    file.write_text(
        'subset = "all"\n[attacks.small]\nattack = "Square"\nepsilon = 0.02\niterations = 2\n'
        '[attacks.near]\nattack = "MinimumL2"\nsteps = 5\n'
    )
    models = {"a": zoo_model("torch"), "b": zoo_model("torch", seed=1)}
    labels = digits.labels.copy()
    labels[:5] = (labels[:5] + 1) % 10
    ev = rc.evaluate(models, digits.images[:40], labels[:40], suite=file, n=40, repeats=1, progress=False)
    assert ev.results.on_all_images
    assert ev.manifest["images"]["used"] == 40
    assert ev.success_rate.sel(attack="small").min() >= 5 / 40
    assert ev.indicator == {}
    assert len(ev.verdicts) == 2
    for text in (str(ev), summary(ev.results)):
        assert "misclassif" in text
        assert "conditional on" not in text
    page = to_html(ev.results)
    assert "near: share of images fooled within a distance" in page
    assert "small: share of images fooled within a distance" not in page  # it looks for none that is smaller
    assert "R and its ranks" not in page
    assert len(ev.run_transfer().attack) == 2

    file.write_text('subset = "all"\n[attacks.near]\nattack = "MinimumL2"\nsteps = 5\n')
    unbounded = rc.evaluate(models, digits.images[:40], labels[:40], suite=file, n=40, repeats=1, progress=False)
    assert "misclassif" in summary(unbounded.results)
    assert "robust accuracy" not in summary(unbounded.results)


def test_the_smallest_distances_are_tested_in_their_own_norms(zoo_model: Zoo, digits: Dataset) -> None:
    suite = Suite("nearest", "", 20, 1, {"near": MinimumL2(steps=30), "near_linf": MinimumLinf(steps=30)}, subset="all")
    seeds = {"a": [0, 1], "b": [2, 3]}
    models = {name: [zoo_model("torch", "lenet1", seed=seed) for seed in its] for name, its in seeds.items()}
    ev = rc.evaluate(models, digits.images[:40], digits.labels[:40], suite=suite, progress=False)
    assert [(verdict.measure, verdict.norm) for verdict in ev.verdicts] == [("median L2", "L2"), ("median L∞", "L∞")]
    linf = ev.dataset.linf.sel(attack="near_linf", repeat=0)
    medians = [
        np.quantile(linf.sel(model=name, training_seed=its), 0.5, 1, method="higher") for name, its in seeds.items()
    ]
    assert ev.verdicts[1].difference == pytest.approx(abs(medians[0].mean() - medians[1].mean()))
    assert "median L∞" in str(ev)
    names = ev.tests("frameworks").test.tolist()
    assert "Brown-Forsythe of L∞" in names
    assert "permutation of the summed F and of L2 and of L∞" in names


def test_a_weaker_attack_is_refused_on_all_images(tmp_path: Path) -> None:
    file = tmp_path / "mixed.toml"
    file.write_text('subset = "all"\n[attacks.fgsm]\nattack = "FGSM"\n')
    with pytest.raises(UsageError, match="fgsm cannot"):
        load_suite(file)


@pytest.mark.parametrize("classes", [2, 3, 4, 6])
@pytest.mark.parametrize("loss", [_targeted_margin, _targeted_dlr])
def test_gradients_of_targeted_losses_are_their_slopes(
    loss: Callable[..., tuple[np.ndarray, np.ndarray]], classes: int
) -> None:
    z = np.random.default_rng(0).normal(size=(20, classes))
    y = z.argmax(axis=1)
    target = _rank_other_classes(z, y)[:, -1]
    _, v = loss(z, y, target)
    steps = 1e-6 * np.eye(classes)
    slopes = np.stack([(loss(z + h, y, target)[0] - loss(z - h, y, target)[0]) / 2e-6 for h in steps], axis=1)
    largest = np.abs(slopes).max(axis=1, keepdims=True)
    np.testing.assert_allclose(v / np.abs(v).max(axis=1, keepdims=True), slopes / largest, atol=1e-4)


def test_other_classes_leave_out_the_true_one_in_a_tie() -> None:
    z = np.array([[1.0, 3, 2, 3], [0, 0, 0, 0]])
    assert _rank_other_classes(z, np.array([1, 2])).tolist() == [[3, 2, 0], [3, 1, 0]]


@pytest.mark.parametrize("norm", ["linf", "l2"])
def test_projections_onto_a_plane_are_the_smallest(norm: Norm) -> None:
    """Beside SciPy: the least r with |d| ≤ r, or the least |d|², with gap + w·d = 0 and x + d within the bounds."""
    rng = np.random.default_rng(1)
    x, w = rng.random((30, 5)), rng.normal(size=(30, 5))
    w[:, 0] = 0
    gap = rng.normal(size=30)
    d = _project_onto_plane(x, gap, w, (0, 1), norm)
    assert ((x + d >= -1e-12) & (x + d <= 1 + 1e-12)).all()
    reached = 0
    for i in range(30):
        within = np.block([[np.eye(5), -np.ones((5, 1))], [-np.eye(5), -np.ones((5, 1))]])
        limits = [*zip(-x[i], 1 - x[i], strict=True), (0, None)]
        least = linprog([0] * 5 + [1], within, np.zeros(10), [[*w[i], 0]], [-gap[i]], limits)
        if not least.success:
            np.testing.assert_allclose((x + d)[i], np.where(d[i] > 0, 1, np.where(d[i] < 0, 0, x[i])))
            continue
        reached += 1
        assert gap[i] + w[i] @ d[i] == pytest.approx(0, abs=1e-9)
        if norm == "linf":
            assert np.abs(d[i]).max() == pytest.approx(least.fun, abs=1e-9)
        else:
            plane = {"type": "eq", "fun": lambda step, i=i: gap[i] + w[i] @ step}
            nearest = minimize(lambda step: step @ step, least.x[:5], bounds=limits[:5], constraints=plane)
            assert d[i] @ d[i] == pytest.approx(nearest.fun, abs=1e-6)
    assert 0 < reached < 30


@pytest.mark.parametrize("side", [3, 5, 8])
def test_bumps_have_two_opposite_halves(side: int) -> None:
    standing, lying = _bumps(np.array([[0.0, 0.9], [1.0, 0.1]]), side)[..., 0]
    assert np.square(standing).sum() == pytest.approx(1)
    assert (standing[: side // 2] > 0).all()
    assert (standing[side // 2 :] < 0).all()
    np.testing.assert_array_equal(lying, -standing.T)


def test_autoattack_asks_each_part_about_what_is_left(zoo_model: Zoo, digits: Dataset) -> None:
    model = zoo_model("torch")
    x, y = digits.images[:30], digits.labels[:30]
    attack = load_suite(SUITE.with_name("autoattack.toml")).attacks["autoattack"]
    assert isinstance(attack, AutoAttack)
    assert [type(part).__name__ for part in attack.parts] == ["APGD", "APGDTargeted", "FABTargeted", "Square"]

    attack = Short(epsilon=0.03)
    result = attack.attack(model, x, y)
    each = [part.attack(model, x, y).success for part in attack.parts]
    np.testing.assert_array_equal(result.success, np.any(each, axis=0))
    np.testing.assert_array_equal(result.extras["fooled_by"] == 1, each[0] & (result.linf > 0))
    assert 0 < result.success.sum() < 30


def test_autoattack_refuses_what_it_cannot_answer() -> None:
    for epsilon in (0, 1.5):
        with pytest.raises(UsageError, match="epsilon should be"):
            AutoAttack(epsilon=epsilon)


def test_autoattack_without_a_gradient_is_square_alone(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    weights = rng.normal(size=(100, 4)).astype(np.float32)
    model = rc.wrap_functions(logits=lambda images: (images.reshape(len(images), -1) - 0.5) @ weights)
    x = rng.random((12, 10, 10, 1), np.float32)
    y = rc.predict(model, x)
    y[0] = (y[0] + 1) % 4
    file = tmp_path / "alone.toml"
    file.write_text('subset = "all"\nrepeats = 1\n[attacks.aa]\nattack = "AutoAttack"\nepsilon = 0.04\n')
    ev = rc.evaluate({"m": model}, x, y, suite=file, n=12, progress=False)
    found = ev.dataset.sel(attack="aa").squeeze(drop=True)
    alone = Square(epsilon=0.04).attack(model, x, y)
    assert sorted(found.success.values.tolist()) == sorted(alone.success.tolist())
    assert set(found.fooled_by.values.tolist()) == {0.0, 4.0, np.inf}
    assert (found.parts == 1).all()
    assert "Square ran alone" in to_html(ev.results)
    ev.run_checks()
    assert "not Square alone" in str(ev)


@pytest.mark.parametrize("attack", [AutoAttack(epsilon=0.1), AutoAttack(epsilon=0.5, norm="l2")], ids=name)
def test_ties_and_infinities_in_logits(attack: AutoAttack) -> None:
    x, y = np.full((3, 8, 8, 1), 0.5, np.float32), np.zeros(3, np.int64)

    def answer(value: float) -> Any:
        return rc.wrap_functions(
            logits=lambda images: np.full((len(images), 5), value, np.float32),
            vjp=lambda images, v: np.zeros_like(images),
        )

    assert not attack.attack(answer(2.0), x, y).success.any()  # the first of equals is the true class
    with pytest.raises(ModelError, match="infinity"):
        attack.attack(answer(np.inf), x, y)


@pytest.mark.parametrize(("norm", "dual", "epsilon"), [("linf", 1, 0.02), ("l2", 2, 0.07)])
@pytest.mark.parametrize("classes", [2, 3])
def test_targeted_attacks_fall_back_with_few_classes(classes: int, norm: Any, dual: int, epsilon: float) -> None:
    """A linear model: an image falls where ε exceeds a margin over the dual norm of its gradient."""
    weights = np.random.default_rng(2).normal(size=(16, classes)).astype(np.float32)

    def logits(images: np.ndarray) -> np.ndarray:
        flat: np.ndarray = (images.reshape(len(images), -1) - 0.5) @ weights
        return flat

    def vjp(images: np.ndarray, v: np.ndarray) -> np.ndarray:
        return (v.astype(np.float32) @ weights.T).reshape(images.shape)

    model = rc.wrap_functions(logits=logits, vjp=vjp)
    x = np.random.default_rng(3).uniform(0.4, 0.6, (40, 4, 4, 1)).astype(np.float32)
    z = logits(x)
    y = z.argmax(axis=1)
    reach = np.linalg.norm(weights[:, y].T[:, :, None] - weights[None], dual, axis=1)
    others = np.arange(classes) != y[:, None]
    needed = ((z[np.arange(40), y][:, None] - z)[others] / reach[others]).reshape(40, -1).min(axis=1)
    clear = np.abs(needed / epsilon - 1) > 0.01  # FAB overshoots the boundary by up to 1 %, as the authors' does
    assert 0 < (needed < epsilon).sum() < 40
    for attack in (APGDTargeted(epsilon=epsilon, norm=norm), FABTargeted(epsilon=epsilon, norm=norm)):
        np.testing.assert_array_equal(attack.attack(model, x, y).success[clear], needed[clear] < epsilon)

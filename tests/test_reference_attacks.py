"""The reference attacks: within the ball, counted exactly, repeatable, on all images, and beside R."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import robustcmp as rc
from robustcmp.attacks import APGD, Attack, Ensemble, MinimumL2, MinimumLinf, Square
from robustcmp.attacks.gradients import cross_entropy, dlr, margin
from robustcmp.attacks.square import square_side
from robustcmp.attacks.suite import load_suite
from robustcmp.data.dataset import Dataset
from robustcmp.errors import UsageError
from robustcmp.frameworks import TrainableFramework
from robustcmp.models.classifier import Classifier
from robustcmp.models.model import Model

EPSILON = 0.05
SUITE = Path(__file__).parents[1] / "attacks/reference.toml"
BALL: list[Attack] = [
    APGD(loss="ce", epsilon=EPSILON, steps=10, restarts=2),
    APGD(loss="dlr", epsilon=EPSILON, steps=10, restarts=2),
    Square(epsilon=EPSILON, iterations=120),
    Ensemble(epsilon=EPSILON, steps=10, restarts=1, iterations=60),
]
NEAREST: list[Attack] = [MinimumL2(steps=40), MinimumLinf(steps=40)]
Zoo = Callable[..., Model]


def name(attack: Attack) -> str:
    return f"{type(attack).__name__}{getattr(attack, 'loss', '')}"


@pytest.mark.parametrize("loss", [margin, dlr, cross_entropy])
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
def test_outcomes_hold_and_are_counted(
    attack: Attack, framework: TrainableFramework, zoo_model: Zoo, digits: Dataset
) -> None:
    model = zoo_model(framework)
    x, y = digits.images[:24], digits.labels[:24].copy()
    y[:2] = (y[:2] + 1) % 10  # misclassified: these have fallen
    asked: list[int] = []
    classifier = Classifier(model, asked=asked.append)
    (result,) = attack.outcomes(classifier, x, y, 3, [0])
    confirmed = int(result.success.sum())
    extra = type(attack) is Ensemble  # it looks at one answer to count the classes
    assert sum(asked) == result.queries.sum() + confirmed + extra
    assert result.success[:2].all()
    assert (result.linf[:2] == 0).all()
    assert (result.queries <= attack.most_queries(784, 1)).all()
    assert (result.adversarials >= 0).all()
    assert (result.adversarials <= 1).all()
    if attack in BALL:
        assert (result.linf[result.success] <= EPSILON + 1e-6).all()
    (again,) = attack.outcomes(Classifier(model), x, y, 3, [0])
    np.testing.assert_array_equal(again.adversarials, result.adversarials)
    assert confirmed > 2


def test_an_image_is_robust_if_no_part_fools(zoo_model: Zoo, digits: Dataset) -> None:
    model = zoo_model("torch")
    x, y = digits.images[:60], digits.labels[:60]
    whole = Ensemble(epsilon=EPSILON, steps=10, restarts=1, iterations=60)
    result = whole.attack(model, x, y)
    each = [part.attack(model, x, y).success for part in whole.parts]
    np.testing.assert_array_equal(result.success, np.any(each, axis=0))
    np.testing.assert_array_equal(result.extras["fooled_by"] == 1, each[0] & (result.linf > 0))


def test_squares_shrink_as_in_the_authors_code() -> None:
    """The sides for 28 × 28 of `p_selection` in auto-attack, commit a392200, evaluated by hand."""
    assert [square_side(i, 28, 28) for i in (0, 10, 11, 51, 201, 501, 1001, 2001, 4001)] == [
        25, 25, 18, 13, 9, 6, 4, 3, 2,
    ]  # fmt: skip


def test_epsilon_follows_the_channels() -> None:
    attack = Ensemble(epsilon=0.1, epsilon_colour=2 / 255)
    assert attack.radius(np.zeros((1, 2, 2, 1), np.float32)) == 0.1
    assert attack.radius(np.zeros((1, 2, 2, 3), np.float32)) == 2 / 255


def test_the_suite_is_on_all_images_and_beside_r(zoo_model: Zoo, digits: Dataset, tmp_path: Path) -> None:
    suite = load_suite(SUITE)
    assert suite.subset == "all"
    assert not any(record.in_indicator for record in suite.records.values())
    file = tmp_path / "short.toml"
    file.write_text(
        'subset = "all"\n[attacks.small]\nattack = "Ensemble"\nepsilon = 0.02\nsteps = 2\nrestarts = 1\n'
        "iterations = 2\n"
        '[attacks.near]\nattack = "MinimumL2"\nsteps = 5\n'
    )
    models = {"torch": zoo_model("torch"), "jax": zoo_model("jax")}
    labels = digits.labels.copy()
    labels[:5] = (labels[:5] + 1) % 10
    ev = rc.evaluate(models, digits.images[:40], labels[:40], suite=file, n=40, repeats=1, progress=False)
    assert ev.on_all_images
    assert ev.manifest["images"]["used"] == 40
    assert ev.success_rate.sel(attack="small").min() >= 5 / 40
    assert ev.indicator == {}
    assert len(ev.verdicts) == 2
    for text in (str(ev), ev.summary()):
        assert "misclassif" in text
        assert "conditional on" not in text
    assert len(ev.run_transfer().attack) == 2


def test_a_weaker_attack_is_refused_on_all_images(tmp_path: Path) -> None:
    file = tmp_path / "mixed.toml"
    file.write_text('subset = "all"\n[attacks.fgsm]\nattack = "FGSM"\n')
    with pytest.raises(UsageError, match="fgsm cannot"):
        load_suite(file)

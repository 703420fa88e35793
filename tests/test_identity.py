"""Which models share cells, which cells are found again, and what is said of models whose answers vary."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import foolbox as fb
import numpy as np
import pytest
from conftest import linear
from numpy.typing import NDArray

import robustcmp as rc
from robustcmp import Evaluation
from robustcmp.data.dataset import Dataset
from robustcmp.errors import ModelError
from robustcmp.models.classifier import Classifier
from robustcmp.models.model import Model
from robustcmp.models.preflight import check_model
from robustcmp.records.attack import Cell
from robustcmp.report.text import to_text

Zoo = Callable[..., Model]
Compare = Callable[..., Evaluation]

SUITE = """
[attacks.fgsm]
attack = "FGSM"
epsilons = 10
max_epsilon = 0.3

[attacks.pixel]
attack = "SinglePixel"
max_pixels = 10
exact = false

[attacks.boundary]
attack = "Boundary"
iterations = 3
max_directions = 2
"""


@pytest.fixture
def compare(digits: Dataset, tmp_path: Path) -> Compare:
    """Return a function that compares models on a few digits, in the directory ``run``."""
    suite = tmp_path / "short.toml"
    suite.write_text(SUITE, encoding="utf-8")

    def run(models: dict[str, Any], **changes: Any) -> Evaluation:
        given = {"suite": suite, "n": 20, "repeats": 1, "batch_size": 64, "progress": False, "out": tmp_path / "run"}
        return rc.evaluate(models, digits.images, digits.labels, **(given | changes))

    return run


def functions(model: fb.models.base.Model) -> tuple[Callable[..., NDArray[Any]], Callable[..., NDArray[Any]]]:
    """The logits and the gradient of a linear model."""
    return model.native, model._vjp  # type: ignore[attr-defined]


def without_gradient(native: Any) -> Any:
    """The same network with its gradient masked: the same logits, bit for bit, and a gradient of the wrong sign."""
    import torch

    class Masked(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = native

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = x.detach() - (x - x.detach())
            answer: torch.Tensor = self.inner(x)
            return answer

    return Masked().eval()


# what is in a key ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("first", ["plain", "masked"])
def test_a_masked_gradient_is_another_model_to_attacks_that_use_it(
    compare: Compare, saved: list[Cell], zoo_model: Zoo, first: str
) -> None:
    plain = zoo_model("torch", "lenet1").native
    models = {"plain": rc.wrap(plain), "masked": rc.wrap(without_gradient(plain))}
    ordered = {name: models[name] for name in (first, *(models.keys() - {first}))}
    rates = compare(ordered).results.rates()
    assert [cell.attack for cell in saved].count("fgsm") == 2
    assert rates["masked"]["fgsm"] < rates["plain"]["fgsm"]
    assert [cell.attack for cell in saved].count("boundary") == 1  # the same answers, the same weights


@pytest.mark.parametrize(
    "framework", ["torch", *(pytest.param(name, marks=pytest.mark.slow) for name in ("tensorflow", "jax"))]
)
def test_the_same_network_under_two_names_shares_its_cells(
    compare: Compare, saved: list[Cell], zoo_model: Zoo, framework: str
) -> None:
    one = zoo_model(framework, "lenet1")
    again = rc.load_model("lenet1", framework=framework, dataset="digits", device="cpu")
    compare({"one": one, "again": again, "wrapped": rc.wrap(one.native, framework=framework)})
    assert sorted(cell.attack for cell in saved) == ["boundary", "fgsm", "pixel"]


def guarded(logits: Callable[..., NDArray[Any]], clean: NDArray[np.float32]) -> Callable[..., NDArray[Any]]:
    """Return logits that give whatever is no clean image the same class."""
    known = {image.tobytes() for image in clean}

    def defended(x: NDArray[np.float32]) -> NDArray[Any]:
        answer = np.array(logits(x))
        answer[[image.tobytes() not in known for image in x]] = np.eye(10)[0]
        return answer

    return defended


def test_a_defence_that_sees_perturbed_images_is_another_model(
    compare: Compare, saved: list[Cell], digits: Dataset
) -> None:
    logits, vjp = functions(linear(0))
    defended = guarded(logits, digits.images)
    compare(
        {"plain": rc.wrap_functions(logits=logits, vjp=vjp), "guarded": rc.wrap_functions(logits=defended, vjp=vjp)}
    )
    assert len(saved) == 6


def test_a_mended_gradient_is_followed_anew_and_other_cells_stay(compare: Compare, saved: list[Cell]) -> None:
    logits, vjp = functions(linear(0))
    wrong = compare({"mine": rc.wrap_functions(logits=logits, vjp=lambda x, v: -vjp(x, v))}).results.rates()
    saved.clear()
    right = compare({"mine": rc.wrap_functions(logits=logits, vjp=vjp)}).results.rates()
    assert [(cell.model, cell.attack) for cell in saved] == [("mine", "fgsm")]
    assert right["mine"]["fgsm"] > wrong["mine"]["fgsm"]


def test_weights_that_no_image_shows_are_in_the_key(compare: Compare, saved: list[Cell], zoo_model: Zoo) -> None:
    import copy

    import torch

    native = zoo_model("torch", "lenet1").native
    other = copy.deepcopy(native)
    other.register_buffer("unused", torch.ones(3))
    ev = compare({"one": rc.wrap(native), "other": rc.wrap(other)})
    assert len(saved) == 6
    one, two = (model["identity"] for model in ev.manifest["models"])
    assert one["probes"] == two["probes"]
    assert one["weights"] != two["weights"]


# answers that depend on the batch ------------------------------------------------------------------------------------


def batch_norm(track_running_stats: bool = False) -> Any:
    import torch

    with torch.random.fork_rng():
        torch.manual_seed(0)
        return torch.nn.Sequential(
            torch.nn.Conv2d(1, 4, 5),
            torch.nn.BatchNorm2d(4, track_running_stats=track_running_stats),
            torch.nn.ReLU(),
            torch.nn.Flatten(),
            torch.nn.Linear(4 * 24 * 24, 10),
        ).eval()


def test_answers_that_depend_on_the_batch_are_refused(compare: Compare) -> None:
    with pytest.raises(ModelError, match=r"'mine'.*other images.*batch_size=1") as caught:
        compare({"mine": rc.wrap(batch_norm())})
    assert "batch_size" in caught.value.parameters


def test_a_model_that_answers_no_image_alone_is_named(digits: Dataset) -> None:
    logits, _ = functions(linear(0))

    def many(x: NDArray[np.float32]) -> NDArray[Any]:
        if len(x) == 1:
            raise ValueError("Expected more than 1 value per channel")
        return logits(x)

    with pytest.raises(ModelError, match=r"'m' answers 8 images at once, but not one alone.*more than 1 value"):
        check_model("m", Classifier(rc.wrap_functions(logits=many)), digits.images, digits.labels)


def test_asked_one_at_a_time_answers_depend_on_nothing_else(
    compare: Compare, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    suite = tmp_path / "one.toml"
    suite.write_text('[attacks.boundary]\nattack = "Boundary"\niterations = 2\n', encoding="utf-8")
    with caplog.at_level(logging.WARNING, "robustcmp"):
        ev = compare({"mine": rc.wrap(batch_norm())}, batch_size=1, suite=suite, n=4)
    assert "mine: answers depend on the other images" in caplog.text
    assert [model["depends_on_batch"] for model in ev.manifest["models"]] == [True]
    assert "mine: answers depend on the other images of a batch, so each image was asked alone" in to_text(ev.results)


@pytest.mark.slow
@pytest.mark.needs("zoo")
def test_rounding_over_batch_sizes_is_no_dependence(framework: Any, zoo_model: Zoo, digits: Dataset) -> None:
    classifier = Classifier(zoo_model(framework, "lenet5")).compile(digits.images)
    assert not check_model("m", classifier, digits.images, digits.labels)
    for scale in (1e-3, 1e3):
        scaled = rc.wrap_functions(logits=lambda x, scale=scale: scale * classifier.logits(x))  # type: ignore[misc]
        assert not check_model("m", Classifier(scaled), digits.images, digits.labels)


def test_batch_norm_with_running_statistics_is_no_dependence(digits: Dataset) -> None:
    model = rc.wrap(batch_norm(track_running_stats=True))
    assert not check_model("m", Classifier(model), digits.images, digits.labels)


# answers that differ in their last bits ------------------------------------------------------------------------------


def noisy(native: Any, size: float = 1e-6) -> Any:
    """A network whose logits have noise that no seed governs."""
    import torch

    generator = torch.Generator()

    class Noisy(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = native

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            logits: torch.Tensor = self.inner(x)
            return logits + size * torch.randn(logits.shape, generator=generator)

    return Noisy().eval()


def test_noise_is_said_and_cells_are_found_by_the_weights(
    compare: Compare, saved: list[Cell], zoo_model: Zoo, caplog: pytest.LogCaptureFixture
) -> None:
    native = zoo_model("torch", "lenet1").native
    models = {"noisy": rc.wrap(noisy(native)), "plain": rc.wrap(native)}
    with caplog.at_level(logging.WARNING, "robustcmp"):
        compare(models)
    assert "noisy: two passes over the same images differ" in caplog.text
    assert "plain:" not in caplog.text
    assert len(saved) == 6  # no cell is shared
    saved.clear()
    for _ in range(2):
        again = compare(models)
        assert saved == []
    assert "noisy: two passes over the same images differ" in to_text(again.results)
    assert "found again by the weights" in to_text(again.results, width=200)


def test_noise_without_known_weights_is_said_to_strand_cells(compare: Compare, saved: list[Cell]) -> None:
    logits, vjp = functions(linear(0))
    rng = np.random.default_rng(0)
    model = rc.wrap_functions(logits=lambda x: logits(x) + 1e-6 * rng.normal(size=(len(x), 10)), vjp=vjp)
    assert "cannot be found again" in to_text(compare({"noisy": model}).results, width=200)
    saved.clear()
    compare({"noisy": model})
    assert len(saved) == 3

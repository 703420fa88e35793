"""A gradient that its caller wrote is compared with slopes, and a wrong one is named."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import robustcmp as rc
from robustcmp.attacks import FGSM
from robustcmp.data.dataset import Dataset
from robustcmp.models.classifier import Classifier
from robustcmp.report.text import summary, to_text
from robustcmp.runs.slopes import checked_gradient

Images = NDArray[np.float32]


@pytest.fixture(scope="module")
def digits() -> Dataset:
    return rc.load_dataset("digits")


@pytest.fixture(scope="module")
def zoo() -> Classifier:
    return Classifier(rc.load_model("lenet5", framework="torch", dataset="digits"))


def softmax(z: Images) -> Images:
    p = np.exp(z - z.max(axis=1, keepdims=True))
    return p / p.sum(axis=1, keepdims=True)


def error(logits: Callable[[Images], Any], vjp: Any, images: Images, **more: Any) -> float | None:
    model = Classifier(rc.wrap_functions(logits=logits, vjp=vjp, **more))
    return checked_gradient("m", model, images)


def test_the_right_gradient_is_not_named(zoo: Classifier, digits: Dataset) -> None:
    assert error(zoo.logits, zoo.vjp, digits.images) is None

    def of_probabilities(x: Images, v: Images) -> Images:
        p = softmax(zoo.logits(x))
        return zoo.vjp(x, p * (v - (p * v).sum(axis=1, keepdims=True)))

    given = {"outputs": "probabilities"}
    assert error(lambda x: softmax(zoo.logits(x)), of_probabilities, digits.images, **given) is None


def test_every_right_gradient_of_the_images_is_not_named(zoo: Classifier, digits: Dataset) -> None:
    for start in range(0, len(digits.images) - 8, 8):
        assert error(zoo.logits, zoo.vjp, digits.images[start:]) is None


WRONG: dict[str, Callable[[Classifier], Callable[[Images, Images], Images]]] = {
    "its sign": lambda zoo: lambda x, v: -zoo.vjp(x, v),
    "its size": lambda zoo: lambda x, v: zoo.vjp(x, v) / 255,
    "its axes": lambda zoo: lambda x, v: zoo.vjp(x, v).transpose(0, 2, 1, 3),
    "a part": lambda zoo: lambda x, v: zoo.vjp(x, v) * (np.arange(x.shape[2]) < x.shape[2] / 2)[:, None],
    "other images": lambda zoo: lambda x, v: zoo.vjp(1 - x, v),
    "of another class": lambda zoo: lambda x, v: zoo.vjp(x, np.roll(v, 1, axis=1)),
}


@pytest.mark.parametrize("what", WRONG)
def test_a_wrong_gradient_is_named(what: str, zoo: Classifier, digits: Dataset) -> None:
    found = error(zoo.logits, WRONG[what](zoo), digits.images)
    assert found is not None
    assert found > 0.25


def test_the_gradient_of_logits_is_not_that_of_probabilities(zoo: Classifier, digits: Dataset) -> None:
    assert error(lambda x: softmax(zoo.logits(x)), zoo.vjp, digits.images, outputs="probabilities") is not None


def test_what_has_no_slopes_is_not_said_to_have_others(zoo: Classifier, digits: Dataset) -> None:
    """A stand-in for the gradient of logits with plateaus, as in BPDA, is the best there is."""
    in_levels = {
        "images": lambda x: zoo.logits((np.rint(x * 8) / 8).astype(np.float32)),
        "logits": lambda x: np.rint(zoo.logits(x)),
    }
    for logits in in_levels.values():
        assert error(logits, zoo.vjp, digits.images) is None


def test_no_image_beyond_its_bounds_is_asked_about(zoo: Classifier, digits: Dataset) -> None:
    def logits(x: Images) -> Images:
        assert 0 <= x.min() <= x.max() <= 1
        return zoo.logits(x)

    for images in (digits.images, 1 - digits.images):
        assert error(logits, zoo.vjp, images) is None


def test_what_a_framework_derives_is_not_asked_about(zoo: Classifier, digits: Dataset) -> None:
    assert checked_gradient("m", zoo, digits.images) is None
    assert error(lambda x: x.reshape(len(x), -1)[:, :10], "finite-differences", digits.images) is None


@pytest.mark.brought(
    group="Other models",
    what="functions of NumPy arrays whose `vjp` is not the gradient of their logits",
    typed="rc.wrap_functions(logits=…, vjp=…)",
    got="a comparison; a note on its first screen says how far the slopes are off",
)
def test_a_comparison_says_so_and_keeps_it(
    zoo: Classifier, digits: Dataset, tmp_path: Any, caplog: pytest.LogCaptureFixture
) -> None:
    models = {
        "right": rc.wrap_functions(logits=zoo.logits, vjp=zoo.vjp),
        "wrong": rc.wrap_functions(logits=zoo.logits, vjp=lambda x, v: -zoo.vjp(x, v)),
    }
    given = {"suite": {"fgsm": FGSM()}, "n": 20, "progress": False, "out": tmp_path / "run"}
    with caplog.at_level(logging.WARNING, "robustcmp"):
        ev = rc.evaluate(models, digits.images[:64], digits.labels[:64], **given)
    # A reversed gradient is 200 % off, and kinks add or take a little.
    said = re.compile(r"The gradient of wrong is not that of its logits: slopes by it are 20[0-5] % off, and")
    assert [bool(said.search(record.message)) for record in caplog.records].count(True) == 1
    for found in (ev, rc.open_run(tmp_path / "run")):
        assert said.search(" ".join(summary(found.results).split()))
        assert said.search(" ".join(to_text(found.results).split()))
        assert "gradient of right" not in to_text(found.results)

"""Usual causes of a poor accuracy are named before any attack, and never applied."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from test_checks import Module

import robustcmp as rc
from robustcmp.data.dataset import Dataset
from robustcmp.errors import ModelError
from robustcmp.models.classifier import Classifier
from robustcmp.models.preflight import in_unit_bounds
from robustcmp.report.text import to_text
from robustcmp.runs.accuracy import _find_cause

torch = pytest.importorskip("torch")

Images = NDArray[np.float32]


@pytest.fixture(scope="module")
def network() -> Any:
    """A LeNet-1 for digits (N, 1, 28, 28) in [0, 1]."""
    return rc.load_model("lenet1", framework="torch", dataset="digits", seed=2, device="cpu").native


def cause(model: Any, images: Images, labels: NDArray[np.int64]) -> str:
    classifier = Classifier(in_unit_bounds(model))
    return _find_cause("mine", classifier, images, labels, classifier.predict(images) == labels)


def same(images: Images) -> Images:
    return images


def colours(images: Images) -> Images:
    """Return images that show the digit in red, and something else in green and blue."""
    return np.concatenate([images, np.full_like(images, 0.5), images[:, ::-1, ::-1]], axis=-1)


def of_mnist(x: Any) -> Any:
    """Return normalised images in [0, 1]; those of other ranges, whose darkest pixel is not 0, far from it."""
    y = x * 0.3081 + 0.1307
    return y + 3 * y.amin((1, 2, 3), keepdim=True)


def of_imagenet(x: Any) -> Any:
    mean, std = (torch.tensor(of)[:, None, None] for of in ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)))
    y = x * std + mean
    return y[:, :1] + 8 * (y[:, 1:2] - 0.5)


def blue(x: Any) -> Any:
    return x[:, 2:]


@pytest.mark.parametrize(
    ("before", "given", "options", "remedy"),
    [
        (lambda x: x / 255, same, {}, "FILE,mean=0,std=1/255"),
        (lambda x: (x + 1) / 2, same, {}, "pass bounds=(-1, 1) without mean and std to robustcmp.wrap"),
        (lambda x: (x + 1) / 2, same, {"bounds": (0, 255)}, "FILE,mean=0.5,std=0.5"),
        (of_mnist, same, {}, '{"mean": [0.1307], "std": [0.3081], "axis": -3}'),
        (of_imagenet, colours, {}, "FILE,mean=0.485:0.456:0.406,std=0.229:0.224:0.225"),
        (blue, colours, {}, 'preprocessing={"flip_axis": -3}'),
    ],
    ids=["0 to 255", "-1 to 1", "and other bounds", "MNIST", "ImageNet", "BGR"],
)
def test_how_a_model_is_asked(
    network: Any, digits: Dataset, before: Any, given: Callable[[Images], Images], options: Any, remedy: str
) -> None:
    said = cause(rc.wrap(Module(network, before), **options), given(digits.images), digits.labels)
    assert remedy in said
    assert said.startswith("mine is probably not asked as it was trained")


@pytest.mark.parametrize("by_text_in", ["the network", "the labels"])
def test_two_orders_of_classes(network: Any, digits: Dataset, by_text_in: str) -> None:
    """Eleven classes, of which the last has no images; the remedy is Python, and gives the accuracy back."""
    by_text = np.array([0, 1, 10, 2, 3, 4, 5, 6, 7, 8, 9])
    eleven = Module(network, after=lambda z: torch.nn.functional.pad(z, (0, 1), value=-9.0))
    labels = digits.labels
    if by_text_in == "the network":
        model = rc.wrap(Module(eleven, after=lambda z: z[:, by_text]))
    else:
        model, labels = rc.wrap(eleven), np.argsort(by_text)[labels]
    right = rc.predict(rc.wrap(network), digits.images) == digits.labels
    assert np.mean(rc.predict(model, digits.images) == labels) < 0.3
    said = cause(model, digits.images, labels)
    assert "as text: 0, 1, 10, 2, …" in said
    expression = said.partition("pass numpy.")[2].partition(" to robustcmp.evaluate")[0]
    renumbered = eval(f"numpy.{expression}", {"numpy": np, "labels": labels})
    np.testing.assert_array_equal(rc.predict(model, digits.images) == renumbered, right)


def of_tanh(network: Any) -> Any:
    layers = [torch.nn.Tanh() if isinstance(layer, torch.nn.ReLU) else layer for layer in network]
    return torch.nn.Sequential(*layers).eval()


@pytest.mark.parametrize(
    ("make", "options"),
    [
        (lambda network: network, {}),
        (lambda network: Module(network, lambda x: x / 255), {"bounds": (0, 255)}),
        (lambda network: Module(network, lambda x: (x + 1) / 2), {"bounds": (-1, 1)}),
        (of_tanh, {}),
        (lambda network: Module(network, after=lambda z: 0 * z), {"bounds": (0, 255)}),
    ],
    ids=["in order", "takes 0 to 255", "takes -1 to 1", "another activation", "no answer"],
)
def test_no_cause_is_named_that_is_none(network: Any, digits: Dataset, make: Any, options: Any) -> None:
    assert cause(rc.wrap(make(network), **options), digits.images, digits.labels) == ""


@pytest.mark.parametrize("mistakes", [True, False])
@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"bounds": (0, 255)}, "with bounds (0, 255), it classifies"),
        ({"preprocessing": {"std": 1 / 255}}, "with bounds (0, 1) and its mean and std, it classifies"),
    ],
)
def test_bounds_that_hardly_cost_accuracy(
    network: Any, digits: Dataset, options: Any, named: str, mistakes: bool
) -> None:
    """A network for [0, 1] is as good on values 255 times too large; its cross-entropy tells, even without mistakes."""
    model = rc.wrap(network, **options)
    right = Classifier(in_unit_bounds(model)).predict(digits.images) == digits.labels
    assert right.mean() > 0.9
    looked_at = right | mistakes
    said = cause(model, digits.images[looked_at], digits.labels[looked_at])
    assert named in said
    assert "if it is given images in [0, 1]" in said
    assert "pass bounds=(0, 1) without mean and std to robustcmp.wrap" in said


def compare(models: Any, data: Dataset, **options: Any) -> rc.Evaluation:
    return rc.evaluate(
        models, data.images, data.labels, suite="smoke", n=4, repeats=1, batch_size=64, progress=False, **options
    )


def test_a_cause_is_a_warning_and_a_note(network: Any, digits: Dataset, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "robustcmp"):
        ev = compare({"right": rc.wrap(network), "wrong": rc.wrap(network, bounds=(0, 255))}, digits)
    [warning] = [record.getMessage() for record in caplog.records if "not asked as" in record.getMessage()]
    assert warning.startswith("wrong is probably not asked as it was trained: with bounds (0, 255)")
    assert warning in " ".join(to_text(ev.results, width=100_000).split())
    accuracy = np.mean(rc.predict(rc.wrap(network, bounds=(0, 255)), digits.images) == digits.labels)
    assert ev.results.clean_accuracy["wrong"] == accuracy  # nothing was changed


def test_a_cause_is_in_the_error_where_no_image_is_left(network: Any, digits: Dataset) -> None:
    model = rc.wrap(Module(network, lambda x: x / 255))
    wrong = rc.predict(model, digits.images) != digits.labels
    images, labels = digits.images[wrong], digits.labels[wrong]
    with pytest.raises(ModelError, match=r"Their accuracies are mine: 0.0%. mine is probably .* images in \[0, 255\]"):
        rc.evaluate({"mine": model}, images, labels, suite="smoke", progress=False)

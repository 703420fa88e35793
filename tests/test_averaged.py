"""Models that draw at random, averaged: gradients, and what cannot be averaged."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from brought import drawn
from brought.defences import CLASSES, DEFENCES, Change, add_noise, average, convolutional, defended

import robustcmp as rc
from robustcmp.errors import UsageError
from robustcmp.models.classifier import Classifier


def test_the_gradient_is_that_of_the_same_passes() -> None:
    images, v = drawn(2), np.random.default_rng(1).normal(size=(2, CLASSES)).astype(np.float32)
    wrapped = rc.wrap(defended(add_noise).double(), preprocessing={"mean": [0.5] * 3, "std": [0.3] * 3, "axis": -3})
    classifier = Classifier(rc.averaged(wrapped, passes=5))
    direction = np.random.default_rng(2).normal(size=images.shape).astype(np.float32)
    step = 1e-3
    rise = classifier.logits(images + step * direction) - classifier.logits(images - step * direction)
    slopes = (rise * v).sum(axis=1) / (2 * step)
    gradient = classifier.vjp(images, v)
    np.testing.assert_allclose((gradient * direction).sum(axis=(1, 2, 3)), slopes, rtol=2e-2, atol=1e-3)


def plain() -> Any:
    return rc.wrap(convolutional(), device="cpu")


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: rc.averaged(convolutional()), r"expected a model from robustcmp\.wrap"),
        (lambda: rc.averaged(rc.averaged(plain())), "averaged already"),
        (lambda: rc.averaged(plain(), passes=0), "passes"),
        (lambda: rc.averaged(plain(), seed="a"), "seed"),
        (lambda: rc.averaged(rc.wrap_functions(logits=lambda x: x[:, 0, 0])), "average inside the network"),
        (lambda: rc.averaged(rc.load_model("lenet1", framework="torch", dataset="digits")), "one of the zoo"),
        (lambda: rc.deploy(rc.averaged(plain()), "onnxruntime"), "deploy a network that draws nothing"),
    ],
)
def test_what_cannot_be_averaged(make: Callable[[], Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        make()


def gradient_of(defence: Any, batch_size: int) -> Any:
    images, v = drawn(4), np.random.default_rng(1).normal(size=(4, CLASSES)).astype(np.float32)
    return Classifier(average(defence, passes=3), batch_size).vjp(images, v)


@pytest.mark.parametrize("change", DEFENCES.values())
def test_gradients_do_not_depend_on_the_batch(change: Change) -> None:
    alone = gradient_of(defended(change), 1)
    assert (np.abs(alone).max(axis=(1, 2, 3)) > 1e-2).all()
    for defence in (defended(change), defended(change, keeps=True)):  # of which the second is asked one image at a time
        np.testing.assert_allclose(gradient_of(defence, 4), alone, atol=1e-6)

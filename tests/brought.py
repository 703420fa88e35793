"""What the tests of models that people bring have in common."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import robustcmp as rc
from robustcmp.attacks import FGSM
from robustcmp.attacks.suite import Suite
from robustcmp.models.classifier import Classifier
from robustcmp.models.model import Model

ONE_ATTACK = Suite("one attack", "", 5, 1, {"fgsm": FGSM(epsilons=10, max_epsilon=0.5)})
"""For tests of what a report says about models."""
SUITE = """
[attacks.fgsm]
attack = "FGSM"
epsilons = 10
max_epsilon = 0.5
[attacks.single_pixel]
attack = "SinglePixel"
max_pixels = 3
"""


def beside(images: NDArray[np.float32], labels: NDArray[np.int64], classes: int) -> Model:
    """Return a linear model that is right about all images: what stands beside a model that is brought."""
    inverse = np.linalg.pinv(images.reshape(len(images), -1).astype(np.float64))
    targets = 2 * np.eye(classes)[labels] - 1
    return rc.wrap_functions(
        logits=lambda x: x.reshape(len(x), -1) @ inverse @ targets,
        vjp=lambda x, v: (v @ targets.T @ inverse.T).reshape(x.shape),
    )


def compared(model: Any, images: NDArray[np.float32], tmp_path: Path) -> None:
    """Attack a model beside another at the labels that it gives, with and without gradients."""
    suite = tmp_path / "suite.toml"
    suite.write_text(SUITE)
    logits = Classifier(model).logits(images)
    labels, n = logits.argmax(axis=1), len(images)
    models = {"brought": model, "beside": beside(images, labels, logits.shape[1])}
    ev = rc.evaluate(models, images, labels, suite=suite, n=n, repeats=1, batch_size=min(n, 8), progress=False)
    assert ev.dataset.sizes["image"] == n
    assert all(set(rates) == {"fgsm", "single_pixel"} for rates in ev.results.rates().values())
    assert ev.results.rates()["brought"]["fgsm"] > 0

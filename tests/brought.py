"""What the tests of models that people bring have in common."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray

import robustcmp as rc
from robustcmp.models.classifier import Classifier
from robustcmp.models.model import Model

N, SIDE, CLASSES = 24, 8, 3
SUITE = """
[attacks.fgsm]
attack = "FGSM"
epsilons = 10
max_epsilon = 0.5
[attacks.single_pixel]
attack = "SinglePixel"
max_pixels = 3
"""
LANGUAGES = {"PyTorch": "torch", "Keras and TensorFlow": "tensorflow", "JAX": "jax"}


class Case(NamedTuple):
    """A line of docs/what-you-can-bring.md.

    Attributes
    ----------
    group, what, typed, got : str
        The line.
    make : callable
        Returns what is brought and the same network in another form, None where there is none; or does what raises.
    message : str
        A pattern, for what is refused.
    near : float
        How far logits may be from those of the other form.
    options : dict
        For `robustcmp.wrap`.
    marks : sequence of marks
        Of the test.
    """

    group: str
    what: str
    typed: str
    make: Callable[..., Any]
    got: str = "a comparison"
    message: str = ""
    near: float = 1e-4
    options: dict[str, Any] = {}
    marks: Sequence[Any] = ()


def parametrize(cases: Sequence[Case]) -> Any:
    """Return the mark of a test that has a body for all of these cases."""
    parameters = []
    for case in cases:
        line = pytest.mark.brought(group=case.group, what=case.what, typed=case.typed, got=case.got)
        parameters.append(pytest.param(case, marks=[line, *case.marks], id=case.what))
    return pytest.mark.parametrize("case", parameters)


def drawn(n: int = N, side: int = SIDE) -> NDArray[np.float32]:
    return np.random.default_rng(0).random((n, side, side, 3), dtype=np.float32)


def beside(images: NDArray[np.float32], labels: NDArray[np.int64], classes: int) -> Model:
    """Return a linear model that is right about all images: what stands beside a model that is brought."""
    inverse = np.linalg.pinv(images.reshape(len(images), -1).astype(np.float64))
    targets = 2 * np.eye(classes)[labels] - 1
    return rc.wrap_functions(
        logits=lambda x: x.reshape(len(x), -1) @ inverse @ targets,
        vjp=lambda x, v: (v @ targets.T @ inverse.T).reshape(x.shape),
    )


def check_comparison(model: Any, images: NDArray[np.float32], tmp_path: Path) -> None:
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

"""What people bring: a table of cases, of which `test_brought.py` has the one body."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from typing import Any, NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray

import robustcmp as rc
from robustcmp.models.classifier import Classifier
from robustcmp.models.model import Model
from robustcmp.models.preflight import check_model

N, SIDE, CLASSES = 24, 8, 3
LANGUAGES = {"PyTorch": "torch", "Keras and TensorFlow": "tensorflow", "JAX": "jax", "Defences": "torch"}
Figures = Iterator[tuple[Any, Any]]


class Case(NamedTuple):
    """A line of docs/what-you-can-bring.md.

    Attributes
    ----------
    group, what, typed, got : str
        The line.
    make : callable
        Returns what is brought and the same in another form, None where there is none; or does what raises.
    message : str
        A pattern, for what is refused.
    figures : callable
        Takes what `make` returns and the case, and gives pairs: figures of what is brought, and of the other form.
    near : float
        How far they may be from each other.
    options : dict
        For `robustcmp.wrap`.
    marks : sequence of marks
        Of the test.
    """

    group: str
    what: str
    typed: str
    make: Callable[[], Any]
    got: str = "a comparison"
    message: str = ""
    figures: Callable[[Any, Case], Figures] = lambda pairs, _: iter(pairs)
    near: float = 1e-4
    options: dict[str, Any] = {}
    marks: Sequence[Any] = ()


def parametrize(cases: Sequence[Case]) -> Any:
    """Return the mark of a test that has a body for all of these cases."""
    parameters = []
    for case in cases:
        line = pytest.mark.brought(group=case.group, what=case.what, typed=case.typed, got=case.got)
        parameters.append(pytest.param(case, marks=[line, *case.marks], id=f"{case.group}: {case.what}"))
    return pytest.mark.parametrize("case", parameters)


def library(name: str) -> Any:
    """Import a library, or skip: torchvision ends in a RuntimeError beside a torch that was built otherwise."""
    try:
        return import_module(name)
    except (ImportError, RuntimeError) as error:
        pytest.skip(f"{name} cannot be imported: {error}")


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


def check_comparison(model: Any, images: NDArray[np.float32]) -> None:
    """Attack a model beside another at the labels that it gives, with gradients if it has some, and without."""
    suite = {"fgsm": rc.attacks.FGSM(epsilons=10, max_epsilon=0.5), "pixel": rc.attacks.SinglePixel(max_pixels=3)}
    classifier = Classifier(model)
    logits = classifier.logits(images)
    labels, n = logits.argmax(axis=1), len(images)
    models = {"brought": model, "beside": beside(images, labels, logits.shape[1])}
    ev = rc.evaluate(models, images, labels, suite=suite, n=n, repeats=1, batch_size=min(n, 8), progress=False)
    assert ev.dataset.sizes["image"] == n
    rates = ev.results.rates()["brought"]
    if classifier.no_gradient:
        assert "fgsm" in ev.results.reasons("not_applicable")["brought"]
    else:
        assert rates["fgsm"] > 0
    assert rates["pixel"] >= 0


def as_model(native: Any, **options: Any) -> Model:
    return native if isinstance(native, Model) else rc.wrap(native, device="cpu", **options)


def compare_models(brought: Any, case: Case) -> Figures:
    """Ask a model as it is brought and the same network for logits and gradients, and compare it with another."""
    native, plain = brought
    model = as_model(native, **case.options)
    if model.bounds != (0, 1):
        model = model.transform_bounds((0, 1))
    received, images = Classifier(model), drawn()
    if plain is not None:
        expected = Classifier(as_model(plain))
        logits = received.logits(images)
        assert logits.dtype == np.float32
        yield logits, expected.logits(images)
        for asked in (received, received.compile(images)):
            np.testing.assert_allclose(asked.logits(images), logits, atol=1e-4)
            if not received.no_gradient:
                v = np.random.default_rng(1).normal(size=logits.shape).astype(np.float32)
                gradient = expected.vjp(images, v)
                scale = 4 * np.abs(gradient).max()
                yield asked.vjp(images, v) / scale, gradient / scale
        check_model("m", received, images, logits.argmax(axis=1))
    check_comparison(model, images)


def ask(native: Any, **options: Any) -> Any:
    return Classifier(rc.wrap(native, device="cpu", **options)).logits(drawn())


def check(native: Any, **options: Any) -> None:
    """Look at a model as a comparison does before it attacks."""
    classifier = Classifier(rc.wrap(native, device="cpu", **options)).compile(drawn())
    check_model("m", classifier, drawn(), np.zeros(N, np.int64))

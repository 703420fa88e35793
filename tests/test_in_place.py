"""Networks that normalise their images in place: they are attacked like those that leave them alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import robustcmp as rc
from robustcmp.models.classifier import Classifier

N, SIDE, CLASSES = 20, 6, 3
MEAN, STD = 0.13, 0.31
SUITE = """
description = "one that follows the gradient, and two that do not"
[attacks.fgsm]
attack = "FGSM"
[attacks.pepper]
attack = "SaltAndPepperNoiseAttack"
steps = 20
[attacks.noise]
attack = "LinfRepeatedAdditiveUniformNoiseAttack"
epsilons = [0.3]
repeats = 10
"""
pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit.* is (deprecated|not supported):DeprecationWarning")


def drawn() -> NDArray[np.float32]:
    return np.random.default_rng(0).random((N, SIDE, SIDE, 1), dtype=np.float32)


def made(kind: str, in_place: bool) -> Any:
    """Return a network of one layer behind a normalisation."""
    kernel = (np.random.default_rng(1).normal(size=(SIDE * SIDE, CLASSES)) / 4).astype(np.float32)
    if not kind.startswith("torch"):

        def logits(x: Any) -> Any:
            if in_place:
                x -= np.float32(MEAN)
                x /= np.float32(STD)
            else:
                x = (x - np.float32(MEAN)) / np.float32(STD)
            return x.reshape(len(x), -1) @ kernel

        def vjp(x: Any, v: Any) -> Any:
            if in_place:
                x[:] = 0
            return (v @ kernel.T).reshape(x.shape) / np.float32(STD)

        return rc.wrap_functions(logits=logits, vjp=vjp if kind == "functions" else "finite-differences")
    torch = pytest.importorskip("torch")

    class Network(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.last = torch.nn.Linear(SIDE * SIDE, CLASSES, bias=False)

        def forward(self, x: Any) -> Any:
            if in_place:
                x -= MEAN
                x /= STD
            else:
                x = (x - MEAN) / STD
            return self.last(x.flatten(1))

    network = Network().eval()
    network.last.weight.data = torch.tensor(kernel.T.copy())
    return rc.wrap(network.to(torch.bfloat16) if kind == "torch in bfloat16" else network, device="cpu")


@pytest.mark.parametrize("kind", ["torch", "torch in bfloat16", "functions", "finite differences"])
def test_a_network_that_normalises_in_place(kind: str, tmp_path: Path) -> None:
    (tmp_path / "some.toml").write_text(SUITE)
    plain, inside = made(kind, False), made(kind, True)
    images = drawn()
    labels = Classifier(plain).predict(images)
    kept = images.copy()
    ev = rc.evaluate(
        {"plain": plain, "inside": inside},
        images,
        labels,
        suite=tmp_path / "some.toml",
        n=N,
        repeats=2,
        progress=False,
    )
    assert (images == kept).all()
    assert not any(ev.results.reasons("not_applicable").values())
    data = ev.dataset
    for name in ("success", "l0", "l2", "linf", "queries"):
        one, other = (data[name].sel(model=model).values for model in ("plain", "inside"))
        np.testing.assert_array_equal(one, other, err_msg=name)
    rates = ev.results.rates()["plain"]
    assert all(rates[attack] > 0 for attack in ("fgsm", "pepper", "noise"))


@pytest.mark.parametrize("kind", ["torch", "torch in bfloat16", "functions"])
def test_tensors_of_the_caller_stay(kind: str) -> None:
    torch = pytest.importorskip("torch")
    images = torch.tensor(drawn())
    if kind != "functions":
        images = images.permute(0, 3, 1, 2)
    model = made(kind, True)
    kept = images.clone()
    model(images)
    assert bool((images == kept).all())
    x = images.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(model(x).square().sum(), x)
    y = images.clone().requires_grad_()
    (expected,) = torch.autograd.grad(made(kind, False)(y).square().sum(), y)
    assert bool((gradient == expected).all())

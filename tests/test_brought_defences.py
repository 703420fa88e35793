"""Defences that people bring: they are attacked as they are, random ones as the mean of their passes, or refused."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from brought import check_comparison
from numpy.typing import NDArray

import robustcmp as rc
from robustcmp.errors import ModelError, UsageError
from robustcmp.models.classifier import Classifier
from robustcmp.models.preflight import check_model

torch = pytest.importorskip("torch", reason="torch is not installed")

N, SIDE, CLASSES = 8, 8, 3
brought = partial(pytest.mark.brought, group="Defences", got="a comparison")
MEAN = "a comparison with the mean of passes"


def drawn(n: int = N, side: int = SIDE) -> NDArray[np.float32]:
    return np.random.default_rng(0).random((n, side, side, 3), dtype=np.float32)


def own_layout(images: NDArray[np.float32]) -> Any:
    return torch.tensor(np.ascontiguousarray(images.transpose(0, 3, 1, 2)))


def convolutional(seed: int = 0) -> Any:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return torch.nn.Sequential(
            torch.nn.Conv2d(3, 4, 3),
            torch.nn.Tanh(),
            torch.nn.AdaptiveAvgPool2d(3),
            torch.nn.Flatten(),
            torch.nn.Linear(36, CLASSES),
        ).eval()


class Recorded(torch.nn.Module):  # type: ignore[misc]
    """A random defence of a network, which may keep what it answers in each pass, in NumPy."""

    def __init__(self, keeps: bool = False) -> None:
        super().__init__()
        self.network, self.keeps, self.calls = convolutional(), keeps, 0
        self.passes: list[NDArray[np.float32]] = []

    def changed(self, x: Any) -> Any:
        raise NotImplementedError

    def forward(self, x: Any) -> Any:
        logits = 4 * self.network(self.changed(x))
        self.calls += 1
        if self.keeps:
            self.passes.append(logits.detach().numpy())
        return logits


class Noise(Recorded):
    """Gaussian noise, as in the smoothing of Cohen et al. (2019)."""

    def changed(self, x: Any) -> Any:
        return x + 0.25 * torch.randn_like(x)


class ResizeAndPad(Recorded):
    """Random resizing and padding (Xie et al. 2018); Python's generator draws the size, torch's the place."""

    def changed(self, x: Any) -> Any:
        side, whole = random.randint(SIDE, SIDE + 3), SIDE + 4
        x = torch.nn.functional.interpolate(x, (side, side))
        left, top = (int(torch.randint(0, whole - side + 1, ())) for _ in range(2))
        return torch.nn.functional.pad(x, (left, whole - side - left, top, whole - side - top))


DEFENCES = {
    "Gaussian noise on the image (Cohen et al. 2019)": Noise,
    "random resizing and padding (Xie et al. 2018)": ResizeAndPad,
}


def log_mean(logits: NDArray[np.float32]) -> NDArray[np.float64]:
    """Return the logarithm (K,) of the mean probabilities of passes (P, K)."""
    e = np.exp(logits.astype(np.float64))
    logs: NDArray[np.float64] = np.log((e / e.sum(axis=1, keepdims=True)).mean(axis=0))
    return logs


# what draws at random -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "what",
    [
        pytest.param(
            what,
            marks=brought(
                what=what, typed="rc.wrap(defended)", got="the message: attack its mean, robustcmp.averaged(model)"
            ),
        )
        for what in DEFENCES
    ],
)
def test_random_defences_are_recognised(what: str) -> None:
    model = rc.wrap(DEFENCES[what]().eval(), device="cpu")
    with pytest.raises(ModelError, match=r"switch off dropout.*model\.eval\(\).*robustcmp\.averaged\(model\)"):
        rc.evaluate({"m": model}, drawn(), np.zeros(N, np.int64), suite="smoke", progress=False)


@pytest.mark.parametrize(
    "what",
    [
        pytest.param(what, marks=brought(what=f"{what}, averaged", typed="rc.averaged(rc.wrap(defended))", got=MEAN))
        for what in DEFENCES
    ],
)
def test_random_defences_averaged(what: str, tmp_path: Path) -> None:
    defence, images = DEFENCES[what](keeps=True).eval(), drawn()
    before = torch.random.get_rng_state(), random.getstate()
    logits = Classifier(rc.averaged(rc.wrap(defence, device="cpu")), batch_size=1).logits(images)
    assert torch.equal(before[0], torch.random.get_rng_state())
    assert before[1] == random.getstate()
    passes = np.concatenate(defence.passes).reshape(N, 16, CLASSES)  # each image alone, 16 times
    assert (passes.std(axis=1) > 1e-3).all()
    np.testing.assert_allclose(logits, [*map(log_mean, passes)], atol=1e-5)

    model = rc.averaged(rc.wrap(DEFENCES[what]().eval(), device="cpu"))
    own = own_layout(images)
    for ordered in (own, own.contiguous(memory_format=torch.channels_last)):
        np.testing.assert_allclose(model(ordered), logits, atol=1e-5)
    classifier = Classifier(model, batch_size=3)
    np.testing.assert_allclose(classifier.logits(images[::-1].copy())[::-1], logits, atol=1e-5)
    assert classifier.compile(images) is classifier
    assert not check_model("m", classifier, images, logits.argmax(axis=1))
    check_comparison(rc.averaged(rc.wrap(DEFENCES[what]().eval(), device="cpu"), passes=3), images[:4], tmp_path)


def test_the_gradient_is_that_of_the_same_passes() -> None:
    images, v = drawn(2), np.random.default_rng(1).normal(size=(2, CLASSES)).astype(np.float32)
    wrapped = rc.wrap(Noise().double().eval(), preprocessing={"mean": [0.5] * 3, "std": [0.3] * 3, "axis": -3})
    classifier = Classifier(rc.averaged(wrapped, passes=5))
    direction = np.random.default_rng(2).normal(size=images.shape).astype(np.float32)
    step = 1e-3
    rise = classifier.logits(images + step * direction) - classifier.logits(images - step * direction)
    slopes = (rise * v).sum(axis=1) / (2 * step)
    gradient = classifier.vjp(images, v)
    np.testing.assert_allclose((gradient * direction).sum(axis=(1, 2, 3)), slopes, rtol=2e-2, atol=1e-3)


# messages -------------------------------------------------------------------------------------------------------------


@brought(
    what="a random defence with a generator of its own, averaged",
    typed="rc.averaged(rc.wrap(defended))",
    got="the message: let it draw from the global generator",
)
def test_a_generator_of_its_own() -> None:
    class Own(Recorded):
        generator = torch.Generator()

        def changed(self, x: Any) -> Any:
            return x + torch.randn(x.shape, generator=self.generator)

    model = rc.averaged(rc.wrap(Own().eval(), device="cpu"))
    with pytest.raises(ModelError, match=r"different logits.* let it draw from the global generator"):
        rc.evaluate({"m": model}, drawn(), np.zeros(N, np.int64), suite="smoke", progress=False)


def plain() -> Any:
    return rc.wrap(convolutional(), device="cpu")


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: rc.averaged(convolutional()), r"expected a model from robustcmp\.wrap"),
        (lambda: rc.averaged(rc.averaged(plain())), "averaged already"),
        (lambda: rc.averaged(plain(), passes=0), "passes"),
        (lambda: rc.averaged(plain(), seed="a"), "seed"),
        (lambda: rc.averaged(rc.wrap_functions(logits=lambda x: x[:, 0, 0])), "average inside of what answers"),
        (lambda: rc.averaged(rc.load_model("lenet1", framework="torch", dataset="digits")), "one of the zoo"),
        (lambda: rc.deploy(rc.averaged(plain()), "onnxruntime"), "deploy a network that draws nothing"),
    ],
)
def test_what_cannot_be_averaged(make: Callable[[], Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        make()


# RobustBench ----------------------------------------------------------------------------------------------------------


# outside of torch -----------------------------------------------------------------------------------------------------


@brought(
    what="a random function of JAX",
    typed="rc.averaged(rc.wrap((apply, parameters)))",
    got="the message: average inside it, by jax.vmap over keys",
)
def test_jax() -> None:
    pytest.importorskip("jax", reason="jax is not installed")
    model = rc.wrap(lambda x: x.reshape(len(x), -1)[:, :3], framework="jax")
    with pytest.raises(UsageError, match=r"average inside it: jax\.vmap"):
        rc.averaged(model)


def gradient_of(defence: Any, batch_size: int) -> NDArray[np.float32]:
    images, v = drawn(4), np.random.default_rng(1).normal(size=(4, CLASSES)).astype(np.float32)
    return Classifier(rc.averaged(rc.wrap(defence.eval(), device="cpu"), passes=3), batch_size).vjp(images, v)


@pytest.mark.parametrize("kind", [*DEFENCES.values()])
def test_gradients_do_not_depend_on_the_batch(kind: type[Recorded]) -> None:
    alone = gradient_of(kind(), 1)
    assert (np.abs(alone).max(axis=(1, 2, 3)) > 1e-2).all()
    for defence in (kind(), kind(keeps=True)):  # of which the second is asked one image at a time
        np.testing.assert_allclose(gradient_of(defence, 4), alone, atol=1e-6)

"""Defences that people bring: random ones are attacked as the mean of their passes, or refused."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

import robustcmp as rc
from brought import CLASSES, SIDE, Case, Figures, check_comparison, library
from brought import drawn as draw
from robustcmp.models.classifier import Classifier
from robustcmp.models.preflight import check_model

N = 8
drawn = partial(draw, N)
Change = Callable[[Any], Any]


def own_layout(images: NDArray[np.float32]) -> Any:
    return library("torch").tensor(np.ascontiguousarray(images.transpose(0, 3, 1, 2)))


def convolutional() -> Any:
    torch = library("torch")
    with torch.random.fork_rng():
        torch.manual_seed(0)
        convolution, pool = torch.nn.Conv2d(3, 4, 3), torch.nn.AdaptiveAvgPool2d(3)
        dense = torch.nn.Linear(36, CLASSES)
        return torch.nn.Sequential(convolution, torch.nn.Tanh(), pool, torch.nn.Flatten(), dense).eval()


def defended(change: Change, keeps: bool = False) -> Any:
    """Return a network behind a change of its images, which may keep what it answers in each pass, in NumPy."""
    torch = library("torch")

    class Defended(torch.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.network, self.calls = convolutional(), 0
            self.passes: list[NDArray[np.float32]] = []

        def forward(self, x: Any) -> Any:
            logits = 4 * self.network(change(x))
            self.calls += 1
            if keeps:
                self.passes.append(logits.detach().numpy())
            return logits

    return Defended().eval()


def add_noise(x: Any) -> Any:
    return x + 0.25 * library("torch").randn_like(x)


def resize_and_pad(x: Any) -> Any:
    """Resize and pad; Python's generator draws the size, torch's the place."""
    torch = library("torch")
    side, whole = random.randint(SIDE, SIDE + 3), SIDE + 4
    x = torch.nn.functional.interpolate(x, (side, side))
    left, top = (int(torch.randint(0, whole - side + 1, ())) for _ in range(2))
    return torch.nn.functional.pad(x, (left, whole - side - left, top, whole - side - top))


def bring_generator() -> Any:
    torch = library("torch")
    generator = torch.Generator()
    return defended(lambda x: x + torch.randn(x.shape, generator=generator))


def log_mean(logits: NDArray[np.float32]) -> NDArray[np.float64]:
    """Return the logarithm (K,) of the mean probabilities of passes (P, K)."""
    e = np.exp(logits.astype(np.float64))
    logs: NDArray[np.float64] = np.log((e / e.sum(axis=1, keepdims=True)).mean(axis=0))
    return logs


DEFENCES: dict[str, Change] = {
    "Gaussian noise on the image (Cohen et al. 2019)": add_noise,
    "random resizing and padding (Xie et al. 2018)": resize_and_pad,
}


def compare_average(change: Change, case: Case) -> Figures:
    """Compare the mean of a defence's passes with what each pass answered, in any batch and memory format."""
    torch, images = library("torch"), drawn()
    defence = defended(change, keeps=True)
    states = torch.random.get_rng_state(), random.getstate()
    logits = Classifier(average(defence), batch_size=1).logits(images)
    assert torch.equal(states[0], torch.random.get_rng_state())
    assert states[1] == random.getstate()
    passes = np.concatenate(defence.passes).reshape(N, 16, CLASSES)  # each image alone, 16 times
    assert (passes.std(axis=1) > 1e-3).all()
    yield logits, [*map(log_mean, passes)]

    model = average(defended(change))
    tensor = own_layout(images)
    for ordered in (tensor, tensor.contiguous(memory_format=torch.channels_last)):
        yield model(ordered), logits
    classifier = Classifier(model, batch_size=3)
    yield classifier.logits(images[::-1].copy())[::-1], logits
    assert classifier.compile(images) is classifier
    assert not check_model("m", classifier, images, logits.argmax(axis=1))
    check_comparison(average(defended(change), passes=3), images[:4])


def average(defence: Any, **options: Any) -> Any:
    return rc.averaged(rc.wrap(defence.eval(), device="cpu"), **options)


def refuse(model: Any) -> None:
    rc.evaluate({"m": model}, drawn(), np.zeros(N, np.int64), suite="smoke", progress=False)


Defence = partial(Case, "Defences")
CASES = [
    *(
        Defence(
            what,
            "rc.wrap(defended)",
            lambda change=change: refuse(rc.wrap(defended(change), device="cpu")),
            "the message: attack its mean, robustcmp.averaged(model)",
            r"switch off dropout.*model\.eval\(\).*robustcmp\.averaged\(model\)",
        )
        for what, change in DEFENCES.items()
    ),
    *(
        Defence(
            f"{what}, averaged",
            "rc.averaged(rc.wrap(defended))",
            lambda change=change: change,
            "a comparison with the mean of passes",
            figures=compare_average,
            near=1e-5,
        )
        for what, change in DEFENCES.items()
    ),
    Defence(
        "a random defence with a generator of its own, averaged",
        "rc.averaged(rc.wrap(defended))",
        lambda: refuse(average(bring_generator())),
        "the message: let it draw from the global generator",
        r"different logits.* let it draw from the global generator",
    ),
    Defence(
        "a random function of JAX",
        "rc.averaged(rc.wrap((apply, parameters)))",
        lambda: rc.averaged(rc.wrap(lambda x: x.reshape(len(x), -1)[:, :3], framework="jax")),
        "the message: average inside it, by jax.vmap over keys",
        r"average inside it: jax\.vmap",
    ),
]

"""Models that functions make, in whatever process: sound ones, and those that misbehave outside of the tests' process.

They look at the first pixel only. What is planted in one happens once another pixel is 1.0, as in single pixel's
candidates and in no image that a model is recognised by, unless the variable ``PLANTED_MENDED`` is set.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import foolbox as fb
import numpy as np
from numpy.typing import NDArray

import robustcmp as rc
from robustcmp.models.model import Model

PIXEL_AND_WALK = """
[attacks.pixel]
attack = "SinglePixel"
max_pixels = 9
[attacks.walk]
attack = "Boundary"
iterations = 2
max_directions = 2
"""
"""A suite of two attacks with draws, without a gradient, that is soon done."""

HEAD, MENDED = "PLANTED_HEAD", "PLANTED_MENDED"
N = 12
IMAGES = np.random.default_rng(3).random((N, 6, 6, 1), np.float32) * 0.1
IMAGES[::2, 0, 0, 0] = 0.9
LABELS = np.arange(N) % 2


def bright(threshold: float = 0.5) -> fb.NumPyModel:
    """Return a plain Foolbox model: class 0 where the first pixel is bright."""

    def logits(x: NDArray[Any]) -> NDArray[np.float32]:
        gap = x[:, 0, 0, 0] - np.float32(threshold)
        return np.stack([gap, -gap], axis=1) * 4

    return fb.NumPyModel(logits, bounds=(0, 1))


def evaluate_two(directory: Path, images: NDArray[np.float32] = IMAGES, **options: Any) -> rc.Evaluation:
    """Return an evaluation of two plain models under two random attacks, in ``directory / "run"``."""
    suite = directory / "suite.toml"
    suite.write_text(PIXEL_AND_WALK)
    defaults = {"suite": suite, "n": 5, "repeats": 2, "out": directory / "run", "batch_size": 16, "progress": False}
    return rc.evaluate({"a": bright(), "b": bright(0.3)}, images, LABELS, **defaults | options)


def acts() -> bool:
    """Whether what is planted happens in this process."""
    return os.environ.get(HEAD) != str(os.getpid()) and MENDED not in os.environ


def sound(threshold: float = 0.5, planted: Callable[[], object] = lambda: None) -> Model:
    def logits(x: NDArray[Any]) -> NDArray[np.float32]:
        if x.reshape(len(x), -1)[:, 1:].max() == 1.0 and acts():
            planted()
        gap = x[:, 0, 0, 0] - np.float32(threshold)
        return np.stack([gap, -gap], axis=1) * 4

    return rc.wrap_functions(logits=logits)


def other() -> Model:
    return sound(0.3)


def segfaults() -> Model:
    return sound(0.4, lambda: ctypes.string_at(0))


def _abort() -> None:
    sys.stderr.write("terminate called after throwing an instance of 'std::length_error'\n")
    sys.stderr.flush()
    os.abort()


def aborts() -> Model:
    return sound(0.4, _abort)


def hangs() -> Model:
    return sound(0.4, lambda: time.sleep(3600))


def exits() -> Model:
    return sound(0.4, lambda: os._exit(7))


def raises() -> Model:
    def fail() -> None:
        raise ArithmeticError("no such logits")

    return sound(0.4, fail)


def refuses() -> Model:
    """Answer nothing but clean images, once it is in another process."""
    logits = sound(0.4)
    known = {image.tobytes() for image in IMAGES}

    def answer(x: NDArray[Any]) -> NDArray[np.float32]:
        if os.environ.get(HEAD) != str(os.getpid()) and not all(image.tobytes() in known for image in x):
            raise ArithmeticError("no such logits")
        return np.asarray(logits(x))

    return rc.wrap_functions(logits=answer)


def grows() -> Model:
    def grow() -> None:
        held = []
        while True:
            held.append(np.ones(2**23))  # 64 MiB
            time.sleep(0.05)

    return sound(0.4, grow)


def differs() -> Model:
    """Answers with other last bits outside of the tests' process, as on another CPU."""
    return sound(0.4 if os.environ.get(HEAD) == str(os.getpid()) else 0.40000004)


def differs_on_perturbed() -> Model:
    """Answers other images than the clean ones otherwise, outside of the tests' process."""
    logits, known = sound(0.4), {image.tobytes() for image in IMAGES}

    def answer(x: NDArray[Any]) -> NDArray[np.float32]:
        answers = np.asarray(logits(x)).copy()
        if os.environ.get(HEAD) != str(os.getpid()):
            perturbed = [image.tobytes() not in known for image in x]
            answers[perturbed] = answers[perturbed][:, ::-1]
        return answers

    return rc.wrap_functions(logits=answer)


def differs_in_gradient() -> Model:
    """Has a gradient of the other sign outside of the tests' process."""
    sign = np.float32(4 if os.environ.get(HEAD) == str(os.getpid()) else -4)

    def vjp(x: NDArray[Any], v: NDArray[Any]) -> NDArray[np.float32]:
        slope = np.zeros_like(x)
        slope[:, 0, 0, 0] = (v[:, 0] - v[:, 1]) * sign
        return slope

    return rc.wrap_functions(logits=sound(0.4), vjp=vjp)


def kills_its_worker() -> Model:
    return sound(0.4, lambda: os.kill(os.getppid(), signal.SIGKILL))


def slow() -> Model:
    """Takes its time, so that a worker can be lost meanwhile."""
    return sound(0.4, lambda: time.sleep(0.2))


# at the first look --------------------------------------------------------------------------------------------------


def exits_at_load() -> Model:
    sys.exit(3)


# networks of torch ---------------------------------------------------------------------------------------------------


def torch_exits() -> Any:
    """A network of torch that ends its process when it is attacked: no trial asks the gradient of so few images."""
    return _network(lambda x: os._exit(7) if x.requires_grad and len(x) <= 5 and acts() else None)


def torch_segfaults() -> Any:
    """Networks that end their process, or never answer, as soon as they are asked anything."""
    return _network(lambda x: ctypes.string_at(0))


def _network(planted: Callable[[Any], object]) -> Any:
    import torch

    class Network(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weights = torch.from_numpy(np.random.default_rng(0).normal(size=(784, 10)).astype(np.float32))

        def forward(self, x: Any) -> Any:
            if torch.jit.is_tracing():
                raise RuntimeError("this network cannot be traced")
            planted(x)
            return x.flatten(1) @ self.weights

    return Network().eval()

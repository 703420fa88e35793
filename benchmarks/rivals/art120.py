"""Time ART 1.20, the Adversarial Robustness Toolbox."""

from __future__ import annotations

from typing import Any

import art
import numpy as np
import scipy
import torch
from art.attacks.evasion import BoundaryAttack, FastGradientMethod, PixelAttack
from art.estimators.classification import PyTorchClassifier

from network import DIRECTIONS, EPSILONS, ITERATIONS, MAX_EPSILON, START_DRAWS, STEP, run

BATCH = 128


def wrap(network: torch.nn.Module) -> Any:
    return PyTorchClassifier(
        network, torch.nn.CrossEntropyLoss(), (1, 28, 28), 10, clip_values=(0.0, 1.0), device_type="cpu"
    )


def fgsm(model: Any, images: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, str]:
    step = MAX_EPSILON / EPSILONS
    # ART adds the steps up in floating point and would miss the last one if eps were exactly 0.1.
    attack = FastGradientMethod(model, eps=MAX_EPSILON + step / 2, eps_step=step, minimal=True, batch_size=BATCH)
    return attack.generate(images, labels), (
        "The same grid, from minimal=True; eps is half a step more, as ART's own sum of 100 steps passes 0.1. Every "
        "step is asked for the whole batch of 128, also for images that have fallen; the gradient is that of the "
        "cross-entropy in float32."
    )


def single_pixel(model: Any, images: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, str]:
    attack = PixelAttack(model, th=1, es=1, max_iter=100, verbose=False)
    return attack.generate(images, labels), (
        "Another attack, the one-pixel attack of Su et al.: differential evolution over the position and all 256 "
        "values, 399 candidates a generation and up to 100 generations, driven by the true class's logit; robustcmp "
        "asks for at most 100 positions and two values, 200 decisions."
    )


def boundary(model: Any, images: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, str]:
    # 25 trials are ART's default. Only 5 would end most walks after some 10 or 20 of the 100 iterations.
    attack = BoundaryAttack(
        model,
        targeted=False,
        delta=STEP,
        epsilon=STEP,
        step_adapt=1 / 1.5,
        max_iter=ITERATIONS,
        num_trial=25,
        sample_size=DIRECTIONS,
        init_size=START_DRAWS,
        verbose=False,
    )
    return attack.generate(images, labels), (
        "Starts from the noise itself, without blending it with the image. A step asks for 5 spherical candidates at "
        "once, then for the source steps from all of them that fooled, and takes the closest; each half is tried up to "
        "25 times, with its step size adapted after every try, and a walk that fails so often ends. float32; the "
        "noise of the start is seeded by the system and differs from run to run."
    )


if __name__ == "__main__":
    run(
        f"ART {art.__version__}",
        wrap,
        {"fgsm": fgsm, "single_pixel": single_pixel, "boundary": boundary},
        {"adversarial-robustness-toolbox": art.__version__, "scipy": scipy.__version__},
    )

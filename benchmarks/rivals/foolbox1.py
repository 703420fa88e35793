"""Time Foolbox 1.8.0, the tool of Guo et al.: one image after the other, with their settings."""

from __future__ import annotations

from typing import Any

import foolbox
import numpy as np
import randomgen
import scipy
import torch

from network import DIRECTIONS, EPSILONS, ITERATIONS, MAX_EPSILON, MAX_PIXELS, SEED, STEP, run


def wrap(network: torch.nn.Module) -> Any:
    foolbox.set_seeds(SEED)
    return foolbox.models.PyTorchModel(network, bounds=(0, 1), num_classes=10, device="cpu")


def fgsm(model: Any, images: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, str]:
    attack = foolbox.attacks.GradientSignAttack(model)
    adversarials = _one_by_one(attack, images, labels, epsilons=EPSILONS, max_epsilon=MAX_EPSILON)
    return adversarials, (
        "The same grid. A success at one of the first 20 grid values is refined over 20 finer steps, which changes the "
        "distance and no success; the gradient is that of the cross-entropy in float32."
    )


def single_pixel(model: Any, images: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, str]:
    attack = foolbox.attacks.SinglePixelAttack(model)
    adversarials = _one_by_one(attack, images, labels, max_pixels=MAX_PIXELS)
    return adversarials, "The same attack; the order of the pixels is drawn from another generator."


def boundary(model: Any, images: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, str]:
    attack = foolbox.attacks.BoundaryAttack(model)
    adversarials = _one_by_one(
        attack,
        images,
        labels,
        iterations=ITERATIONS,
        max_directions=DIRECTIONS,
        spherical_step=STEP,
        source_step=STEP,
        log_every_n_steps=10**9,
        threaded_rnd=False,
        threaded_gen=False,
    )
    return adversarials, (
        "The same attack, with its default start, the blended uniform noise. After converging it resets both steps "
        "once and wants 100 confirmations, and the nearest adversarial image that it ever asked about is the result, "
        "a spherical candidate too. The directions are seeded by the system and differ from run to run. Its threads, "
        "on by default, are off."
    )


def _one_by_one(attack: Any, images: np.ndarray, labels: np.ndarray, **settings: Any) -> np.ndarray:
    """Attack every image by itself; Foolbox 1 returns None where it failed."""
    adversarials = images.copy()
    for i, label in enumerate(labels.tolist()):
        found = attack(images[i], label, **settings)
        if found is not None:
            adversarials[i] = found
    return adversarials


if __name__ == "__main__":
    run(
        f"Foolbox {foolbox.__version__}",
        wrap,
        {"fgsm": fgsm, "single_pixel": single_pixel, "boundary": boundary},
        {"foolbox": foolbox.__version__, "randomgen": randomgen.__version__, "scipy": scipy.__version__},
    )

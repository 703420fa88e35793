"""Time Foolbox 3: all images in one batch."""

from __future__ import annotations

from typing import Any

import eagerpy
import foolbox
import numpy as np
import torch

from network import EPSILONS, ITERATIONS, MAX_EPSILON, STEP, run


def wrap(network: torch.nn.Module) -> Any:
    return foolbox.PyTorchModel(network, bounds=(0, 1), device="cpu")


def fgsm(model: Any, images: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, str]:
    grid = [MAX_EPSILON * k / EPSILONS for k in range(1, EPSILONS + 1)]
    attack = foolbox.attacks.FGSM()
    _, clipped, success = attack(model, torch.from_numpy(images), torch.from_numpy(labels), epsilons=grid)
    adversarials = images.copy()
    first = success.numpy().argmax(axis=0)  # 0 where none fools, which the last question to the network sorts out
    for i, k in enumerate(first.tolist()):
        adversarials[i] = clipped[k][i].numpy()
    return adversarials, (
        "The same grid, and an image counts where any epsilon fools. Every epsilon takes the gradient again, that of "
        "the cross-entropy in float32, and is asked for every image, also for those that have fallen."
    )


def boundary(model: Any, images: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, str]:
    note = (
        "100 steps from Foolbox's own start, blended uniform noise with 50 blends instead of 1000. One direction a "
        "step instead of up to 5, and one draw for the whole batch; float32; the spherical candidate does not decide "
        "whether the candidate is asked, and the source step is adapted at 0.25 and 0.1 instead of 0.5 and 0.2."
    )
    adversarials = _walk(model, images, labels)
    if adversarials is not None:
        return adversarials, note
    alone = [_walk(model, images[i : i + 1], labels[i : i + 1]) for i in range(len(images))]
    adversarials = np.concatenate([images[i : i + 1] if found is None else found for i, found in enumerate(alone)])
    return adversarials, note + (
        " Foolbox found no start for an image and raised an error for the batch, so the images were attacked again, "
        f"one at a time; {sum(found is None for found in alone)} of them had no start then. Both count in seconds."
    )


def _walk(model: Any, images: np.ndarray, labels: np.ndarray) -> np.ndarray | None:
    """Attack a batch; None if an image of it has no start, which fails all of them."""
    attack = foolbox.attacks.BoundaryAttack(steps=ITERATIONS, spherical_step=STEP, source_step=STEP)
    try:
        _, adversarials, _ = attack(model, torch.from_numpy(images), torch.from_numpy(labels), epsilons=None)
    except ValueError as error:
        if "init_attack failed" not in str(error):
            raise
        return None
    return adversarials.numpy()


if __name__ == "__main__":
    run(
        f"Foolbox {foolbox.__version__}",
        wrap,
        {"fgsm": fgsm, "boundary": boundary},
        {"foolbox": foolbox.__version__, "eagerpy": eagerpy.__version__},
    )

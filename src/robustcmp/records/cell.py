"""One model under one attack in one repeat: the unit of work, of storage and of resuming."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Cell:
    """One model under one attack in one repeat."""

    model: str
    training_seed: int
    attack: str
    repeat: int
    key: str


Extras = dict[str, NDArray[Any]]


@dataclass(frozen=True)
class AttackResult:
    """What an attack did to each of N images.

    Attributes
    ----------
    adversarials : array or tensor like the images that were passed
        The adversarial image, or the clean one where the attack failed.
    success : ndarray of bool, shape (N,)
        A final, separate forward pass says that the adversarial image is taken for another class than the label.
    l0, l2, linf : ndarray of float64, shape (N,)
        Distances to the clean image, +inf where the attack failed. L0 counts pixels of which any channel changed.
    adversarial_class : ndarray of int64, shape (N,)
        The class that the adversarial image is taken for, -1 where the attack failed.
    queries : ndarray of int64, shape (N,)
        How many candidates the attack's sequential definition asks the model about, however the work is batched.
        Gradients and the final check are not counted. -1 for Foolbox's own attacks, which do not count.
    extras : dict of str to ndarray
        What only this attack has, one entry an image.
    """

    adversarials: Any
    success: NDArray[np.bool_]
    l0: NDArray[np.float64]
    l2: NDArray[np.float64]
    linf: NDArray[np.float64]
    adversarial_class: NDArray[np.int64]
    queries: NDArray[np.int64]
    extras: dict[str, NDArray[Any]] = field(default_factory=dict)

"""Contested images: those that some models of a comparison classify correctly and others do not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import SealError


@dataclass(frozen=True)
class Contested:
    """What each attack does to images that are in the subset of some models and not in that of all.

    Attributes
    ----------
    attacks : list of str
        The attacks that were run on them.
    index : ndarray of int64, shape (N,)
        Where the attacked ones stand in the data that was passed.
    right : ndarray of bool, shape (models, N)
        Which of them each trained model classifies correctly.
    success : ndarray of float64, shape (models, attacks, N)
        The share of the repeats in which the attack succeeds; NaN where the model is wrong, or the attack cannot run.
    counts : ndarray of int64, shape (2,)
        Among all images: how many every model classifies correctly, and how many are contested. The attacked ones are
        a random part of the latter.
    """

    attacks: list[str]
    index: NDArray[np.int64]
    right: NDArray[np.bool_]
    success: NDArray[np.float64]
    counts: NDArray[np.int64]

    def beside(self, other: Contested) -> Contested:
        """Return it with what another one has of other attacks, if both are of the same images."""
        if not np.array_equal(self.index, other.index):
            return self
        more = [place for place, attack in enumerate(other.attacks) if attack not in self.attacks]
        attacks = self.attacks + [other.attacks[place] for place in more]
        return replace(self, attacks=attacks, success=np.concatenate([self.success, other.success[:, more]], axis=1))

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """Return it as arrays, for the store."""
        return vars(self) | {"attacks": np.array(self.attacks, "S")}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> Contested:
        """The inverse of `to_arrays`; raises `SealError` for what that does not return."""
        names, right = arrays["attacks"], arrays["right"]
        if names.dtype.kind != "S" or names.ndim != 1 or right.ndim != 2:
            raise SealError("attacks should be a list of names, and right should have the axes (models, images)")
        models, images = right.shape
        form = {
            "index": (np.int64, (images,)),
            "right": (np.bool_, (models, images)),
            "success": (np.float64, (models, len(names), images)),
            "counts": (np.int64, (2,)),
        }
        for name, (dtype, shape) in form.items():
            array = arrays[name]
            if array.dtype != dtype or array.shape != shape:
                raise SealError(f"{name} should be {np.dtype(dtype)} {shape}, received {array.dtype} {array.shape}")
        if (arrays["counts"] < 0).any() or (arrays["index"] < 0).any():
            raise SealError("counts and places of images should not be below 0")
        return cls([name.decode() for name in names.tolist()], *(arrays[name] for name in form))

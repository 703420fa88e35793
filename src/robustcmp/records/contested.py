"""Contested images: those that some models of a comparison classify correctly and others do not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray


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
        """The inverse of `to_arrays`."""
        attacks = [name.decode() for name in arrays["attacks"].tolist()]
        return cls(attacks, *(arrays[name] for name in ("index", "right", "success", "counts")))

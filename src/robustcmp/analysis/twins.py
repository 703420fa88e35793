"""Twins in a run: trained models that began from the same weights. `robustcmp.runs.related` says how they are found."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Key = tuple[str, int]
"""A model's name and training seed."""


class Twins(NamedTuple):
    """Two trained models that began from the same weights.

    Attributes
    ----------
    a, b : tuple of (str, int)
        The name and the training seed of each.
    correlation : float
        Of their trained weights.
    """

    a: Key
    b: Key
    correlation: float


def recorded_twins(manifest: dict[str, Any]) -> list[Twins]:
    """Return the twins that a manifest names; none for an older one, which does not say."""
    return [Twins(_key(pair["a"]), _key(pair["b"]), pair["correlation"]) for pair in manifest.get("twins", [])]


def _key(stored: Sequence[Any]) -> Key:
    name, seed = stored
    return str(name), int(seed)


def pairing(twins: Sequence[Twins], a: str, b: str, seeds_a: Sequence[int], seeds_b: Sequence[int]) -> list[int] | None:
    """Return where the twin of each of a's trainings is among b's.

    Parameters
    ----------
    twins : sequence of Twins
        Those of the run.
    a, b : str
        The names of two frameworks.
    seeds_a, seeds_b : sequence of int
        Their training seeds.

    Returns
    -------
    list of int or None
        A place in `seeds_b` for each of `seeds_a`; None unless each training of both has exactly one twin in the other.

    Examples
    --------
    >>> twins = [Twins(("x", 0), ("y", 5), 0.95), Twins(("y", 4), ("x", 1), 0.97)]
    >>> pairing(twins, "x", "y", [0, 1], [4, 5])
    [1, 0]
    >>> pairing(twins, "x", "y", [0, 1, 2], [4, 5, 6]) is None
    True
    """
    there = {frozenset((pair.a, pair.b)) for pair in twins}
    each = [
        [place for place, other in enumerate(seeds_b) if {(a, seed), (b, other)} in there] for seed in seeds_a if there
    ]
    places = [partners[0] for partners in each if len(partners) == 1]
    return places if len(places) == len(seeds_a) and sorted(places) == list(range(len(seeds_b))) else None


def twin_mask(twins: Sequence[Twins], models: Sequence[Key]) -> NDArray[np.bool_]:
    """Return which pairs of models are twins, (models, models)."""
    mask = np.zeros((len(models), len(models)), np.bool_)
    for pair in twins:
        i, j = models.index(pair.a), models.index(pair.b)
        mask[i, j] = mask[j, i] = True
    return mask

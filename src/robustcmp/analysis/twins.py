"""Trained models that began from the same weights, and whose trainings are therefore compared in pairs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

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


def read_key(stored: Sequence[Any]) -> Key:
    """Return a model's name and training seed as a manifest has them."""
    name, seed = stored
    return str(name), int(seed)


def match_twins(
    twins: Sequence[Twins], a: str, b: str, seeds_a: Sequence[int], seeds_b: Sequence[int]
) -> list[int] | None:
    """Return where the twin of each of a's trainings is among b's.

    None unless each training of both has exactly one twin in the other.

    >>> twins = [Twins(("x", 0), ("y", 5), 0.95), Twins(("y", 4), ("x", 1), 0.97)]
    >>> match_twins(twins, "x", "y", [0, 1], [4, 5])
    [1, 0]
    >>> match_twins(twins, "x", "y", [0, 1, 2], [4, 5, 6]) is None
    True
    """
    pairs = {frozenset((pair.a, pair.b)) for pair in twins}
    matches = [
        (row, column)
        for row, seed in enumerate(seeds_a)
        for column, other in enumerate(seeds_b)
        if {(a, seed), (b, other)} in pairs
    ]
    places = [column for _, column in matches]
    has_one_each = [row for row, _ in matches] == list(range(len(seeds_a)))
    return places if has_one_each and sorted(places) == list(range(len(seeds_b))) else None

"""Canonical weights for hosts whose images are (N, C, H, W): convolutions (out, in, height, width), dense (out, in).

It runs on CPython 3.6 and later, as the protocol does.
"""

from typing import Any, Dict, Sequence

import numpy as np
from protocol import Array, Arrays

Flattened = Dict[str, Sequence[int]]  # the (H, W, C) before the flatten that a dense layer follows


def native(weights: Arrays, flattened: Flattened) -> Arrays:
    """Return canonical weights in the framework's layout."""
    return {name: np.ascontiguousarray(_native(name, its, flattened)) for name, its in weights.items()}


def canonical(weights: Arrays, flattened: Flattened) -> Arrays:
    """The inverse of `native`."""
    return {name: np.ascontiguousarray(_canonical(name, its, flattened)) for name, its in weights.items()}


def images(array: Array) -> Array:
    """Return images (N, H, W, C) as (N, C, H, W)."""
    return np.ascontiguousarray(array.transpose(0, 3, 1, 2))


def _native(name: str, array: Array, flattened: Flattened) -> Any:
    layer, _, kind = name.rpartition("/")
    if kind != "kernel":
        return array
    if array.ndim == 4:
        return array.transpose(3, 2, 0, 1)
    if layer in flattened:
        height, width, channels = flattened[layer]
        array = array.reshape(height, width, channels, -1).transpose(2, 0, 1, 3).reshape(array.shape)
    return array.T


def _canonical(name: str, array: Array, flattened: Flattened) -> Any:
    layer, _, kind = name.rpartition("/")
    if kind != "kernel":
        return array
    if array.ndim == 4:
        return array.transpose(2, 3, 1, 0)
    array = array.T
    if layer in flattened:
        height, width, channels = flattened[layer]
        array = array.reshape(channels, height, width, -1).transpose(1, 2, 0, 3).reshape(array.shape)
    return array

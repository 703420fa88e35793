"""Random draws that are a function of (seed, purpose, the image itself) and of nothing else.

A counter-based generator (Philox, Salmon et al. 2011) is keyed by a hash of what the draw belongs to, and its counter
is made of what the draw is for. So no draw depends on the framework, the batch size, the order of the images or which
other images are there, and all compared models see the same draws.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray


def image_hashes(images: NDArray[np.float32], prefix: bytes, size: int = 16) -> Iterator[bytes]:
    """Yield BLAKE2b of `prefix` and of each image, as float32 (H, W, C) bytes in [0, 1]."""
    start = hashlib.blake2b(b"robustcmp" + prefix, digest_size=size)
    for image in np.ascontiguousarray(images, dtype="<f4"):
        hasher = start.copy()
        hasher.update(image.tobytes())
        yield hasher.digest()


class Draws:
    """The draws of one attack in some repeats: a Philox key for each image, repeat by repeat.

    Parameters
    ----------
    name : str
        The attack's class name.
    seed : int
    repeats : sequence of int
        What the draws depend on beside the image.
    images : ndarray of float32, shape (N, H, W, C)
        In [0, 1].
    """

    def __init__(self, name: str, seed: int, repeats: Sequence[int], images: NDArray[np.float32]):
        named = bytes([len(name)]) + name.encode("ascii")
        prefixes = [struct.pack("<qq", seed, repeat) + named for repeat in repeats]
        self._keys = [struct.unpack("<QQ", key) for prefix in prefixes for key in image_hashes(images, prefix)]
        self._bits = np.random.Philox(key=np.zeros(2, np.uint64))
        self._state: Any = {**self._bits.state, "buffer": (0, 0, 0, 0)}
        self._generator = np.random.Generator(self._bits)

    def block(self, row: int, purpose: int, iteration: int = 0, direction: int = 0) -> np.random.Generator:
        """Return the generator at the start of a block of a row, which is an image in a repeat.

        It is good until the next block is asked for.
        """
        # To set key and counter of one generator, from tuples, costs a tenth of what building a new one does.
        self._state["state"] = {"key": self._keys[row], "counter": (0, direction, iteration, purpose)}
        self._bits.state = self._state
        return self._generator

"""The global generators that models and attacks draw from, seeded for a while."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from ..frameworks import Framework


def generator_states(framework: Framework) -> tuple[object, ...]:
    """Return the states of the global generators that a model may draw from, which differ once it has drawn.

    Python's own is not among them for functions of NumPy arrays: what asks a server may draw from it.
    """
    _, numpy, place, *more = np.random.get_state(legacy=True)  # noqa: NPY002
    python = random.getstate() if framework.name != "numpy" else None
    return python, np.asarray(numpy).tobytes(), place, *more, framework.generator_state()


@contextmanager
def seeded(framework: Framework, name: str, seed: int, number: int) -> Iterator[None]:
    """Seed the global generators of Python, NumPy and a framework inside a ``with`` block, and restore them after it.

    The draws are a function of the name, the seed and the number.
    """
    digest = hashlib.blake2b(f"{name}:{seed}:{number}".encode(), digest_size=4).digest()
    own = int.from_bytes(digest, "little") % 2**31
    python, numpy = random.getstate(), np.random.get_state()  # noqa: NPY002
    random.seed(own)
    np.random.seed(own)  # noqa: NPY002
    try:
        with framework.forked_rng(own):
            yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy)  # noqa: NPY002

"""NumPy: models that are plain array code. They are differentiated by a `vjp` of their own, or not at all."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import ModelError, UsageError
from .base import Device, Framework, Function, Pullback


class NumPy(Framework):
    name = "numpy"
    data_format = "channels_last"

    def version(self) -> str:
        return np.__version__

    def tensor(self, array: NDArray[Any], like: Any) -> NDArray[Any]:
        return np.array(array)

    def array(self, tensor: Any) -> NDArray[Any]:
        return np.array(tensor)

    def pullback(self, function: Function) -> Pullback:
        pullback: Pullback | None = getattr(function, "vjp", None)
        if pullback is None:
            raise ModelError(
                "a NumPy model has no gradients, so no gradient attack can run on it. Use single pixel or boundary, "
                "wrap the network itself with robustcmp.wrap, or pass its gradient to robustcmp.wrap_functions."
            )
        return pullback

    def place(self, native: Any, device: Device) -> tuple[Function, NDArray[Any]]:
        raise UsageError("robustcmp.wrap takes networks of torch, tensorflow and jax; received NumPy")


FRAMEWORK = NumPy()

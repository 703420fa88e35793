"""Functions as users name them in the command: they return networks."""

from __future__ import annotations

from typing import Any

from brought import images, library
from brought import models as brought_models


def torch_network() -> Any:
    return brought_models.in_torch()


def jax_pair() -> Any:
    return brought_models.pair()


def of_pets() -> Any:
    return images.in_torch(3)


def soft_network() -> Any:
    return brought_models.in_torch(after=[library("torch").nn.Softmax(1)])


def of_arrays() -> Any:
    return brought_models.sum_columns

"""Logits of what a network answers instead: probabilities, or one number for two classes."""

from __future__ import annotations

from typing import Any

import eagerpy as ep
import numpy as np
from numpy.typing import NDArray

from ..errors import ModelError, unknown

OUTPUTS = ("logits", "probabilities", "binary-logit", "binary-probability")
BINARY = ("binary-logit", "binary-probability")
LOGITS_EXPECTED = "but logits are expected: with probabilities, gradients vanish and success rates come out too low."
SUMS_TO_ONE = 0.1  # within which probabilities do that are rounded to two decimals, or computed in bfloat16
TINY = float(np.finfo(np.float32).tiny)


def check_outputs(outputs: str) -> None:
    """Raise `UsageError` for what no network is said to answer."""
    if outputs not in OUTPUTS:
        raise unknown("outputs", outputs, OUTPUTS)


def kind_of(rows: NDArray[np.floating[Any]]) -> str:
    """Say what answers (N, K) look like: ``"probabilities"``, other ``"values in [0, 1]"``, or ``"logits"``."""
    if rows.shape[1] == 1 or (rows < 0).any():
        return "logits"
    if np.abs(rows.sum(axis=1, dtype=np.float64) - 1).max() <= SUMS_TO_ONE:
        return "probabilities"
    return "values in [0, 1]" if (rows <= 1).all() else "logits"


def as_logits(answer: Any, outputs: str) -> Any:
    """Return logits (N, K) of a tensor that holds what `outputs` says.

    Probabilities become their logarithms, of which the softmax is the probabilities again; a floor keeps that of a
    probability of exactly zero finite. One number for two classes, (N,) or (N, 1), becomes two: the logits (0, z), or
    the logarithms of (1 - p, p).

    Raises
    ------
    ModelError
        There is not one number an image, where one for two classes was said.
    """
    if outputs == "logits":
        return answer
    x, restore = ep.astensor_(answer)
    if outputs in BINARY:
        if x.ndim not in (1, 2) or (x.ndim == 2 and x.shape[1] != 1):
            raise ModelError(
                f'with outputs="{outputs}" the model should return one number for each image, (N,) or (N, 1), received '
                f"the shape {x.shape}"
            )
        x = x.reshape((-1, 1))
        x = ep.concatenate([ep.zeros_like(x), x] if outputs == "binary-logit" else [1 - x, x], axis=1)
    return restore(x if outputs == "binary-logit" else x.maximum(TINY).log())


def pull_back_outputs(v: NDArray[np.float32], answer: NDArray[np.float32], outputs: str) -> NDArray[np.float32]:
    """Return what pulls Σ v·logits back to an answer: the gradient (of the answer's shape) of it.

    Parameters
    ----------
    v : ndarray of float32, shape (N, K)
        For the logits that `as_logits` makes.
    answer : ndarray of float32
        What the network answered.
    outputs : str
        What that is.
    """
    if outputs == "logits":
        return v
    if outputs == "binary-logit":
        return v[:, 1].reshape(answer.shape)
    if outputs == "binary-probability":
        p = answer.reshape(-1)
        gradient = v[:, 1] / np.maximum(p, TINY) - v[:, 0] / np.maximum(1 - p, TINY)
        return gradient.astype(np.float32).reshape(answer.shape)
    return (v / np.maximum(answer, TINY)).astype(np.float32)

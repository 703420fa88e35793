"""Losses of logits, each with its gradient: what an attack that follows the model's gradient pulls back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import ModelError
from ..models.classifier import Classifier, check_finite
from .base import Images, Labels

Logits = NDArray[np.floating[Any]]
LossAndGradient = tuple[NDArray[np.float64], NDArray[np.float64]]


def cross_entropy(logits: Logits, labels: Labels) -> LossAndGradient:
    """Return the cross-entropy (N,), and its gradient (N, K) up to a positive factor for each image.

    On a confident network softmax(z) − onehot drowns in float32: the true class's entry rounds to zero. Divided by
    its largest magnitude, which is the true class's, it is −1 there and the softmax over the other classes elsewhere.
    """
    z = logits.astype(np.float64)
    rows = np.arange(len(logits))
    true = z[rows, labels]
    z[rows, labels] = -np.inf
    largest = z.max(axis=1)
    v = np.exp(z - largest[:, None])
    others = v.sum(axis=1)
    v /= others[:, None]
    v[rows, labels] = -1
    return np.logaddexp(0, largest + np.log(others) - true), v


def margin(logits: Logits, labels: Labels) -> LossAndGradient:
    """Return the largest other logit minus the true class's (N,), and its gradient (N, K)."""
    z = logits.astype(np.float64)
    rows = np.arange(len(logits))
    true = z[rows, labels]
    z[rows, labels] = -np.inf
    other = z.argmax(axis=1)
    v = np.zeros_like(z)
    v[rows, labels], v[rows, other] = -1, 1
    return z[rows, other] - true, v


def ask(classifier: Classifier, images: Images) -> Logits:
    """Return the logits (N, K) of images (N, H, W, C), or raise `ModelError` where one is NaN or infinite."""
    z = classifier.logits(images)
    check_finite(z)
    return z


def follow(
    classifier: Classifier,
    source: Classifier | None,
    images: Images,
    rise: Callable[..., LossAndGradient],
    *labels: Labels,
) -> tuple[Logits, NDArray[np.float64], NDArray[np.float32]]:
    """Return logits (N, K), the loss (N,) that `rise` makes of them, and its gradient (N, H, W, C).

    ``rise(logits, *labels)`` returns the loss and its gradient in the logits, which a source pulls back if any.
    """
    if source is None:
        z, loss, gradient = classifier.logits_and_vjp(images, rise, *labels)
    else:
        z = ask(classifier, images)
        loss, v = rise(z, *labels)
        gradient = source.vjp(images, v)
    return z, loss, _check_gradient(gradient)


def pull_back(classifier: Classifier, images: Images, v: NDArray[np.float64]) -> NDArray[np.float32]:
    """Return the gradient (N, H, W, C) of Σ v·logits, or raise `ModelError` where it is NaN or infinite."""
    return _check_gradient(classifier.vjp(images, v))


def _check_gradient(gradient: NDArray[np.float32]) -> NDArray[np.float32]:
    if not np.isfinite(gradient).all():
        raise ModelError(
            "expected a finite gradient, received NaN or infinity for some images. Look in the model for a division "
            "by zero, a square root or a logarithm of zero."
        )
    return gradient

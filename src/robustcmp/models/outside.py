"""A network asked without its wrapper: what the wrapper should not change."""

from __future__ import annotations

from typing import Any

import eagerpy as ep
import numpy as np
from numpy.typing import NDArray

from ..errors import ModelError
from .classifier import Classifier, unwrapped
from .model import Model


def predict_outside(classifier: Classifier, images: NDArray[np.float32]) -> NDArray[np.int64]:
    """Return the classes (N,) that the network itself gives to images, without Foolbox, compilation or batches.

    The network is called once, as it is, with tensors in its own layout: the images scaled to the bounds that it was
    wrapped with, then flipped, shifted and divided as its `preprocessing` says, all in NumPy.

    Parameters
    ----------
    classifier : Classifier
        A model that takes images in [0, 1].
    images : ndarray of float32, shape (N, H, W, C)
        In [0, 1].

    Raises
    ------
    ModelError
        The network behind the model is not known.
    """
    model = unwrapped(classifier.model)
    if not isinstance(model, Model):
        raise ModelError("the model was not wrapped by robustcmp, so its network is not known")
    logits = classifier.ask(model.without_preprocessing, preprocessed(classifier, images, *model.wrapped_as))
    classes: NDArray[np.int64] = logits.argmax(axis=1)
    return classes


def logits_outside(classifier: Classifier, model: Model, inputs: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the logits (N, K) that the network itself gives to what it takes, in batches."""
    answers = classifier.in_batches(lambda batch: classifier.ask(model.without_preprocessing, batch), inputs)
    return np.concatenate([*answers])


def preprocessed(
    classifier: Classifier, images: NDArray[np.float32], bounds: tuple[float, float], preprocessing: dict[str, Any]
) -> NDArray[np.float32]:
    """Return images (N, H, W, C) in [0, 1] as a network gets them that is wrapped so, in its own layout."""
    low, high = bounds
    x: NDArray[np.float64] = low + (high - low) * images.astype(np.float64)
    if classifier.data_format == "channels_first":
        x = x.transpose(0, 3, 1, 2)
    if preprocessing.get("flip_axis") is not None:
        x = np.flip(x, preprocessing["flip_axis"])
    x = (x - along(preprocessing, "mean", 0)) / along(preprocessing, "std", 1)
    return np.ascontiguousarray(x, np.float32)


def along(preprocessing: dict[str, Any], name: str, default: float) -> NDArray[np.float64]:
    """Return a mean or a deviation as an array that fits images in the network's own layout."""
    value = preprocessing.get(name)
    if value is None:
        return np.asarray(default, np.float64)
    plain = isinstance(value, (int, float, list, tuple, np.generic, np.ndarray))
    array = np.asarray(value if plain else ep.astensor(value).numpy(), np.float64)
    axis = preprocessing.get("axis")
    return array if axis is None else array.reshape(-1, *[1] * (-axis - 1))

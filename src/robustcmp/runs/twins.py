"""Twins: trained models that began from the same weights, and so are no independent trainings.

Two versions of a framework may draw the same initial weights from the same seed; trained alike, they end as nearly the
same network. Twins are told by the correlation of their *trained* weights, all kernels together. These are at hand
once a model is loaded, also for a file without any provenance and for a fine-tuned copy. Initial weights would have to
be built again, in the version of the framework that trained the model.

Over all pairs of one architecture in the zoo that ships, the correlations are

- 0.94 to 1.00 for twins: one seed and one dataset, in torch and torch@1.0;
- at most 0.26 (LeNet-1), 0.03 (LeNet-5 and ResNet-20) for models that began from different weights;
- 0.18 to 0.41 (LeNet-1) and 0.54 to 0.80 (LeNet-5) for one start that two datasets have led apart, and
  0.05 to 0.16 where two recipes have (ResNet-20).

So no two models of one dataset correlate by 0.27 to 0.93, and `CORRELATION` lies in between. Models whose
architecture is unknown (`Model.architecture`) are not compared, and a common start that training has left behind is not
seen. Networks without a hidden layer may be twins whatever they began from, as training then has one optimum.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..models.classifier import unwrap
from ..models.model import Model
from ..networks.weights import Weights
from .control import is_control
from .plan import TrainedModel

CORRELATION = 0.5
"""From which on two models are twins."""
MOST_WEIGHTS = 100_000
"""Of a model that are compared, evenly spaced over all of its kernels."""
DIGITS = 4
"""Of a stored correlation: more depend on the machine."""

Key = tuple[str, int]
"""A model's name and training seed."""


def twins(models: Sequence[TrainedModel]) -> list[dict[str, Any]]:
    """Return the pairs of twins among the models of a comparison, as `correlated` does.

    There are none in the same-weights control, which compares one training with itself.
    """
    return [] if is_control(models) else correlated(_known_weights(models))


def _known_weights(models: Iterable[TrainedModel]) -> Iterator[tuple[Key, Weights]]:
    for model in models:
        network = unwrap(model.classifier.model)
        weights = network.weights if isinstance(network, Model) else None
        if weights is not None:
            yield model.key, weights


def correlated(models: Iterable[tuple[Key, Weights]]) -> list[dict[str, Any]]:
    """Return the pairs of models whose kernels correlate, as JSON types.

    Parameters
    ----------
    models : iterable of (key, weights)
        The key of each model, and its weights in the canonical layout. Models with arrays of the same names and shapes
        are compared.

    Returns
    -------
    list of dict
        ``a`` and ``b``, each a name and a training seed, and ``correlation``.

    Examples
    --------
    >>> first, other = np.random.default_rng(0).normal(size=(2, 50, 10))
    >>> correlated([(("x", 0), {"fc/kernel": first}), (("y", 3), {"fc/kernel": first + other / 4})])
    [{'a': ['x', 0], 'b': ['y', 3], 'correlation': 0.9743}]
    """
    designs: dict[object, dict[Key, NDArray[np.float64]]] = {}
    for key, weights in models:
        shapes = tuple((name, array.shape) for name, array in sorted(weights.items()))
        designs.setdefault(shapes, {})[key] = _sample(weights)
    pairs = []
    for sampled in designs.values():
        with np.errstate(invalid="ignore"):  # constant weights correlate with nothing
            correlations = np.atleast_2d(np.corrcoef(list(sampled.values())))
        for (i, a), (j, b) in combinations(enumerate(sampled), 2):
            if correlations[i, j] >= CORRELATION:
                pairs.append({"a": [*a], "b": [*b], "correlation": round(float(correlations[i, j]), DIGITS)})
    return pairs


def _sample(weights: Weights) -> NDArray[np.float64]:
    """Return the weights of all kernels, or of larger networks some, as one row."""
    kernels = np.concatenate([array.ravel() for name, array in sorted(weights.items()) if name.endswith("/kernel")])
    places = np.linspace(0, len(kernels) - 1, min(len(kernels), MOST_WEIGHTS)).astype(np.int64)
    return kernels[places].astype(np.float64)

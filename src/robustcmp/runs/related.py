"""Models with one training: the same-weights control, and twins.

The control carries one training into every framework, where it has to come out alike: before a difference between
trained models is looked at, the evaluation has to show that it adds none of its own.

*Twins* are trained models that began from the same weights, and so are no independent trainings.

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

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..attacks.suite import OURS, Suite
from ..errors import UsageError
from ..models.classifier import unwrap
from ..models.model import Model
from ..networks.weights import Weights

if TYPE_CHECKING:
    from .loading import TrainedModel

ModelKey = tuple[str, int]
# From which on two models are twins.
CORRELATION = 0.5
# Of a model that are compared, evenly spaced over all of its kernels.
MOST_WEIGHTS = 100_000
# Of a stored correlation: more depend on the machine.
DIGITS = 4


def measure_agreement(logits: Mapping[str, Sequence[NDArray[np.float32]]]) -> dict[str, float]:
    """Return the largest difference of logits and of predictions between any two frameworks.

    Parameters
    ----------
    logits : dict of str to sequence of ndarray, each (N, K)
        By framework, a model a training, in the same order everywhere.

    Returns
    -------
    dict
        ``logits``: in standard deviations of all logits of the first framework; ``predictions``: the share of images.

    Examples
    --------
    >>> measure_agreement({"a": [np.array([[0.0, 2.0]])], "b": [np.array([[0.0, 2.5]])]})
    {'logits': 0.5, 'predictions': 0.0}
    """
    pairs = [pair for both in combinations(logits.values(), 2) for pair in zip(*both, strict=True)]
    differences = [np.abs(b - a).max() / a.std() for a, b in pairs]
    predictions = [(a.argmax(axis=1) != b.argmax(axis=1)).mean() for a, b in pairs]
    # NaN passes nothing.
    return {"logits": float(np.max(differences, initial=0)), "predictions": float(max(predictions, default=0))}


def _is_control(models: Sequence[TrainedModel]) -> bool:
    """Say whether several models are the same trainings, carried over, by what is known of each training."""
    trainings: dict[str, list[str | None]] = {}
    for model in models:
        trainings.setdefault(model.name, []).append(model.info.get("sha256"))
    carried = any("same_weights" in model.info for model in models)
    first, *others = trainings.values()
    return bool(others) and carried and None not in first and all(other == first for other in others)


def check_control(models: Sequence[TrainedModel], suite: Suite) -> None:
    """Raise `UsageError` where the same weights are compared by a suite that lacks an attack which has to agree."""
    needed = [name for name, cls in OURS.items() if cls.in_control]
    if _is_control(models) and not set(needed) <= {type(attack).__name__ for attack in suite.attacks.values()}:
        raise UsageError(
            f"the same-weights control needs {' and '.join(needed)}, and the suite lacks one of them. Add it, or "
            "choose the suite guo2019"
        )


def run_control(models: Sequence[TrainedModel], images: NDArray[np.float32]) -> dict[str, float] | None:
    """Return how far one training agrees in several frameworks, None where the models are no such control."""
    if not _is_control(models):
        return None
    logits: dict[str, list[NDArray[np.float32]]] = {}
    for model in models:
        logits.setdefault(model.name, []).append(model.classifier.logits(images))
    return measure_agreement(logits)


def find_twins(models: Sequence[TrainedModel]) -> list[dict[str, Any]]:
    """Return the pairs of twins among the models of a comparison, as `_correlate` does.

    There are none in the same-weights control, which compares one training with itself.
    """
    return [] if _is_control(models) else _correlate(_find_weights(models))


def _find_weights(models: Iterable[TrainedModel]) -> Iterator[tuple[ModelKey, Weights]]:
    for model in models:
        network = unwrap(model.classifier.model)
        weights = network.weights if isinstance(network, Model) else None
        if weights is not None:
            yield model.key, weights


def _correlate(models: Iterable[tuple[ModelKey, Weights]]) -> list[dict[str, Any]]:
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
    >>> _correlate([(("x", 0), {"fc/kernel": first}), (("y", 3), {"fc/kernel": first + other / 4})])
    [{'a': ['x', 0], 'b': ['y', 3], 'correlation': 0.9743}]
    """
    designs: dict[object, dict[ModelKey, NDArray[np.float64]]] = {}
    for key, weights in models:
        shapes = tuple((name, array.shape) for name, array in sorted(weights.items()))
        kernels = np.concatenate([array.ravel() for name, array in sorted(weights.items()) if name.endswith("/kernel")])
        places = np.linspace(0, len(kernels) - 1, min(len(kernels), MOST_WEIGHTS)).astype(np.int64)
        designs.setdefault(shapes, {})[key] = kernels[places].astype(np.float64)
    pairs = []
    for sampled in designs.values():
        with np.errstate(invalid="ignore"):  # constant weights correlate with nothing
            correlations = np.atleast_2d(np.corrcoef(list(sampled.values())))
        for (i, a), (j, b) in combinations(enumerate(sampled), 2):
            if correlations[i, j] >= CORRELATION:
                pairs.append({"a": [*a], "b": [*b], "correlation": round(float(correlations[i, j]), DIGITS)})
    return pairs

"""Deployed networks beside the trained models that they were converted from."""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..deployments import conversion
from ..models.classifier import Classifier
from .identity import Identity
from .plan import TrainedModel

TIMED = (1_000, 10_000)  # images
PASSES = 5  # of the fewer images, of which the median counts

Key = tuple[str, int]


def deployed(
    models: Sequence[TrainedModel], identities: Mapping[Key, Identity], images: NDArray[np.float32]
) -> list[dict[str, Any]]:
    """Return what each deployed network has of the model that it was converted from, as JSON types.

    Only of those whose source is compared beside them.

    Returns
    -------
    list of dict
        ``model`` and ``source``, each a name and a training seed; ``exact``, whether both should answer alike;
        ``logits``, the largest difference of their logits on all images, and ``distance``, the root of its mean square,
        in standard deviations of the source's; ``changed``, the share of images of which the class changes; ``bytes``
        and ``source_bytes``, the sizes of the files and of the source's weights; and, measured on the first training
        of each name, ``seconds`` and ``source_seconds`` for as many images as `TIMED` says, None where there are fewer.
    """
    entries: list[dict[str, Any]] = []
    logits: dict[Key, NDArray[np.float32]] = {}
    seconds: dict[str, list[float | None]] = {}

    def of(model: TrainedModel) -> NDArray[np.float32]:
        if model.key not in logits:
            logits[model.key] = model.classifier.logits(images)
        return logits[model.key]

    def timed(model: TrainedModel) -> list[float | None]:
        if model.name not in seconds:
            seconds[model.name] = [_seconds(model.classifier, images, count) for count in TIMED]
        return seconds[model.name]

    for model in models:
        said = model.info.get("deployment", {})
        source = _source(said, models, identities)
        if source is None:
            continue
        ours, theirs = of(model), of(source)
        difference = (ours.astype(np.float64) - theirs) / max(float(theirs.std()), 1e-30)
        entries.append(
            {
                "model": [*model.key],
                "source": [*source.key],
                "exact": conversion(model.classifier.framework.name).is_exact,
                "logits": float(np.abs(difference).max()),
                "distance": float(np.sqrt((difference**2).mean())),
                "changed": float((ours.argmax(axis=1) != theirs.argmax(axis=1)).mean()),
                "bytes": said["bytes"],
                "source_bytes": _bytes(source.classifier),
                "seconds": timed(model),
                "source_seconds": timed(source),
            }
        )
    return entries


def twins_by_deployment(deployments: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the pairs of models that have one training's weights: each source with its deployments, and these.

    They are no independent trainings, as little as other twins.
    """
    families: dict[Key, list[Key]] = {}
    for entry in deployments:
        (source, seed), (name, own_seed) = entry["source"], entry["model"]
        families.setdefault((source, seed), [(source, seed)]).append((name, own_seed))
    return [
        {"a": [*a], "b": [*b], "correlation": 1.0} for family in families.values() for a, b in combinations(family, 2)
    ]


def _source(
    said: Mapping[str, Any], models: Sequence[TrainedModel], identities: Mapping[Key, Identity]
) -> TrainedModel | None:
    """Return the model that a deployed network was converted from, where it is compared, too."""
    source = said.get("source", {})
    alike = (
        model
        for model in models
        if source.get("weights") is not None
        and "deployment" not in model.info
        and model.classifier.framework.name == source["framework"]
        and identities[model.key].weights == source["weights"]
    )
    return next(alike, None)


def _bytes(classifier: Classifier) -> int:
    """Return how large a model's parameters are in memory, as its framework keeps them."""
    return sum(array.nbytes for array in classifier.parameters() or ())


def _seconds(classifier: Classifier, images: NDArray[np.float32], count: int) -> float | None:
    """Return how long a pass over so many images takes, after one to warm up; None where there are fewer."""
    if len(images) < count:
        return None
    some = images[:count]
    few = count == TIMED[0]
    classifier.logits(some if few else some[: classifier.batch_size])  # some compile for each size of a batch
    passes = []
    for _ in range(PASSES if few else 1):
        began = time.perf_counter()
        classifier.logits(some)
        passes.append(time.perf_counter() - began)
    return statistics.median(passes)

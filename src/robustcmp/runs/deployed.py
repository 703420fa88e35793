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
from .loading import TrainedModel

TIMED = {1_000: 3, 10_000: 1}  # images, and how often they are asked; the median counts

Key = tuple[str, int]


def compare_with_sources(models: Sequence[TrainedModel], images: NDArray[np.float32]) -> list[dict[str, Any]]:
    """Return what each deployed network has of the model that it was converted from, as JSON types.

    Only of those whose source is compared beside them.

    Returns
    -------
    list of dict
        ``model`` and ``source``, each a name and a training seed; ``exact``, whether both have to answer alike;
        ``logits``, the largest difference of their logits on all images, and ``distance``, the root of its mean square,
        in standard deviations of the source's; ``changed``, the share of images of which the class changes; ``ties``,
        that of images whose two largest logits are the same, so that the class is the first of them; ``bytes`` and
        ``source_bytes``, the sizes of the files and of the source's weights; and ``seconds`` and ``source_seconds``
        for as many images as `TIMED` says, None where there are fewer.
    """
    pairs = [(model, _source(model.info.get("deployment", {}), models)) for model in models]
    families: dict[Key, list[TrainedModel]] = {}
    for model, source in pairs:
        if source is not None:
            families.setdefault(source.key, [source]).append(model)
    answers = {model.key: model.classifier.logits(images) for family in families.values() for model in family}
    seconds: dict[Key, list[float | None]] = {}
    for family in families.values():
        seconds |= _measure_seconds(family, images)
    entries: list[dict[str, Any]] = []
    for model, source in pairs:
        if source is None:
            continue
        ours = answers[model.key]
        theirs = answers[source.key]
        difference = (ours.astype(np.float64) - theirs) / max(float(theirs.std()), 1e-30)
        entries.append(
            {
                "model": [*model.key],
                "source": [*source.key],
                "exact": _is_exact(model),
                "logits": float(np.abs(difference).max()),
                "distance": float(np.sqrt((difference**2).mean())),
                "changed": float((ours.argmax(axis=1) != theirs.argmax(axis=1)).mean()),
                "ties": _ties(ours),
                "bytes": model.info["deployment"]["bytes"],
                "source_bytes": _bytes(source.classifier),
                "seconds": seconds[model.key],
                "source_seconds": seconds[source.key],
            }
        )
    return entries


def find_deployed_twins(deployments: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the pairs of models that have one training's weights: each source with its deployments, and these.

    They are no independent trainings, as little as other twins.
    """
    families: dict[Key, list[Key]] = {}
    for entry in deployments:
        (source, seed) = entry["source"]
        (name, own_seed) = entry["model"]
        families.setdefault((source, seed), [(source, seed)]).append((name, own_seed))
    return [
        {"a": [*a], "b": [*b], "correlation": 1.0} for family in families.values() for a, b in combinations(family, 2)
    ]


def _source(described: Mapping[str, Any], models: Sequence[TrainedModel]) -> TrainedModel | None:
    """Return the model that a deployed network was converted from, where it is compared, too."""
    source = described.get("source", {})
    alike = (
        model
        for model in models
        if source.get("weights") is not None
        and "deployment" not in model.info
        and model.classifier.framework.name == source["framework"]
        and model.identity.weights == source["weights"]
    )
    return next(alike, None)


def _is_exact(model: TrainedModel) -> bool:
    """Say whether a deployed network has to answer as its source; what made a user's own file is not known."""
    own_file = model.info["deployment"].get("own_file", False)
    return conversion(model.classifier.framework.name).is_exact and not own_file


def _ties(logits: NDArray[np.float32]) -> float:
    """Return the share of images with several largest logits: those of eight bits take few values."""
    return float(((logits == logits.max(axis=1, keepdims=True)).sum(axis=1) > 1).mean())


def _bytes(classifier: Classifier) -> int:
    """Return how large a model's parameters are in memory, as its framework keeps them."""
    return sum(array.nbytes for array in classifier.parameters() or ())


def _measure_seconds(models: Sequence[TrainedModel], images: NDArray[np.float32]) -> dict[Key, list[float | None]]:
    """Ask a source and what was converted from it in turns, so that a busy moment of the machine falls on all alike."""
    seconds: dict[Key, list[float | None]] = {model.key: [] for model in models}
    for size, passes in TIMED.items():
        times: dict[Key, list[float]] = {model.key: [] for model in models}
        for _ in range(passes if len(images) >= size else 0):
            for model in models:
                began = time.perf_counter()
                model.classifier.logits(images[:size])
                times[model.key].append(time.perf_counter() - began)
        for model in models:
            seconds[model.key].append(statistics.median(times[model.key]) if times[model.key] else None)
    return seconds

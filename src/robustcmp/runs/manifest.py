"""What a run keeps about its question, its models, their deployments and its surroundings."""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from itertools import combinations
from typing import Any

import msgspec
import numpy as np

from ..attacks.suite import Suite
from ..data.arrays import Images
from ..deployments import conversion
from ..errors import SealError, UsageError
from ..files import digest
from ..provenance import made_with, processor
from ..records.manifest import FORMAT, check
from ..records.store import Run
from .loading import TrainedModel
from .plan import ModelKey, Plan
from .related import find_twins, run_control

TIMED = {1_000: 3, 10_000: 1}  # images, and how often they are asked; the median counts


def describe(plan: Plan, batch_sizes: dict[str, int], about: dict[str, Any]) -> dict[str, Any]:
    """Return what was asked, and of what and with what, as JSON types.

    Raises
    ------
    UsageError
        A reader of the run would refuse what is said of it or of a model.
    """
    question = plan.question
    suite = question.suite
    deployments = _compare_with_sources(plan.models, question.images)
    manifest: dict[str, Any] = {
        "format": FORMAT,
        "about": about,
        "suite": {
            "name": suite.name,
            "description": suite.description,
            "attacks": msgspec.json.decode(msgspec.json.encode(suite.records)),
            "digest": suite.digest,
        },
        "batch_sizes": batch_sizes,
        "same_weights": run_control(plan.models, question.images),
        "twins": find_twins(plan.models) + _find_deployed_twins(deployments),
        "seed": question.seed,
        "repeats": max(question.repeats.values()),
        "spread": question.spread,
        "images": {
            "asked": question.n,
            "used": len(plan.indices),
            "subset": suite.subset,
            "of": len(question.images),
            "correct_by_all": float(np.all([model.correct for model in plan.models], axis=0).mean()),
            "range": [float(question.images.min()), float(question.images.max())],
            "most_frequent": float(np.bincount(question.labels).max() / len(question.labels)),
            "digest": digest({"images": question.images, "labels": question.labels}),
        },
        "models": [_describe_model(model, suite) for model in plan.models],
        "cells": [asdict(cell) for cell in plan.cells],
        "environment": made_with() | {"processor": processor()},
    }
    if deployments:
        manifest["deployments"] = deployments
    try:
        check(manifest)
    except SealError as error:
        raise UsageError(f"the manifest of this run would be invalid: {error}") from None
    return manifest


def _describe_model(model: TrainedModel, suite: Suite) -> dict[str, Any]:
    entry = {
        "name": model.name,
        "training_seed": model.training_seed,
        "framework": model.classifier.framework.name,
        "framework_version": model.classifier.framework.version(),
        "batch_size": model.classifier.batch_size,
        "clean_accuracy": float(model.correct.mean()),
        "logits": model.identity.logits,
        "identity": msgspec.to_builtins(model.identity),
        "depends_on_batch": model.depends_on_batch,
        "info": model.info,
        "not_applicable": model.not_applicable,
    }
    if model.cause:
        entry["cause"] = model.cause
    if model.classifier.gradient_source is not None:
        attacks = suite.attacks.items()
        entry["source_gradient"] = [name for name, attack in attacks if attack.takes_source_gradient]
    return entry


def complete(manifest: Mapping[str, Any], plan: Plan, store: Run) -> dict[str, Any]:
    """Return the manifest of an executed plan: what failed, and success after rounding to 8 bits, stand in it."""
    are_files = (manifest["about"].get("dataset") or "").startswith("folder:")
    models = []
    for model, entry in zip(plan.models, manifest["models"], strict=True):
        failed = {"failed": model.failed} if model.failed else {}
        rounded = {"rounded": _rate_after_rounding(model, plan, store)} if are_files else {}
        models.append(entry | failed | rounded)
    return {**manifest, "models": models, "cells": [asdict(cell) for cell in plan.cells]}


def _rate_after_rounding(model: TrainedModel, plan: Plan, store: Run) -> dict[str, float]:
    """Return the success rate of each attack after its images are rounded to 8 bits, as in a file."""
    shares: dict[str, list[float]] = {}
    for cell in plan.cells:
        if (cell.model, cell.training_seed) == model.key and not model.failed and store.has_images(cell.key):
            images = (np.rint(store.adversarials(cell.key) * 255) / 255).astype(np.float32)
            fooled = store.load(cell.key)["success"] & (model.classifier.predict(images) != plan.labels)
            shares.setdefault(cell.attack, []).append(float(fooled.mean()))
    return {attack: statistics.fmean(each) for attack, each in shares.items()}


def _compare_with_sources(models: Sequence[TrainedModel], images: Images) -> list[dict[str, Any]]:
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
    families: dict[ModelKey, list[TrainedModel]] = {}
    for model, source in pairs:
        if source is not None:
            families.setdefault(source.key, [source]).append(model)
    answers = {model.key: model.classifier.logits(images) for family in families.values() for model in family}
    seconds: dict[ModelKey, list[float | None]] = {}
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
                "exact": conversion(model.classifier.framework.name).is_exact
                and not model.info["deployment"].get("own_file", False),  # what made a user's own file is not known
                "logits": float(np.abs(difference).max()),
                "distance": float(np.sqrt((difference**2).mean())),
                "changed": float((ours.argmax(axis=1) != theirs.argmax(axis=1)).mean()),
                "ties": float(((ours == ours.max(axis=1, keepdims=True)).sum(axis=1) > 1).mean()),
                "bytes": model.info["deployment"]["bytes"],
                "source_bytes": sum(array.nbytes for array in source.classifier.parameters() or ()),
                "seconds": seconds[model.key],
                "source_seconds": seconds[source.key],
            }
        )
    return entries


def _find_deployed_twins(deployments: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the pairs of models that have one training's weights: each source with its deployments, and these.

    They are no independent trainings, as little as other twins.
    """
    families: dict[ModelKey, list[ModelKey]] = {}
    for entry in deployments:
        source = tuple(entry["source"])
        families.setdefault(source, [source]).append(tuple(entry["model"]))
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


def _measure_seconds(models: Sequence[TrainedModel], images: Images) -> dict[ModelKey, list[float | None]]:
    """Ask a source and what was converted from it in turns, so that a busy moment of the machine falls on all alike."""
    seconds: dict[ModelKey, list[float | None]] = {model.key: [] for model in models}
    for size, passes in TIMED.items():
        times: dict[ModelKey, list[float]] = {model.key: [] for model in models}
        for _ in range(passes if len(images) >= size else 0):
            for model in models:
                began = time.perf_counter()
                model.classifier.logits(images[:size])
                times[model.key].append(time.perf_counter() - began)
        for model in models:
            seconds[model.key].append(statistics.median(times[model.key]) if times[model.key] else None)
    return seconds

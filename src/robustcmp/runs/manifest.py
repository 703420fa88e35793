"""What a run keeps about its question, its models and its surroundings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import msgspec
import numpy as np

from ..attacks.suite import Suite
from ..errors import SealError, UsageError
from ..files import digest
from ..models.functions import FINITE_DIFFERENCES
from ..provenance import made_with, processor
from ..records.manifest import FORMAT, check
from .deployed import compare_with_sources, find_deployed_twins
from .loading import TrainedModel
from .plan import Plan
from .related import find_twins, run_control


def describe(plan: Plan, batch_sizes: dict[str, int], about: dict[str, Any]) -> dict[str, Any]:
    """Return what was asked, and of what and with what, as JSON types.

    Raises
    ------
    UsageError
        A reader of the run would refuse what is said of it or of a model.
    """
    question = plan.question
    suite = question.suite
    deployments = compare_with_sources(plan.models, question.images)
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
        "twins": find_twins(plan.models) + find_deployed_twins(deployments),
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
        raise UsageError(f"a run cannot keep what is said of it or of a model: {error}") from None
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
    return entry | _find_gradients(model, suite)


def add_failures(manifest: Mapping[str, Any], plan: Plan) -> dict[str, Any]:
    """Return the manifest of a plan without what failed, with the reasons."""
    models = [
        entry | {"failed": model.failed} if model.failed else entry
        for model, entry in zip(plan.models, manifest["models"], strict=True)
    ]
    return {**manifest, "models": models, "cells": [asdict(cell) for cell in plan.cells]}


def _find_gradients(model: TrainedModel, suite: Suite) -> dict[str, list[str]]:
    """Return the attacks that follow the gradient of the model that a deployed network was converted from, or its own.

    Its own is one by finite differences.
    """
    if model.classifier.gradient_source is not None:
        return {"source_gradient": [name for name, attack in suite.attacks.items() if attack.takes_source_gradient]}
    if model.info.get("deployment", {}).get("gradient") == FINITE_DIFFERENCES:
        return {"own_differences": [name for name, attack in suite.attacks.items() if attack.needs_gradient]}
    return {}

"""The manifest of a run: what was asked for, and with what, as JSON types."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import msgspec

from . import format_1
from .attack import AttackRecord
from .cell import Cell

FORMAT = "robustcmp run 3"
UNSEALED = (format_1.FORMAT, "robustcmp run 2")
"""The formats from before files were sealed."""
OF_THE_QUESTION = {
    "about": ("command", "question"),
    "images": ("asked", "correct_by_all"),
    "models": ("not_applicable",),
}
"""What a cell does not keep of its manifest: other questions have the same cell."""


def is_known(manifest: dict[str, Any]) -> bool:
    """Say whether a manifest has a format that can be read."""
    return manifest["format"] in (FORMAT, *UNSEALED)


def upgraded(manifest: dict[str, Any]) -> dict[str, Any]:
    """Return a manifest of any format that is known as one of today's."""
    if manifest.get("format", FORMAT) != format_1.FORMAT:
        return manifest | {"format": FORMAT}
    suite = manifest["suite"]
    attacks = {name: format_1.declared(said) for name, said in suite["attacks"].items()}
    return manifest | {"format": FORMAT, "suite": suite | {"attacks": attacks}}


def attack_records(manifest: dict[str, Any]) -> dict[str, AttackRecord]:
    """Return what the attacks of a run said of themselves, by their names."""
    return {name: msgspec.convert(said, AttackRecord) for name, said in manifest["suite"]["attacks"].items()}


def part_of(manifest: dict[str, Any], cell: Cell) -> dict[str, Any]:
    """Return what a manifest says about one of its cells, in the same form."""
    key = cell.model, cell.training_seed
    models = [model for model in manifest["models"] if (model["name"], model["training_seed"]) == key]
    batch_sizes = {
        label: size for label, size in manifest["batch_sizes"].items() if label.partition(" on ")[0] == cell.model
    }
    suite = manifest["suite"]
    return {
        "format": FORMAT,
        "about": _without("about", manifest["about"]),
        "suite": {"name": suite["name"], "attacks": {cell.attack: suite["attacks"][cell.attack]}},
        "batch_sizes": batch_sizes,
        "seed": manifest["seed"],
        "images": _without("images", manifest["images"]),
        "models": [_without("models", model) for model in models],
        "cells": [asdict(cell)],
        "environment": {"versions": manifest["environment"]["versions"]},
    }


def merged(parts: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the manifest that `part_of` took parts of, as far as they say, of the question of the last part.

    Parts about other images, or with another seed, belong to other questions, and only their batch sizes count.
    """
    last = parts[-1]
    same = [part for part in parts if (part["seed"], part["images"]) == (last["seed"], last["images"])]
    cells = [cell for part in same for cell in part["cells"]]
    models = {(model["name"], model["training_seed"]): model for part in same for model in part["models"]}
    attacks = {name: said for part in same for name, said in part["suite"]["attacks"].items()}
    repeats = [cell["repeat"] + 1 for cell in cells]
    return last | {
        "suite": last["suite"] | {"description": "", "digest": "", "attacks": attacks},
        "batch_sizes": {label: size for part in parts for label, size in part["batch_sizes"].items()},
        "same_weights": None,
        "twins": [],
        "repeats": max(repeats),
        "spread": False,
        "images": last["images"] | {"asked": last["images"]["used"], "correct_by_all": None},
        "models": [model | {"not_applicable": {}} for model in models.values()],
        "cells": cells,
        "environment": last["environment"] | {"recovered": True},
    }


def _without(part: str, content: dict[str, Any]) -> dict[str, Any]:
    return {name: said for name, said in content.items() if name not in OF_THE_QUESTION[part]}

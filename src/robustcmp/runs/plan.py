"""Which cells a comparison has, and which of them are missing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from ..attacks.suite import Suite
from ..files import digest, json_digest
from ..models.classifier import Classifier
from ..records.cell import AttackResult, Cell, Extras


@dataclass(frozen=True)
class Contestant:
    """One trained model in a comparison."""

    name: str
    training_seed: int
    classifier: Classifier


class Cells(Protocol):
    """Where finished cells are kept; `robustcmp.store.Run` is one."""

    def __contains__(self, key: str, /) -> bool: ...
    def save(self, cell: Cell, result: AttackResult) -> None: ...
    def extras(self, key: str) -> Extras: ...


@dataclass(frozen=True)
class Plan:
    """All cells of a comparison on a subset of images."""

    suite: Suite
    images: NDArray[np.float32]
    labels: NDArray[np.int64]
    seed: int
    contestants: list[Contestant]
    logits: dict[tuple[str, int], str]  # a digest of each model's clean logits, by name and training seed
    cells: list[Cell]


def plan(
    contestants: list[Contestant],
    suite: Suite,
    images: NDArray[np.float32],
    labels: NDArray[np.int64],
    repeats: Mapping[str, int],
    seed: int,
) -> Plan:
    """Return the cells of a comparison, models first, then attacks, then repeats; a deterministic attack has one.

    `repeats` says for each attack how many.
    """
    images_digest = digest({"images": images, "labels": labels})
    logits = {}
    cells = []
    for contestant in contestants:
        classifier = contestant.classifier
        logits_digest = digest({"logits": classifier.logits(images)})
        logits[contestant.name, contestant.training_seed] = logits_digest
        content = {
            "model": logits_digest,
            "framework": [classifier.framework.name, classifier.framework.version()],
            "images": images_digest,
            "batch_size": classifier.batch_size,
            "seed": seed,
        }
        for name, attack in suite.attacks.items():
            described = content | {"attack": [type(attack).__name__, attack.semantics, attack.settings]}
            for repeat in range(1 if attack.deterministic else repeats[name]):
                key = json_digest(described | {"repeat": repeat})[:32]
                cells.append(Cell(contestant.name, contestant.training_seed, name, repeat, key))
    return Plan(suite, images, labels, seed, contestants, logits, cells)

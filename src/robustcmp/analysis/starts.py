"""Attacks that need a starting point: the images on which they could begin."""

from __future__ import annotations

import math

import numpy as np

from .recorded import Recorded


class Starts:
    """Attacks such as boundary, which begin at an image that already fools the model."""

    def __init__(self, recorded: Recorded):
        self._recorded = recorded

    @property
    def attacks(self) -> list[str]:
        """The attacks that need a start."""
        return [attack for attack, record in self._recorded.attack_records.items() if record.start]

    def needed_by(self, attack: str) -> bool:
        """Return whether an attack needs a start."""
        return attack in self.attacks

    def share(self, model: str, attack: str) -> float:
        """Return the share of images, over trainings and repeats, with a starting point; NaN if none were attacked."""
        began = self._recorded.values(model, attack, self._recorded.attack_records[attack].start)
        return float(np.mean(began)) if began.size else math.nan

    @property
    def failed(self) -> list[str]:
        """The attacks that had no starting point on some images, where failure says nothing about robustness."""
        return [
            attack for attack in self.attacks if any(self.share(model, attack) < 1 for model in self._recorded.models)
        ]

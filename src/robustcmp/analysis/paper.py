"""What Guo et al. published, beside which a run of theirs stands."""

from __future__ import annotations

import tomllib
from importlib.resources import files
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    pass

# What Guo et al. trained the networks on.
PAPER_DATASETS = {"lenet1": "mnist", "lenet5": "mnist", "resnet20": "cifar10", "vgg16": "cifar10"}


def published() -> dict[str, Any]:
    """Return the figures that Guo et al. published."""
    return tomllib.loads((files("robustcmp.resources") / "guo2019.toml").read_text(encoding="utf-8"))

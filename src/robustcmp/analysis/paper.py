"""What Guo et al. published, beside which a run of theirs stands."""

from __future__ import annotations

from importlib.resources import files
from typing import Any

from ..untrusted import read_toml

PUBLISHED = files("robustcmp.resources") / "guo2019.toml"
# What Guo et al. trained the networks on.
DATASETS = {"lenet1": "mnist", "lenet5": "mnist", "resnet20": "cifar10", "vgg16": "cifar10"}


def published() -> dict[str, Any]:
    """Return the figures that Guo et al. published."""
    return read_toml(PUBLISHED, "the published figures")


def beside(manifest: dict[str, Any]) -> dict[str, dict[str, float]]:
    """Return the success rates that were published for a run's network, by framework and attack, or nothing.

    Only for the paper's attacks with the paper's settings, on the dataset that the paper has for the network.
    """
    about, attacks = manifest["about"], manifest["suite"]["attacks"]
    figures = published()
    same_settings = all(
        attack in attacks and settings.items() <= attacks[attack]["settings"].items()
        for attack, settings in figures["settings"].items()
        if isinstance(settings, dict)
    )
    model = about.get("model")
    if not same_settings or model not in DATASETS or about.get("dataset") != DATASETS[model]:
        return {}
    return dict(figures["success_rate"][model])

"""The manifest of a run: what was asked for, and with what, as JSON types."""

from __future__ import annotations

from typing import Any

import msgspec

from . import format_1
from .attack import AttackRecord

FORMAT = "robustcmp run 2"


def is_known(manifest: dict[str, Any]) -> bool:
    """Say whether a manifest has a format that can be read."""
    return manifest["format"] in (FORMAT, format_1.FORMAT)


def upgraded(manifest: dict[str, Any]) -> dict[str, Any]:
    """Return a manifest of any format that is known as one of today's."""
    if manifest.get("format", FORMAT) == FORMAT:
        return manifest
    suite = manifest["suite"]
    attacks = {name: format_1.declared(said) for name, said in suite["attacks"].items()}
    return manifest | {"format": FORMAT, "suite": suite | {"attacks": attacks}}


def attack_records(manifest: dict[str, Any]) -> dict[str, AttackRecord]:
    """Return what the attacks of a run said of themselves, by their names."""
    return {name: msgspec.convert(said, AttackRecord) for name, said in manifest["suite"]["attacks"].items()}

"""Cells that are in a run under other keys than today's, and what is said of those from other machines."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..records.cell import Extras
from .plan import CellStore


class AdoptingStore:
    """A store as it is once cells have been adopted; nothing is written.

    Parameters
    ----------
    store : CellStore
        What is there.
    adopted : dict of str to str
        The keys of cells that are there, by their keys of today.
    """

    def __init__(self, store: CellStore, adopted: Mapping[str, str]):
        self._store, self._adopted = store, adopted

    def __contains__(self, key: str) -> bool:
        return key in self._store or key in self._adopted

    def extras(self, key: str) -> Extras:
        return self._store.extras(self._adopted.get(key, key))


def kept_cells(
    store: CellStore, stored: Mapping[str, Any], manifest: Mapping[str, Any], kept: Mapping[str, str]
) -> list[dict[str, Any]]:
    """Return which cells of a question were computed on other machines: each environment with its keys.

    Parameters
    ----------
    store : CellStore
        What is there.
    stored, manifest : dict
        The manifest of the run's last question, and that of this one.
    kept : dict of str to str
        The cells that are kept now, by their keys.
    """
    asked = {cell["key"] for cell in manifest["cells"]}
    before = [
        (entry["environment"], [key for key in entry["cells"] if key in asked and key in store])
        for entry in stored.get("kept", ())
    ]
    machines: list[dict[str, Any]] = []
    for environment, cells in (*before, (stored.get("environment"), list(kept))):
        same = next((entry for entry in machines if entry["environment"] == environment), None)
        if same:
            same["cells"] += cells
        elif cells:
            machines.append({"environment": environment, "cells": cells})
    return machines


def redone(count: int, of: int, stored: Mapping[str, Any], manifest: Mapping[str, Any]) -> str:
    """Say that cells will be computed again, and why probably."""
    then, now = stored.get("environment", {}), manifest["environment"]
    changed = [
        f"{name} {then.get(name) or 'unknown'} then, {now[name] or 'unknown'} now"
        for name in ("processor", "machine", "system", "cpus", "omp_num_threads")
        if then.get(name) != now[name]
    ]
    if then.get("versions") != now["versions"]:
        changed.append("other versions of Python or its packages")
    cause = "; ".join(changed) or "the same description, so perhaps another number of threads"
    return (
        f"{count} of {of} cells of this run will be computed again: the models have the same weights, but their logits "
        "or gradients differ from those of the stored run in the last bits. "
        f"The machine: {cause}. To use the stored cells as they are, stop now and rerun with keep_cells=True "
        "(--keep-cells)."
    )

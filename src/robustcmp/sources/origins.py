"""Where trained models come from: one serialisable value a model, which any process can load."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .deployed import FromDeployment
from .from_files import FromDeployedFile, FromFile, FromFunction
from .from_zoo import FromZoo

Origin = FromZoo | FromFile | FromFunction
"""It has a label, a fingerprint that is known before a framework is loaded, and ``load(device)``.

So that other machines can load it, it also names its ``files`` and the ``frameworks`` that it takes, and has
``load_from(files, device)`` for copies of the files.
"""

AnyOrigin = Origin | FromDeployment | FromDeployedFile
"""Also those that stay where the comparison is made: they have a label, a fingerprint and ``load(device)``."""


def fingerprints(origins: Mapping[str, Sequence[AnyOrigin]]) -> dict[str, list[Any]] | None:
    """Return what tells some models apart, by label; None where the code of a user has a part in one of them.

    Raises
    ------
    WeightsError
        A file is broken.
    """
    prints = {label: [origin.fingerprint for origin in each] for label, each in origins.items()}
    return None if any(fingerprint is None for each in prints.values() for fingerprint in each) else prints

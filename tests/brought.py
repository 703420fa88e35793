"""What the tests of models that people bring have in common."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import robustcmp as rc
from robustcmp.models.classifier import Classifier

SUITE = """
[attacks.fgsm]
attack = "FGSM"
epsilons = 10
max_epsilon = 0.5
[attacks.single_pixel]
attack = "SinglePixel"
max_pixels = 3
"""


def compared(model: Any, images: NDArray[np.float32], tmp_path: Path) -> None:
    """Attack a model at the labels that it gives, with and without its gradient."""
    suite = tmp_path / "suite.toml"
    suite.write_text(SUITE)
    labels = Classifier(model).predict(images)
    n = len(images)
    ev = rc.evaluate(
        {"brought": model}, images, labels, suite=suite, n=n, repeats=1, batch_size=min(n, 8), progress=False
    )
    rates = ev.rates()["brought"]
    assert set(rates) == {"fgsm", "single_pixel"}
    assert rates["fgsm"] > 0

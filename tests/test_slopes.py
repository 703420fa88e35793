"""A gradient that its caller wrote is compared with slopes, and a wrong one fails the health checks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import robustcmp as rc
from robustcmp.data.dataset import Dataset
from robustcmp.models.classifier import Classifier
from robustcmp.runs.checks import _compare_slopes

Images = NDArray[np.float32]
WRONG: dict[str, Callable[[Classifier], Callable[[Images, Images], Images]]] = {
    "its sign": lambda zoo: lambda x, v: -zoo.vjp(x, v),
    "its size": lambda zoo: lambda x, v: zoo.vjp(x, v) / 255,
    "its axes": lambda zoo: lambda x, v: zoo.vjp(x, v).transpose(0, 2, 1, 3),
    "a part": lambda zoo: lambda x, v: zoo.vjp(x, v) * (np.arange(x.shape[2]) < x.shape[2] / 2)[:, None],
    "other images": lambda zoo: lambda x, v: zoo.vjp(1 - x, v),
    "of another class": lambda zoo: lambda x, v: zoo.vjp(x, np.roll(v, 1, axis=1)),
}


@pytest.mark.parametrize("kind", ["right", *WRONG])
def test_a_wrong_gradient_is_seen(kind: str, zoo_model: Any, digits: Dataset) -> None:
    zoo = Classifier(zoo_model("torch", "lenet5"))
    vjp = zoo.vjp if kind == "right" else WRONG[kind](zoo)
    model = Classifier(rc.wrap_functions(logits=zoo.logits, vjp=vjp))
    along, across = _compare_slopes(model, digits.images[:40], digits.labels[:40], 0)
    assert (max(along, across) > 0.25) == (kind != "right")


@pytest.mark.brought(
    group="Other models",
    what="functions of NumPy arrays whose `vjp` is not the gradient of their logits",
    typed="rc.wrap_functions(logits=…, vjp=…)",
    got="a comparison; its health checks fail and say how far the slopes are off",
)
def test_the_health_checks_of_a_comparison_say_so(zoo_model: Any, digits: Dataset) -> None:
    zoo = Classifier(zoo_model("torch", "lenet5"))
    model = rc.wrap_functions(logits=zoo.logits, vjp=WRONG["its sign"](zoo))
    ev = rc.evaluate(
        {"m": model}, digits.images, digits.labels, suite={"fgsm": rc.attacks.FGSM()}, n=20, progress=False
    )
    check = ev.run_checks().set_index("check").loc["gradient fits finite differences"]
    assert check.outcome == "fail"
    assert "off along the gradient" in check.figure

"""The same weights in several frameworks."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from ..errors import UsageError
from ..frameworks import (
    Device,
    get_framework,
    installed,
)
from ..models.model import Model, wrap
from ..networks.architecture import Architecture, get_architecture


def same_weights(model: Model, frameworks: Sequence[str] | None = None, *, device: Device = "auto") -> dict[str, Model]:
    """Copy one training's weights into several frameworks: the control for the evaluation itself.

    `robustcmp.evaluate` on these models measures how closely they agree, in ``Evaluation.same_weights``. It computes no
    R.

    Parameters
    ----------
    model : Model
        From `load_model` or `fit`.
    frameworks : sequence of str, optional
        The frameworks (default: all that are installed).
    device : str, default "auto"
        ``"auto"``, ``"cpu"`` or ``"cuda"``.

    Returns
    -------
    dict of str to Model
        By framework.

    Raises
    ------
    UsageError
        The network is not a model of the zoo, or a framework is unknown or not installed.

    Examples
    --------
    >>> from robustcmp import load_model
    >>> model = load_model("lenet1", framework="torch", dataset="digits")
    >>> same_weights(model, ["torch", "jax"])["jax"]
    <robustcmp.Model lenet1 digits 0 jax, bounds (0, 1)>
    """
    if not isinstance(model, Model) or "model" not in model.info:
        raise UsageError(
            "expected a model of the zoo, received another network. Load one with robustcmp.load_model, or train one "
            "with robustcmp.fit."
        )
    described = model.info.get("architecture")
    architecture = msgspec.convert(described, Architecture) if described else get_architecture(model.info["model"])
    weights = get_framework(model.framework).get_weights(model.native, architecture)
    info = {key: value for key, value in model.info.items() if key != "differences"}
    info |= {"same_weights": model.framework}
    carried = {}
    for framework in frameworks or installed():
        adapter = get_framework(framework)
        native = adapter.build(architecture, 0, device)
        adapter.set_weights(native, architecture, weights)
        carried[framework] = wrap(native, framework=framework, device=device, info=info)
        carried[framework].architecture = architecture
    return carried

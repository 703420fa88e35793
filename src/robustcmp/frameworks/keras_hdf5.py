"""Whole models in HDF5, as Keras 2 saves them, in the words of Keras 3. Keras is not imported here."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from ..errors import WeightsError
from ..untrusted import check_hdf5

MODELS = ("Sequential", "Functional", "Model")
CODE = ("Lambda", "TFSMLayer", "TorchModuleWrapper", "JaxLayer", "FlaxLayer")  # layers that run what a file holds
KERNEL = ("kernel_initializer", "kernel_regularizer", "kernel_constraint")
UNUSED = {"Conv2DTranspose": ("groups",), "DepthwiseConv2D": ("groups",), "SeparableConv2D": ("groups", *KERNEL)}
"""Settings of layers that have no meaning in Keras 2 and are refused in Keras 3."""


def read_description(path: Path) -> dict[str, Any]:
    """Return what a whole model is made of, as Keras 3 describes it.

    Raises
    ------
    WeightsError
        The file is broken, shows other files, or holds no model, or one with layers that carry code.
    """
    check_hdf5(path)
    try:
        with h5py.File(path, "r") as file:
            text = file.attrs.get("model_config")
            version = np.asarray(file.attrs.get("keras_version", "2")).astype(str).item()
        if text is None:
            raise WeightsError(
                f"{path} holds no model of Keras, and it is not a weights file of robustcmp. Save the whole model with "
                "model.save('x.keras'), or its weights with model.save_weights('x.weights.h5')."
            )
        description: dict[str, Any] = json.loads(text)
        for part in _parts(description):
            kind = part.get("class_name")
            if kind in CODE or (part is description and kind not in MODELS):
                raise WeightsError(
                    f"{path} has a {kind}, which needs code that is not run. If you trust the file, return "
                    "keras.models.load_model(path, safe_mode=False) from a function of your own, module:function."
                )
            if version.startswith("2"):
                _translate(part)
    except (LookupError, TypeError, ValueError, AttributeError, OSError, RecursionError) as error:
        raise WeightsError(
            f"{path} describes no model ({type(error).__name__}). Save it with model.save('x.keras')."
        ) from None
    return description


def _parts(description: Any) -> Iterator[dict[str, Any]]:
    """Yield what describes a layer, a model, an initialiser, or the settings of one; each before what is in it."""
    left = [description]
    while left:
        part = left.pop()
        if isinstance(part, list):
            left += part
        elif isinstance(part, dict):
            yield part
            left += part.values()


def _translate(part: dict[str, Any]) -> None:
    """Change a part to what Keras 3 calls the same."""
    config = part.get("config")
    if not isinstance(config, dict):
        return
    if part.get("module") == "keras.layers" or part.get("class_name") in MODELS:
        part.pop("module", None)  # without it, Keras 3 reads the settings of Keras 2
    for setting in UNUSED.get(part.get("class_name", ""), ()):
        config.pop(setting, None)
    policy = config.get("dtype")
    if isinstance(policy, dict) and policy["class_name"] == "Policy":
        config["dtype"] = policy["config"]["name"]
    if "output_layers" in config:
        _count_uses_from_zero(config)
        for ends in ("input_layers", "output_layers"):
            if len(config[ends]) == 1:
                (config[ends],) = config[ends]  # a model of one output answers no list


def _count_uses_from_zero(config: dict[str, Any]) -> None:
    """Count the uses of models within a model from 0: in Keras 2 the first is that of their own inputs."""
    models = {layer["name"] for layer in config["layers"] if _begins_with_input(layer["config"])}
    nodes = [node for layer in config["layers"] for node in layer["inbound_nodes"]]
    for node in [*nodes, config["output_layers"]]:
        for use in node:
            if isinstance(use, list) and use[0] in models:
                use[1] -= 1


def _begins_with_input(config: dict[str, Any]) -> bool:
    return bool(config.get("layers")) and config["layers"][0]["class_name"] == "InputLayer"

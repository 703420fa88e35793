"""Keras models of a user's own, in the words of Keras 2, which TensorFlow.js reads.

Layers are taken whose settings mean the same in both; anything else is named. Keras itself is not imported.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...errors import DeploymentError

POOL = ("pool_size", "strides", "padding", "data_format")
SETTINGS = {  # those that TensorFlow.js takes; of any other, the value that it cannot change
    "InputLayer": (),
    "Conv2D": (
        "filters",
        "kernel_size",
        "strides",
        "padding",
        "data_format",
        "dilation_rate",
        "activation",
        "use_bias",
    ),
    "Dense": ("units", "activation", "use_bias"),
    "BatchNormalization": ("axis", "momentum", "epsilon", "center", "scale"),
    "Activation": ("activation",),
    "ReLU": ("max_value",),
    "Softmax": ("axis",),
    "MaxPooling2D": POOL,
    "AveragePooling2D": POOL,
    "GlobalAveragePooling2D": ("data_format",),
    "GlobalMaxPooling2D": ("data_format",),
    "ZeroPadding2D": ("padding", "data_format"),
    "Flatten": ("data_format",),
    "Dropout": ("rate",),
    "Add": (),
    "Concatenate": ("axis",),
}
PLAIN = {
    "activation": ("linear", "relu", "relu6", "sigmoid", "softmax", "tanh"),
    "data_format": ("channels_last",),
    "groups": (1,),
    "keepdims": (False,),
    "negative_slope": (0,),
    "threshold": (0,),
}
FILLED = ("Conv2D", "Dense")  # their initialisers would draw numbers for nothing


def topology(native: Any) -> dict[str, Any]:
    """Return Keras 2's description of a Keras model.

    Raises
    ------
    DeploymentError
        It is none, or has something that TensorFlow.js has not.
    """
    config = native.get_config()
    layers = config["layers"]
    if type(native).__name__ == "Sequential":
        names = [layer["config"]["name"] for layer in layers]
        inputs, outputs = names[:1], names[-1:]
        before: list[list[str]] = [[], *([name] for name in names[:-1])]
    else:
        inputs, outputs = (_ends(config[end]) for end in ("input_layers", "output_layers"))
        before = [_before(layer) for layer in layers]
    if not layers or layers[0]["class_name"] != "InputLayer" or len(inputs) != 1 or len(outputs) != 1:
        raise _conversion_error("expected one input of a known size and one output")
    return {
        "class_name": "Functional",
        "config": {
            "name": config["name"],
            "layers": [_layer(layer, names) for layer, names in zip(layers, before, strict=True)],
            "input_layers": [[inputs[0], 0, 0]],
            "output_layers": [[outputs[0], 0, 0]],
        },
    }


def weights(native: Any) -> dict[str, NDArray[np.float32]]:
    """Return the arrays of a Keras model by the names that TensorFlow.js expects."""
    return {
        f"{layer.name}/{variable.name}": np.asarray(variable, np.float32)
        for layer in native.layers
        for variable in layer.weights
        if "seed" not in variable.name
    }


def _layer(layer: dict[str, Any], before: list[str]) -> dict[str, Any]:
    kind, config = layer["class_name"], layer["config"]
    label = f"the layer {config.get('name')!r} ({kind})"
    if kind not in SETTINGS or layer.get("registered_name"):
        raise _conversion_error(f"{label} is none of {', '.join(SETTINGS)}")
    for name, allowed in PLAIN.items():
        if name in config and config[name] not in allowed:
            raise _conversion_error(f"{label} has {name}={config[name]!r}, expected {' or '.join(map(repr, allowed))}")
    policy = config.get("dtype", "float32")
    computed = policy["config"]["name"] if isinstance(policy, dict) else policy
    if computed not in ("float32", None):
        raise _conversion_error(f"{label} computes in {computed}, expected float32")
    settings = {name: config[name] for name in SETTINGS[kind]} | {"name": config["name"]}
    if kind == "InputLayer":
        settings |= {"batch_input_shape": list(config["batch_shape"]), "dtype": "float32", "sparse": False}
    if kind in FILLED:
        settings |= {f"{name}_initializer": {"class_name": "Zeros", "config": {}} for name in ("kernel", "bias")}
    nodes = [[[name, 0, 0, {}] for name in before]] if before else []
    return {"class_name": kind, "name": config["name"], "config": settings, "inbound_nodes": nodes}


def _before(layer: dict[str, Any]) -> list[str]:
    """Return the names of the layers that a layer gets its input from."""
    nodes = layer["inbound_nodes"]
    if len(nodes) > 1:
        raise _conversion_error(f"the layer {layer['name']!r} is used {len(nodes)} times")
    return [name for node in nodes for name in _tensors(node["args"])]


def _tensors(part: Any) -> Iterator[str]:
    if isinstance(part, dict) and part.get("class_name") == "__keras_tensor__":
        yield part["config"]["keras_history"][0]
    elif isinstance(part, list | tuple):
        for each in part:
            yield from _tensors(each)


def _ends(described: Any) -> list[str]:
    """Return the names of a model's inputs or outputs: Keras writes a single one without a list around it."""
    single = bool(described) and isinstance(described[0], str)
    return [described[0]] if single else [each[0] for each in described]


def _conversion_error(reason: str) -> DeploymentError:
    return DeploymentError(
        f"this Keras model cannot be converted for tfjs: {reason}. Convert it with tensorflowjs_converter to a layers "
        "model, and open its model.json."
    )

"""TensorFlow.js in a page of Chromium: layers models, computed by WebAssembly.

A file is a ``model.json`` as TensorFlow's converter writes it, the weights in files beside it. "int8" and "float16"
are the converter's weight quantisation: they make the files smaller, and TensorFlow.js computes with float32 all the
same.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...errors import DeploymentError
from ...files import write_bytes_atomically
from ...models.model import Model
from ...networks.architecture import (
    Architecture,
    BatchNorm,
    Conv,
    Dense,
    Flatten,
    GlobalAveragePool,
    Layer,
    MaxPool,
    Relu,
    Residual,
)
from ...provenance import own_version
from ...untrusted import read_network
from ..base import WRITTEN, Conversion, deployment_errors
from ..sessions import Layout, Session, Tensor, choose_tensors
from . import browser, npm

VERSION = "4.22.0"
TFJS = npm.Package(
    "@tensorflow/tfjs",
    VERSION,
    "sha512-0TrIrXs6/b7FLhLVNmfh8Sah6JgjBPH4mZ8JGb7NU6WW+cx00qK5BcAZxw7NCzxj6N8MRAIfHq+oNbPUNG5VAg==",
    {"package/dist/tf.es2017.min.js": "a1f9e32fd9b373cf394905050cf0c8c66238b34925846c065db00d2a34d1c040"},
)
WASM = npm.Package(
    "@tensorflow/tfjs-backend-wasm",
    VERSION,
    "sha512-/IYhReRIp4jg/wYW0OwbbJZG8ON87mbz0PgkiP3CdcACRSvUN0h8rvC0O3YcDtkTQtFWF/tcXq/KlVDyV49wmA==",
    {
        "package/dist/tf-backend-wasm.es2017.min.js": (
            "bdd8c3c1fb0b37601bc2a122efa20b8d78e2936d104b03a44591be4188c63f65"
        ),
        "package/dist/tfjs-backend-wasm-simd.wasm": "77ebb28a6d34f371dbbf2086b7f2de8994acd8ea5a3cf1fa24d2c26c840cac7b",
    },
)
SCRIPTS = ("tf.es2017.min.js", "tf-backend-wasm.es2017.min.js", "tfjs_page.js")
WEIGHTS = "weights.bin"
DESCRIPTION_BYTES = 2**24  # of a model.json; MobileNet's has 2**18
WEIGHT_BYTES = 2**31  # of all weights; a page's memory has twice as many
STORED = {"float32": 4, "int32": 4, "bool": 1, "uint8": 1, "uint16": 2, "float16": 2}  # bytes a value
# They cost nothing: the weights are in the file.
ZEROS = {"class_name": "Zeros", "config": {}}
ZERO_INITIALISERS = {"kernel_initializer": ZEROS, "bias_initializer": ZEROS}
KEYS = {"mean": "moving_mean", "variance": "moving_variance"}  # where Keras has other names
NO_MODEL = "is no layers model of TensorFlow.js, which has modelTopology, and a weightsManifest with paths and weights"
OTHERWISE = "Convert it with tensorflowjs_converter to a layers model, and open its model.json."


class _TensorFlowJs(browser.BrowserRuntime):
    name = "tfjs"
    library = VERSION
    suffix = ".json"
    converters = ("keras",)
    conversions = {
        "": Conversion("float32", "a layers model, on WebAssembly"),
        "float16": Conversion("float16", "weights stored in float16, computed in float32 on WebAssembly"),
        "int8": Conversion("int8", "weights stored in 8 bits, computed in float32 on WebAssembly"),
    }

    def beside(self, path: Path) -> list[Path]:
        return _beside(path, _read_description(path))

    def convert(self, model: Model, kind: str, calibration: NDArray[np.float32] | None, path: Path) -> None:
        layers, weights = _translate(model)
        stored = [_store(name, values, kind) for name, values in weights.items()]
        weights_name = WEIGHTS if path.stem == WRITTEN else f"{path.stem}.{WEIGHTS}"
        description = {
            "format": "layers-model",
            "generatedBy": f"robustcmp {own_version()}",
            "convertedBy": None,
            "modelTopology": {"keras_version": "2.15.0", "backend": "tensorflow", "model_config": layers},
            "weightsManifest": [{"paths": [weights_name], "weights": [about for about, _ in stored]}],
        }
        write_bytes_atomically(path.with_name(weights_name), b"".join(values.tobytes() for _, values in stored))
        write_bytes_atomically(path, json.dumps(description).encode())

    def load(self, path: Path) -> Session:
        topology, manifest, values = _read_model(path)
        available = TFJS.fetch() | WASM.fetch()
        page = browser.start_page(f"{path}, in {self.name}", SCRIPTS, available)
        tensors = page.load(values, topology=topology, weights=manifest)
        inputs, outputs = ([Tensor(**tensor) for tensor in tensors[name]] for name in ("inputs", "outputs"))
        taken, _, _ = choose_tensors(page.name, inputs, outputs)
        return Session(Layout.of(taken.shape, taken.dtype, page.name), partial(browser.ask_rows, page))


RUNTIME = _TensorFlowJs()


def _translate(model: Model) -> tuple[dict[str, Any], dict[str, NDArray[np.float32]]]:
    """Return Keras's description of a network and its weights by the names that TensorFlow.js expects.

    Raises
    ------
    DeploymentError
        The network is none of robustcmp's layers.
    """
    values = model.weights
    if model.architecture is None or values is None:
        raise DeploymentError(
            "tfjs converts networks whose layers robustcmp knows, such as those of the zoo; it does not know those of "
            f"{type(model.native).__name__}. {OTHERWISE}"
        )
    arrays = {}
    for name, array in values.items():
        layer, _, kind = name.partition("/")
        arrays[f"{layer}/{KEYS.get(kind, kind)}"] = array
    return _topology(model.architecture), arrays


def _topology(architecture: Architecture) -> dict[str, Any]:
    """Return an architecture as Keras 2 describes a functional model."""
    first = "images-input"  # no layer of ours can be called that
    shape = [None, *architecture.input_shape]
    described = [_layer("InputLayer", first, [], batch_input_shape=shape, dtype="float32", sparse=False)]
    last = _add(architecture.layers, first, described)
    config = {"layers": described, "input_layers": [[first, 0, 0]], "output_layers": [[last, 0, 0]]}
    return {"class_name": "Functional", "config": {"name": architecture.name, **config}}


def _add(layers: tuple[Layer, ...], last: str, described: list[dict[str, Any]]) -> str:
    """Describe layers one after another, and return the name of the last."""
    for layer in layers:
        before = [last]
        if isinstance(layer, Residual):
            before = [_add(branch, last, described) for branch in (layer.layers, layer.shortcut)]
        elif isinstance(layer, Conv) and layer.padding:  # "same" pads more on one side where the stride is 2
            before = [f"{layer.name}-padding"]
            padding = [[layer.padding] * 2] * 2
            described.append(_layer("ZeroPadding2D", before[0], [last], padding=padding, data_format="channels_last"))
        kind, settings = _keras(layer)
        described.append(_layer(kind, layer.name, before, **settings))
        last = layer.name
    return last


def _layer(kind: str, name: str, inputs: list[str], **settings: Any) -> dict[str, Any]:
    nodes = [[[before, 0, 0, {}] for before in inputs]] if inputs else []
    return {"class_name": kind, "name": name, "config": {"name": name, **settings}, "inbound_nodes": nodes}


def _keras(layer: Layer) -> tuple[str, dict[str, Any]]:
    """Return what Keras calls a layer, and its settings."""
    match layer:
        case Conv():
            return "Conv2D", {
                "filters": layer.channels,
                "kernel_size": [layer.kernel] * 2,
                "strides": [layer.stride] * 2,
                "padding": "valid",
                "data_format": "channels_last",
                "activation": "linear",
                "use_bias": True,
            } | ZERO_INITIALISERS
        case Dense():
            return "Dense", {"units": layer.units, "activation": "linear", "use_bias": True} | ZERO_INITIALISERS
        case BatchNorm():
            return "BatchNormalization", {
                "axis": -1,
                "momentum": layer.momentum,
                "epsilon": layer.epsilon,
                "center": True,
                "scale": True,
            }
        case Relu():
            return "Activation", {"activation": "relu"}
        case MaxPool():
            size = {"pool_size": [layer.size] * 2, "strides": [layer.size] * 2}
            return "MaxPooling2D", size | {"padding": "valid", "data_format": "channels_last"}
        case GlobalAveragePool():
            return "GlobalAveragePooling2D", {"data_format": "channels_last"}
        case Flatten():
            return "Flatten", {"data_format": "channels_last"}
        case Residual():
            return "Add", {}


def _store(name: str, values: NDArray[np.float32], kind: str) -> tuple[dict[str, Any], NDArray[Any]]:
    """Return what the manifest says of an array, and the array as it is stored.

    As ``tensorflowjs_converter`` does it with ``--quantize_float16`` and ``--quantize_uint8``: in 8 bits a value is
    min + scale·q, q from 0 to 255, with a q for which it is exactly zero if zero is in the range.
    """
    about: dict[str, Any] = {"name": name, "shape": list(values.shape), "dtype": "float32"}
    if kind == "float16":
        return about | {"quantization": {"dtype": "float16", "original_dtype": "float32"}}, values.astype("<f2")
    if kind != "int8":
        return about, values.astype("<f4")
    low = float(values.min())
    high = float(values.max())
    scale = (high - low) / 255 or 1.0
    if low <= 0 <= high:
        low = -round(-low / scale) * scale
    quantised = np.clip(np.round((values.astype(np.float64) - low) / scale), 0, 255).astype(np.uint8)
    quantisation = {"dtype": "uint8", "original_dtype": "float32", "min": low, "scale": scale}
    return about | {"quantization": quantisation}, quantised


def _read_model(path: Path) -> tuple[Any, list[dict[str, Any]], bytes]:
    """Read a layers model: its description, its manifest of weights, and their bytes.

    Raises
    ------
    DeploymentError
        It cannot be read, is something else, or its weights are not whole files in its own folder.
    """
    content = _read_description(path)
    arrays: list[dict[str, Any]] = [about for group in content["weightsManifest"] for about in group["weights"]]
    with deployment_errors(f"{path} {NO_MODEL}"):
        expected = sum(map(_bytes, arrays))
    if expected > WEIGHT_BYTES:
        raise DeploymentError(f"{path} expects {expected:,} bytes of weights; at most {WEIGHT_BYTES:,} are read")
    values = b"".join(read_network(file, expected) for file in _beside(path, content))
    if len(values) != expected:
        raise DeploymentError(
            f"{path} expects {expected:,} bytes of weights, received {len(values):,}. Copy its files again."
        )
    return content["modelTopology"], arrays, values


def _read_description(path: Path) -> dict[str, Any]:
    """Return what stands in a model.json, in which there are at least lists where lists are expected."""
    with deployment_errors(f"{path} {NO_MODEL}"):
        content: dict[str, Any] = json.loads(read_network(path, DESCRIPTION_BYTES))
        if content.get("format", "layers-model") != "layers-model":
            raise DeploymentError(f"{path} is a {content['format']}; expected a layers model. {OTHERWISE}")
        lists = [group[name] for group in content["weightsManifest"] for name in ("paths", "weights")]
        if not isinstance(content["modelTopology"], dict) or not all(isinstance(value, list) for value in lists):
            raise TypeError("something else stands there")
    return content


def _beside(path: Path, content: Mapping[str, Any]) -> list[Path]:
    """Return the files with a model's weights, which lie in its own folder."""
    names = [name for group in content["weightsManifest"] for name in group["paths"]]
    for name in names:
        if not isinstance(name, str) or (path.parent / name).resolve().parent != path.resolve().parent:
            raise DeploymentError(
                f"{path}: its weights should lie in its own folder, in files that are no links, received {name!r}"
            )
    return [path.parent / name for name in names]


def _bytes(about: Mapping[str, Any]) -> int:
    """Return how many bytes an array takes in its file."""
    shape: list[int] = about["shape"]
    kind: str = about.get("quantization", about)["dtype"]
    if kind not in STORED or not all(isinstance(size, int) and size >= 0 for size in shape):
        raise ValueError(f"the array {about['name']!r} of type {kind!r} and shape {shape!r}")
    return STORED[kind] * math.prod(shape)

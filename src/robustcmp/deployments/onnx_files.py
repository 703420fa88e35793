"""ONNX files: the architectures as ONNX networks, and files from elsewhere as bytes.

Images are (N, C, H, W) in the files that are written here, as exporters of most frameworks have them, and the initial
values have the canonical names of `robustcmp.networks.architecture`.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from ..data.arrays import Images
from ..errors import DeploymentError
from ..frameworks import get_framework
from ..models.model import Model
from ..networks.architecture import (
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
from ..networks.weights import Weights
from ..untrusted import read_network
from .base import deployment_errors, image_shape
from .sessions import Tensor

OPSET = 17  # old enough for every runtime, new enough for all of our layers
IR = 8  # of the same age
PRODUCER = "robustcmp"
IMAGES = "images"
LOGITS = "logits"
LOCATION = b"location"  # stands in every network that keeps values in other files
ONE_FILE = "Or export one file, torch.onnx.export(..., external_data=False)."


def _import_onnx() -> Any:
    """Return the package onnx, or raise `DeploymentError` where it is not installed."""
    try:
        import onnx
    except ImportError as error:
        raise DeploymentError(f"ONNX files need the package onnx ({error}): pip install 'robustcmp[onnx]'") from None
    return onnx


# writing -------------------------------------------------------------------------------------------------------------


def write_float(model: Model, images: Images | None, path: Path) -> None:
    """Write a network as ONNX in float32: by our own writer where its design is known, else by its framework."""
    if model.architecture is not None and model.weights is not None:
        _write_onnx(model.architecture, model.weights, path)
        return
    get_framework(model.framework).export_onnx(model.native, image_shape(model, images), path)


def _write_onnx(architecture: Architecture, weights: Weights, path: Path) -> None:
    """Write a trained network as ONNX, in float32; the same network is always the same bytes."""
    onnx = _import_onnx()
    writer = _Writer(onnx, architecture, weights)
    writer.layers(architecture.layers, IMAGES)
    writer.nodes[-1].output[0] = LOGITS
    height, width, channels = architecture.input_shape
    images = onnx.helper.make_tensor_value_info(IMAGES, onnx.TensorProto.FLOAT, ["batch", channels, height, width])
    logits = onnx.helper.make_tensor_value_info(LOGITS, onnx.TensorProto.FLOAT, ["batch", architecture.classes])
    graph = onnx.helper.make_graph(writer.nodes, architecture.name, [images], [logits], writer.arrays)
    opsets = [onnx.helper.make_opsetid("", OPSET)]
    model = onnx.helper.make_model(graph, producer_name=PRODUCER, opset_imports=opsets, ir_version=IR)
    onnx.checker.check_model(model, full_check=True)
    path.write_bytes(model.SerializeToString(deterministic=True))


class _Writer:
    """The nodes of a graph, one after another."""

    def __init__(self, onnx: Any, architecture: Architecture, weights: Weights):
        self._onnx = onnx
        self._architecture = architecture
        self._weights = weights
        self.nodes: list[Any] = []
        self.arrays: list[Any] = []

    def layers(self, layers: tuple[Layer, ...], value: str) -> str:
        """Append some layers, and return the name of what comes out of them."""
        for layer in layers:
            value = self._layer(layer, value)
        return value

    def _layer(self, layer: Layer, value: str) -> str:
        match layer:
            case Conv():
                kernel = self._array(layer.name, "kernel", (3, 2, 0, 1))
                shape = {"kernel_shape": [layer.kernel] * 2, "strides": [layer.stride] * 2, "pads": [layer.padding] * 4}
                return self._node("Conv", layer, [value, kernel, self._array(layer.name, "bias")], **shape)
            case Dense():
                return self._node(
                    "Gemm", layer, [value, self._array(layer.name, "kernel"), self._array(layer.name, "bias")]
                )
            case BatchNorm():
                arrays = [self._array(layer.name, name) for name in ("gamma", "beta", "mean", "variance")]
                return self._node("BatchNormalization", layer, [value, *arrays], epsilon=layer.epsilon)
            case Relu():
                return self._node("Relu", layer, [value])
            case MaxPool():
                return self._node("MaxPool", layer, [value], kernel_shape=[layer.size] * 2, strides=[layer.size] * 2)
            case GlobalAveragePool():
                mean = self._node("GlobalAveragePool", layer, [value])
                return self._node("Flatten", layer, [mean], axis=1)
            case Flatten():
                return self._node("Flatten", layer, [value], axis=1)
            case Residual():
                sides = [self.layers(layer.layers, value), self.layers(layer.shortcut, value)]
                return self._node("Add", layer, sides)

    def _array(self, layer: str, name: str, order: tuple[int, ...] | None = None) -> str:
        """Keep an array of weights in ONNX's order, and return its name."""
        whole = f"{layer}/{name}"
        array = self._weights[whole]
        if order:
            array = array.transpose(order)
        elif name == "kernel" and layer in self._architecture.flat_shapes:
            # The rows are to be in the order (C, H, W) instead of (H, W, C).
            of_channels = array.reshape(*self._architecture.flat_shapes[layer], -1).transpose(2, 0, 1, 3)
            array = of_channels.reshape(array.shape)
        self.arrays.append(self._onnx.numpy_helper.from_array(np.ascontiguousarray(array), whole))
        return whole

    def _node(self, kind: str, layer: Layer, inputs: list[str], **attributes: Any) -> str:
        output = f"{layer.name}/{kind}"
        self.nodes.append(self._onnx.helper.make_node(kind, inputs, [output], name=output, **attributes))
        return output


# reading -------------------------------------------------------------------------------------------------------------


class OnnxFile:
    """An ONNX network from elsewhere, with the values that lie in files beside its own.

    Parameters
    ----------
    path : Path
        The network's own file.

    Raises
    ------
    DeploymentError
        It is no ONNX network, or a file beside it is not there or lies elsewhere.
    """

    def __init__(self, path: Path):
        self.path = path
        self._content = read_network(path)
        self._name = f"{path} is not an ONNX network that can be read. Export it again, or copy it again"

    @cached_property
    def _model(self) -> Any:
        with deployment_errors(self._name):
            return _import_onnx().load_model_from_string(self._content)

    @cached_property
    def _outside(self) -> list[tuple[Any, Path]]:
        """The arrays in files beside its own, with these files."""
        if LOCATION not in self._content:
            return []
        with deployment_errors(self._name):
            return _external_arrays(self._model, self.path)

    @property
    def beside(self) -> list[Path]:
        """The files that hold values of it, as ``torch.onnx.export`` writes them beside its own."""
        return [*dict.fromkeys(file for _, file in self._outside)]

    def read_whole(self) -> bytes:
        """Return it as the bytes of one file, with the values that lie in files beside its own."""
        if not self._outside:
            return self._content
        with deployment_errors(self._name):
            for array, _ in self._outside:
                _import_onnx().external_data_helper.load_external_data_for_tensor(array, str(self.path.parent))
                array.ClearField("external_data")
                array.ClearField("data_location")
            return bytes(self._model.SerializeToString())

    def read_levels(self) -> tuple[float, float] | None:
        """Return the smallest and the largest value that a quantised input can store; None for an input of floats."""
        onnx = _import_onnx()
        with deployment_errors(self._name):
            onnx.checker.check_model(self._model)
        arrays = {array.name: array for array in self._model.graph.initializer}
        images = {value.name for value in self._model.graph.input} - arrays.keys()
        for node in self._model.graph.node:
            is_of_images = node.op_type == "QuantizeLinear" and node.input[0] in images
            if is_of_images and len(arrays.keys() & {*node.input[1:]}) == 2:
                scale, zero = (onnx.numpy_helper.to_array(arrays[name]) for name in node.input[1:])
                stored = np.iinfo(zero.dtype)
                return float(scale * (stored.min - float(zero))), float(scale * (stored.max - float(zero)))
        return None

    def read_tensors(self) -> tuple[list[Tensor], list[Tensor]]:
        """Return its inputs and its outputs."""
        graph = self._model.graph
        arrays = {array.name for array in graph.initializer}
        inputs = [_describe_tensor(value) for value in graph.input if value.name not in arrays]
        return inputs, [_describe_tensor(value) for value in graph.output]


def _external_arrays(model: Any, path: Path) -> list[tuple[Any, Path]]:
    """Return the arrays whose values lie in other files of the network's folder, with these files."""
    pairs = []
    for array in _messages(model):
        if not isinstance(array, _import_onnx().TensorProto) or not (array.external_data or array.data_location):
            continue
        name = next((entry.value for entry in array.external_data if entry.key.encode() == LOCATION), "")
        file = path.parent / name
        if file.resolve().parent != path.resolve().parent:
            raise DeploymentError(
                f"{path} keeps {array.name!r} in {name!r}; only files of its own folder that are no links are read. "
                f"{ONE_FILE}"
            )
        if not file.is_file():
            raise DeploymentError(f"{path} keeps {array.name!r} in {file}, which does not exist: copy it. {ONE_FILE}")
        pairs.append((array, file))
    return pairs


def _describe_tensor(value: Any) -> Tensor:
    kind = value.type.tensor_type
    dtype = _import_onnx().helper.tensor_dtype_to_np_dtype(kind.elem_type).name
    return Tensor(value.name, dtype, [size.dim_value if size.dim_value > 0 else None for size in kind.shape.dim])


def _messages(message: Any) -> Iterator[Any]:
    """Yield the parts of a protocol buffer, at every depth: graphs, functions, nodes, attributes, arrays."""
    for field, value in message.ListFields():
        if field.message_type is not None:
            for part in [value] if hasattr(value, "ListFields") else value:
                yield part
                yield from _messages(part)

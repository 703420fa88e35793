"""ONNX files: the architectures as ONNX networks, and ONNX networks of our layers as weights.

Images are (N, C, H, W) in the files that are written here, as exporters of most frameworks have them, and the initial
values have the canonical names of `robustcmp.networks.architecture`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import DeploymentError
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

OPSET, IR = 17, 8  # old enough for every runtime, new enough for all of our layers
IMAGES, LOGITS = "images", "logits"
LARGEST = 2**31  # bytes: what a protocol buffer can have


def onnx_package() -> Any:
    """Return the package onnx, or raise `DeploymentError` where it is not installed."""
    try:
        import onnx
    except ImportError as error:
        raise DeploymentError(f"ONNX files need the package onnx ({error}): pip install 'robustcmp[onnx]'") from None
    return onnx


# writing -------------------------------------------------------------------------------------------------------------


def write_onnx(architecture: Architecture, weights: Weights, path: Path) -> None:
    """Write a trained network as ONNX, in float32; the same network is always the same bytes."""
    onnx = onnx_package()
    writer = _Writer(onnx, architecture, weights)
    last = writer.layers(architecture.layers, IMAGES)
    writer.nodes[-1].output[0] = LOGITS
    assert last
    height, width, channels = architecture.input_shape
    images = onnx.helper.make_tensor_value_info(IMAGES, onnx.TensorProto.FLOAT, ["batch", channels, height, width])
    logits = onnx.helper.make_tensor_value_info(LOGITS, onnx.TensorProto.FLOAT, ["batch", architecture.classes])
    graph = onnx.helper.make_graph(writer.nodes, architecture.name, [images], [logits], writer.arrays)
    opsets = [onnx.helper.make_opsetid("", OPSET)]
    model = onnx.helper.make_model(graph, producer_name="robustcmp", opset_imports=opsets, ir_version=IR)
    onnx.checker.check_model(model, full_check=True)
    path.write_bytes(model.SerializeToString(deterministic=True))


class _Writer:
    """The nodes of a graph, one after another."""

    def __init__(self, onnx: Any, architecture: Architecture, weights: Weights):
        self._onnx, self._architecture, self._weights = onnx, architecture, weights
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
                return self._node("Gemm", layer, [value, self._array(layer.name, "kernel"), self._bias(layer)])
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

    def _bias(self, layer: Dense) -> str:
        return self._array(layer.name, "bias")

    def _array(self, layer: str, name: str, order: tuple[int, ...] | None = None) -> str:
        """Keep an array of weights in ONNX's order, and return its name."""
        whole = f"{layer}/{name}"
        array = self._weights[whole]
        if order:
            array = array.transpose(order)
        elif name == "kernel" and layer in self._architecture.flattened:
            array = _rows_by_channel(array, self._architecture.flattened[layer])
        self.arrays.append(self._onnx.numpy_helper.from_array(np.ascontiguousarray(array), whole))
        return whole

    def _node(self, kind: str, layer: Layer, inputs: list[str], **attributes: Any) -> str:
        output = f"{layer.name}/{kind}"
        self.nodes.append(self._onnx.helper.make_node(kind, inputs, [output], name=output, **attributes))
        return output


def _rows_by_channel(kernel: NDArray[Any], flattened: tuple[int, int, int]) -> NDArray[Any]:
    """Return a dense kernel whose rows are in the order (C, H, W) instead of (H, W, C)."""
    reordered: NDArray[Any] = kernel.reshape(*flattened, -1).transpose(2, 0, 1, 3).reshape(kernel.shape)
    return reordered


def _rows_by_place(kernel: NDArray[Any], flattened: tuple[int, int, int]) -> NDArray[Any]:
    """The inverse of `_rows_by_channel`."""
    height, width, channels = flattened
    reordered: NDArray[Any] = kernel.reshape(channels, height, width, -1).transpose(1, 2, 0, 3).reshape(kernel.shape)
    return reordered


# reading -------------------------------------------------------------------------------------------------------------


def load_onnx(path: Path) -> Any:
    """Return the content of an ONNX file without values that lie in other files, or raise `DeploymentError`."""
    onnx = onnx_package()
    try:
        size = path.stat().st_size
        if not 0 < size < LARGEST:
            raise DeploymentError(f"{path} has {size:,} bytes; expected a whole ONNX file of less than 2 GiB")
        content = onnx.load_model_from_string(path.read_bytes())
        onnx.checker.check_model(content)
    except DeploymentError:
        raise
    except Exception as error:  # whatever a broken file makes onnx raise
        reason = " ".join(str(error).split())[:200]
        raise DeploymentError(
            f"{path} is not an ONNX network ({type(error).__name__}: {reason}). Export it again."
        ) from None
    outside = [tensor.name for tensor in _tensors(content.graph) if tensor.external_data or tensor.data_location]
    if outside:
        raise DeploymentError(f"{path} keeps {outside[0]!r} in another file, which is not read. Export it as one file.")
    return content


def _tensors(graph: Any) -> Iterator[Any]:
    """Yield the arrays of a graph and of those inside its nodes."""
    yield from graph.initializer
    for node in graph.node:
        for attribute in node.attribute:
            yield from [attribute.t, *attribute.tensors]
            for inner in (attribute.g, *attribute.graphs):
                if inner.node or inner.initializer:
                    yield from _tensors(inner)


def read_onnx(path: Path) -> tuple[Architecture, Weights]:
    """Return an ONNX network of our layers as a design and weights in the canonical layout.

    It has to be a chain of `Conv`, `BatchNormalization`, `Relu`, `MaxPool`, `GlobalAveragePool`, `Flatten` or
    `Reshape`, and `Gemm` or `MatMul` with `Add`, with sums of two branches as in residual networks, for images
    (N, C, H, W). Pads are the same on every side.

    Raises
    ------
    DeploymentError
        The file is broken, or has something else.
    """
    content = load_onnx(path)
    reader = _Reader(content, path)
    return reader.architecture(path.stem), reader.weights


class _Reader:
    """An ONNX graph as a chain of layers."""

    def __init__(self, content: Any, path: Path):
        onnx = onnx_package()
        self._path = path
        self._get = onnx.helper.get_attribute_value
        graph = content.graph
        self._arrays = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in graph.initializer}
        for node in graph.node:
            if node.op_type == "Constant" and node.attribute and node.attribute[0].name == "value":
                self._arrays[node.output[0]] = onnx.numpy_helper.to_array(node.attribute[0].t)
        self._made = {output: node for node in graph.node if node.op_type != "Constant" for output in node.output}
        inputs = [value for value in graph.input if value.name not in self._arrays]
        if len(inputs) != 1 or len(graph.output) != 1:
            raise self._unfit(f"it has {len(inputs)} inputs and {len(graph.output)} outputs, expected one of each")
        self._input, self._output = inputs[0].name, graph.output[0].name
        sizes = [size.dim_value for size in inputs[0].type.tensor_type.shape.dim]
        if len(sizes) != 4 or not all(sizes[1:]):
            raise self._unfit(f"its input has the shape {sizes}, expected (N, C, H, W)")
        self._shape = (sizes[2], sizes[3], sizes[1])
        self.weights: Weights = {}
        self._count: dict[str, int] = {}

    def architecture(self, name: str) -> Architecture:
        """Return the design; the weights are there afterwards."""
        layers = self._chain(self._output, self._input)
        self._flattened(layers)
        return Architecture(name, self._shape, tuple(layers))

    def _unfit(self, why: str) -> DeploymentError:
        return DeploymentError(
            f"{self._path} does not hold to the layers of robustcmp: {why}. It can be compared as it is, as "
            f"onnxruntime={self._path}."
        )

    def _chain(self, value: str, until: str) -> list[Layer]:
        """Return the layers from one value to another, the last one first found."""
        layers: list[Layer] = []
        while value != until:
            if value not in self._made:
                raise self._unfit(f"nothing makes {value!r}")
            node = self._made[value]
            layer, value = self._layer(node, until)
            layers += layer
        return layers[::-1]

    def _layer(self, node: Any, until: str) -> tuple[list[Layer], str]:
        """Return the layers of a node, the last first, and the name of what goes in."""
        kind, value = node.op_type, node.input[0]
        said = {attribute.name: self._get(attribute) for attribute in node.attribute}
        match kind:
            case "Conv":
                return [self._conv(node, said)], value
            case "Gemm":
                return [self._gemm(node, said)], value
            case "BatchNormalization":
                if abs(said.get("epsilon", 1e-5) - BatchNorm.epsilon) > 1e-9:
                    raise self._unfit(f"a batch norm with epsilon {said['epsilon']:g}, expected {BatchNorm.epsilon:g}")
                name = self._name("norm")
                self._keep(name, zip(("gamma", "beta", "mean", "variance"), node.input[1:], strict=True))
                return [BatchNorm(name)], value
            case "Relu":
                return [Relu(self._name("relu"))], value
            case "MaxPool":
                return [self._pool(said)], value
            case "GlobalAveragePool" | "ReduceMean":
                return [GlobalAveragePool(self._name("pool"))], value
            case "Flatten" | "Reshape" | "Squeeze":
                before = self._made.get(value)
                if before is not None and before.op_type in ("GlobalAveragePool", "ReduceMean"):
                    return self._layer(before, until)
                return [Flatten(self._name("flatten"))], value
            case "Identity" | "Dropout":
                return [], value
            case "Add":
                return self._add(node)
        raise self._unfit(f"it has a {kind}")

    def _add(self, node: Any) -> tuple[list[Layer], str]:
        bias = [name for name in node.input if name in self._arrays]
        if bias:
            product = self._made.get(next(name for name in node.input if name not in self._arrays))
            if product is None or product.op_type != "MatMul" or product.input[1] not in self._arrays:
                raise self._unfit("it adds an array to something else than a product with a matrix")
            return [self._dense(self._arrays[product.input[1]], self._arrays[bias[0]])], product.input[0]
        name = self._name("block")
        fork = self._fork(node.input[0], node.input[1])
        branches = [tuple(self._chain(value, fork)) for value in node.input]
        inner, shortcut = sorted(branches, key=len, reverse=True)
        return [Residual(name, inner, shortcut)], fork

    def _fork(self, one: str, other: str) -> str:
        """Return the nearest value from which both come."""
        behind = list(self._behind(one))
        for value in self._behind(other):
            if value in behind:
                return value
        raise self._unfit("it adds two values that have no common origin")

    def _behind(self, value: str) -> Iterator[str]:
        yield value
        while value in self._made:
            node = self._made[value]
            if node.op_type == "Add" and not any(name in self._arrays for name in node.input):
                value = self._fork(*node.input)
            else:
                value = next(name for name in node.input if name not in self._arrays)
            yield value

    def _conv(self, node: Any, said: dict[str, Any]) -> Conv:
        kernel = self._array(node.input[1])
        pads, strides = set(said.get("pads", [0])), set(said.get("strides", [1]))
        plain = said.get("group", 1) == 1 and set(said.get("dilations", [1])) == {1} and kernel.ndim == 4
        same = said.get("auto_pad", b"NOTSET") in (b"NOTSET", b"VALID")
        if not plain or not same or len(pads) != 1 or len(strides) != 1 or kernel.shape[2] != kernel.shape[3]:
            raise self._unfit("a convolution that is grouped, dilated, not square or padded unevenly")
        name = self._name("conv")
        self.weights[f"{name}/kernel"] = _float32(kernel.transpose(2, 3, 1, 0))
        bias = self._array(node.input[2]) if len(node.input) > 2 else np.zeros(len(kernel))
        self.weights[f"{name}/bias"] = _float32(bias)
        return Conv(name, len(kernel), kernel.shape[2], strides.pop(), pads.pop())

    def _gemm(self, node: Any, said: dict[str, Any]) -> Dense:
        if said.get("alpha", 1) != 1 or said.get("beta", 1) != 1 or said.get("transA", 0):
            raise self._unfit("a Gemm with factors of its own")
        kernel = self._array(node.input[1])
        bias = self._array(node.input[2]) if len(node.input) > 2 else None
        return self._dense(kernel.T if said.get("transB", 0) else kernel, bias)

    def _dense(self, kernel: NDArray[Any], bias: NDArray[Any] | None) -> Dense:
        if kernel.ndim != 2:
            raise self._unfit(f"a product with an array of the shape {kernel.shape}")
        name = self._name("dense")
        units = kernel.shape[1]
        self.weights[f"{name}/kernel"] = _float32(kernel)
        self.weights[f"{name}/bias"] = _float32(np.zeros(units) if bias is None else np.broadcast_to(bias, (units,)))
        return Dense(name, units)

    def _pool(self, said: dict[str, Any]) -> MaxPool:
        sizes = {*said["kernel_shape"], *said.get("strides", [1])}
        if len(sizes) != 1 or any(said.get("pads", [0])) or said.get("ceil_mode", 0):
            raise self._unfit("a pool whose windows overlap or are padded")
        return MaxPool(self._name("pool"), sizes.pop())

    def _array(self, name: str) -> NDArray[Any]:
        if name not in self._arrays:
            raise self._unfit(f"{name!r} is computed, expected constant weights")
        array: NDArray[Any] = self._arrays[name]
        return array

    def _keep(self, layer: str, named: Iterator[tuple[str, str]]) -> None:
        for name, stored in named:
            self.weights[f"{layer}/{name}"] = _float32(self._array(stored))

    def _name(self, kind: str) -> str:
        """Return a name that no other layer has; layers are found from the last to the first."""
        self._count[kind] = self._count.get(kind, 0) + 1
        return f"{kind}{self._count[kind]}"

    def _flattened(self, layers: list[Layer]) -> None:
        """Put the rows of the kernels behind a flatten into the canonical order."""
        for name, shape in Architecture("", self._shape, tuple(layers)).flattened.items():
            self.weights[f"{name}/kernel"] = _float32(_rows_by_place(self.weights[f"{name}/kernel"], shape))


def _float32(array: NDArray[Any]) -> NDArray[np.float32]:
    return np.ascontiguousarray(array, np.float32)

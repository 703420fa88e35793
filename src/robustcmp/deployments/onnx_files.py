"""ONNX files: the architectures as ONNX networks, and ONNX networks of our layers as weights.

Images are (N, C, H, W) in the files that are written here, as exporters of most frameworks have them, and the initial
values have the canonical names of `robustcmp.networks.architecture`.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import limits
from ..errors import DeploymentError, UsageError
from ..networks.architecture import (
    LAYER_NAME,
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
    check_architecture,
)
from ..networks.weights import Weights, check_finite
from ..untrusted import read_network

OPSET, IR = 17, 8  # old enough for every runtime, new enough for all of our layers
PRODUCER = "robustcmp"
IMAGES, LOGITS = "images", "logits"
MOST_BYTES = 2**31 - 1
"""A protocol buffer has less."""
LOCATION = b"location"
"""What stands in every network that keeps values in other files."""
ONE_FILE = "Or export one file, torch.onnx.export(..., external_data=False)."
MOST_NODES = 10_000
"""The operators of a network that is read: VGG-16 has 55."""
SPATIAL = ({2, 3}, {-1, -2}, {2, -1}, {-2, 3})
"""How the axes H and W of (N, C, H, W) are given."""
MEANS = {"GlobalAveragePool", "ReduceMean"}
RESHAPES = {"Flatten", "Reshape", "Squeeze"}
LAYERS = {
    "Conv": "conv",
    "Gemm": "dense",
    "MatMul": "dense",
    "BatchNormalization": "norm",
    "Relu": "relu",
    "MaxPool": "pool",
    **dict.fromkeys(sorted(MEANS), "pool"),
    **dict.fromkeys(sorted(RESHAPES), "flatten"),
    "Add": "block",
}
"""The operators that are layers, and how those are counted that have no name."""


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
    model = onnx.helper.make_model(graph, producer_name=PRODUCER, opset_imports=opsets, ir_version=IR)
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


def external_files(path: Path) -> list[Path]:
    """Return the files that hold values of an ONNX network, as ``torch.onnx.export`` writes them beside its own."""
    content = read_network(path, MOST_BYTES)
    if LOCATION not in content:
        return []
    with _onnx_errors(path):
        outside = _external_arrays(onnx_package().load_model_from_string(content), path)
    return [*dict.fromkeys(file for _, file in outside)]


def read_whole(path: Path) -> bytes:
    """Return an ONNX network as the bytes of one file, with the values that lie in files beside its own."""
    content = read_network(path, MOST_BYTES)
    if LOCATION not in content:
        return content
    with _onnx_errors(path):
        model = onnx_package().load_model_from_string(content)
        outside = _external_arrays(model, path)
        values = {file: read_network(file, MOST_BYTES) for file in {file for _, file in outside}}
        size = len(content)
        for array, file in outside:
            about = {entry.key: entry.value for entry in array.external_data}
            start = int(about.get("offset", 0))
            length = int(about.get("length", len(values[file]) - start))
            if min(start, length) < 0 or start + length > len(values[file]):
                raise DeploymentError(
                    f"{file} has {len(values[file]):,} bytes, but {path} has {length:,} of {array.name!r} at {start:,} "
                    "there. Export both again, or copy both again."
                )
            size += length
            if size > MOST_BYTES:
                raise DeploymentError(
                    f"{path} has {size:,} bytes or more with its values; expected at most {MOST_BYTES:,}"
                )
            array.raw_data = values[file][start : start + length]
            array.ClearField("external_data")
            array.ClearField("data_location")
        one_file: bytes = model.SerializeToString()
    return one_file


def parse_onnx(content: bytes, path: Path) -> Any:
    """Return an ONNX network from the bytes of one file, or raise `DeploymentError`."""
    onnx = onnx_package()
    with _onnx_errors(path):
        model = onnx.load_model_from_string(content)
        onnx.checker.check_model(model)
    return model


@contextmanager
def _onnx_errors(path: Path) -> Iterator[None]:
    """Raise `DeploymentError` for whatever a broken file makes onnx raise."""
    try:
        yield
    except DeploymentError:
        raise
    except Exception as error:
        reason = " ".join(str(error).split())[:200]
        raise DeploymentError(
            f"{path} is not an ONNX network ({type(error).__name__}: {reason}). Export it again, or copy it again."
        ) from None


def _external_arrays(model: Any, path: Path) -> list[tuple[Any, Path]]:
    """Return the arrays whose values lie in other files of the network's folder, with these files."""
    pairs = []
    for array in _messages(model):
        if not isinstance(array, onnx_package().TensorProto) or not (array.external_data or array.data_location):
            continue
        name = next((entry.value for entry in array.external_data if entry.key.encode() == LOCATION), "")
        file = path.parent / name
        if file.resolve().parent != path.resolve().parent:
            raise DeploymentError(
                f"{path} keeps {array.name!r} in {name!r}; only files of its own folder that are no links are read. "
                f"{ONE_FILE}"
            )
        if not file.is_file():
            raise DeploymentError(f"{path} keeps {array.name!r} in {file}, which is not there: copy it. {ONE_FILE}")
        pairs.append((array, file))
    return pairs


def with_channels(model: Any, content: bytes) -> bytes:
    """Return the bytes of a network that says how many channels its images have, where the first convolution tells it.

    Convolutions of ONNX take their channels first. A file whose sizes are all open does not say so otherwise.
    """
    weights = {array.name: array.dims for array in model.graph.initializer}
    images = [value for value in model.graph.input if value.name not in weights]
    sizes = images[0].type.tensor_type.shape.dim if len(images) == 1 else []
    if len(sizes) != 4 or any(size.dim_value for size in sizes[1:]):
        return content
    first = next((node for node in model.graph.node if images[0].name in node.input), None)
    if first is None or first.op_type != "Conv" or len(weights.get(first.input[1], ())) != 4:
        return content
    groups = next((attribute.i for attribute in first.attribute if attribute.name == "group"), 1)
    sizes[1].dim_value = weights[first.input[1]][1] * groups
    changed: bytes = model.SerializeToString()
    return changed


def read_levels(model: Any) -> tuple[float, float] | None:
    """Return the smallest and the largest value that a quantised input can store, None where the input is of floats."""
    arrays = {array.name: array for array in model.graph.initializer}
    arrays |= {node.output[0]: node.attribute[0].t for node in model.graph.node if node.op_type == "Constant"}
    images = {value.name for value in model.graph.input} - arrays.keys()
    for node in model.graph.node:
        if node.op_type == "QuantizeLinear" and node.input[0] in images and len(arrays.keys() & {*node.input[1:]}) == 2:
            scale, zero = (onnx_package().numpy_helper.to_array(arrays[name]) for name in node.input[1:])
            stored = np.iinfo(zero.dtype)
            return float(scale * (stored.min - float(zero))), float(scale * (stored.max - float(zero)))
    return None


def _messages(message: Any) -> Iterator[Any]:
    """Yield the parts of a protocol buffer, at every depth: graphs, functions, nodes, attributes, arrays."""
    for field, value in message.ListFields():
        if field.message_type is not None:
            for part in [value] if hasattr(value, "ListFields") else value:
                yield part
                yield from _messages(part)


def read_onnx(path: Path) -> tuple[Architecture, Weights]:
    """Return an ONNX network of our layers as a design and weights in the canonical layout.

    It has to be a chain of `Conv`, `BatchNormalization`, `Relu`, `MaxPool`, `GlobalAveragePool` or `ReduceMean`,
    `Flatten` or `Reshape`, and `Gemm` or `MatMul` with `Add`, with sums of two branches as in residual networks, for
    images (N, C, H, W). Pads are the same on every side. A layer is called as its weights or its node, ``NAME/kernel``
    or ``NAME.weight``, where that is a valid name which no other layer has. The others are counted: ``conv1``,
    ``conv2``.

    Raises
    ------
    DeploymentError
        The file is broken, or has something else.
    WeightsError
        A weight is not finite.
    """
    model = parse_onnx(read_whole(path), path)
    try:
        reader = _Reader(model, path)
        architecture = reader.architecture(model.graph.name if model.producer_name == PRODUCER else path.stem)
        for name, shape in architecture.weight_shapes.items():
            if reader.weights[name].shape != shape:
                raise _unfit(path, f"its {name} should be {shape}, received {reader.weights[name].shape}")
    except DeploymentError:
        raise
    except UsageError as error:
        raise _unfit(path, str(error)) from None
    except Exception as error:  # attributes and arrays may have any type and any size
        raise _unfit(path, f"it is broken ({type(error).__name__}: {' '.join(str(error).split())[:200]})") from None
    check_finite(reader.weights, str(path))
    return architecture, {name: reader.weights[name] for name in architecture.weight_shapes}


def _unfit(path: Path, why: str) -> DeploymentError:
    return DeploymentError(
        f"{path} cannot be rebuilt from robustcmp's layers: {why.rstrip('.')}. ONNX Runtime can run the file as it is: "
        f"onnxruntime={path}"
    )


class _Reader:
    """An ONNX graph as a chain of layers.

    The nodes of a graph are ordered: what a node takes was made before it. So one walk from the first node to the last
    finds where every value comes from.
    """

    def __init__(self, model: Any, path: Path):
        onnx = onnx_package()
        self._path = path
        self._get = onnx.helper.get_attribute_value
        graph = model.graph
        self._arrays = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in graph.initializer}
        for node in graph.node:
            if node.op_type == "Constant" and node.attribute and node.attribute[0].name == "value":
                self._arrays[node.output[0]] = onnx.numpy_helper.to_array(node.attribute[0].t)
        nodes = [node for node in graph.node if node.op_type != "Constant"]
        inputs = [value for value in graph.input if value.name not in self._arrays]
        if len(inputs) != 1 or len(graph.output) != 1:
            raise self._unfit(f"it has {len(inputs)} inputs and {len(graph.output)} outputs, expected one of each")
        if len(nodes) > MOST_NODES:
            raise self._unfit(f"it has {len(nodes):,} operators, expected at most {MOST_NODES:,}")
        self._input, self._output = inputs[0].name, graph.output[0].name
        sizes = [size.dim_value for size in inputs[0].type.tensor_type.shape.dim]
        if len(sizes) != 4 or min(sizes[1:]) < 1:
            shown = ", ".join(str(size or "?") for size in sizes)
            raise self._unfit(f"its input has the shape ({shown}), expected (N, C, H, W)")
        self._shape = (sizes[2], sizes[3], sizes[1])
        self.weights: Weights = {}
        self._made = {output: node for node in nodes for output in node.output}
        self._place = {output: index for index, node in enumerate(nodes) for output in node.output}
        self._before: dict[str, str] = {}
        for node in nodes:
            self._trace(node)
        self._names = self._name_layers([node for node in nodes if node.op_type in LAYERS and not self._is_part(node)])
        self._seen: set[str] = set()

    def architecture(self, name: str) -> Architecture:
        """Return the design; the weights are there afterwards."""
        architecture = Architecture(name, self._shape, tuple(self._chain(self._output, self._input)))
        check_architecture(architecture)
        for dense, shape in architecture.flattened.items():
            kernel = self.weights[f"{dense}/kernel"]
            if len(kernel) == math.prod(shape):  # if not, the shapes are compared later
                self.weights[f"{dense}/kernel"] = np.ascontiguousarray(_rows_by_place(kernel, shape))
        return architecture

    def _unfit(self, why: str) -> DeploymentError:
        return _unfit(self._path, why)

    # the way through the graph ---------------------------------------------------------------------------------------

    def _inputs(self, node: Any) -> list[str]:
        """Return what goes into a node and was computed."""
        return [value for value in node.input if value and value not in self._arrays]

    def _trace(self, node: Any) -> None:
        """Note from which value the output of a node comes; of a sum, the one from which both terms come."""
        fed = self._inputs(node)
        if not fed:
            return
        before = fed[0]
        if node.op_type == "Add":
            before = self._fork(*fed) if len(fed) == 2 else self._before.get(fed[0], fed[0])
        self._before[node.output[0]] = before

    def _fork(self, left: str, right: str) -> str:
        """Return the nearest value from which two values come."""
        while left != right:
            if self._place.get(left, -1) < self._place.get(right, -1):
                left, right = right, left
            left = self._step(left)
        return left

    def _step(self, value: str) -> str:
        if value not in self._before:
            raise self._unfit(f"{value!r} does not come from the images")
        return self._before[value]

    def _chain(self, value: str, until: str, depth: int = 0) -> list[Layer]:
        """Return the layers from one value to another."""
        if depth > limits.FILE_LEVELS:
            raise self._unfit(f"its sums are nested more than {limits.FILE_LEVELS} deep")
        layers: list[Layer] = []
        while value != until:
            before = self._step(value)
            if value in self._seen:
                raise self._unfit(f"what its {self._made[value].op_type} {value!r} returns is used twice")
            self._seen.add(value)
            if layer := self._layer(self._made[value], depth):
                layers.append(layer)
            value = before
        return layers[::-1]

    # names -----------------------------------------------------------------------------------------------------------

    def _is_part(self, node: Any) -> bool:
        """Say whether a node belongs to the layer before it: a bias, or what drops the sides of length 1 of a mean."""
        if node.op_type == "Add":
            return len(self._inputs(node)) < 2
        maker = self._made.get(node.input[0])
        return node.op_type in RESHAPES and maker is not None and maker.op_type in MEANS

    def _name_layers(self, nodes: list[Any]) -> dict[str, str]:
        """Return the names of the layers, by the outputs of their nodes."""
        wanted = {node.output[0]: self._find_name(node) for node in nodes}
        times = Counter(wanted.values())
        unique = {name for name in times if name and times[name] == 1}
        counts: Counter[str] = Counter()
        names = {}
        for node in nodes:
            name, kind = wanted[node.output[0]], LAYERS[node.op_type]
            counted = name not in unique
            while counted:
                counts[kind] += 1
                name = f"{kind}{counts[kind]}"
                counted = name in unique
            names[node.output[0]] = name
        return names

    def _find_name(self, node: Any) -> str:
        """Return what a file calls a layer, "" where that is no name for one."""
        weights = [name for name in node.input if name in self._arrays]
        name = weights[0] if weights and node.op_type not in RESHAPES | MEANS else node.name
        match = re.fullmatch(rf"({LAYER_NAME})[/.]\w+", name)
        return match[1] if match else ""

    # layers ----------------------------------------------------------------------------------------------------------

    def _layer(self, node: Any, depth: int) -> Layer | None:
        """Return the layer of a node, None if it does nothing of its own."""
        kind = node.op_type
        if node.domain not in ("", "ai.onnx"):
            raise self._unfit(f"it has the operator {node.domain}.{kind}")
        options = {attribute.name: self._get(attribute) for attribute in node.attribute}
        name = self._names.get(node.output[0], "")
        match kind:
            case "Conv":
                return self._conv(node, name, options)
            case "Gemm" if options.get("alpha", 1) == options.get("beta", 1) == 1 and not options.get("transA", 0):
                return self._dense(node, name, options.get("transB", 0), self._array(node, 2))
            case "MatMul":
                return self._dense(node, name, False, None)
            case "Add" if len(self._inputs(node)) == 2:
                branches = [tuple(self._chain(value, self._before[node.output[0]], depth + 1)) for value in node.input]
                inner, shortcut = branches if branches[0] else branches[::-1]
                return Residual(name, inner, shortcut)
            case "Add":
                return self._sum_with_bias(node)
            case "BatchNormalization":
                return self._norm(node, name, options)
            case "Relu":
                return Relu(name)
            case "MaxPool":
                return self._pool(node, name, options)
            case "GlobalAveragePool":
                return GlobalAveragePool(name)
            case "ReduceMean" if self._axes(node, options) in SPATIAL:
                return GlobalAveragePool(name)
            case "Flatten" | "Reshape" | "Squeeze" if self._is_flat(node, options):
                return None if self._is_part(node) else Flatten(name)
            case "Identity":
                return None
            case "Dropout" if len(node.input) < 3:
                return None
        raise self._unfit(f"it has the operator {kind}{' with these options' if kind in (*LAYERS, 'Dropout') else ''}")

    def _axes(self, node: Any, options: dict[str, Any]) -> set[int]:
        """Return the axes that a node works on."""
        array = self._array(node, 1)
        return {int(axis) for axis in (options.get("axes", ()) if array is None else array)}

    def _is_flat(self, node: Any, options: dict[str, Any]) -> bool:
        """Say whether a node returns one row an image."""
        if node.op_type == "Flatten":
            return bool(options.get("axis", 1) == 1)
        if node.op_type == "Squeeze":
            return self._is_part(node) and self._axes(node, options) in SPATIAL
        shape = self._array(node, 1)
        return shape is not None and shape.shape == (2,)

    def _conv(self, node: Any, name: str, options: dict[str, Any]) -> Conv:
        kernel = self._weights(node, 1)
        pads, strides = {*options.get("pads", [0])}, {*options.get("strides", [1])}
        plain = options.get("group", 1) == 1 and {*options.get("dilations", [1])} == {1}
        is_explicit = options.get("auto_pad", b"NOTSET") == b"NOTSET" and len(pads) == 1
        if not (
            plain and is_explicit and len(strides) == 1 and kernel.ndim == 4 and kernel.shape[2] == kernel.shape[3]
        ):
            raise self._unfit(f"its Conv {name} is grouped, dilated, not square, or not padded alike on every side")
        self.weights[f"{name}/kernel"] = np.ascontiguousarray(kernel.transpose(2, 3, 1, 0))
        self.weights[f"{name}/bias"] = self._bias(self._array(node, 2), len(kernel))
        return Conv(name, len(kernel), kernel.shape[2], strides.pop(), pads.pop())

    def _dense(self, node: Any, name: str, transposed: bool, bias: NDArray[Any] | None) -> Dense:
        kernel = self._weights(node, 1)
        if kernel.ndim != 2:
            raise self._unfit(f"its {node.op_type} {name} multiplies with an array of the shape {kernel.shape}")
        kernel = np.ascontiguousarray(kernel.T if transposed else kernel)
        self.weights[f"{name}/kernel"], self.weights[f"{name}/bias"] = kernel, self._bias(bias, kernel.shape[1])
        return Dense(name, kernel.shape[1])

    def _sum_with_bias(self, node: Any) -> Dense:
        product = self._made.get(self._inputs(node)[0])
        if product is None or product.op_type != "MatMul":
            raise self._unfit("it has the operator Add with constant values, other than the bias of a MatMul")
        bias = next(self._arrays[name] for name in node.input if name in self._arrays)
        return self._dense(product, self._names[product.output[0]], False, bias)

    def _norm(self, node: Any, name: str, options: dict[str, Any]) -> BatchNorm:
        epsilon = options.get("epsilon", 1e-5)
        if abs(epsilon - BatchNorm.epsilon) > 1e-9 or options.get("training_mode", 0):
            raise self._unfit(f"its BatchNormalization {name} has epsilon {epsilon:g}, expected {BatchNorm.epsilon:g}")
        for index, weight in enumerate(("gamma", "beta", "mean", "variance"), 1):
            self.weights[f"{name}/{weight}"] = self._weights(node, index)
        return BatchNorm(name)

    def _pool(self, node: Any, name: str, options: dict[str, Any]) -> MaxPool:
        sizes = {*options["kernel_shape"], *options.get("strides", [1])}
        plain = options.get("auto_pad", b"NOTSET") in (b"NOTSET", b"VALID") and {*options.get("dilations", [1])} == {1}
        if len(sizes) != 1 or any(options.get("pads", [0])) or options.get("ceil_mode", 0) or not plain:
            raise self._unfit(f"its MaxPool {name} has windows that overlap, are dilated or are padded")
        return MaxPool(name, sizes.pop())

    # arrays ----------------------------------------------------------------------------------------------------------

    def _array(self, node: Any, index: int) -> NDArray[Any] | None:
        """Return a constant that goes into a node, None where there is no such input."""
        name = node.input[index] if index < len(node.input) else ""
        if not name:
            return None
        if name not in self._arrays:
            raise self._unfit(f"its {node.op_type} takes {name!r}, which is computed and no constant")
        array: NDArray[Any] = self._arrays[name]
        return array

    def _weights(self, node: Any, index: int) -> NDArray[np.float32]:
        array = self._array(node, index)
        if array is None:
            raise self._unfit(f"its {node.op_type} lacks weights")
        return self._float32(array)

    def _bias(self, array: NDArray[Any] | None, units: int) -> NDArray[np.float32]:
        if array is None:
            return np.zeros(units, np.float32)
        flat = self._float32(array).reshape(-1)
        return np.repeat(flat, units) if len(flat) == 1 else flat

    def _float32(self, array: NDArray[Any]) -> NDArray[np.float32]:
        if array.dtype not in (np.float16, np.float32):
            raise self._unfit(f"it has weights in {array.dtype}, expected float32")
        return np.ascontiguousarray(array, np.float32)

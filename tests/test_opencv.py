"""Files of Caffe and Torch7 in OpenCV. No maintained package writes them, so they are written here, byte by byte."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import deployed
import numpy as np
import pytest
from numpy.typing import NDArray

import robustcmp as rc
from robustcmp.data.dataset import Dataset
from robustcmp.deployments import runtime
from robustcmp.errors import DeploymentError
from robustcmp.models.classifier import Classifier
from robustcmp.models.model import Model
from robustcmp.networks.architecture import Conv, Dense, Flatten, MaxPool, Relu

pytestmark = pytest.mark.skipif(bool(runtime("opencv").explain_absence()), reason="OpenCV is not installed")


@pytest.fixture(scope="module")
def source() -> Model:
    return rc.load_model("lenet5", framework="torch", dataset="digits")


def arrays_of(source: Model, layer: Conv | Dense) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return a layer's kernel and bias in the layout of Caffe and Torch7."""
    assert source.architecture is not None
    assert source.weights is not None
    kernel = source.weights[f"{layer.name}/kernel"]
    if layer.name in source.architecture.flat_shapes:
        image = kernel.reshape(*source.architecture.flat_shapes[layer.name], -1)
        kernel = image.transpose(2, 0, 1, 3).reshape(kernel.shape)
    return kernel.transpose(3, 2, 0, 1) if kernel.ndim == 4 else kernel.T, source.weights[f"{layer.name}/bias"]


# Caffe: a protocol buffer beside its text ----------------------------------------------------------------------------


def varint(number: int) -> bytes:
    return bytes([number]) if number < 128 else bytes([number & 127 | 128]) + varint(number >> 7)


def field(number: int, content: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(content)) + content


def write_caffe(source: Model, path: Path) -> None:
    assert source.architecture is not None
    text = ['layer { name: "data" type: "Input" top: "data" input_param { shape: { dim: 1 dim: 1 dim: 28 dim: 28 } } }']
    content = b""
    bottom = "data"
    for layer in source.architecture.layers:
        match layer:
            case Conv():
                kind = "Convolution"
                options = f"convolution_param {{ num_output: {layer.channels} kernel_size: {layer.kernel} }}"
            case Dense():
                kind, options = "InnerProduct", f"inner_product_param {{ num_output: {layer.units} }}"
            case MaxPool():
                kind, options = "Pooling", "pooling_param { pool: MAX kernel_size: 2 stride: 2 }"
            case _:
                kind, options = {Relu: "ReLU", Flatten: "Flatten"}[type(layer)], ""
        text.append(f'layer {{ name: "{layer.name}" type: "{kind}" bottom: "{bottom}" top: "{layer.name}" {options} }}')
        bottom = layer.name
        if isinstance(layer, Conv | Dense):
            blobs = [
                field(7, field(1, b"".join(map(varint, array.shape)))) + field(5, array.astype("<f4").tobytes())
                for array in arrays_of(source, layer)
            ]
            parts = [field(1, layer.name.encode()), field(2, kind.encode()), *(field(7, blob) for blob in blobs)]
            content += field(100, b"".join(parts))
    path.with_suffix(".prototxt").write_text("\n".join(text))
    path.write_bytes(content)


# Torch7: objects of Lua, each with a number --------------------------------------------------------------------------


class Torch7Writer:
    def __init__(self) -> None:
        self.content = b""
        self.objects = 0

    def write(self, value: Any) -> None:
        match value:
            case str():
                self.pack("<i", 2)
                self.text(value)
            case int():
                self.pack("<id", 1, value)
            case dict():
                self.number(3)
                self.pack("<i", len(value))
                for key, item in value.items():
                    self.write(key)
                    self.write(item)
            case (kind, items):
                self.begin(kind)
                self.write(items)
            case [*sizes]:
                self.begin("torch.LongStorage")
                self.pack(f"<{1 + len(sizes)}q", len(sizes), *sizes)
            case np.ndarray():
                array = np.ascontiguousarray(value, "<f4")
                strides = [stride // 4 for stride in array.strides]
                self.begin("torch.FloatTensor")
                self.pack(f"<i{1 + 2 * array.ndim}q", array.ndim, *array.shape, *strides, 1)
                self.begin("torch.FloatStorage")
                self.pack("<q", array.size)
                self.content += array.tobytes()

    def pack(self, form: str, *numbers: float) -> None:
        self.content += struct.pack(form, *numbers)

    def number(self, kind: int) -> None:
        self.objects += 1
        self.pack("<ii", kind, self.objects)

    def text(self, text: str) -> None:
        self.pack("<i", len(text))
        self.content += text.encode()

    def begin(self, kind: str) -> None:
        self.number(4)
        self.text("V 1")
        self.text(kind)


def write_torch7(source: Model, path: Path) -> None:
    assert source.architecture is not None
    modules: list[tuple[str, dict[str, Any]]] = []
    for layer in source.architecture.layers:
        match layer:
            case Conv():
                kernel, bias = arrays_of(source, layer)
                sizes = {"nInputPlane": kernel.shape[1], "nOutputPlane": kernel.shape[0]}
                window = {"kW": layer.kernel, "kH": layer.kernel, "dW": 1, "dH": 1, "padW": 0, "padH": 0}
                modules.append(("nn.SpatialConvolution", {**sizes, **window, "weight": kernel, "bias": bias}))
            case Dense():
                kernel, bias = arrays_of(source, layer)
                modules.append(("nn.Linear", {"weight": kernel, "bias": bias}))
            case MaxPool():
                modules.append(
                    ("nn.SpatialMaxPooling", {"kW": 2, "kH": 2, "dW": 2, "dH": 2, "padW": 0, "padH": 0, "ceil_mode": 0})
                )
            case Flatten():
                modules.append(("nn.Reshape", {"size": [256], "nelement": 256}))
            case _:
                modules.append(("nn.ReLU", {}))
    writer = Torch7Writer()
    writer.write(("nn.Sequential", {"modules": dict(enumerate(modules, 1))}))
    path.write_bytes(writer.content)


@pytest.mark.parametrize("network", deployed.SLOW_SOURCES, ids=str)
def test_a_conversion_answers_as_its_source(network: deployed.Source, tmp_path: Path) -> None:
    model, images = deployed.asked(network)
    session = deployed.converted(runtime("opencv"), model, "", None, tmp_path)
    deployed.check_agreement(model, session, images)
    deployed.check_independence(session, images)
    deployed.check_threads(session, images)


FORMATS = {".caffemodel": write_caffe, ".t7": write_torch7}


@pytest.mark.parametrize("suffix", FORMATS)
def test_a_file_answers_as_its_network(suffix: str, source: Model, digits: Dataset, tmp_path: Path) -> None:
    path = tmp_path / f"lenet5{suffix}"
    FORMATS[suffix](source, path)
    opened = rc.open_deployed(path, "opencv")
    np.testing.assert_allclose(
        Classifier(opened).logits(digits.images[:50]), Classifier(source).logits(digits.images[:50]), atol=1e-4
    )
    with pytest.raises(DeploymentError, match="30, 30, 1"):
        opened(np.zeros((2, 30, 30, 1), np.float32))


@pytest.mark.parametrize("suffix", FORMATS)
def test_a_file_that_is_cut_is_one_line(suffix: str, source: Model, tmp_path: Path) -> None:
    path = tmp_path / f"lenet5{suffix}"
    FORMATS[suffix](source, path)
    path.write_bytes(path.read_bytes()[:-3000])
    with pytest.raises(DeploymentError, match=r"lenet5\S* cannot be opened: OpenCV cannot open it: ") as raised:
        rc.open_deployed(path, "opencv")
    assert "\n" not in str(raised.value)


def test_the_text_of_a_network_says_its_input(source: Model, tmp_path: Path) -> None:
    path = tmp_path / "lenet5.caffemodel"
    write_caffe(source, path)
    path.with_suffix(".prototxt").write_text('layer { name: "data" type: "Data" top: "data" }')
    with pytest.raises(DeploymentError, match="does not say the sizes of its input"):
        rc.open_deployed(path, "opencv")
    path.with_suffix(".prototxt").unlink()
    with pytest.raises(DeploymentError, match=r"lenet5\.prototxt, which does not exist"):
        rc.open_deployed(path, "opencv")

"""OpenVINO: an .xml file with the network and a .bin file beside it with its weights."""

from __future__ import annotations

import logging
import sys
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from ..errors import DeploymentError
from ..frameworks.base import DataFormat
from ..models.model import Model
from ..provenance import package_version
from ..threads import cores
from ..untrusted import check_answers, read_network
from .base import Conversion, Runtime, first_line
from .layouts import read_layout
from .sessions import BatchSession, Session
from .silence import silence
from .torch_network import TRACING, build_torch_network, export_program

MOST_BYTES = 2**31 - 1
LENGTH = 8  # bytes, of the number that says where the .bin file begins behind the .xml file
DTYPES = {"f32": "float32", "f16": "float16", "f64": "float64"}


class _OpenVINO(Runtime):
    name = "openvino"
    package = "openvino"
    extra = "openvino"
    suffix = ".xml"
    converters = ("nncf", "torch")
    conversions = {
        "": Conversion("float32", "as it is"),
        "int8": Conversion(
            "int8",
            "weights in int8, a scale a channel; activations in int8, by minima and maxima; biases corrected (NNCF)",
            calibrated=True,
        ),
    }

    def beside(self, path: Path) -> list[Path]:
        return [path.with_suffix(".bin")]

    def convert(self, model: Model, kind: str, calibration: NDArray[np.float32] | None, path: Path) -> None:
        ov = _openvino()
        network = build_torch_network(model, self.name, calibration)
        program = export_program(network, self.name)
        height, width, channels = network.shape
        try:
            with TRACING, silence():
                converted = ov.convert_model(program)
                converted.reshape([-1, channels, height, width])
                converted.inputs[0].get_node().set_layout(ov.Layout("NCHW"))
                if kind == "int8":
                    assert calibration is not None
                    converted = _quantise(converted, calibration)
                _name_by_position(converted)
                ov.save_model(converted, path, compress_to_fp16=False)
        except DeploymentError:
            raise
        except Exception as error:  # RuntimeErrors of many kinds
            raise DeploymentError(f"OpenVINO cannot convert this network: {first_line(error)}") from None

    def open(self, path: Path) -> Session:
        content = read_network(path, MOST_BYTES)
        weights = path.with_suffix(".bin")
        if not weights.is_file():
            raise DeploymentError(f"the weights of {path} are missing: expected the file {weights} beside it")
        values = read_network(weights, MOST_BYTES) if weights.stat().st_size else b""  # of a network without weights
        check_answers(path, len(content).to_bytes(LENGTH, "little") + content + values, try_file, "OpenVINO")
        core = _core()
        try:
            network = core.read_model(content, values)
        except Exception as error:
            raise DeploymentError(
                f"{path} is no network of OpenVINO, or it or its .bin file is cut: {first_line(error)}"
            ) from None
        shape, layout, notes = _check(path, network)
        options = {
            "INFERENCE_PRECISION_HINT": "f32",  # not the bfloat16 or float16 that some processors are faster with
            "EXECUTION_MODE_HINT": "ACCURACY",
            "PERFORMANCE_HINT": "LATENCY",
            "INFERENCE_NUM_THREADS": cores(),
        }
        try:
            request = core.compile_model(network, "CPU", options).create_infer_request()
            dtype = DTYPES[network.inputs[0].get_element_type().get_type_name()]

            def ask(images: NDArray[np.float32]) -> Any:
                (logits,) = request.infer([images.astype(dtype, copy=False)], share_inputs=True).values()
                return logits

            return BatchSession(str(path), ask, shape, layout, notes)
        except DeploymentError:
            raise
        except Exception as error:
            raise DeploymentError(f"OpenVINO cannot run {path}: {first_line(error)}") from None


def try_file(content: bytes) -> None:
    """Ask a network with an image of ones, or with as many as it takes, in a process of its own.

    The content is the .xml and the .bin file, one after the other, with the length of the first in eight bytes before.
    """
    import sys

    sys.modules.setdefault("openvino_telemetry", None)  # type: ignore[arg-type]  # as below
    import numpy as np
    import openvino

    end = 8 + int.from_bytes(content[:8], "little")
    core = openvino.Core()
    try:
        network = core.read_model(content[8:end], content[end:])
    except Exception as error:
        raise ValueError(f"it is no network of OpenVINO, or it or its .bin file is cut: {error}") from None
    request = core.compile_model(network, "CPU", {"INFERENCE_NUM_THREADS": 1}).create_infer_request()
    images = {}
    for number, port in enumerate(network.inputs):
        sizes = [1 if size.is_dynamic else size.get_length() for size in port.partial_shape]
        images[number] = np.ones(sizes, port.get_element_type().to_dtype())
    request.infer(images)


def _openvino() -> ModuleType:
    """Return the package. It would report to its maker that it is imported and what it converts: not from here.

    Where a program has imported it before, it reports already.
    """
    sys.modules.setdefault("openvino_telemetry", None)  # type: ignore[arg-type]
    try:
        import openvino
    except ImportError as error:
        raise DeploymentError(f"openvino cannot be imported: {first_line(error)}") from None
    return cast(ModuleType, openvino)


@cache
def _core() -> Any:
    """Return what reads and runs networks: one for all, which lives as long as the process.

    The first network that runs in a core gives this thread another stack for signal handlers (OpenVINO 2026.4), and the
    core's end frees it. Where two cores do, the end of the second brings back the freed stack of the first: the next
    Ctrl-C would be a segmentation fault.
    """
    core = _openvino().Core()
    core.set_property({"ENABLE_MMAP": False})  # a file may change while it is used
    return core


def _quantise(network: Any, calibration: NDArray[np.float32]) -> Any:
    """Return a network of OpenVINO in int8, with ranges of activations by images."""
    if package_version("nncf") is None:
        raise DeploymentError("openvino-int8 needs nncf, which is not installed: pip install 'robustcmp[openvino]'")
    import nncf

    logging.getLogger("nncf").setLevel(logging.ERROR)
    images = np.ascontiguousarray(calibration.transpose(0, 3, 1, 2), np.float32)
    return nncf.quantize(network, nncf.Dataset([image[None] for image in images]), subset_size=len(images))


def _check(path: Path, network: Any) -> tuple[tuple[int, int, int], DataFormat, list[str]]:
    """Return (H, W, C), the layout and notes of a network that was read; its batch is made free."""
    if len(network.inputs) != 1 or len(network.outputs) != 1:
        raise DeploymentError(
            f"{path} has {len(network.inputs)} inputs and {len(network.outputs)} outputs, expected one of each: "
            "images and logits"
        )
    images = network.inputs[0]
    dimensions = images.partial_shape if images.partial_shape.rank.is_static else ()
    sizes = [None if size.is_dynamic else size.get_length() for size in dimensions]
    order = str(images.get_node().get_layout().to_string()).upper().strip("[]").replace(",", "")
    layouts: dict[str, DataFormat] = {"NCHW": "channels_first", "NHWC": "channels_last"}
    if order.isalpha() and order not in layouts:
        raise DeploymentError(f"{path} takes images in the layout {order}, expected NCHW or NHWC: convert it with one")
    shape, layout = read_layout(str(path), sizes, layouts.get(order))
    types = [port.get_element_type().get_type_name() for port in (images, network.outputs[0])]
    if any(kind not in DTYPES for kind in types):
        raise DeploymentError(
            f"{path} takes numbers of the type {types[0]} and gives {types[1]}, expected floating point: images "
            "within the network's bounds, and logits"
        )
    try:
        network.reshape([-1, *sizes[1:]])
        answer = network.outputs[0].partial_shape
        free = answer.rank.is_static and len(answer) == 2 and answer[0].is_dynamic
    except Exception:
        free = False
    if not free:
        raise DeploymentError(
            f"{path} should answer a batch of any size with a row of logits an image, and gives "
            f"{network.outputs[0].partial_shape}. Convert it with a batch axis that is not fixed"
        )
    notes = []
    if layout == "channels_first":
        notes.append("images are given as (N, C, H, W)")
    if types != ["f32", "f32"]:
        notes.append(f"images are given as {DTYPES[types[0]]}, logits come as {DTYPES[types[1]]}")
    return shape, layout, notes


def _name_by_position(network: Any) -> None:
    """Name all operations by their places: OpenVINO counts what it has made in this process, and keeps the count."""
    network.set_friendly_name("network")
    for index, operation in enumerate(network.get_ordered_ops()):
        operation.set_friendly_name(f"{operation.get_type_name()}_{index}")


RUNTIME = _OpenVINO()

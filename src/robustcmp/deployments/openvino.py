"""OpenVINO: an .xml file with the network and a .bin file beside it with its weights."""

from __future__ import annotations

import logging
import sys
import threading
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from ..data.arrays import Images
from ..errors import DeploymentError
from ..frameworks.base import pad, round_up
from ..models.model import Model
from ..provenance import package_version
from ..threads import cores
from ..untrusted import read_network
from .base import Conversion, Runtime, deployment_errors
from .sessions import Layout, Session, Tensor, choose_tensors
from .silence import silence
from .torch_network import TRACING, build_torch_network, export_program

DTYPES = {"f32": "float32", "f16": "float16", "f64": "float64"}
SIZES = 16  # of batches between two powers of two: for a new one, it chooses kernels and buffers anew


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

    def convert(self, model: Model, kind: str, calibration: Images | None, path: Path) -> None:
        ov = _openvino()
        network = build_torch_network(model, self.name, calibration)
        program = export_program(network, self.name)
        height, width, channels = network.shape
        with deployment_errors("OpenVINO cannot convert this network"), TRACING, silence():
            converted = ov.convert_model(program)
            converted.reshape([-1, channels, height, width])
            converted.inputs[0].get_node().set_layout(ov.Layout("NCHW"))
            if kind == "int8":
                assert calibration is not None
                converted = _quantise(converted, calibration)
            _name_by_position(converted)
            ov.save_model(converted, path, compress_to_fp16=False)

    def load(self, path: Path) -> Session:
        content = read_network(path)
        weights = path.with_suffix(".bin")
        values = read_network(weights) if weights.stat().st_size else b""  # of a network without weights
        core = _core()
        with deployment_errors(f"{path} is not a network of OpenVINO, or it or its .bin file is incomplete"):
            network = core.read_model(content, values)
        layout, notes = _read_layout(path, network)
        options = {
            "INFERENCE_PRECISION_HINT": "f32",  # not the bfloat16 or float16 that some processors are faster with
            "EXECUTION_MODE_HINT": "ACCURACY",
            "PERFORMANCE_HINT": "LATENCY",
            "INFERENCE_NUM_THREADS": cores(),
        }
        with deployment_errors(f"OpenVINO cannot run {path}"):
            request = core.compile_model(network, "CPU", options).create_infer_request()
        lock = threading.Lock()

        def ask(x: NDArray[Any]) -> Any:
            with deployment_errors(f"{path} failed on {len(x)} images"), lock:
                (logits,) = request.infer([pad(x, round_up(len(x), SIZES))], share_inputs=True).values()
            return logits[: len(x)]

        return Session(layout, ask, notes)


def _openvino() -> ModuleType:
    """Return the package. It would report to its maker that it is imported and what it converts: not from here.

    Where a program has imported it before, it reports already.
    """
    sys.modules.setdefault("openvino_telemetry", None)  # type: ignore[arg-type]
    with deployment_errors("openvino cannot be imported"):
        import openvino
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


def _quantise(network: Any, calibration: Images) -> Any:
    """Return a network of OpenVINO in int8, with ranges of activations by images."""
    if package_version("nncf") is None:
        raise DeploymentError("openvino-int8 needs nncf, which is not installed: pip install 'robustcmp[openvino]'")
    import nncf

    logging.getLogger("nncf").setLevel(logging.ERROR)
    images = np.ascontiguousarray(calibration.transpose(0, 3, 1, 2), np.float32)
    return nncf.quantize(network, nncf.Dataset([image[None] for image in images]), subset_size=len(images))


def _read_layout(path: Path, network: Any) -> tuple[Layout, list[str]]:
    """Return how images become the input of a network that was read, and notes; its batch is made free."""
    taken, _, notes = choose_tensors(str(path), _tensors(network.inputs), _tensors(network.outputs))
    order = str(network.inputs[0].get_node().get_layout().to_string()).upper().strip("[]").replace(",", "")
    if order.isalpha() and order not in ("NCHW", "NHWC"):
        raise DeploymentError(f"{path} takes images in the layout {order}, expected NCHW or NHWC: convert it with one")
    layout = Layout.of([None, *taken.shape[1:]], taken.dtype, str(path), order if order.isalpha() else "")
    with deployment_errors(f"{path} takes a fixed batch. Convert it with a batch axis that is not fixed"):
        network.reshape([-1, *(size or -1 for size in taken.shape[1:])])
    return layout, notes


def _tensors(ports: Any) -> list[Tensor]:
    """Return inputs or outputs as OpenVINO describes them."""
    tensors = []
    for number, port in enumerate(ports):
        dimensions = port.partial_shape if port.partial_shape.rank.is_static else ()
        sizes = [None if size.is_dynamic else size.get_length() for size in dimensions]
        kind = port.get_element_type().get_type_name()
        tensors.append(Tensor(f"number {number}", DTYPES.get(kind, kind), sizes))
    return tensors


def _name_by_position(network: Any) -> None:
    """Name all operations by their places: OpenVINO counts what it has made in this process, and keeps the count."""
    network.set_friendly_name("network")
    for index, operation in enumerate(network.get_ordered_ops()):
        operation.set_friendly_name(f"{operation.get_type_name()}_{index}")


RUNTIME = _OpenVINO()

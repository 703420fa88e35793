"""ONNX Runtime on the processor: `.onnx` files, converted by our own writer or by the framework's exporter."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..data.arrays import Images
from ..models.model import Model
from ..threads import cores
from .base import Conversion, Runtime, deployment_errors
from .onnx_files import OnnxFile, write_float
from .sessions import Layout, Session, choose_tensors
from .silence import silence

PERCENTILE = 99.99
_PERCENTILE = re.compile(r"int8-p(\d{2}(?:\.\d+)?)")
CALIBRATED_AT_ONCE = 128  # images


class _OnnxRuntime(Runtime):
    """ONNX Runtime with its execution provider for the processor."""

    name = "onnxruntime"
    package = "onnxruntime"
    extra = "onnx"
    suffix = ".onnx"
    converters = ("onnx", "onnxscript", "torch")
    conversions = {
        "": Conversion("float32", "the same network as ONNX"),
        "int8": Conversion("int8", f"QDQ, ranges of activations at the {PERCENTILE:g}th percentile", calibrated=True),
        "int8-minmax": Conversion("int8", "QDQ, ranges of activations from smallest to largest", calibrated=True),
        "int8-dynamic": Conversion("int8", "weights int8, activations quantised while it runs"),
    }

    def conversion(self, kind: str) -> Conversion | None:
        match = _PERCENTILE.fullmatch(kind)
        if match and 50 <= float(match[1]) <= 100:
            return Conversion("int8", f"QDQ, ranges of activations at the {match[1]}th percentile", calibrated=True)
        return super().conversion(kind)

    def convert(self, model: Model, kind: str, calibration: Images | None, path: Path) -> None:
        if not kind:
            write_float(model, calibration, path)
            return
        with tempfile.TemporaryDirectory(prefix="robustcmp-") as folder:
            plain = Path(folder) / "float.onnx"
            write_float(model, calibration, plain)
            _quantise(plain, path, kind, calibration)

    def beside(self, path: Path) -> list[Path]:
        return OnnxFile(path).beside

    def load(self, path: Path) -> Session:
        return _Network(OnnxFile(path))


def _quantise(plain: Path, path: Path, kind: str, calibration: Images | None) -> None:
    from onnxruntime import quantization

    with silence():
        if kind == "int8-dynamic":
            quantization.quantize_dynamic(plain, path, weight_type=quantization.QuantType.QInt8)
            return
        assert calibration is not None
        prepared = plain.with_name("prepared.onnx")
        quantization.shape_inference.quant_pre_process(plain, prepared)
        percentile = _PERCENTILE.fullmatch(kind)
        method = quantization.CalibrationMethod.MinMax
        options: dict[str, Any] = {}
        if kind != "int8-minmax":
            method = quantization.CalibrationMethod.Percentile
            options["CalibPercentile"] = float(percentile[1]) if percentile else PERCENTILE
        quantization.quantize_static(
            prepared,
            path,
            _Calibration(plain, calibration),
            quant_format=quantization.QuantFormat.QDQ,
            activation_type=quantization.QuantType.QInt8,
            weight_type=quantization.QuantType.QInt8,
            per_channel=True,
            calibrate_method=method,
            extra_options=options,
        )


class _Calibration:
    """Batches of images, as ONNX Runtime reads them."""

    def __init__(self, plain: Path, images: Images):
        session = _Network(OnnxFile(plain))
        n = len(images)
        size = next(size for size in range(min(n, CALIBRATED_AT_ONCE), 0, -1) if n % size == 0)  # all must be alike
        parts = (images[i : i + size] for i in range(0, n, size))
        self._batches = ({session.input: session.layout.to_input(part)} for part in parts)

    def get_next(self) -> dict[str, Any] | None:
        return next(self._batches, None)


class _Network(Session):
    """A network in ONNX Runtime."""

    def __init__(self, file: OnnxFile):
        import onnxruntime

        self._path = file.path
        content = file.read_whole()
        self.levels = file.read_levels()
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = cores()
        options.inter_op_num_threads = 1
        options.log_severity_level = 4
        # Threads that spin while they wait take a core from other frameworks. On two busy cores, two threads that do
        # not took 0.83 to 0.95 of the CPU time and 0.79 to 0.93 of the wall time (medians of 60 pairs, for LeNet-5 and
        # ResNet-20; most quartiles lie on both sides of 1); in an earlier round of 12 to 20 pairs 0.80 to 1.05 and 0.84
        # to 1.20. Idle cores were not measured.
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        with deployment_errors(f"ONNX Runtime cannot open {self._path}"):
            self._session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
        taken, scores, notes = choose_tensors(str(self._path), *file.read_tensors())
        self.input = taken.name
        self._output = scores.name
        super().__init__(Layout.of(taken.shape, taken.dtype, str(self._path)), self._ask, notes)

    def _ask(self, x: NDArray[Any]) -> NDArray[Any]:
        with deployment_errors(f"{self._path} failed on {len(x)} images"):
            return np.asarray(self._session.run([self._output], {self.input: x})[0])


RUNTIME = _OnnxRuntime()

"""OpenCV's DNN module: ONNX files, and those of Caffe (`.caffemodel` beside `.prototxt`) and of Torch7 (`.t7`)."""

from __future__ import annotations

import re
import threading
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import DeploymentError
from ..models.model import Model
from ..threads import cores
from ..untrusted import read_network
from .base import Conversion, Runtime, deployment_errors
from .onnx_files import OnnxFile, write_float
from .sessions import Layout, Session, choose_tensors

CAFFE, TORCH7 = ".caffemodel", ".t7"
SIZE = re.compile(rb"\b(?:input_)?dim\s*:\s*(\d+)")
SIDES = (28, 32, 64, 96, 112, 128, 224, 227, 231, 256, 299)
"""Of square images that a Torch7 file is tried with, as it does not say which it takes."""


class _OpenCV(Runtime):
    name = "opencv"
    package = "opencv-python-headless"
    extra = "opencv"
    suffix = ".onnx"
    more_suffixes = (CAFFE, TORCH7)
    converters = ("onnx", "onnxscript", "torch")
    conversions = {"": Conversion("float32", "the same network as ONNX")}

    def convert(self, model: Model, kind: str, calibration: NDArray[np.float32] | None, path: Path) -> None:
        write_float(model, calibration, path)

    def beside(self, path: Path) -> list[Path]:
        if path.suffix == CAFFE:
            return [path.with_suffix(".prototxt")]
        return [] if path.suffix == TORCH7 else OnnxFile(path).beside

    def load(self, path: Path) -> Session:
        import cv2

        cv2.setNumThreads(cores())
        if path.suffix != self.suffix and not hasattr(cv2.dnn, "readNetFromCaffe"):
            raise DeploymentError(
                f"OpenCV {cv2.__version__} no longer reads {path.suffix}: pip install 'opencv-python-headless<5'"
            )
        with deployment_errors(f"OpenCV cannot open {path}"):
            if path.suffix == CAFFE:
                return _read_caffe(cv2.dnn, path)
            if path.suffix == TORCH7:
                return _read_torch7(cv2.dnn, path)
            return _read_onnx(cv2.dnn, path)


def _read_onnx(dnn: Any, path: Path) -> Session:
    file = OnnxFile(path)
    taken, scores, notes = choose_tensors(str(path), *file.read_tensors())
    if taken.dtype != "float32":
        raise DeploymentError(f"{path} takes {taken.dtype}; OpenCV gives images as float32: use onnxruntime")
    network = dnn.readNetFromONNX(np.frombuffer(file.read_whole(), np.uint8))
    return Session(Layout.of(taken.shape, taken.dtype, str(path)), _Network(path, network, scores.name), notes)


def _read_caffe(dnn: Any, path: Path) -> Session:
    text = read_network(path.with_suffix(".prototxt"))
    sizes = [int(size) for size in SIZE.findall(text)[:4]]  # the input comes first: N, C, H, W
    if len(sizes) < 4:
        raise DeploymentError(f"{path.with_suffix('.prototxt')} does not say the sizes of its input, with four dim: N")
    weights = np.frombuffer(read_network(path), np.uint8)
    network = dnn.readNetFromCaffe(np.frombuffer(text, np.uint8), weights)
    return Session(Layout.of([None, *sizes[1:]], "float32", str(path), "NCHW"), _Network(path, network))


def _read_torch7(dnn: Any, path: Path) -> Session:
    network = dnn.readNetFromTorch(str(path))
    session = _Network(path, network)
    channels = _count_channels(path, network)
    sides = [side for side in SIDES if session.takes((channels, side, side))]
    if not sides:
        raise DeploymentError(
            f"{path} does not say the size of its images, and takes square ones of none of the sizes "
            f"{', '.join(map(str, SIDES))}: convert it to ONNX"
        )
    side = sides[0] if len(sides) == 1 else None
    layout = Layout.of([None, channels, side, side], "float32", str(path), "NCHW")
    layout.notes.append("its file does not say the size of images, which was found by trying")
    return Session(layout, session)


def _count_channels(path: Path, network: Any) -> int:
    """Return how many channels the first convolution takes; OpenCV accepts multiples, and answers something."""
    for name in network.getLayerNames():
        if name.endswith("_Convolution"):
            return int(network.getParam(network.getLayerId(name), 0).shape[1])
    raise DeploymentError(f"{path} has no convolution, so the channels of its images are not known: convert it to ONNX")


class _Network:
    """A network of OpenCV, which answers one batch at a time."""

    def __init__(self, path: Path, network: Any, output: str = ""):
        self._path, self._network, self._output = path, network, output
        self._lock = threading.Lock()

    def __call__(self, x: NDArray[np.float32]) -> NDArray[np.float32]:
        with deployment_errors(f"{self._path} failed on {len(x)} images"), self._lock:
            self._network.setInput(x)
            answer: NDArray[np.float32] = self._network.forward(self._output)
        return answer[..., 0, 0] if answer.shape[2:] == (1, 1) else answer

    def takes(self, shape: tuple[int, ...]) -> bool:
        """Say whether it answers two images (C, H, W) with two rows of numbers."""
        try:
            answer = self(np.zeros((2, *shape), np.float32))
        except DeploymentError:
            return False
        return answer.ndim == 2 and len(answer) == 2


RUNTIME = _OpenCV()

"""LiteRT, formerly TensorFlow Lite: networks on phones and small devices, here on the processor with XNNPACK.

TensorFlow converts; LiteRT's own small package answers. A network whose architecture is known is built in Keras from
its canonical weights, whatever framework trained it.

An image's answer depends on that image alone: with XNNPACK it is the same, bit for bit, in every batch and with any
number of threads. This includes dynamic int8, where LiteRT takes the range of activations from each image, not from the
batch.

A file of LiteRT holds no code, and operations that LiteRT itself does not have (custom ones, TensorFlow's own) are
refused. But LiteRT does not check everything that a file says, and a crafted file can crash it. So a file is first
opened and asked in a process of its own, where TensorFlow is not loaded either, and only what answers there is opened
here. This does not find a file that crashes for particular images only, nor one that reads memory outside the network
without crashing.
"""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..data.arrays import Images
from ..errors import DeploymentError
from ..files import write_bytes_atomically
from ..frameworks import get_framework
from ..frameworks.keras_networks import KerasModel
from ..models.model import Model
from ..threads import cores
from ..untrusted import read_network
from .base import Conversion, Runtime, deployment_errors
from .sessions import BYTES, Layout, Session
from .silence import silence

IDENTIFIER = slice(4, 8)
"""Where a file says what it is."""


class _LiteRT(Runtime):
    name = "litert"
    package = "ai-edge-litert"
    extra = "litert"
    suffix = ".tflite"
    converters = ("tensorflow", "tensorflow-cpu", "keras")
    conversions = {
        "": Conversion("float32", "as trained"),
        "float16": Conversion("float16", "weights rounded to float16, computed in float32"),
        "int8-dynamic": Conversion("int8", "large weights in int8, activations quantised image by image"),
        "int8": Conversion("int8", "weights, activations, images and logits in int8", calibrated=True),
    }

    def convert(self, model: Model, kind: str, calibration: Images | None, path: Path) -> None:
        network = _keras_network(model)
        shape = _input_shape(network)
        images = None
        if self.conversions[kind].calibrated:
            assert calibration is not None
            first = model.architecture is None and model.data_format == "channels_first"
            images = np.ascontiguousarray(calibration.transpose(0, 3, 1, 2) if first else calibration)
        write_bytes_atomically(path, _convert(network, shape, kind, images))

    def load(self, path: Path) -> Session:
        content = read_network(path)
        if content[IDENTIFIER] != b"TFL3":
            raise DeploymentError(f"{path} is not a TFLite file. Convert the network again, or copy the file again.")
        return _Network(path, content)


# converting ------------------------------------------------------------------------------------------------------


def _keras_network(model: Model) -> Any:
    """Return a model's network in Keras."""
    architecture = model.architecture
    weights = model.weights
    if architecture is None and model.framework != "tensorflow":
        raise DeploymentError(
            "litert converts Keras models and networks of a known architecture; received a network of your own in "
            f"{model.framework}. Describe its architecture in a file and load its weights with that, or convert it "
            "with its own tools (litert-torch for torch) and pass the .tflite file."
        )
    adapter = get_framework("tensorflow")
    if architecture is None or weights is None:
        return model.native
    network = adapter.build(architecture, None, "cpu")
    adapter.set_weights(network, architecture, weights)
    return network


def _input_shape(network: Any) -> tuple[int, ...]:
    """Return the shape of one image as a network of Keras takes it."""
    try:
        _, *shape = network.input_shape
    except (AttributeError, TypeError, ValueError):
        shape = []
    if len(shape) != 3 or not all(isinstance(size, int) for size in shape):
        raise DeploymentError(
            "expected a Keras model that says which images it takes, (H, W, C); received one with "
            f"{f'inputs {shape}' if shape else 'no input shape'}. Begin it with keras.Input((H, W, C))."
        )
    return tuple(shape)


def _convert(network: Any, shape: tuple[int, ...], kind: str, calibration: Images | None) -> bytes:
    """Return the file's content for a network of Keras."""
    import tensorflow as tf

    function = tf.function(
        lambda images: network(images, **KerasModel(network).call_arguments()),
        input_signature=[tf.TensorSpec([None, *shape], tf.float32, name="images")],
        autograph=False,
    )
    with deployment_errors(f"TensorFlow cannot convert this network to litert{kind and f'-{kind}'}"):
        converter = tf.lite.TFLiteConverter.from_concrete_functions([function.get_concrete_function()], function)
        if kind:
            converter.optimizations = [tf.lite.Optimize.DEFAULT]
        if kind == "float16":
            converter.target_spec.supported_types = [tf.float16]
        if calibration is not None:
            converter.representative_dataset = lambda: ([image] for image in calibration[:, None])
            converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS_INT8]  # all of it, or an error
            converter.inference_input_type = converter.inference_output_type = tf.int8
        with silence():
            return bytes(converter.convert())


# opening ---------------------------------------------------------------------------------------------------------


class _Format(NamedTuple):
    """How a file stores the numbers of images or logits: value = scale · (stored - zero)."""

    dtype: np.dtype[Any]
    scale: np.float32
    zero: int

    @classmethod
    def of(cls, path: Path, name: str, tensor: dict[str, Any]) -> _Format:
        scale, zero = tensor["quantization"]
        dtype = np.dtype(tensor["dtype"])
        if dtype != np.float32 and not (dtype in (np.int8, np.uint8) and np.isfinite(scale) and scale > 0):
            kind = f"{dtype} without a scale" if dtype in (np.int8, np.uint8) else str(dtype)
            raise DeploymentError(
                f"{path}: expected {name} in float32, or in int8 or uint8 with a scale and a zero point; received "
                f"{kind}"
            )
        return cls(dtype, np.float32(scale), int(zero))

    @property
    def is_quantised(self) -> bool:
        return bool(self.dtype != np.float32)

    @property
    def range(self) -> tuple[float, float]:
        """The smallest and the largest value that it can store."""
        info = np.iinfo(self.dtype)
        return float(self.scale) * (info.min - self.zero), float(self.scale) * (info.max - self.zero)

    def store(self, values: NDArray[np.float32]) -> NDArray[Any]:
        if not self.is_quantised:
            return np.ascontiguousarray(values, np.float32)
        stored = values / self.scale
        np.rint(stored, out=stored)
        stored += self.zero
        info = np.iinfo(self.dtype)
        return np.clip(stored, info.min, info.max, out=stored).astype(self.dtype, order="C")

    def restore(self, stored: NDArray[Any]) -> NDArray[np.float32]:
        if not self.is_quantised:
            return stored
        return (stored.astype(np.float32) - self.zero) * self.scale

    def describe(self, name: str) -> list[str]:
        if not self.is_quantised:
            return []
        low, high = self.range
        return [f"{name} in {self.dtype}: 256 levels from {low:.4g} to {high:.4g}"]


class _Network(Session):
    """A network in LiteRT's interpreter, which answers one thread at a time, with all cores."""

    def __init__(self, path: Path, content: bytes):
        from ai_edge_litert.interpreter import Interpreter

        self._path = path
        self._lock = threading.Lock()
        self._size = 0  # of the batch that memory is laid out for
        with deployment_errors(f"{path} cannot be opened"):
            self._interpreter = Interpreter(model_content=content, num_threads=cores())
            inputs = self._interpreter.get_input_details()
            outputs = self._interpreter.get_output_details()
        if len(inputs) != 1 or len(outputs) != 1:
            raise DeploymentError(
                f"{path} has {len(inputs)} inputs and {len(outputs)} outputs; expected one of each: images and logits"
            )
        self._input = inputs[0]["index"]
        self._output = outputs[0]["index"]
        self._images = _Format.of(path, "images", inputs[0])
        self._logits = _Format.of(path, "logits", outputs[0])
        sizes = [size if size > 0 else None for size in inputs[0]["shape_signature"].tolist()]
        super().__init__(Layout.of(sizes, "float32", str(path)), self._ask)
        levels = self._images.range if self._images.is_quantised else None
        self.holds_bytes = levels is not None and np.allclose(levels, (0, BYTES), atol=0.5)
        self.bounds = (0, BYTES) if self.holds_bytes else (0, 1)
        self.levels = levels
        self.notes = [*self._images.describe("images"), *self._logits.describe("logits"), *self.layout.notes]

    def _ask(self, images: Images) -> NDArray[np.float32]:
        """Return the logits of a batch in the layout and of a size that the file takes."""
        stored = self._images.store(images)
        with deployment_errors(f"{self._path} failed on {len(images)} images"), self._lock:
            if len(stored) != self._size:
                self._size = 0
                self._interpreter.resize_tensor_input(self._input, stored.shape, strict=True)
                self._interpreter.allocate_tensors()
                self._size = len(stored)
            self._interpreter.set_tensor(self._input, stored)
            self._interpreter.invoke()
            answer = self._interpreter.get_tensor(self._output)
        if answer.ndim != 2 or len(answer) != len(images):
            raise DeploymentError(
                f"{self._path} should return logits ({len(images)}, K) for {len(images)} images, received the shape "
                f"{answer.shape}"
            )
        return self._logits.restore(answer)


RUNTIME = _LiteRT()

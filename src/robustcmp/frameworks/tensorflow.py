"""TensorFlow: networks are Keras 3 models on the TensorFlow backend, tensors are (N, H, W, C)."""

from __future__ import annotations

import io
import json
import logging
import math
import os
import re
import warnings
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache, partial
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray

from .. import limits
from ..errors import ModelError, UsageError, WeightsError
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
    is_trainable,
)
from ..networks.weights import Weights, pair_arrays
from ..threads import cores
from ..untrusted import check_archive, check_hdf5, find_arrays
from .base import (
    Bounds,
    Device,
    Function,
    Make,
    Pullback,
    TrainableFramework,
    Trainer,
    as_tensor,
    find_logits,
    require_gpu,
    round_up,
)
from .keras_networks import KerasModel, read_description

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # the notes of a CPU build about its instruction sets
os.environ.setdefault("KERAS_BACKEND", "tensorflow")
os.environ.setdefault("TF_NUM_INTRAOP_THREADS", str(cores()))  # by itself it does not look at OMP_NUM_THREADS

import keras
import tensorflow as tf
from tensorflow.python.eager import context as _context

if keras.backend.backend() != "tensorflow":
    raise UsageError(
        f"expected Keras on the TensorFlow backend, received {keras.backend.backend()!r}. Set KERAS_BACKEND=tensorflow "
        "before Keras is imported."
    )

# Few sizes of batches are asked, and TensorFlow calls that many.
logging.getLogger("tensorflow").addFilter(lambda record: "TensorFlow.place" not in record.getMessage())

NOT_LOADED = "Skipping (nested|loading)"  # how Keras warns that layers stay as they were initialised
DEFAULT = "serving_default"  # as SavedModels call the signature that is asked by default
FUNCTION = "Wrap a function around it, tf.function(lambda images: …), that takes images and returns logits."


def _device(name: Device) -> str:
    gpus = tf.config.list_physical_devices("GPU")
    require_gpu("tensorflow", name, bool(gpus))
    return "/GPU:0" if gpus and name != "cpu" else "/CPU:0"


# TF32 has too few bits for a comparison of near ties; there is one switch, for models of Foolbox's own as well.
tf.config.experimental.enable_tensor_float_32_execution(False)
# By default TensorFlow takes all memory of a GPU, and the other frameworks get none.
with suppress(RuntimeError):  # the caller has used the GPU already, and chose how
    for _gpu in tf.config.list_physical_devices("GPU"):
        tf.config.experimental.set_memory_growth(_gpu, True)


@contextmanager
def _own_defaults() -> Iterator[None]:
    """Make layers as always, whatever the caller has set or stands in keras.json: channels last, in float32."""
    config = keras.config
    before = config.image_data_format(), config.floatx(), config.dtype_policy()
    try:
        config.set_image_data_format("channels_last")
        config.set_floatx("float32")
        config.set_dtype_policy("float32")
        yield
    finally:
        config.set_image_data_format(before[0])
        config.set_floatx(before[1])
        config.set_dtype_policy(before[2])


class _TensorFlow(TrainableFramework):
    name = "tensorflow"
    data_format = "channels_last"
    differences = {
        "initialisation": "kernels Glorot uniform, biases zero (Keras)",
        "batch norm": "the variance moves towards that of n values",
    }

    def version(self) -> str:
        return str(tf.__version__)

    def tensor(self, array: NDArray[Any], like: Any) -> tf.Tensor:
        with tf.device(like.device):
            return tf.constant(array)

    def array(self, tensor: Any) -> NDArray[Any]:
        return np.array(tensor)

    def fill_size(self, n: int) -> int:
        return round_up(n, 16)  # oneDNN keeps what it has made for each size

    @cache  # noqa: B019, there is one TensorFlow
    def maker(self, make: Make, bounds: Bounds) -> Any:
        return tf.function(super().maker(make, bounds), reduce_retracing=True, autograph=False)

    def is_on_gpu(self, like: Any) -> bool:
        return "GPU" in like.device

    def pullback(self, function: Function) -> Pullback:
        def pull_back(x: tf.Tensor, v: tf.Tensor) -> tf.Tensor:
            with tf.GradientTape() as tape:
                tape.watch(x)
                logits = function(x)
            return tape.gradient(logits, x, v, unconnected_gradients=tf.UnconnectedGradients.ZERO)

        return pull_back

    def compile(
        self, function: Function, native: Any, images: NDArray[np.float32], like: Any
    ) -> tuple[Function, Pullback]:
        x = tf.TensorSpec([None, *images.shape[1:]], tf.float32)
        with tf.device(like.device):
            traced = tf.function(function, input_signature=[x], autograph=False)
            v = tf.TensorSpec(traced.get_concrete_function().output_shapes, tf.float32)
            pullback = tf.function(self.pullback(function), input_signature=[x, v], autograph=False)
            pullback.get_concrete_function()  # traced here: at a call, TensorFlow warns from the fifth model on
            return traced, pullback

    def is_out_of_memory(self, error: Exception) -> bool:
        full = isinstance(error, tf.errors.InternalError) and "Dst tensor is not initialized" in str(error)  # a GPU
        return full or isinstance(error, tf.errors.ResourceExhaustedError) or super().is_out_of_memory(error)

    @contextmanager
    def fork_rng(self, seed: int) -> Iterator[None]:
        # tf.random has no way to read its global seed back, so the state is kept where TensorFlow keeps it.
        state = vars(_context.context())
        before = {name: state[name] for name in ("_seed", "_rng") if name in state}  # _rng is there once it was used
        tf.random.set_seed(seed)
        try:
            yield
        finally:
            del state["_rng"]
            state.update(before)

    def parameters(self, native: Any) -> list[NDArray[Any]] | None:
        if isinstance(native, keras.layers.Layer):
            variables = native.weights
        else:
            variables = getattr(native, "variables", None) or getattr(_choose_signature(native), "variables", None)
        return [np.asarray(variable) for variable in variables or ()] or None

    def place(self, native: Any, device: Device) -> tuple[Function, tf.Tensor]:
        program = _program(native)
        where = _device(device)

        def function(x: tf.Tensor) -> tf.Tensor:
            with tf.device(where):
                return find_logits(program(x))

        traced = tf.function(function, reduce_retracing=True)

        def answer(x: tf.Tensor) -> tf.Tensor:
            return as_tensor(traced(x))  # an error inside of the trace would become one of TensorFlow's

        with tf.device(where):
            dummy = tf.zeros(0)
        return answer, dummy

    def build(self, architecture: Architecture, seed: int | None, device: Device) -> keras.Model:
        walked = [layer for layer, _ in architecture.walk()]
        seeds = np.random.SeedSequence(seed or 0).generate_state(len(walked)).tolist()

        def apply_layers(layers: tuple[Layer, ...], x: Any) -> Any:
            for layer in layers:
                match layer:
                    case Conv():
                        same = layer.stride == 1 and layer.kernel == 2 * layer.padding + 1
                        if layer.padding and not same:  # "same" pads more on one side where the stride is 2
                            x = keras.layers.ZeroPadding2D(layer.padding, name=f"{layer.name}.padding")(x)
                        x = keras.layers.Conv2D(
                            layer.channels,
                            layer.kernel,
                            layer.stride,
                            padding="same" if same else "valid",
                            kernel_initializer=next(initialisers),
                            name=layer.name,
                        )(x)
                    case Dense():
                        initialiser = next(initialisers)
                        x = keras.layers.Dense(layer.units, kernel_initializer=initialiser, name=layer.name)(x)
                    case BatchNorm():
                        x = keras.layers.BatchNormalization(
                            momentum=layer.momentum, epsilon=layer.epsilon, name=layer.name
                        )(x)
                    case Relu():
                        x = keras.layers.ReLU(name=layer.name)(x)
                    case MaxPool():
                        x = keras.layers.MaxPooling2D(layer.size, name=layer.name)(x)
                    case GlobalAveragePool():
                        x = keras.layers.GlobalAveragePooling2D(name=layer.name)(x)
                    case Flatten():
                        x = keras.layers.Flatten(name=layer.name)(x)
                    case Residual():
                        branches = [apply_layers(layer.layers, x), apply_layers(layer.shortcut, x)]
                        x = keras.layers.Add(name=layer.name)(branches)
            return x

        with tf.device(_device(device)), _own_defaults():
            # Keras's own default; unseeded it would draw from Python's global generator.
            initialisers = iter([keras.initializers.GlorotUniform(seed=layer_seed) for layer_seed in seeds])
            x = keras.Input(architecture.input_shape, name="images.input")  # no layer of ours can be called that
            return keras.Model(x, apply_layers(architecture.layers, x), name=architecture.name)

    def load(self, path: Path, native: Any) -> keras.Model:
        if not isinstance(native, keras.Model | None):
            raise ModelError(f"expected a keras.Model for the weights of {path}, received {type(native).__name__}")
        whole = not path.name.endswith(".weights.h5")
        description = None
        if whole:
            description = _read_description(path)
        else:
            check_hdf5(path)
        try:
            with warnings.catch_warnings():
                warnings.filterwarnings("error", NOT_LOADED, UserWarning)
                network: Any = _whole_model(path, description) if whole else native
                received = _shapes(network) if whole else _shapes_in_file(path)
                if native is not None and sorted(received.values()) != sorted(_shapes(native).values()):
                    pair_arrays(received, _shapes(native), str(path))  # branches may stand in another order
                if not whole:
                    network.load_weights(path)
        except WeightsError:
            raise
        except Exception as error:  # a broken archive can raise anything
            raise WeightsError(
                f"{path} is broken, does not fit, or holds code, which is not run: {_reason(error)}. If the "
                "network needs your own code, return it from module:function."
            ) from None
        return network

    def get_weights(self, native: Any, architecture: Architecture) -> Weights:
        return {name: variable.numpy() for name, variable in _variables(native, architecture).items()}

    def set_weights(self, native: Any, architecture: Architecture, weights: Weights) -> None:
        for name, variable in _variables(native, architecture).items():
            variable.assign(weights[name])

    def trainer(self, native: Any, architecture: Architecture, momentum: float, weight_decay: float) -> Trainer:
        return _Trainer(_variables(native, architecture), native, momentum, weight_decay)


# what a caller brings ------------------------------------------------------------------------------------------------


def _program(native: Any) -> Any:
    """Return what a caller brought as a function of images, float32 (N, H, W, C), to what it answers.

    Raises
    ------
    ModelError
        It is no program of TensorFlow, or it does not say what it takes images by.
    UsageError
        It takes something else than a batch of images of any size.
    """
    if isinstance(native, keras.layers.Layer):
        return partial(native, **KerasModel(native).call_arguments())
    native = _choose_signature(native)
    if isinstance(native, tf.types.experimental.ConcreteFunction):
        return _of_signature(native)
    if not callable(native):
        raise ModelError(
            "expected a keras.Model, a tf.function, or what tf.saved_model.load returns, received "
            f"{type(native).__name__}"
        )
    return native


def _choose_signature(native: Any) -> Any:
    """Return the signature of a SavedModel that is asked, of anything else itself."""
    signatures = getattr(native, "signatures", None)
    if not signatures:
        return native
    if DEFAULT in signatures:
        return signatures[DEFAULT]
    if len(signatures) == 1:
        return next(iter(signatures.values()))
    raise ModelError(
        f"the SavedModel has the signatures {', '.join(signatures)}, and none is called {DEFAULT}. Pass one of them, "
        f"loaded.signatures[{next(iter(signatures))!r}]."
    )


def _of_signature(function: Any) -> Function:
    positional, named = function.structured_input_signature
    inputs = [*((None, spec) for spec in positional), *named.items()]
    tensors = [(name, spec) for name, spec in inputs if isinstance(spec, tf.TensorSpec)]
    if len(tensors) != 1:
        received = ", ".join(str(name or spec) for name, spec in inputs)
        raise ModelError(
            f"the TensorFlow program should take one tensor of images, received one that takes {received}. {FUNCTION}"
        )
    ((name, spec),) = tensors
    if not spec.dtype.is_floating or (spec.shape.rank and spec.shape[0] is not None):
        raise UsageError(
            "the TensorFlow program should take any number of images in floating-point numbers, received one for "
            f"{spec.dtype.name} of the shape {spec.shape}. Export the network for tf.TensorSpec([None, H, W, C])."
        )

    def ask(x: tf.Tensor) -> Any:
        x = tf.cast(x, spec.dtype)
        return function(**{name: x}) if name else function(x)

    return ask


# files and weights of Keras ------------------------------------------------------------------------------------------


def _variables(network: keras.Model, architecture: Architecture) -> dict[str, Any]:
    """The network's variables by their canonical names; Keras's layout is the canonical one."""
    variables = {}
    for name in architecture.weight_shapes:
        layer, _, kind = name.partition("/")
        variables[name] = getattr(network.get_layer(layer), kind if is_trainable(name) else f"moving_{kind}").value
    return variables


def _shapes(network: keras.Model) -> dict[str, tuple[int, ...]]:
    return {variable.path: tuple(variable.shape) for variable in network.weights}


def _read_description(path: Path) -> Any:
    """Return what a whole model is made of, from a file that is sound, shows no other file and is no larger than it is.

    Raises
    ------
    WeightsError
        The file is anything else, or its model has layers that carry code.
    """
    try:
        description = _read_archive(path) if path.suffix == ".keras" else read_description(path)
        count = _count(description)
    except (KeyError, ValueError, TypeError, RecursionError) as error:
        raise WeightsError(
            f"{path} describes no model ({type(error).__name__}). Save it with model.save('x.keras')."
        ) from None
    if count > limits.PARAMETERS:
        raise WeightsError(f"{path} describes {count:,} weights or more; expected at most {limits.PARAMETERS:,}")
    return description


def _read_archive(path: Path) -> Any:
    check_archive(path)
    with zipfile.ZipFile(path) as archive:
        for name in archive.namelist():
            if name.endswith(".h5"):
                check_hdf5(path, io.BytesIO(archive.read(name)))
        return json.loads(archive.read("config.json"))


def _whole_model(path: Path, description: Any) -> keras.Model:
    if path.suffix == ".keras":
        return keras.models.load_model(path, compile=False, safe_mode=True)
    kind = keras.Sequential if description["class_name"] == "Sequential" else keras.Model
    network = kind.from_config(description["config"])
    network.load_weights(path)
    return network


def _count(config: Any) -> int:
    """Return about how many weights a configuration of Keras describes, without making them."""
    count = 0
    width = 1
    left = [config]
    while left:
        part = left.pop()
        if isinstance(part, list):
            left += reversed(part)
        if not isinstance(part, dict):
            continue
        made = [part[name] for name in ("units", "filters", "output_dim") if isinstance(part.get(name), int)]
        if made:
            kernel = part.get("kernel_size", 1)
            kernel = math.prod(kernel) if isinstance(kernel, list) else kernel
            count += part.get("input_dim", width) * made[0] * kernel // max(part.get("groups", 1), 1)
            width = made[0]
        left += reversed(part.values())
    return count


def _shapes_in_file(path: Path) -> dict[str, tuple[int, ...]]:
    """The shapes in a file of Keras's weights, which Keras itself does not compare if there are too many."""
    with h5py.File(path, "r") as file:
        return {
            name: tuple(array.shape)
            for name, array in find_arrays(file, shared=True)
            if "vars/" in name and not name.startswith("optimizer/") and "seed_generator" not in name
        }


def _reason(error: Exception) -> str:
    """What Keras means, out of a text that may hold a whole configuration or all values of an array."""
    text = re.sub(r"\x1b\[[0-9;]*m", "", str(error))
    named = re.search(r"Could not locate class '[^']+'|Unknown layer: '[^']+'", text)
    return named[0] if named else " ".join(text.partition("Target variable")[0].split())[:400].rstrip(".")


class _Trainer(Trainer):
    # Keras's own SGD folds the rate into the velocity, so that a schedule acts on it differently than elsewhere;
    # the two lines of the update stand here instead, to be the same optimiser in every framework.
    def __init__(self, variables: dict[str, Any], network: keras.Model, momentum: float, weight_decay: float):
        self._variables = {name: variable for name, variable in variables.items() if is_trainable(name)}
        self._network = network
        self._momentum = momentum
        self._weight_decay = weight_decay
        first = next(iter(variables.values()))
        self._device = first.device
        self._dtype = first.dtype
        self._velocity = {name: tf.Variable(tf.zeros_like(variable)) for name, variable in self._variables.items()}
        self._step = tf.function(self._update, reduce_retracing=True)

    def _update(self, images: tf.Tensor, labels: tf.Tensor, learning_rate: tf.Tensor) -> tf.Tensor:
        with tf.device(self._device), tf.GradientTape() as tape:
            logits = self._network(images, training=True)
            loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits))
        gradients = tape.gradient(loss, self._variables)
        for name, variable in self._variables.items():
            gradient = gradients[name] + self._weight_decay * variable
            velocity = self._velocity[name].assign(self._momentum * self._velocity[name] + gradient)
            variable.assign_sub(learning_rate * velocity)
        return loss

    def step(self, images: NDArray[np.float32], labels: NDArray[np.int64], learning_rate: float) -> float:
        rate = tf.constant(learning_rate, self._dtype)
        return float(self._step(tf.constant(images), tf.constant(labels), rate))

    def velocity(self) -> Weights:
        return {name: variable.numpy() for name, variable in self._velocity.items()}

    def set_velocity(self, velocity: Weights) -> None:
        for name, variable in self._velocity.items():
            variable.assign(velocity[name])


FRAMEWORK = _TensorFlow()

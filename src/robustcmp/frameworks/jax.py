"""JAX: networks are functions of parameters and images (N, H, W, C).

JAX has no layers of its own. Networks are built from `jax.lax` and `jax.nn`, and initialised as Flax does it by
default, with which most networks in JAX are written.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import UsageError
from ..networks.architecture import (
    STATISTICS,
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
    Shape,
    is_trainable,
)
from ..networks.weights import Weights
from ..threads import cores
from .base import Bounds, Device, Function, Make, Pullback, TrainableFramework, Trainer, as_tensor, round_up

# By default XLA takes three quarters of a GPU's memory, and the other frameworks get what is left.
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
os.environ.setdefault("NPROC", str(cores()))  # by itself XLA does not look at OMP_NUM_THREADS

import jax
import jax.numpy as jnp

from .jax_network import JaxNetwork, Shared, as_network

Parameters = dict[str, jax.Array]
GRADIENTS = 64  # at once: each number of them takes half a second to compile


def _device(name: Device) -> jax.Device:
    try:
        gpus = jax.devices("cuda")
    except RuntimeError:
        gpus = []
    if name == "cuda" and not gpus:
        raise UsageError("device 'cuda' was requested, but jax sees no GPU. Use device='cpu' or 'auto'.")
    return gpus[0] if gpus and name != "cpu" else jax.devices("cpu")[0]


def apply(
    architecture: Architecture, parameters: Parameters, x: jax.Array, measured: Parameters | None = None
) -> jax.Array:
    """Return the logits (N, K) of images (N, H, W, C).

    With `measured`, as in training: batch norms take the statistics of the batch, and the moved ones are put there.
    """
    return _apply_layers(architecture.layers, parameters, x, measured)


def _apply_layers(
    layers: tuple[Layer, ...], parameters: Parameters, x: jax.Array, measured: Parameters | None
) -> jax.Array:
    for layer in layers:
        match layer:
            case Conv():
                kernel, bias = parameters[f"{layer.name}/kernel"], parameters[f"{layer.name}/bias"]
                if measured is not None:
                    x = jax.lax.optimization_barrier(x)  # type: ignore[no-untyped-call]  # for COMPILED_ON_A_CPU
                x = _convolve(layer, kernel, x) + bias
            case Dense():
                x = x @ parameters[f"{layer.name}/kernel"] + parameters[f"{layer.name}/bias"]
            case BatchNorm():
                x = _normalise(layer, parameters, x, measured)
            case Relu():
                x = jax.nn.relu(x)
            case MaxPool():
                window = (1, layer.size, layer.size, 1)
                x = jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, window, window, "VALID")
            case GlobalAveragePool():
                x = x.mean(axis=(1, 2))
            case Flatten():
                x = x.reshape(len(x), -1)
            case Residual():
                main = _apply_layers(layer.layers, parameters, x, measured)
                x = main + _apply_layers(layer.shortcut, parameters, x, measured)
    return x


def _convolve(layer: Conv, kernel: jax.Array, x: jax.Array) -> jax.Array:
    _, height, width, _ = x.shape
    size, stride, padding = layer.kernel, layer.stride, layer.padding
    if min(height, width) >= size:
        return jax.lax.conv_general_dilated(
            x, kernel, (stride, stride), [(padding, padding)] * 2, dimension_numbers=("NHWC", "HWIO", "NHWC")
        )
    # XLA has no fast convolution on a CPU for 3 × 3 on images of 2 × 2, where VGG-16 ends: patches times a matrix took
    # a 70th of the time (34 ms against 2,456 ms for 128 images and 512 channels, on one core).
    x = jnp.pad(x, ((0, 0), (padding, padding), (padding, padding), (0, 0)))
    rows, columns = (range(0, extent + 2 * padding - size + 1, stride) for extent in (height, width))
    patches = jnp.stack([x[:, i : i + size, j : j + size].reshape(len(x), -1) for i in rows for j in columns], axis=1)
    convolved: jax.Array = patches @ kernel.reshape(-1, layer.channels)
    return convolved.reshape(len(x), len(rows), len(columns), layer.channels)


def _apply_shifted(architecture: Architecture, parameters: Parameters, x: jax.Array) -> jax.Array:
    """Return the logits, the first convolution of grey images as a sum of shifted images times weights.

    On a CPU, LeNets answer 2.3 to 2.7 times as fast as with XLA's own convolution (one core). Images in colour would
    gain nothing, and gradients lose.
    """
    first = architecture.layers[0]
    if not isinstance(first, Conv) or first.stride != 1 or x.shape[-1] > 1:
        return apply(architecture, parameters, x)
    kernel, padding = parameters[f"{first.name}/kernel"], first.padding
    padded = jnp.pad(x, ((0, 0), (padding, padding), (padding, padding), (0, 0)))
    height, width = (extent - first.kernel + 1 for extent in padded.shape[1:3])
    total: jax.Array = parameters[f"{first.name}/bias"]
    for row, column in np.ndindex(*kernel.shape[:2]):
        total = total + padded[:, row : row + height, column : column + width] * kernel[row, column, 0]
    total = jax.lax.optimization_barrier(total)  # type: ignore[no-untyped-call]  # for COMPILED_ON_A_CPU
    return _apply_layers(architecture.layers[1:], parameters, total, None)


def _normalise(layer: BatchNorm, parameters: Parameters, x: jax.Array, measured: Parameters | None) -> jax.Array:
    gamma, beta, mean, variance = (parameters[f"{layer.name}/{kind}"] for kind in ("gamma", "beta", *STATISTICS))
    if measured is not None:
        axes = tuple(range(x.ndim - 1))
        of_batch = x.mean(axes), x.var(axes)
        for kind, kept, statistic in zip(STATISTICS, (mean, variance), of_batch, strict=True):
            measured[f"{layer.name}/{kind}"] = layer.momentum * kept + (1 - layer.momentum) * statistic
        mean, variance = of_batch
    return (x - mean) * (gamma * jax.lax.rsqrt(variance + layer.epsilon)) + beta


def _float64() -> AbstractContextManager[None]:
    """Let float64 be float64 for a while, in this thread; JAX makes it float32 otherwise."""
    where: Any = jax if hasattr(jax, "enable_x64") else jax.experimental
    return where.enable_x64(True)  # type: ignore[no-any-return]


def _full_precision(function: Function) -> Function:
    """Switch TF32 and bfloat16 off, which GPUs and TPUs would use: too few bits for a comparison of near ties."""

    def precise(x: jax.Array) -> jax.Array:
        with jax.default_matmul_precision("float32"):
            logits: jax.Array = function(x)
        return logits

    return precise


def _as_matrix(shape: Shape) -> Shape:
    """Return the shape of the same values as a matrix: XLA takes seconds to compile draws in four dimensions.

    The draws and the number of inputs, which scales them, are the same.
    """
    return (math.prod(shape[:-1]), shape[-1]) if len(shape) > 2 else shape


class _Jax(TrainableFramework):
    name = "jax"
    data_format = "channels_last"
    differences = {
        "initialisation": "kernels LeCun normal, biases zero (the defaults of Flax)",
        "batch norm": "the variance moves towards that of n values",
    }

    def version(self) -> str:
        return str(jax.__version__)

    def tensor(self, array: NDArray[Any], like: Any) -> jax.Array:
        (device,) = like.devices()
        # device_put may alias NumPy's memory on the CPU, which the caller may change before it is read.
        with _float64() if array.dtype == np.float64 else nullcontext():
            tensor: jax.Array = jax.device_put(np.array(array), device)
        return tensor

    def array(self, tensor: Any) -> NDArray[Any]:
        return np.array(tensor)

    def fill_size(self, n: int) -> int:
        # Every new shape is compiled anew.
        return 1 << (n - 1).bit_length() if n <= 16 else round_up(n, 4)

    @cache  # noqa: B019, there is one Jax; each function is compiled anew for every shape
    def maker(self, make: Make, bounds: Bounds) -> Function:
        compiled = jax.jit(super().maker(make, bounds))

        def made(*tensors: jax.Array) -> jax.Array:
            with _float64():
                images: jax.Array = compiled(*tensors)
            return images

        return made

    def full_precision(self, like: Any) -> AbstractContextManager[None]:
        precision: AbstractContextManager[None] = jax.default_matmul_precision("float32")
        return precision

    def is_on_gpu(self, like: Any) -> bool:
        (device,) = like.devices()
        return bool(device.platform == "gpu")

    def pullback(self, function: Function) -> Pullback:
        def pull_back(x: jax.Array, v: jax.Array) -> jax.Array:
            gradient: jax.Array
            (gradient,) = jax.vjp(function, x)[1](v)
            return gradient

        return pull_back

    def vjp(
        self, pullback: Pullback, images: NDArray[np.float32], v: NDArray[np.float32], like: Any
    ) -> NDArray[np.float32]:
        parts = [slice(start, start + GRADIENTS) for start in range(0, len(images), GRADIENTS)]
        return np.concatenate([super(_Jax, self).vjp(pullback, images[part], v[part], like) for part in parts])

    def compile(
        self, function: Function, native: Any, images: NDArray[np.float32], like: Any
    ) -> tuple[Function, Pullback]:
        pull_back = self.pullback(function)
        if not isinstance(native, JaxNetwork) or not jax.tree.leaves(native.parameters):
            return jax.jit(function), jax.jit(pull_back)
        if native.architecture is None or self.is_on_gpu(like):
            return Shared(function, native), Shared(pull_back, native)
        shifted = partial(_apply_shifted, native.architecture)
        return Shared(function, native, shifted, COMPILED_ON_A_CPU), Shared(pull_back, native)

    def is_out_of_memory(self, error: Exception) -> bool:
        jax_says = isinstance(error, jax.errors.JaxRuntimeError) and "RESOURCE_EXHAUSTED" in str(error)
        return jax_says or super().is_out_of_memory(error)

    @contextmanager
    def fork_rng(self, seed: int) -> Iterator[None]:
        # JAX itself has no global state; EagerPy, through which Foolbox draws, keeps one.
        from eagerpy.tensor.jax import JAXTensor

        kept = JAXTensor.key
        JAXTensor.key = jax.random.PRNGKey(seed)
        try:
            yield
        finally:
            JAXTensor.key = kept

    def as_network(self, native: Any) -> JaxNetwork:
        return as_network(native)

    def parameters(self, native: Any) -> list[NDArray[Any]] | None:
        if not isinstance(native, JaxNetwork):
            return None
        if native.architecture is not None:  # in the order of its layers
            return [*self.get_weights(native, native.architecture).values()]
        leaves = jax.tree.leaves(native.parameters)
        is_key = [jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key) for leaf in leaves]  # the state of dropout
        return [np.array(jax.random.key_data(leaf) if key else leaf) for leaf, key in zip(leaves, is_key, strict=True)]

    def state(self, native: Any) -> list[NDArray[Any]]:
        return []  # a call of a function that JAX compiles writes nothing

    def place(self, native: Any, device: Device) -> tuple[Function, jax.Array]:
        network, where = as_network(native), _device(device)
        # The parameters are an argument: closed over, they would be constants of the first compilation.
        network.parameters = jax.device_put(network.parameters, where)
        compiled = jax.jit(lambda apply, parameters, x: as_tensor(apply(parameters, x)), static_argnums=0)
        function = _full_precision(lambda x: compiled(network.apply, network.parameters, x))
        return function, jax.device_put(jnp.zeros(0, jnp.float32), where)

    def build(self, architecture: Architecture, seed: int, device: Device) -> JaxNetwork:
        shapes = architecture.weight_shapes
        zeros, ones = jax.nn.initializers.zeros, jax.nn.initializers.ones
        initial = {"kernel": jax.nn.initializers.lecun_normal(), "bias": zeros}
        initial |= {"gamma": ones, "beta": zeros, "mean": zeros, "variance": ones}
        where = _device(device)
        with jax.default_device(where):
            keys = jax.random.split(jax.random.key(seed), len(shapes))
            parameters = {
                name: initial[name.rpartition("/")[2]](key, _as_matrix(shape), jnp.float32).reshape(shape)
                for key, (name, shape) in zip(keys, shapes.items(), strict=True)
            }
        # What is put on a device stays there; other arrays go where JAX computes by default, to a GPU if there is one.
        return JaxNetwork(partial(apply, architecture), jax.device_put(parameters, where), architecture)

    def get_weights(self, native: Any, architecture: Architecture) -> Weights:
        return {name: np.array(native.parameters[name]) for name in architecture.weight_shapes}

    def set_weights(self, native: Any, architecture: Architecture, weights: Weights) -> None:
        native.parameters = {
            name: self.tensor(weights[name].astype(parameter.dtype), parameter)
            for name, parameter in native.parameters.items()
        }

    def trainer(self, native: Any, architecture: Architecture, momentum: float, weight_decay: float) -> Trainer:
        return _Trainer(native, architecture, momentum, weight_decay)


# The gradient of a kernel reads the input of a convolution in another order of axes. On a CPU, XLA removes barriers
# before it fuses operations, and then computes all since the last convolution again, in an order that uses caches
# badly. With the barriers kept, the input is stored once and copied: a step of ResNet-20 took 0.72 s of processor
# time in place of 0.91 (JAX 0.10.2). On a GPU the input is stored in any case, because convolutions are cuDNN's.
# Without the barrier, the sum of shifted images is fused into the pooling after it, which takes longer than it saves.
COMPILED_ON_A_CPU = {"xla_disable_hlo_passes": "cse_barrier_expander"}

Stepped = tuple[Parameters, Parameters, jax.Array]  # new parameters, new velocity, the loss before


def _make_step(architecture: Architecture, momentum: float, weight_decay: float) -> Callable[..., Stepped]:
    """Return one step of a training: a pure function of parameters, velocity, images, labels and the rate."""

    def loss(
        fitted: Parameters, statistics: Parameters, images: jax.Array, labels: jax.Array
    ) -> tuple[jax.Array, Parameters]:
        measured: Parameters = {}
        logits = apply(architecture, fitted | statistics, images, measured)
        log_p = jax.nn.log_softmax(logits)
        return -jnp.take_along_axis(log_p, labels[:, None], axis=1).mean(), measured

    def step(
        parameters: Parameters, velocity: Parameters, images: jax.Array, labels: jax.Array, rate: float
    ) -> Stepped:
        fitted = {name: parameters[name] for name in velocity}
        statistics = {name: parameter for name, parameter in parameters.items() if name not in velocity}
        (value, measured), gradients = jax.value_and_grad(loss, has_aux=True)(fitted, statistics, images, labels)
        velocity = jax.tree.map(lambda v, g, w: momentum * v + (g + weight_decay * w), velocity, gradients, fitted)
        return jax.tree.map(lambda w, v: w - rate * v, fitted, velocity) | measured, velocity, value

    return step


class _Trainer(Trainer):
    def __init__(self, network: JaxNetwork, architecture: Architecture, momentum: float, weight_decay: float):
        self._network = network
        self._velocity: Parameters = {
            name: jnp.zeros_like(parameter) for name, parameter in network.parameters.items() if is_trainable(name)
        }

        update = _make_step(architecture, momentum, weight_decay)
        on_cpu = all(device.platform == "cpu" for velocity in self._velocity.values() for device in velocity.devices())

        @partial(jax.jit, compiler_options=COMPILED_ON_A_CPU if on_cpu else None)
        def step(
            parameters: Parameters, velocity: Parameters, images: jax.Array, labels: jax.Array, rate: float
        ) -> Stepped:
            with jax.default_matmul_precision("float32"):
                return update(parameters, velocity, images, labels, rate)

        self._step = step

    def step(self, images: NDArray[np.float32], labels: NDArray[np.int64], learning_rate: float) -> float:
        network = self._network
        network.parameters, self._velocity, loss = self._step(
            network.parameters, self._velocity, images, labels.astype(np.int32), learning_rate
        )
        return float(loss)

    def velocity(self) -> Weights:
        return {name: np.array(array) for name, array in self._velocity.items()}

    def set_velocity(self, velocity: Weights) -> None:
        self._velocity = {name: jnp.array(velocity[name]) for name in self._velocity}


FRAMEWORK = _Jax()

"""JAX: networks are functions of parameters and images (N, H, W, C).

JAX has no layers of its own. Networks are built from `jax.lax` and `jax.nn`, and initialised as Flax does it by
default, with which most networks in JAX are written.
"""

from __future__ import annotations

import math
import os
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache, partial
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from ..errors import ModelError, RobustcmpError, UsageError, in_one_line
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
from .base import (
    Bounds,
    Device,
    Function,
    Make,
    Pullback,
    TrainableFramework,
    Trainer,
    as_tensor,
    require_gpu,
    round_up,
)
from .keras_networks import KerasModel, is_keras

# By default XLA takes three quarters of a GPU's memory, and the other frameworks get what is left.
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
os.environ.setdefault("NPROC", str(cores()))  # by itself XLA does not look at OMP_NUM_THREADS

import jax
import jax.numpy as jnp

Apply = Callable[[Any, jax.Array], Any]
"""Parameters and images to logits."""
Program = Callable[..., jax.Array]
MOST_PROGRAMS = 1024
Sizes = tuple[tuple[int, ...], ...]
_programs: dict[tuple[str, Sizes, frozenset[jax.Device]], Program] = {}  # by what they compute, and where
_one_at_a_time = threading.Lock()  # while a network is traced, it has other parameters

NUMBERS = "biufcV"  # kinds of NumPy's types; bfloat16 is a V
NEEDS_VALUES = (jax.errors.JAXTypeError, jax.errors.JAXIndexError)
PAIRS = (
    "Pass a pair (apply, parameters), where apply(parameters, images) returns logits: (module.apply, variables) of "
    "Flax linen, (haiku.without_apply_rng(transformed).apply, parameters) of Haiku. Pass a module of Flax nnx or "
    "Equinox as it is."
)
ONE_IMAGE = "If it takes one image and no batch, pass jax.vmap of it: jax.vmap(apply, (None, 0)) of a pair."
Parameters = dict[str, jax.Array]
GRADIENTS = 64  # at once: each number of them takes half a second to compile


class _Network:
    """A function of parameters and images, with its parameters: ``network(images) -> logits``.

    Parameters
    ----------
    apply : callable
        Parameters and images to logits.
    parameters : tree of arrays
        What it has learned.
    architecture : Architecture, optional
        The design that it was built from, whose weights are the parameters.
    """

    def __init__(self, apply: Apply, parameters: Any, architecture: Architecture | None = None):
        self.apply = apply
        self.parameters = parameters
        self.architecture = architecture

    def __call__(self, x: jax.Array) -> Any:
        return self.apply(self.parameters, x)


class _Shared:
    """A function of a network, compiled once for all trainings of its design.

    To JAX each training is another program, and to compile it for every size of batch takes longer than many attacks.
    Here the parameters are an argument, so that trainings come to the same program, which is compiled for one of them.

    Parameters
    ----------
    function : callable
        From tensors to a tensor, by way of the network.
    network : _Network
        What it asks. Its parameters are taken now: a snapshot.
    apply : callable, optional
        What computes the network's answers in the program, if in another order.
    options : dict, optional
        Of XLA's compiler.

    Attributes
    ----------
    exact : callable
        The same function by the network's own computation.
    """

    def __init__(
        self, function: Callable[..., jax.Array], network: _Network, apply: Apply | None = None, options: Any = None
    ):
        self.exact = self if apply is None else _Shared(function, network)
        self._options = options
        self._parameters = network.parameters
        self._is_built = network.architecture is not None
        self._text = ""
        self._programs: dict[Sizes, Program] = {}

        def with_parameters(parameters: Any, *tensors: jax.Array) -> jax.Array:
            before = network.parameters, network.apply
            network.parameters = parameters
            network.apply = apply or network.apply
            try:
                return function(*tensors)
            finally:
                network.parameters, network.apply = before

        self._lower = jax.jit(with_parameters).lower

    def __call__(self, *tensors: jax.Array) -> jax.Array:
        sizes = tuple(tensor.shape for tensor in tensors)
        if sizes not in self._programs:
            self._programs[sizes] = self._program(sizes, *tensors)
        return self._programs[sizes](self._parameters, *tensors)

    def _program(self, sizes: Sizes, *tensors: jax.Array) -> Program:
        with _one_at_a_time:
            # Networks that were built and compute the same for one size of batch do for every size.
            if not (self._text and self._is_built):
                self._text = self._lower(self._parameters, *tensors).as_text()
            key = self._text, sizes, frozenset(device for tensor in tensors for device in tensor.devices())
            if key not in _programs:
                lowered = self._lower(self._parameters, *tensors)
                _programs[key] = lowered.compile(compiler_options=self._options)
                if len(_programs) > MOST_PROGRAMS:
                    del _programs[next(iter(_programs))]
            return _programs[key]


def _device(name: Device) -> jax.Device:
    try:
        gpus = jax.devices("cuda")
    except RuntimeError:
        gpus = []
    require_gpu("jax", name, bool(gpus))
    return gpus[0] if gpus and name != "cpu" else jax.devices("cpu")[0]


def _apply_layers(
    layers: tuple[Layer, ...], parameters: Parameters, x: jax.Array, measured: Parameters | None = None
) -> jax.Array:
    """Return the logits (N, K) of images (N, H, W, C).

    With `measured`, as in training: batch norms take the statistics of the batch, and the moved ones are put there.
    """
    for layer in layers:
        match layer:
            case Conv():
                kernel = parameters[f"{layer.name}/kernel"]
                bias = parameters[f"{layer.name}/bias"]
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


@cache
def _of_layers(layers: tuple[Layer, ...]) -> Apply:
    """Return one function for all networks of a design, so that it is compiled for one of them."""
    return partial(_apply_layers, layers)


def _logits(apply: Apply, parameters: Any, x: jax.Array) -> Any:
    return as_tensor(apply(parameters, x))


_of_design = jax.jit(_logits, static_argnums=0)


def _convolve(layer: Conv, kernel: jax.Array, x: jax.Array) -> jax.Array:
    _, height, width, _ = x.shape
    size = layer.kernel
    stride = layer.stride
    padding = layer.padding
    if min(height, width) >= size:
        return jax.lax.conv_general_dilated(
            x, kernel, (stride, stride), [(padding, padding)] * 2, dimension_numbers=("NHWC", "HWIO", "NHWC")
        )
    # XLA has no fast convolution on a CPU for 3 × 3 on images of 2 × 2, where VGG-16 ends: patches times a matrix took
    # a 70th of the time (34 ms against 2,456 ms for 128 images and 512 channels, on one core).
    x = jnp.pad(x, ((0, 0), (padding, padding), (padding, padding), (0, 0)))
    rows, columns = (range(0, extent + 2 * padding - size + 1, stride) for extent in (height, width))
    patches = jnp.stack([x[:, i : i + size, j : j + size].reshape(len(x), -1) for i in rows for j in columns], axis=1)
    return (patches @ kernel.reshape(-1, layer.channels)).reshape(len(x), len(rows), len(columns), layer.channels)


def _apply_shifted(architecture: Architecture, parameters: Parameters, x: jax.Array) -> jax.Array:
    """Return the logits, the first convolution of grey images as a sum of shifted images times weights.

    On a CPU, LeNets answer 2.3 to 2.7 times as fast as with XLA's own convolution (one core). Images in colour would
    gain nothing, and gradients lose.
    """
    first = architecture.layers[0]
    if not isinstance(first, Conv) or first.stride != 1 or x.shape[-1] > 1:
        return _apply_layers(architecture.layers, parameters, x)
    kernel = parameters[f"{first.name}/kernel"]
    padding = first.padding
    padded = jnp.pad(x, ((0, 0), (padding, padding), (padding, padding), (0, 0)))
    height, width = (extent - first.kernel + 1 for extent in padded.shape[1:3])
    total: jax.Array = parameters[f"{first.name}/bias"]
    for row, column in np.ndindex(*kernel.shape[:2]):
        total = total + padded[:, row : row + height, column : column + width] * kernel[row, column, 0]
    total = jax.lax.optimization_barrier(total)  # type: ignore[no-untyped-call]  # for COMPILED_ON_A_CPU
    return _apply_layers(architecture.layers[1:], parameters, total)


def _normalise(layer: BatchNorm, parameters: Parameters, x: jax.Array, measured: Parameters | None) -> jax.Array:
    gamma, beta, mean, variance = (parameters[f"{layer.name}/{kind}"] for kind in ("gamma", "beta", *STATISTICS))
    if measured is not None:
        axes = tuple(range(x.ndim - 1))
        of_batch = x.mean(axes), x.var(axes)
        for kind, before, statistic in zip(STATISTICS, (mean, variance), of_batch, strict=True):
            measured[f"{layer.name}/{kind}"] = layer.momentum * before + (1 - layer.momentum) * statistic
        mean, variance = of_batch
    return (x - mean) * (gamma * jax.lax.rsqrt(variance + layer.epsilon)) + beta


def _float64() -> AbstractContextManager[None]:
    """Let float64 be float64 for a while, in this thread; JAX makes it float32 otherwise."""
    where: Any = jax if hasattr(jax, "enable_x64") else jax.experimental
    return cast(AbstractContextManager[None], where.enable_x64(True))


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

    def tensor(self, array: NDArray[Any], like: Any) -> Any:
        (device,) = like.devices()
        # device_put may alias NumPy's memory on the CPU, which the caller may change before it is read.
        with _float64() if array.dtype == np.float64 else nullcontext():
            return jax.device_put(np.array(array), device)

    def array(self, tensor: Any) -> NDArray[Any]:
        return np.array(tensor)

    def fill_size(self, n: int) -> int:
        # Every new shape is compiled anew.
        return 1 << (n - 1).bit_length() if n <= 16 else round_up(n, 4)

    @cache  # noqa: B019, there is one Jax; each function is compiled anew for every shape
    def maker(self, make: Make, bounds: Bounds) -> Function:
        compiled = jax.jit(super().maker(make, bounds))

        def made(*tensors: jax.Array) -> Any:
            with _float64():
                return compiled(*tensors)

        return made

    def full_precision(self, like: Any) -> AbstractContextManager[None]:
        return cast(AbstractContextManager[None], jax.default_matmul_precision("float32"))

    def is_on_gpu(self, like: Any) -> bool:
        (device,) = like.devices()
        return bool(device.platform == "gpu")

    def pullback(self, function: Function) -> Pullback:
        def pull_back(x: jax.Array, v: jax.Array) -> Any:
            return jax.vjp(function, x)[1](v)[0]

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
        if not isinstance(native, _Network) or not jax.tree.leaves(native.parameters):
            return jax.jit(function), jax.jit(pull_back)
        if native.architecture is None or self.is_on_gpu(like):
            return _Shared(function, native), _Shared(pull_back, native)
        shifted = partial(_apply_shifted, native.architecture)
        return _Shared(function, native, shifted, COMPILED_ON_A_CPU), _Shared(pull_back, native)

    def is_out_of_memory(self, error: Exception) -> bool:
        jax_says = isinstance(error, jax.errors.JaxRuntimeError) and "RESOURCE_EXHAUSTED" in str(error)
        return jax_says or super().is_out_of_memory(error)

    @contextmanager
    def fork_rng(self, seed: int) -> Iterator[None]:
        # JAX itself has no global state; EagerPy, through which Foolbox draws, keeps one.
        from eagerpy.tensor.jax import JAXTensor

        before = JAXTensor.key
        JAXTensor.key = jax.random.PRNGKey(seed)
        try:
            yield
        finally:
            JAXTensor.key = before

    def as_network(self, native: Any) -> _Network:
        if isinstance(native, _Network):
            return native
        apply, tree, hint = _pair(native)
        leaves, structure = jax.tree.flatten(tree)
        is_array = [_is_array(leaf) for leaf in leaves]
        if type(native) is tuple and not any(is_array):
            raise ModelError(
                f"the second of the pair (apply, parameters) should hold arrays, received {type(tree).__name__}. "
                f"{PAIRS}"
            )
        others = [None if array else leaf for leaf, array in zip(leaves, is_array, strict=True)]

        def of_arrays(arrays: Sequence[jax.Array], x: jax.Array) -> Any:
            left = iter(arrays)
            merged = [next(left) if array else other for other, array in zip(others, is_array, strict=True)]
            return apply(jax.tree.unflatten(structure, merged), x)

        arrays = [leaf for leaf, array in zip(leaves, is_array, strict=True) if array]
        # The caller may change arrays of NumPy.
        arrays = [np.array(array) if isinstance(array, (np.ndarray, np.generic)) else array for array in arrays]
        return _Network(_Brought(of_arrays, hint), arrays)

    def parameters(self, native: Any) -> list[NDArray[Any]] | None:
        if not isinstance(native, _Network):
            return None
        if native.architecture is not None:  # in the order of its layers
            return [*self.get_weights(native, native.architecture).values()]
        leaves = jax.tree.leaves(native.parameters)
        is_key = [jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key) for leaf in leaves]  # the state of dropout
        return [np.array(jax.random.key_data(leaf) if key else leaf) for leaf, key in zip(leaves, is_key, strict=True)]

    def state(self, native: Any) -> list[NDArray[Any]]:
        return []  # a call of a function that JAX compiles writes nothing

    def place(self, native: Any, device: Device) -> tuple[Function, jax.Array]:
        network = self.as_network(native)
        where = _device(device)
        # The parameters are an argument: closed over, they would be constants of the first compilation.
        network.parameters = jax.device_put(network.parameters, where)
        # What a caller brought is not kept for longer than its model.
        compiled = _of_design if network.architecture else jax.jit(lambda *asked: _logits(*asked), static_argnums=0)

        def function(x: jax.Array) -> Any:
            # GPUs and TPUs would use TF32 or bfloat16: too few bits for a comparison of near ties.
            with jax.default_matmul_precision("float32"):
                return compiled(network.apply, network.parameters, x)

        return function, jax.device_put(jnp.zeros(0, jnp.float32), where)

    def build(self, architecture: Architecture, seed: int | None, device: Device) -> _Network:
        shapes = architecture.weight_shapes
        zeros = jax.nn.initializers.zeros
        ones = jax.nn.initializers.ones
        # Draws take XLA half a second a shape to compile.
        initial = {"kernel": zeros if seed is None else jax.nn.initializers.lecun_normal(), "bias": zeros}
        initial |= {"gamma": ones, "beta": zeros, "mean": zeros, "variance": ones}
        where = _device(device)
        with jax.default_device(where):
            keys = jax.random.split(jax.random.key(seed or 0), len(shapes))
            parameters = {
                name: initial[name.rpartition("/")[2]](key, _as_matrix(shape), jnp.float32).reshape(shape)
                for key, (name, shape) in zip(keys, shapes.items(), strict=True)
            }
        # What is put on a device stays there; other arrays go where JAX computes by default, to a GPU if there is one.
        return _Network(_of_layers(architecture.layers), jax.device_put(parameters, where), architecture)

    def get_weights(self, native: Any, architecture: Architecture) -> Weights:
        return {name: np.array(native.parameters[name]) for name in architecture.weight_shapes}

    def set_weights(self, native: Any, architecture: Architecture, weights: Weights) -> None:
        native.parameters = {
            name: self.tensor(weights[name].astype(parameter.dtype), parameter)
            for name, parameter in native.parameters.items()
        }

    def trainer(self, native: Any, architecture: Architecture, momentum: float, weight_decay: float) -> Trainer:
        return _Trainer(native, architecture, momentum, weight_decay)


# what a caller brings -------------------------------------------------------------------------------------------------


def _pair(native: Any) -> tuple[Apply, Any, str]:
    """Return a function of parameters and images, the parameters, and what to check where the function fails."""
    library = _library(native)
    if library == "flax.nnx":
        return _of_nnx(native)
    if is_keras(native):
        return *KerasModel(native).stateless(), "A model of Keras is called with a batch of images and training=False."
    if library == "equinox":
        return (
            lambda module, x: jax.vmap(module)(x),
            native,
            "A module of Equinox is called as jax.vmap(module)(images), without a key or state. Call "
            "equinox.nn.inference_mode(module) first; of a module that has a state, or that takes a batch, pass a pair "
            "(apply, module), where apply(module, images) returns logits.",
        )
    if library == "flax.linen" and native.scope is not None:  # from module.bind(variables)
        module, variables = native.unbind()
        native = module.apply, variables
    if type(native) is tuple and len(native) == 2 and callable(native[0]) and _library(native[0]) != "flax.linen":
        return (
            *native,
            "It is called as apply(parameters, images). Bind all else, as in partial(module.apply, train=False), and "
            "switch off dropout and updates of batch statistics.",
        )
    if callable(native) and library != "flax.linen":
        return lambda _, x: native(x), (), "It is called with a batch of images and nothing else."
    kinds = ", ".join(type(part).__name__ for part in native) if type(native) is tuple else ""
    received = f"a tuple ({kinds})" if type(native) is tuple else type(native).__name__
    raise ModelError(f"expected a function from images to logits, or a pair, received {received}. {PAIRS}")


def _library(native: Any) -> str:
    """Return the library that a network's class comes from, "" for none that is told apart."""
    names = [cls.__module__ for cls in type(native).__mro__]
    libraries = ("flax.nnx.module", "flax.linen.module", "equinox")
    matches = (name for name in libraries for module in names if f"{module}.".startswith(f"{name}."))
    return next(matches, "").removesuffix(".module")


def _of_nnx(module: Any) -> tuple[Apply, Any, str]:
    nnx = sys.modules["flax.nnx"]
    for path, part in nnx.iter_modules(module):
        for name in ("deterministic", "use_running_average"):
            if getattr(part, name, None) is False:
                raise UsageError(
                    f"the module of Flax nnx is in training mode ({'.'.join(map(str, (*path, name)))} is False), where "
                    "dropout and batch norm make its answers random. Call module.eval() first."
                )
    definition, state = nnx.split(module)
    return (
        lambda state, x: nnx.merge(definition, state)(x),
        state,
        "A module of Flax nnx is called with a batch of images and nothing else. For other arguments pass a pair "
        "(apply, state), where apply(state, images) returns logits, with definition, state = nnx.split(module).",
    )


def _is_array(leaf: Any) -> bool:
    """Say whether something in a tree of parameters is an array; raise `UsageError` for one without values."""
    if isinstance(leaf, jax.ShapeDtypeStruct) or (isinstance(leaf, jax.Array) and leaf.is_deleted()):
        raise UsageError(
            "some parameters of the JAX network have no values: they are only shapes (jax.ShapeDtypeStruct), or were "
            "donated to a compiled step. Load them, or pass those that the last step returned."
        )
    is_numpy = isinstance(leaf, (np.ndarray, np.generic)) and leaf.dtype.kind in NUMBERS
    return is_numpy or isinstance(leaf, jax.Array)


class _Brought:
    """A function of parameters and images that a caller brought: whatever it raises becomes one line with a remedy."""

    def __init__(self, apply: Apply, hint: str):
        self._apply = apply
        self._hint = hint

    def __call__(self, parameters: Any, x: jax.Array) -> jax.Array:
        try:
            logits: jax.Array = as_tensor(self._apply(parameters, x))
        except (RobustcmpError, MemoryError, jax.errors.JaxRuntimeError):
            raise
        except Exception as error:  # whatever a network and its library raise
            raise UsageError(self._explain(error, x)) from error
        if logits.ndim == 1 and logits.shape != x.shape[:1]:
            raise ModelError(f"the JAX network answers {x.shape[0]} images with the shape {logits.shape}. {ONE_IMAGE}")
        return logits

    def _explain(self, error: Exception, x: jax.Array) -> str:
        kind = type(error).__name__
        if isinstance(error, NEEDS_VALUES):  # what follows the first line is advice about jit
            return (
                f"the JAX network cannot be traced, because it needs the values of its images or parameters: {kind}: "
                f"{str(error).partition('.')[0]}. Write it with jax.numpy and jax.lax, or pass functions of NumPy "
                "arrays to robustcmp.wrap_functions."
            )
        reason = in_one_line(error, 300).rstrip(".")
        return (
            f"the JAX network failed on images of shape {x.shape}: {kind}: {reason}. {self._hint} If it takes images "
            f"in another layout or precision, pass data_format=, or cast them in apply. {ONE_IMAGE}"
        )


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
        logits = _apply_layers(architecture.layers, fitted | statistics, images, measured)
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
    def __init__(self, network: _Network, architecture: Architecture, momentum: float, weight_decay: float):
        self._network = network
        self._velocity: Parameters = {
            name: jnp.zeros_like(parameter) for name, parameter in network.parameters.items() if is_trainable(name)
        }

        on_cpu = all(device.platform == "cpu" for velocity in self._velocity.values() for device in velocity.devices())

        options = COMPILED_ON_A_CPU if on_cpu else None
        self._step = jax.jit(_make_step(architecture, momentum, weight_decay), compiler_options=options)

    def step(self, images: NDArray[np.float32], labels: NDArray[np.int64], learning_rate: float) -> float:
        network = self._network
        with jax.default_matmul_precision("float32"):
            network.parameters, self._velocity, loss = self._step(
                network.parameters, self._velocity, images, labels.astype(np.int32), learning_rate
            )
        return float(loss)

    def velocity(self) -> Weights:
        return {name: np.array(array) for name, array in self._velocity.items()}

    def set_velocity(self, velocity: Weights) -> None:
        self._velocity = {name: jnp.array(velocity[name]) for name in self._velocity}


FRAMEWORK = _Jax()

"""Networks of JAX: a function of parameters and images, and its parameters.

Everything that a caller brings becomes this pair, so that the parameters are arguments of the compiled program, and
known. Libraries are told by the modules of their classes: whoever holds a network of one has imported it.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from ..errors import ModelError, RobustcmpError, UsageError, in_one_line
from ..networks.architecture import Architecture
from .base import as_tensor
from .keras_networks import is_keras, stateless

Apply = Callable[[Any, jax.Array], Any]
"""Parameters and images to logits."""
Program = Callable[..., jax.Array]
MOST_PROGRAMS = 1024
_programs: dict[tuple[str, frozenset[jax.Device]], Program] = {}  # by what they compute, and where
_one_at_a_time = threading.Lock()  # while a network is traced, it has other parameters

NUMBERS = "biufcV"  # kinds of NumPy's types; bfloat16 is a V
NEEDS_VALUES = (jax.errors.JAXTypeError, jax.errors.JAXIndexError)
PAIRS = (
    "Pass a pair (apply, parameters), where apply(parameters, images) returns logits: (module.apply, variables) of "
    "Flax linen, (haiku.without_apply_rng(transformed).apply, parameters) of Haiku. Pass a module of Flax nnx or "
    "Equinox as it is."
)


ONE_IMAGE = "If it takes one image and no batch, pass jax.vmap of it: jax.vmap(apply, (None, 0)) of a pair."


class JaxNetwork:
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


class Shared:
    """A function of a network, compiled once for all trainings of its design.

    To JAX each training is another program, and to compile it for every size of batch takes longer than many attacks.
    Here the parameters are an argument, so that trainings come to the same program, which is compiled for one of them.

    Parameters
    ----------
    function : callable
        From tensors to a tensor, by way of the network.
    network : JaxNetwork
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
        self, function: Callable[..., jax.Array], network: JaxNetwork, apply: Apply | None = None, options: Any = None
    ):
        self.exact = self if apply is None else Shared(function, network)
        self._options = options
        self._parameters = network.parameters
        self._programs: dict[tuple[tuple[int, ...], ...], Program] = {}

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
            self._programs[sizes] = self._program(*tensors)
        return self._programs[sizes](self._parameters, *tensors)

    def _program(self, *tensors: jax.Array) -> Program:
        with _one_at_a_time:
            lowered = self._lower(self._parameters, *tensors)
            devices = frozenset(device for tensor in tensors for device in tensor.devices())
            key = lowered.as_text(), devices
            if key not in _programs:
                _programs[key] = lowered.compile(compiler_options=self._options)
                if len(_programs) > MOST_PROGRAMS:
                    del _programs[next(iter(_programs))]
            return _programs[key]


# what a caller brings -------------------------------------------------------------------------------------------------


def as_network(native: Any) -> JaxNetwork:
    """Return what a caller brought as a network.

    Raises
    ------
    ModelError
        It is none.
    UsageError
        It is none that can be asked: a module in training mode, or parameters without values.
    """
    if isinstance(native, JaxNetwork):
        return native
    apply, tree, hint = _pair(native)
    leaves, structure = jax.tree.flatten(tree)
    is_array = [_is_array(leaf) for leaf in leaves]
    if type(native) is tuple and not any(is_array):
        raise ModelError(
            f"the second of the pair (apply, parameters) should hold arrays, received {type(tree).__name__}. {PAIRS}"
        )
    others = [None if array else leaf for leaf, array in zip(leaves, is_array, strict=True)]

    def of_arrays(arrays: Sequence[jax.Array], x: jax.Array) -> Any:
        left = iter(arrays)
        merged = [next(left) if array else other for other, array in zip(others, is_array, strict=True)]
        return apply(jax.tree.unflatten(structure, merged), x)

    arrays = [leaf for leaf, array in zip(leaves, is_array, strict=True) if array]
    # The caller may change arrays of NumPy.
    arrays = [np.array(array) if isinstance(array, (np.ndarray, np.generic)) else array for array in arrays]
    return JaxNetwork(_Brought(of_arrays, hint), arrays)


def _pair(native: Any) -> tuple[Apply, Any, str]:
    """Return a function of parameters and images, the parameters, and what to check where the function fails."""
    library = _library(native)
    if library == "flax.nnx":
        return _of_nnx(native)
    if is_keras(native):
        return *stateless(native), "A model of Keras is called with a batch of images and training=False."
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
    known = ("flax.nnx.module", "flax.linen.module", "equinox")
    found = (name for name in known for module in names if f"{module}.".startswith(f"{name}."))
    return next(found, "").removesuffix(".module")


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

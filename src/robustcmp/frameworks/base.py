"""The contract that every framework's adapter fulfils.

An adapter knows how its framework makes a tensor, answers a query, differentiates, builds a network and takes a
training step. It knows nothing of attacks, subsets or runs. NumPy images are (N, H, W, C) float32; canonical weights
are described in `robustcmp.networks.architecture`.
"""

from __future__ import annotations

import hashlib
import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any, ClassVar, Literal

import eagerpy as ep
import numpy as np
from numpy.typing import NDArray

from ..errors import DeploymentError, ModelError, UsageError
from ..networks.architecture import Architecture
from ..networks.weights import Weights
from . import keras_networks

DataFormat = keras_networks.DataFormat
Device = Literal["auto", "cpu", "cuda"]
Function = Callable[..., Any]
"""Images to logits, in tensors of one framework; or what the images are made from."""
Pullback = Callable[[Any, Any], Any]
"""Images and v (N, K) to the gradient of Σ v·logits with respect to the images; v is held constant."""
Make = Callable[..., Any]
"""Images from EagerPy tensors, and so from those of any framework."""
Bounds = tuple[float, float]
Draws = Callable[[], AbstractContextManager[None]]
"""Seeds what is drawn inside of a ``with`` block, always alike."""


class Trainer(ABC):
    """One network being trained with stochastic gradient descent: v ← momentum·v + g, w ← w − rate·v."""

    @abstractmethod
    def step(self, images: NDArray[np.float32], labels: NDArray[np.int64], learning_rate: float) -> float:
        """Take one step on a batch, images (N, H, W, C) and labels (N,), and return its mean cross-entropy."""

    @abstractmethod
    def velocity(self) -> Weights:
        """Return the optimiser's state, an array for each weight, in the canonical layout."""

    @abstractmethod
    def set_velocity(self, velocity: Weights) -> None:
        """Restore what `velocity` returned."""


class Framework(ABC):
    """One framework. Methods that make a tensor put it on the device of `like`, and copy."""

    name: str
    data_format: ClassVar[DataFormat]
    """The layout its networks have unless they say otherwise."""
    differences: dict[str, str] = {}
    """What stays this framework's own in a training that is otherwise the same everywhere."""

    @abstractmethod
    def version(self) -> str:
        """Return the framework's version."""

    # asking ------------------------------------------------------------------------------------------------------

    @abstractmethod
    def tensor(self, array: NDArray[Any], like: Any) -> Any:
        """Return a copy of a NumPy array as a tensor."""

    @abstractmethod
    def array(self, tensor: Any) -> NDArray[Any]:
        """Return a tensor as a NumPy array."""

    def forward(self, function: Function, like: Any, *arrays: NDArray[Any]) -> NDArray[np.float32]:
        """Return the logits (N, K) for a batch, without gradients: arrays with N entries each."""
        with self.full_precision(like):
            return self.array(function(*(self.tensor(array, like) for array in arrays)))

    def fill_size(self, n: int) -> int:
        """Return to how many a batch of n is better filled up, where each new size costs time or memory."""
        return n

    def maker(self, make: Make, bounds: Bounds) -> Function:
        """Return a function in EagerPy as one of own tensors, whose images are rounded to float32 and clipped.

        What is float64 in it stays so until then.
        """
        return lambda *tensors: make(*map(ep.astensor, tensors)).float32().clip(*bounds).raw

    def full_precision(self, like: Any) -> AbstractContextManager[None]:
        """Keep the device of `like` from multiplying with fewer bits than float32 has (TF32), inside a ``with`` block.

        Ten bits of mantissa are too few for a comparison of near ties. Gradients can be taken inside, whatever the
        caller has switched off.
        """
        return nullcontext()

    def is_on_gpu(self, like: Any) -> bool:
        """Say whether a tensor is on a GPU."""
        return False

    def no_gradient(self, native: Any) -> str:
        """Return why a network is known to have no gradient, "" where it may have one."""
        return ""

    @abstractmethod
    def pullback(self, function: Function) -> Pullback:
        """Return how a function is differentiated; it is zero where nothing depends on the images."""

    def vjp(
        self, pullback: Pullback, images: NDArray[np.float32], v: NDArray[np.float32], like: Any
    ) -> NDArray[np.float32]:
        """Return the gradient for a batch of images in the function's own layout."""
        with self.full_precision(like):
            return self.array(pullback(self.tensor(images, like), self.tensor(v, like)))

    def ask_and_pull_back(
        self,
        function: Function,
        pullback: Pullback,
        images: NDArray[np.float32],
        choose: Callable[[NDArray[np.float32]], NDArray[np.float32]],
        like: Any,
    ) -> NDArray[np.float32]:
        """Return the gradient for a batch as `vjp` does, with v chosen from the logits."""
        return self.vjp(pullback, images, choose(self.forward(function, like, images)), like)

    def compile(
        self, function: Function, native: Any, images: NDArray[np.float32], like: Any
    ) -> tuple[Function, Pullback]:
        """Return a snapshot of a function that answers faster, and one of its pullback.

        Parameters
        ----------
        function : callable
            Images in its own layout to logits.
        native : object or None
            The network behind it, where that is known.
        images : ndarray of float32
            A few, in the function's own layout.
        like : tensor
            On the device where it is asked.

        Raises
        ------
        Exception
            The function cannot be traced; whatever the framework raises then.
        """
        raise NotImplementedError(f"{self.name} compiles nothing")

    def is_out_of_memory(self, error: Exception) -> bool:
        """Say whether an error means that a batch was too large."""
        return isinstance(error, MemoryError)

    def threads(self) -> int:
        """Return how many threads a call from this thread uses; 0 where all callers share one pool."""
        return 0

    def set_threads(self, count: int) -> None:  # noqa: B027
        """Let calls from this thread use so many threads; nothing where all callers share one pool."""

    def fork_rng(self, seed: int) -> AbstractContextManager[None]:
        """Seed the framework's global random state inside a ``with`` block and restore the caller's after it."""
        return nullcontext()

    def generator_state(self) -> bytes:
        """Return the framework's global random state, empty where it has none or does not show it."""
        return b""

    def generator_states(self) -> tuple[object, ...]:
        """Return the states of the global generators that a model may draw from, which differ once it has drawn.

        Python's own is not among them for functions of NumPy arrays: what asks a server may draw from it.
        """
        _, numpy, position, *more = np.random.get_state(legacy=True)  # noqa: NPY002
        python = random.getstate() if self.name != "numpy" else None
        return python, np.asarray(numpy).tobytes(), position, *more, self.generator_state()

    @contextmanager
    def fork_generators(self, name: str, seed: int, number: int) -> Iterator[None]:
        """Seed the generators of Python, NumPy and the framework inside a ``with`` block, and restore them after it.

        The draws are a function of the name, the seed and the number.
        """
        digest = hashlib.blake2b(f"{name}:{seed}:{number}".encode(), digest_size=4).digest()
        derived = int.from_bytes(digest, "little") % 2**31
        python = random.getstate()
        numpy = np.random.get_state()  # noqa: NPY002
        random.seed(derived)
        np.random.seed(derived)  # noqa: NPY002
        try:
            with self.fork_rng(derived):
                yield
        finally:
            random.setstate(python)
            np.random.set_state(numpy)  # noqa: NPY002

    def alone(self, function: Function, draws: Draws) -> Function:
        """Return a function that draws at random as one that answers each image of a batch as if it came alone.

        Parameters
        ----------
        function : callable
            Images in its own layout to logits.
        draws : callable
            Seeds the draws of one call inside a ``with`` block.
        """

        def answer_each(images: Any) -> Any:
            x, restore = ep.astensor_(images)
            answers = []
            for i in range(len(x)):
                with draws():
                    answers.append(ep.astensor(function(x[i : i + 1].raw)))
            return restore(ep.concatenate(answers))

        return answer_each

    # networks ----------------------------------------------------------------------------------------------------

    def as_network(self, native: Any) -> Any:
        """Return what a caller brought as the object that the other methods take for its network."""
        return native

    def layout(self, native: Any) -> DataFormat:
        """Return the layout of images that a network takes unless its caller says otherwise."""
        return keras_networks.KerasModel(native).layout() if keras_networks.is_keras(native) else self.data_format

    def ends_in_softmax(self, native: Any) -> bool:
        """Say whether a network is known by its layers to end in a softmax, which `without_softmax` can cut."""
        return keras_networks.is_keras(native) and keras_networks.KerasModel(native).ends_in_softmax()

    def without_softmax(self, native: Any) -> Any:
        """Return a network that answers the logits of one that ends in a softmax, which stays as it is.

        Raises
        ------
        UsageError
            No softmax is found at its end.
        """
        if keras_networks.is_keras(native):
            return keras_networks.KerasModel(native).without_softmax()
        raise UsageError(
            "cut_softmax=True takes a Functional or Sequential model of Keras, or a torch.nn.Sequential, received "
            f"{type(native).__name__}. {keras_networks.WITHOUT_LOGITS}"
        )

    def eight_bit_layer(self, native: Any) -> str:
        """Return the name of the layer by which a network takes images in [0, 255], "" where none is known."""
        return keras_networks.KerasModel(native).eight_bit_layer() if keras_networks.is_keras(native) else ""

    def parameters(self, native: Any) -> list[NDArray[Any]] | None:
        """Return all that a network has learned, in an order of its own; None where that cannot be had.

        An array may hold the bytes of a kind of number that NumPy has not.
        """
        return None

    def state(self, native: Any) -> list[NDArray[Any]]:
        """Return copies of all that a call of a network could write; nothing where that is unknown."""
        return [array.copy() for array in self.parameters(native) or ()]

    def export_onnx(self, native: Any, shape: tuple[int, ...], path: Path) -> None:
        """Write a network of the caller's own as ONNX, in float32, for any number of images (H, W, C).

        Raises
        ------
        DeploymentError
            It cannot be exported.
        """
        raise DeploymentError(
            f"robustcmp exports networks of {self.name} to ONNX only where it knows their design. Export this one with "
            "tools of its framework, and compare the file: onnxruntime=FILE.onnx"
        )

    @abstractmethod
    def place(self, native: Any, device: Device) -> tuple[Function, Any]:
        """Put a network on a device; return it as a differentiable function, and an empty tensor on that device.

        Raises
        ------
        UsageError
            The device is not there, or the network is not ready to be asked (a torch module in training mode).
        """


def require_gpu(framework: str, device: Device, has_gpu: bool) -> None:
    """Raise `UsageError` for a GPU that a framework does not see."""
    if device == "cuda" and not has_gpu:
        raise UsageError(f"device 'cuda' was requested, but {framework} sees no GPU. Use device='cpu' or 'auto'.")


def pad(array: NDArray[Any], size: int) -> NDArray[Any]:
    """Fill a batch up to a size with its last entry, which the model accepts as it does the others."""
    if len(array) == size:
        return array
    filled = np.empty_like(array, shape=(size, *array.shape[1:]))  # in the same order of the axes
    filled[: len(array)] = array
    filled[len(array) :] = array[-1:]
    return filled


def round_up(n: int, sizes: int) -> int:
    """Return the least number from n on that is one of `sizes` equally far apart from each power of two to the next.

    Up to twice `sizes` every number is one.
    """
    step = max(1, (1 << (n - 1).bit_length()) // (2 * sizes))
    return -(-n // step) * step


class TrainableFramework(Framework):
    """A framework that builds and trains the architectures."""

    def load(self, path: Path, native: Any) -> Any:
        """Return a trained network from a file of the framework's own `FILES`, without running anything of the file.

        Parameters
        ----------
        path : Path
            The file.
        native : object or None
            An untrained network for the file's weights. For a file that holds a whole network: what it should be
            like, or None.

        Raises
        ------
        WeightsError
            The file is broken, holds more than data, or does not fit.
        """
        raise NotImplementedError(f"{self.name} reads no files of its own")

    @abstractmethod
    def build(self, architecture: Architecture, seed: int | None, device: Device) -> Any:
        """Build a network with the framework's own layers and own default initialisation.

        The initial weights are a function of `seed`; no global random state is touched. Without a seed they may be
        anything, to be set.
        """

    @abstractmethod
    def get_weights(self, native: Any, architecture: Architecture) -> Weights:
        """Return a network's weights in the canonical layout."""

    @abstractmethod
    def set_weights(self, native: Any, architecture: Architecture, weights: Weights) -> None:
        """Put canonical weights into a network, bit for bit."""

    @abstractmethod
    def trainer(self, native: Any, architecture: Architecture, momentum: float, weight_decay: float) -> Trainer:
        """Return what trains a network in place; `weight_decay` adds weight_decay·w to the gradient of every weight."""


def find_logits(answer: Any) -> Any:
    """Return the part of an answer that is its logits; the answer itself where there is no saying.

    That is an attribute or a key ``logits``, as the models of transformers have, or the only part.
    """
    if hasattr(answer, "logits"):
        return find_logits(answer.logits)
    if isinstance(answer, Mapping) and "logits" in answer:
        return find_logits(answer["logits"])
    if isinstance(answer, (Mapping, tuple, list)) and len(answer) == 1:
        return find_logits(next(iter(answer.values() if isinstance(answer, Mapping) else answer)))
    return answer


def as_tensor(answer: Any) -> Any:
    """Return the logits in an answer as a tensor in float32, to which a gradient flows back.

    Raises
    ------
    ModelError
        The answer has several parts, and none of them is called logits; or it is no tensor.
    """
    logits = find_logits(answer)
    try:
        tensor = ep.astensor(logits)
    except ValueError:
        raise ModelError(
            f"the model should return one tensor of logits, received a {type(logits).__name__}. Wrap a function, or a "
            "network around this one, that returns the logits alone."
        ) from None
    float32 = tensor.float32()
    return logits if tensor.dtype == float32.dtype else float32.raw

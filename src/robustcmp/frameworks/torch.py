"""PyTorch: networks are `torch.nn.Sequential`, tensors are (N, C, H, W)."""

from __future__ import annotations

import copy
import io
import sys
import threading
import warnings
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, redirect_stdout
from contextvars import ContextVar
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.checkpoint import checkpoint

from ..errors import LOG, DeploymentError, ModelError, NoGradientError, UsageError
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
    Shape,
    is_trainable,
)
from ..networks.weights import Weights
from .base import (
    Device,
    Draws,
    Function,
    Pullback,
    TrainableFramework,
    Trainer,
    as_tensor,
    find_logits,
    require_gpu,
    round_up,
)
from .keras_networks import WITHOUT_LOGITS, KerasModel, is_keras
from .torch_files import load_weights

_gradient_wanted: ContextVar[bool] = ContextVar("gradient_wanted", default=False)
"""Whether a gradient is wanted inside of `torch.vmap`, whose tensors do not say so."""


def _device(name: Device) -> torch.device:
    require_gpu("torch", name, torch.cuda.is_available())
    return torch.device("cuda" if name != "cpu" and torch.cuda.is_available() else "cpu")


class _NoTF32:
    """Switches TF32 off for a while: it keeps 10 bits of mantissa, too few for a comparison of near ties.

    The switch is the whole process's. So the first thread that comes turns it, and the last that goes turns it back.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._inside = 0
        self._former: list[tuple[Any, str, Any]] = []

    def __enter__(self) -> None:
        with self._lock:
            if not self._inside:
                self._former = self._switches()
                for backend, name, _ in self._former:
                    setattr(backend, name, False if name == "allow_tf32" else "ieee")
            self._inside += 1

    def __exit__(self, *error: object) -> None:
        with self._lock:
            self._inside -= 1
            if not self._inside:
                for backend, name, value in self._former:
                    setattr(backend, name, value)

    def _switches(self) -> list[tuple[Any, str, Any]]:
        cudnn = torch.backends.cudnn
        matmul = torch.backends.cuda.matmul
        try:
            return [(backend, "allow_tf32", backend.allow_tf32) for backend in (cudnn, matmul)]
        except RuntimeError:  # the caller has used the newer names, and torch refuses to mix the two
            newer: Any = (cudnn.conv, cudnn.rnn, matmul)  # type: ignore[attr-defined]
            return [(backend, "fp32_precision", backend.fp32_precision) for backend in newer]


_NO_TF32 = _NoTF32()


@contextmanager
def _full_precision(device: torch.device) -> Iterator[None]:
    """Switch off what the caller may have switched on: autocast, inference mode, and TF32."""
    tf32 = _NO_TF32 if device.type == "cuda" else nullcontext()
    with torch.inference_mode(False), torch.autocast(device.type, enabled=False), tf32:
        yield


@contextmanager
def _own_defaults() -> Iterator[None]:
    """Make modules as always, whatever the caller has set: on the CPU, in float32, with gradients."""
    dtype = torch.get_default_dtype()
    torch.set_default_dtype(torch.float32)
    try:
        with torch.device("cpu"), torch.inference_mode(False):
            yield
    finally:
        torch.set_default_dtype(dtype)


def _is_quantised(module: torch.nn.Module) -> bool:
    """Say whether a module, or what it was scripted from, computes in whole numbers."""
    kind = type(module)
    name = f"{kind.__module__}.{kind.__name__}"
    if isinstance(module, torch.jit.ScriptModule):
        name = str(module._c._type().qualified_name())
    is_float = ".reference." in name or name.endswith("FloatFunctional")
    return "torch.ao.nn." in name and ".quantized." in name and not is_float


_OF_ANY_MODULE = frozenset(vars(torch.nn.Module()))
QUANTISED = (
    "the torch module is quantised, and torch does not differentiate whole numbers. Use attacks without a gradient, "
    "such as single pixel and boundary."
)
NO_GRADIENT = (
    "torch cannot differentiate the model's answer: its forward detaches it, runs under torch.no_grad(), or computes "
    "in whole numbers. Use attacks without a gradient, such as single pixel and boundary."
)


def _tensors_in(value: Any, depth: int) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    if not depth or not isinstance(value, (dict, list, tuple)):
        return []
    inside = value.values() if isinstance(value, dict) else value
    return [tensor for each in list(inside) for tensor in _tensors_in(each, depth - 1)]


class _Torch(TrainableFramework):
    name = "torch"
    data_format = "channels_first"
    differences = {
        "initialisation": "kernels and biases uniform in ±1/√fan_in (torch.nn)",
        "batch norm": "the variance moves towards that of n - 1 values",
    }

    def version(self) -> str:
        return str(torch.__version__)

    def tensor(self, array: NDArray[Any], like: Any) -> torch.Tensor:
        return torch.tensor(array, device=like.device)

    def array(self, tensor: Any) -> NDArray[Any]:
        return np.asarray(tensor.detach().cpu().numpy())

    def fill_size(self, n: int) -> int:
        return round_up(n, 16)  # oneDNN keeps what it has made for each size

    def forward(self, function: Function, like: Any, *arrays: NDArray[Any]) -> NDArray[np.float32]:
        with self.full_precision(like), torch.inference_mode():
            return self.array(function(*(self.tensor(array, like) for array in arrays)))

    def full_precision(self, like: Any) -> AbstractContextManager[None]:
        as_usual = torch.is_grad_enabled() and not torch.is_inference_mode_enabled()
        if as_usual and like.device.type != "cuda" and not torch.is_autocast_enabled(like.device.type):
            return nullcontext()
        return _full_precision(like.device)

    def is_on_gpu(self, like: Any) -> bool:
        return bool(like.device.type == "cuda")

    def pullback(self, function: Function) -> Pullback:
        def pull_back(x: torch.Tensor, v: torch.Tensor | Callable[[torch.Tensor], torch.Tensor]) -> torch.Tensor:
            with torch.enable_grad():
                logits = function(x.requires_grad_())
                if not logits.requires_grad:
                    raise NoGradientError(NO_GRADIENT)
                if callable(v):
                    v = v(logits)
                (gradient,) = torch.autograd.grad(logits, x, v, allow_unused=True)
            if gradient is None:  # of the network's parameters alone
                raise NoGradientError(NO_GRADIENT)
            return gradient

        return pull_back

    def ask_and_pull_back(
        self,
        function: Function,
        pullback: Pullback,
        images: NDArray[np.float32],
        choose: Callable[[NDArray[np.float32]], NDArray[np.float32]],
        like: Any,
    ) -> NDArray[np.float32]:
        with self.full_precision(like):
            x = self.tensor(images, like)
            return self.array(pullback(x, lambda logits: self.tensor(choose(self.array(logits)), like)))

    def compile(
        self, function: Function, native: Any, images: NDArray[np.float32], like: Any
    ) -> tuple[Function, Pullback]:
        jit: Any = torch.jit
        if isinstance(native, torch.nn.Module):
            _check(native)  # it may have been put into training mode since it was wrapped
        usual = self.full_precision(like)
        with usual, torch.no_grad(), warnings.catch_warnings(record=True) as caught:
            # Deprecated, and still the fastest on small networks.
            warnings.filterwarnings("ignore", r"`torch\.jit\.\w+` is (deprecated|not supported)", DeprecationWarning)
            warnings.simplefilter("always", jit.TracerWarning)
            # Its own check of the trace takes as long as the rest; whoever compiles compares the answers.
            traced = jit.trace(_Traceable(function, native).eval(), self.tensor(images, like), check_trace=False)
            traced = jit.freeze(traced)
            # What it does beyond freezing is for CPUs: oneDNN's layouts, convolutions with their activations in one.
            fast: Function = jit.optimize_for_inference(traced) if like.device.type == "cpu" else traced
        for warning in caught:
            if issubclass(warning.category, jit.TracerWarning):
                raise ModelError(f"its trace may be valid only for these images: {warning.message}")
            warnings.warn_explicit(warning.message, warning.category, warning.filename, warning.lineno)
        return fast, self.pullback(function)

    def is_out_of_memory(self, error: Exception) -> bool:
        # The memory of a CPU runs out with a RuntimeError, and so does that of a GPU inside of TorchScript.
        dtypes = ("can't allocate memory", "not enough memory", "out of memory", "ALLOC_FAILED")
        torch_says = isinstance(error, RuntimeError) and any(words in str(error) for words in dtypes)
        return torch_says or super().is_out_of_memory(error)

    def threads(self) -> int:
        return torch.get_num_threads()

    def set_threads(self, count: int) -> None:
        torch.set_num_threads(count)

    @contextmanager
    def fork_rng(self, seed: int) -> Iterator[None]:
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            yield

    def as_network(self, native: Any) -> Any:
        return _KerasNetwork(native) if is_keras(native) else native

    def generator_state(self) -> bytes:
        on_gpus = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else []  # type: ignore[no-untyped-call]
        states = [torch.random.get_rng_state(), *on_gpus]
        return b"".join(state.numpy().tobytes() for state in states)

    def alone(self, function: Function, draws: Draws) -> Function:
        one_by_one = super().alone(function, draws)

        def answer_together(x: torch.Tensor) -> torch.Tensor:
            token = _gradient_wanted.set(x.requires_grad)
            try:
                with draws():
                    answers: torch.Tensor = torch.vmap(lambda image: function(image[None]), randomness="same")(x)
            finally:
                _gradient_wanted.reset(token)
            return answers.flatten(0, 1)

        @cache
        def is_answered_together(shape: tuple[int, ...], device: torch.device) -> bool:
            try:
                answer_together(torch.zeros(2, *shape, device=device))
            except Exception as error:  # whatever the module does that torch.vmap refuses
                LOG.info("a random module is asked one image at a time: %s: %s", type(error).__name__, error)
                return False
            return True

        def answer(x: torch.Tensor) -> Any:
            x = x.contiguous()  # torch draws in the order of the memory
            together = len(x) > 1 and is_answered_together(x.shape[1:], x.device)
            ask: Function = answer_together if together else one_by_one
            if x.requires_grad:
                # The passes of a mean would all be kept in memory until their gradient: each is asked again for it.
                ask = partial(checkpoint, ask, use_reentrant=False, preserve_rng_state=False)
            return ask(x)

        return answer

    def ends_in_softmax(self, native: Any) -> bool:
        while _is_sequence(native) and len(native):
            native = native[-1]
        return _is_softmax(native) or super().ends_in_softmax(native)

    def without_softmax(self, native: Any) -> Any:
        if not isinstance(native, torch.nn.Sequential) or not len(native):
            return super().without_softmax(native)
        if not _is_sequence(native):
            raise UsageError(
                "cut_softmax=True takes a torch.nn.Sequential whose layers are all that it does, and this one, "
                f"{type(native).__name__}, has a forward or hooks of its own. {WITHOUT_LOGITS}"
            )
        layers = list(native)  # children() would leave out what stands there twice
        last = layers.pop()
        if not _is_softmax(last) and not isinstance(last, torch.nn.Sigmoid):
            layers.append(self.without_softmax(last))
        cut = torch.nn.Sequential(*layers)
        cut.training = native.training  # train() would change layers that are shared
        return cut

    def place(self, native: Any, device: Device) -> tuple[Function, torch.Tensor]:
        where = _device(device)
        module = _check(native).to(where)
        dtypes = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
        # A module computes in the type of its first parameter in one of these.
        dtype = next((tensor.dtype for tensor in module.parameters() if tensor.dtype in dtypes), torch.float32)
        compiled = hasattr(module, "_orig_mod")

        def function(x: torch.Tensor) -> Any:
            with torch.set_grad_enabled(x.requires_grad or _gradient_wanted.get()):
                # A copy, as a module may write into its images. torch.compile warns of gradients of one.
                copy_needed = not (compiled and x.requires_grad)
                return as_tensor(module(x.to(dtype, copy=copy_needed)))

        return function, torch.zeros(0, dtype=torch.float32, device=where)

    def no_gradient(self, native: Any) -> str:
        modules = native.modules() if isinstance(native, torch.nn.Module) else ()
        return QUANTISED if any(map(_is_quantised, modules)) else ""

    def parameters(self, native: Any) -> list[NDArray[Any]] | None:
        if not isinstance(native, (torch.nn.Module, torch.export.ExportedProgram)):
            return None
        try:
            tensors = [tensor.detach().cpu().contiguous() for tensor in native.state_dict().values()]
            return [tensor.flatten().view(torch.uint8).numpy() for tensor in tensors]  # NumPy has no bfloat16
        except (AttributeError, RuntimeError, TypeError, ValueError, NotImplementedError):
            return None  # packed, quantised, sparse or lazy ones

    def state(self, native: Any) -> list[NDArray[Any]]:
        if not isinstance(native, torch.nn.Module):
            return []
        tensors = list(native.buffers())
        for module in native.modules():
            attributes = {name: value for name, value in vars(module).items() if name not in _OF_ANY_MODULE}
            tensors += _tensors_in(attributes, 3)
            hooks = [*vars(module).get("_forward_hooks", {}).values()]
            hooks += vars(module).get("_forward_pre_hooks", {}).values()
            # Those of torch, such as weight norm, compute the same in every call.
            if any(not type(hook).__module__.startswith("torch.") for hook in hooks):
                raise ModelError("it has forward hooks, which would mix the calls of several threads")
        dense = [
            tensor.detach().cpu() for tensor in tensors if tensor.layout == torch.strided and not tensor.is_quantized
        ]
        return [tensor.clone().contiguous().flatten().view(torch.uint8).numpy() for tensor in dense]

    def through(self, function: Function, pullback: Pullback) -> tuple[Function, torch.Tensor]:
        class Through(torch.autograd.Function):
            @staticmethod
            def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
                ctx.save_for_backward(x)
                return torch.tensor(function(x.detach().cpu().numpy()), device=x.device)

            @staticmethod
            @torch.autograd.function.once_differentiable  # a second derivative would be 0
            def backward(ctx: Any, v: torch.Tensor) -> torch.Tensor:
                (x,) = ctx.saved_tensors
                return torch.tensor(pullback(x.detach().cpu().numpy(), v.cpu().numpy()), device=x.device)

        return Through.apply, torch.zeros(0)

    def module_through(self, function: Function, pullback: Pullback) -> torch.nn.Module:
        through, empty = self.through(function, pullback)

        class Bridge(torch.nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.on = torch.nn.Parameter(empty, requires_grad=False)  # libraries ask parameters for their device

            def forward(self, images: torch.Tensor) -> Any:
                return through(images.float().permute(0, 2, 3, 1).contiguous())

        return Bridge().eval()

    def export_onnx(self, native: Any, shape: tuple[int, ...], path: Path) -> None:
        if isinstance(native, _KerasNetwork):
            super().export_onnx(native, shape, path)
        height, width, channels = shape
        images = torch.zeros(2, channels, height, width)  # of one, a size would be taken for fixed
        native = copy.deepcopy(native).cpu().eval()
        try:
            with warnings.catch_warnings(), redirect_stdout(io.StringIO()):
                warnings.simplefilter("ignore")
                torch.onnx.export(
                    native,
                    (images,),
                    path,
                    input_names=["images"],
                    output_names=["logits"],
                    dynamic_shapes=({0: torch.export.Dim("batch")},),
                    external_data=False,
                    verbose=False,
                )
        except Exception as error:  # whatever an operator or a missing package makes it raise
            raise DeploymentError(
                f"torch does not export this {type(native).__name__} to ONNX: {type(error).__name__}: "
                f"{' '.join(str(error).split())[:300]}"
            ) from None

    def build(self, architecture: Architecture, seed: int | None, device: Device) -> torch.nn.Module:
        with torch.random.fork_rng(), _own_defaults():
            torch.manual_seed(seed or 0)
            module = _build_sequential(architecture.layers, {layer.name: shape for layer, shape in architecture.walk()})
            return module.to(_device(device)).eval()

    def load(self, path: Path, native: Any) -> torch.nn.Module:
        return load_weights(path, native)

    def get_weights(self, native: Any, architecture: Architecture) -> Weights:
        return {
            name: _to_canonical(name, tensor, architecture)
            for name, tensor in _find_tensors(native, architecture).items()
        }

    def set_weights(self, native: Any, architecture: Architecture, weights: Weights) -> None:
        with torch.no_grad():
            for name, tensor in _find_tensors(native, architecture).items():
                tensor.copy_(_to_native(name, weights[name], architecture))

    def trainer(self, native: Any, architecture: Architecture, momentum: float, weight_decay: float) -> Trainer:
        return _Trainer(native, architecture, momentum, weight_decay)


class _KerasNetwork(torch.nn.Module):
    """A model of Keras on PyTorch as it is called, for images (N, H, W, C)."""

    def __init__(self, model: Any):
        super().__init__()
        self.keras = model
        self._arguments = KerasModel(model).call_arguments()

    def forward(self, x: torch.Tensor) -> Any:
        with sys.modules["keras"].device(
            "gpu:0" if x.is_cuda else "cpu"
        ):  # by itself it takes the GPU, if there is one
            return find_logits(self.keras(x, **self._arguments))


def _is_softmax(native: Any) -> bool:
    return isinstance(native, torch.nn.Softmax) and native.dim in (None, 1, -1)


def _is_sequence(native: Any) -> bool:
    """Say whether a module does what its layers do one after another, and nothing else."""
    if not isinstance(native, torch.nn.Sequential) or type(native).forward is not torch.nn.Sequential.forward:
        return False
    return not (native._forward_hooks or native._forward_pre_hooks)


def _check(native: Any) -> torch.nn.Module:
    """Return the module of a network that can be asked, or raise saying what to do first."""
    if isinstance(native, torch.export.ExportedProgram):
        return native.module()  # how its layers behave was settled by the export, whatever `training` says
    if not isinstance(native, torch.nn.Module):
        raise ModelError(f"expected a torch.nn.Module, received {type(native).__name__}")
    if isinstance(native, _KerasNetwork):
        return native  # Keras does not look at `training`
    tensors = [*native.parameters(), *native.buffers()]
    if any(torch.nn.parameter.is_lazy(tensor) for tensor in tensors):
        raise UsageError(
            "the torch module has lazy layers, whose weights would be drawn at random by the first call. Call it once "
            "with a batch of images, and load its trained weights."
        )
    if any(tensor.is_meta for tensor in tensors):
        raise UsageError(
            "some tensors of the torch module have no values: they are on the device 'meta'. Load its weights with "
            "module.load_state_dict(state, assign=True), or load it without offloading."
        )
    # A frozen ScriptModule does not say; in a quantised layer it has no meaning.
    if any(getattr(module, "training", False) and not _is_quantised(module) for module in native.modules()):
        raise UsageError(
            "the torch module is in training mode, where dropout and batch norm make its answers random. "
            "Call module.eval() first, before torch.export or torch.nn.DataParallel too; of a torch.export program "
            "pass the ExportedProgram, not its module(). If dropout is the defence, call "
            "torch.nn.functional.dropout(x, p, training=True) in its place, and attack robustcmp.averaged(model)."
        )
    return native


# networks of the zoo, and their weights in the canonical layout ----------------------------------------------------


class _Residual(torch.nn.Module):
    def __init__(self, layers: torch.nn.Module, shortcut: torch.nn.Module):
        super().__init__()
        self.layers = layers
        self.shortcut = shortcut

    def forward(self, x: torch.Tensor) -> Any:
        return self.layers(x) + self.shortcut(x)


def _build_sequential(layers: tuple[Layer, ...], shapes: dict[str, Shape]) -> torch.nn.Sequential:
    modules: OrderedDict[str, torch.nn.Module] = OrderedDict()
    for layer in layers:
        modules[layer.name] = _module(layer, shapes)
    try:
        return torch.nn.Sequential(modules)
    except KeyError as error:  # an attribute of every module, such as "type"
        raise UsageError(f"a layer should not have a name that torch uses itself: {error}") from None


def _module(layer: Layer, shapes: dict[str, Shape]) -> torch.nn.Module:
    shape = shapes[layer.name]
    match layer:
        case Conv():
            return torch.nn.Conv2d(shape[-1], layer.channels, layer.kernel, layer.stride, layer.padding)
        case Dense():
            return torch.nn.Linear(shape[0], layer.units)
        case BatchNorm():
            kind = torch.nn.BatchNorm2d if len(shape) == 3 else torch.nn.BatchNorm1d
            return kind(shape[-1], eps=layer.epsilon, momentum=1 - layer.momentum)
        case Relu():
            return torch.nn.ReLU()
        case MaxPool():
            return torch.nn.MaxPool2d(layer.size)
        case GlobalAveragePool():
            return torch.nn.Sequential(torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten())
        case Flatten():
            return torch.nn.Flatten()
        case Residual():
            return _Residual(_build_sequential(layer.layers, shapes), _build_sequential(layer.shortcut, shapes))


_NAMES = {"kernel": "weight", "gamma": "weight", "beta": "bias", "mean": "running_mean", "variance": "running_var"}


def _find_tensors(native: torch.nn.Module, architecture: Architecture) -> dict[str, torch.Tensor]:
    """Return the network's parameters and statistics by their canonical names."""
    kinds = (torch.nn.Conv2d, torch.nn.Linear, torch.nn.BatchNorm1d, torch.nn.BatchNorm2d)
    modules = {path.rpartition(".")[2]: module for path, module in native.named_modules() if isinstance(module, kinds)}
    tensors = {}
    for name in architecture.weight_shapes:
        layer, _, kind = name.partition("/")
        tensors[name] = getattr(modules[layer], _NAMES.get(kind, kind))
    return tensors


def _to_canonical(name: str, tensor: torch.Tensor, architecture: Architecture) -> NDArray[Any]:
    """Return a tensor in the canonical layout: kernels are (out, in, height, width) and (out, in) in torch."""
    array: NDArray[Any] = tensor.detach().cpu().numpy()
    if array.ndim == 4:
        array = array.transpose(2, 3, 1, 0)
    elif array.ndim == 2:
        array = array.T
        if (flattened := architecture.flat_shapes.get(name.partition("/")[0])) is not None:
            height, width, channels = flattened
            array = array.reshape(channels, height, width, -1).transpose(1, 2, 0, 3).reshape(array.shape)
    return np.array(array, order="C")


def _to_native(name: str, array: NDArray[Any], architecture: Architecture) -> torch.Tensor:
    """Do the inverse of `_to_canonical`."""
    if array.ndim == 4:
        array = array.transpose(3, 2, 0, 1)
    elif array.ndim == 2:
        if (flattened := architecture.flat_shapes.get(name.partition("/")[0])) is not None:
            array = array.reshape(*flattened, -1).transpose(2, 0, 1, 3).reshape(array.shape)
        array = array.T
    return torch.from_numpy(array.copy())


class _Traceable(torch.nn.Module):
    """A function as a module, for `torch.jit`: its network's weights have to be known as a part of it."""

    def __init__(self, function: Function, native: Any):
        super().__init__()
        self.native = native
        self._function = function

    def forward(self, x: torch.Tensor) -> Any:
        return self._function(x)


class _Trainer(Trainer):
    def __init__(self, module: torch.nn.Module, architecture: Architecture, momentum: float, weight_decay: float):
        self._module = module
        self._architecture = architecture
        self._parameters = {
            name: tensor for name, tensor in _find_tensors(module, architecture).items() if is_trainable(name)
        }
        self._device = next(iter(self._parameters.values())).device
        self._optimizer = torch.optim.SGD(
            self._parameters.values(), lr=0.0, momentum=momentum, weight_decay=weight_decay
        )

    def step(self, images: NDArray[np.float32], labels: NDArray[np.int64], learning_rate: float) -> float:
        self._optimizer.param_groups[0]["lr"] = learning_rate
        self._module.train()
        try:
            with _full_precision(self._device):
                x = torch.tensor(images.transpose(0, 3, 1, 2), device=self._device)
                y = torch.tensor(labels, device=self._device)
                self._optimizer.zero_grad()
                loss = torch.nn.functional.cross_entropy(self._module(x), y)
                loss.backward()  # type: ignore[no-untyped-call]
                self._optimizer.step()
        finally:
            self._module.eval()
        return float(loss.detach())

    def velocity(self) -> Weights:
        state = self._optimizer.state
        buffers = {
            name: state[parameter].get("momentum_buffer", torch.zeros_like(parameter))
            for name, parameter in self._parameters.items()
        }
        return {name: _to_canonical(name, buffer, self._architecture) for name, buffer in buffers.items()}

    def set_velocity(self, velocity: Weights) -> None:
        for name, parameter in self._parameters.items():
            buffer = _to_native(name, velocity[name], self._architecture)
            self._optimizer.state[parameter]["momentum_buffer"] = buffer.to(self._device)


FRAMEWORK = _Torch()

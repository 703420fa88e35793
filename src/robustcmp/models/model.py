"""Trained networks behind Foolbox's `Model`."""

from __future__ import annotations

from typing import Any

import eagerpy as ep
import foolbox as fb
import numpy as np
from numpy.typing import NDArray

from .. import frameworks
from ..data.arrays import Images, check_data_format, check_unit_images
from ..errors import ModelError, UsageError, unknown
from ..frameworks import DataFormat, Device
from ..networks.architecture import Architecture
from ..networks.weights import Weights
from .classifier import Classifier, predict_named, unwrap
from .preflight import BINARY, LOGITS_EXPECTED, in_unit_bounds

OUTPUTS = ("logits", "probabilities", "binary-logit", "binary-probability")
TINY = float(np.finfo(np.float32).tiny)


class Model(fb.models.base.ModelWithPreprocessing):
    """A trained network as a Foolbox model, from `wrap`, `load_model` or `fit`.

    It is called with tensors of its framework in its own layout, as every Foolbox model is, and works in every
    Foolbox attack.

    Attributes
    ----------
    framework : str
        Its framework's name.
    native : object
        The network that was wrapped; in JAX a function of images that holds its parameters.
    bounds : foolbox.types.Bounds
        The smallest and the largest value of a pixel.
    data_format : str
        ``"channels_first"`` or ``"channels_last"``.
    info : dict
        How it was trained: model, dataset, recipe, training seed, accuracy, source. Empty for your own
        network.
    wrapped_as : tuple
        The bounds and the preprocessing that it was wrapped with, which `transform_bounds` leaves as they are.
    architecture : Architecture, optional
        The network design, where `native` was built from it; None for your own network.
    """

    def __init__(
        self,
        function: frameworks.Function,
        framework: str,
        bounds: tuple[float, float],
        dummy: Any,
        data_format: DataFormat,
        preprocessing: dict[str, Any] | None = None,
        outputs: str = "logits",
        info: dict[str, Any] | None = None,
        native: Any = None,
    ):
        with frameworks.recognise(dummy).full_precision(dummy):
            super().__init__(function, bounds=bounds, dummy=ep.astensor(dummy), preprocessing=preprocessing)
        self.wrapped_as = (bounds, preprocessing or {})
        self.framework = framework
        self.data_format = data_format
        self.outputs = outputs
        self.info = info or {}
        self.native = native
        self.architecture: Architecture | None = None

    def __call__(self, inputs: Any) -> Any:
        return _as_logits(super().__call__(inputs), self.outputs)

    def transform_bounds(self, *arguments: Any, **more: Any) -> fb.models.base.Model:
        """Return the model with other bounds, as Foolbox does; gradients pass through the change."""
        with frameworks.recognise(self.dummy.raw).full_precision(self.dummy.raw):
            return super().transform_bounds(*arguments, **more)

    def without_preprocessing(self, inputs: Any) -> Any:
        """Return the logits for tensors that are preprocessed already."""
        return _as_logits(self._model(inputs), self.outputs)

    @property
    def weights(self) -> Weights | None:
        """The weights in the canonical layout, None where the architecture is unknown."""
        if self.architecture is None:
            return None
        return frameworks.get_framework(self.framework).get_weights(self.native, self.architecture)

    def __repr__(self) -> str:
        parts = [str(self.info[key]) for key in ("model", "dataset", "training_seed") if key in self.info]
        return (
            f"<robustcmp.Model {' '.join([*parts, self.framework])}, bounds ({self.bounds[0]:g}, {self.bounds[1]:g})>"
        )


class FunctionsModel(Model):
    """A Foolbox model of functions of NumPy arrays; made by `wrap_functions`, and by `wrap` of what lives in a host.

    It takes NumPy arrays and, where torch is installed, torch tensors, whose gradients come from `vjp`: so Foolbox's
    gradient attacks reach it. Images are (N, H, W, C) in either.
    """

    def __init__(self, function: frameworks.Function, vjp: frameworks.Pullback | None, *arguments: Any, **more: Any):
        super().__init__(function, *arguments, **more)
        self._vjp = vjp

    def __call__(self, inputs: Any) -> Any:
        x = ep.astensor(inputs)
        return self.in_torch()(inputs) if isinstance(x, ep.PyTorchTensor) else super().__call__(inputs)

    def in_torch(self) -> Model:
        """Return the same model of torch tensors, for what needs gradients of tensors.

        Raises
        ------
        UsageError
            torch is not installed.
        """
        torch: Any = frameworks.get_framework("torch")
        function, dummy = torch.through(super().__call__, self.vjp)
        return Model(function, torch.name, (self.bounds[0], self.bounds[1]), dummy, self.data_format, info=self.info)

    @property
    def no_gradient(self) -> str:
        """Why it has no gradient, "" if it has one."""
        if self._vjp is not None:
            return ""
        return (
            "this model has no gradient, as robustcmp.wrap_functions got no vjp, so no gradient attack can run on "
            'it. Use single pixel or boundary, or pass vjp=; vjp="finite-differences" asks the model instead.'
        )

    def vjp(self, images: Images, v: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return the gradient (N, H, W, C) of Σ v·logits with respect to images within the model's bounds.

        Raises
        ------
        ModelError
            There is no gradient, or it has another shape than the images.
        """
        if self._vjp is None:
            raise ModelError(self.no_gradient)
        _, std, flip_axis = self._preprocess_args  # transform_bounds keeps the bounds' change here
        inner = self._preprocess(ep.astensor(images)).raw
        if self.outputs != "logits":
            v = _pull_back_outputs(v, np.asarray(self._model(inner)), self.outputs)
        gradient: NDArray[np.float32] = self._vjp(inner, v)
        if gradient.shape != images.shape:
            raise ModelError(
                f"vjp should return values of the images' shape {images.shape}, received the shape {gradient.shape}"
            )
        if std is not None:
            gradient = (gradient / std.raw).astype(np.float32)
        return gradient if flip_axis is None else np.flip(gradient, flip_axis)


PREPROCESSING = ("mean", "std", "axis", "flip_axis")  # what Foolbox knows


def wrap(
    native: Any,
    *,
    bounds: tuple[float, float] | None = None,
    framework: str | None = None,
    data_format: DataFormat | None = None,
    preprocessing: dict[str, Any] | None = None,
    outputs: str = "logits",
    cut_softmax: bool = False,
    device: Device | None = None,
    info: dict[str, Any] | None = None,
) -> Model:
    """Wrap a trained network as a Foolbox model.

    Parameters
    ----------
    native : torch.nn.Module, keras.Model, a program of TensorFlow, or a pair or a function of JAX arrays
        Images to logits (N, K). A torch module must be in evaluation mode; images are cast to the type of its first
        parameter, such as bfloat16. A program of `torch.export` is taken, too. Programs of TensorFlow are a
        `tf.function`, and what `tf.saved_model.load` returns, of which ``serving_default`` is asked. In JAX a pair
        ``(apply, parameters)``, where ``apply(parameters, images)`` returns logits and the parameters are any tree of
        arrays, batch statistics included; modules of Flax nnx, bound ones of Flax linen, and those of Equinox, which
        take one image; or a function of images, for which arrays that it closes over are constants.
    bounds : tuple of float, optional
        The smallest and the largest value of a pixel, before preprocessing: (0, 1) if they are left out. A model of
        Keras that begins with a layer for 8-bit images, such as ``Rescaling(1 / 255)``, needs them.
    framework : str, optional
        ``"torch"``, ``"tensorflow"`` or ``"jax"``; detected from the object, but required for a plain function.
    data_format : str, optional
        ``"channels_first"`` (default for torch) or ``"channels_last"`` (default for the others).
    preprocessing : dict, optional
        ``mean``, ``std``, ``axis``, ``flip_axis`` as in Foolbox, applied to the images within the bounds.
    outputs : str, default "logits"
        ``"probabilities"`` for a network whose final softmax cannot be removed. The logarithm of the probabilities is
        used; gradients vanish where the softmax saturates in float32, and gradient attacks then look weaker than
        they are. ``"binary-logit"`` or ``"binary-probability"`` for one number an image, which is of class 1 where a
        logit is above 0, a probability above a half.
    cut_softmax : bool, default False
        Ask the network without the softmax, or the sigmoid for each class, at its end: that of a Functional or
        Sequential model of Keras, or of a `torch.nn.Sequential`. The network that was passed stays as it is.
    device : str, optional
        ``"auto"`` (the default), ``"cpu"`` or ``"cuda"``.
    info : dict, optional
        Notes that are stored with results.

    Returns
    -------
    Model
        A `foolbox.models.base.Model`.

    Notes
    -----
    A network with a defence needs attacks adapted to it: all others, also those of the suite ``reference``, can
    overestimate its robustness (Tramèr et al., "On Adaptive Attacks to Adversarial Example Defenses", 2020,
    arXiv:2002.08347; Carlini et al., "On Evaluating Adversarial Robustness", 2019, arXiv:1902.06705).

    Raises
    ------
    UsageError
        An option or the bounds are invalid, a device is not available, a torch module is in training mode, there is no
        softmax to cut, or the network takes 8-bit images and the bounds are left out.
    ModelError
        The object is not a network of a known framework, or its layers say that it returns probabilities.

    Examples
    --------
    >>> import torch
    >>> network = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(784, 10)).eval()
    >>> wrap(network)
    <robustcmp.Model torch, bounds (0, 1)>

    In JAX, a function with its parameters:

    >>> import jax.numpy as jnp
    >>> def apply(parameters, images):
    ...     return images.reshape(len(images), -1) @ parameters["kernel"] + parameters["bias"]
    >>> parameters = {"kernel": jnp.ones((784, 10)), "bias": jnp.zeros(10)}
    >>> wrap((apply, parameters))
    <robustcmp.Model jax, bounds (0, 1)>
    """
    lower, upper = check_wrapping((0, 1) if bounds is None else bounds, outputs)
    if cut_softmax and outputs != "logits":
        raise UsageError(
            f"with cut_softmax=True the outputs are logits, received outputs={outputs!r}: omit one of them"
        )
    check_data_format(data_format)
    frameworks.check_device(device or "auto")
    adapter = frameworks.get_framework(framework) if framework else frameworks.recognise(native)
    if bounds is None and preprocessing is None and (layer := adapter.eight_bit_layer(native)):
        raise UsageError(
            f"the network scales images from [0, 255] itself, in its layer {layer}; images in [0, 1] would be "
            "black to it. Pass bounds=(0, 255) to robustcmp.wrap, or bounds=(0, 1) if it does take them. For a file, "
            "load it in a function of your own and name that, module:function; or write FILE,std=1/255 in the command."
        )
    if outputs == "logits" and not cut_softmax and adapter.ends_in_softmax(native):
        raise ModelError(
            f"the network returns probabilities, as it ends in a softmax, {LOGITS_EXPECTED} Cut its last softmax with "
            "robustcmp.wrap(..., cut_softmax=True), which in a command is FILE,softmax, or keep it with "
            'robustcmp.wrap(..., outputs="probabilities").'
        )
    layout = adapter.layout(native)
    native = adapter.as_network(adapter.without_softmax(native) if cut_softmax else native)
    function, dummy = adapter.place(native, device or "auto")
    more = (
        adapter.name,
        (lower, upper),
        dummy,
        data_format or layout,
        check_preprocessing(preprocessing),
        outputs,
        info,
        native,
    )
    if hasattr(function, "vjp"):  # it lives in a host
        if data_format == "channels_first":
            raise UsageError(f"networks in the host {adapter.name} take images (N, H, W, C): omit data_format")
        return FunctionsModel(function, function.vjp, *more)
    return Model(function, *more)


def check_wrapping(bounds: tuple[float, float], outputs: str) -> tuple[float, float]:
    """Return the bounds as floats, or raise `UsageError` for bounds or outputs that cannot be."""
    try:
        lower, upper = (float(bound + 0) for bound in bounds)  # no text
    except (TypeError, ValueError):
        raise UsageError(f"bounds should be two finite numbers, the smaller one first; received {bounds!r}") from None
    if not (np.isfinite(lower) and np.isfinite(upper) and lower < upper):
        raise UsageError(f"bounds should be two finite numbers, the smaller one first; received {bounds}")
    if outputs not in OUTPUTS:
        raise unknown("outputs", outputs, OUTPUTS)
    return lower, upper


def check_preprocessing(preprocessing: dict[str, Any] | None) -> dict[str, Any] | None:
    """Return a preprocessing as Foolbox takes it, with mean and std in the images' dtype, or raise `UsageError`."""
    if preprocessing is None:
        return None
    if not isinstance(preprocessing, dict):
        raise UsageError(
            'preprocessing should be a dict such as {"mean": [0.1307], "std": [0.3081], "axis": -3}, '
            f"received {preprocessing!r}"
        )
    for key in preprocessing:
        if key not in PREPROCESSING:
            raise unknown("preprocessing key", key, PREPROCESSING)
    if (axis := preprocessing.get("axis")) is not None and not (isinstance(axis, int) and axis < 0):
        raise UsageError(
            "the axis of preprocessing is that of the channels, counted from the end: -3 where images are "
            f"(N, C, H, W), -1 where they are (N, H, W, C); received {axis!r}"
        )
    if not np.all(np.asarray(preprocessing.get("std", 1)) > 0):
        raise UsageError(f"the std of preprocessing should be greater than 0, received {preprocessing['std']!r}")
    settings = dict(preprocessing)
    for key in ("mean", "std"):
        value = settings.get(key)
        if value is not None:
            is_tensor = not isinstance(value, (list, tuple, float, int, np.generic, np.ndarray))
            settings[key] = np.array(ep.astensor(value).numpy() if is_tensor else value, np.float32)
    return settings


def predict(
    model: fb.models.base.Model,
    images: Images,
    *,
    batch_size: int | None = None,
    data_format: DataFormat | None = None,
) -> NDArray[np.int64]:
    """Return the classes that a model predicts for images, in batches.

    Parameters
    ----------
    model : foolbox.models.base.Model
        The model.
    images : ndarray of float32, shape (N, H, W, C)
        In [0, 1], whatever the model's bounds.
    batch_size : int, optional
        Images per forward pass (default: 256, or as many as fit in 64 MiB in float64).
    data_format : str, optional
        Where the channels of the images are, as for `evaluate`.

    Returns
    -------
    ndarray of int64, shape (N,)

    Raises
    ------
    UsageError
        The images are not (N, H, W, C), contain NaN or are outside [0, 1], or a batch of this size does not fit into
        memory.
    ModelError
        The network does not accept images of this size, or does not answer one row of logits for each.

    Examples
    --------
    >>> import torch
    >>> network = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(4, 2)).eval()
    >>> predict(wrap(network), np.zeros((3, 2, 2, 1), np.float32)).shape
    (3,)
    """
    classifier = Classifier(in_unit_bounds(model), batch_size)
    x = check_unit_images(images, data_format)
    return predict_named("the model", classifier.with_batch_size_for(x, batch_size), x)


# the network without its wrapper, for checks of what that should not change ------------------------------------------


def predict_outside(classifier: Classifier, images: Images) -> NDArray[np.int64]:
    """Return the classes (N,) that the network itself gives to images, without Foolbox, compilation or batches.

    The network is called once, as it is, with tensors in its own layout: the images scaled to the bounds that it was
    wrapped with, then flipped, shifted and divided as its `preprocessing` says, all in NumPy.

    Parameters
    ----------
    classifier : Classifier
        A model that takes images in [0, 1].
    images : ndarray of float32, shape (N, H, W, C)
        In [0, 1].

    Raises
    ------
    ModelError
        The network behind the model is not known.
    """
    model = unwrap(classifier.model)
    if not isinstance(model, Model):
        raise ModelError("the model was not wrapped by robustcmp, so its network is not known")
    logits = classifier.ask(model.without_preprocessing, preprocess(classifier, images, *model.wrapped_as))
    return np.asarray(logits.argmax(axis=1), np.int64)


def preprocess(
    classifier: Classifier, images: Images, bounds: tuple[float, float], preprocessing: dict[str, Any]
) -> NDArray[np.float32]:
    """Return images (N, H, W, C) in [0, 1] as a network gets them that is wrapped so, in its own layout."""
    low, high = bounds
    x: NDArray[np.float64] = low + (high - low) * images.astype(np.float64)
    if classifier.data_format == "channels_first":
        x = x.transpose(0, 3, 1, 2)
    return shift_and_divide(preprocessing, x)


def shift_and_divide(preprocessing: dict[str, Any], images: NDArray[Any]) -> NDArray[np.float32]:
    """Return images within a network's bounds after what a preprocessing does to them, with axes of such images."""
    if preprocessing.get("flip_axis") is not None:
        images = np.flip(images, preprocessing["flip_axis"])
    x = (images - along(preprocessing, "mean", 0)) / along(preprocessing, "std", 1)
    return np.ascontiguousarray(x, np.float32)


def along(preprocessing: dict[str, Any], name: str, default: float) -> NDArray[np.float64]:
    """Return a mean or a deviation as an array that fits images in the network's own layout."""
    value = preprocessing.get(name)
    array = np.asarray(default if value is None else value, np.float64)
    axis = preprocessing.get("axis")
    return array if axis is None or value is None else array.reshape(-1, *[1] * (-axis - 1))


def _as_logits(answer: Any, outputs: str) -> Any:
    """Return logits (N, K) of a tensor that holds what `outputs` says.

    Probabilities become their logarithms, of which the softmax is the probabilities again; a floor keeps that of a
    probability of exactly zero finite. One number for two classes, (N,) or (N, 1), becomes two: the logits (0, z), or
    the logarithms of (1 - p, p).

    Raises
    ------
    ModelError
        There is not one number an image, where one for two classes was said.
    """
    if outputs == "logits":
        return answer
    x, restore = ep.astensor_(answer)
    if outputs in BINARY:
        if x.ndim not in (1, 2) or (x.ndim == 2 and x.shape[1] != 1):
            raise ModelError(
                f'with outputs="{outputs}" the model should return one number for each image, (N,) or (N, 1), received '
                f"the shape {x.shape}"
            )
        x = x.reshape((-1, 1))
        x = ep.concatenate([ep.zeros_like(x), x] if outputs == "binary-logit" else [1 - x, x], axis=1)
    return restore(x if outputs == "binary-logit" else x.maximum(TINY).log())


def _pull_back_outputs(v: NDArray[np.float32], answer: NDArray[np.float32], outputs: str) -> NDArray[np.float32]:
    """Return what pulls Σ v·logits back to an answer: the gradient (of the answer's shape) of it.

    Parameters
    ----------
    v : ndarray of float32, shape (N, K)
        For the logits that `_as_logits` makes.
    answer : ndarray of float32
        What the network answered.
    outputs : str
        What that is.
    """
    if outputs == "binary-logit":
        return v[:, 1].reshape(answer.shape)
    if outputs == "binary-probability":
        p = answer.reshape(-1)
        gradient = v[:, 1] / np.maximum(p, TINY) - v[:, 0] / np.maximum(1 - p, TINY)
        return gradient.astype(np.float32).reshape(answer.shape)
    return (v / np.maximum(answer, TINY)).astype(np.float32)

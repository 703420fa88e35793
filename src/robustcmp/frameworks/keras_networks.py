"""What models of Keras have in common, on whichever backend.

Keras is not imported here: whoever holds one of its models has done so.
"""

from __future__ import annotations

import inspect
import json
import random
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import h5py
import numpy as np

from ..errors import ModelError, UsageError, WeightsError
from ..untrusted import check_hdf5

DataFormat = Literal["channels_first", "channels_last"]
WITHOUT_LOGITS = 'Return logits from the network, or keep the softmax with outputs="probabilities".'
NARROWEST = 100
WIDEST = 300  # what a scale of 8-bit images divides by, such as 127.5 or 255
LARGEST = 2  # a mean of images in [0, 1], or in [-1, 1], is less
NO_WEIGHTS = (
    "the Keras model has no weights yet: its first call would draw them at random. Call it once with a batch of "
    "images, and load its trained weights, before robustcmp.wrap."
)
RANDOM_IN_JAX = (
    "the Keras model draws at random while it answers: remove the layers that do, or do not call them with "
    "training=True. If the randomness is a defence, attack the mean over many passes: robustcmp.averaged(model), "
    "with Keras on TensorFlow or PyTorch (KERAS_BACKEND)."
)
NOT_TAKEN = object()
MODELS = ("Sequential", "Functional", "Model")
CODE = ("Lambda", "TFSMLayer", "TorchModuleWrapper", "JaxLayer", "FlaxLayer")  # layers that run what a file holds
KERNEL = ("kernel_initializer", "kernel_regularizer", "kernel_constraint")
UNUSED = {"Conv2DTranspose": ("groups",), "DepthwiseConv2D": ("groups",), "SeparableConv2D": ("groups", *KERNEL)}
"""Settings of layers that have no meaning in Keras 2 and are refused in Keras 3."""


def is_keras(native: Any) -> bool:
    """Say whether an object is a layer or a model of Keras 3."""
    return any(cls.__module__.partition(".")[0] == "keras" for cls in type(native).__mro__)


class KerasModel:
    """A layer or a model of Keras 3, on whichever backend."""

    def __init__(self, model: Any):
        self.model = model

    def call_arguments(self) -> dict[str, bool]:
        """Return what a model is called with beside images: ``training=False``, as `keras.Model.predict` passes it.

        It switches off augmentation layers of Keras, which draw by default. As it overrides every layer of a Functional
        model, it is not passed where its author calls a layer with ``training=True``.

        Raises
        ------
        UsageError
            The model has no weights: a call would draw them at random.
        """
        if not self.model.built:
            raise UsageError(NO_WEIGHTS)
        takes_training = _default_of_training(self.model) is not NOT_TAKEN
        return {"training": False} if takes_training and not _draws_on_purpose(self.model) else {}

    def stateless(self) -> tuple[Callable[[Any, Any], Any], Any]:
        """Return a model of Keras on JAX as a function of parameters and images, and its parameters."""
        arguments = self.call_arguments()
        variables = self.model.trainable_variables, self.model.non_trainable_variables
        parameters = [[variable.value for variable in each] for each in variables]
        generators = {id(state) for state in _generators(self.model)}

        def apply(parameters: Any, images: Any) -> Any:
            answer, others = self.model.stateless_call(*parameters, images, **arguments)
            for variable, before, after in zip(variables[1], parameters[1], others, strict=True):
                if id(variable) in generators and after is not before:
                    raise ModelError(RANDOM_IN_JAX)
            return answer

        return apply, parameters

    @contextmanager
    def fork_layers(self) -> Iterator[None]:
        """Seed the generators of a model's layers by Python's inside a ``with`` block, and restore them after it."""
        before = [(state, sys.modules["keras"].ops.convert_to_numpy(state)) for state in _generators(self.model)]
        for state, _ in before:
            state.assign([random.getrandbits(31), 0])
        try:
            yield
        finally:
            for state, value in before:
                state.assign(value)

    def layout(self) -> DataFormat:
        """Return the layout that the first layer with one has, which may be the caller's setting of Keras."""
        layouts = (getattr(operation, "data_format", None) for operation in _operations(self.model))
        return next((layout for layout in layouts if layout), "channels_last")

    def ends_in_softmax(self) -> bool:
        """Say whether a model of one output, with known layers, ends in a softmax."""
        ends = getattr(self.model, "outputs", None)
        if not ends or len(ends) != 1 or _has_own_call(self.model):
            return False
        layer = ends[0]._keras_history[0]
        softmax = sys.modules["keras"].activations.softmax
        return (
            type(layer).__name__ == "Softmax"
            or getattr(layer, "activation", None) is softmax
            or KerasModel(layer).ends_in_softmax()
        )

    def without_softmax(self) -> Any:
        """Return a model that shares all layers but the last with another, whose last softmax it has not.

        The softmax is that of a layer, the activation of a layer, or the last of a model within the model; so is a
        sigmoid for each class. The model that was passed stays as it is. A layer that loses its activation is a copy.

        Raises
        ------
        UsageError
            The model has no such softmax, or no known layers: it was subclassed, or is not built.
        """
        keras: Any = sys.modules["keras"]
        ends: Any = getattr(self.model, "outputs", None) or ()
        if len(ends) != 1 or not self.model.inputs or _has_own_call(self.model):
            raise UsageError(
                "cut_softmax=True takes a Functional model of Keras, or a Sequential one that is built, with one "
                f"output and no call of its own, received {type(self.model).__name__}. {WITHOUT_LOGITS}"
            )
        images = self.model.inputs[0] if len(self.model.inputs) == 1 else self.model.inputs
        layer, node, _ = ends[0]._keras_history
        before = layer._inbound_nodes[node].input_tensors
        kind = type(layer).__name__
        has_activation = getattr(layer, "activation", None) in (keras.activations.softmax, keras.activations.sigmoid)
        if kind in ("Softmax", "Sigmoid") or (kind == "Activation" and has_activation):  # the layer, or the operation
            return keras.Model(images, before[0])
        if has_activation:
            config = layer.get_config()
            plain = type(layer).from_config({**config, "activation": "linear", "name": f"{layer.name}_logits"})
            logits = plain(*before)
            plain.set_weights(layer.get_weights())
            return keras.Model(images, logits)
        if getattr(layer, "outputs", None):
            return keras.Model(images, KerasModel(layer).without_softmax()(*before))
        raise UsageError(
            f"cut_softmax=True found no softmax or sigmoid at the end of the network, whose last layer is {layer.name} "
            f"({type(layer).__name__}). {WITHOUT_LOGITS}"
        )

    def eight_bit_layer(self) -> str:
        """Return the name of the first scaling layer of a model if it takes images in [0, 255], "" if it does not."""
        for operation in _operations(self.model):
            kind = type(operation).__name__
            if kind == "Rescaling":
                divisor = 1 / np.abs(operation.scale).max()
                return str(operation.name) if NARROWEST <= divisor <= WIDEST else ""
            if kind == "Normalization" and operation.mean is not None and not operation.invert:
                largest = np.abs(sys.modules["keras"].ops.convert_to_numpy(operation.mean)).max()
                return str(operation.name) if largest > LARGEST else ""
        return ""


def _default_of_training(layer: Any) -> Any:
    """Return what a layer's call takes for `training` by default, `NOT_TAKEN` where it takes none."""
    parameter = inspect.signature(layer.call).parameters.get("training")
    return NOT_TAKEN if parameter is None else parameter.default


def _draws_on_purpose(model: Any) -> bool:
    """Say whether a layer is called with ``training=True``, which is the default of none of Keras but augmentation."""
    for layer in model._flatten_layers():
        if _default_of_training(layer) is True and not type(layer).__module__.startswith("keras."):
            return True
        for nodes in getattr(layer, "_nodes_by_depth", {}).values():  # of a Functional model
            for node in nodes:
                stated = node.arguments.kwargs.get("training")
                if stated and _default_of_training(node.operation) is not True:
                    return True
    return False


def _generators(model: Any) -> list[Any]:
    """Return the states of the random generators of a model's layers."""
    return [generator.state for layer in model._flatten_layers() for generator in layer._seed_generators]


LIBRARIES = ("keras", "tensorflow", "torch", "jax", "flax", "builtins")  # whose classes Keras's models are of


def _has_own_call(model: Any) -> bool:
    """Say whether a model with known layers may do something else than these."""
    members_of_classes = (vars(cls) for cls in type(model).__mro__ if cls.__module__.partition(".")[0] not in LIBRARIES)
    return any("call" in members or "__call__" in members for members in members_of_classes)


def _operations(model: Any) -> Iterator[Any]:
    """Yield the layers and operations of a model in their order, those of models within it in their place."""
    operations: Any = getattr(model, "operations", None) or getattr(model, "layers", ())
    for operation in operations:
        if getattr(operation, "layers", None):
            yield from _operations(operation)
        else:
            yield operation


# whole models in HDF5, as Keras 2 saves them, in the words of Keras 3 ------------------------------------------------


def read_description(path: Path) -> dict[str, Any]:
    """Return what a whole model is made of, as Keras 3 describes it.

    Raises
    ------
    WeightsError
        The file is broken, shows other files, or holds no model, or one with layers that carry code.
    """
    check_hdf5(path)
    try:
        with h5py.File(path, "r") as file:
            text = file.attrs.get("model_config")
            version = np.asarray(file.attrs.get("keras_version", "2")).astype(str).item()
        if text is None:
            raise WeightsError(
                f"{path} holds no model of Keras, and it is not a weights file of robustcmp. Save the whole model with "
                "model.save('x.keras'), or its weights with model.save_weights('x.weights.h5')."
            )
        description: dict[str, Any] = json.loads(text)
        for part in _parts(description):
            kind = part.get("class_name")
            if kind in CODE or (part is description and kind not in MODELS):
                raise WeightsError(
                    f"{path} has a {kind}, which needs code that is not run. If you trust the file, return "
                    "keras.models.load_model(path, safe_mode=False) from a function of your own, module:function."
                )
            if version.startswith("2"):
                _translate(part)
    except (LookupError, TypeError, ValueError, AttributeError, OSError, RecursionError) as error:
        raise WeightsError(
            f"{path} describes no model ({type(error).__name__}). Save it with model.save('x.keras')."
        ) from None
    return description


def _parts(description: Any) -> Iterator[dict[str, Any]]:
    """Yield what describes a layer, a model, an initialiser, or the settings of one; each before what is in it."""
    left = [description]
    while left:
        part = left.pop()
        if isinstance(part, list):
            left += part
        elif isinstance(part, dict):
            yield part
            left += part.values()


def _translate(part: dict[str, Any]) -> None:
    """Change a part to what Keras 3 calls the same."""
    config = part.get("config")
    if not isinstance(config, dict):
        return
    if part.get("module") == "keras.layers" or part.get("class_name") in MODELS:
        part.pop("module", None)  # without it, Keras 3 reads the settings of Keras 2
    for setting in UNUSED.get(part.get("class_name", ""), ()):
        config.pop(setting, None)
    policy = config.get("dtype")
    if isinstance(policy, dict) and policy["class_name"] == "Policy":
        config["dtype"] = policy["config"]["name"]
    if "output_layers" in config:
        _count_uses_from_zero(config)
        for ends in ("input_layers", "output_layers"):
            if len(config[ends]) == 1:
                (config[ends],) = config[ends]  # a model of one output answers no list


def _count_uses_from_zero(config: dict[str, Any]) -> None:
    """Count the uses of models within a model from 0: in Keras 2 the first is that of their own inputs."""
    models = {layer["name"] for layer in config["layers"] if _begins_with_input(layer["config"])}
    nodes = [node for layer in config["layers"] for node in layer["inbound_nodes"]]
    for node in [*nodes, config["output_layers"]]:
        for use in node:
            if isinstance(use, list) and use[0] in models:
                use[1] -= 1


def _begins_with_input(config: dict[str, Any]) -> bool:
    return bool(config.get("layers")) and config["layers"][0]["class_name"] == "InputLayer"

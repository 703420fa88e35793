"""What people bring from Keras and TensorFlow: it is attacked beside another model, or a message says what to do."""

from __future__ import annotations

import io
import json
import logging
import os
import subprocess
import sys
import warnings
import zipfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from brought import compared
from numpy.typing import NDArray

import robustcmp as rc
from robustcmp.errors import ModelError, RobustcmpError, UsageError, WeightsError
from robustcmp.models.classifier import Classifier
from robustcmp.models.preflight import check_model
from robustcmp.sources.from_files import load_network
from robustcmp.sources.named_files import file_origins

tf = pytest.importorskip("tensorflow", reason="tensorflow is not installed")
keras: Any = pytest.importorskip("keras", reason="keras is not installed")
layers = keras.layers

# Keras reads its own variables in a way that NumPy 2 warns of, when it saves them.
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation doesn't accept a copy:DeprecationWarning")

N, SIDE, CLASSES = 16, 8, 3
SHAPE = (SIDE, SIDE, 3)
brought = partial(pytest.mark.brought, group="Keras and TensorFlow", typed="rc.wrap(model)", got="a comparison")


def drawn(n: int = N, side: int = SIDE) -> NDArray[np.float32]:
    return np.random.default_rng(0).random((n, side, side, 3), dtype=np.float32)


def parts(end: str | None = None, before: tuple[Any, ...] = (), activation: str = "relu") -> list[Any]:
    """Return layers of a small network with a batch norm that has statistics; `end` is the last activation."""
    keras.utils.set_random_seed(0)
    norm = layers.BatchNormalization(moving_mean_initializer="random_normal", beta_initializer="random_normal")
    return [
        *before,
        layers.Conv2D(4, 3, activation=activation),
        norm,
        layers.Flatten(),
        layers.Dense(CLASSES, activation=end),
    ]


def sequential(end: str | None = None, before: tuple[Any, ...] = (), **more: Any) -> Any:
    return keras.Sequential([keras.Input(SHAPE), *parts(end, before, **more)])


def functional(end: str | None = None, before: tuple[Any, ...] = (), **more: Any) -> Any:
    x = images = keras.Input(SHAPE)
    for layer in parts(end, before, **more):
        x = layer(x)
    return keras.Model(images, x)


class Subclassed(keras.Model):  # type: ignore[misc]
    """A model whose answer is what `answer` makes of logits."""

    def __init__(self, answer: Callable[[Any], Any] = lambda logits: logits, end: str | None = None):
        super().__init__()
        self.answer, self.parts = answer, parts(end)

    def call(self, x: Any, training: bool | None = None) -> Any:
        for part in self.parts:
            x = part(x, training=training) if isinstance(part, layers.BatchNormalization) else part(x)
        return self.answer(x)


def subclassed(*arguments: Any, **more: Any) -> Any:
    model = Subclassed(*arguments, **more)
    model(np.zeros((1, *SHAPE), np.float32))
    return model


def answered(model: Any, images: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return what a model of Keras answers without robustcmp."""
    return np.asarray(keras.ops.convert_to_numpy(model(images, training=False)), np.float32)


def check_same(brought: Any, plain: Any, atol: float = 1e-5, factor: float = 1, **options: Any) -> Any:
    """Compare logits and the gradient of what was brought with those of a plain model; return its model.

    The plain model takes images that are `factor` times as large.
    """
    images = drawn()
    model = rc.wrap(brought, device="cpu", **options)
    received = Classifier(model.transform_bounds((0, 1)) if model.bounds != (0, 1) else model)
    logits = received.logits(images)
    assert logits.dtype == np.float32
    np.testing.assert_allclose(logits, answered(plain, factor * images), atol=atol)
    v = np.random.default_rng(1).normal(size=logits.shape).astype(np.float32)
    x = tf.constant(factor * images)
    with tf.GradientTape() as tape:
        tape.watch(x)
        total = tf.reduce_sum(tf.cast(plain(x, training=False), tf.float32) * v)
    expected = factor * tape.gradient(total, x).numpy()
    np.testing.assert_allclose(received.vjp(images, v), expected, atol=2 * atol * max(1, np.abs(expected).max()))
    check_model("m", received, images, logits.argmax(axis=1))
    compiled = received.compile(images)
    assert compiled.traced is not None
    np.testing.assert_allclose(compiled.logits(images), logits, atol=1e-4)
    np.testing.assert_allclose(compiled.vjp(images, v), received.vjp(images, v), atol=1e-3)
    return model


# models ---------------------------------------------------------------------------------------------------------------

MODELS: dict[str, Callable[[], Any]] = {
    "a Functional model": functional,
    "a Sequential model": sequential,
    "a subclassed model": subclassed,
    "a subclassed model that answers a dict with logits": lambda: subclassed(
        lambda z: {"logits": z, "features": 2 * z}
    ),
    "a model within a model": lambda: keras.Sequential([keras.Input(SHAPE), functional()]),
    "augmentation layers, which are not active": lambda: sequential(
        before=(
            layers.RandomFlip("horizontal"),
            layers.RandomRotation(0.2),
            layers.RandomContrast(0.5),
            layers.Dropout(0.5),
        )
    ),
}


@pytest.mark.parametrize("what", [pytest.param(what, marks=brought(what=what)) for what in MODELS])
def test_a_model(what: str, tmp_path: Path) -> None:
    model = check_same(MODELS[what](), functional())
    assert Classifier(model).weights_digest
    compared(model, drawn(), tmp_path)


# softmax --------------------------------------------------------------------------------------------------------------


def soft(*more: Any) -> Any:
    return keras.Sequential([*functional().layers, *more])


WITH_SOFTMAX: dict[str, Callable[[], Any]] = {
    "the activation of the last Dense": lambda: functional("softmax"),
    "the activation of the last Dense of a Sequential model": lambda: sequential("softmax"),
    "a Softmax layer": lambda: soft(layers.Softmax()),
    "an Activation layer": lambda: soft(layers.Activation("softmax", dtype="float32")),
    "keras.ops.softmax": lambda: (lambda model: keras.Model(model.input, keras.ops.softmax(model.output)))(
        functional()
    ),
    "the last of a model within the model": lambda: keras.Sequential([keras.Input(SHAPE), soft(layers.Softmax())]),
}


@pytest.mark.parametrize(
    "where",
    [
        pytest.param(
            where,
            marks=brought(what=f"a softmax at the end: {where}", typed="rc.wrap(model, cut_softmax=True)"),
        )
        for where in WITH_SOFTMAX
    ],
)
def test_a_softmax_is_cut(where: str) -> None:
    network = WITH_SOFTMAX[where]()
    before = answered(network, drawn())
    np.testing.assert_allclose(before.sum(axis=1), 1, atol=1e-5)
    check_same(network, functional(), cut_softmax=True)
    np.testing.assert_array_equal(answered(network, drawn()), before)


@brought(
    what="a softmax at the end, kept",
    got="the message: cut it with cut_softmax=True",
)
@pytest.mark.parametrize("where", ["the activation of the last Dense", "the last of a model within the model"])
def test_a_softmax_is_found(where: str) -> None:
    with pytest.raises(ModelError, match=r"returns probabilities.*Cut its last softmax with .*cut_softmax=True"):
        rc.evaluate({"m": rc.wrap(WITH_SOFTMAX[where]())}, drawn(), np.zeros(N, int), suite="smoke", progress=False)


@brought(
    what="a softmax in a subclassed model",
    typed="rc.wrap(model, cut_softmax=True)",
    got='the message: return logits from the network, or keep it with outputs="probabilities"',
)
def test_a_softmax_of_a_subclassed_model() -> None:
    network = subclassed(end="softmax")
    with pytest.raises(UsageError, match=r"Functional model.*received Subclassed\. Return logits.*\"probabilities\""):
        rc.wrap(network, cut_softmax=True)
    with pytest.raises(ModelError, match=r"Remove its last softmax, or keep it with .*outputs=\"probabilities\""):
        rc.evaluate({"m": rc.wrap(network)}, drawn(), np.zeros(N, int), suite="smoke", progress=False)


class Normalising(keras.Sequential):  # type: ignore[misc]
    def call(self, inputs: Any, training: Any = None, mask: Any = None) -> Any:
        return super().call((inputs - 0.13) / 0.3, training=training, mask=mask)


def test_a_model_with_a_call_of_its_own_is_not_cut() -> None:
    network = Normalising([keras.Input(SHAPE), layers.Flatten(), layers.Dense(CLASSES, activation="softmax")])
    with pytest.raises(UsageError, match=r"no call of its own, received Normalising\. Return logits"):
        rc.wrap(network, cut_softmax=True)
    with pytest.raises(ModelError, match="returns probabilities"):
        rc.evaluate({"m": rc.wrap(network)}, drawn(), np.zeros(N, int), suite="smoke", progress=False)


class Dropped(layers.Layer):  # type: ignore[misc]
    """A dropout that is active unless somebody says otherwise."""

    def __init__(self) -> None:
        super().__init__()
        self.dropout = layers.Dropout(0.5)

    def call(self, x: Any, training: bool = True) -> Any:
        return self.dropout(x, training=training)


def monte_carlo(*before: Any, layer: Callable[[], Any] = lambda: layers.Dropout(0.5)) -> Any:
    """Return a Functional model with a layer that is called with ``training=True``."""
    x = images = keras.Input(SHAPE)
    for part in before:
        x = part(x)
    x = layer()(x, training=True)
    for part in parts():
        x = part(x)
    return keras.Model(images, x)


RANDOM: dict[str, Callable[[], Any]] = {
    "a dropout": monte_carlo,
    "noise": lambda: monte_carlo(layer=lambda: layers.GaussianNoise(0.5)),
    "a dropout behind augmentation": lambda: monte_carlo(layers.RandomFlip()),
    "in a model within the model": lambda: keras.Sequential([keras.Input(SHAPE), monte_carlo()]),
    "a layer that is active by default": lambda: sequential(before=(Dropped(),)),
}


@pytest.mark.parametrize("what", RANDOM)
def test_what_its_author_calls_with_training_stays_active(what: str) -> None:
    network, images = RANDOM[what](), drawn(2)
    with pytest.raises(ModelError, match=r"different logits for the same images.*robustcmp\.averaged\(model\)"):
        rc.evaluate({"m": rc.wrap(network)}, drawn(), np.zeros(N, int), suite="smoke", progress=False)
    averaged = Classifier(rc.averaged(rc.wrap(network), passes=10))
    logits = averaged.logits(images)
    np.testing.assert_array_equal(averaged.logits(images), logits)
    other = Classifier(rc.averaged(rc.wrap(network), passes=10, seed=1)).logits(images)
    assert np.abs(logits - other).max() > 1e-3


def test_a_call_that_needs_training_is_told_false() -> None:
    class Needing(Subclassed):
        def call(self, x: Any, training: bool) -> Any:
            assert training is False
            return super().call(x, training)

    network = Needing()
    network(drawn(), training=False)
    check_same(network, network)


@pytest.mark.parametrize("layer", [False, True])
def test_a_sigmoid_for_each_class_is_cut(layer: bool) -> None:
    network = soft(layers.Activation("sigmoid")) if layer else functional("sigmoid")
    with pytest.raises(ModelError, match=r"every answer to \d+ images is in \[0, 1\].*cut_softmax=True"):
        rc.evaluate({"m": rc.wrap(network)}, drawn(), np.zeros(N, int), suite="smoke", progress=False)
    check_same(network, functional(), cut_softmax=True)


@pytest.mark.parametrize("end", [None, "tanh"])
def test_there_is_no_softmax_to_cut(end: str | None) -> None:
    with pytest.raises(
        UsageError, match=r"found no softmax or sigmoid at the end of the network, whose last layer is dense.*Dense"
    ):
        rc.wrap(functional(end), cut_softmax=True)
    with pytest.raises(UsageError, match="received outputs='probabilities': omit one"):
        rc.wrap(functional("softmax"), cut_softmax=True, outputs="probabilities")


# images of 8 bits -----------------------------------------------------------------------------------------------------

MEAN, VARIANCE = [123.0, 117.0, 104.0], [58.0**2, 57.0**2, 57.0**2]
EIGHT_BIT: dict[str, Callable[[], Any]] = {
    "Rescaling(1 / 255)": lambda: sequential(before=(layers.Rescaling(1 / 255),)),
    "Rescaling(1 / 127.5, offset=-1), after augmentation": lambda: functional(
        before=(layers.RandomFlip(), layers.Rescaling(1 / 127.5, offset=-1))
    ),
    "Normalization with means such as 123": lambda: sequential(
        before=(layers.Normalization(mean=MEAN, variance=VARIANCE),)
    ),
    "Rescaling(1 / 255) in a model within the model": lambda: keras.Sequential(
        [keras.Input(SHAPE), sequential(before=(layers.Rescaling(1 / 255),))]
    ),
    "keras.applications.mobilenet_v2.preprocess_input": lambda: preprocessed("mobilenet_v2"),
    "keras.applications.resnet.preprocess_input": lambda: preprocessed("resnet"),
}


def preprocessed(module: str) -> Any:
    images = keras.Input(SHAPE)
    return keras.Model(images, functional()(getattr(keras.applications, module).preprocess_input(images)))


@pytest.mark.parametrize(
    "first",
    [pytest.param(first, marks=brought(what=first, typed="rc.wrap(model, bounds=(0, 255))")) for first in EIGHT_BIT],
)
def test_a_network_of_8_bit_images(first: str) -> None:
    network = EIGHT_BIT[first]()
    check_same(network, network, 1e-4, factor=255, bounds=(0, 255))


@brought(what="a first layer for 8-bit images, without bounds", got="the message: pass bounds=(0, 255)")
@pytest.mark.parametrize("first", [first for first in EIGHT_BIT if "preprocess_input" not in first])
def test_a_network_of_8_bit_images_without_bounds(first: str) -> None:
    network = EIGHT_BIT[first]()
    with pytest.raises(UsageError, match=r"scales images from \[0, 255\] itself.*Pass bounds=\(0, 255\)"):
        rc.wrap(network)
    assert rc.wrap(network, bounds=(0, 1)).bounds == (0, 1)


@pytest.mark.parametrize(
    "before",
    [
        (layers.Normalization(mean=[0.5, 0.4, 0.3], variance=[0.05] * 3),),
        (layers.Rescaling(2.0, offset=-1),),
        (layers.Rescaling(255.0), layers.Rescaling(1 / 255)),
        (layers.RandomContrast(0.5),),
    ],
    ids=["Normalization", "Rescaling", "there and back", "augmentation"],
)
def test_a_network_of_images_in_0_to_1(before: tuple[Any, ...]) -> None:
    assert rc.wrap(sequential(before=before)).bounds == (0, 1)


# precision ------------------------------------------------------------------------------------------------------------


def smooth(policy: str = "float32") -> Any:
    """Return a model without kinks, over which rounding would carry a gradient, in a policy for precision."""
    kept = keras.config.dtype_policy()
    keras.config.set_dtype_policy(policy)
    try:
        model = functional(activation="tanh")
    finally:
        keras.config.set_dtype_policy(kept)
    if policy != "float32":
        model.set_weights(smooth().get_weights())
    return model


POLICIES = {"mixed_float16": 5e-3, "mixed_bfloat16": 5e-2, "float64": 1e-5, "float16": 5e-3}


@pytest.mark.parametrize(
    "policy", [pytest.param(name, marks=brought(what=f"a model with the policy {name}")) for name in POLICIES]
)
def test_a_model_in_another_precision(policy: str, tmp_path: Path) -> None:
    network = smooth(policy)
    assert network(drawn(1)).dtype == policy.removeprefix("mixed_")
    model = check_same(network, smooth(), POLICIES[policy])
    compared(model, drawn(), tmp_path)


@pytest.mark.parametrize("policy", ["mixed_float16", "float16", "mixed_bfloat16"])
@pytest.mark.parametrize("compiled", [False, True])
def test_gradients_below_the_smallest_float16_arrive(policy: str, compiled: bool) -> None:
    images, v = drawn(), np.zeros((N, CLASSES), np.float32)
    v[:, 0], v[0] = 1e-12, 0  # one image has no gradient
    received, expected = (Classifier(rc.wrap(each, device="cpu")) for each in (smooth(policy), smooth()))
    received = received.compile(images) if compiled else received
    gradient = received.vjp(images, v)
    assert not gradient[0].any()
    np.testing.assert_allclose(gradient * 1e12, expected.vjp(images, v) * 1e12, atol=5e-2)


# programs -------------------------------------------------------------------------------------------------------------

IMAGES = [None, *SHAPE]


class Module(tf.Module):  # type: ignore[misc]
    """A module of TensorFlow without Keras, around a model."""

    def __init__(self, model: Any, answer: Callable[[Any], Any] = lambda z: {"logits": z, "features": 2 * z}):
        super().__init__()
        self.model, self.answer = model, answer
        self.known = [weight.value for weight in model.weights]

    @tf.function(input_signature=[tf.TensorSpec(IMAGES, tf.float32, name="pixels")])  # type: ignore[misc]
    def __call__(self, pixels: Any) -> Any:
        return self.answer(self.model(pixels, training=False))


def exported(model: Any, path: Path) -> Any:
    model.export(path, verbose=False)
    return tf.saved_model.load(path)


def saved(module: Any, path: Path, **signatures: Any) -> Any:
    tf.saved_model.save(module, str(path), signatures=signatures or None)
    return tf.saved_model.load(str(path))


def concrete(function: Callable[[Any], Any], spec: Any = None) -> Any:
    return tf.function(function).get_concrete_function(spec or tf.TensorSpec(IMAGES, tf.float32))


PROGRAMS: dict[str, tuple[str, Callable[[Any, Path], Any]]] = {
    "a SavedModel of model.export": ("rc.wrap(tf.saved_model.load(DIR))", exported),
    "a SavedModel whose answer is a dict with logits": (
        "rc.wrap(tf.saved_model.load(DIR))",
        lambda model, path: saved(Module(model), path),
    ),
    "a signature of a SavedModel": (
        'rc.wrap(loaded.signatures["serving_default"])',
        exported,  # its signature is taken in the test, as its variables live as long as it does
    ),
    "keras.layers.TFSMLayer": (
        'rc.wrap(keras.layers.TFSMLayer(DIR, call_endpoint="serve"))',
        lambda model, path: exported(model, path) and layers.TFSMLayer(path, call_endpoint="serve"),
    ),
    "a tf.function": (
        "rc.wrap(tf.function(function))",
        lambda model, _: tf.function(lambda x: model(x, training=False)),
    ),
    "a concrete function": (
        "rc.wrap(function.get_concrete_function(tf.TensorSpec([None, H, W, C])))",
        lambda model, _: concrete(lambda x: model(x, training=False)),
    ),
    "a tf.Module": ("rc.wrap(module)", lambda model, _: Module(model)),
}


@pytest.mark.parametrize(
    "what", [pytest.param(what, marks=brought(what=what, typed=typed)) for what, (typed, _) in PROGRAMS.items()]
)
def test_a_program(what: str, tmp_path: Path) -> None:
    network = functional()
    loaded = exported(network, tmp_path / "loaded") if "signature" in what else None
    made = loaded.signatures["serving_default"] if loaded else PROGRAMS[what][1](network, tmp_path / "saved")
    model = check_same(made, functional())
    assert (Classifier(model).weights_digest is None) == (what == "a tf.function")
    if what in ("a SavedModel of model.export", "a tf.Module"):
        compared(model, drawn(), tmp_path)


class Scratch(tf.Module):  # type: ignore[misc]
    """A program that computes through a variable of its own, into which every call writes."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model, self.hidden = model, tf.Variable(tf.zeros(SHAPE))

    def __call__(self, x: Any) -> Any:
        self.hidden.assign(tf.reduce_mean(x, 0))
        return self.model(x - 0 * self.hidden, training=False)


@brought(
    what="a program that is not safe for threads: it writes into a variable of its own",
    typed="rc.wrap(module)",
    got="a comparison; it is asked one call after another",
)
def test_a_program_that_is_not_safe_for_threads(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    model = rc.wrap(Scratch(functional()), device="cpu")
    np.testing.assert_allclose(Classifier(model).logits(drawn()), answered(functional(), drawn()), atol=1e-5)
    caplog.set_level(logging.INFO, "robustcmp")
    assert Classifier(model).compile(drawn()).traced is None
    assert "a call writes into the network's own arrays" in caplog.text
    compared(model, drawn(), tmp_path)


def of_bytes(x: Any) -> Any:
    return tf.cast(tf.reshape(x, [-1, SIDE * SIDE * 3])[:, :CLASSES], tf.float32)


def two_signatures(path: Path) -> Any:
    module = Module(functional())
    one, two = (module.__call__.get_concrete_function() for _ in range(2))
    return saved(module, path, train=one, embed=two)


MESSAGES: dict[str, tuple[str, str, Callable[[Path], Any], str]] = {
    "a model of two outputs": (
        "rc.wrap(model)",
        "the message: wrap a network around it that returns the logits alone",
        lambda _: (lambda model: keras.Model(model.input, [model.output, model.layers[1].output]))(functional()),
        r"should return one tensor of logits, received a (list|tuple)\. Wrap a function",
    ),
    "a model that has no weights yet": (
        "rc.wrap(model)",
        "the message: call it once, and load its weights",
        lambda _: keras.Sequential(parts()),
        r"has no weights yet.*Call it once",
    ),
    "a subclassed model that has no weights yet": (
        "rc.wrap(model)",
        "the message: call it once, and load its weights",
        lambda _: Subclassed(),
        r"has no weights yet.*Call it once",
    ),
    "a SavedModel of several signatures": (
        "rc.wrap(tf.saved_model.load(DIR))",
        "the message: pass one of them, loaded.signatures[…]",
        two_signatures,
        r"signatures train, embed.*loaded\.signatures\['train'\]",
    ),
    "a signature for 8-bit images": (
        "rc.wrap(loaded)",
        "the message: export it for float32 images",
        lambda _: concrete(of_bytes, tf.TensorSpec(IMAGES, tf.uint8)),
        r"received one for uint8.*Export the network for",
    ),
    "a signature for one image at a time": (
        "rc.wrap(loaded)",
        "the message: export it for any number of them",
        lambda _: concrete(of_bytes, tf.TensorSpec([1, *SHAPE])),
        r"received one for float32 of the shape \(1, .*tf\.TensorSpec\(\[None, H, W, C\]\)",
    ),
    "a signature that takes more than images": (
        "rc.wrap(loaded)",
        "the message: wrap a tf.function around it",
        lambda _: tf.function(lambda x, rate: of_bytes(x) * rate).get_concrete_function(
            tf.TensorSpec(IMAGES), tf.TensorSpec([])
        ),
        r"should take one tensor of images.*Wrap a function around it, tf\.function\(lambda images",
    ),
}


@pytest.mark.parametrize(
    "what",
    [pytest.param(what, marks=brought(what=what, typed=typed, got=got)) for what, (typed, got, *_) in MESSAGES.items()],
)
def test_a_message(what: str, tmp_path: Path) -> None:
    *_, make, message = MESSAGES[what]
    native = make(tmp_path / "saved")
    with pytest.raises(RobustcmpError, match=message) as caught:
        Classifier(rc.wrap(native, device="cpu")).logits(drawn())
    assert "\n" not in str(caught.value)


# other backends -------------------------------------------------------------------------------------------------------

# What is compared on another backend, in a process of its own: the answers of the models that `test_a_backend` saved.
ON_A_BACKEND = """
import sys
from pathlib import Path

import keras
import numpy as np

import robustcmp as rc
from brought import compared
from robustcmp.errors import RobustcmpError
from robustcmp.models.classifier import Classifier

backend, folder = sys.argv[1], Path(sys.argv[2])
assert keras.backend.backend() == backend
given = np.load(folder / "given.npz")
images, v = given["images"], given["v"]
answers = {}


def messages(make):
    try:
        make()
    except RobustcmpError as error:
        return str(error)
    return ""


def asked(name, model, v):
    classifier = Classifier(model.transform_bounds((0, 1)))
    answers[name] = classifier.logits(images)
    answers[name + " gradient"] = classifier.vjp(images, v)
    compiled = classifier.compile(images)
    np.testing.assert_allclose(compiled.vjp(images, v), answers[name + " gradient"], atol=1e-4)
    return model


model = keras.models.load_model(folder / "plain.keras")
plain = asked("plain", rc.wrap(model), v)
assert (plain.framework, plain.data_format) == (backend, "channels_last")
answers["digest"] = Classifier(plain).weights_digest
compared(plain, images, folder)
soft = keras.models.load_model(folder / "softmax.keras")
asked("softmax", rc.wrap(soft, cut_softmax=True), v)
said = messages(lambda: compared(rc.wrap(soft), images, folder))
assert "cut_softmax=True" in said and "outputs=" in said
eight_bit = keras.models.load_model(folder / "eight_bit.keras")
asked("eight_bit", rc.wrap(eight_bit, bounds=(0, 255)), v)
answers["eight_bit message"] = messages(lambda: rc.wrap(eight_bit))
asked("float16", rc.wrap(keras.models.load_model(folder / "float16.keras")), np.float32(1e-12) * v)
random = keras.Sequential([keras.Input(images.shape[1:]), keras.layers.Flatten(), keras.layers.Dense(3)])
x = keras.Input(images.shape[1:])
random = keras.Model(x, random(keras.layers.Dropout(0.5)(x, training=True)))
answers["random message"] = messages(lambda: compared(rc.wrap(random), images, folder))
answers["unbuilt message"] = messages(lambda: rc.wrap(keras.Sequential([keras.layers.Dense(3)])))
np.savez(folder / "answers.npz", **answers)
"""


@pytest.mark.slow  # a process of its own for each
@pytest.mark.parametrize(
    "backend",
    [
        pytest.param("jax", marks=brought(what="a model on the backend JAX", typed="rc.wrap(model)")),
        pytest.param("torch", marks=brought(what="a model on the backend PyTorch", typed="rc.wrap(model)")),
    ],
)
def test_a_backend(backend: str, tmp_path: Path) -> None:
    pytest.importorskip(backend, reason=f"{backend} is not installed")
    kept = keras.config.dtype_policy()
    models = {
        "plain": smooth(),
        "softmax": functional("softmax", activation="tanh"),
        "eight_bit": functional(before=(layers.Rescaling(1 / 255),), activation="tanh"),
        "float16": smooth("mixed_float16"),
    }
    assert keras.config.dtype_policy() == kept
    for name, model in models.items():
        model.save(tmp_path / f"{name}.keras")
    images, v = drawn(), np.random.default_rng(1).normal(size=(N, CLASSES)).astype(np.float32)
    np.savez(tmp_path / "given.npz", images=images, v=v)
    environment = {**os.environ, "KERAS_BACKEND": backend, "PYTHONPATH": str(Path(__file__).parent)}
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", ON_A_BACKEND, backend, str(tmp_path)]
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    answers = np.load(tmp_path / "answers.npz")
    expected = Classifier(rc.wrap(models["plain"], device="cpu"))
    logits, gradient = expected.logits(images), expected.vjp(images, v)
    for name in ("plain", "softmax", "eight_bit"):
        np.testing.assert_allclose(answers[name], logits, atol=1e-4)
        np.testing.assert_allclose(answers[f"{name} gradient"], gradient, atol=1e-4)
    np.testing.assert_allclose(answers["float16"], logits, atol=5e-3)
    np.testing.assert_allclose(answers["float16 gradient"] * 1e12, gradient, atol=2e-2)
    assert "Pass bounds=(0, 255)" in str(answers["eight_bit message"])
    assert "has no weights yet" in str(answers["unbuilt message"])
    assert "robustcmp.averaged(model)" in str(answers["random message"])
    assert len(str(answers["digest"])) > 10


# one number for two classes -------------------------------------------------------------------------------------------


# libraries ------------------------------------------------------------------------------------------------------------


def settled(model: Any, images: NDArray[np.float32]) -> Any:
    """Return an untrained model whose batch norms have the statistics of images, without which all logits are alike."""
    for layer in model._flatten_layers():
        if isinstance(layer, layers.BatchNormalization):
            layer.momentum = 0.0
    model(images, training=True)
    return model


@brought(
    what="keras.applications: MobileNet with its softmax",
    typed="rc.wrap(keras.applications.MobileNet(…), cut_softmax=True, bounds=(-1, 1))",
)
def test_applications(tmp_path: Path) -> None:
    keras.utils.set_random_seed(0)
    network = keras.applications.MobileNet(input_shape=(32, 32, 3), alpha=0.25, weights=None, classes=5, dropout=0.5)
    settled(network, 2 * drawn(8, 32) - 1)
    assert network.layers[-1].activation is keras.activations.softmax
    logits = keras.Model(network.input, network.layers[-2].output)
    model = rc.wrap(network, cut_softmax=True, bounds=(-1, 1), device="cpu").transform_bounds((0, 1))
    received = Classifier(model).logits(drawn(8, 32))
    np.testing.assert_allclose(received, answered(logits, 2 * drawn(8, 32) - 1), atol=1e-3)
    compared(model, drawn(8, 32), tmp_path)


WITH_PREPROCESSING = {
    "MobileNetV3Small": {"include_preprocessing": True},
    "EfficientNetB0": {},
    "EfficientNetV2B0": {"include_preprocessing": True},
    "ConvNeXtTiny": {"include_preprocessing": True},
}


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(
            name,
            marks=[
                brought(
                    what=f"keras.applications: {name}, with its preprocessing",
                    typed=f"rc.wrap(keras.applications.{name}(…))",
                    got="the message: pass bounds=(0, 255)",
                ),
                *([pytest.mark.whole_zoo] if name != "MobileNetV3Small" else []),
            ],
        )
        for name in WITH_PREPROCESSING
    ],
)
def test_applications_with_their_preprocessing(name: str) -> None:
    make = getattr(keras.applications, name)
    network = make(input_shape=(32, 32, 3), weights=None, classes=5, **WITH_PREPROCESSING[name])
    with pytest.raises(UsageError, match=r"Pass bounds=\(0, 255\)"):
        rc.wrap(network)
    assert rc.wrap(network, bounds=(0, 255), cut_softmax=True).bounds == (0, 255)


# files ----------------------------------------------------------------------------------------------------------------


@brought(
    what="a directory of a SavedModel",
    typed="robustcmp eval --weights tensorflow=DIR",
    got="the message: it is a program; save x.keras, or return it from module:function",
)
def test_a_directory_of_a_saved_model(tmp_path: Path) -> None:
    exported(functional(), tmp_path / "saved")
    for source in (tmp_path / "saved", tmp_path / "saved" / "saved_model.pb"):
        message = r"is a SavedModel.*x\.keras.*tf\.saved_model\.load\('[^']*saved'\)"
        with pytest.raises(WeightsError, match=message):
            file_origins([f"tensorflow={source}"])
        with pytest.raises(WeightsError, match=message):
            load_network(str(source), "tensorflow")


def saved_as_hdf5(model: Any, path: Path) -> str:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.save(path)
    return str(path)


@brought(what="a whole model in a file `.h5` or `.hdf5`", typed="robustcmp eval --weights tensorflow=a.h5")
@pytest.mark.parametrize("ending", ["h5", "hdf5"])
def test_a_whole_model_in_hdf5(ending: str, tmp_path: Path) -> None:
    path = saved_as_hdf5(sequential("softmax"), tmp_path / f"a.{ending}")
    (origin,) = file_origins([f"tensorflow={path},softmax"])["tensorflow"]
    model = origin.load("cpu")
    np.testing.assert_allclose(Classifier(model).logits(drawn()), answered(sequential(), drawn()), atol=1e-5)
    compared(model, drawn(), tmp_path)
    with pytest.raises(
        RobustcmpError, match=r"torch reads .*Write tensorflow=|is a model of Keras.* write tensorflow="
    ):
        file_origins([f"torch={path}"])


def in_keras_2(kind: str, name: str, before: list[Any], **settings: Any) -> dict[str, Any]:
    """Return what Keras 2 writes of a layer; `before` are the uses of layers that it takes its input from."""
    nodes = [[[*use, 0, {}] for use in before]] if before else []
    return {"class_name": kind, "name": name, "config": {"name": name, **settings}, "inbound_nodes": nodes}


def test_the_words_of_keras_2_are_read(tmp_path: Path) -> None:
    """Models within models count their uses from 1, and Keras 3 refuses some settings."""
    keras.utils.set_random_seed(0)
    images, inner = keras.Input(SHAPE), keras.Input(SHAPE)
    within = keras.Model(inner, layers.Add()([layers.DepthwiseConv2D(3, padding="same")(inner), inner]))
    x = layers.LeakyReLU(0.2)(layers.SeparableConv2D(4, 3)(within(within(images))))
    x = layers.BatchNormalization(moving_mean_initializer="random_normal")(x)
    network = keras.Model(images, layers.Dense(CLASSES)(layers.GlobalAveragePooling2D()(x)))
    zeros = {"module": "keras.initializers", "class_name": "Zeros", "config": {}, "registered_name": None}
    policy = {"class_name": "Policy", "config": {"name": "float32"}}
    batch = {"batch_input_shape": [None, *SHAPE]}
    parts_within = [
        in_keras_2("InputLayer", "inner", [], **batch),
        in_keras_2("DepthwiseConv2D", "depth", [("inner", 0)], kernel_size=[3, 3], padding="same", groups=1),
        in_keras_2("Add", "add", [("depth", 0), ("inner", 0)]),
    ]
    parts_of_all = [
        in_keras_2("InputLayer", "images", [], **batch),
        in_keras_2(
            "Functional",
            "within",
            [],
            layers=parts_within,
            input_layers=[["inner", 0, 0]],
            output_layers=[["add", 0, 0]],
        ),
        in_keras_2(
            "SeparableConv2D",
            "separable",
            [("within", 2)],
            filters=4,
            kernel_size=[3, 3],
            groups=1,
            kernel_initializer=zeros,
        ),
        in_keras_2("LeakyReLU", "leaky", [("separable", 0)], alpha=0.2),
        in_keras_2("BatchNormalization", "norm", [("leaky", 0)], axis=[3], epsilon=1e-3),
        in_keras_2("GlobalAveragePooling2D", "pool", [("norm", 0)]),
        in_keras_2("Dense", "dense", [("pool", 0)], units=CLASSES, dtype=policy),
    ]
    parts_of_all[1]["inbound_nodes"] = [[["images", 0, 0, {}]], [["within", 1, 0, {}]]]
    ends = {"input_layers": [["images", 0, 0]], "output_layers": [["dense", 0, 0]]}
    described = {"class_name": "Functional", "config": {"name": "all", "layers": parts_of_all, **ends}}
    path = saved_as_hdf5(network, tmp_path / "a.h5")
    with h5py.File(path, "r+") as file:
        file.attrs["model_config"], file.attrs["keras_version"] = json.dumps(described), "2.15.0"
    with pytest.warns(UserWarning, match="`alpha` is deprecated"):
        model = load_network(path, "tensorflow")
    np.testing.assert_allclose(Classifier(model).logits(drawn()), answered(network, drawn()), atol=1e-6)


class Doubled(layers.Layer):  # type: ignore[misc]
    def call(self, x: Any) -> Any:
        return 2 * x


@brought(
    what="a file `.h5` of Keras with a `Lambda` or a layer of your own",
    typed="robustcmp eval --weights tensorflow=a.h5",
    got="the message: it needs code; return it from module:function",
)
@pytest.mark.parametrize(
    ("before", "message"),
    [
        (lambda: layers.Lambda(lambda x: 2 * x), r"has a Lambda, which needs code.*If you trust.*module:function"),
        (Doubled, r"Unknown layer: 'Doubled'\. If the network needs your own code.*module:function"),
    ],
    ids=["Lambda", "own"],
)
def test_a_file_of_keras_that_needs_code(before: Any, message: str, tmp_path: Path) -> None:
    within = sequential(before=(before(),))
    path = saved_as_hdf5(keras.Sequential([keras.Input(SHAPE), within]), tmp_path / "a.h5")
    with pytest.raises(WeightsError, match=message):
        load_network(path, "tensorflow")


@keras.saving.register_keras_serializable("brought")  # type: ignore[untyped-decorator]
class Nested(layers.Layer):  # type: ignore[misc]
    def __init__(self, **more: Any):
        super().__init__(**more)
        self.parts = [[layers.Dense(CLASSES)]]

    def build(self, shape: Any) -> None:
        self.parts[0][0].build(shape)

    def call(self, x: Any) -> Any:
        return self.parts[0][0](x)


def test_a_layer_that_keeps_its_initial_weights_refuses_a_file(tmp_path: Path) -> None:
    """Keras only warns of it."""
    keras.Sequential([keras.Input(SHAPE), layers.Flatten(), Nested()]).save(path := tmp_path / "a.keras")
    with zipfile.ZipFile(path) as archive:
        contents = {name: archive.read(name) for name in archive.namelist()}
    with h5py.File(weights := io.BytesIO(contents["model.weights.h5"]), "r+") as file:
        del file["layers/nested/parts/container"]
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in (contents | {"model.weights.h5": weights.getvalue()}).items():
            archive.writestr(name, content)
    with pytest.raises(WeightsError, match=r"does not fit.*Affected layers will retain their freshly-initialized"):
        load_network(str(path), "tensorflow")


@brought(what="a file `.keras`", typed="robustcmp eval --weights tensorflow=a.keras")
def test_a_file_of_keras(tmp_path: Path) -> None:
    functional().save(tmp_path / "a.keras")
    (origin,) = file_origins([f"tensorflow={tmp_path / 'a.keras'}"])["tensorflow"]
    model = origin.load("cpu")
    np.testing.assert_allclose(Classifier(model).logits(drawn()), answered(functional(), drawn()), atol=1e-5)
    compared(model, drawn(), tmp_path)

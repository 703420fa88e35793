"""What people bring from Keras and TensorFlow: it is attacked beside another model, or a message says what to do."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from brought import compared
from numpy.typing import NDArray

import robustcmp as rc
from robustcmp.errors import ModelError, UsageError
from robustcmp.models.classifier import Classifier
from robustcmp.models.preflight import check_model

tf = pytest.importorskip("tensorflow", reason="tensorflow is not installed")
keras: Any = pytest.importorskip("keras", reason="keras is not installed")
layers = keras.layers

N, SIDE, CLASSES = 16, 8, 3
SHAPE = (SIDE, SIDE, 3)
brought = partial(pytest.mark.brought, group="Keras and TensorFlow", typed="rc.wrap(model)", got="a comparison")


def drawn(n: int = N, side: int = SIDE) -> NDArray[np.float32]:
    return np.random.default_rng(0).random((n, side, side, 3), dtype=np.float32)


def parts(end: str | None = None, before: tuple[Any, ...] = (), seed: int = 0, **of_last: Any) -> list[Any]:
    """Return layers of a small network with a batch norm that has statistics; `end` is the last activation."""
    keras.utils.set_random_seed(seed)
    norm = layers.BatchNormalization(moving_mean_initializer="random_normal", beta_initializer="random_normal")
    return [
        *before,
        layers.Conv2D(4, 3, activation="relu"),
        norm,
        layers.Flatten(),
        layers.Dense(CLASSES, activation=end, **of_last),
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
    compiled = received.compiled(images)
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
def test_a_softmax_is_cut(where: str, tmp_path: Path) -> None:
    network = WITH_SOFTMAX[where]()
    before = answered(network, drawn())
    np.testing.assert_allclose(before.sum(axis=1), 1, atol=1e-5)
    model = check_same(network, functional(), cut_softmax=True)
    np.testing.assert_array_equal(answered(network, drawn()), before)
    compared(model, drawn(), tmp_path)


@brought(
    what="a softmax at the end, kept",
    got="the message: cut it with cut_softmax=True",
)
@pytest.mark.parametrize("where", WITH_SOFTMAX)
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


@pytest.mark.parametrize("end", [None, "sigmoid"])
def test_there_is_no_softmax_to_cut(end: str | None) -> None:
    with pytest.raises(
        UsageError, match=r"found no softmax at the end of the network, whose last layer is dense.*Dense"
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
def test_a_network_of_8_bit_images(first: str, tmp_path: Path) -> None:
    network = EIGHT_BIT[first]()
    model = check_same(network, network, 1e-4, factor=255, bounds=(0, 255))
    compared(model.transform_bounds((0, 1)), drawn(), tmp_path)


@brought(what="a first layer for 8-bit images, without bounds", got="the message: pass bounds=(0, 255)")
@pytest.mark.parametrize("first", EIGHT_BIT)
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

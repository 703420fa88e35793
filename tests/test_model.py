"""Wrapped networks: the same answers in every framework, and one clear error for everything that is amiss."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import eagerpy as ep
import foolbox as fb
import numpy as np
import pytest
from numpy.typing import NDArray

import robustcmp as rc
from robustcmp import common_subset, evaluate, frameworks, predict, wrap, wrap_functions
from robustcmp.data.arrays import check_images, check_labels
from robustcmp.data.dataset import Dataset
from robustcmp.errors import ModelError, UsageError
from robustcmp.frameworks import DataFormat, TrainableFramework
from robustcmp.models import batches
from robustcmp.models.batches import measure_batch_size
from robustcmp.models.classifier import Classifier
from robustcmp.models.model import Model
from robustcmp.models.preflight import check_gradient, check_model

Images = NDArray[np.float32]
Function = Callable[[Any], Any]
"""EagerPy images (N, H, W, C) to EagerPy logits (N, K)."""

pytestmark = pytest.mark.needs("tensors")  # what is wrapped is made of them

TORCH = frameworks.get_framework("torch")  # for what is no framework's business
SHAPE, CLASSES = (4, 5, 3), 6
RNG = np.random.default_rng(0)
KERNEL: Images = RNG.normal(size=(CLASSES, *SHAPE)).astype(np.float32)
IMAGES: Images = RNG.random((17, *SHAPE), np.float32)
V: Images = RNG.normal(size=(17, CLASSES)).astype(np.float32)
LABELS = np.arange(17) % CLASSES


def linear(x: Any) -> Any:
    rows = [(x * ep.from_numpy(x, kernel)).sum(axis=(1, 2, 3)) for kernel in KERNEL]
    return ep.stack(rows, axis=1)


def linear_logits(images: NDArray[Any]) -> NDArray[np.float64]:
    return np.einsum("nhwc,khwc->nk", images.astype(np.float64), KERNEL.astype(np.float64))


LINEAR_VJP = np.einsum("nk,khwc->nhwc", V, KERNEL)


# One network of each framework that computes a given function, in a layout of its own.


def _torch_network(function: Callable[[Any], Any]) -> Any:
    import torch

    class Network(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return function(x)

    return Network().eval()


def _tensorflow_network(function: Callable[[Any], Any]) -> Any:
    import keras

    class Network(keras.Model):  # type: ignore[misc]
        def call(self, x: Any, training: bool = False) -> Any:
            return function(x)

    made = Network()
    made.built = True  # it has no weights
    return made


NETWORK: dict[str, Callable[[Callable[[Any], Any]], Any]] = {
    "torch": _torch_network,
    "tensorflow": _tensorflow_network,
    "jax": lambda function: function,
}


def in_layout(function: Function, data_format: DataFormat) -> Callable[[Any], Any]:
    """Return a function of raw tensors in a layout."""

    def of_tensors(x: Any) -> Any:
        images = ep.astensor(x)
        return function(images.transpose((0, 2, 3, 1)) if data_format == "channels_first" else images).raw

    return of_tensors


def network(framework: TrainableFramework, function: Function = linear, data_format: DataFormat | None = None) -> Any:
    return NETWORK[framework.name](in_layout(function, data_format or framework.data_format))


def wrapped(framework: TrainableFramework, function: Function = linear, **options: Any) -> Model:
    native = network(framework, function, options.get("data_format"))
    return wrap(native, framework=framework.name, device="cpu", **options)


def foolbox_model(framework: TrainableFramework, function: Function = linear, **options: Any) -> fb.models.base.Model:
    """Return the model that Foolbox itself makes of a network."""
    native = network(framework, function)
    if framework.name == "torch":
        return fb.PyTorchModel(native, bounds=(0, 1), device="cpu", **options)
    if framework.name == "tensorflow":
        return fb.TensorFlowModel(native, bounds=(0, 1), device="/CPU:0", **options)
    return fb.JAXModel(native, bounds=(0, 1), **options)


def assert_linear(classifier: Classifier) -> None:
    np.testing.assert_allclose(classifier.logits(IMAGES), linear_logits(IMAGES), rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(classifier.predict(IMAGES), linear_logits(IMAGES).argmax(axis=1))
    gradient = classifier.vjp(IMAGES, V)
    assert gradient.dtype == np.float32
    np.testing.assert_allclose(gradient, LINEAR_VJP, rtol=1e-4, atol=1e-5)


# Asking


@pytest.mark.parametrize("data_format", ["channels_first", "channels_last"])
def test_a_network_in_either_layout(framework: TrainableFramework, data_format: DataFormat) -> None:
    model = wrapped(framework, data_format=data_format)
    assert isinstance(model, fb.models.base.Model)
    assert (model.framework, model.data_format, model.bounds, model.info) == (framework.name, data_format, (0, 1), {})
    classifier = Classifier(model, batch_size=5)
    assert classifier.framework is framework
    assert_linear(classifier)
    own = classifier.tensor(IMAGES)
    assert tuple(own.shape) == ((17, 3, 4, 5) if data_format == "channels_first" else (17, 4, 5, 3))
    np.testing.assert_array_equal(classifier.array(own), IMAGES)
    np.testing.assert_array_equal(classifier.array(classifier.tensor(LABELS)), LABELS)


def test_the_framework_is_found_out(framework: TrainableFramework) -> None:
    native = network(framework)
    if framework.name == "jax":
        with pytest.raises(ModelError, match="framework= for a plain JAX function"):
            wrap(native)
        import jax

        native = jax.jit(native)
    assert wrap(native).framework == framework.name


def test_a_foolbox_model_answers_as_when_called_directly(framework: TrainableFramework) -> None:
    model = foolbox_model(framework)
    classifier = Classifier(model, batch_size=4)
    direct = framework.array(model(classifier.tensor(IMAGES)))
    np.testing.assert_allclose(classifier.logits(IMAGES), direct, rtol=0, atol=1e-6)
    assert_linear(classifier)
    assert_linear(Classifier(model, like=classifier.tensor(IMAGES)))
    np.testing.assert_array_equal(predict(model, IMAGES), direct.argmax(axis=1))


@pytest.mark.parametrize("data_format", [None, "channels_last", "channels_first"])
def test_a_foolbox_numpy_model_is_asked(data_format: DataFormat | None) -> None:
    function = in_layout(linear, data_format or "channels_last")
    model = fb.NumPyModel(function, bounds=(0, 1), data_format=data_format)
    classifier = Classifier(model, batch_size=4)
    direct = model(classifier.tensor(IMAGES))
    np.testing.assert_allclose(classifier.logits(IMAGES), direct, rtol=0, atol=1e-6)
    np.testing.assert_allclose(direct, linear_logits(IMAGES), rtol=1e-5, atol=1e-5)
    with pytest.raises(ModelError, match="no gradients"):
        classifier.vjp(IMAGES, V)


@pytest.mark.needs("tensors")
@pytest.mark.parametrize("data_format", ["channels_first", "channels_last"])
def test_a_batch_is_filled_up_and_never_beyond_the_batch_size(framework: TrainableFramework, data_format: str) -> None:
    images = np.resize(IMAGES, (70, *IMAGES.shape[1:]))
    for batch_size in (64, 37):
        expected = {batch_size, min(framework.fill_size(70 % batch_size), batch_size)}
        asked: list[int] = []
        counted: list[int] = []

        def watched(x: Any, asked: list[int] = asked) -> Any:
            asked.append(x.shape[0])
            return linear(x)

        options = {"data_format": data_format} if framework.name == "torch" else {}
        model = wrapped(framework, watched, **options)
        logits = Classifier(model, batch_size, asked=counted.append).logits(images)
        np.testing.assert_allclose(logits, linear_logits(images), rtol=1e-4, atol=1e-4)
        assert sum(counted) == len(images)
        if framework.name != "tensorflow":  # which traces for any size
            assert {*asked} == expected


def too_large(x: Any) -> Any:
    """Nothing, for up to 16 raw images; for more of them, terabytes that depend on their values."""
    if "torch" in type(x).__module__:
        import torch

        return torch.zeros((x.shape[0] // 17) * 2**42).sum()
    if "tensorflow" in type(x).__module__:
        import tensorflow as tf

        return tf.reduce_sum(tf.fill([(tf.shape(x, out_type=tf.int64)[0] // 17) * 2**42], x[0, 0, 0, 0])) * 0
    import jax.numpy as jnp

    return jnp.sort(jnp.arange((x.shape[0] // 17) * 2**40, dtype="float32") * x[0, 0, 0, 0])[:1].sum() * 0


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize(  # TensorFlow waits ten seconds for others to give memory back
    "framework_name", ["torch", "jax", pytest.param("tensorflow", marks=pytest.mark.slow)]
)
def test_a_real_shortage_of_memory_halves_the_batch(
    framework_name: str, compiled: bool, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "robustcmp")
    framework = frameworks.get_framework(framework_name)

    def greedy(x: Any) -> Any:
        return ep.astensor(x.sum(axis=(1, 2)).raw + too_large(x.raw))

    images = np.resize(IMAGES, (20, *IMAGES.shape[1:]))
    classifier = Classifier(wrapped(framework, greedy), 20)
    if compiled:
        classifier = classifier.compile(images).with_batch_size(20)
        assert "is asked as it is" not in caplog.text
    np.testing.assert_allclose(classifier.logits(images), images.sum(axis=(1, 2)), rtol=1e-5)
    assert "a batch of 20 does not fit into the memory; 10 at once from now on" in caplog.text


@pytest.mark.parametrize("quiet", range(3))
@pytest.mark.parametrize(("rate", "slow", "best"), [(1e5, False, 1024), (2e4, False, 256), (100.0, True, 32)])
def test_an_attack_has_work_of_its_own_for_each_batch(
    monkeypatch: pytest.MonkeyPatch, rate: float, slow: bool, best: int, quiet: int
) -> None:
    """In one round of three the machine is quiet, which counts; of a slow model the smallest size is taken."""
    asked: list[int] = []

    def noisy(classifier: Classifier, images: Any, size: int, seconds: float) -> float:
        asked.append(size)
        busy = size == best and (len(asked) - 1) // 6 != quiet
        return rate / 2 if busy else rate

    monkeypatch.setattr(batches, "_time_batches", noisy)
    monkeypatch.setattr(batches, "is_slow", lambda classifier, images: slow)
    assert measure_batch_size(Classifier(wrapped(TORCH)), IMAGES) == best
    assert len(asked) == (0 if slow else 18)


# Preprocessing and bounds

CHANNELS: dict[str, tuple[Any, Any]] = {
    "channels": ([0.1, 0.2, 0.3], np.array([0.5, 0.25, 2.0])),
    "numbers": (0.1, 0.5),
}


def preprocessed(framework: TrainableFramework, kind: str, **options: Any) -> tuple[Model, Images]:
    """Return a model with preprocessing and the images as its network sees them."""
    mean, std = CHANNELS[kind]
    preprocessing = {"mean": mean, "std": std}
    if kind != "numbers":
        preprocessing["axis"] = -3 if framework.data_format == "channels_first" else -1
    return wrapped(framework, preprocessing=preprocessing, **options), (IMAGES - np.array(mean)) / np.array(std)


@pytest.mark.parametrize("kind", CHANNELS)
def test_preprocessing_by_channel(framework: TrainableFramework, kind: str) -> None:
    model, seen = preprocessed(framework, kind)
    classifier = Classifier(model)
    np.testing.assert_allclose(classifier.logits(IMAGES), linear_logits(seen), rtol=1e-5, atol=1e-4)
    np.testing.assert_allclose(
        classifier.vjp(IMAGES, V), LINEAR_VJP / np.array(CHANNELS[kind][1]), rtol=1e-4, atol=1e-4
    )


def test_preprocessing_that_flips_the_channels(framework: TrainableFramework) -> None:
    axis = -3 if framework.data_format == "channels_first" else -1
    classifier = Classifier(wrapped(framework, preprocessing={"flip_axis": axis}))
    np.testing.assert_allclose(classifier.logits(IMAGES), linear_logits(IMAGES[..., ::-1]), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("wrapper", [False, True])
def test_other_bounds_give_the_same_answers(framework: TrainableFramework, wrapper: bool) -> None:
    model, seen = preprocessed(framework, "channels")
    for low, high in ((0, 255), (-1, 1)):
        moved = model.transform_bounds((low, high), wrapper=wrapper)
        classifier = Classifier(moved, 4)
        assert isinstance(moved, Model) != wrapper
        assert classifier.bounds == (low, high)
        assert classifier.data_format == framework.data_format
        images = (low + (high - low) * IMAGES).astype(np.float32)
        np.testing.assert_allclose(classifier.logits(images), linear_logits(seen), rtol=1e-4, atol=1e-4)
        np.testing.assert_array_equal(predict(moved, IMAGES), predict(model, IMAGES))
        with pytest.raises(UsageError, match=r"Images are compared in \[0, 1\] whatever bounds a model has"):
            predict(moved, images)
        expected = LINEAR_VJP / np.array(CHANNELS["channels"][1]) / (high - low)
        np.testing.assert_allclose(classifier.vjp(images, V), expected, rtol=1e-4, atol=1e-4)
    assert model.bounds == (0, 1)


# In Foolbox


def test_foolboxs_accuracy_and_its_attacks(
    framework: TrainableFramework, zoo_model: Callable[..., Model], digits: Dataset
) -> None:
    model, n = zoo_model(framework), 40
    classifier = Classifier(model)
    images, labels = classifier.tensor(digits.images[:n]), classifier.tensor(digits.labels[:n])
    correct = predict(model, digits.images[:n]) == digits.labels[:n]
    assert fb.utils.accuracy(model, images, labels) == pytest.approx(correct.mean())
    attack = fb.attacks.LinfPGD(steps=4, rel_stepsize=0.5, random_start=False)
    raw, clipped, success = attack(model, images, labels, epsilons=[0.02, 0.3])
    fooled = framework.array(success).sum(axis=1)
    assert (~correct).sum() <= fooled[0] < fooled[1]
    for adversarial, epsilon in zip(clipped, (0.02, 0.3), strict=True):
        array = classifier.array(adversarial)
        assert np.abs(array - digits.images[:n]).max() == pytest.approx(epsilon, abs=1e-5)
        assert array.min() >= 0
        assert array.max() <= 1
    classes = predict(model, np.clip(classifier.array(clipped[1]), 0, 1))
    np.testing.assert_array_equal(classes != digits.labels[:n], framework.array(success)[1])
    assert type(raw[0]) is type(images)


# Pre-flight checks of images and labels

GOOD = np.full((3, 4, 5, 3), 0.5, np.float32)


def spoilt(value: float) -> Images:
    images = GOOD.copy()
    images[1, 2, 3, 0] = value
    return images


@pytest.mark.parametrize(
    ("images", "message"),
    [
        (spoilt(np.nan), "NaN or infinity, the first in image 1"),
        (spoilt(np.inf), "NaN or infinity, the first in image 1"),
        (spoilt(1.5), r"within the bounds \(0.*1.*\), received values from 0.5 to 1.5, the first outside in image 1"),
        (spoilt(-0.5), r"received values from -0.5 to 0.5"),
        (GOOD * 255, "received values from 127.5 to 127.5"),
        (GOOD[0], r"shape \(N, H, W, C\), received \(4, 5, 3\)"),
        (GOOD.reshape(3, -1), r"shape \(N, H, W, C\), received \(3, 60\)"),
        (
            GOOD.transpose(0, 3, 1, 2),
            r"received \(3, 3, 4, 5\).*move the channels last",
        ),
        (np.zeros((3, 1, 28, 28), np.float32), "move the channels last"),
        ((GOOD * 255).astype(np.uint8), r"received dtype uint8.*images / 255"),
        (GOOD > 1, "received dtype bool"),
        (GOOD.astype(np.complex64), "received dtype complex64"),
        (GOOD.astype(object), "array of numbers, received ndarray"),
        ("images", r"shape \(N, H, W, C\), received \(\)"),
        (None, "should be an array of numbers, received NoneType"),
    ],
)
def test_images_that_cannot_be_used(images: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        check_images(images, (0, 1))
    with pytest.raises(UsageError, match=message):
        predict(fb.NumPyModel(in_layout(linear, "channels_last"), bounds=(0, 1)), images)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_images_that_can_be_used(dtype: Any) -> None:
    given = np.array([0, 0.25, 1], dtype).reshape(1, 3, 1, 1)
    checked = check_images(given, (0, 1))
    assert checked.dtype == np.float32
    np.testing.assert_array_equal(checked, given)
    assert check_images(given[:0], (0, 1)).shape == (0, 3, 1, 1)
    np.testing.assert_array_equal(check_images(given - 1, (-1, 0)), given - 1)


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ([0, 1], r"shape \(3,\), one for each image, received \(2,\)"),
        (np.eye(3, dtype=int), r"received \(3, 3\)"),
        ([0.0, 1.0, 2.0], "whole numbers.* received dtype float64"),
        ([True, False, True], "whole numbers.* received dtype bool"),
        ([0, 1, 6], r"from 0 to 5, as the model has 6 classes; received 0 to 6"),
        ([-1, 0, 1], "received -1 to 1"),
        (["cat", "dog", "owl"], r"the places of classes in the model's output, received dtype <U3$"),
        ([[0.9, 0.1, 0]] * 3, r"received \(3, 3\)$"),
        (iter([0, 1, 2]), r"received list_iterator. Make an array of it"),
        ([[0], [1, 2], [3]], r"received a list that NumPy cannot take"),
    ],
)
def test_labels_that_cannot_be_used(labels: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        check_labels(labels, 3, CLASSES)


def test_labels_that_can_be_used() -> None:
    checked = check_labels(np.array([0, 5, 1], np.uint8), 3, CLASSES)
    assert checked.dtype == np.int64
    assert checked.tolist() == [0, 5, 1]
    assert check_labels([9, 9], 2).tolist() == [9, 9]


# Pre-flight checks of models


def not_a_number(x: Any) -> Any:
    z = linear(x)
    return (z - z) / (z - z)


WRONG: dict[str, tuple[Function, str]] = {
    "nan": (not_a_number, "'m' returns NaN or infinity for image 0; check its weights and preprocessing"),
    "infinity for one image": (
        lambda x: linear(x) / (x[:, 0, 0, :1] - float(IMAGES[3, 0, 0, 0])),
        "'m' returns NaN or infinity for image 3;",
    ),
    "infinity": (lambda x: linear(x) * 1e38 * 1e38, "returns NaN or infinity"),
    "probabilities": (lambda x: linear(x).softmax(), r"returns probabilities.*softmax.*outputs=\"probabilities\""),
    "a sigmoid for each class": (
        lambda x: 1 / (1 + (-linear(x)).exp()),
        r"'m' should return logits, but every answer to 17 images is in \[0, 1\].*cut_softmax=True",
    ),
    "one number": (lambda x: linear(x)[:, 0], r"logits \(8, classes\), received shape \(8,\)"),
    "a column": (lambda x: linear(x)[:, :1], r"received shape \(8, 1\)\. If it is one number for two classes, say so"),
    "an image": (lambda x: x, r"received shape \(8, 4, 5, 3\)"),
    "one row": (
        lambda x: linear(x).sum(axis=0, keepdims=True),
        r"'m' is not a classifier .* one row per image for \d+ images, received \(1, 6\)",
    ),
    "an exception": (lambda x: linear(x[:, :3]), r"'m' does not accept images of shape \(4, 5, 3\) \(H, W, C\): \w+"),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_answers_that_are_no_logits(wrong: str) -> None:
    function, message = WRONG[wrong]
    with pytest.raises(ModelError, match=message):
        check_model("m", Classifier(wrapped(TORCH, function)), IMAGES, LABELS)


def test_images_of_another_size_are_refused_by_name(framework: TrainableFramework) -> None:
    model = wrapped(framework, linear)
    message = r" does not accept images of shape \(6, 5, 3\) \(H, W, C\): \w+"
    larger = np.zeros((len(IMAGES), 6, 5, 3), np.float32)
    with pytest.raises(ModelError, match="the model" + message):
        predict(model, larger)
    with pytest.raises(ModelError, match="model 'm'" + message):
        common_subset({"m": model}, larger, LABELS)


ANSWERS: dict[str, Callable[[Any], Any]] = {
    "an object with logits": lambda z: SimpleNamespace(logits=z, hidden_states=None),
    "a mapping with logits": lambda z: {"loss": None, "logits": z},
    "a mapping of one": lambda z: {"dense": z},
    "a tuple of one": lambda z: (z,),
}


@pytest.mark.parametrize("answer", ANSWERS)
def test_logits_are_found_in_what_a_model_answers(framework: TrainableFramework, answer: str) -> None:
    tensors = in_layout(linear, framework.data_format)
    native = NETWORK[framework.name](lambda x: ANSWERS[answer](tensors(x)))
    classifier = Classifier(wrap(native, framework=framework.name, device="cpu"))
    np.testing.assert_allclose(classifier.logits(IMAGES), linear_logits(IMAGES), rtol=1e-4, atol=1e-4)
    check_model("m", classifier, IMAGES, LABELS)


def test_insisting_on_probabilities(framework: TrainableFramework) -> None:
    def softmax(x: Any) -> Any:
        return linear(x).softmax()

    p = np.exp(linear_logits(IMAGES))
    p /= p.sum(axis=1, keepdims=True)
    model = wrapped(framework, softmax, outputs="probabilities")
    for asked in (model, model.transform_bounds((0, 1))):
        classifier = Classifier(asked)
        check_model("m", classifier, IMAGES, LABELS)
        check_gradient("m", classifier, IMAGES)
        np.testing.assert_allclose(classifier.logits(IMAGES), np.log(p), rtol=1e-4, atol=1e-4)
        # d/dz of v·log softmax(z) is v - p·Σv.
        expected = np.einsum("nk,khwc->nhwc", V - p * V.sum(axis=1, keepdims=True), KERNEL)
        np.testing.assert_allclose(classifier.vjp(IMAGES, V), expected, rtol=1e-3, atol=1e-4)


def test_a_probability_of_zero_has_a_finite_logarithm(framework: TrainableFramework) -> None:
    classifier = Classifier(wrapped(framework, lambda x: (1000 * linear(x)).softmax(), outputs="probabilities"))
    logits = classifier.logits(IMAGES)
    assert np.isfinite(logits).all()
    assert logits.min() < -80
    np.testing.assert_array_equal(logits.argmax(axis=1), linear_logits(IMAGES).argmax(axis=1))


@pytest.mark.parametrize("outputs", ["logits", "probabilities"])
def test_probabilities_in_hundredths_are_probabilities(outputs: str) -> None:
    p = np.random.default_rng(0).dirichlet(np.ones(10), len(IMAGES)).round(2).astype(np.float32)
    assert np.abs(p.sum(axis=1) - 1).max() > 0.01
    model = wrap_functions(logits=lambda x: p[(x[:, 0, 0, 0] * 1000).astype(int)], outputs=outputs)
    images = np.zeros((len(p), 2, 2, 1), np.float32)
    images[:, 0, 0, 0] = (np.arange(len(p)) + 0.5) / 1000
    labels = np.zeros(len(p), int)
    if outputs == "probabilities":
        check_model("m", Classifier(model), images, labels)
    else:
        with pytest.raises(ModelError, match=r'returns probabilities.*outputs="probabilities"'):
            check_model("m", Classifier(model), images, labels)


def test_a_black_image_of_which_the_logits_are_not_numbers() -> None:
    """It is not among the images that are checked before work, and met when all are classified."""
    images = np.random.default_rng(0).random((50, 4, 5, 3), np.float32)
    images[41] = 0

    def logits(x: Images) -> Any:
        with np.errstate(invalid="ignore"):
            return linear_logits(x / x.std(axis=(1, 2, 3), keepdims=True))

    model, labels = wrap_functions(logits=logits), np.zeros(50, int)
    with pytest.raises(ModelError, match="the model returns NaN or infinity for image 41;"):
        predict(model, images, batch_size=16)
    with pytest.raises(ModelError, match="model 'm' returns NaN or infinity for image 41;"):
        common_subset({"m": model}, images, labels)
    with pytest.raises(ModelError, match="model 'm/0' returns NaN or infinity for image 41;"):
        evaluate({"m": model}, images, labels, suite="smoke", progress=False)


def test_insisting_on_one_probability_where_there_is_a_logit_is_an_error() -> None:
    model = wrapped(TORCH, lambda x: 9 * linear(x)[:, 0], outputs="binary-probability")
    with pytest.raises(ModelError, match=r'not in \[0, 1\]. If they are logits, pass outputs="binary-logit"'):
        check_model("m", Classifier(model), IMAGES, LABELS % 2)


def test_a_model_that_answers_differently_when_asked_twice() -> None:
    noise = np.random.default_rng(1)

    def dropout(x: Any) -> Any:
        return linear(x) * noise.choice([0.0, 2.0], (len(x), CLASSES))

    model = fb.NumPyModel(in_layout(dropout, "channels_last"), bounds=(0, 1))
    with pytest.raises(ModelError, match=r"'m' returns different logits for the same images \(by up to .*dropout"):
        check_model("m", Classifier(model), IMAGES, LABELS)


FLAT: dict[str, Function] = {
    "thresholded": lambda x: linear((x > 0.5).astype(x.dtype)),
    "saturated": lambda x: linear(x * 0) + ep.from_numpy(x, np.arange(CLASSES, dtype=np.float32)),
}


@pytest.mark.parametrize("flat", FLAT)
def test_a_gradient_of_zero(framework: TrainableFramework, flat: str) -> None:
    with pytest.raises(ModelError, match=r"the gradient of model 'm' is zero.*rounding|torch cannot differentiate"):
        check_gradient("m", Classifier(wrapped(framework, FLAT[flat])), IMAGES)


def test_a_gradient_that_is_not_finite(framework: TrainableFramework) -> None:
    def root(x: Any) -> Any:
        return linear((x * 0).sqrt())

    with pytest.raises(ModelError, match="the gradient of model 'm' is not finite"):
        check_gradient("m", Classifier(wrapped(framework, root)), IMAGES)


# Wrapping


def test_a_sigmoid_for_each_class_is_cut() -> None:
    torch = pytest.importorskip("torch")
    plain = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(60, 6)).eval()
    for network in (torch.nn.Sequential(*plain, torch.nn.Sigmoid()), torch.nn.Sequential(plain, torch.nn.Sigmoid())):
        cut = Classifier(wrap(network.eval(), cut_softmax=True, device="cpu"))
        np.testing.assert_allclose(cut.logits(IMAGES), Classifier(wrap(plain, device="cpu")).logits(IMAGES), atol=1e-5)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"outputs": "logit"}, r"unknown outputs 'logit': did you mean 'logits'\?"),
        ({"data_format": "channel_last"}, r"unknown data_format 'channel_last': did you mean 'channels_last'\?"),
        ({"device": "gpu"}, r"unknown device 'gpu'.*auto, cpu, cuda"),
        ({"framework": "pytorch"}, r"unknown framework 'pytorch': did you mean 'torch'\?"),
        ({"bounds": (1, 0)}, r"two finite numbers, the smaller one first; received \(1, 0\)"),
        ({"bounds": (0, 0)}, "two finite numbers"),
        ({"bounds": (0, np.inf)}, "two finite numbers"),
        ({"bounds": (np.nan, 1)}, "two finite numbers"),
        ({"bounds": 255}, "two finite numbers"),
        ({"bounds": (0, 1, 2)}, "two finite numbers"),
        ({"bounds": ("0", "1")}, "two finite numbers"),
    ],
)
def test_words_that_wrap_does_not_know(framework: TrainableFramework, options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        wrap(network(framework), **({"framework": framework.name} | options))


@pytest.mark.parametrize(
    ("preprocessing", "message"),
    [
        ({"mena": 0.5}, "unknown preprocessing key 'mena': did you mean 'mean'"),
        ({"mean": [0.5], "axis": 1}, r"counted from the end: -3 where images are \(N, C, H, W\).*received 1"),
        ({"mean": [0.5], "std": [0.0]}, r"std of preprocessing should be greater than 0, received \[0\.0\]"),
        ((0.1307, 0.3081), r"preprocessing should be a dict such as .* received \(0\.1307, 0\.3081\)"),
    ],
)
def test_preprocessing_that_is_not_known(framework: TrainableFramework, preprocessing: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        wrapped(framework, preprocessing=preprocessing)


class Pipeline:
    """A classifier as scikit-learn has them."""

    def predict_proba(self, rows: Any) -> Any:
        return rows


@pytest.mark.parametrize(
    ("thing", "message"),
    [
        ("cnn.pt", "Load the network first, or compare files with robustcmp eval --weights"),
        (Path("cnn.pt"), "Load the network first"),
        ({"kernel": np.ones(3)}, "These are weights: load them into their network"),
        (
            Pipeline(),
            r"such as a classifier of scikit-learn, goes into robustcmp.wrap_functions\(logits=lambda x: classifier.p",
        ),
        (3, "Pass framework= for a plain JAX function, .*; any other code, .*, goes into robustcmp.wrap_functions"),
    ],
)
def test_what_to_do_with_what_is_no_network(thing: Any, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        wrap(thing)


def test_what_is_shown_of_a_model(framework: TrainableFramework, zoo_model: Callable[..., Model]) -> None:
    assert repr(wrapped(framework, bounds=(0, 255))) == f"<robustcmp.Model {framework.name}, bounds (0, 255)>"
    assert repr(zoo_model(framework)) == f"<robustcmp.Model lenet5 digits 0 {framework.name}, bounds (0, 1)>"
    assert wrapped(framework, info={"note": "mine"}).info == {"note": "mine"}


# networks that normalise their images in place ------------------------------------------------------------------------

COUNT, SIDE, THREE = 20, 6, 3
MEAN, STD = 0.13, 0.31
IN_PLACE = """
description = "one that follows the gradient, and two that do not"
[attacks.fgsm]
attack = "FGSM"
[attacks.pepper]
attack = "SaltAndPepperNoiseAttack"
steps = 20
[attacks.noise]
attack = "LinfRepeatedAdditiveUniformNoiseAttack"
epsilons = [0.3]
repeats = 10
"""


def draw_images() -> NDArray[np.float32]:
    return np.random.default_rng(0).random((COUNT, SIDE, SIDE, 1), dtype=np.float32)


def make_network(kind: str, in_place: bool) -> Any:
    """Return a network of one layer behind a normalisation."""
    kernel = (np.random.default_rng(1).normal(size=(SIDE * SIDE, THREE)) / 4).astype(np.float32)
    if not kind.startswith("torch"):

        def logits(x: Any) -> Any:
            if in_place:
                x -= np.float32(MEAN)
                x /= np.float32(STD)
            else:
                x = (x - np.float32(MEAN)) / np.float32(STD)
            return x.reshape(len(x), -1) @ kernel

        def vjp(x: Any, v: Any) -> Any:
            if in_place:
                x[:] = 0
            return (v @ kernel.T).reshape(x.shape) / np.float32(STD)

        return rc.wrap_functions(logits=logits, vjp=vjp if kind == "functions" else "finite-differences")
    torch = pytest.importorskip("torch")

    class Network(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.last = torch.nn.Linear(SIDE * SIDE, THREE, bias=False)

        def forward(self, x: Any) -> Any:
            if in_place:
                x -= MEAN
                x /= STD
            else:
                x = (x - MEAN) / STD
            return self.last(x.flatten(1))

    network = Network().eval()
    network.last.weight.data = torch.tensor(kernel.T.copy())
    return rc.wrap(network.to(torch.bfloat16) if kind == "torch in bfloat16" else network, device="cpu")


@pytest.mark.filterwarnings("ignore:.*torch.jit.* is (deprecated|not supported):DeprecationWarning")
@pytest.mark.parametrize("kind", ["torch", "torch in bfloat16", "functions", "finite differences"])
def test_a_network_that_normalises_in_place(kind: str, tmp_path: Path) -> None:
    (tmp_path / "some.toml").write_text(IN_PLACE)
    plain, inside = make_network(kind, False), make_network(kind, True)
    images = draw_images()
    labels = Classifier(plain).predict(images)
    kept = images.copy()
    ev = rc.evaluate(
        {"plain": plain, "inside": inside},
        images,
        labels,
        suite=tmp_path / "some.toml",
        n=COUNT,
        repeats=2,
        progress=False,
    )
    assert (images == kept).all()
    assert not any(ev.results.reasons("not_applicable").values())
    data = ev.dataset
    for name in ("success", "l0", "l2", "linf", "queries"):
        one, other = (data[name].sel(model=model).values for model in ("plain", "inside"))
        np.testing.assert_array_equal(one, other, err_msg=name)
    rates = ev.results.rates()["plain"]
    assert all(rates[attack] > 0 for attack in ("fgsm", "pepper", "noise"))


@pytest.mark.parametrize("kind", ["torch", "torch in bfloat16", "functions"])
def test_tensors_of_the_caller_stay(kind: str) -> None:
    torch = pytest.importorskip("torch")
    images = torch.tensor(draw_images())
    if kind != "functions":
        images = images.permute(0, 3, 1, 2)
    model = make_network(kind, True)
    kept = images.clone()
    model(images)
    assert bool((images == kept).all())
    x = images.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(model(x).square().sum(), x)
    y = images.clone().requires_grad_()
    (expected,) = torch.autograd.grad(make_network(kind, False)(y).square().sum(), y)
    assert bool((gradient == expected).all())

"""Every framework against the same network in plain NumPy: one test body for all of them."""

from __future__ import annotations

import importlib
import math
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import eagerpy as ep
import foolbox as fb
import numpy as np
import pytest
import reference as ref
from conftest import gpus
from numpy.typing import NDArray

import robustcmp as rc
from robustcmp import frameworks
from robustcmp.attacks.boundary import _blend
from robustcmp.attacks.fgsm import _step_images
from robustcmp.attacks.foolbox import FoolboxAttack
from robustcmp.attacks.single_pixel import _with_pixel
from robustcmp.data.dataset import Dataset
from robustcmp.errors import UsageError
from robustcmp.frameworks import Framework, Make, TrainableFramework, get_framework
from robustcmp.frameworks.hosted import Hosted
from robustcmp.models.model import Classifier, Model
from robustcmp.networks.architecture import Architecture, Dense, Flatten, _vgg, get_architecture, is_trainable
from robustcmp.networks.weights import Weights
from robustcmp.sources.from_zoo import FromZoo, find_weights

RandomWeights = Callable[[Architecture, int], Weights]
NumpyNetwork = Callable[[Architecture, Weights], Any]
Images = NDArray[np.float32]

SMALL_VGG = _vgg("small_vgg", (8, 8, 3), ((4, 4), (6,)), (12,))
PARAMETERS = {"lenet5": 44426, "resnet20": 273066, "tiny": 402, "tiny_residual": 3261}


@pytest.fixture(params=PARAMETERS)
def architecture(request: pytest.FixtureRequest) -> Architecture:
    if request.param.startswith("tiny"):
        its: Architecture = request.getfixturevalue(request.param)
        return its
    return get_architecture(request.param)


def images_for(architecture: Architecture, n: int, seed: int = 0) -> Images:
    return np.random.default_rng(seed).random((n, *architecture.input_shape), np.float32)


def cotangents_for(architecture: Architecture, n: int) -> Images:
    return np.random.default_rng(1).normal(size=(n, architecture.classes)).astype(np.float32)


def own(framework: Framework, images: NDArray[Any]) -> NDArray[Any]:
    return images.transpose(0, 3, 1, 2) if framework.data_format == "channels_first" else images


def numpy_layout(framework: Framework, images: Images) -> Images:
    return images.transpose(0, 2, 3, 1) if framework.data_format == "channels_first" else images


def built(framework: TrainableFramework, architecture: Architecture, weights: Weights) -> Any:
    native = framework.build(architecture, 0, "cpu")
    framework.set_weights(native, architecture, weights)
    return native


def infer(framework: TrainableFramework, native: Any, images: Images) -> Images:
    function, like = framework.place(native, "cpu")
    return framework.forward(function, like, own(framework, images))


def same_bits(a: Weights, b: Weights) -> bool:
    return a.keys() == b.keys() and all(
        (a[name].dtype, a[name].shape, a[name].tobytes()) == (b[name].dtype, b[name].shape, b[name].tobytes())
        for name in a
    )


# Asking


def test_logits_are_those_of_the_reference(
    framework: TrainableFramework,
    architecture: Architecture,
    random_weights: RandomWeights,
    numpy_network: NumpyNetwork,
) -> None:
    weights, images = random_weights(architecture, 1), images_for(architecture, 9)
    expected = numpy_network(architecture, weights).logits(images)
    received = infer(framework, built(framework, architecture, weights), images)
    assert received.dtype == np.float32
    assert np.abs(expected).max() > 0.1
    np.testing.assert_allclose(received, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.needs("gradients")
def test_vjp_is_that_of_the_reference(
    framework: TrainableFramework,
    architecture: Architecture,
    random_weights: RandomWeights,
    numpy_network: NumpyNetwork,
) -> None:
    weights, images, v = random_weights(architecture, 1), images_for(architecture, 20), cotangents_for(architecture, 5)
    network = numpy_network(architecture, weights)
    # Of ResNet-20's 188,416 ReLUs some lie so near to 0 that float32 may turn them, and with one of them all gradients
    # of its image: those images are asked that stay away from it the most.
    images = images[np.argsort(-ref.nearest_turn(network.layers, weights, images))[:5]]
    expected = network.vjp(images, v)
    if isinstance(framework, Hosted) and architecture.name == "resnet20":
        pytest.skip("in float32 rounding turns one ReLU of an image")
    function, like = framework.place(built(framework, architecture, weights), "cpu")
    received = framework.vjp(framework.pullback(function), own(framework, images), v, like)
    assert received.dtype == np.float32
    assert np.count_nonzero(expected) > expected.size / 2
    np.testing.assert_allclose(numpy_layout(framework, received), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.needs("gradients", "first of equals")
def test_a_trained_network_on_real_images_with_their_ties(
    framework: TrainableFramework,
    zoo_model: Callable[..., Model],
    numpy_network: NumpyNetwork,
    digits: Dataset,
) -> None:
    # An even background makes pools of equal values, and the gradient depends on which of them gets it.
    lenet5, content = get_architecture("lenet5"), find_weights(FromZoo("lenet5", "digits", framework.name))
    assert content is not None
    reference, classifier = numpy_network(lenet5, content.weights), Classifier(zoo_model(framework))
    images, v = digits.images[:20], cotangents_for(lenet5, 20)
    logits, gradient = reference.logits(images), reference.vjp(images, v)
    np.testing.assert_allclose(classifier.logits(images), logits, rtol=0, atol=1e-5 * np.abs(logits).max())
    np.testing.assert_allclose(classifier.vjp(images, v), gradient, rtol=0, atol=1e-4 * np.abs(gradient).max())


@pytest.mark.parametrize("n", [3, 37])
def test_an_image_is_answered_alike_in_every_batch(framework: TrainableFramework, tiny: Architecture, n: int) -> None:
    native, images = framework.build(tiny, 0, "cpu"), images_for(tiny, n)
    alone = np.concatenate([infer(framework, native, images[i : i + 1]) for i in range(n)])
    together = infer(framework, native, images[:n])
    assert together.shape == (n, 3)
    np.testing.assert_allclose(together, alone, rtol=0, atol=1e-6)


def test_batches_are_filled_up_to_few_sizes(framework: TrainableFramework) -> None:
    sizes = [framework.fill_size(n) for n in range(1, 1025)]
    assert sizes == sorted(sizes)
    for n, size in enumerate(sizes, 1):
        assert n <= size <= max(16, 1.25 * n)
        assert framework.fill_size(size) == size
    if not isinstance(framework, Hosted):
        assert len({*sizes}) <= 112


def test_a_placed_network_answers_with_the_weights_it_has_now(
    framework: TrainableFramework, tiny: Architecture, random_weights: RandomWeights, numpy_network: NumpyNetwork
) -> None:
    # A compiled function that closes over the weights would answer with those of its first call for ever.
    native, images = framework.build(tiny, 0, "cpu"), images_for(tiny, 4)
    function, like = framework.place(native, "cpu")
    for seed in (1, 2):
        weights = random_weights(tiny, seed)
        framework.set_weights(native, tiny, weights)
        expected = numpy_network(tiny, weights).logits(images)
        received = framework.forward(function, like, own(framework, images))
        np.testing.assert_allclose(received, expected, rtol=1e-5, atol=1e-5)
    labels = np.zeros(4, np.int64)
    framework.trainer(native, tiny, 0.9, 0.0).step(images, labels, 0.5)
    expected = numpy_network(tiny, framework.get_weights(native, tiny)).logits(images)
    assert np.abs(expected - received).max() > 0.01
    received = framework.forward(function, like, own(framework, images))
    np.testing.assert_allclose(received, expected, rtol=1e-5, atol=1e-5)


def test_layers_may_be_called_what_frameworks_call_their_own(framework: TrainableFramework) -> None:
    small = Architecture("small", (2, 2, 1), (Flatten("input_layer"), Dense("logits", 3)))
    assert infer(framework, framework.build(small, 0, "cpu"), images_for(small, 4)).shape == (4, 3)


def test_tensors_are_copies(framework: TrainableFramework, tiny: Architecture) -> None:
    _, like = framework.place(framework.build(tiny, 0, "cpu"), "cpu")
    for dtype in (np.float32, np.int64):
        source = np.arange(6).reshape(2, 3).astype(dtype)
        tensor = framework.tensor(source, like)
        source[:] = -1
        np.testing.assert_array_equal(framework.array(tensor), np.arange(6).reshape(2, 3))


# Weights


def test_the_parameters_are_as_many_as_published(framework: TrainableFramework, architecture: Architecture) -> None:
    native = framework.build(architecture, 0, "cpu")
    weights = framework.get_weights(native, architecture)
    assert {name: array.shape for name, array in weights.items()} == architecture.weight_shapes
    assert {array.dtype for array in weights.values()} == {np.dtype(np.float32)}
    assert sum(array.size for name, array in weights.items() if is_trainable(name)) == PARAMETERS[architecture.name]
    if framework.name in COUNT:
        assert COUNT[framework.name](native) == PARAMETERS[architecture.name]


@pytest.mark.slow
@pytest.mark.needs("zoo")
def test_vgg16_is_what_the_reference_says(
    framework: TrainableFramework, random_weights: RandomWeights, numpy_network: NumpyNetwork
) -> None:
    vgg16 = get_architecture("vgg16")
    native = framework.build(vgg16, 0, "cpu")
    assert COUNT[framework.name](native) == 33_663_070
    weights, images = random_weights(vgg16, 1), images_for(vgg16, 2)
    assert sum(array.size for array in weights.values()) == 33_687_922
    framework.set_weights(native, vgg16, weights)
    expected = numpy_network(vgg16, weights).logits(images)
    np.testing.assert_allclose(infer(framework, native, images), expected, rtol=1e-4, atol=1e-5)


# What each framework itself counts; a host has no way to say.
COUNT: dict[str, Callable[[Any], int]] = {
    "torch": lambda native: sum(parameter.numel() for parameter in native.parameters()),
    "tensorflow": lambda native: sum(math.prod(variable.shape) for variable in native.trainable_variables),
    "jax": lambda native: sum(its.size for name, its in native.parameters.items() if is_trainable(name)),
}


def test_weights_in_and_out_bit_for_bit(
    framework: TrainableFramework, architecture: Architecture, random_weights: RandomWeights
) -> None:
    weights = random_weights(architecture, 3)
    awkward = np.array([-0.0, 1e-45, np.finfo(np.float32).max], np.float32)
    for array in weights.values():
        array.reshape(-1)[:3] = awkward
    native = framework.build(architecture, 0, "cpu")
    given = {name: array.copy() for name, array in weights.items()}
    framework.set_weights(native, architecture, given)
    for array in given.values():
        array[:] = 7  # what was put in is a copy
    received = framework.get_weights(native, architecture)
    assert same_bits(received, weights)
    for array in received.values():
        array[:] = 7  # and so is what comes out
    assert same_bits(framework.get_weights(native, architecture), weights)


def test_initial_weights_are_a_function_of_the_seed(framework: TrainableFramework) -> None:
    lenet5 = get_architecture("lenet5")
    first, again, other = (framework.get_weights(framework.build(lenet5, seed, "cpu"), lenet5) for seed in (0, 0, 1))
    assert same_bits(first, again)
    for name in first:
        if name.endswith("/kernel"):
            assert np.mean(first[name] == other[name]) < 0.01


@pytest.mark.parametrize("layer", ["conv2", "dense1"])
def test_initialisation_is_the_frameworks_own(framework: TrainableFramework, layer: str) -> None:
    lenet5 = get_architecture("lenet5")
    weights = framework.get_weights(framework.build(lenet5, 0, "cpu"), lenet5)
    kernel, bias = weights[f"{layer}/kernel"], weights[f"{layer}/bias"]
    outputs = kernel.shape[-1] * (25 if layer == "conv2" else 1)
    assert framework.differences["initialisation"]
    if framework.name == "template":
        return
    own = INITIALISATION.get(f"{framework.name} {layer}") or INITIALISATION[framework.name]
    largest, deviation, largest_bias = own(math.prod(kernel.shape[:-1]), outputs)
    if largest is not None:
        assert 0.98 * largest < np.abs(kernel).max() <= largest * (1 + 1e-6)
    assert kernel.std() == pytest.approx(deviation, rel=0.03)
    assert np.abs(bias).max() <= largest_bias
    assert (np.abs(bias).max() > 0) == (largest_bias > 0)


def glorot(inputs: int, outputs: int) -> tuple[float, float, float]:
    return (6 / (inputs + outputs)) ** 0.5, (2 / (inputs + outputs)) ** 0.5, 0.0


# (inputs, outputs) to the largest weight, the weights' standard deviation and the largest bias, as each documents it.
INITIALISATION: dict[str, Callable[[int, int], tuple[float | None, float, float]]] = {
    "torch": lambda inputs, outputs: (inputs**-0.5, (3 * inputs) ** -0.5, inputs**-0.5),
    "tensorflow": glorot,
    "torch@1.0": lambda inputs, outputs: (inputs**-0.5, (3 * inputs) ** -0.5, inputs**-0.5),
    "mlx": lambda inputs, outputs: (inputs**-0.5, (3 * inputs) ** -0.5, inputs**-0.5),
    "tinygrad": lambda inputs, outputs: (inputs**-0.5, (3 * inputs) ** -0.5, inputs**-0.5),
    "mlx conv2": lambda inputs, outputs: (inputs**-0.5, (3 * inputs) ** -0.5, 0.0),
    "cntk": glorot,
    "paddle": glorot,
    "paddle conv2": lambda inputs, outputs: (None, (2 / inputs) ** 0.5, 0.0),
    "chainer": lambda inputs, outputs: (None, inputs**-0.5, 0.0),  # no end to a normal
    "tensorflow@1.15": glorot,
    "mxnet": lambda inputs, outputs: (0.07, 0.07 / 3**0.5, 0.0),
    "theano": glorot,
    "keras-tensorflow": glorot,
    "keras-jax": glorot,
    "keras-torch": glorot,
    "jax": lambda inputs, outputs: (2 / 0.8796256610342398 * inputs**-0.5, inputs**-0.5, 0.0),
}


# Training


def numpy_step(
    layers: ref.Layers, weights: Weights, images: Images, labels: NDArray[np.int64]
) -> tuple[float, dict[str, NDArray[np.float64]]]:
    """Return the mean cross-entropy of a batch and its gradient for every weight, in float64."""
    z = ref.numpy_logits(layers, weights, images)
    log_p = z - z.max(axis=1, keepdims=True)
    log_p -= np.log(np.exp(log_p).sum(axis=1, keepdims=True))
    v = (np.exp(log_p) - np.eye(z.shape[1])[labels]) / len(images)
    gradients = {}
    for i, layer in enumerate(layers):
        if layer[0] not in ("conv", "dense"):
            continue
        before = ref.numpy_logits(layers[:i], weights, images)
        g = ref.numpy_vjp(layers[i + 1 :], weights, ref.numpy_logits(layers[i : i + 1], weights, before), v)
        gradients[f"{layer[1]}/bias"] = g.sum(axis=tuple(range(g.ndim - 1)))
        if layer[0] == "dense":
            gradients[f"{layer[1]}/kernel"] = before.T @ g
            continue
        kernel = np.zeros(weights[f"{layer[1]}/kernel"].shape)
        height, width = g.shape[1:3]
        for row, column in np.ndindex(kernel.shape[:2]):
            patch = before[:, row : row + height, column : column + width]
            kernel[row, column] = np.einsum("nhwc,nhwo->co", patch, g)
        gradients[f"{layer[1]}/kernel"] = kernel
    return float(-log_p[np.arange(len(labels)), labels].mean()), gradients


@pytest.mark.needs("trainable")
@pytest.mark.parametrize(("momentum", "weight_decay"), [(0.0, 0.0), (0.9, 0.05)])
def test_steps_are_those_of_plain_gradient_descent(
    framework: TrainableFramework,
    tiny: Architecture,
    random_weights: RandomWeights,
    numpy_network: NumpyNetwork,
    momentum: float,
    weight_decay: float,
) -> None:
    weights, rng = random_weights(tiny, 5), np.random.default_rng(6)
    native = built(framework, tiny, weights)
    trainer = framework.trainer(native, tiny, momentum, weight_decay)
    expected = {name: array.astype(np.float64) for name, array in weights.items()}
    velocity = {name: np.zeros_like(array) for name, array in expected.items()}
    for n, rate in ((8, 0.1), (8, 0.05), (5, 0.02)):  # a schedule, and a last batch that holds what is left
        images, labels = rng.random((n, *tiny.input_shape), np.float32), rng.integers(0, 3, n)
        loss, gradients = numpy_step(numpy_network(tiny, weights).layers, expected, images, labels)
        for name, gradient in gradients.items():
            velocity[name] = momentum * velocity[name] + gradient + weight_decay * expected[name]
            expected[name] = expected[name] - rate * velocity[name]
        assert trainer.step(images, labels, rate) == pytest.approx(loss, abs=1e-5)
        received = framework.get_weights(native, tiny)
        for name, array in expected.items():
            np.testing.assert_allclose(received[name], array, rtol=0, atol=2e-6, err_msg=name)
    assert max(np.abs(array - weights[name]).max() for name, array in expected.items()) > 0.005
    if momentum:
        for name, array in trainer.velocity().items():
            np.testing.assert_allclose(array, velocity[name], rtol=0, atol=1e-5, err_msg=name)


@pytest.mark.needs("trainable")
def test_velocity_in_and_out_bit_for_bit(framework: TrainableFramework, tiny: Architecture) -> None:
    images = images_for(tiny, 6)
    labels = np.arange(6) % tiny.classes
    native = framework.build(tiny, 0, "cpu")
    trainer = framework.trainer(native, tiny, 0.9, 0.01)
    assert not any(array.any() for array in trainer.velocity().values())
    trainer.step(images, labels, 0.1)
    weights, velocity = framework.get_weights(native, tiny), trainer.velocity()
    kept = {name: array.copy() for name, array in velocity.items()}
    assert {name: array.shape for name, array in velocity.items()} == tiny.weight_shapes
    trainer.step(images, labels, 0.1)
    assert same_bits(velocity, kept)  # it is a copy

    other = framework.build(tiny, 1, "cpu")
    framework.set_weights(other, tiny, weights)
    resumed = framework.trainer(other, tiny, 0.9, 0.01)
    resumed.set_velocity(velocity)
    assert same_bits(resumed.velocity(), velocity)
    resumed.step(images, labels, 0.1)
    assert same_bits(framework.get_weights(other, tiny), framework.get_weights(native, tiny))
    assert same_bits(resumed.velocity(), trainer.velocity())
    assert same_bits(velocity, kept)


@pytest.mark.needs("trainable")
def test_a_second_training_of_a_network_has_its_own_settings(framework: TrainableFramework, tiny: Architecture) -> None:
    images = images_for(tiny, 6)
    labels = np.arange(6) % tiny.classes
    native = framework.build(tiny, 0, "cpu")
    trainer = framework.trainer(native, tiny, 0.9, 0.05)
    for _ in range(3):  # some compile what they see in the second
        trainer.step(images, labels, 0.1)
    other = framework.build(tiny, 0, "cpu")
    framework.set_weights(other, tiny, framework.get_weights(native, tiny))
    for network in (native, other):
        trainer = framework.trainer(network, tiny, 0.0, 0.0)
        trainer.step(images, labels, 0.1)
    assert same_bits(framework.get_weights(native, tiny), framework.get_weights(other, tiny))


def after_one_step(framework: TrainableFramework, architecture: Architecture, weights: Weights, n: int) -> Weights:
    rng = np.random.default_rng(11)
    images = rng.random((n, *architecture.input_shape)).astype(np.float32)
    native = built(framework, architecture, weights)
    framework.trainer(native, architecture, 0.0, 0.0).step(images, rng.integers(0, architecture.classes, n), 0.1)
    return framework.get_weights(native, architecture)


@pytest.mark.needs("trainable")
@pytest.mark.parametrize(
    ("name", "tolerance"), [pytest.param("resnet20", 1e-2, marks=pytest.mark.slow), ("small_vgg", 1e-3)]
)
def test_a_step_is_the_same_step_in_every_framework(
    framework: TrainableFramework, random_weights: RandomWeights, name: str, tolerance: float
) -> None:
    if framework.name == "torch":
        pytest.skip("the others are compared with torch")
    architecture = SMALL_VGG if name == "small_vgg" else get_architecture(name)
    weights = random_weights(architecture, 7)
    n, torch = 16, get_framework("torch")
    expected, received = (after_one_step(its, architecture, weights, n) for its in (torch, framework))
    fitted = [its for its in weights if is_trainable(its)]
    update, difference = (
        math.sqrt(sum(float(np.square(a[its] - b[its], dtype=np.float64).sum()) for its in fitted))
        for a, b in ((expected, weights), (received, expected))
    )
    assert update > 0.01
    assert difference < tolerance * update
    # Torch moves its variance towards that of n - 1, Theano's Keras towards that and ε, the others towards that of n.
    places = {layer.name: n * math.prod(shape[:-1]) for layer, shape in architecture.walk()}
    for its in set(weights) - set(fitted):
        layer, _, kind = its.partition("/")
        moved = expected[its] - weights[its] * 0.9
        if kind == "variance":
            m, epsilon = places[layer], 1e-5
            if framework.differences.get("batch norm") != "the variance moves towards that of n - 1 values":
                moved *= 1 - 1 / m
            if framework.name == "theano":
                moved = (moved + 0.1 * epsilon) * m / (m - 1 - epsilon)
        np.testing.assert_allclose(
            received[its] - weights[its] * 0.9, moved, rtol=tolerance, atol=tolerance, err_msg=its
        )


# Random state


def draw(like: Any) -> tuple[float, float, bytes]:
    """Draw once from every global random state that a caller in this framework may rely on."""
    return random.random(), np.random.random(), ep.astensor(like).normal((3,)).numpy().tobytes()  # noqa: NPY002


def like_of(framework: TrainableFramework) -> Any:
    small = Architecture("small", (1, 1, 1), (Flatten("flatten"), Dense("logits", 2)))
    return framework.place(framework.build(small, 0, "cpu"), "cpu")[1]


def interrupted(framework: Framework) -> None:
    with framework.fork_generators("test", 2, 0):
        raise KeyboardInterrupt


def test_forked_rng_seeds_and_restores(framework: TrainableFramework) -> None:
    like = like_of(framework)

    def drawn() -> bytes:
        return draw(like)[2]

    with framework.fork_generators("test", 1, 0):
        first, second = drawn(), drawn()
    with framework.fork_generators("test", 1, 0):
        assert drawn() == first
        with framework.fork_generators("test", 2, 0):
            inner = drawn()
        assert drawn() == second
    with framework.fork_generators("test", 1, 0):
        assert drawn() == first
        with pytest.raises(KeyboardInterrupt):
            interrupted(framework)
        assert drawn() == second
    assert len({first, second, inner}) == 3


@pytest.mark.needs("trainable", "gradients")
@pytest.mark.usefixtures("untouched_rng")
def test_building_asking_and_training_leave_the_callers_random_state(
    framework: TrainableFramework, tiny: Architecture
) -> None:
    like, images = like_of(framework), images_for(tiny, 4)

    def everything() -> None:
        native = framework.build(tiny, 5, "cpu")
        infer(framework, native, images)
        function, placed = framework.place(native, "cpu")
        framework.vjp(framework.pullback(function), own(framework, images), np.ones((4, 3), np.float32), placed)
        framework.trainer(native, tiny, 0.9, 0.1).step(images, np.zeros(4, np.int64), 0.1)

    def callers_draws(between: Callable[[], None]) -> list[tuple[float, float, bytes]]:
        random.seed(1)
        np.random.seed(1)  # noqa: NPY002 (a caller may)
        with framework.fork_generators("test", 1, 0):
            before = draw(like)
            between()
            return [before, draw(like), draw(like)]

    def one_draw() -> None:
        draw(like)

    undisturbed = callers_draws(lambda: None)
    assert callers_draws(everything) == undisturbed
    assert len(set(undisturbed)) == 3
    assert callers_draws(one_draw)[1] == undisturbed[2]  # a draw in between is seen


# Devices


@pytest.mark.parametrize("make", [_step_images, _blend, _with_pixel], ids=lambda make: str(make.__name__))
def test_images_made_of_tensors_are_those_made_of_arrays(framework: TrainableFramework, make: Make) -> None:
    """In colour, for rows that come more than once; XLA may round the last bit of float64 otherwise."""
    rng = np.random.default_rng(5)
    lower, upper = -1.3, 2.7
    images = rng.uniform(lower, upper, (6, 7, 5, 3)).astype(np.float32)
    rows = rng.integers(0, len(images), 300)
    of_each: tuple[NDArray[Any], ...] = (rng.random(len(rows)),)
    arrays: tuple[NDArray[Any], ...] = (images.astype(np.float64), rng.uniform(lower, upper, images.shape))
    if make is _with_pixel:
        arrays = images, np.arange(7 * 5).reshape(1, 7, 5, 1)
        of_each = rng.integers(0, 7 * 5, len(rows)), rng.choice(np.array([lower, upper], np.float32), len(rows))
    like = framework.place(framework.build(get_architecture("lenet1"), 0, "cpu"), "cpu")[1]
    tensors = [framework.tensor(array, like) for array in (*(own(framework, its) for its in arrays), rows, *of_each)]
    made = framework.array(framework.maker(make, (lower, upper))(*tensors))
    expected = np.clip(make(*arrays, rows, *of_each).astype(np.float32), lower, upper)
    assert made.dtype == np.float32
    np.testing.assert_array_equal(made, own(framework, expected))


def test_cuda_without_a_gpu_is_an_error_that_names_it(framework: TrainableFramework, tiny: Architecture) -> None:
    if gpus(framework.name):
        pytest.skip("there is a GPU")
    expected = f"device 'cuda' was requested, but {framework.name} sees no GPU. Use device='cpu' or 'auto'"
    with pytest.raises(UsageError, match=expected):
        framework.build(tiny, 0, "cuda")
    with pytest.raises(UsageError, match=expected):
        framework.place(framework.build(tiny, 0, "auto"), "cuda")


@pytest.mark.gpu
def test_cuda_agrees_with_the_reference(
    framework: TrainableFramework, tiny: Architecture, random_weights: RandomWeights, numpy_network: NumpyNetwork
) -> None:
    weights, images, v = random_weights(tiny, 1), images_for(tiny, 5), cotangents_for(tiny, 5)
    native = framework.build(tiny, 0, "cuda")
    framework.set_weights(native, tiny, weights)
    function, like = framework.place(native, "cuda")
    reference = numpy_network(tiny, weights)
    received = framework.forward(function, like, own(framework, images))
    np.testing.assert_allclose(received, reference.logits(images), rtol=1e-5, atol=1e-5)
    gradient = numpy_layout(framework, framework.vjp(framework.pullback(function), own(framework, images), v, like))
    np.testing.assert_allclose(gradient, reference.vjp(images, v), rtol=1e-4, atol=1e-4)


# Frameworks by name


def test_a_framework_that_is_not_installed_comes_with_its_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frameworks, "list_installed", lambda: ["torch"])
    with pytest.raises(UsageError, match=r"'jax' is not installed\. Install it with: pip install 'robustcmp\[jax\]'"):
        frameworks.get_framework("jax")


def test_networks_and_tensors_are_recognised(framework: TrainableFramework, tiny: Architecture) -> None:
    if framework.name != "template":
        assert frameworks.get_framework(framework.name) is framework
    if isinstance(framework, Hosted):  # its tensors are NumPy's, its networks are its own
        assert frameworks.recognise(like_of(framework), framework.build(tiny, 0, "cpu")) is framework
        assert frameworks.recognise(framework.build(tiny, 0, "cpu")) is framework
    else:
        assert frameworks.recognise(like_of(framework)) is framework
    assert framework.version()[0].isdigit()
    assert frameworks.recognise(np.zeros(3)).name == "numpy"


# what the caller has set for all of a framework -----------------------------------------------------------------------


@contextmanager
def changed(module: str, read: str, write: str, value: Any) -> Iterator[None]:
    """Call a setter of a module with a value, and restore what the getter returned."""
    there = importlib.import_module(module)
    kept = getattr(there, read)() if read else None
    getattr(there, write)(value)
    try:
        yield
    finally:
        getattr(there, write)(kept)


def called(name: str, *arguments: Any, **more: Any) -> Any:
    """Return what a function of torch or JAX makes, which is imported only now."""
    module, _, function = name.rpartition(".")
    return getattr(importlib.import_module(module), function)(*arguments, **more)


SETTINGS: dict[str, Callable[[], Any]] = {
    "torch: inference mode": lambda: called("torch.inference_mode"),
    "torch: no gradients": lambda: called("torch.no_grad"),
    "torch: gradients off": lambda: called("torch.set_grad_enabled", False),
    "torch: autocast": lambda: called("torch.autocast", "cpu"),
    "torch: float64": lambda: changed(
        "torch", "get_default_dtype", "set_default_dtype", importlib.import_module("torch").float64
    ),
    "torch: another device": lambda: changed("torch", "", "set_default_device", "meta"),
    "jax: float64": lambda: called("jax.enable_x64", True),
    "jax: bfloat16": lambda: called("jax.default_matmul_precision", "bfloat16"),
    "tensorflow: channels first": lambda: changed(
        "keras.config", "image_data_format", "set_image_data_format", "channels_first"
    ),
    "tensorflow: float64": lambda: changed("keras.config", "floatx", "set_floatx", "float64"),
    "tensorflow: mixed precision": lambda: changed("keras.config", "dtype_policy", "set_dtype_policy", "mixed_float16"),
    "tensorflow: eager": lambda: changed("tensorflow.config", "functions_run_eagerly", "run_functions_eagerly", True),
}


def answers_of(name: str) -> tuple[NDArray[np.float32], Any]:
    """Return the logits of a model that is loaded now, and how often it is fooled."""
    digits = rc.load_dataset("digits", "test")
    images, labels = digits.images[:24], digits.labels[:24]
    suite = {"fgsm": FoolboxAttack(fb.attacks.LinfFastGradientAttack(), {}, [0.1])}
    model = rc.load_model("lenet1", framework=name, dataset="digits", device="cpu")
    ev = rc.evaluate({"m": model}, images, labels, suite=suite, n=20, repeats=1, batch_size=8, progress=False)
    return Classifier(model).logits(images), ev.results.rates()


def loss_of(name: str) -> float:
    """Return the loss of a second step of training."""
    framework, architecture = get_framework(name), get_architecture("lenet1")
    trainer = framework.trainer(framework.build(architecture, 0, "cpu"), architecture, 0.9, 1e-4)
    images, labels = images_for(architecture, 8), np.arange(8)
    trainer.step(images, labels, 0.1)
    return trainer.step(images, labels, 0.1)


@cache
def without_a_setting(name: str) -> tuple[tuple[NDArray[np.float32], Any], float]:
    return answers_of(name), loss_of(name)


@pytest.mark.parametrize(
    "setting", [pytest.param(name, marks=[pytest.mark.slow] * (name == "jax: float64")) for name in SETTINGS]
)
def test_settings_of_the_caller_change_nothing(setting: str) -> None:
    name = setting.partition(":")[0]
    pytest.importorskip(name, reason=f"{name} is not installed")
    (expected, rates), loss = without_a_setting(name)
    assert 0 < rates["m"]["fgsm"] < 1
    with SETTINGS[setting]():
        logits, rates_with = answers_of(name)
        if not setting.startswith("torch: a"):  # autocast, and another device, are about training as well
            assert loss_of(name) == pytest.approx(loss, rel=1e-6)
    np.testing.assert_array_equal(logits, expected)
    assert rates_with == rates


def test_channels_first_of_keras_is_seen_by_its_layers() -> None:
    keras = pytest.importorskip("keras", reason="keras is not installed")
    pytest.importorskip("tensorflow", reason="tensorflow is not installed")
    with SETTINGS["tensorflow: channels first"]():
        layers = [keras.Input((3, 6, 5)), keras.layers.GlobalAveragePooling2D(), keras.layers.Dense(4)]
        network = keras.Sequential(layers)
        model = rc.wrap(network, device="cpu")
        assert model.data_format == "channels_first"
        images = np.random.default_rng(0).random((4, 6, 5, 3), np.float32)
        expected = np.asarray(network(images.transpose(0, 3, 1, 2)))
        np.testing.assert_allclose(Classifier(model).logits(images), expected, atol=1e-5)

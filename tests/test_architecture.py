"""Architectures as data: sizes as the paper published them, shapes layer by layer."""

from __future__ import annotations

import math
import tomllib
from importlib.resources import files
from typing import Any

import pytest

from robustcmp.errors import UsageError
from robustcmp.networks.architecture import (
    ARCHITECTURES,
    Architecture,
    BatchNorm,
    Conv,
    Dense,
    Flatten,
    GlobalAveragePool,
    MaxPool,
    Relu,
    Residual,
    get_architecture,
)


def published_sizes() -> dict[str, dict[str, int]]:
    text = (files("robustcmp.resources") / "guo2019.toml").read_text(encoding="utf-8")
    sizes: dict[str, dict[str, int]] = tomllib.loads(text)["size"]
    return sizes


@pytest.mark.parametrize("name", published_sizes())
def test_sizes_are_those_of_the_paper(name: str) -> None:
    architecture, published = get_architecture(name), published_sizes()[name]
    assert architecture.name == name
    assert architecture.parameters == published["parameters"]


@pytest.mark.parametrize(
    ("name", "trainable", "all_weights"), [("resnet20", 273_066, 274_442), ("vgg16", 33_663_070, 33_687_922)]
)
def test_the_statistics_of_batch_norms_are_weights_and_no_parameters(
    name: str, trainable: int, all_weights: int
) -> None:
    architecture = get_architecture(name)
    assert architecture.parameters == trainable
    assert sum(math.prod(shape) for shape in architecture.weight_shapes.values()) == all_weights
    assert architecture.classes == 10


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        # The layers of model_MNIST and model_CIFAR10 in DLBench's notebook for Keras, added up.
        ("dlbench_mnist", 320 + 18_496 + 1_179_776 + 1_290),
        ("dlbench_cifar10", 896 + 9_248 + 18_496 + 36_928 + 1_180_160 + 5_130),
    ],
)
def test_sizes_are_those_of_dlbench(name: str, parameters: int) -> None:
    assert get_architecture(name).parameters == parameters


def test_lenet5_layer_by_layer() -> None:
    walked = [(layer.name, shape) for layer, shape in get_architecture("lenet5").walk()]
    assert walked == [
        ("conv1", (28, 28, 1)),
        ("relu1", (24, 24, 6)),
        ("pool1", (24, 24, 6)),
        ("conv2", (12, 12, 6)),
        ("relu2", (8, 8, 16)),
        ("pool2", (8, 8, 16)),
        ("flatten", (4, 4, 16)),
        ("dense1", (256,)),
        ("dense_relu1", (120,)),
        ("dense2", (120,)),
        ("dense_relu2", (84,)),
        ("logits", (84,)),
    ]


@pytest.mark.parametrize(
    ("layer", "given", "output", "weights"),
    [
        (Conv("a", 7, 3), (6, 9, 2), (4, 7, 7), {"kernel": (3, 3, 2, 7), "bias": (7,)}),
        (Dense("a", 5), (12,), (5,), {"kernel": (12, 5), "bias": (5,)}),
        (MaxPool("a", 2), (5, 8, 3), (2, 4, 3), {}),
        (MaxPool("a", 3), (8, 9, 1), (2, 3, 1), {}),
        (Relu("a"), (5, 8, 3), (5, 8, 3), {}),
        (Conv("a", 4, 3, stride=2, padding=1), (8, 9, 3), (4, 5, 4), {"kernel": (3, 3, 3, 4), "bias": (4,)}),
        (GlobalAveragePool("a"), (5, 8, 3), (3,), {}),
        (BatchNorm("a"), (5, 8, 3), (5, 8, 3), dict.fromkeys(("gamma", "beta", "mean", "variance"), (3,))),
        (Residual("a", (Conv("b", 4, 1, 2),), (Conv("c", 4, 1, 2),)), (5, 8, 3), (3, 4, 4), {}),
        (Flatten("a"), (5, 8, 3), (120,), {}),
    ],
)
def test_a_layers_shapes(
    layer: Any, given: tuple[int, ...], output: tuple[int, ...], weights: dict[str, tuple[int, ...]]
) -> None:
    assert layer.output(given) == output
    assert layer.weights(given) == weights


def test_only_a_dense_layer_right_after_a_flatten_is_reordered(tiny: Architecture) -> None:
    assert tiny.flat_shapes == {"dense1": (2, 3, 5)}
    assert {name: shapes.flat_shapes for name, shapes in ARCHITECTURES.items()} == {
        "lenet1": {"logits": (4, 4, 12)},
        "lenet5": {"dense1": (4, 4, 16)},
        "resnet20": {},
        "vgg16": {"dense1": (1, 1, 512)},
        "dlbench_mnist": {"dense": (12, 12, 64)},
        "dlbench_cifar10": {"dense": (6, 6, 64)},
    }


def test_an_unknown_name_is_met_with_a_suggestion() -> None:
    with pytest.raises(UsageError, match=r"unknown model 'lennet5': did you mean 'lenet5'\? Expected one of FILE"):
        get_architecture("lennet5")

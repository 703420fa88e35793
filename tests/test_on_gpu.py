"""docs/results/on_gpu.py takes the steps of `robustcmp.train`: compared on the CPU, with a small network."""

import importlib.util
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from robustcmp.data.dataset import Dataset, stratified_split
from robustcmp.frameworks import get_framework
from robustcmp.networks.architecture import get_architecture
from robustcmp.zoo.recipes import Recipe
from robustcmp.zoo.training import VALIDATION_FRACTION, Augmentation, Fitting, batch_order

SCRIPT = Path(__file__).parents[1] / "docs" / "results" / "on_gpu.py"
RECIPE = Recipe(epochs=2, batch_size=16, learning_rate=0.02, momentum=0.9, weight_decay=5e-4, crop=2, flip=True)


@pytest.fixture(scope="module")
def script() -> Any:
    spec = importlib.util.spec_from_file_location("on_gpu", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["on_gpu"] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    "name",
    ["torch", pytest.param("tensorflow", marks=pytest.mark.slow), pytest.param("jax", marks=pytest.mark.slow)],
)
def test_an_epoch_has_the_losses_and_the_weights_of_the_library(script: Any, name: str, tmp_path: Path) -> None:
    pytest.importorskip(name)
    if name == "tensorflow":
        pytest.importorskip("jax")
    architecture, framework = get_architecture("lenet1"), get_framework(name)
    random = np.random.default_rng(0)
    pixels = random.integers(0, 256, (60, *architecture.input_shape), np.uint8)
    labels = np.repeat(np.arange(10), 6)
    data = Dataset((pixels / np.float32(255)).astype(np.float32), labels, "mnist", "train", 10)
    rest, held_out = stratified_split(labels, VALIDATION_FRACTION)
    native = framework.build(architecture, 0, "cpu")
    start = framework.get_weights(native, architecture)
    np.savez(tmp_path / f"lenet1-{name}-0-initial.npz", **{f"weights/{key}": array for key, array in start.items()})
    fitting = Fitting(framework, native, architecture, RECIPE)
    fitting.pass_over(data, rest[batch_order(0, 0, len(rest))], Augmentation(RECIPE, 0, 0, len(pixels)), 0)

    if name == "torch":
        on_gpu = script.in_torch(RECIPE, pixels, labels, held_out)
    else:
        for size in script.batch_sizes(RECIPE, len(rest)):
            if name == "tensorflow":
                (tmp_path / f"tensorflow-{size}.bin").write_bytes(script.lowered_step(architecture, RECIPE, size))
        on_gpu = script.in_xla(RECIPE, pixels, labels, held_out, tmp_path, name, architecture)
    training = script.Training(tmp_path, "lenet1", name, "default", 0)
    going = on_gpu(training, architecture)
    going.begin(script.Epoch(RECIPE, 0, 0, rest, len(pixels)))
    losses, accuracy = going.end()

    assert len(losses) == 4
    assert len(rest) % RECIPE.batch_size
    assert 0 <= accuracy <= 1
    np.testing.assert_allclose(losses, fitting.curves["batch_loss"], rtol=1e-5)
    expected = framework.get_weights(native, architecture)
    for key, array in going.state()["weights"].items():
        np.testing.assert_allclose(array, expected[key], rtol=1e-4, atol=1e-6)
        assert not np.array_equal(array, start[key])
    for key, array in fitting.checkpoint({}).weights.items():
        if key.startswith("velocity/"):
            np.testing.assert_allclose(
                going.state()["velocity"][key.removeprefix("velocity/")], array, rtol=1e-3, atol=1e-5
            )


def test_a_training_goes_on_from_its_file(script: Any, tmp_path: Path) -> None:
    weights = {"dense/kernel": np.ones((2, 3), np.float32)}
    np.savez(tmp_path / "lenet1-torch-3-initial.npz", **{f"weights/{key}": array for key, array in weights.items()})
    training = script.Training(tmp_path, "lenet1", "torch", "long", 3)
    assert training.epochs == 0
    assert not training.state["velocity"]["dense/kernel"].any()
    training.curves["loss"].append(0.5)
    training.state["velocity"]["dense/kernel"] += 1
    training.environment = {"device": "a GPU"}
    training.save()
    again = script.Training(tmp_path, "lenet1", "torch", "long", 3)
    assert again.epochs == 1
    assert again.environment == {"device": "a GPU"}
    assert (again.state["velocity"]["dense/kernel"] == 1).all()

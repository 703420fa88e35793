"""docs/results/on_gpu.py takes the steps of `robustcmp.train`: compared on the CPU, with a small network."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from robustcmp.data.dataset import Dataset, stratified_split
from robustcmp.frameworks import get_framework
from robustcmp.networks.architecture import Architecture, get_architecture
from robustcmp.sources.recipes import Recipe
from robustcmp.sources.training import VALIDATION_FRACTION, Augmentation, Fitting, batch_order

SCRIPT = Path(__file__).parents[1] / "docs" / "results" / "on_gpu.py"
RECIPE = Recipe(epochs=3, batch_size=16, learning_rate=0.01, momentum=0.9, weight_decay=5e-4, crop=2, flip=True)
NETWORK = """
[architecture]
input_shape = [12, 12, 3]
layers = [
    { type = "Conv", name = "conv1", channels = 4, kernel = 3, stride = 2, padding = 1 },
    { type = "BatchNorm", name = "norm1" },
    { type = "Relu", name = "relu1" },
    { type = "Residual", name = "block", layers = [
        { type = "Conv", name = "conv2", channels = 4, kernel = 3, padding = 1 },
        { type = "BatchNorm", name = "norm2" },
    ] },
    { type = "GlobalAveragePool", name = "pool" },
    { type = "Dense", name = "logits", units = 10 },
]
"""
RANDOM = np.random.default_rng(0)
PIXELS = RANDOM.integers(0, 256, (60, 12, 12, 3), np.uint8)
LABELS = np.repeat(np.arange(10), 6)
REST, HELD_OUT = stratified_split(LABELS, VALIDATION_FRACTION)


@pytest.fixture(scope="module")
def script() -> Any:
    spec: Any = importlib.util.spec_from_file_location("on_gpu", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    sys.modules["on_gpu"] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def architecture(tmp_path: Path) -> Architecture:
    (tmp_path / "small.toml").write_text(NETWORK)
    return get_architecture(str(tmp_path / "small.toml"))


def close(received: dict[str, NDArray[Any]], expected: dict[str, NDArray[Any]]) -> None:
    assert received.keys() == expected.keys()
    for name, array in expected.items():
        np.testing.assert_allclose(received[name], array, rtol=1e-3, atol=1e-5, err_msg=name)


@pytest.mark.parametrize(
    "name",
    ["torch", pytest.param("tensorflow", marks=pytest.mark.slow), pytest.param("jax", marks=pytest.mark.slow)],
)
def test_epochs_are_those_of_the_library(script: Any, architecture: Architecture, name: str, tmp_path: Path) -> None:
    pytest.importorskip(name)
    if name == "tensorflow":
        pytest.importorskip("jax")
    framework = get_framework(name)
    native = framework.build(architecture, 0, "cpu")
    start = {f"weights/{key}": array for key, array in framework.get_weights(native, architecture).items()}
    about = np.array(json.dumps({"framework": "1.0"}))
    np.savez(tmp_path / f"small-{name}-0-initial.npz", environment=about, **start)  # type: ignore[arg-type]
    data = Dataset(PIXELS / np.float32(255), LABELS, "small", "train", 10)
    fitting = Fitting(framework, native, architecture, RECIPE)

    if name == "torch":
        on_gpu = script.in_torch(architecture, RECIPE, PIXELS, LABELS, HELD_OUT)
    else:
        sizes = script.batch_sizes(RECIPE, len(REST)) if name == "tensorflow" else []
        lowered = {size: script.lowered_step(architecture, RECIPE, size) for size in sizes}
        if lowered:
            import jax

            text = jax.export.deserialize(lowered[RECIPE.batch_size]).mlir_module()
            assert text.count("precision = [HIGHEST, HIGHEST]") == text.count("precision = ") > 0
        on_gpu = script.in_xla(architecture, RECIPE, PIXELS, LABELS, HELD_OUT, lowered)
    for epoch in range(2):  # the second in an object of its own, which goes on from the file
        training = script.Training(tmp_path, "small", name, "default", 0, RECIPE)
        assert training.epochs == epoch
        going = on_gpu(training)
        going.begin(script.Epoch(RECIPE, 0, epoch, REST, len(PIXELS)))
        losses, share = going.end()
        training.state = going.state()
        training.curves["loss"].append(losses.mean())
        training.save()

        augmentation = Augmentation(RECIPE, 0, epoch, len(PIXELS))
        fitting.pass_over(data, REST[batch_order(0, epoch, len(REST))], augmentation, epoch)
        np.testing.assert_allclose(losses, fitting.curves["batch_loss"][4 * epoch :], rtol=1e-4)
        assert share in np.arange(11) / 10
        checkpoint = fitting.checkpoint({}).weights
        for part, arrays in training.state.items():
            those = {key: array for key, array in checkpoint.items() if key.startswith(f"{part}/")}
            close({f"{part}/{key}": array for key, array in arrays.items()}, those)
    moved = [key for key, array in start.items() if not np.array_equal(checkpoint[key], array)]
    assert len(moved) == len(start)  # the statistics of the batch norms, too


def test_a_training_by_other_settings_is_not_continued(script: Any, tmp_path: Path) -> None:
    about = np.array("{}")
    np.savez(tmp_path / "small-torch-3-initial.npz", environment=about, **{"weights/dense/kernel": np.ones((2, 3))})
    training = script.Training(tmp_path, "small", "torch", "long", 3, RECIPE)
    assert training.epochs == 0
    assert not training.state["velocity"]["dense/kernel"].any()
    training.environment = {"device": "a GPU"}
    training.save()
    assert script.Training(tmp_path, "small", "torch", "long", 3, RECIPE).environment == {"device": "a GPU"}
    other = Recipe(epochs=4, batch_size=16, learning_rate=0.01)
    with pytest.raises(SystemExit, match=r"was trained with .*, not with"):
        script.Training(tmp_path, "small", "torch", "long", 3, other)

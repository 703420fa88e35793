"""Training: the same in every framework but for the framework, reproducible, resumable, blind to the test set."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from conftest import TINY
from numpy.typing import NDArray

from robustcmp.data import load_dataset
from robustcmp.data.dataset import Dataset
from robustcmp.errors import WeightsError
from robustcmp.frameworks import TrainableFramework, Trainer
from robustcmp.networks.architecture import Architecture, Conv, Dense, Flatten, MaxPool, Relu
from robustcmp.networks.weights import Weights, WeightsFile
from robustcmp.sources.recipes import Recipe
from robustcmp.sources.training import _Augmentation, batch_order, train

pytestmark = pytest.mark.needs("trainable")

RECIPE = Recipe(epochs=3, batch_size=32, learning_rate=0.1, momentum=0.9, weight_decay=0.001)

SMALL = Architecture(
    "small",
    (28, 28, 1),
    (
        Conv("conv1", 3, 5),
        Relu("relu1"),
        MaxPool("pool1", 4),
        Flatten("flatten"),
        Dense("logits", 10),
    ),
)


@pytest.fixture(scope="module")
def images() -> Dataset:
    """205 training images of digits: with 32 in a batch, the last batch of an epoch is a smaller one."""
    data = load_dataset("digits", "train")
    return Dataset(data.images[:205], data.labels[:205], data.name, data.split, data.classes)


@pytest.fixture(scope="module")
def unseen(digits: Dataset) -> Dataset:
    """100 test images."""
    return Dataset(digits.images[:100], digits.labels[:100], digits.name, digits.split, digits.classes)


def same_bits(a: dict[str, Any], b: dict[str, Any]) -> bool:
    return a.keys() == b.keys() and all(
        (a[name].dtype, a[name].shape, a[name].tobytes()) == (b[name].dtype, b[name].shape, b[name].tobytes())
        for name in a
    )


def without_seconds(content: WeightsFile) -> dict[str, NDArray[np.float64]]:
    return {name: values for name, values in content.curves.items() if name != "seconds"}


def held_out_by_class(labels: NDArray[np.int64]) -> dict[int, int]:
    return {label: round(0.1 * int((labels == label).sum())) for label in range(10)}


class Spy:
    """A framework that notes what its trainer is given, and otherwise is the framework."""

    def __init__(self, framework: TrainableFramework):
        self._framework = framework
        self.steps: list[tuple[NDArray[np.float32], NDArray[np.int64], float]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._framework, name)

    def trainer(self, *arguments: Any) -> Trainer:
        trainer = self._framework.trainer(*arguments)
        step = trainer.step

        def noting(images: NDArray[np.float32], labels: NDArray[np.int64], learning_rate: float) -> float:
            self.steps.append((images.copy(), labels.copy(), learning_rate))
            return step(images, labels, learning_rate)

        trainer.step = noting  # type: ignore[method-assign]
        return trainer


class Interruption:
    """A progress callback that interrupts after an epoch."""

    def __init__(self, after: int):
        self.after = after
        self.epochs: list[int] = []

    def __call__(self, epoch: int, last: dict[str, float]) -> None:
        self.epochs.append(epoch)
        if epoch == self.after:
            raise KeyboardInterrupt


def run(
    framework: Any, images: Dataset, unseen: Dataset, recipe: Recipe = RECIPE, seed: int = 0, **options: Any
) -> WeightsFile:
    return train(framework, SMALL, recipe, images, unseen, seed=seed, device="cpu", **options)


# Reproducible and resumable


def test_a_function_of_the_seed(framework: TrainableFramework, images: Dataset, unseen: Dataset) -> None:
    first, again = (run(framework, images, unseen) for _ in range(2))
    assert same_bits(first.weights, again.weights)
    assert same_bits(without_seconds(first), without_seconds(again))
    assert first.metadata == again.metadata
    other = run(framework, images, unseen, seed=1)
    assert not np.array_equal(first.weights["logits/kernel"], other.weights["logits/kernel"])


def test_interrupted_and_resumed_is_the_same_bit_for_bit(
    framework: TrainableFramework, images: Dataset, unseen: Dataset, tmp_path: Path
) -> None:
    whole = run(framework, images, unseen)
    checkpoint = tmp_path / "new" / "c.h5"
    for after in (1, 2):
        interruption = Interruption(after)
        with pytest.raises(KeyboardInterrupt):
            run(framework, images, unseen, checkpoint=checkpoint, progress=interruption)
        assert interruption.epochs == [after]
        assert [path.name for path in checkpoint.parent.iterdir()] == ["c.h5"]
    last = Interruption(-1)
    content = run(framework, images, unseen, checkpoint=checkpoint, progress=last)
    assert last.epochs == [3]
    assert same_bits(content.weights, whole.weights)
    assert same_bits(without_seconds(content), without_seconds(whole))
    assert content.metadata == whole.metadata


@pytest.mark.parametrize(
    ("change", "key"),
    [
        ({"recipe": msgspec.structs.replace(RECIPE, learning_rate=0.05)}, "settings"),
        ({"recipe": msgspec.structs.replace(RECIPE, epochs=4)}, "settings"),
        ({"seed": 1}, "training_seed"),
        ({"about": {"recipe": "mine"}}, "recipe"),
        ({"fewer": True}, "data"),
    ],
)
def test_the_checkpoint_of_another_training_is_refused_and_kept(
    images: Dataset, unseen: Dataset, tmp_path: Path, change: dict[str, Any], key: str, one: TrainableFramework
) -> None:
    change, checkpoint = dict(change), tmp_path / "c.h5"
    with pytest.raises(KeyboardInterrupt):
        run(one, images, unseen, checkpoint=checkpoint, progress=Interruption(1))
    before = checkpoint.read_bytes()
    if change.pop("fewer", False):
        images = Dataset(images.images[:-1], images.labels[:-1], images.name, images.split, images.classes)
    with pytest.raises(WeightsError, match=rf"c\.h5 belongs to another training: its {key} is .* was requested"):
        run(one, images, unseen, checkpoint=checkpoint, **change)
    assert checkpoint.read_bytes() == before


@pytest.fixture
def one() -> TrainableFramework:
    """Any one framework, for what is no framework's business."""
    from robustcmp import frameworks

    return frameworks.get_framework(frameworks.list_installed()[0])


# The same in every framework


def test_batches_are_the_same_in_every_framework(
    framework: TrainableFramework, images: Dataset, unseen: Dataset
) -> None:
    spy = Spy(framework)
    content = run(spy, images, unseen, seed=3)
    sizes = [len(labels) for _, labels, _ in spy.steps]
    n = len(images.labels) - sum(held_out_by_class(images.labels).values())
    per_epoch = [32] * (n // 32) + [n % 32]
    assert sizes == per_epoch * RECIPE.epochs
    where = {image.tobytes(): i for i, image in enumerate(images.images)}
    assert len(where) == len(images.images)
    seen = np.array([where[image.tobytes()] for batch, _, _ in spy.steps for image in batch])
    np.testing.assert_array_equal(np.concatenate([labels for _, labels, _ in spy.steps]), images.labels[seen])

    epochs = seen.reshape(RECIPE.epochs, n)
    rest = np.unique(epochs)
    for epoch, order in enumerate(epochs):
        assert len(np.unique(order)) == n  # every image once
        expected = np.random.Generator(np.random.Philox(key=np.array([3, epoch], np.uint64))).permutation(n)
        np.testing.assert_array_equal(order, rest[expected])
    # What is never seen is the stratified tenth, whatever the seed and the framework.
    never = images.labels[np.setdiff1d(np.arange(len(images.labels)), rest)]
    assert {label: int((never == label).sum()) for label in range(10)} == held_out_by_class(images.labels)

    rates = [rate for _, _, rate in spy.steps]
    steps = len(per_epoch)
    progress = np.arange(len(rates)) / (steps * RECIPE.epochs)
    np.testing.assert_allclose(rates, RECIPE.learning_rate * (1 + np.cos(np.pi * progress)) / 2, rtol=1e-12)
    np.testing.assert_array_equal(content.curves["learning_rate"], rates[steps - 1 :: steps])


def test_the_curves_and_accuracies_are_those_of_the_weights(
    one: TrainableFramework, images: Dataset, unseen: Dataset
) -> None:
    spy, told = Spy(one), []
    content = run(spy, images, unseen, progress=lambda epoch, last: told.append((epoch, last)))
    per_epoch = {name: content.curves[name] for name in ("loss", "validation_accuracy", "learning_rate", "seconds")}
    assert {name: len(values) for name, values in per_epoch.items()} == dict.fromkeys(per_epoch, RECIPE.epochs)
    assert told == [
        (epoch + 1, {name: values[epoch] for name, values in per_epoch.items()}) for epoch in range(RECIPE.epochs)
    ]
    sizes = np.array([len(batch) for batch, _, _ in spy.steps])
    of_batches = (content.curves["batch_loss"] * sizes).reshape(RECIPE.epochs, -1).sum(axis=1)
    np.testing.assert_allclose(of_batches * RECIPE.epochs / sizes.sum(), content.curves["loss"], rtol=1e-12)
    seen = {image.tobytes() for batch, _, _ in spy.steps for image in batch}
    out = np.array([image.tobytes() not in seen for image in images.images])
    validation = numpy_accuracy(content.weights, images.images[out], images.labels[out])
    assert content.curves["validation_accuracy"][-1] == content.metadata["validation_accuracy"]
    assert content.metadata["validation_accuracy"] == pytest.approx(validation, abs=1e-9)
    tested = numpy_accuracy(content.weights, unseen.images, unseen.labels)
    assert content.metadata["test_accuracy"] == pytest.approx(tested, abs=1e-9)
    assert content.curves["loss"][-1] < content.curves["loss"][0]
    assert (content.curves["seconds"] > 0).all()


def numpy_accuracy(weights: Weights, images: NDArray[np.float32], labels: NDArray[np.int64]) -> float:
    kernel = weights["conv1/kernel"].astype(np.float64)
    patches = np.lib.stride_tricks.sliding_window_view(images[..., 0].astype(np.float64), (5, 5), axis=(1, 2))
    x = np.maximum(np.einsum("nhwij,ijo->nhwo", patches, kernel[:, :, 0]) + weights["conv1/bias"], 0)
    x = x.reshape(len(x), 6, 4, 6, 4, 3).max(axis=(2, 4)).reshape(len(x), -1)
    logits = x @ weights["logits/kernel"].astype(np.float64) + weights["logits/bias"]
    return float((logits.argmax(axis=1) == labels).mean())


def test_the_test_set_changes_nothing_but_the_accuracy(
    one: TrainableFramework, images: Dataset, unseen: Dataset
) -> None:
    content = run(one, images, unseen)
    blank = np.zeros_like(unseen.images)
    other = Dataset(blank, np.zeros_like(unseen.labels), unseen.name, unseen.split, unseen.classes)
    again = run(one, images, other)
    assert same_bits(again.weights, content.weights)
    assert again.metadata["test_accuracy"] in (0, 1)  # one image, over and over
    assert 0 < content.metadata["test_accuracy"] < 1


def test_metadata_says_what_was_done(framework: TrainableFramework, images: Dataset, unseen: Dataset) -> None:
    recipe = msgspec.structs.replace(RECIPE, epochs=1)
    content = run(framework, images, unseen, recipe, seed=2, about={"recipe": "quick"})
    metadata = json.loads(json.dumps(content.metadata))
    assert metadata == content.metadata
    assert {key: metadata[key] for key in ("model", "dataset", "framework", "training_seed", "recipe")} == {
        "model": "small",
        "dataset": "digits",
        "framework": framework.name,
        "training_seed": 2,
        "recipe": "quick",
    }
    assert metadata["settings"] == {
        "epochs": 1,
        "batch_size": 32,
        "learning_rate": 0.1,
        "momentum": 0.9,
        "weight_decay": 0.001,
        "schedule": "cosine",
        "crop": 0,
        "flip": False,
    }
    assert (metadata["data"], metadata["test_data"]) == (images.digest, unseen.digest)
    own = {name: its for name, its in framework.differences.items() if name != "batch norm"}  # the network has none
    assert metadata["differences"] == own
    assert "initialisation" in own
    assert metadata["environment"]["framework"] == framework.version()
    assert metadata["environment"]["device"] == "cpu"
    assert metadata["environment"]["versions"]["numpy"] == np.__version__


# Recipes


def test_the_order_of_batches_is_a_function_of_seed_and_epoch() -> None:
    order = batch_order(4, 5, 1000)
    assert sorted(order.tolist()) == list(range(1000))
    np.testing.assert_array_equal(order, batch_order(4, 5, 1000))
    for seed, epoch in ((5, 4), (4, 6), (5, 5)):
        assert not np.array_equal(order, batch_order(seed, epoch, 1000))
    # Pinned: another order is another training than the one whose weights ship.
    assert batch_order(1, 2, 8).tolist() == [7, 0, 5, 4, 6, 2, 3, 1]


def test_crops_and_flips_are_a_function_of_seed_epoch_and_image() -> None:
    rng = np.random.default_rng(0)
    images = rng.random((300, 6, 7, 2), np.float32) + 1  # a zero is padding
    recipe = msgspec.structs.replace(RECIPE, crop=2, flip=True)
    everything, which = _Augmentation(recipe, 5, 1, 300)(images, np.arange(300)), rng.permutation(300)[:40]
    np.testing.assert_array_equal(_Augmentation(recipe, 5, 1, 300)(images, which), everything[which])
    assert everything.flags.c_contiguous
    padded = np.pad(images, ((0, 0), (2, 2), (2, 2), (0, 0)))
    found = []
    for i, image in enumerate(everything):
        cuts = {
            (row, column, flipped): padded[i, row : row + 6, column : column + 7][:, :: -1 if flipped else 1]
            for row, column, flipped in np.ndindex(5, 5, 2)
        }
        (place,) = (place for place, cut in cuts.items() if np.array_equal(cut, image))
        found.append(place)
    assert {(row, column) for row, column, _ in found} == set(np.ndindex(5, 5))
    assert 0.4 < np.mean([flipped for _, _, flipped in found]) < 0.6
    for seed, epoch in ((5, 2), (6, 1)):
        other = _Augmentation(recipe, seed, epoch, 300)(images, np.arange(300))
        assert (other != everything).any(axis=(1, 2, 3)).sum() > 200
    np.testing.assert_array_equal(_Augmentation(RECIPE, 5, 1, 300)(images, which), images[which])


def test_a_training_takes_crops_and_flips(one: TrainableFramework, images: Dataset, unseen: Dataset) -> None:
    plain, spy, recipe = Spy(one), Spy(one), msgspec.structs.replace(RECIPE, crop=3, flip=True)
    run(plain, images, unseen, seed=3)
    run(spy, images, unseen, recipe=recipe, seed=3)
    where = {image.tobytes(): i for i, image in enumerate(images.images)}
    per_epoch = len(spy.steps) // recipe.epochs
    for i, ((batch, labels, _), (before, its, _)) in enumerate(zip(spy.steps, plain.steps, strict=True)):
        which = np.array([where[image.tobytes()] for image in before])
        augmented = _Augmentation(recipe, 3, i // per_epoch, len(images.images))
        np.testing.assert_array_equal(batch, augmented(images.images, which))
        np.testing.assert_array_equal(labels, its)


def test_the_cosine_ends_at_zero() -> None:
    recipe = Recipe(epochs=5, batch_size=1, learning_rate=0.4)
    assert recipe.rate(0) == 0.4
    assert recipe.rate(0.5) == pytest.approx(0.2)
    assert recipe.rate(1) == pytest.approx(0, abs=1e-15)
    constant = Recipe(epochs=5, batch_size=1, learning_rate=0.4, schedule="constant")
    assert {constant.rate(progress) for progress in (0, 0.3, 1)} == {0.4}


GOOD = {"epochs": 1, "batch_size": 2, "learning_rate": 0.1}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"epochs": 0}, r"`int` >= 1 - at `\$\.epochs`"),
        ({"learning_rate": 0.0}, r"\$\.learning_rate"),
        ({"momentum": -0.1}, r"\$\.momentum"),
        ({"schedule": "linear"}, r"Invalid enum value 'linear' - at `\$\.schedule`"),
        ({"learning_rte": 0.1}, "unknown field `learning_rte`"),
    ],
)
def test_a_recipe_with_a_mistake(change: dict[str, Any], message: str) -> None:
    with pytest.raises(msgspec.ValidationError, match=message):
        msgspec.convert(GOOD | change, Recipe)


# JAX on a CPU


def test_a_step_keeps_its_barriers_and_differs_by_roundings(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("jax")
    from robustcmp.frameworks import jax

    def trained() -> tuple[int, Weights]:
        network = jax.FRAMEWORK.build(TINY, 0, "cpu")
        trainer = jax.FRAMEWORK.trainer(network, TINY, momentum=0.9, weight_decay=0.001)
        rng = np.random.default_rng(0)
        images = rng.random((16, *TINY.input_shape), np.float32)
        labels = rng.integers(0, TINY.classes, 16)
        trainer.step(images, labels, 0.1)
        step = trainer._step.lower(network.parameters, trainer._velocity, images, labels.astype(np.int32), 0.1)
        barriers = step.compile().as_text().count("opt-barrier(")
        return barriers, jax.FRAMEWORK.get_weights(network, TINY)

    barriers, with_barriers = trained()
    assert barriers > 0
    monkeypatch.setattr(jax, "COMPILED_ON_A_CPU", {})
    barriers, without = trained()
    assert barriers == 0
    for name, expected in without.items():
        np.testing.assert_allclose(with_barriers[name], expected, rtol=1e-5, atol=1e-6, err_msg=name)


def test_training_stays_on_its_device() -> None:
    """Also where JAX computes on another one by default."""
    pytest.importorskip("jax")
    code = """
        import jax, numpy as np
        from robustcmp.frameworks import jax as module
        from robustcmp.networks.architecture import Architecture, Dense, Flatten

        first, second = jax.devices()
        module._device = lambda name: second
        architecture = Architecture("linear", (2, 2, 1), (Flatten("flatten"), Dense("logits", 3)))
        network = module.FRAMEWORK.build(architecture, 0, "cpu")
        trainer = module.FRAMEWORK.trainer(network, architecture, momentum=0.9, weight_decay=0.0)
        trainer.set_velocity(trainer.velocity())
        trainer.step(np.ones((4, 2, 2, 1), np.float32), np.zeros(4, np.int64), 0.1)
        assert all(array.devices() == {second} for array in network.parameters.values())
    """
    environment = os.environ | {"XLA_FLAGS": "--xla_force_host_platform_device_count=2", "JAX_PLATFORMS": "cpu"}
    subprocess.run([sys.executable, "-c", textwrap.dedent(code)], check=True, env=environment, timeout=300)

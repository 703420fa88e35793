"""Make the fingerprints of networks that are trained, wrapped or counted in ways that the paper may have used.

``python docs/results/forensics.py`` trains what is missing, attacks what has no fingerprint yet, and stores both step
by step: trainings in build/forensics, fingerprints in fingerprints.json, which ``published_rates.py`` reads. All in
torch on the CPU.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

import robustcmp as rc
from robustcmp.files import write_bytes_atomically
from robustcmp.frameworks import get_framework
from robustcmp.networks.architecture import get_architecture
from robustcmp.networks.weights import WeightsFile, read_weights, write_weights
from robustcmp.provenance import package_version
from robustcmp.sources.from_zoo import FromZoo, weights_directory
from robustcmp.sources.training import batch_order

ROOT = Path(__file__).parents[2]
TRAINED = ROOT / "build" / "forensics"
STORED = Path(__file__).with_name("fingerprints.json")
BATCH = 128
SEED = 0  # of the choice of images and of the attacks' draws
PIXELS = (1, 4, 20, 100)  # an image that falls to the first of them need not be asked about the others
STARTED = 100  # images under boundary, whose success means that a start was found, which no further iteration changes
DATASETS = {"lenet1": "mnist", "lenet5": "mnist", "resnet20": "cifar10"}
IMAGES = {"lenet1": 1000, "lenet5": 1000, "resnet20": 300}
FEWER = {"lenet1": 300, "lenet5": 500, "resnet20": 200}  # in wrong wrappers, where rates differ by more
STD = {"mnist": np.float32([0.3081]), "cifar10": np.float32([0.2023, 0.1994, 0.2010])}
MEAN = {"mnist": np.float32([0.1307]), "cifar10": np.float32([0.4914, 0.4822, 0.4465])}

Images = NDArray[np.float32]


# trainings -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Adam:
    """A LeNet trained with Adam as torch and Keras have it (rate 0.001), on all training images.

    `white` is what a white pixel is to the network: 1, or 255 for raw bytes. Black is 0.
    """

    model: str
    epochs: int
    white: int
    seed: int

    @property
    def recipe(self) -> str:
        return f"Adam, {self.epochs} epochs, input 0 to {self.white}"

    def input(self, x: torch.Tensor) -> torch.Tensor:
        """Return what the network was trained on, from images in [0, 1]."""
        return x * self.white

    @property
    def path(self) -> Path:
        return TRAINED / f"{self.model}-adam-{self.epochs}-{self.white}-{self.seed}.h5"

    def weights(self) -> WeightsFile | None:
        return read_weights(self.path) if self.path.exists() else None

    def train(self) -> None:
        """Train, and write the weights file."""
        adapter, architecture = get_framework("torch"), get_architecture(self.model)
        train, test = (rc.load_dataset("mnist", split) for split in ("train", "test"))
        network = adapter.build(architecture, self.seed, "cpu")
        optimizer = torch.optim.Adam(network.parameters(), lr=1e-3)
        x = torch.from_numpy(train.images.transpose(0, 3, 1, 2) * float(self.white))
        y = torch.from_numpy(train.labels)
        network.train()
        for epoch in range(self.epochs):
            total = 0.0
            for batch in torch.from_numpy(batch_order(self.seed, epoch, len(x))).split(BATCH):
                optimizer.zero_grad()
                loss = torch.nn.functional.cross_entropy(network(x[batch]), y[batch])
                loss.backward()
                optimizer.step()
                total += float(loss.detach()) * len(batch)
            print(f"{self.path.stem}: epoch {epoch + 1}, loss {total / len(x):.5f}", flush=True)
        model = rc.wrap(network.eval(), bounds=(0, self.white))
        right = rc.predict(model, test.images * np.float32(self.white)) == test.labels
        metadata = {"model": self.model, "recipe": self.recipe, "test_accuracy": float(right.mean())}
        write_weights(self.path, WeightsFile(adapter.get_weights(network, architecture), metadata))


@dataclass(frozen=True)
class Zoo:
    """A training of the zoo that ships, or in the user cache."""

    model: str
    seed: int = 0
    recipe_name: str = "default"
    framework: str = "torch"  # that trained it; torch computes with its weights

    @property
    def recipe(self) -> str:
        return self.recipe_name + ("" if self.framework == "torch" else f", trained in {self.framework}")

    def input(self, x: torch.Tensor) -> torch.Tensor:
        """Return what the network was trained on, from images in [0, 1]."""
        return x

    def weights(self) -> WeightsFile | None:
        name = FromZoo(self.model, DATASETS[self.model], self.framework, self.recipe_name, self.seed)
        for directory in (weights_directory(), ROOT / "zoo" / "weights"):
            if (directory / name.file).exists():
                return read_weights(directory / name.file)
        return None


Source = Adam | Zoo
ADAM = [
    Adam(model, epochs, white, seed)
    for seed in range(2)
    for white in (255, 1)
    for model, epochs in (("lenet5", 60), ("lenet1", 50))
]


# experiments ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Given:
    """What is handed to the attack instead of images in [0, 1], and what the network makes of it.

    `to` turns images into what the attack sees; `back` turns that, in tensors, into images in [0, 1], from which the
    network's own input is made. Where `back` does not undo `to`, the network is given something wrong.
    """

    to: Callable[[Images], Images] = lambda x: x
    back: Callable[[torch.Tensor], torch.Tensor] = lambda x: x


def channels_first(mean: Images) -> torch.Tensor:
    """Return a value of each pixel (H, W, C), or of each channel (C,), as torch has them."""
    return torch.tensor(mean).permute(2, 0, 1) if mean.ndim == 3 else torch.tensor(mean)[:, None, None]


def standardise(mean: Images, std: Images) -> Given:
    """Return images less a mean and divided by a deviation."""
    m, s = channels_first(mean), channels_first(std)
    return Given(lambda x: (x - mean) / std, lambda x: x * s + m)


@cache
def keras_mean(dataset: str) -> Images:
    """The mean training image, which Keras' ResNet example subtracts."""
    mean: Images = rc.load_dataset(dataset, "train").images.mean(axis=0, dtype=np.float64).astype(np.float32)
    return mean


BYTES = Given(lambda x: x * np.float32(255), lambda x: x / 255)


@dataclass(frozen=True)
class Experiment:
    """A network, what it is given, and the bounds it is wrapped with.

    Attributes
    ----------
    name : str
        What is tried, in a few words; images outside the bounds are clipped to them.
    source : Adam or Zoo
        The network's training.
    bounds : tuple of float
        What the attack takes for the smallest and the largest value of a pixel.
    given : callable
        Makes the `Given`, of the dataset's name.
    images : int
        How many are attacked, the first in an order that `SEED` decides of those the network gets right outside.
    alone : bool
        Whether the network alone decides which images these are; otherwise so do all the zoo's networks of its dataset.
    """

    name: str
    source: Source
    bounds: tuple[float, float] = (0, 1)
    given: Callable[[str], Given] = lambda dataset: Given()
    alone: bool = True
    images: int = 0

    @property
    def key(self) -> dict[str, Any]:
        """What tells it from the other experiments."""
        model, dataset = self.source.model, DATASETS[self.source.model]
        about = {"name": self.name, "model": model, "dataset": dataset, "recipe": self.source.recipe}
        return about | {"training_seed": self.source.seed, "bounds": list(self.bounds)}

    def make(self, content: WeightsFile) -> dict[str, Any]:
        """Return the fingerprint."""
        start, dataset = time.perf_counter(), DATASETS[self.source.model]
        data, network = rc.load_dataset(dataset, "test"), native(self.source.model, content)
        outside = rc.predict(rc.wrap(Inside(network, Given(), self.source).eval()), data.images) == data.labels
        if not self.alone:
            outside &= right_for_all(dataset)
        order = np.random.default_rng(SEED).permutation(np.flatnonzero(outside))
        chosen = np.sort(order[: self.images or IMAGES[self.source.model]])
        given, labels = self.given(dataset), data.labels[chosen]
        x = np.clip(given.to(data.images[chosen]), *self.bounds).astype(np.float32)
        model = rc.wrap(Inside(network, given, self.source).eval(), bounds=self.bounds)
        right = rc.predict(model, x) == labels
        fallen = attack_all(model, x[right], labels[right])
        return self.key | {
            "images": len(chosen),
            "common": not self.alone,
            "clean_accuracy": float(right.mean()),
            # As Foolbox 1.x counts: an image that the wrapper misclassifies has fallen at distance 0.
            "rates": {name: round(float((~right).mean() + right.mean() * rate), 6) for name, rate in fallen.items()},
            "of_correct": fallen if right.any() else dict.fromkeys(fallen),
            "seed": SEED,
            "framework": "torch",
            "test_accuracy": content.metadata["test_accuracy"],
            "weights": content.sha256,
            "versions": {name: package_version(name) for name in ("robustcmp", "torch", "numpy")},
            "seconds": round(time.perf_counter() - start),
        }


class Inside(torch.nn.Module):
    """A network with what happens to its images first."""

    def __init__(self, network: torch.nn.Module, given: Given, source: Source):
        super().__init__()
        self.network, self.given, self.source = network, given, source

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.network(self.source.input(self.given.back(x)))


def native(model: str, content: WeightsFile) -> torch.nn.Module:
    """Return a network with its weights."""
    adapter, architecture = get_framework("torch"), get_architecture(model)
    network = adapter.build(architecture, 0, "cpu")
    adapter.set_weights(network, architecture, content.weights)
    return network


def attack_all(model: rc.models.model.Model, x: Images, labels: NDArray[np.int64]) -> dict[str, float]:
    """Return the share of images that fall to each attack; of these the network is right about all."""
    if not len(x):
        return dict.fromkeys(("fgsm", "single_pixel", "boundary"), 0.0)
    left = np.arange(len(x))
    for pixels in PIXELS:
        attack = rc.attacks.SinglePixel(max_pixels=pixels)
        if len(left):
            left = left[~attack.attack(model, x[left], labels[left], seed=SEED).success]
    boundary = rc.attacks.Boundary(iterations=1, max_directions=1)
    return {
        "fgsm": float(rc.attacks.FGSM().attack(model, x, labels).success.mean()),
        "single_pixel": (len(x) - len(left)) / len(x),
        "boundary": float(boundary.attack(model, x[:STARTED], labels[:STARTED], seed=SEED).success.mean()),
    }


@cache
def right_for_all(dataset: str) -> NDArray[np.bool_]:
    """Return which test images all the zoo's networks of torch for a dataset get right, of both architectures."""
    data, right = rc.load_dataset(dataset, "test"), []
    for model in (model for model, its in DATASETS.items() if its == dataset):
        for seed in range(10):
            if content := Zoo(model, seed).weights():
                right.append(rc.predict(rc.wrap(native(model, content)), data.images) == data.labels)
    return np.logical_and.reduce(right)


def experiments() -> Iterator[Experiment]:
    """Yield every experiment, those that need a training that is not there as well."""
    for model in ("lenet5", "lenet1"):
        yield Experiment("as it should be", Zoo(model))
        yield Experiment("images common to all networks", Zoo(model), alone=False)
    yield Experiment("as it should be", Zoo("resnet20"))
    yield from wrong_wrappers(Zoo("resnet20"))
    yield from wrong_wrappers(Zoo("lenet5"))
    for far in (3, 10, 30, 100):
        yield Experiment(f"bounds 0 to {far} on input 0 to 1", Zoo("resnet20"), (0, far), images=100)
    for source in ADAM:
        bounds = (0.0, float(source.white))
        given = (lambda dataset: BYTES) if source.white == 255 else (lambda dataset: Given())
        yield Experiment("as it should be", source, bounds, given)
        if source.seed == 0:
            yield Experiment("images common to all networks", source, bounds, given, alone=False)
    yield from wrong_wrappers(Zoo("lenet1"))
    yield Experiment("as it should be", Zoo("resnet20", recipe_name="long"))
    # By the paper's recipe: `robustcmp train --model resnet20 --framework torch tensorflow --recipe paper` trains them.
    for framework in ("torch", "tensorflow"):
        paper = Zoo("resnet20", recipe_name="paper", framework=framework)
        yield Experiment("as it should be", paper)
        yield from wrong_wrappers(paper)
        for far in (3, 10, 30, 100):
            yield Experiment(f"bounds 0 to {far} on input 0 to 1", paper, (0, far), images=100)
        for far in (2, 3, 10, 30):
            name = f"mean subtracted, bounds −{far} to {far}"
            yield Experiment(name, paper, (-far, far), less_mean, images=FEWER["resnet20"])


def wrong_wrappers(source: Zoo) -> Iterator[Experiment]:
    """Yield a network with bounds, inputs or channels that do not fit it."""

    def as_is(dataset: str) -> Given:
        return Given()

    def normalised(dataset: str) -> Given:
        return standardise(MEAN[dataset], STD[dataset])

    bytes_wide, signed_bytes = (0.0, 255.0), (-128.0, 127.0)
    tried = [
        ("bounds −1 to 1 on input 0 to 1", (-1, 1), as_is),
        ("bounds 0 to 255 on input 0 to 1", bytes_wide, as_is),
        ("mean subtracted, bounds −1 to 1", (-1, 1), less_mean),
        ("mean subtracted, bounds 0 to 1, clipped", (0, 1), less_mean),
        ("mean subtracted, bounds 0 to 255, clipped", bytes_wide, less_mean),
        ("mean subtracted, bounds −128 to 127", signed_bytes, less_mean),
        ("mean subtracted once too often, bounds 0 to 1", (0, 1), lambda dataset: off(dataset, -1)),
        ("mean not subtracted, bounds 0 to 1", (0, 1), lambda dataset: off(dataset, 1)),
        ("normalised, bounds −1 to 1, clipped", (-1, 1), normalised),
        ("normalised, bounds 0 to 1, clipped", (0, 1), normalised),
        ("normalised, bounds −3 to 3", (-3, 3), normalised),
        ("normalised, bounds 0 to 255, clipped", bytes_wide, normalised),
        ("normalised, bounds −128 to 127", signed_bytes, normalised),
    ]
    if DATASETS[source.model] == "cifar10":
        tried += [
            ("channels in reverse order, bounds 0 to 1", (0, 1), lambda dataset: Given(lambda x: x[..., ::-1])),
            ("channels last read as first, bounds 0 to 1", (0, 1), lambda dataset: Given(back=misread)),
        ]
    for name, bounds, given in tried:
        yield Experiment(name, source, bounds, given, images=FEWER[source.model])


def less_mean(dataset: str) -> Given:
    """Return images less the mean training image."""
    return standardise(keras_mean(dataset), np.ones(1, np.float32))


def off(dataset: str, times: int) -> Given:
    """Return images of which the network sees so many means too much."""
    return Given(back=lambda x: x + times * channels_first(keras_mean(dataset)))


def misread(x: torch.Tensor) -> torch.Tensor:
    """Take numbers that are ordered by row, column and channel for ones by channel, row and column."""
    return x.permute(0, 2, 3, 1).reshape(x.shape)


# the command ---------------------------------------------------------------------------------------------------------


def main() -> None:
    """Do what is missing."""
    TRAINED.mkdir(parents=True, exist_ok=True)
    for training in ADAM:
        if not training.path.exists():
            training.train()
    stored = json.loads(STORED.read_text(encoding="utf-8"))
    for experiment in experiments():
        is_made = any(experiment.key.items() <= fingerprint.items() for fingerprint in stored)
        content = experiment.source.weights()
        if not is_made and content:
            stored.append(experiment.make(content))
            write_bytes_atomically(STORED, f"{json.dumps(stored, indent=1, ensure_ascii=False)}\n".encode())
            print(stored[-1], flush=True)


if __name__ == "__main__":
    main()

"""Train LeNet-5 in PyTorch from JAX's initial weights, and compare it with both under the smallest L2 perturbation.

``python docs/results/initial_weights.py`` first trains what is missing in build/initial-weights, then attacks the three
groups of networks, and stores the run in docs/results/reference/lenet5-mnist-initial-weights. The networks of PyTorch
and JAX themselves are those of docs/results/reference/lenet5-mnist-eight-new-trainings, from the user cache:

    python -m robustcmp.train --model lenet5 --framework torch jax --training-seeds 10 11 12 13 14 15 16 17
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import robustcmp as rc
from robustcmp.frameworks import get_framework
from robustcmp.networks.architecture import Architecture, get_architecture
from robustcmp.networks.weights import read_weights, write_weights
from robustcmp.sources.from_zoo import FromZoo, make_model
from robustcmp.sources.recipes import load_recipe
from robustcmp.sources.training import train

HERE = Path(__file__).parent
TRAINED = HERE.parents[1] / "build" / "initial-weights"
RUN = HERE / "reference" / "lenet5-mnist-initial-weights"
SEEDS = range(10, 18)
MODEL, DATASET = "lenet5", "mnist"
JAX = get_framework("jax")


class FromJAX:
    """A framework whose networks begin with the weights that JAX's have for the same seed."""

    def __init__(self, name: str):
        self.own = get_framework(name)
        self.differences = self.own.differences | {"initialisation": f"JAX's: {JAX.differences['initialisation']}"}

    def __getattr__(self, name: str) -> Any:
        return getattr(self.own, name)

    def build(self, architecture: Architecture, seed: int, device: Any) -> Any:
        network = self.own.build(architecture, seed, device)
        initial = JAX.get_weights(JAX.build(architecture, seed, "cpu"), architecture)
        self.own.set_weights(network, architecture, initial)
        return network


def load_from_jax(name: str, dataset: str, seed: int) -> rc.Model:
    """Return a framework's training of LeNet-5 from JAX's initial weights, which is made if it is missing."""
    path = TRAINED / f"{MODEL}-{dataset}-{name}-from-jax-{seed}.h5"
    if not path.exists():
        TRAINED.mkdir(parents=True, exist_ok=True)
        checkpoint = path.with_suffix(".checkpoint.h5")
        framework: Any = FromJAX(name)
        content = train(
            framework,
            get_architecture(MODEL),
            load_recipe(MODEL, dataset),
            rc.load_dataset(dataset, "train"),
            rc.load_dataset(dataset, "test"),
            seed=seed,
            device="cpu",
            about={"recipe": "default, from the initial weights of jax"},
            checkpoint=checkpoint,
        )
        write_weights(path, content)
        checkpoint.unlink()
        print(f"{path.stem}: {content.metadata['test_accuracy']:.2%}", flush=True)
    return make_model(FromZoo(MODEL, dataset, name, "default", seed), read_weights(path), "cpu")


def main() -> None:
    """Train what is missing, attack and store the run."""
    models = {"torch from jax": [load_from_jax("torch", DATASET, seed) for seed in SEEDS]}
    for framework in ("torch", "jax"):
        models[framework] = [
            rc.load_model(MODEL, framework=framework, dataset=DATASET, seed=seed, device="cpu") for seed in SEEDS
        ]
    data = rc.load_dataset(DATASET)
    ev = rc.evaluate(
        models,
        data.images,
        data.labels,
        suite=HERE / "nearest-l2.toml",
        out=RUN,
        keep_images=False,
        about={"model": MODEL, "dataset": DATASET, "command": "python docs/results/initial_weights.py"},
    )
    ev.run_checks()
    print(ev)


if __name__ == "__main__":
    main()

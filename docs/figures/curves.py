"""Draw the curves of the trainings that ship, from their weights files: docs/figures/curves-MODEL-DATASET.svg,
or curves-MODEL-DATASET-RECIPE.svg where that is not the default.

And the loss of every batch of VGG-16's first epoch, from vgg16-cifar10-one-epoch.csv, as its weights are too large.

Needs matplotlib: ``pip install '.[docs]'``, then ``python docs/figures/curves.py``.
"""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.ticker import MaxNLocator

from robustcmp.networks.weights import WeightsFile, read_weights

COLORS = {"torch": "#d1495b", "tensorflow": "#edae49", "jax": "#30638e"}  # told apart by all kinds of colour vision
STYLES = {"torch": "-", "tensorflow": "--", "jax": ":"}


def by_model() -> dict[tuple[str, str, str], list[WeightsFile]]:
    """The weights files that ship, by model, dataset and recipe."""
    found: dict[tuple[str, str, str], list[WeightsFile]] = {}
    for path in sorted((files("robustcmp.resources.zoo") / "weights").glob("*.h5")):
        content = read_weights(path)
        if content.metadata["framework"] in COLORS:  # not in a host
            about = content.metadata
            found.setdefault((about["model"], about["dataset"], about["recipe"]), []).append(content)
    return found


def draw(model: str, dataset: str, recipe: str, trainings: list[WeightsFile]) -> None:
    """Draw the loss and the validation accuracy of some trainings, epoch by epoch."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.4), layout="constrained")
    for content in trainings:
        framework = content.metadata["framework"]
        epochs = np.arange(1, len(content.curves["loss"]) + 1)
        look = {"color": COLORS[framework], "linestyle": STYLES[framework], "linewidth": 1.6}
        left.plot(epochs, content.curves["loss"], label=framework, **look)
        right.plot(epochs, 100 * content.curves["validation_accuracy"], label=framework, **look)
    left.set(xlabel="epoch", ylabel="mean cross-entropy", yscale="log")
    right.set(xlabel="epoch", ylabel="validation accuracy, %")
    for axes in (left, right):
        axes.grid(alpha=0.3)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.spines[["top", "right"]].set_visible(False)
    handles, labels = right.get_legend_handles_labels()
    unique = dict(zip(labels, handles, strict=True))
    right.legend(unique.values(), unique.keys(), frameon=False, loc="lower right")
    default = recipe == "default"
    figure.suptitle(f"{model} on {dataset}" if default else f"{model} on {dataset}, recipe {recipe}")
    name = f"curves-{model}-{dataset}.svg" if default else f"curves-{model}-{dataset}-{recipe}.svg"
    figure.savefig(Path(__file__).parent / name, metadata={"Date": None})
    plt.close(figure)


def draw_batches(path: Path, smoothed: int = 20) -> None:
    """Draw the mean loss of so many batches at a time."""
    names = path.read_text(encoding="utf-8").split("\n", 1)[0].split(",")[1:]
    steps, *losses = np.genfromtxt(path, delimiter=",", skip_header=1, unpack=True)  # NaN after the last batch
    figure, axes = plt.subplots(figsize=(5.5, 3.4), layout="constrained")
    for name, loss in zip(names, losses, strict=True):
        mean = np.convolve(loss, np.full(smoothed, 1 / smoothed), "valid")
        framework, _, source = name.partition(" from ")  # whose initial weights it has, if not its own
        look = {
            "color": COLORS[framework],
            "linestyle": STYLES[source or framework],
            "linewidth": 0.9 if source else 1.8,
        }
        axes.plot(steps[smoothed - 1 :], mean, label=name, **look)
    axes.set(xlabel=f"batch of 128 (means of {smoothed})", ylabel="mean cross-entropy", title="vgg16 on cifar10")
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False)
    figure.savefig(path.with_suffix(".svg"), metadata={"Date": None})
    plt.close(figure)


if __name__ == "__main__":
    plt.rcParams["svg.hashsalt"] = "robustcmp"
    for (model, dataset, recipe), trainings in by_model().items():
        draw(model, dataset, recipe, trainings)
    draw_batches(Path(__file__).parent / "vgg16-cifar10-one-epoch.csv")

"""Draw the figures of the pages of results: docs/figures/RUN.svg, and some of their own.

Needs matplotlib: ``pip install '.[docs]'``, then ``python docs/figures/runs.py``.
"""

from __future__ import annotations

import csv
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure

import robustcmp as rc
from robustcmp.analysis.indicator import find_published_rates

HERE = Path(__file__).parent
RUNS = HERE.parent / "results"
PERCENTILES = "resnet20-cifar10-deployed-percentiles"
CALIBRATED = {"-p99": 99, "-p99.9": 99.9, "": 99.99, "-p99.999": 99.999, "-minmax": 100}  # of onnxruntime-int8


def draw_percentiles(path: Path) -> Figure:
    """Draw the success of single pixel against the percentile that calibration takes for the largest activation."""
    rows = rc.open_run(path).deployments().query("attack == 'single_pixel'").set_index("deployment")
    chosen = rows.loc[[f"onnxruntime-int8{kind}" for kind in CALIBRATED]]
    source = 100 * chosen.source_value.iloc[0]
    rates, low, high = (source + 100 * chosen[name] for name in ("difference", "low", "high"))
    figure, axes = plt.subplots(figsize=(6.4, 3.2), layout="constrained")
    places = range(len(CALIBRATED))
    axes.errorbar(places, rates, yerr=[rates - low, high - rates], marker="o", capsize=3, label="deployed, int8")
    axes.axhline(source, color="0.4", linestyle="--", label="source, float32")
    axes.set_xticks(
        places, [f"{100 - each:g} %\n({each:g}th)" if each < 100 else "0\n(min-max)" for each in CALIBRATED.values()]
    )
    axes.set(xlabel="activations cut off on calibration images, a side (percentile)", ylim=(0, None))
    axes.set_ylabel("single pixel succeeds, %")
    axes.legend(frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
    return figure


def draw_epochs(path: Path) -> Figure:
    """Draw the time of an epoch in each framework, at each batch size, with 95 % intervals."""
    frame = rc.open_benchmark(path).summary_of_training()
    figure, axes = plt.subplots(figsize=(6.4, 3.2), layout="constrained")
    for (size, of_size), marker in zip(frame.groupby("batch_size"), "osD", strict=True):
        ordered = of_size.sort_values("subject", ascending=False)
        times, low, high = (1000 * ordered[f"epoch_seconds{end}"] for end in ("", "_low", "_high"))
        axes.errorbar(times, ordered.subject, xerr=[times - low, high - times], fmt=marker, label=f"batch {size}")
    axes.set(xlabel="an epoch of LeNet-5 on digits, ms", xlim=(0, None))
    axes.legend(frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
    return figure


def draw_every_framework(path: Path) -> Figure:
    """Draw a dot a training of every framework, under each attack; crosses are the paper's."""
    ev = rc.open_run(path)
    nearest = ev.dataset.l2.sel(attack="nearest_l2").median(["image", "repeat"])
    names = nearest.mean("training_seed").to_series().sort_values(ascending=False).index
    pixels = ev.exact_pixel.probabilities("single_pixel")
    panels = {
        "FGSM: success, %": 100 * ev.success_rate.sel(attack="fgsm").mean("repeat"),
        "single pixel: expected success, %": {name: 100 * pixels[name].mean(axis=1) for name in names},
        "boundary: median L2": ev.dataset.l2.sel(attack="boundary").median(["image", "repeat"]),
        "smallest L2, median": nearest,
    }
    figure, row = plt.subplots(1, 4, figsize=(10, 3.6), layout="constrained", sharey=True)
    for axes, (title, values) in zip(row, panels.items(), strict=True):
        for height, name in enumerate(names):
            dots = values[name] if isinstance(values, dict) else values.sel(model=name).values
            axes.plot(dots, [height] * len(dots), "o", color="#0072b2", alpha=0.8, markeredgewidth=0)
            paper = find_published_rates(ev.manifest).get(name.partition("@")[0], {})
            for start, attack in (("FGSM", "fgsm"), ("single", "single_pixel")):
                if paper and title.startswith(start):
                    axes.plot(100 * paper[attack], height, "x", color="black")
        axes.set_title(title, fontsize=10)
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(axis="x", alpha=0.3)
    row[0].set_yticks(range(len(names)), names)
    return figure


def draw_autoattack() -> Figure:
    """Draw a dot a training under AutoAttack and each framework's mean, for two networks."""
    figure, row = plt.subplots(1, 2, figsize=(8, 3.6), layout="constrained")
    runs = {"LeNet-5, ε = 0.1": "lenet5-mnist-autoattack", "ResNet-20, ε = 1/255": "resnet20-cifar10-autoattack"}
    for axes, (title, run) in zip(row, runs.items(), strict=True):
        rates = 100 * rc.open_run(RUNS / run).success_rate.sel(attack="autoattack").mean("repeat")
        for place, values in enumerate(rates.values):
            axes.plot(place + np.linspace(-0.2, 0.2, len(values)), values, "o", color="#0072b2", markeredgewidth=0)
            axes.hlines(values.mean(), place - 0.3, place + 0.3, color="black")
        axes.set_xticks(range(len(rates)), rates.model.values)
        axes.set_title(title, fontsize=10)
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(axis="y", alpha=0.3)
    row[0].set_ylabel("images fooled, %")
    return figure


def draw_processor_times(path: Path) -> Figure:
    """Draw the processor time of a training step and of a prediction in every framework."""
    with path.open(encoding="utf-8") as file:
        rows = sorted(csv.DictReader(file), key=lambda each: -float(each["step_ms"]))
    figure, row = plt.subplots(1, 2, figsize=(8, 3.6), layout="constrained", sharey=True)
    columns = {"step_ms": "a training step, 64 images", "prediction_ms": "a prediction, 128 images"}
    for axes, (column, title) in zip(row, columns.items(), strict=True):
        axes.barh([each["framework"] for each in rows], [float(each[column]) for each in rows], color="#0072b2")
        axes.set(title=title, xlabel="processor time, ms")
        axes.spines[["top", "right"]].set_visible(False)
    return figure


def save(figure: Figure, name: str) -> None:
    """Write a figure, the same bytes each time."""
    figure.savefig(HERE / f"{name}.svg", metadata={"Date": None})
    plt.close(figure)


if __name__ == "__main__":
    plt.rcParams["svg.hashsalt"] = "robustcmp"
    for run in ("lenet5-mnist-ten-trainings", "lenet5-mnist-2018-five-trainings"):
        save(rc.open_run(RUNS / run).plot.trainings(paper=True)[0].figure, run)
    save(draw_autoattack(), "autoattack")
    save(draw_epochs(HERE.parent / "measurements" / "train-lenet5-digits-2"), "epochs-lenet5-digits")
    save(draw_every_framework(RUNS / "lenet5-mnist-every-framework"), "every-framework")
    save(draw_processor_times(RUNS / "processor-time-lenet5.csv"), "processor-time-lenet5")
    save(draw_percentiles(RUNS / PERCENTILES), "resnet20-cifar10-percentiles")

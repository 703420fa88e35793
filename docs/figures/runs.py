"""Draw the figures of the pages of results: docs/figures/RUN.svg, and two of their own.

Needs matplotlib: ``pip install '.[docs]'``, then ``python docs/figures/runs.py``.
"""

from __future__ import annotations

from pathlib import Path

import matplotlib.pyplot as plt
from matplotlib.figure import Figure

import robustcmp as rc

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


def save(figure: Figure, name: str) -> None:
    """Write a figure, the same bytes each time."""
    figure.savefig(HERE / f"{name}.svg", metadata={"Date": None})
    plt.close(figure)


if __name__ == "__main__":
    plt.rcParams["svg.hashsalt"] = "robustcmp"
    for run in ("lenet5-mnist-ten-trainings", "lenet5-mnist-2018-five-trainings"):
        save(rc.open_run(RUNS / run).plot.trainings(paper=True)[0].figure, run)
    save(draw_epochs(HERE.parent / "measurements" / "train-lenet5-digits-2"), "epochs-lenet5-digits")
    save(draw_percentiles(RUNS / PERCENTILES), "resnet20-cifar10-percentiles")

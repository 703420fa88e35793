"""Draw what each training of a framework came to: docs/figures/RUN.svg, from docs/results/RUN, for runs of several.

Needs matplotlib: ``pip install '.[docs]'``, then ``python docs/figures/trainings.py``.
"""

from __future__ import annotations

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from curves import COLORS

import robustcmp as rc
from robustcmp.analysis.statistics.intervals import t_interval

HERE = Path(__file__).parent
RUNS = HERE.parent / "results"
OF_2018 = {"theano": "#5f4b8b", "tensorflow@1.15": "#8c6d1f", "torch@1.0": "#7a1f33"}  # near to those of today's


def draw(run: str) -> None:
    """A dot a training, beside the mean of each framework and its 95 % interval over trainings; × is the paper's."""
    ev = rc.open_run(RUNS / run)
    figure, panels = plt.subplots(1, 3, figsize=(9, 3.3 if len(ev.models) < 4 else 3.8), layout="constrained")
    colors = COLORS | OF_2018
    of_l2 = ev.dataset.l2.sel(attack="boundary").isel(repeat=slice(ev.repeats("boundary")))
    shown = {
        "FGSM: success, %": 100 * ev.success_rate.sel(attack="fgsm").mean("repeat"),
        "single pixel: expected success, %": 100 * ev.exact_pixel.success_rate.sel(attack="single_pixel"),
        "boundary: median L2": of_l2.median(("repeat", "image")),
    }
    published = ("fgsm", "single_pixel", None)
    for axes, (title, values), attack in zip(panels, shown.items(), published, strict=True):
        for i, model in enumerate(ev.models):
            its = values.sel(model=model).values
            axes.plot(i + np.linspace(-0.22, 0.22, len(its)), its, "o", color=colors[model], markersize=4, alpha=0.75)
            axes.hlines(its.mean(), i - 0.32, i + 0.32, color="black", linewidth=1.2)
            low, high = t_interval(its)
            axes.vlines(i + 0.38, low, high, color="black", linewidth=1.2)
            its_paper = ev.paper.get(model.partition("@")[0], {}).get(attack)
            if its_paper is not None:
                axes.plot(i, 100 * its_paper, "x", color="black", markersize=6)
        axes.set(title=title, xlim=(-0.5, len(ev.models) - 0.35))
        axes.set_xticks(range(len(ev.models)), ev.models)
        if len(ev.models) > 3:
            axes.tick_params(axis="x", labelrotation=40)
            plt.setp(axes.get_xticklabels(), ha="right", rotation_mode="anchor")
        axes.grid(alpha=0.3, axis="y")
        axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(HERE / f"{run}.svg", metadata={"Date": None})
    plt.close(figure)


if __name__ == "__main__":
    plt.rcParams["svg.hashsalt"] = "robustcmp"
    for path in sorted(RUNS.glob("*-trainings")):
        draw(path.name)

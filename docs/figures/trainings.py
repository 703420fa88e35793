"""Draw what each training of a framework came to: docs/figures/RUN.svg, from docs/results/RUN, for runs of several.

Needs matplotlib: ``pip install '.[docs]'``, then ``python docs/figures/trainings.py``.
"""

from __future__ import annotations

from pathlib import Path

import matplotlib.pyplot as plt

import robustcmp as rc

HERE = Path(__file__).parent
RUNS = HERE.parent / "results"


def draw(run: str) -> None:
    """A dot a training, beside the mean of each framework and its 95 % interval over trainings; × is the paper's."""
    figure = rc.open_run(RUNS / run).plot.trainings(paper=True)[0].figure
    figure.savefig(HERE / f"{run}.svg", metadata={"Date": None})
    plt.close(figure)


if __name__ == "__main__":
    plt.rcParams["svg.hashsalt"] = "robustcmp"
    for path in sorted(RUNS.glob("*-trainings")):
        draw(path.name)

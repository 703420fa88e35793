"""Draw success rates against the number of models that the images are common to: docs/figures/conditioning-RUN.svg.

Needs matplotlib: ``pip install '.[docs]'``, then ``python docs/figures/conditioning.py``.
"""

from __future__ import annotations

from pathlib import Path

import matplotlib.pyplot as plt

import robustcmp as rc

HERE = Path(__file__).parent
RUNS = HERE.parent / "results"


def draw(run: str) -> None:
    """One panel per attack, one line per framework; the band holds 95 % of trainings and choices of other models."""
    figure = rc.open_run(RUNS / run).plot.conditioning()[0].figure
    figure.savefig(HERE / f"conditioning-{run}.svg", metadata={"Date": None})
    plt.close(figure)


if __name__ == "__main__":
    plt.rcParams["svg.hashsalt"] = "robustcmp"
    for path in sorted(RUNS.glob("*-2018-five-trainings")):
        draw(path.name)

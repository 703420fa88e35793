"""Draw how much easier deployed networks are to fool than their sources: docs/figures/RUN.svg, from docs/results/RUN.

Needs matplotlib: ``pip install '.[docs]'``, then ``python docs/figures/deployments.py``.
"""

from __future__ import annotations

from pathlib import Path

import matplotlib.pyplot as plt

import robustcmp as rc

HERE = Path(__file__).parent
RUNS = HERE.parent / "results"

if __name__ == "__main__":
    plt.rcParams["svg.hashsalt"] = "robustcmp"
    for path in sorted(RUNS.glob("*-deployed*")):
        figure = rc.open_run(path).plot.deployments()[0].figure
        figure.savefig(HERE / f"{path.name}.svg", metadata={"Date": None})
        plt.close(figure)

"""Draw FGSM's and single pixel's success of every setup in docs/results/fingerprints.json: fingerprints.svg.

Needs matplotlib: ``pip install '.[docs]'``, then ``python docs/figures/fingerprints.py``.
"""

from __future__ import annotations

import sys
from pathlib import Path

import matplotlib.pyplot as plt

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "results"))
from published_rates import fingerprints, read_rates  # noqa: E402

NETWORKS = {"lenet5": "LeNet-5", "lenet1": "LeNet-1", "resnet20": "ResNet-20"}
ATTACKS = ("fgsm", "single_pixel")

if __name__ == "__main__":
    plt.rcParams["svg.hashsalt"] = "robustcmp"
    figure, panels = plt.subplots(1, 3, figsize=(9, 3.2), layout="constrained")
    published, _ = read_rates()
    for axes, (network, title) in zip(panels, NETWORKS.items(), strict=True):
        ours = [[100 * setup["rates"][a] for a in ATTACKS] for setup in fingerprints() if setup["model"] == network]
        papers = [[100 * rates[a] for a in ATTACKS] for model, _, rates in published if model == network]
        axes.plot(*zip(*ours, strict=True), "o", color="0.55", alpha=0.6, label="our setups")
        axes.plot(*zip(*papers, strict=True), "x", color="#b3261e", markersize=9, markeredgewidth=2, label="the paper")
        axes.set(title=title, xlabel="FGSM succeeds, %", yscale="symlog" if network != "resnet20" else "linear")
        axes.spines[["top", "right"]].set_visible(False)
    for axes in panels[:2]:
        axes.set_yticks([0, 1, 10, 100], ["0", "1", "10", "100"])
    panels[0].set_ylabel("single pixel succeeds, %")
    panels[0].legend(frameon=False)
    figure.savefig(HERE / "fingerprints.svg", metadata={"Date": None})

"""Attack LeNet-5 on MNIST in every framework that has trained it: up to three trainings each, on the same images.

``OMP_NUM_THREADS=1 python docs/results/every_framework.py`` needs the environments of the hosts (``robustcmp hosts
create NAME``) and stores the run in docs/results/lenet5-mnist-every-framework.
"""

from __future__ import annotations

from pathlib import Path

import robustcmp as rc
from robustcmp.frameworks import known
from robustcmp.sources.from_zoo import list_seeds

HERE = Path(__file__).parent
RUN = HERE / "lenet5-mnist-every-framework"
MODEL, DATASET = "lenet5", "mnist"
TRAININGS = 3


def main() -> None:
    """Attack and store the run."""
    models = {}
    for framework in known():
        seeds = list_seeds(MODEL, DATASET, framework)[:TRAININGS]
        if seeds:
            models[framework] = [rc.load_model(MODEL, framework=framework, dataset=DATASET, seed=n) for n in seeds]
    data = rc.load_dataset(DATASET)
    ev = rc.evaluate(
        models,
        data.images,
        data.labels,
        suite=HERE / "every-framework.toml",
        batch_size=128,
        out=RUN,
        keep_images=False,
        about={"model": MODEL, "dataset": DATASET, "command": "python docs/results/every_framework.py"},
    )
    ev.run_checks()
    print(ev)


if __name__ == "__main__":
    main()

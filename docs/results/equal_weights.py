"""Train LeNet-5 on digits in every framework from the same initial weights, those of JAX, and attack all of them.

``OMP_NUM_THREADS=1 python docs/results/equal_weights.py`` trains what is missing in build/initial-weights, three times
in each framework, and stores the run in docs/results/lenet5-digits-equal-weights.
"""

from __future__ import annotations

from pathlib import Path

from initial_weights import MODEL, load_from_jax

import robustcmp as rc
from robustcmp.frameworks import known
from robustcmp.sources.from_zoo import list_seeds

HERE = Path(__file__).parent
RUN = HERE / "lenet5-digits-equal-weights"
DATASET = "digits"
SEEDS = range(3)


def main() -> None:
    """Train what is missing, attack and store the run."""
    frameworks = [name for name in known() if list_seeds(MODEL, "mnist", name)]  # those of every_framework.py
    data = rc.load_dataset(DATASET)
    ev = rc.evaluate(
        {name: [load_from_jax(name, DATASET, seed) for seed in SEEDS] for name in frameworks},
        data.images,
        data.labels,
        suite=HERE / "equal-weights.toml",
        batch_size=128,
        out=RUN,
        keep_images=False,
        about={"model": MODEL, "dataset": DATASET, "command": "python docs/results/equal_weights.py"},
    )
    ev.run_checks()
    print(ev)


if __name__ == "__main__":
    main()

"""Measure the processor time of LeNet-5's training steps and predictions in every framework that is there.

``taskset --cpu-list 0 python docs/results/processor_time.py`` writes docs/results/processor-time-lenet5.csv.
Beside other programs a step takes longer, but little more processor time, so that no quiet machine is needed.
"""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from numpy.typing import NDArray

import robustcmp as rc
from robustcmp.frameworks import TrainableFramework, available, get_framework
from robustcmp.networks.architecture import get_architecture

TABLE = Path(__file__).parent / "processor-time-lenet5.csv"
LENET5 = get_architecture("lenet5")
STEP, CALL = 64, 128  # images: of the zoo's recipe, and of a usual batch of attacks
WARM_UP, ROUNDS, REPEATS = 5, 5, 20


def read_processor_time() -> float:
    """Return the seconds that this process and those that it started have used."""
    process = psutil.Process()
    times = [each.cpu_times() for each in (process, *process.children(recursive=True))]
    return sum(each.user + each.system for each in times)


def measure(function: Callable[[], object]) -> float:
    """Return the median processor time of a call in milliseconds, over rounds of several calls."""
    for _ in range(WARM_UP):
        function()
    seconds = []
    for _ in range(ROUNDS):
        before = read_processor_time()
        for _ in range(REPEATS):
            function()
        seconds.append((read_processor_time() - before) / REPEATS)
    return 1000 * float(np.median(seconds))


def measure_framework(framework: TrainableFramework, images: NDArray[Any], labels: NDArray[Any]) -> tuple[float, float]:
    """Return the processor time of a training step and of a prediction."""
    network = framework.build(LENET5, 0, "cpu")
    trainer = framework.trainer(network, LENET5, momentum=0.9, weight_decay=0.0)
    step = measure(lambda: trainer.step(images[:STEP], labels[:STEP], learning_rate=0.02))
    function, like = framework.place(network, "cpu")
    native = images[:CALL]
    if framework.data_format == "channels_first":
        native = native.transpose(0, 3, 1, 2)
    return step, measure(lambda: framework.forward(function, like, native))


def main() -> None:
    """Measure all and write the table."""
    data = rc.load_dataset("mnist", "train")
    with TABLE.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["framework", "version", "step_ms", "prediction_ms"])
        for name in available():
            framework = get_framework(name)
            step, prediction = measure_framework(framework, data.images, data.labels)
            writer.writerow([name, framework.version().split()[0], f"{step:.2f}", f"{prediction:.2f}"])
            file.flush()
            print(f"{name}: a step {step:.2f} ms, a prediction {prediction:.2f} ms", flush=True)


if __name__ == "__main__":
    main()

"""Benchmarks with made-up measurements, whose truth is known."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

import robustcmp as rc
from robustcmp.bench.benchmark import Benchmark
from robustcmp.bench.measurement import Asked, Epoch, Measurement, Resources
from robustcmp.bench.store import BenchmarkStore, Manifest, Planned
from robustcmp.files import json_digest

ENVIRONMENT = {
    "versions": {"python": "3.12.1", "robustcmp": "0.1.0", "foolbox": None},
    "system": "Linux",
    "machine": "x86_64",
    "cpus": 2,
    "omp_num_threads": None,
    "processor": "Made-up 3000",
    "threads": 2,
}
TRAINED = [0.90, 0.95, 0.975, 0.98]  # validation accuracy after each epoch


def planned(asked: Asked) -> Planned:
    return Planned(asked, json_digest({"asked": msgspec.to_builtins(asked)})[:32])


def resources(others: float | None = 0.02, looks: int = 5) -> Resources:
    return Resources(
        seconds=[2.0 + 0.1 * look for look in range(looks)],
        series={
            "cpu": [0.7, *[1.5] * (looks - 1)],  # it is ready after 2 seconds
            "memory": [3e8 + 1e6 * look for look in range(looks)],
            "others": [others] * looks,
        },
        cpu_seconds=12.0,
        peak_memory=320_000_000,
        sampling_seconds=0.05,
    )


def measurement(asked: Asked, calls: Iterable[float], **changed: Any) -> Measurement:
    made = Measurement(
        asked=asked,
        key=planned(asked).key,
        began="2026-11-25T01:00:00+00:00",
        seconds=10.0,
        ready_seconds=2.0,
        first_seconds=0.5,
        calls=[float(seconds) for seconds in calls],
        threads=2,
        device="cpu",
        resources=resources(),
        version="1.0",
    )
    return msgspec.structs.replace(made, **changed)


def trained(
    asked: Asked, seconds: Sequence[float], accuracies: Sequence[float] = TRAINED, **changed: Any
) -> Measurement:
    """Return a training with so many seconds an epoch, each of ten steps."""
    epochs = [
        Epoch(1.0, float(took), 0.5 / epoch, accuracy + 0.01, accuracy)
        for epoch, (took, accuracy) in enumerate(zip(seconds, accuracies, strict=False), 1)
    ]
    calls = np.repeat(np.array(seconds) / 10, 10)[1:]
    return measurement(asked, calls, epochs=epochs, **changed)


def write(
    directory: Path,
    measurements: Iterable[Measurement],
    also: Iterable[Asked] = (),
    **changed: Any,
) -> BenchmarkStore:
    """Write a benchmark of these measurements, which asked for some others too."""
    store = BenchmarkStore(directory)
    measurements = list(measurements)
    what = "train" if any(each.asked.task == "train" for each in measurements) else "predict"
    about = {"what": what, "model": "lenet5", "dataset": "mnist", "recipe": "default", "training_seed": 0}
    manifest = Manifest(
        "robustcmp benchmark 1",
        about=about
        | {"weights_of": None, "data": "ab" * 16, "epochs": 4, "command": "python -m robustcmp.bench train"},
        plan=[planned(asked) for asked in [*(each.asked for each in measurements), *also]],
        seed=0,
        failed={},
        control={},
        environment=ENVIRONMENT,
    )
    with store.lock():
        for each in measurements:
            store.save(each)
        store.write_manifest(msgspec.structs.replace(manifest, **changed))
    return store


def make(directory: Path, measurements: Iterable[Measurement], also: Iterable[Asked] = (), **changed: Any) -> Benchmark:
    """Write a benchmark as `write` does, and open it."""
    return rc.open_benchmark(write(directory, measurements, also, **changed).directory)


def trainings(
    seconds: Mapping[str, float],
    repetitions: int = 10,
    *,
    batch_sizes: Sequence[int] = (64,),
    noise: float = 0.02,
    seed: int = 0,
) -> list[Measurement]:
    """Return trainings of four epochs, of which a process takes the same time but for its own noise."""
    rng = np.random.default_rng(seed)
    return [
        trained(
            Asked("train", subject, batch_size, 0, repetition),
            np.array([3 * typical, *[typical] * 3]) * np.exp(rng.normal(0, noise)) * np.exp(rng.normal(0, 0.001, 4)),
        )
        for repetition in range(repetitions)
        for batch_size in batch_sizes
        for subject, typical in seconds.items()
    ]


def predictions(
    seconds: Mapping[str, float],
    repetitions: int = 10,
    *,
    batch_sizes: Sequence[int] = (1,),
    tasks: Sequence[Any] = ("forward",),
    calls: int = 100,
    noise: float = 0.02,
    seed: int = 0,
) -> list[Measurement]:
    """Return predictions: calls whose times are gamma-distributed around those of their process."""
    rng = np.random.default_rng(seed)
    return [
        measurement(
            Asked(task, subject, batch_size, 1000, repetition),
            typical * np.exp(rng.normal(0, noise)) * rng.gamma(100, 1 / 100, calls),
        )
        for repetition in range(repetitions)
        for task in tasks
        for batch_size in batch_sizes
        for subject, typical in seconds.items()
    ]

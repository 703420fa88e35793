"""The measurements of a benchmark as labelled arrays: NaN where there is nothing."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import numpy as np

from .measurement import Measurement
from .processes import QUANTILES, TOO_FEW, after_warm_up, quantiles, seconds_to

if TYPE_CHECKING:
    import xarray

Values = Mapping[str, tuple[str | None, Any]]
"""Of a measurement: by the name of a variable, the dimension that it has beside those of all, and its values."""


def training(measurements: Sequence[Measurement], accuracy: float | None) -> xarray.Dataset:
    """Return the trainings, as `Benchmark.training` says."""

    def values(measurement: Measurement) -> Values:
        epochs = measurement.epochs
        of_epochs = {
            name: ("epoch", [getattr(epoch, name) for epoch in epochs])
            for name in ("seconds", "share", "loss", "training_accuracy", "validation_accuracy")
        }
        return {
            **of_epochs,
            "elapsed": ("epoch", [*accumulate(epoch.seconds for epoch in epochs)]),
            "step_seconds": ("step", measurement.calls),
            "seconds_to_accuracy": (None, seconds_to(epochs, accuracy)),
            **_of_process(measurement),
        }

    made = _dataset(measurements, ["subject", "batch_size", "repetition"], values)
    return made.assign_coords(epoch=np.arange(1, made.sizes.get("epoch", 0) + 1))


def prediction(measurements: Sequence[Measurement]) -> xarray.Dataset:
    """Return the predictions, as `Benchmark.prediction` says."""

    def values(measurement: Measurement) -> Values:
        calls = after_warm_up(measurement)
        return {
            "call_seconds": ("call", measurement.calls),
            "calls_after_warm_up": (None, len(calls)),
            **{name: (None, value) for name, value in quantiles(calls).items()},
            **_of_process(measurement),
        }

    made = _dataset(measurements, ["task", "subject", "images", "batch_size", "repetition"], values)
    for name in QUANTILES:
        if name in made:
            made[name].attrs["missing"] = TOO_FEW
    return made


def resources(measurements: Sequence[Measurement]) -> xarray.Dataset:
    """Return what processes used over time, as `Benchmark.resources` says."""

    def values(measurement: Measurement) -> Values:
        looked = measurement.resources
        return {
            "seconds": ("time", looked.seconds),
            **{name: ("time", series) for name, series in looked.series.items() if name != "seconds"},
        }

    return _dataset(measurements, ["task", "subject", "images", "batch_size", "repetition"], values)


def _of_process(measurement: Measurement) -> Values:
    return {
        "ready_seconds": (None, measurement.ready_seconds),
        "first_seconds": (None, measurement.first_seconds),
        "cpu_seconds": (None, measurement.resources.cpu_seconds),
        "peak_memory": (None, measurement.resources.peak_memory),
        "parameters": (None, measurement.parameters),
        "bytes": (None, measurement.bytes),
        "file_bytes": (None, measurement.file_bytes),
    }


def _dataset(
    measurements: Sequence[Measurement], dims: Sequence[str], values: Callable[[Measurement], Values]
) -> xarray.Dataset:
    """Return what `values` says of each measurement, in arrays over what was asked and a dimension of their own."""
    import xarray

    coordinates = {dim: list(dict.fromkeys(getattr(each.asked, dim) for each in measurements)) for dim in dims}
    for dim in dims:
        if dim not in ("task", "subject"):
            coordinates[dim].sort()
    said = [values(each) for each in measurements]
    lengths: dict[str, int] = {}
    names: dict[str, str | None] = {}
    for each in said:
        for name, (own, content) in each.items():
            names[name] = own
            if own is not None:
                lengths[own] = max(lengths.get(own, 0), len(content))
    sizes = [len(coordinates[dim]) for dim in dims]
    arrays = {
        name: np.full([*sizes, *([] if own is None else [lengths[own]])], math.nan) for name, own in names.items()
    }
    for measurement, of_it in zip(measurements, said, strict=True):
        place = tuple(coordinates[dim].index(getattr(measurement.asked, dim)) for dim in dims)
        for name, (own, content) in of_it.items():
            known = np.array(content, np.float64)  # None becomes NaN
            whole: tuple[int | slice, ...] = place if own is None else (*place, slice(len(known)))
            arrays[name][whole] = known
    variables = {name: ([*dims, *([] if own is None else [own])], arrays[name]) for name, own in names.items()}
    return xarray.Dataset(variables, coordinates)

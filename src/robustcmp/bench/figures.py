"""The figures of one process: the unit of every summary and test."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..analysis.statistics.ranks import change_point
from .measurement import Epoch, Measurement

LIKELY = 0.01  # a change with a smaller p is one
MATTERS = 0.05  # of the median: a smaller change is none
QUANTILES = {"p90": 0.90, "p95": 0.95, "p99": 0.99}
OF_EPOCHS = ("epoch_seconds", "first_epoch_seconds", "loss", "training_accuracy", "validation_accuracy")
BUSY = 0.1  # processors that other programs use on average
BURST = 0.25  # or over some seconds; without any, noise of the counters stays below 0.15
BURST_SECONDS = 2.0


def _count_warm_up(calls: NDArray[np.float64]) -> int:
    """Return how many of the calls, whose times (calls,) are in their order, are warm-up.

    Those before Pettitt's change point, if that is in the first half, its p is below 0.01, and the medians before and
    after it differ by more than 5 %. A short warm-up is not found: in simulations, one of 15 calls in 100 or of 75 in
    1,000 was in at least 98 % of cases, one of 5 in 100 hardly ever. It hardly moves a median, but it is in p99 and the
    throughput.

    Examples
    --------
    >>> _count_warm_up(np.array([9.0] * 12 + [1.0, 1.01, 1.02, 1.01] * 22))
    12
    """
    change = change_point(calls)
    if change.p >= LIKELY or 2 * change.before > len(calls):
        return 0
    before = np.median(calls[: change.before])
    after = np.median(calls[change.before :])
    return change.before if abs(before - after) > MATTERS * after else 0


def summarise(measurement: Measurement) -> dict[str, Any]:
    """Return what a process measured as one row, see `Benchmark.to_dataframe`; what it does not have is NaN."""
    request = measurement.asked
    resources = measurement.resources
    calls = np.array(measurement.calls, np.float64)
    warm_up = _count_warm_up(calls)
    others = np.array(resources.series.get("others", []), np.float64)
    is_busy = _mean(others) > BUSY or _find_burst(others, resources.seconds) > BURST
    return {
        "task": request.task,
        "subject": request.subject,
        "images": request.images,
        "batch_size": request.batch_size,
        "repetition": request.repetition,
        **_summarise_calls(calls[warm_up:], request.batch_size),
        **_summarise_epochs(measurement.epochs),
        "ready_seconds": measurement.ready_seconds,
        "first_seconds": measurement.first_seconds,
        "calls": len(calls),
        "warm_up": warm_up,
        "seconds": measurement.seconds,
        "cpu_seconds": resources.cpu_seconds,
        "processors": _mean(_select_ready(measurement)),
        "peak_memory": float(resources.peak_memory),
        "others": _mean(others),
        "busy": is_busy,
        "threads": measurement.threads,
        "device": measurement.device,
        "version": measurement.version,
        "began": measurement.began,
    }


def _summarise_calls(calls: NDArray[np.float64], batch_size: int) -> dict[str, float]:
    total = float(calls.sum())
    figures = {"call_seconds": float(np.median(calls)) if len(calls) else math.nan}
    for name, q in QUANTILES.items():
        is_slowest = len(calls) * (1 - q) < 1 - 1e-9  # of fewer than 1 / (1 - q) calls
        figures[name] = math.nan if is_slowest else float(np.quantile(calls, q, method="higher"))
    figures["throughput"] = len(calls) * batch_size / total if total else math.nan
    return figures


def _summarise_epochs(epochs: Sequence[Epoch]) -> dict[str, float]:
    """Return the figures of a training; an epoch of which there was a share counts as if it had gone on."""
    if not epochs:
        return dict.fromkeys(OF_EPOCHS, math.nan)
    later = [epoch.seconds / epoch.share for epoch in epochs[1:] if epoch.share]
    last = epochs[-1]
    return {
        "epoch_seconds": float(np.median(later)) if later else math.nan,
        "first_epoch_seconds": epochs[0].seconds if epochs[0].share >= 1 else math.nan,
        "loss": math.nan if last.loss is None else last.loss,
        "training_accuracy": last.training_accuracy,
        "validation_accuracy": last.validation_accuracy,
    }


def _select_ready(measurement: Measurement) -> list[float]:
    """Return the processors used without the time before the network was there, when frameworks are imported."""
    values = measurement.resources.series.get("cpu", [])
    moments = zip(measurement.resources.seconds, values, strict=False)
    return [value for second, value in moments if second > measurement.ready_seconds and value is not None]


def _find_burst(rates: NDArray[np.float64], seconds: Sequence[float]) -> float:
    """Return the largest mean of rates at some moments over two seconds, over all if there are fewer; 0 of none."""
    moments = np.array([0.0, *seconds])
    if not len(rates):
        return 0.0
    used = np.concatenate([[0.0], np.cumsum(rates * np.diff(moments))])
    ends = np.searchsorted(moments, moments + BURST_SECONDS - 1e-9)
    starts = np.flatnonzero(ends < len(moments)) if moments[-1] > BURST_SECONDS else np.array([0])
    ends = np.minimum(ends[starts], len(moments) - 1)
    return float(((used[ends] - used[starts]) / (moments[ends] - moments[starts])).max())


def _mean(values: Iterable[float]) -> float:
    present = list(values)
    return float(np.mean(present)) if present else math.nan

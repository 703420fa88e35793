"""What one process measured, in figures: the unit of all that is said of times."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..analysis.statistics.changes import change_point, trend
from .measurement import Epoch, Measurement

LIKELY = 0.01  # a change or a trend with a smaller p is one
MATTERS = 0.05  # of the median: a smaller change or trend is none
FEWEST_CALLS = 10  # fewer have no trend
QUANTILES = {"p90": 0.90, "p95": 0.95, "p99": 0.99}
TOO_FEW = "too few calls"  # after warm-up, of which a quantile would be the slowest
NEAR_BEST = 0.01  # of accuracy: a training has converged within it
BUSY = 0.1  # processors that other programs use on average
BURST, BURST_SECONDS = 0.25, 2.0  # or over so long; without any, noise of the counters stays below 0.15
BURSTS_SINCE = 2  # the semantics of measurements that are judged by bursts, too
FULL_SHARE = 1.0


class Steadiness(NamedTuple):
    """Whether a process became faster or slower while it was measured.

    Attributes
    ----------
    warm_up : int
        How many calls lie before a change of the level, see `steadiness`.
    seconds : float
        How long these took.
    drift : float
        The trend of the calls after them, over as many calls as there are in all, as a share of their median; NaN of
        fewer than ten.
    drifts : bool
        Whether there is a trend of more than 5 %.
    """

    warm_up: int
    seconds: float
    drift: float
    drifts: bool


def steadiness(calls: NDArray[np.float64]) -> Steadiness:
    """Look for warm-up and drift in the times of calls.

    What lies before Pettitt's change point is warm-up, if the point is in the first half, its p is below 0.01, and the
    medians before and after it differ by more than 5 %. There is a drift if Kendall's trend after it has p below 0.01
    and, over the whole process, would change the time by more than 5 %. A short
    warm-up is not found: in simulations, one of 15 calls in 100 or of 75 in 1,000 was in at least 98 % of cases, one of
    5 in 100 hardly ever. It hardly moves a median, but it is in p99 and the throughput.

    Parameters
    ----------
    calls : ndarray of float64, shape (calls,)
        In their order.

    Examples
    --------
    >>> steadiness(np.array([9.0] * 12 + [1.0, 1.01, 1.02, 1.01] * 22)).warm_up
    12
    """
    found, warm_up = change_point(calls), 0
    if found.p < LIKELY and 2 * found.before <= len(calls):
        before, after = np.median(calls[: found.before]), np.median(calls[found.before :])
        warm_up = found.before if abs(before - after) > MATTERS * after else 0
    rest = calls[warm_up:]
    seconds = float(calls[:warm_up].sum())
    if len(rest) < FEWEST_CALLS or not (middle := float(np.median(rest))):
        return Steadiness(warm_up, seconds, math.nan, False)
    after_it = trend(rest)
    drift = after_it.change * (len(calls) - 1) / (len(rest) - 1) / middle
    return Steadiness(warm_up, seconds, drift, after_it.p < LIKELY and abs(drift) > MATTERS)


def figures(measurement: Measurement, accuracy: float | None) -> dict[str, Any]:
    """Return what a process measured as one row: what was asked, its times, and what it used.

    ``call_seconds`` is the median of its calls, or of the steps of a training, after warm-up. What a process does not
    have is NaN.

    Parameters
    ----------
    measurement : Measurement
    accuracy : float, optional
        The validation accuracy to which seconds are counted.
    """
    asked, resources = measurement.asked, measurement.resources
    calls = np.array(measurement.calls, np.float64)
    steady = steadiness(calls)
    others, most = _mean(resources.series.get("others", [])), largest_mean(measurement, "others", BURST_SECONDS)
    return {
        "task": asked.task,
        "subject": asked.subject,
        "images": asked.images,
        "batch_size": asked.batch_size,
        "repetition": asked.repetition,
        **_of_calls(calls[steady.warm_up :], asked.batch_size),
        **_of_epochs(measurement, accuracy),
        "ready_seconds": measurement.ready_seconds,
        "first_seconds": measurement.first_seconds,
        "calls": len(calls),
        "warm_up": steady.warm_up,
        "warm_up_seconds": steady.seconds,
        "drift": steady.drift,
        "drifts": steady.drifts,
        "seconds": measurement.seconds,
        "cpu_seconds": resources.cpu_seconds,
        "processors": _mean(once_ready(measurement, "cpu")),
        "peak_memory": float(resources.peak_memory),
        "cpu_temperature": _largest(once_ready(measurement, "cpu_temperature")),
        "gpu": _mean(once_ready(measurement, "gpu")),
        "gpu_memory": _largest(resources.series.get("gpu_memory", [])),
        "gpu_temperature": _largest(once_ready(measurement, "gpu_temperature")),
        "gpu_power": _mean(once_ready(measurement, "gpu_power")),
        "energy": math.nan if resources.energy is None else resources.energy,
        "others": others,
        "others_most": most,
        "busy": others > BUSY or (sees_bursts(measurement) and most > BURST),
        "load_before": math.nan if measurement.load_before is None else measurement.load_before,
        "load_after": math.nan if measurement.load_after is None else measurement.load_after,
        "threads": measurement.threads,
        "device": measurement.device,
        "version": measurement.version,
        "parameters": math.nan if measurement.parameters is None else float(measurement.parameters),
        "bytes": math.nan if measurement.bytes is None else float(measurement.bytes),
        "file_bytes": math.nan if measurement.file_bytes is None else float(measurement.file_bytes),
        "place": measurement.place,
        "began": measurement.began,
    }


def after_warm_up(measurement: Measurement) -> NDArray[np.float64]:
    """Return the times of the calls of a process without its warm-up."""
    calls = np.array(measurement.calls, np.float64)
    return calls[steadiness(calls).warm_up :]


def quantiles(calls: NDArray[np.float64]) -> dict[str, float]:
    """Return the `QUANTILES` of calls, NaN of fewer than 1 / (1 - q): it would be that of the slowest alone.

    Examples
    --------
    >>> quantiles(np.arange(1.0, 21.0))
    {'p90': 19.0, 'p95': 20.0, 'p99': nan}
    """
    return {
        name: float(np.quantile(calls, q, method="higher")) if len(calls) * (1 - q) >= 1 - 1e-9 else math.nan
        for name, q in QUANTILES.items()
    }


def _of_calls(calls: NDArray[np.float64], batch_size: int) -> dict[str, float]:
    """Return the figures of calls after warm-up."""
    total = float(calls.sum())
    return {
        "call_seconds": float(np.median(calls)) if len(calls) else math.nan,
        **quantiles(calls),
        "throughput": len(calls) * batch_size / total if total else math.nan,
    }


def _of_epochs(measurement: Measurement, accuracy: float | None) -> dict[str, float]:
    """Return the figures of a training; an epoch of which there was a share counts as if it had gone on."""
    epochs = measurement.epochs
    later = [epoch.seconds / epoch.share for epoch in epochs[1:] if epoch.share]
    shares = sum(epoch.share for epoch in epochs)
    last = epochs[-1] if epochs else None
    return {
        "epochs": shares if epochs else math.nan,
        "epoch_seconds": float(np.median(later)) if later else math.nan,
        "first_epoch_seconds": epochs[0].seconds if epochs and epochs[0].share == FULL_SHARE else math.nan,
        "seconds_to_accuracy": seconds_to(epochs, accuracy),
        "convergence_epoch": _converged(epochs),
        "loss": math.nan if last is None or last.loss is None else last.loss,
        "training_accuracy": last.training_accuracy if last else math.nan,
        "validation_accuracy": last.validation_accuracy if last else math.nan,
    }


def seconds_to(epochs: Sequence[Epoch], accuracy: float | None) -> float:
    """Return the seconds of training up to the first epoch after which the validation accuracy is reached, or NaN."""
    if accuracy is None:
        return math.nan
    seconds = 0.0
    for epoch in epochs:
        seconds += epoch.seconds
        if epoch.validation_accuracy >= accuracy:
            return seconds
    return math.nan


def _converged(epochs: Sequence[Epoch]) -> float:
    """Return the first epoch, from 1, whose validation accuracy is within a point of the training's best, or NaN."""
    best = max((epoch.validation_accuracy for epoch in epochs), default=math.nan)
    near = (n for n, epoch in enumerate(epochs, 1) if epoch.validation_accuracy >= best - NEAR_BEST - 1e-12)
    return float(next(near, math.nan))


def once_ready(measurement: Measurement, name: str) -> list[float | None]:
    """Return a series of resources without the time before the network was there, when frameworks are imported."""
    resources = measurement.resources
    looks = zip(resources.seconds, resources.series.get(name, []), strict=False)
    return [value for second, value in looks if second > measurement.ready_seconds]


def _mean(values: Sequence[float | None]) -> float:
    """Return the mean of a series over the times at which it was to be had, or NaN."""
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if known else math.nan


def sees_bursts(measurement: Measurement) -> bool:
    """Say whether a measurement counts as busy by a burst of other programs; those from before bursts do not."""
    return measurement.semantics >= BURSTS_SINCE


def largest_mean(measurement: Measurement, name: str, seconds: float) -> float:
    """Return the largest mean of a series of rates over so many seconds, over all if there are fewer, or NaN."""
    rates = np.array([math.nan if value is None else value for value in measurement.resources.series.get(name, [])])
    moments = np.array([0.0, *measurement.resources.seconds])
    if np.isnan(rates).all():
        return math.nan
    is_known, lengths = ~np.isnan(rates), np.diff(moments)
    used = np.concatenate([[0.0], np.cumsum(np.where(is_known, rates, 0.0) * lengths)])
    known = np.concatenate([[0.0], np.cumsum(is_known * lengths)])
    ends = np.searchsorted(moments, moments + seconds - 1e-9)
    starts = np.flatnonzero(ends < len(moments)) if moments[-1] > seconds else np.array([0])
    ends = np.minimum(ends[starts], len(moments) - 1)
    times = known[ends] - known[starts]
    means = (used[ends] - used[starts])[times > 0] / times[times > 0]
    return float(means.max(initial=-math.inf)) if len(means) else math.nan


def _largest(values: Sequence[float | None]) -> float:
    return max((value for value in values if value is not None), default=math.nan)

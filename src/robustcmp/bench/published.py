"""Published times of training and prediction, beside which a benchmark of the same data set stands."""

from __future__ import annotations

import math
from collections.abc import Mapping
from importlib.resources import files
from typing import Any, NamedTuple

from ..untrusted import read_toml
from .performance import Performance
from .speed import Setting

EACH = ("an epoch", "a step", "a call")  # other times are not of one design
PUBLISHED = files("robustcmp.resources") / "published_performance.toml"
OURS = {"keras": "keras-tensorflow", "pytorch": "torch"}  # what a framework is called here


class Published(NamedTuple):
    """A published time of a framework beside ours.

    Attributes
    ----------
    source, of, hardware, framework : str
    batch_size : int, optional
    seconds : float
        Of an epoch, a step, a call, or what `of` says.
    relative_to : str
        The framework to which both ratios are: the fastest published one that is in both, or of all published ones
        if two are not in both.
    ratio : float
        The published one.
    ours : float
        NaN where a framework is not in both.
    our_batch_size : int, optional
        Of our measurements: the nearest to the published one.
    """

    source: str
    of: str
    hardware: str
    framework: str
    batch_size: int | None
    seconds: float
    relative_to: str
    ratio: float
    ours: float
    our_batch_size: int | None


def sources() -> list[dict[str, Any]]:
    """Return what is published, by its source."""
    return list(read_toml(PUBLISHED, "the published times")["source"])


def beside(results: Performance) -> list[Published]:
    """Return the published times of the data set and the tasks of a benchmark."""
    found = []
    for source in sources():
        for table in source["table"]:
            if table["dataset"] == results.manifest.about.get("dataset") and table["task"] in results.tasks:
                found += _beside(results, source["name"], table)
    return found


def _beside(results: Performance, source: str, table: Mapping[str, Any]) -> list[Published]:
    batch_size = table.get("batch_size")
    setting = _nearest(results, table["task"], batch_size)
    times = sorted(results.times(setting).items(), key=lambda named: "@" not in named[0])  # torch comes after torch@1.0
    medians = {name.partition("@")[0]: float(own.median()) for name, own in times if len(own)}
    ours = {framework: medians.get(OURS.get(framework, framework), math.nan) for framework in table["seconds"]}
    seconds = {framework: total / table["count"] for framework, total in table["seconds"].items()}
    common = [framework for framework in seconds if not math.isnan(ours[framework]) and table["of"] in EACH]
    base = min(common if len(common) > 1 else seconds, key=seconds.__getitem__)
    return [
        Published(
            *(source, table["of"], table["hardware"], framework, batch_size, taken, base, taken / seconds[base]),
            ours[framework] / ours[base] if len(common) > 1 else math.nan,
            setting.batch_size if len(common) > 1 else None,
        )
        for framework, taken in seconds.items()
    ]


def _nearest(results: Performance, task: str, batch_size: int | None) -> Setting:
    """Return our setting of a task whose batch size is nearest, by its ratio."""
    of_task = [setting for setting in results.settings if setting.task == task]
    if batch_size is None:
        return of_task[-1]
    return min(of_task, key=lambda setting: abs(math.log(setting.batch_size / batch_size)))

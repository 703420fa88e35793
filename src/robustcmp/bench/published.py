"""Published times of training and prediction, beside which a benchmark of the same data set stands."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from importlib.resources import files
from typing import TYPE_CHECKING, Any, NamedTuple

from ..untrusted import read_toml
from .pairs import Setting

if TYPE_CHECKING:
    from .benchmark import Benchmark

COMPARABLE = ("an epoch", "a step", "a call")  # other times are not of one design
TIMES = files("robustcmp.resources") / "published_performance.toml"
OUR_NAMES = {"keras": "keras-tensorflow", "pytorch": "torch"}


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


def list_sources() -> list[dict[str, Any]]:
    """Return what is published, by its source."""
    return list(read_toml(TIMES, "the published times")["source"])


def list_published(benchmark: Benchmark) -> list[Published]:
    """Return the published times of the data set and the tasks of a benchmark."""
    published: list[Published] = []
    for source in list_sources():
        for table in source["table"]:
            if table["dataset"] == benchmark.manifest.about.get("dataset") and table["task"] in benchmark.tasks:
                published += _set_beside(benchmark, source["name"], table)
    return published


def _set_beside(benchmark: Benchmark, source: str, table: Mapping[str, Any]) -> Iterator[Published]:
    batch_size = table.get("batch_size")
    setting = _find_nearest(benchmark, table["task"], batch_size)
    times = benchmark.times(setting)
    in_order = sorted(times, key=lambda subject: "@" not in subject)  # torch comes after torch@1.0
    medians = {name.partition("@")[0]: float(times[name].median()) for name in in_order if len(times[name])}
    ours = {framework: medians.get(OUR_NAMES.get(framework, framework), math.nan) for framework in table["seconds"]}
    seconds = {framework: total / table["count"] for framework, total in table["seconds"].items()}
    common = [name for name in seconds if not math.isnan(ours[name]) and table["of"] in COMPARABLE]
    has_common = len(common) > 1
    base = min(common if has_common else seconds, key=seconds.__getitem__)
    for framework in seconds:
        yield Published(
            source=source,
            of=table["of"],
            hardware=table["hardware"],
            framework=framework,
            batch_size=batch_size,
            seconds=seconds[framework],
            relative_to=base,
            ratio=seconds[framework] / seconds[base],
            ours=ours[framework] / ours[base] if has_common else math.nan,
            our_batch_size=setting.batch_size if has_common else None,
        )


def _find_nearest(benchmark: Benchmark, task: str, batch_size: int | None) -> Setting:
    """Return our setting of a task whose batch size is nearest, by its ratio."""
    settings = [setting for setting in benchmark.settings if setting.task == task]
    if batch_size is None:
        return settings[-1]
    return min(settings, key=lambda setting: abs(math.log(setting.batch_size / batch_size)))

"""Is one framework faster than another? Pairs of subjects, from the times of their processes."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import combinations
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..analysis.significance import ALPHA
from ..analysis.statistics import holm
from ..analysis.statistics.equivalence import equivalent_shift
from ..analysis.statistics.ranks import (
    Located,
    a12,
    hodges_lehmann,
    kolmogorov_smirnov,
    median_interval,
    pairs_needed,
    smallest_p,
    wilcoxon,
)
from ..errors import UsageError, unknown

if TYPE_CHECKING:
    import pandas

    from .benchmark import Benchmark

MARGIN = 1.05
SHORTEST = 1e-9  # seconds that a clock can tell
SETTING = ["task", "images", "batch_size"]
NO_FIGURES = (*SETTING, "repetition", "place")
TEST_COLUMNS = [*SETTING, "measure", "a", "b", "n", "ratio", "low", "high", "coverage", "p", "p_adjusted", "ks_p"]
TEST_COLUMNS += ["a12", "smallest_p", "family", "needed"]
EQUIVALENCE_COLUMNS = [*SETTING, "measure", "a", "b", "n", "ratio", "low", "high", "p", "p_adjusted", "equivalent"]


class Setting(NamedTuple):
    """What subjects are compared in."""

    task: str
    images: int
    batch_size: int


class Comparison(NamedTuple):
    """A subject beside the fastest one.

    Attributes
    ----------
    subject : str
    ratio, low, high : float
        How many times as long it takes, with the interval.
    p : float
        Adjusted.
    needed : int
        Repetitions with which a test of so many can be significant.
    can_be : bool
        Whether it can with those that there are.
    n : int
        Pairs of processes.
    """

    subject: str
    ratio: float
    low: float
    high: float
    p: float
    needed: int
    can_be: bool
    n: int

    @property
    def differs(self) -> bool:
        """Whether it is shown to take another time; medians and pairs may disagree on which is longer."""
        return self.p < ALPHA


class Finding(NamedTuple):
    """What a benchmark found in a setting: medians over processes, the fastest first, and the others beside it."""

    setting: Setting
    measure: str
    medians: dict[str, Located]
    others: list[Comparison]

    @property
    def is_different(self) -> bool | None:
        """Whether a difference is shown; None where nothing could be compared."""
        compared = [other.differs for other in self.others if other.n]
        return any(compared) if compared else None


def compare_with_fastest(benchmark: Benchmark, setting: Setting) -> Finding:
    """Return what a benchmark found in a setting."""
    times = {subject: values for subject, values in benchmark.times(setting).items() if len(values)}
    medians = {subject: median_interval(np.asarray(values, np.float64)) for subject, values in times.items()}
    ordered = dict(sorted(medians.items(), key=lambda item: item[1].estimate))
    fastest = next(iter(ordered), "")
    tests = benchmark.tests()
    tests = tests[(tests[SETTING] == list(setting)).all(axis=1) & ((tests.a == fastest) | (tests.b == fastest))]
    others = [_beside(fastest, test) for test in tests.to_dict("records")]
    others.sort(key=lambda other: [*ordered].index(other.subject))
    return Finding(setting, get_measure(benchmark.processes, setting.task), ordered, others)


def _beside(fastest: str, test: dict[Any, Any]) -> Comparison:
    """Return a test as the comparison of the other subject with the fastest one."""
    subject = test["a"]
    ratio, low, high = (test[name] for name in ("ratio", "low", "high"))
    if subject == fastest:
        subject = test["b"]
        ratio, low, high = (1 / end if end else math.inf for end in (ratio, high, low))
    can_be = test["family"] * test["smallest_p"] <= ALPHA
    return Comparison(subject, ratio, low, high, test["p_adjusted"], test["needed"], can_be, test["n"])


class Pair(NamedTuple):
    """The processes of two subjects in one setting: logarithms of a figure, those of one repetition side by side."""

    setting: Setting
    measure: str
    a: str
    b: str
    values_a: NDArray[np.float64]
    values_b: NDArray[np.float64]

    def describe(self) -> dict[str, Any]:
        """Return what it is of, and how many pairs there are."""
        return {
            **self.setting._asdict(),
            "measure": self.measure,
            "a": self.a,
            "b": self.b,
            "n": len(self.values_a),
        }


def get_measure(processes: pandas.DataFrame, task: str) -> str:
    """Return what a process's time is of: ``"epoch"``, or ``"step"`` where one training has no second epoch."""
    if task != "train":
        return "call"
    trainings = processes[processes.task == task]
    return "epoch" if len(trainings) and trainings.epoch_seconds.notna().all() else "step"


def get_times(
    processes: pandas.DataFrame, setting: Setting, column: str | None = None
) -> dict[str, pandas.Series[float]]:
    """Return the time of each process, by its repetition, of each subject in a setting; or another of its figures.

    The time is the median of seconds an epoch without the first, or of the calls or steps after warm-up.
    """
    in_setting = processes[(processes[SETTING] == list(setting)).all(axis=1)]
    if column is None:
        column = "epoch_seconds" if get_measure(processes, setting.task) == "epoch" else "call_seconds"
    return {
        str(subject): frame.set_index("repetition")[column].dropna()
        for subject, frame in in_setting.groupby("subject", sort=False)
    }


def _pair_up(processes: pandas.DataFrame, column: str | None = None) -> Iterator[Pair]:
    """Yield every pair of subjects in every setting: their times, or another of their figures."""
    for task, images, size in processes[SETTING].drop_duplicates().itertuples(index=False):
        setting = Setting(str(task), int(images), int(size))
        measure = column or get_measure(processes, setting.task)
        times = get_times(processes, setting, column)
        for a, b in combinations(times, 2):
            both = times[a].index.intersection(times[b].index).sort_values()
            values = [np.log(np.maximum(times[s].loc[both].to_numpy(np.float64), SHORTEST)) for s in (a, b)]
            yield Pair(setting, measure, a, b, *values)


def compare(processes: pandas.DataFrame, column: str | None = None) -> pandas.DataFrame:
    """Test every pair of subjects in every setting, as `Benchmark.tests` says."""
    import pandas

    if column is not None:
        _check_positive(processes, column)
    rows = []
    for pair in _pair_up(processes, column):
        a = pair.values_a
        b = pair.values_b
        shift = hodges_lehmann(a - b)
        rows.append(
            {
                **pair.describe(),
                "ratio": math.exp(shift.estimate),
                "low": math.exp(shift.low),
                "high": math.exp(shift.high),
                "coverage": shift.coverage,
                "p": wilcoxon(a - b).p if len(a) else math.nan,
                "ks_p": kolmogorov_smirnov(a, b).p if len(a) else math.nan,
                "a12": a12(a, b),
                "smallest_p": smallest_p(len(a)),
            }
        )
    frame = pandas.DataFrame(rows, columns=TEST_COLUMNS)
    frame["p_adjusted"] = _adjust(frame)
    frame["family"] = frame.groupby("task").p.transform("count") if rows else frame.family
    frame["needed"] = [pairs_needed(int(family)) for family in frame.family]
    return frame


def _check_positive(processes: pandas.DataFrame, column: str) -> None:
    """Raise `UsageError` for the name of a column whose values have no logarithms."""
    figures = [str(name) for name in processes.select_dtypes("number") if name not in NO_FIGURES]
    if column not in figures:
        raise unknown("measure", column, figures)
    if (processes[column] <= 0).any():
        raise UsageError(f"{column} has values that are not positive, so it has no ratios; choose another measure")


def check_equivalence(processes: pandas.DataFrame, margin: float = MARGIN) -> pandas.DataFrame:
    """Test whether the times of subjects differ by less than a margin, as `Benchmark.equivalence` says."""
    import pandas

    if not margin > 1:
        raise UsageError(f"margin should be a ratio above 1 (1.05 is 5 %), received {margin}")
    rows = []
    for pair in _pair_up(processes):
        shift = equivalent_shift(pair.values_a - pair.values_b, math.log(margin))
        rows.append(
            {
                **pair.describe(),
                "ratio": math.exp(shift.difference),
                "low": math.exp(shift.low),
                "high": math.exp(shift.high),
                "p": shift.p if len(pair.values_a) else math.nan,
            }
        )
    frame = pandas.DataFrame(rows, columns=EQUIVALENCE_COLUMNS)
    frame["p_adjusted"] = _adjust(frame)
    frame["equivalent"] = frame.p_adjusted < ALPHA
    return frame


def _adjust(frame: pandas.DataFrame) -> NDArray[np.float64]:
    """Return the p values with Holm's adjustment for all that there are of one task; NaN stays."""
    adjusted = frame.p.to_numpy(np.float64).copy()
    tasks = frame.task.to_numpy()
    for task in dict.fromkeys(tasks):
        is_tested = (tasks == task) & ~np.isnan(adjusted)
        adjusted[is_tested] = holm(adjusted[is_tested].tolist())
    return adjusted

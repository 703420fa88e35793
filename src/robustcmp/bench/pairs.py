"""Is one framework faster than another? Pairs of subjects, from the times of their processes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import combinations
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..analysis.significance import ALPHA
from ..analysis.statistics import holm
from ..analysis.statistics.ranks import Located, hodges_lehmann, median_interval, pairs_needed, wilcoxon
from ..errors import UsageError, unknown

if TYPE_CHECKING:
    import pandas

SHORTEST = 1e-9  # seconds that a clock can tell
SETTING = ["task", "images", "batch_size"]
COLUMNS = [*SETTING, "measure", "a", "b", "n", "ratio", "low", "high", "p", "p_adjusted", "needed"]


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
    n : int
        Pairs of processes.
    needed : int
        Pairs with which a test of so many can be significant.
    """

    subject: str
    ratio: float
    low: float
    high: float
    p: float
    n: int
    needed: int

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


def compare_with_fastest(rows: pandas.DataFrame, tests: pandas.DataFrame, setting: Setting) -> Finding:
    """Return what the rows of processes and their tests show in a setting."""
    times = {subject: values for subject, values in _get_times(rows, setting).items() if len(values)}
    medians = {subject: median_interval(np.asarray(values, np.float64)) for subject, values in times.items()}
    ordered = dict(sorted(medians.items(), key=lambda item: item[1].estimate))
    fastest = next(iter(ordered), "")
    of_setting = tests[(tests[SETTING] == list(setting)).all(axis=1)]
    others = [_turn(fastest, test) for test in of_setting.to_dict("records") if fastest in (test["a"], test["b"])]
    others.sort(key=lambda other: [*ordered].index(other.subject))
    return Finding(setting, get_measure(rows, setting.task), ordered, others)


def _turn(fastest: str, test: Mapping[Any, Any]) -> Comparison:
    """Return a test as the comparison of the other subject with the fastest one."""
    subject = test["a"]
    ratio, low, high = (test[name] for name in ("ratio", "low", "high"))
    if subject == fastest:
        subject = test["b"]
        ratio, low, high = (1 / end if end else math.inf for end in (ratio, high, low))
    return Comparison(subject, ratio, low, high, test["p_adjusted"], test["n"], test["needed"])


def get_measure(rows: pandas.DataFrame, task: str) -> str:
    """Return what a process's time is of: ``"epoch"``, or ``"step"`` where one training has no second epoch."""
    if task != "train":
        return "call"
    trainings = rows[rows.task == task]
    return "epoch" if len(trainings) and trainings.epoch_seconds.notna().all() else "step"


def _get_times(rows: pandas.DataFrame, setting: Setting, column: str | None = None) -> dict[str, pandas.Series[float]]:
    """Return the time of each process, by its repetition, of each subject in a setting; or another of its figures.

    The time is the median of seconds an epoch without the first, or of the calls or steps after warm-up.
    """
    if column is None:
        column = "epoch_seconds" if get_measure(rows, setting.task) == "epoch" else "call_seconds"
    in_setting = rows[(rows[SETTING] == list(setting)).all(axis=1)]
    return {
        str(subject): frame.set_index("repetition")[column].dropna()
        for subject, frame in in_setting.groupby("subject", sort=False)
    }


def compare(rows: pandas.DataFrame, column: str | None = None) -> pandas.DataFrame:
    """Test every pair of subjects in every setting, as `Benchmark.tests` says."""
    import pandas

    if column is not None:
        _check_positive(rows, column)
    tests = []
    for task, images, size in rows[SETTING].drop_duplicates().itertuples(index=False):
        setting = Setting(str(task), int(images), int(size))
        about = setting._asdict() | {"measure": column or get_measure(rows, setting.task)}
        times = _get_times(rows, setting, column)
        for a, b in combinations(times, 2):
            both = times[a].index.intersection(times[b].index).sort_values()
            test = _compare_pair(_log(times[a].loc[both]) - _log(times[b].loc[both]))
            tests.append(about | {"a": a, "b": b} | test)
    frame = pandas.DataFrame(tests, columns=COLUMNS)
    for _, family in frame[frame.p.notna()].groupby("task"):
        frame.loc[family.index, "p_adjusted"] = holm(family.p.tolist())
        frame.loc[family.index, "needed"] = pairs_needed(len(family))
    return frame


def _log(values: pandas.Series[float]) -> NDArray[np.float64]:
    return np.log(np.maximum(values.to_numpy(np.float64), SHORTEST))


def _compare_pair(differences: NDArray[np.float64]) -> dict[str, Any]:
    """Return the ratio and the test of two subjects, of the differences between their logarithms."""
    shift = hodges_lehmann(differences)
    return {
        "n": len(differences),
        "ratio": math.exp(shift.estimate),
        "low": math.exp(shift.low),
        "high": math.exp(shift.high),
        "p": wilcoxon(differences).p if len(differences) else math.nan,
        "p_adjusted": math.nan,
        "needed": 0,
    }


def _check_positive(rows: pandas.DataFrame, column: str) -> None:
    """Raise `UsageError` for the name of a column whose values have no logarithms."""
    figures = [str(name) for name in rows.select_dtypes("number") if name not in (*SETTING, "repetition")]
    if column not in figures:
        raise unknown("measure", column, figures)
    if (rows[column] <= 0).any():
        raise UsageError(f"{column} has values that are not positive, so it has no ratios; choose another measure")

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
from ..analysis.statistics.medians import hodges_lehmann
from ..analysis.statistics.ranks import a12, kolmogorov_smirnov, pairs_needed, smallest_p, wilcoxon
from ..errors import UsageError, unknown

if TYPE_CHECKING:
    import pandas

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


class Pair(NamedTuple):
    """The processes of two subjects in one setting: logarithms of a figure, those of one repetition side by side."""

    setting: Setting
    measure: str
    a: str
    b: str
    values_a: NDArray[np.float64]
    values_b: NDArray[np.float64]

    @property
    def about(self) -> dict[str, Any]:
        """What it is of, and how many pairs there are."""
        said = {"measure": self.measure, "a": self.a, "b": self.b, "n": len(self.values_a)}
        return self.setting._asdict() | said


def measure_of(processes: pandas.DataFrame, task: str) -> str:
    """Return what a process's time is of: ``"epoch"``, or ``"step"`` where one training has no second epoch."""
    if task != "train":
        return "call"
    of_task = processes[processes.task == task]
    return "epoch" if len(of_task) and of_task.epoch_seconds.notna().all() else "step"


def times(processes: pandas.DataFrame, setting: Setting, column: str | None = None) -> dict[str, pandas.Series[float]]:
    """Return the time of each process, by its repetition, of each subject in a setting; or another of its figures.

    The time is the median of seconds an epoch without the first, or of the calls or steps after warm-up.
    """
    there = processes[(processes[SETTING] == list(setting)).all(axis=1)]
    if column is None:
        column = "epoch_seconds" if measure_of(processes, setting.task) == "epoch" else "call_seconds"
    return {
        str(subject): own.set_index("repetition")[column].dropna()
        for subject, own in there.groupby("subject", sort=False)
    }


def settings(processes: pandas.DataFrame) -> list[Setting]:
    """Return the settings in which there are processes, in their order."""
    found = processes[SETTING].drop_duplicates().itertuples(index=False)
    return [Setting(str(task), int(images), int(size)) for task, images, size in found]


def pairs_of(processes: pandas.DataFrame, column: str | None = None) -> Iterator[Pair]:
    """Yield every pair of subjects in every setting: their times, or another of their figures."""
    for setting in settings(processes):
        of_subjects = times(processes, setting, column)
        for a, b in combinations(of_subjects, 2):
            both = of_subjects[a].index.intersection(of_subjects[b].index).sort_values()
            values = (np.log(np.maximum(of_subjects[s].loc[both].to_numpy(np.float64), SHORTEST)) for s in (a, b))
            yield Pair(setting, column or measure_of(processes, setting.task), a, b, *values)


def compare(processes: pandas.DataFrame, column: str | None = None) -> pandas.DataFrame:
    """Test every pair of subjects in every setting, as `Benchmark.tests` says."""
    import pandas

    rows = []
    for pair in pairs_of(processes, column if column is None else _positive(processes, column)):
        a, b = pair.values_a, pair.values_b
        shift, n = hodges_lehmann(a - b), len(a)
        rows.append(
            {
                **pair.about,
                "ratio": math.exp(shift.estimate),
                "low": math.exp(shift.low),
                "high": math.exp(shift.high),
                "coverage": shift.coverage,
                "p": wilcoxon(a - b).p if n else math.nan,
                "ks_p": kolmogorov_smirnov(a, b).p if n else math.nan,
                "a12": a12(a, b),
                "smallest_p": smallest_p(n),
            }
        )
    frame = pandas.DataFrame(rows, columns=TEST_COLUMNS)
    frame["p_adjusted"] = _adjusted(frame)
    frame["family"] = frame.groupby("task").p.transform("count") if rows else frame.family
    frame["needed"] = [pairs_needed(int(family)) for family in frame.family]
    return frame


def _positive(processes: pandas.DataFrame, column: str) -> str:
    """Return the name of a column whose values have logarithms, or raise `UsageError`."""
    figures = [str(name) for name in processes.select_dtypes("number") if name not in NO_FIGURES]
    if column not in figures:
        raise unknown("measure", column, figures)
    if (processes[column] <= 0).any():
        raise UsageError(f"{column} has values that are not positive, so it has no ratios; choose another measure")
    return column


def equivalent(processes: pandas.DataFrame, margin: float = MARGIN) -> pandas.DataFrame:
    """Test whether the times of subjects differ by less than a margin, as `Benchmark.equivalence` says."""
    import pandas

    if not margin > 1:
        raise UsageError(f"margin should be a ratio above 1 (1.05 is 5 %), received {margin}")
    rows = []
    for pair in pairs_of(processes):
        found = equivalent_shift(pair.values_a - pair.values_b, math.log(margin))
        rows.append(
            {
                **pair.about,
                "ratio": math.exp(found.difference),
                "low": math.exp(found.low),
                "high": math.exp(found.high),
                "p": found.p if len(pair.values_a) else math.nan,
            }
        )
    frame = pandas.DataFrame(rows, columns=EQUIVALENCE_COLUMNS)
    frame["p_adjusted"] = _adjusted(frame)
    frame["equivalent"] = frame.p_adjusted < ALPHA
    return frame


def _adjusted(frame: pandas.DataFrame) -> NDArray[np.float64]:
    """Return the p values with Holm's adjustment for all that there are of one task; NaN stays."""
    adjusted, tasks = frame.p.to_numpy(np.float64).copy(), frame.task.to_numpy()
    for task in dict.fromkeys(tasks):
        known = (tasks == task) & ~np.isnan(adjusted)
        adjusted[known] = holm(adjusted[known].tolist())
    return adjusted

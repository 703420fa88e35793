"""Is one framework faster than another? Pairs of subjects, from the times of their processes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
import pandas
from numpy.typing import NDArray

from ..analysis.statistics import holm
from ..analysis.statistics.foundations import ALPHA
from ..analysis.statistics.ranks import Located, hodges_lehmann, median_interval, pairs_needed, wilcoxon
from .measurement import Setting

SHORTEST = 1e-9  # seconds that a clock can tell
SETTING = ["task", "images", "batch_size"]
COLUMNS = [*SETTING, "measure", "a", "b", "n", "ratio", "low", "high", "p", "p_adjusted", "needed"]


class Finding(NamedTuple):
    """What a benchmark found in a setting.

    Attributes
    ----------
    setting : Setting
    measure : str
        ``"epoch"``, ``"step"`` or ``"call"``.
    medians : dict of str to Located
        Over processes, by subject, the fastest first.
    others : list of dict
        The tests of the other subjects against the fastest one, which is ``b`` in all of them.
    """

    setting: Setting
    measure: str
    medians: dict[str, Located]
    others: list[dict[Any, Any]]

    @property
    def is_different(self) -> bool | None:
        """Whether a difference is shown; None where nothing could be compared."""
        compared = [is_significant(test) for test in self.others if test["n"]]
        return any(compared) if compared else None


def is_significant(test: Mapping[Any, Any]) -> bool:
    """Say whether a pair is shown to differ; medians and pairs may disagree on which takes longer."""
    return bool(test["p_adjusted"] < ALPHA)


def compare_with_fastest(rows: pandas.DataFrame, tests: pandas.DataFrame, setting: Setting) -> Finding:
    """Return what the rows of processes and their tests show in a setting."""
    times = {subject: values for subject, values in _get_times(rows, setting).items() if len(values)}
    medians = {subject: median_interval(np.asarray(values, np.float64)) for subject, values in times.items()}
    ordered = dict(sorted(medians.items(), key=lambda item: item[1].estimate))
    fastest = next(iter(ordered), "")
    others = {}
    for test in tests[(tests[SETTING] == list(setting)).all(axis=1)].to_dict("records"):
        if test["a"] == fastest:
            ratio, low, high = (1 / test[name] if test[name] else math.inf for name in ("ratio", "high", "low"))
            test |= {"a": test["b"], "b": fastest, "ratio": ratio, "low": low, "high": high}
        if test["b"] == fastest:
            others[test["a"]] = test
    in_order = [others[subject] for subject in ordered if subject in others]
    return Finding(setting, get_measure(rows, setting.task), ordered, in_order)


def get_measure(rows: pandas.DataFrame, task: str) -> str:
    """Return what a process's time is of: ``"epoch"``, or ``"step"`` where one training has no second epoch."""
    if task != "train":
        return "call"
    trainings = rows[rows.task == task]
    return "epoch" if len(trainings) and trainings.epoch_seconds.notna().all() else "step"


def _get_times(rows: pandas.DataFrame, setting: Setting) -> dict[str, pandas.Series[float]]:
    """Return the time of each process, by its repetition, of each subject in a setting.

    The time is the median of seconds an epoch without the first, or of the calls or steps after warm-up.
    """
    column = "epoch_seconds" if get_measure(rows, setting.task) == "epoch" else "call_seconds"
    in_setting = rows[(rows[SETTING] == list(setting)).all(axis=1)]
    return {
        str(subject): frame.set_index("repetition")[column].dropna()
        for subject, frame in in_setting.groupby("subject", sort=False)
    }


def compare(rows: pandas.DataFrame) -> pandas.DataFrame:
    """Test every pair of subjects in every setting, as `Benchmark.tests` says."""
    tests = []
    for task, images, size in rows[SETTING].drop_duplicates().itertuples(index=False):
        setting = Setting(task, int(images), int(size))
        about = setting._asdict() | {"measure": get_measure(rows, setting.task)}
        times = _get_times(rows, setting)
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

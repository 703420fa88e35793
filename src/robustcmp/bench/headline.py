"""What a benchmark found, a sentence each setting: who is fastest, and whether that is more than chance."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from ..analysis.significance import ALPHA
from ..analysis.statistics.medians import Located, median_interval
from ..report.format import ANY_RATIO, in_unit, p_value, ratio, seconds
from ..report.words import KINDS, WORDS, Statement
from .performance import Performance
from .speed import Setting
from .words import DOES, UNITS, named, network, where

AS_LONG = "times as long"


class Beside(NamedTuple):
    """A subject beside the fastest one: how many times as long it takes, with the interval, and the test.

    Attributes
    ----------
    subject : str
    ratio, low, high : float
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


class Found(NamedTuple):
    """What was found in a setting.

    Attributes
    ----------
    setting : Setting
    measure : str
    medians : dict of str to Located
        Of each subject's processes, with the interval, the fastest first.
    beside : list of Beside
        The others beside the fastest.
    """

    setting: Setting
    measure: str
    medians: dict[str, Located]
    beside: list[Beside]

    @property
    def is_different(self) -> bool | None:
        """Whether a difference is shown; None where nothing could be compared."""
        return any(each.differs for each in self.beside) if any(each.n for each in self.beside) else None


def found(results: Performance, setting: Setting) -> Found:
    """Return what a benchmark found in a setting."""
    times = {subject: values for subject, values in results.times(setting).items() if len(values)}
    medians = {subject: median_interval(np.asarray(values, np.float64)) for subject, values in times.items()}
    ordered = dict(sorted(medians.items(), key=lambda item: item[1].estimate))
    fastest = next(iter(ordered), "")
    tests = results.tests()
    there = tests[(tests[["task", "images", "batch_size"]] == list(setting)).all(axis=1)]
    beside = {}
    for test in there.to_dict("records"):
        if fastest not in (test["a"], test["b"]):
            continue
        other, times_as_long, low, high = (test[name] for name in ("a", "ratio", "low", "high"))
        if other == fastest:
            other = test["b"]
            times_as_long, low, high = (1 / end if end else math.inf for end in (times_as_long, high, low))
        can_be = test["family"] * test["smallest_p"] <= ALPHA
        beside[other] = Beside(other, times_as_long, low, high, test["p_adjusted"], test["needed"], can_be, test["n"])
    others = [beside[subject] for subject in ordered if subject in beside]
    return Found(setting, results.measure(setting.task), ordered, others)


def headline(results: Performance) -> list[str]:
    """Return what a benchmark found, one sentence a setting."""
    return [sentence(results, found(results, setting)) for setting in results.settings]


def sentence(results: Performance, found: Found) -> str:
    """Say what was found in a setting; no more than the tests show."""
    at, model = where(found.setting), network(results)
    does = DOES[found.setting.task, found.measure].format(model=model)
    if not found.medians:
        return f"No subject has a time of {named(found.setting)}: nothing can be said."
    [fastest, *_] = found.medians
    median = _median(found.medians[fastest])
    others = "; ".join(_beside(each) for each in found.beside if each.differs)
    alike = [each for each in found.beside if not each.differs]
    if not found.beside:
        return f"Only {fastest} was measured: it {does} in {median} {at}, and there is nothing to compare."
    if not alike:
        fast = " fastest:" if all(each.ratio > 1 for each in found.beside) else " in"
        return f"{fastest} {does}{fast} {median} {at}; {others}."
    if others:
        same = f"no significant difference from {', '.join(map(_alike, alike))}"
        return f"{fastest} {does} in {median} {at}; {others}; {same}."
    each = ", ".join(f"{subject} {_median(median)}" for subject, median in found.medians.items())
    same = f"no significant difference in the time of {UNITS[found.measure]} ({each})"
    return f"{named(found.setting)}: {same}{_why(found)}."


def _why(found: Found) -> str:
    """Say what no significant difference means: whether there could have been one, and which ratios are left."""
    beside = found.beside
    n = max(each.n for each in beside)
    if not any(each.can_be for each in beside):
        with_these = f"with {n} repetition{'s' * (n != 1)} none can be"
        return f"; {with_these}, {beside[0].needed} would be enough for so many comparisons"
    [fastest, *_] = found.medians
    return f". Compared with {fastest}: {', '.join(map(_alike, beside))}"


def _median(located: Located) -> str:
    """Write a median with its interval, in one unit."""
    if math.isinf(located.low) or math.isnan(located.low):
        return seconds(located.estimate)
    ends = " to ".join(in_unit(end, located.estimate) for end in (located.low, located.high))
    return f"{seconds(located.estimate)} ({ends})"


def _beside(each: Beside) -> str:
    p = f"adjusted p {'' if each.p < 0.001 else '= '}{p_value(each.p)}"
    return f"{each.subject} takes {ratio(each.ratio)} {AS_LONG} ({_between(each)}{p})"


def _alike(each: Beside) -> str:
    if not each.n:
        return f"{each.subject} (no repetition in common)"
    between = _between(each).rstrip("; ")
    return f"{each.subject} ({ratio(each.ratio)} {AS_LONG}{', ' * bool(between)}{between})"


def _between(each: Beside) -> str:
    return "" if (each.low, each.high) == ANY_RATIO else f"{ratio(each.low)} to {ratio(each.high)}; "


def said(results: Performance, found: Found) -> Statement:
    """Return what was found in a setting as a verdict, for a page or a notebook."""
    kind = found.is_different
    return Statement(named(found.setting), KINDS[kind], WORDS[kind], [sentence(results, found)])

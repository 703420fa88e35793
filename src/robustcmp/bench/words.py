"""Every sentence about a benchmark: its heading, its answers, and the notes under its tables."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ..analysis.statistics.ranks import Located
from ..report.format import ANY_RATIO, in_unit, p_value, plural, ratio, seconds
from ..report.words import KINDS, WORDS, Statement, group
from .figures import BURST, BURST_SECONDS, BUSY
from .measurement import Asked, Setting
from .pairs import Finding, is_significant

if TYPE_CHECKING:
    from .benchmark import Benchmark

TASKS = {"train": "training", "forward": "prediction", "forward-backward": "gradient"}
UNITS = {"epoch": "an epoch", "step": "a step", "call": "a call"}
METHODS = (
    "The unit of every figure and test is a process. Ratios are Hodges-Lehmann shifts of logarithms, paired by "
    "repetition; p is Wilcoxon's signed-rank test, adjusted by Holm for all pairs and settings of a task.",
    "Seconds an epoch leave out the first one, in which frameworks compile; calls and steps leave out warm-up "
    "(Pettitt's change point). Processor time and memory are those of the whole process, imports included.",
)


def describe(benchmark: Benchmark) -> tuple[str, str]:
    """Return the heading of a benchmark, and what was compared, how often, and on which machine."""
    about = benchmark.manifest.about
    environment = benchmark.manifest.environment
    kind = "training" if "train" in benchmark.tasks else "prediction"
    processor = environment.get("processor") or environment.get("machine") or "an unknown processor"
    setup = (
        f"{', '.join(benchmark.subjects)}; {plural(benchmark.repetitions, 'repetition')}, each in a process of its "
        f"own; {processor}, {plural(benchmark.measurements[0].threads, 'thread')}"
    )
    return f"{about.get('model') or 'the network'} on {about.get('dataset')}: {kind} measured", setup


def _name_setting(setting: Setting) -> str:
    """Return the name of a setting."""
    images = f", {setting.images:,} images" if setting.images else ""
    return f"{TASKS[setting.task]}, batch {setting.batch_size}{images}"


def describe_measurement(asked: Asked) -> str:
    """Say in a few words what a measurement is of."""
    return f"{asked.subject}, {_name_setting(asked.setting)}"


# answers


def give_verdicts(benchmark: Benchmark) -> list[Statement]:
    """Return what was found in each setting as a verdict, for a page."""
    verdicts = []
    for finding in benchmark.findings:
        different = finding.is_different
        name = _name_setting(finding.setting)
        verdicts.append(Statement(name, KINDS[different], WORDS[different], [_answer(finding)]))
    return verdicts


def list_answers(benchmark: Benchmark) -> list[str]:
    """Return what a benchmark found, one sentence a setting."""
    return [f"{_name_setting(finding.setting)}: {_answer(finding)}" for finding in benchmark.findings]


def answer_in_one_sentence(benchmark: Benchmark) -> str:
    """Say in how many settings there is a difference."""
    decided = [finding.is_different for finding in benchmark.findings if finding.is_different is not None]
    if not decided:
        return "Is one faster? Nothing could be compared."
    return f"Is one faster? A difference is shown in {sum(decided)} of {plural(len(decided), 'setting')}."


def _answer(finding: Finding) -> str:
    """Say what was found in a setting; no more than the tests show."""
    if not finding.medians:
        return "nothing was measured."
    fastest = next(iter(finding.medians))
    parts = [f"{fastest} takes {_write_median(finding.medians[fastest])} {UNITS[finding.measure]}"]
    alike = []
    for test in finding.others:
        if is_significant(test):
            parts.append(f"{_write_ratio(test)}, adjusted p = {p_value(test['p_adjusted'])}".replace("= <", "<"))
        else:
            alike.append(_write_ratio(test))
    if alike:
        parts.append(f"no significant difference from {', '.join(alike)}")
        most = max(test["n"] for test in finding.others)
        needed = finding.others[0]["needed"]
        if most < needed:
            parts.append(f"{plural(most, 'repetition')} cannot show one, {needed} could")
    return "; ".join(parts) + "."


def _write_median(located: Located) -> str:
    """Write a median with its interval, in one unit."""
    if not math.isfinite(located.low):
        return seconds(located.estimate)
    ends = " to ".join(in_unit(end, located.estimate) for end in (located.low, located.high))
    return f"{seconds(located.estimate)} ({ends})"


def _write_ratio(test: dict[Any, Any]) -> str:
    if not test["n"]:
        return f"{test['a']} (no repetition in common)"
    interval = ""
    if (test["low"], test["high"]) != ANY_RATIO:
        interval = f" ({ratio(test['low'])} to {ratio(test['high'])})"
    return f"{test['a']} {ratio(test['ratio'])} times as long{interval}"


# notes


def list_notes(benchmark: Benchmark) -> list[str]:
    """Return all notes, the most important first."""
    notes = (_note_absent, _note_devices, _note_busy, _note_control)
    return [*(sentence for note in notes for sentence in note(benchmark)), *METHODS]


def _note_absent(benchmark: Benchmark) -> Iterator[str]:
    by_reason = group((reason, count) for (_, reason), count in benchmark.absent.items())
    for reason, counts in by_reason.items():
        missing = plural(sum(counts), "measurement")
        yield f"{missing} {reason}. Rerun the same command to make what failed or is missing."


def _note_devices(benchmark: Benchmark) -> Iterator[str]:
    subjects = group((measured.device, measured.asked.subject) for measured in benchmark.measurements)
    if len(subjects) > 1:
        devices = "; ".join(f"{', '.join(sorted({*names}))} on {device}" for device, names in sorted(subjects.items()))
        yield f"Devices differ ({devices}): a pair across them compares devices, not frameworks alone."


def _note_busy(benchmark: Benchmark) -> Iterator[str]:
    frame = benchmark.to_dataframe()
    limit = f"{BUSY:g} processors on average, or {BURST:g} over {BURST_SECONDS:g} seconds"
    if busy := int(frame.busy.sum()):
        counts = frame[frame.busy].subject.value_counts(sort=False)
        subjects = ", ".join(f"{subject} {count}" for subject, count in counts.items())
        yield (
            f"Busy: during {busy} of {len(frame)} measurements, other programs used more than {limit} "
            f"({subjects}). They are not left out; their times may be too long."
        )
    if frame.others.isna().any():
        yield "What other programs used is not known."


def _note_control(benchmark: Benchmark) -> Iterator[str]:
    by_result = group((result, subject) for subject, result in benchmark.manifest.control.items())
    for result, subjects in by_result.items():
        yield f"Same-weights control, {', '.join(subjects)}: {result}."

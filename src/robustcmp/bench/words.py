"""Every sentence about a benchmark: its heading, its answers, and the notes under its tables."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ..analysis.statistics.ranks import Located
from ..report.format import ANY_RATIO, in_unit, p_value, percent, ratio, seconds
from ..report.words import KINDS, WORDS, Statement
from .figures import BURST, BURST_SECONDS, BUSY, is_judged_by_bursts
from .measurement import Asked
from .pairs import Comparison, Finding, Setting, get_measure
from .published import Published, list_sources

if TYPE_CHECKING:
    from .benchmark import Benchmark

TASKS = {"train": "training", "forward": "prediction", "forward-backward": "gradient"}
UNITS = {"epoch": "an epoch", "step": "a step", "call": "a call"}
DOES = {
    ("train", "epoch"): "trains an epoch of {model}",
    ("train", "step"): "takes a training step of {model}",
    ("forward", "call"): "predicts with {model}",
    ("forward-backward", "call"): "computes predictions and gradients of {model}",
}
AS_LONG = "times as long"
FEWEST = 6  # values, of which the median has a 95 % interval
KERAS = (
    "keras: the published times are of Keras 2 on TensorFlow 1, ours of the host keras-tensorflow, Keras 3 on "
    "TensorFlow 2, and include the way of a batch to another process."
)
PUBLISHED = (
    "Ratios between frameworks can be set beside ours within each source; absolute times cannot, because hardware, "
    "networks, batches, epochs and versions differ."
)


def title(benchmark: Benchmark) -> str:
    """Return the heading of a benchmark."""
    about = benchmark.manifest.about
    tasks = " and ".join(dict.fromkeys("training" if task == "train" else "prediction" for task in benchmark.tasks))
    dataset = f" on {about['dataset']}" if about.get("dataset") else ""
    return f"{_network(benchmark)}{dataset}: {tasks} measured"


def describe_setup(benchmark: Benchmark) -> str:
    """Say what was compared, how often, and on which machine."""
    environment = benchmark.manifest.environment
    frame = benchmark.processes
    processor = environment.get("processor") or environment.get("machine") or "an unknown processor"
    threads = " and ".join(_count(int(count), "thread") for count in sorted(frame.threads.unique()))
    devices = sorted(frame.device.unique())
    parts = [
        ", ".join(benchmark.subjects),
        f"{_count(benchmark.repetitions, 'repetition')}, each in a process of its own",
        f"{processor}, {threads}",
    ]
    if devices != ["cpu"]:
        parts.append("on " + " and ".join(devices))
    return "; ".join(parts)


def name_setting(setting: Setting) -> str:
    """Return the name of a setting."""
    return f"{TASKS[setting.task]}, {_batch(setting)}"


def describe_measurement(asked: Asked) -> str:
    """Say in a few words what a measurement is of."""
    images = f", {asked.images:,} images" if asked.images else ""
    return f"{asked.subject}, {asked.task}, batch {asked.batch_size}{images}, repetition {asked.repetition}"


def _network(benchmark: Benchmark) -> str:
    return str(benchmark.manifest.about.get("model") or "the network")


def _batch(setting: Setting) -> str:
    images = f", {setting.images:,} images" if setting.images else ""
    return f"batch {setting.batch_size}{images}"


def _count(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


# answers


def headline(benchmark: Benchmark) -> list[str]:
    """Return what a benchmark found, one sentence a setting."""
    return [_answer(benchmark, finding) for finding in benchmark.findings]


def give_verdicts(benchmark: Benchmark) -> list[Statement]:
    """Return what was found in each setting as a verdict, for a page or a notebook."""
    verdicts = []
    for finding in benchmark.findings:
        different = finding.is_different
        sentences = [_answer(benchmark, finding)]
        verdicts.append(Statement(name_setting(finding.setting), KINDS[different], WORDS[different], sentences))
    return verdicts


def answer_in_one_sentence(benchmark: Benchmark) -> str:
    """Say in how many settings there is a difference."""
    differences = [finding.is_different for finding in benchmark.findings]
    decided = [different for different in differences if different is not None]
    if not decided:
        return "Is one faster? Nothing could be compared."
    if not any(decided):
        return "Is one faster? No significant difference in any setting."
    if len(decided) == 1:
        return "Is one faster? Yes."
    return (
        f"Is one faster? Yes, in {'every setting' if all(decided) else f'{sum(decided)} of {len(decided)} settings'}."
    )


def _answer(benchmark: Benchmark, finding: Finding) -> str:
    """Say what was found in a setting; no more than the tests show."""
    setting = finding.setting
    others = finding.others
    if not finding.medians:
        return f"No subject has a time of {name_setting(setting)}: nothing can be said."
    fastest = next(iter(finding.medians))
    does = DOES[setting.task, finding.measure].format(model=_network(benchmark))
    median = _median(finding.medians[fastest])
    where = f"at {_batch(setting)}"
    if not others:
        return f"Only {fastest} was measured: it {does} in {median} {where}, and there is nothing to compare."
    slower = "; ".join(_compare(other) for other in others if other.differs)
    alike = ", ".join(_leave_open(other) for other in others if not other.differs)
    if not alike:
        fast = " fastest:" if all(other.ratio > 1 for other in others) else " in"
        return f"{fastest} {does}{fast} {median} {where}; {slower}."
    if slower:
        return f"{fastest} {does} in {median} {where}; {slower}; no significant difference from {alike}."
    times = ", ".join(f"{subject} {_median(located)}" for subject, located in finding.medians.items())
    same = f"{name_setting(setting)}: no significant difference in the time of {UNITS[finding.measure]} ({times})"
    if any(other.can_be for other in others):
        return f"{same}. Compared with {fastest}: {alike}."
    repetitions = _count(max(other.n for other in others), "repetition")
    return f"{same}; with {repetitions} none can be, {others[0].needed} would be enough for so many comparisons."


def _median(located: Located) -> str:
    """Write a median with its interval, in one unit."""
    if math.isinf(located.low) or math.isnan(located.low):
        return seconds(located.estimate)
    ends = " to ".join(in_unit(end, located.estimate) for end in (located.low, located.high))
    return f"{seconds(located.estimate)} ({ends})"


def _compare(other: Comparison) -> str:
    p = f"adjusted p {'' if other.p < 0.001 else '= '}{p_value(other.p)}"
    interval = f"{_interval(other)}; " if _interval(other) else ""
    return f"{other.subject} takes {ratio(other.ratio)} {AS_LONG} ({interval}{p})"


def _leave_open(other: Comparison) -> str:
    if not other.n:
        return f"{other.subject} (no repetition in common)"
    interval = f", {_interval(other)}" if _interval(other) else ""
    return f"{other.subject} ({ratio(other.ratio)} {AS_LONG}{interval})"


def _interval(other: Comparison) -> str:
    return "" if (other.low, other.high) == ANY_RATIO else f"{ratio(other.low)} to {ratio(other.high)}"


# notes


def list_notes(benchmark: Benchmark) -> list[str]:
    """Return all notes."""
    return [
        *list_key_notes(benchmark),
        *_explain_methods(benchmark),
        *_note_machine(benchmark),
        *_note_control(benchmark),
    ]


def list_key_notes(benchmark: Benchmark) -> list[str]:
    """Return the notes that a reader of one screen needs, the most important first."""
    notes = (
        _note_absent,
        _note_devices,
        _note_busy,
        _note_load,
        _note_order,
        _note_drift,
        _note_too_few,
        _note_one_training,
        _note_shares,
    )
    return [sentence for note in notes for sentence in note(benchmark)]


def _note_absent(benchmark: Benchmark) -> Iterator[str]:
    for status in dict.fromkeys(absent.status for absent in benchmark.absent):
        those = [absent for absent in benchmark.absent if absent.status == status]
        if status == "not applicable":
            reasons = (f"{absent.subject}, {TASKS[absent.task]}: {absent.reason}" for absent in those)
            yield "Not applicable: " + "; ".join(reasons)
            continue
        count = sum(absent.repetitions for absent in those)
        if status == "failed":
            verb = "has failed" if count == 1 else "have failed"
            remedy = "try again"
        else:
            verb = "is missing" if count == 1 else "are missing"
            remedy = "resume"
        subjects = ", ".join(dict.fromkeys(absent.subject for absent in those))
        plan = len(benchmark.manifest.plan)
        yield f"{count} of {plan} measurements {verb} ({subjects}). Rerun the same command to {remedy}."


def _note_devices(benchmark: Benchmark) -> Iterator[str]:
    subjects = {str(device): frame.subject.unique() for device, frame in benchmark.processes.groupby("device")}
    if len(subjects) > 1:
        devices = "; ".join(f"{', '.join(names)} on {device}" for device, names in subjects.items())
        yield f"Devices differ ({devices}): a pair across them compares devices, not frameworks alone."


def _note_busy(benchmark: Benchmark) -> Iterator[str]:
    frame = benchmark.processes
    limit = f"{BUSY:g} processors on average"
    if any(map(is_judged_by_bursts, benchmark.measurements)):
        limit += f", or {BURST:g} over {BURST_SECONDS:g} seconds"
    unknown = int(frame.others.isna().sum())
    if busy := int(frame.busy.sum()):
        counts = frame[frame.busy].subject.value_counts(sort=False)
        subjects = ", ".join(f"{subject} {count}" for subject, count in counts.items())
        yield (
            f"Busy: during {busy} of {len(frame)} measurements, other programs used more than {limit} "
            f"({subjects}). They are not left out; their times may be too long."
        )
    else:
        yield f"During none of {len(frame) - unknown} measurements did other programs use more than {limit}."
    if unknown:
        yield f"What other programs used is not known for {unknown} of {len(frame)} measurements."


def _note_load(benchmark: Benchmark) -> Iterator[str]:
    frame = benchmark.processes
    if frame.load_before.notna().any():
        ends = [
            " to ".join(dict.fromkeys(f"{end:.1f}" for end in (loads.min(), loads.max())))
            for loads in (frame.load_before, frame.load_after)
        ]
        yield f"Load average of the machine, its measurements included: {ends[0]} before them, {ends[1]} after them."


def _note_order(benchmark: Benchmark) -> Iterator[str]:
    """Count those that were added to a benchmark later, or repeated: without them, the others began in their order."""
    ends: list[str] = []  # of the longest rising sequences of each length
    for measurement in benchmark.measurements:
        length = bisect_right(ends, measurement.began)
        ends[length : length + 1] = [measurement.began]
    measured = len(benchmark.measurements)
    if late := measured - len(ends):
        was = "was" if late == 1 else "were"
        yield (
            f"{_count(late, 'measurement')} of {measured} {was} not made in the planned random order, but "
            "added or repeated later: what changed on the machine in between is part of their differences."
        )


def _note_drift(benchmark: Benchmark) -> Iterator[str]:
    frame = benchmark.processes
    if drifting := int(frame.drifts.sum()):
        yield (
            f"Drift: in {drifting} of {len(frame)} processes, times rise or fall by more than 5 % after warm-up "
            "(Kendall, p < 0.01), so their medians depend on how long they were measured."
        )


def _note_too_few(benchmark: Benchmark) -> Iterator[str]:
    tests = benchmark.tests()
    for task in dict.fromkeys(tests.task):
        tested = tests[(tests.task == task) & (tests.n > 0)]
        if len(tested) and not (tested.family * tested.smallest_p <= 0.05).any():
            family = _count(int(tested.family.max()), "adjusted test")
            yield (
                f"{TASKS[task].capitalize()}: with {_count(int(tested.n.max()), 'repetition')} the smallest possible p "
                f"is {tested.smallest_p.min():.4g}, so none of {family} can find a difference. "
                f"{int(tested.needed.max())} repetitions can."
            )
    if benchmark.repetitions < FEWEST:
        yield f"No interval of a median has 95 % with fewer than {FEWEST} repetitions: those say 'no information'."


def _note_one_training(benchmark: Benchmark) -> Iterator[str]:
    if benchmark.has_one_training and any(measured.asked.repetition for measured in benchmark.measurements):
        seed = benchmark.manifest.about.get("training_seed")
        yield f"Accuracy: n = 1. All repetitions repeat one training (seed {seed}); only times are repeated."


def _note_shares(benchmark: Benchmark) -> Iterator[str]:
    shares = {epoch.share for measured in benchmark.measurements for epoch in measured.epochs if epoch.share < 1}
    if shares:
        parts = ", ".join(percent(share, 0 if share >= 0.01 else 1) for share in sorted(shares))
        yield (
            f"Not all epochs are whole ones ({parts} of one): seconds an epoch are those of the share divided by it, "
            "and accuracies are those of a network that has not seen all images."
        )
    if "train" in benchmark.tasks and get_measure(benchmark.processes, "train") == "step":
        yield "There is no second epoch, so steps after warm-up are compared in the place of epochs."


def _explain_methods(benchmark: Benchmark) -> Iterator[str]:
    yield (
        "The unit of every figure and test is a process, never a call or an epoch: those of one process share its "
        "state. Intervals of medians are between order statistics. Ratios are Hodges-Lehmann shifts of logarithms, "
        "paired by repetition, with exact intervals, not adjusted. p is Wilcoxon's signed-rank test, exact, with "
        "Holm's adjustment for all pairs and settings of a task. KS p: Kolmogorov-Smirnov of the processes' medians, "
        "not adjusted. A12: the share of pairs of processes in which the first takes longer."
    )
    yield (
        "Warm-up is looked for in each process: the calls before Pettitt's change point, if it lies in the first half, "
        "p < 0.01, and the medians before and after differ by more than 5 %. The first call "
        "or step stands apart. In simulations, a warm-up of 15 calls in 100 or of 75 in 1,000 was found in at least "
        "98 % of cases, one of 5 in 100 hardly ever: that hardly moves a median, but p99 and images a second."
    )
    yield (
        "Processors and GPU used, power and temperatures are those from when the network was there, after imports; "
        "temperatures are the highest. Processor time, memory and energy are those of the whole process."
    )
    if benchmark.processes.file_bytes.notna().any():
        yield (
            "A file on disk holds weights as robustcmp writes them (HDF5), which are as large for every framework, or "
            "it is that of a deployed network."
        )
    if "train" in benchmark.tasks:
        yield (
            "Seconds an epoch are those of its steps with the preparation of their batches, without the accuracies; "
            "the first epoch, in which frameworks compile, is left out. Processor time an epoch is that of the whole "
            "process, with imports and accuracies, divided by the epochs. A training has converged in the first epoch "
            "whose validation accuracy is within a point of the training's best."
        )
    if "forward-backward" in benchmark.tasks:
        yield "Gradient: a prediction, and then the gradient of one logit with respect to the images."
    predictions = benchmark.processes[benchmark.processes.task != "train"]
    if len(predictions):
        yield (
            "A batch of 1 is MLPerf's single stream, whose figure is p90; larger ones are offline, whose figure is "
            "images a second. Images that do not fill a batch are left out. A percentile of calls of which it would be "
            "the slowest one is left out, too."
        )
    if predictions.p99.isna().any():
        yield "Some processes have fewer than 100 calls, and no p99."


def _note_machine(benchmark: Benchmark) -> Iterator[str]:
    missing = dict[str, str]()
    for measured in benchmark.measurements:
        missing |= measured.resources.missing
    if missing:
        yield f"Not available here: {'; '.join(f'{name} ({reason})' for name, reason in missing.items())}."
    looking = [measured.resources.sampling_seconds / measured.seconds for measured in benchmark.measurements]
    yield f"Looking at resources took up to {percent(max(looking))} of a processor."


def _note_control(benchmark: Benchmark) -> Iterator[str]:
    control = benchmark.manifest.control
    if passed := [subject for subject, result in control.items() if result == "passed"]:
        yield f"Same-weights control passed: {', '.join(passed)}."
    for subject, result in control.items():
        if result != "passed":
            yield f"Same-weights control, {subject}: {result}."


def note_published(published: list[Published]) -> list[str]:
    """Say where published times are from, and what differs."""
    if not published:
        return []
    notes = [PUBLISHED]
    if any(time.framework == "keras" and not math.isnan(time.ours) for time in published):
        notes.append(KERAS)
    shown = {time.source for time in published}
    for source in list_sources():
        if source["name"] in shown:
            notes.append(
                f"{source['name']}: {source['cite']} ({source['at']}). Versions: {source['versions']}. What differs: "
                f"{source['differs']}."
            )
    return notes

"""The sentences under the tables of a benchmark: what its figures depend on, and what they do not say."""

from __future__ import annotations

from collections.abc import Iterator

from ..report.format import percent
from .performance import Performance
from .processes import BURST, BURST_SECONDS, BUSY, sees_bursts
from .words import TASKS

FEWEST = 6  # values, of which the median has a 95 % interval


def notes(results: Performance) -> list[str]:
    """Return all notes."""
    return [*key_notes(results), *_methods(results), *_machine(results), *_control(results)]


def key_notes(results: Performance) -> list[str]:
    """Return the notes that a reader of one screen needs, the most important first."""
    of_training = [*_one_training(results), *_shares(results)]
    about_times = [*_devices(results), *_busy(results), *_load(results)]
    about_times += [*_out_of_order(results), *_unsteady(results), *_too_few(results)]
    return [*_absent(results), *about_times, *of_training]


def _absent(results: Performance) -> Iterator[str]:
    for status in dict.fromkeys(each.status for each in results.absent):
        those = [each for each in results.absent if each.status == status]
        if status == "not applicable":
            yield "Not applicable: " + "; ".join(f"{each.subject}, {TASKS[each.task]}: {each.reason}" for each in those)
        else:
            count = sum(each.repetitions for each in those)
            subjects = ", ".join(dict.fromkeys(each.subject for each in those))
            have = f"{count} of {len(results.plan)} measurements {'have' if count != 1 else 'has'} {status}"
            have = have.replace("have not measured yet", "are missing").replace("has not measured yet", "is missing")
            yield f"{have} ({subjects}). Rerun the same command to {'try again' if status == 'failed' else 'resume'}."


def _busy(results: Performance) -> Iterator[str]:
    frame = results.processes
    if not len(frame):
        return
    limit = f"{BUSY:g} processors on average"
    if any(map(sees_bursts, results.measurements)):
        limit += f", or {BURST:g} over {BURST_SECONDS:g} seconds"
    busy, unknown = int(frame.busy.sum()), int(frame.others.isna().sum())
    if busy:
        subjects = frame[frame.busy].subject.value_counts(sort=False)
        each = ", ".join(f"{subject} {count}" for subject, count in subjects.items())
        yield (
            f"Busy: during {busy} of {len(frame)} measurements, other programs used more than {limit} "
            f"({each}). They are not left out; their times may be too long."
        )
    else:
        measured = len(frame) - unknown
        yield f"During none of {measured} measurements did other programs use more than {limit}."
    if unknown:
        yield f"What other programs used is not known for {unknown} of {len(frame)} measurements."


def _out_of_order(results: Performance) -> Iterator[str]:
    if late := results.out_of_order:
        was, measurements = ("were", "measurements") if late > 1 else ("was", "measurement")
        yield (
            f"{late} {measurements} of {len(results.measurements)} {was} not made in the planned random order, but "
            "added or repeated later: what changed on the machine in between is part of their differences."
        )


def _devices(results: Performance) -> Iterator[str]:
    frame = results.processes
    used = {str(device): own.subject.unique() for device, own in frame.groupby("device")} if len(frame) else {}
    if len(used) > 1:
        each = "; ".join(f"{', '.join(subjects)} on {device}" for device, subjects in used.items())
        yield f"Devices differ ({each}): a pair across them compares devices, not frameworks alone."


def _load(results: Performance) -> Iterator[str]:
    frame = results.processes
    if not len(frame) or frame.load_before.isna().all():
        return
    before, after = (
        " to ".join(dict.fromkeys(f"{end:.1f}" for end in (values.min(), values.max())))
        for values in (frame.load_before, frame.load_after)
    )
    yield f"Load average of the machine, its measurements included: {before} before them, {after} after them."


def _one_training(results: Performance) -> Iterator[str]:
    if results.has_one_training and any(each.asked.repetition for each in results.measurements):
        seed = results.manifest.about.get("training_seed")
        yield f"Accuracy: n = 1. All repetitions repeat one training (seed {seed}); only times are repeated."


def _unsteady(results: Performance) -> Iterator[str]:
    frame = results.processes
    drifting = int(frame.drifts.sum()) if len(frame) else 0
    if drifting:
        yield (
            f"Drift: in {drifting} of {len(frame)} processes, times rise or fall by more than 5 % after warm-up "
            "(Kendall, p < 0.01), so their medians depend on how long they were measured."
        )


def _too_few(results: Performance) -> Iterator[str]:
    tests = results.tests()
    for task in dict.fromkeys(tests.task):
        own = tests[(tests.task == task) & (tests.n > 0)]
        if len(own) and not (own.family * own.smallest_p <= 0.05).any():
            n, family, needed = int(own.n.max()), int(own.family.max()), int(own.needed.max())
            yield (
                f"{TASKS[task].capitalize()}: with {n} repetition{'s' * (n != 1)} the smallest possible p is "
                f"{own.smallest_p.min():.4g}, so none of {family} adjusted test{'s' * (family != 1)} can find a "
                f"difference. {needed} repetitions can."
            )
    if len(results.processes) and results.repetitions < FEWEST:
        yield f"No interval of a median has 95 % with fewer than {FEWEST} repetitions: those say 'no information'."


def _shares(results: Performance) -> Iterator[str]:
    shares = {epoch.share for each in results.measurements for epoch in each.epochs if epoch.share < 1}
    if shares:
        parts = ", ".join(percent(share, 0 if share >= 0.01 else 1) for share in sorted(shares))
        yield (
            f"Not all epochs are whole ones ({parts} of one): seconds an epoch are those of the share divided by it, "
            "and accuracies are those of a network that has not seen all images."
        )
    if "train" in results.tasks and results.measure("train") == "step" and len(results.processes):
        yield "There is no second epoch, so steps after warm-up are compared in the place of epochs."


def _methods(results: Performance) -> Iterator[str]:
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
    frame = results.processes
    yield (
        "Processors and GPU used, power and temperatures are those from when the network was there, after imports; "
        "temperatures are the highest. Processor time, memory and energy are those of the whole process."
    )
    if len(frame) and frame.file_bytes.notna().any():
        yield (
            "A file on disk holds weights as robustcmp writes them (HDF5), which are as large for every framework, or "
            "it is that of a deployed network."
        )
    if "train" in results.tasks:
        yield (
            "Seconds an epoch are those of its steps with the preparation of their batches, without the accuracies; "
            "the first epoch, in which frameworks compile, is left out. Processor time an epoch is that of the whole "
            "process, with imports and accuracies, divided by the epochs. A training has converged in the first epoch "
            "whose validation accuracy is within a point of the training's best."
        )
    if "forward-backward" in results.tasks:
        yield "Gradient: a prediction, and then the gradient of one logit with respect to the images."
    if any(task != "train" for task in results.tasks):
        yield (
            "A batch of 1 is MLPerf's single stream, whose figure is p90; larger ones are offline, whose figure is "
            "images a second. Images that do not fill a batch are left out. A percentile of calls of which it would be "
            "the slowest one is left out, too."
        )
        if len(frame) and frame[frame.task != "train"].p99.isna().any():
            yield "Some processes have fewer than 100 calls, and no p99."


def _machine(results: Performance) -> Iterator[str]:
    missing = {name: why for each in results.measurements for name, why in each.resources.missing.items()}
    if missing:
        yield f"Not available here: {'; '.join(f'{name} ({why})' for name, why in missing.items())}."
    looked = [each.resources.sampling_seconds / each.seconds for each in results.measurements if each.seconds]
    if looked:
        yield f"Looking at resources took up to {percent(max(looked))} of a processor."


def _control(results: Performance) -> Iterator[str]:
    control = results.manifest.control
    if passed := [subject for subject, said in control.items() if said == "passed"]:
        yield f"Same-weights control passed: {', '.join(passed)}."
    for subject, said in control.items():
        if said != "passed":
            yield f"Same-weights control, {subject}: {said}."

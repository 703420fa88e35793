"""One screen: rates, failed checks, the main notes, and the answer at the end."""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from ..analysis.results import Results
from ..analysis.statistics import ONE_TRAINING
from ..analysis.verdicts import MEDIANS, Measure, Verdict
from ..records.checks import FAIL
from ..records.suite_file import suite_names
from . import deployments
from .format import detectable_points, distance, fixed, p_value, percent, points, shares
from .notes import key_notes, repeats_text
from .table import Column, Table
from .tables import absent
from .terminal import WIDTH, console_for, fits, print_table
from .text import title
from .verdict_text import NOMINALLY, is_nominal, said_together

if TYPE_CHECKING:
    from rich.console import Console

MOST_MODELS = 12  # one row each; the page and the full report have them all
MOST_NOTES = 3
MOST_RANKS = 4
DISTANCES = "distances"


def summary(results: Results, width: int | None = None, color: bool = False) -> str:
    """Return one screen, at most 100 columns by 40 lines for a few models under a few attacks."""
    stream = io.StringIO()
    console = console_for(stream, min(width or WIDTH, WIDTH), color)
    console.print(title(results), style="bold")
    console.print(setting(results))
    console.print()
    beside = rates(results)
    console.print(beside.title)
    print_table(console, beside if fits(beside, console.width) else rates(results, "\n"))
    if results.has_deployments:
        for table in (deployments.networks(results), deployments.differences(results)):
            console.print(f"\n{table.title}")
            print_table(console, table)
        console.print()
    for line in failed_checks(results):
        console.print(line, style="red")
    for note in [*deployments.of_files(results), *key_notes(results)[:MOST_NOTES], *said_together(results)]:
        console.print(f"• {note}")
    console.print()
    if results.compares_sources:
        console.print(answer(results), style="bold")
        _print_verdicts(console, results.verdicts, is_nominal(results))
    if results.has_deployments:
        console.print(deployments.answer(results), style="bold")
    return stream.getvalue().rstrip("\n")


def stronger(results: Results) -> str:
    """Return a line that names the suite of references, "" where a run has some, or attacks of the user's own."""
    with_reference = not all(record.in_indicator for record in results.attack_records.values())
    if results.same_weights or with_reference or results.manifest["suite"]["name"] not in suite_names():
        return ""
    return (
        "attacks of many steps can find adversarial images that these miss: --suite reference has APGD, Square and "
        "searches for the smallest change"
    )


def setting(results: Results) -> str:
    """Say what was compared, on how many images, and how often."""
    count, images = len(results.labels), results.manifest["images"]
    trainings = {name: [m["name"] for m in results.manifest["models"]].count(name) for name in results.models}
    sizes = sorted(set(trainings.values()))
    each = "" if sizes == [1] else f": {' to '.join(map(str, sizes))} trainings each"
    classify = f"all {count} classify" if count > 1 else "the model classifies"
    is_random = any(not results.deterministic(attack) for attack in results.attacks)
    which = "of the test set, also misclassified ones" if results.on_all_images else f"that {classify} correctly"
    used = f"{images['used']} images {which}"
    return "; ".join([", ".join(results.models) + each, used, *([repeats_text(results)] if is_random else [])])


def rates(results: Results, between: str = " ") -> Table:
    """Return one row per model: rates with 95 % intervals, clean accuracy, and R with rank shares."""
    ranges = results.indicator_ranges if len(results.models) > 1 and results.indicator else {}
    columns = [Column("model"), *(Column(attack, str) for attack in results.attacks), Column("clean", str)]
    all_ranks = len(results.models) <= MOST_RANKS
    columns += [Column("R", str), Column(f"ranks 1 to {len(ranges)}" if all_ranks else "rank 1", str)] if ranges else []
    rows = []
    for model in results.models:
        row = [model, *(_rate(results, model, attack, between) for attack in results.attacks)]
        row += [percent(results.clean_accuracy[model])]
        if ranges:
            of_ranks = ranges[model].ranks
            row += [fixed(results.indicator[model], 2), shares(of_ranks) if all_ranks else percent(of_ranks[0], 0)]
        rows.append(row)
    over = "trainings" if results.has_several_trainings else "images"
    of_r = "; R: smaller is more robust; ranks: shares of resamples" if ranges else ""
    title = f"Success rates, 95 % intervals over {over}{of_r}"
    return Table(title, columns, rows[:MOST_MODELS])


def _rate(results: Results, model: str, attack: str, between: str) -> str:
    if not results.seeds(model, attack):
        return absent(results, model, attack)
    several = len(results.seeds(model, attack)) > 1
    ends = results.trainings.interval(model, attack) if several else results.interval(model, attack)
    within = "all alike" if math.isnan(ends[0]) else _ends(ends)
    return f"{percent(results.rate(model, attack))}{between}({within})"


def _ends(ends: Sequence[float], digits: int = 1) -> str:
    return f"{fixed(100 * ends[0], digits)}–{fixed(100 * ends[1], digits)}"


def failed_checks(results: Results) -> list[str]:
    """Return one line per failed health check, with the models that failed it."""
    if results.same_weights:
        return []
    if results.checked is None:
        return ["Health checks have not been run; `ev.run_checks()` runs them."]
    failed: dict[str, list[str]] = {}
    for check in results.checked.checks:
        if check.outcome == FAIL:
            failed.setdefault(check.check, []).append(check.model)
    of = len(results.labels)
    return [
        f"Failed check: {name}: {', '.join(models[:4])}{', …' * (len(models) > 4)} ({len(models)} of {of} models)"
        for name, models in failed.items()
    ]


def answer(results: Results) -> str:
    """Return the answer about the sources in one sentence; `deployments.answer` has that about deployed networks."""
    verdicts = results.verdicts
    if results.same_weights:
        return "Same-weights control: every framework runs the same weights, so there is nothing to rank."
    if not verdicts:
        if len(results.sources) > 1:
            return "No attack ran on every model: there is nothing to compare."
        return f"Only one {'model' if len(results.labels) == 1 else 'framework'}: there is nothing to compare."
    if unsound := _unsound(results):
        return f"Is one easier to fool? No answer yet: {unsound}. Check bounds and preprocessing first."
    unit = "these frameworks" if verdicts[0].level == "frameworks" else "these trained models"
    different = [verdict for verdict in verdicts if verdict.different]
    alike = [verdict for verdict in verdicts if verdict.different is False and verdict.measure == "success rate"]
    if different and alike and _compared(different) == DISTANCES:
        sentence = (
            f"Is one easier to fool? No significant difference in {_compared(alike)} between {unit}, but "
            f"{_easier(different)}."
        )
    elif different:
        sentence = f"Is one easier to fool? Yes, of {unit}: {_easier(different)}."
    elif results.is_uneven:
        sentence = f"Frameworks cannot be compared: {', '.join(results.single_trainings)} has one training."
    elif all(verdict.different is None for verdict in verdicts):
        sentence = f"Is one easier to fool? These attacks give no information about {unit}."
    else:
        sentence = f"Is one easier to fool? No significant difference in {_compared(verdicts)} between {unit}."
    if verdicts[0].level == "frameworks":
        sentence += _spread_of_trainings(results)
    elif not results.has_several_trainings:
        sentence += f" {ONE_TRAINING if results.is_of_the_zoo else ONE_NETWORK}"
    return sentence


def _easier(verdicts: Sequence[Verdict]) -> str:
    """Say which model is easier to fool than which by verdicts that find a difference."""
    attacks: dict[tuple[str, str, str], list[str]] = {}
    for verdict in verdicts:
        key = verdict.easier, verdict.harder, _compared([verdict])
        attacks.setdefault(key, []).append(verdict.attack)
    return "; ".join(
        f"{easier} is easier to fool than {harder} ({measure} under {', '.join(names)})"
        for (easier, harder, measure), names in attacks.items()
    )


def _unsound(results: Results) -> str:
    """Say which trained models are probably not asked as they were trained, "" where none is seen to be."""
    for found, what in (
        (results.poor_models, "less than half the accuracy of the best model"),
        (results.at_chance, "no more accuracy than naming the most frequent class each time would"),
    ):
        if models := {name: accuracy for name, accuracy in found.items() if name in results.sources}:
            of = ", ".join(f"{model} ({percent(accuracy)})" for model, accuracy in models.items())
            return f"{of} {'has' if len(models) == 1 else 'have'} {what}"
    return ""


def _compared(verdicts: Sequence[Verdict]) -> str:
    """Say what the verdicts are about: those that differ, or all that say something."""
    different = [verdict for verdict in verdicts if verdict.different]
    decided = different or [verdict for verdict in verdicts if verdict.different is not None]
    names = dict.fromkeys("success rates" if verdict.measure == "success rate" else DISTANCES for verdict in decided)
    return (" and " if different else " or ").join(names)


def _spread_of_trainings(results: Results) -> str:
    """Say how far single trainings of one framework are apart, under the attack where that is furthest; "" for 0."""
    spread, attack = max(
        (max(float(np.ptp(rates)) for rates in outcomes.rates.values()), outcomes.attack)
        for outcomes in results.outcomes
    )
    return f" Trainings of one framework differ by up to {points(spread)} points ({attack})." if spread else ""


def _print_verdicts(console: Console, verdicts: Sequence[Verdict], nominal: bool) -> None:
    from rich.table import Table

    grid = Table.grid(padding=(0, 2, 0, 0))
    for verdict in verdicts:
        grid.add_row(*verdict_line(verdict))
    console.print(grid)
    if any(not math.isnan(verdict.detectable) for verdict in verdicts):
        console.print(DETECTABLE.format(nominally=f"{NOMINALLY}," * nominal), style="dim")
    if any(verdict.measure == "nearness" for verdict in verdicts):
        console.print(NEARNESS, style="dim")
    margins = [
        f"{verdict.attack} {points(verdict.equivalent_within)}"
        for verdict in verdicts
        if not verdict.norm and not math.isnan(verdict.equivalent_within)
    ]
    if margins:
        console.print(f"larger differences than these are excluded at 5 %: {', '.join(margins)} points", style="dim")
    if any(not math.isnan(verdict.seed_share) for verdict in verdicts):
        console.print(SEED, style="dim")


def verdict_line(verdict: Verdict) -> tuple[str, str, str]:
    """Return a verdict as the attack, the finding, and the evidence."""
    if verdict.different is None:
        return verdict.attack, "no information", verdict.why
    apart = APART[verdict.measure].format(easier=verdict.easier, by=_written(verdict, verdict.difference))
    if not verdict.easier:
        apart = "no difference"
    is_of_medians = verdict.measure in MEDIANS.values()
    detectable = distance(verdict.detectable) if is_of_medians else detectable_points(verdict.detectable)
    seen = f"{verdict.few}: too few" if verdict.few else f"{detectable} detectable*"
    rests_on = [
        f"{apart} ({seen})",
        f"p {'' if verdict.p_adjusted < 0.001 else '= '}{p_value(verdict.p_adjusted)}",
    ]
    if not math.isnan(verdict.seed_share):
        share, ends = percent(verdict.seed_share, 0), (verdict.seed_low, verdict.seed_high)
        rests_on.append(f"seed{'+draw' * verdict.has_draws} {share} ({_ends(ends, 0)})")
    if verdict.norm and not math.isnan(verdict.equivalent_within):
        rests_on.append(f"over {distance(verdict.equivalent_within)} excluded at 5 %")
    return verdict.attack, "differ" if verdict.different else "not significant", "; ".join(rests_on)


def _written(verdict: Verdict, value: float) -> str:
    return distance(value) if verdict.measure in MEDIANS.values() else points(value)


APART: dict[Measure, str] = {
    "success rate": "{easier} easier by {by}",
    **{median: f"{{easier}} easier by {{by}} in {median}" for median in MEDIANS.values()},
    "nearness": "{easier} easier by {by}†",
}
NEARNESS = "† on so many more of 100 images, a smaller change fools this model than fools another"
ONE_NETWORK = (
    "One network each: if they were trained separately, run-to-run effects are confounded with what else differs."
)
DETECTABLE = (
    "* detected in 8 of 10 such comparisons{nominally} if this were the true difference; rates in percentage points"
)
SEED = "seed: its share of the variance between trained models on these images (95 %); +draw: with draws"

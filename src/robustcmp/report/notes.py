"""The sentences under the tables: what the figures are conditional on, and what R is not."""

from __future__ import annotations

from ..analysis.control import FAILED, LARGEST_LOGITS, LARGEST_OUTCOMES, LARGEST_PREDICTIONS, PASSED
from ..analysis.indicator import reversed_pairs
from ..analysis.results import Results
from ..records.checks import FAIL, NOT_APPLICABLE, PASS, Check, Checked
from .format import percent
from .tables import WITHIN_NOISE

NAMED = 3  # models of which a failed check gives its figure


def notes(results: Results) -> list[str]:
    """Return the sentences that belong under the tables: what the figures are conditional on, and what R is not."""
    conditional, settings = _conditional(results), _settings(results)
    if results.same_weights:
        return [*_control_notes(results), f"{conditional}.", settings]
    return [
        f"{conditional}; adding or removing a model changes the subset, every rate and R.",
        f"{settings} R compares only the models beside each other: 0 and 1 in P are the least and the most easily "
        "fooled of them, however near they are.",
        *_model_notes(results),
        *_attack_notes(results),
        *_training_notes(results),
        *(_order_notes(results) if len(results.models) > 1 else []),
        *_significance_notes(results),
        *(
            check_notes(results.checked)
            if results.checked
            else ["Health checks: not made; `ev.run_checks()` makes them."]
        ),
        *(["paper: Guo et al., Fig. 6, on their own trainings and their own subset."] if results.paper else []),
    ]


def _conditional(results: Results) -> str:
    count = len(results.manifest["models"])
    classify = f"all {count} models classify" if count > 1 else "the model classifies"
    return f"Conditional on images that {classify} correctly ({percent(results.correct_by_all)} of the test set)"


def _settings(results: Results) -> str:
    manifest = results.manifest
    repeats = f"{manifest['repeats']} repeat{'s' * (manifest['repeats'] != 1)}"
    repeats += "".join(f" ({attack} {count})" for attack, count in results.own_repeats.items())
    used, suite = manifest["images"]["used"], manifest["suite"]["name"]
    return f"{used} images, {repeats}, suite {suite}, seed {manifest['seed']}."


def _model_notes(results: Results) -> list[str]:
    images, text = results.manifest["images"], []
    if images["used"] < images["asked"]:
        text.append(f"Only {images['used']} of the {images['asked']} images that were asked for could be had.")
    best = max(results.clean_accuracy.values())
    for model, accuracy in results.clean_accuracy.items():
        if accuracy < best / 2:
            text.append(
                f"{model} classifies only {percent(accuracy)} of the test set correctly: before its rates are read, "
                "look at its bounds, its preprocessing, and what it was trained on."
            )
    if len(results.labels) == 1:
        text.append("One model alone: there is nothing to compare, and P and R are 0.")
    elif len(results.models) == 1:
        text.append("One framework alone: P and R are 0, and the pairs are its own trainings.")
    return text


def _attack_notes(results: Results) -> list[str]:
    """What attacks say of themselves, where they could not run, and which of them are not in R."""
    reasons: dict[tuple[str, str], list[str]] = {}
    for label, of_model in results.not_applicable.items():
        for attack, reason in of_model.items():
            reasons.setdefault((attack, reason), []).append(label)
    text: list[str] = [
        f"{attack} is not applicable to {', '.join(labels)}: {why}" for (attack, why), labels in reasons.items()
    ]
    left_out = [attack for attack in results.attacks if attack not in results.common_attacks]
    if left_out:
        text.append(f"Not in R, as not every model ran it: {', '.join(left_out)}.")
    for attack in results.starts.failed:
        text.append(
            f"{attack}: start failed, not robustness. Where an image has no start, the attack could not begin; R is "
            "also given without it."
        )
    said: dict[str, list[str]] = {}
    for attack in results.attacks:
        for note in results.attack_records[attack].notes:
            said.setdefault(note, []).append(attack)
    return [*text, *(f"{', '.join(attacks)}: {note}" for note, attacks in said.items())]


def _training_notes(results: Results) -> list[str]:
    """What stays the frameworks' own in trainings that are the same otherwise."""
    trained = [model for model in results.manifest["models"] if "differences" in model["info"]]
    differences = {model["framework"]: model["info"]["differences"] for model in trained}
    text: list[str] = []
    for kind in dict.fromkeys(kind for own in differences.values() for kind in own):
        each = "; ".join(f"{framework}: {own[kind]}" for framework, own in differences.items() if kind in own)
        text.append(f"The frameworks' own {kind} stays: {each}. The rest of the training is the same in all of them.")
    return text


def _order_notes(results: Results) -> list[str]:
    """Say under which variants of R models change places."""
    whole = results.indicator_variants["all"]
    changed = {
        variant: ", ".join(f"{b} before {a}" for a, b in pairs)
        for variant, r in results.indicator_variants.items()
        if (pairs := reversed_pairs(whole, r))
    }
    if not changed:
        return []
    each = "; ".join(f"{variant}: {pairs}" for variant, pairs in changed.items())
    return [f"The order of the models by R changes, the more robust named first: {each}."]


def _significance_notes(results: Results) -> list[str]:
    if len(results.labels) < 2 or not results.outcomes:
        return []
    over = "images and trainings" if results.has_several_trainings else "images"
    single = results.single_trainings
    if results.has_several_trainings and single:
        over += f" (the one training of {', '.join(single)} stays)"
    text: list[str] = [
        f"Bootstrap range: what R lies between in 95 % of the resamples of {over}; no confidence interval, as the "
        "smallest and the largest rate make R irregular. Rank: the shares of resamples in which a model has the "
        "smallest R, the second smallest, and so on."
    ]
    if results.within_noise:
        text.append(
            f"{WITHIN_NOISE}: a joint test of all {results.level} finds nothing for {', '.join(results.within_noise)}, "
            "so P ranks what may be chance."
        )
    if results.has_several_trainings and single:
        text.append("P compares means over trainings with one training alone; no test is about that.")
    return [*text, *_difference_notes(results)]


def _difference_notes(results: Results) -> list[str]:
    unit = "the training run is the unit" if results.level == "frameworks" else "the image is the unit"
    return [
        f"Differences: {unit}; for L2 it is the share of images fooled nearer in the one less that in the other. "
        '"differ" and "not told apart" follow the p values that Holm adjusts for all pairs and attacks; an interval is '
        "one pair's, before adjustment, and the two may disagree.",
        *(
            f"{attack}: tests, differences and variances are about the expectation over all draws of positions, the "
            f"success rates, P and R about the {results.repeats(attack)} that were made."
            for attack in results.exact_pixel.attacks
        ),
    ]


def check_notes(checked: Checked) -> list[str]:
    """Return how many checks passed, and of those that did not the figure and what to do."""
    outcomes = [check.outcome for check in checked.checks]
    total = ", ".join(f"{outcomes.count(outcome)} {outcome}" for outcome in (PASS, FAIL, NOT_APPLICABLE))
    failed: dict[str, list[Check]] = {}
    for check in checked.checks:
        if check.outcome == FAIL:
            failed.setdefault(check.check, []).append(check)
    text: list[str] = [f"Health checks on {checked.images} images: {total}."]
    for name, checks in failed.items():
        named = [f"{check.model}: {check.figure}" for check in checks[:NAMED]]
        if len(checks) > NAMED:
            named.append(f"and {len(checks) - NAMED} more, see `ev.checks`")
        text.append(f"Failed: {name}: {'; '.join(named)}. {checks[0].advice}")
    return text


def _control_notes(results: Results) -> list[str]:
    control = results.same_weights
    assert control is not None
    infos = [model["info"] for model in results.manifest["models"]]
    trained = next(info["same_weights"] for info in infos if "same_weights" in info)
    control_attacks = [attack for attack, record in results.attack_records.items() if record.in_control]
    return [
        PASSED if control["passed"] else FAILED,
        f"The weights of {trained} in every framework. The largest difference of logits is {control['logits']:.1e} of "
        f"their standard deviation (at most {LARGEST_LOGITS:g} passes); {percent(control['predictions'], 2)} of the "
        f"predictions on the whole test set differ (at most {percent(LARGEST_PREDICTIONS)}).",
        f"Under {' and '.join(control_attacks)} at most {percent(LARGEST_OUTCOMES)} of the images may differ; other "
        "attacks may part at the first near tie. No R: there is nothing to rank.",
    ]

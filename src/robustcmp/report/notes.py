"""The sentences under the tables: what the figures are conditional on, and the limits of R."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from ..analysis.control import FAILED, LARGEST_LOGITS, LARGEST_OUTCOMES, LARGEST_PREDICTIONS, PASSED
from ..analysis.indicator import NO_SPREAD, reversed_pairs
from ..analysis.results import Results
from ..records.attack import NORMS, Norm
from ..records.checks import FAIL, NOT_APPLICABLE, NOTED, PASS, Check, Checked
from . import deployments
from .format import bound, percent, points
from .tables import WITHIN_NOISE

NARROW = 0.25  # range of images
OF_THE_PAPER = 6  # models that its images are common to, if they are those of a whole dataset
NAMED = 3  # models of which a failed check gives its figure


def notes(results: Results) -> list[str]:
    """Return the sentences that belong under the tables: what the figures are conditional on, and the limits of R."""
    conditional, settings = _conditional(results), _settings(results)
    r = (
        " R is relative to the models compared: in P, 0 is the least and 1 the most easily fooled of them, "
        "however small the difference between them."
    )
    if results.same_weights:
        behaviour = behaviour_notes(results.manifest["models"])
        return [*_control_notes(results), *behaviour, f"{conditional}.", settings]
    return [
        f"{conditional}{_subset_changes(results)}.",
        settings + r * results.has_indicator,
        *_fewer_images(results),
        *results.manifest["about"].get("data_notes", []),
        *_model_notes(results),
        *behaviour_notes(results.manifest["models"]),
        *_attack_notes(results),
        *_training_notes(results),
        *(_order_notes(results) if len(results.models) > 1 and results.has_indicator else []),
        *(_significance_notes(results) if results.compares_sources else []),
        *_twin_notes(results),
        *deployments.notes(results),
        *(
            check_notes(results.checked)
            if results.checked
            else ["Health checks have not been run; `ev.run_checks()` runs them."]
        ),
        *([_paper_note(results)] if results.paper else []),
    ]


def key_notes(results: Results) -> list[str]:
    """Return the sentences that a reader of one screen needs, the most important first."""
    conditional = f"{_conditional(results)}{_subset_changes(results)}."
    if results.same_weights:
        return _control_notes(results)
    r = [_weight_note(results)] * (len(results.models) > 1 and results.has_indicator)
    return [
        *deployments.reading(results),
        *_model_notes(results),
        *behaviour_notes(results.manifest["models"]),
        *_attack_notes(results),
        conditional,
        *r,
        *_fewer_images(results),
    ]


def _paper_note(results: Results) -> str:
    said = "paper: Guo et al., Fig. 6, measured on their own trained models and images"
    if results.on_all_images or len(results.labels) <= OF_THE_PAPER:
        return f"{said}."
    how = "see `ev.conditioning`" if results.conditioned else "`ev.run_conditioning()` measures by how much"
    return (
        f"{said}. Its images are common to few models; those common to all {len(results.labels)} here are, as a rule, "
        f"harder to fool: {how}."
    )


def _weight_note(results: Results) -> str:
    """Say that R weighs every attack alike, by the attacks with the smallest and the largest difference."""
    rates = results.indicator_rates().values()
    apart = {attack: float(np.ptp([of[attack] for of in rates])) for attack in results.indicator_attacks}
    apart = {attack: difference for attack, difference in apart.items() if difference > NO_SPREAD}
    if len(apart) < 2:
        return "R ranks only the models compared, however small the differences between their rates."
    least, most = min(apart, key=apart.__getitem__), max(apart, key=apart.__getitem__)
    return (
        f"R weighs every attack alike: {points(apart[least])} points under {least} count as much as "
        f"{points(apart[most])} under {most}."
    )


def _subset_changes(results: Results) -> str:
    return "" if results.on_all_images else "; adding or removing a model changes the subset, every rate and R"


def _bounds(results: Results) -> str:
    """Name the attacks that search within a distance, and the distances; "" if there are none."""
    within: dict[Norm, dict[str, str]] = {}
    for attack in results.attacks:
        record = results.attack_records[attack]
        if record.is_bounded:
            within.setdefault(record.norm, {})[attack] = bound(_epsilon(results, attack))
    return "; ".join(f"{', '.join(its)}: {NORMS[norm]} ≤ {', '.join(its.values())}" for norm, its in within.items())


def _epsilon(results: Results, attack: str) -> float:
    """Return within which distance an attack has searched; for images in colour, that may be another."""
    record = results.attack_records[attack]
    if "radius" in record.extras:
        for model in results.models:
            radius = results.values(model, attack, "radius")
            if radius.size:
                return float(radius.flat[0])
    return float(record.settings["epsilon"])


def _conditional(results: Results) -> str:
    if results.on_all_images:
        text = (
            "All rates are of all images attacked, also those that a model misclassifies: these have fallen without an "
            "attack"
        )
        bounds = _bounds(results)
        return text + f". Under a bound ({bounds}), 100 % minus the rate is at least the robust accuracy" * bool(bounds)
    count = len(results.manifest["models"])
    classify = f"all {count} models classify" if count > 1 else "the model classifies"
    share = percent(results.correct_by_all)
    return f"All rates are conditional on images that {classify} correctly ({share} of the test set)"


def repeats_text(results: Results) -> str:
    """Say how often random attacks were repeated."""
    count = results.manifest["repeats"]
    text = f"{count} repeat{'s' * (count != 1)}"
    text += "".join(f" ({attack} {own})" for attack, own in results.own_repeats.items())
    return text + " per training, each with its own draws" * results.is_spread


def _settings(results: Results) -> str:
    manifest, repeats = results.manifest, repeats_text(results)
    used, suite = manifest["images"]["used"], manifest["suite"]["name"]
    return f"{used} images, {repeats}, suite {suite}, seed {manifest['seed']}."


def _fewer_images(results: Results) -> list[str]:
    images = results.manifest["images"]
    if images["used"] == images["asked"] or results.on_all_images:
        return []
    return [
        f"Fewer images than the {images['asked']:,} requested: every model classifies {images['used']:,} of "
        f"{images['of']:,} correctly, and all of these are attacked."
    ]


def _model_notes(results: Results) -> list[str]:
    text: list[str] = []
    low, high = results.manifest["images"].get("range") or (0.0, 1.0)
    if high - low < NARROW:
        text.append(
            f"The images' values lie between {low:.3g} and {high:.3g}, where [0, 1] is expected: changes of {NARROW:g} "
            "and more leave their range. Check how they were scaled; a set whose largest value is 16 is divided by 16."
        )
    explained = {model["name"] for model in results.manifest["models"] if model.get("cause")}
    for model, accuracy in (results.poor_models | results.at_chance).items():
        if model in explained:
            continue
        chance = ", no more than naming the most frequent class each time would" * (model in results.at_chance)
        text.append(
            f"{model} classifies only {percent(accuracy)} of the test set correctly{chance}. Check its bounds, "
            "preprocessing and training data before you interpret its rates."
        )
    if len(results.labels) == 1:
        text.append("Only one model: there is nothing to compare, so P and R are 0.")
    elif len(results.models) == 1:
        text.append("Only one framework: P and R are 0, and the pairs compare its trainings.")
    return text


def behaviour_notes(models: Sequence[Mapping[str, Any]]) -> list[str]:
    """Say, by their entries in a manifest, what models do that those of a comparison should not.

    Two are one network, one would be more accurate if it was asked otherwise, answers vary with the batch or from pass
    to pass, or a gradient is not that of the logits.
    """
    text = [*_one_network_notes(models)]
    for name in dict.fromkeys(model["name"] for model in models):
        trained = [model for model in models if model["name"] == name]
        text += [model["cause"] for model in trained if model.get("cause")]
        if any(model.get("depends_on_batch") for model in trained):
            text.append(f"{name}: answers depend on the other images of a batch, so each image was asked alone.")
        if off := max(model.get("slope_error") or 0.0 for model in trained):
            text.append(
                f"The gradient of {name} is not that of its logits: slopes by it are {percent(off, 0)} off, and "
                "attacks that follow it may fool too few images. Look for detached tensors, and for a vjp or a "
                "backward pass of your own; one that stands in for the gradient on purpose may differ."
            )
        identities = [model["identity"] for model in trained if "identity" in model]
        noise, gradient = (max((of[kind] for of in identities), default=0.0) for kind in ("noise", "gradient_noise"))
        if noise or gradient:
            found = (
                "Cells are found again by the weights."
                if all(identity["weights"] for identity in identities)
                else "The weights are not known, so cells cannot be found again and are computed anew each time."
            )
            differ = f"logits by up to {noise:.1g}" if noise else f"gradients by up to {gradient:.1g}"
            text.append(
                f"{name}: two passes over the same images differ, {differ}, and so can outcomes at near ties. {found}"
            )
    return text


def _one_network_notes(models: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Name models that answer alike in every bit, with one set of weights: they may have been meant to differ."""
    alike: dict[tuple[Any, ...], list[str]] = {}
    for model in models:
        if (identity := model.get("identity")) and "deployment" not in model["info"]:
            told = tuple(identity.get(part) for part in ("weights", "logits", "probes", "gradient"))
            alike.setdefault((model["framework"], *told), []).append(f"{model['name']}/{model['training_seed']}")
    for labels in alike.values():
        if len(labels) > 1:
            names = f"{', '.join(labels[:NAMED])}{', …' * (len(labels) > NAMED)}"
            yield (
                f"{names} are one network: their weights and answers are the same in every bit. If they should differ, "
                "wrap a copy for each: weights that are loaded later change a network that was wrapped before."
            )


def _by_reason(reasons: dict[str, dict[str, str]]) -> Iterable[tuple[tuple[str, str], list[str]]]:
    """Return the models by attack and reason."""
    labels: dict[tuple[str, str], list[str]] = {}
    for label, of_model in reasons.items():
        for said in of_model.items():
            labels.setdefault(said, []).append(label)
    return labels.items()


def _attack_notes(results: Results) -> list[str]:
    """Notes of the attacks, where they could not run, and which of them are not in R."""
    text = [
        f"{attack} is not applicable to {', '.join(labels)}: {why}"
        for (attack, why), labels in _by_reason(results.not_applicable)
    ]
    text += [
        f"{attack} failed on {', '.join(labels)}: {why} Rerun the same command to try it again."
        for (attack, why), labels in _by_reason(results.failed)
    ]
    if results.failed:
        text.append(f"No health checks of {', '.join(results.failed)}, because an attack failed.")
    beside = [attack for attack, record in results.attack_records.items() if not record.in_indicator]
    if beside and results.has_indicator:
        text.append(f"A reference beside R, not in it: {', '.join(beside)}.")
    left_out = [attack for attack in results.attacks if attack not in [*results.common_attacks, *beside]]
    if left_out:
        text.append(f"Excluded from R because not every model ran it: {', '.join(left_out)}.")
    for attack in results.starts.failed:
        text.append(
            f"{attack}: some images have no starting point, so the attack could not begin. These failures are no sign "
            f"of robustness; R is also given without {attack}."
        )
    said: dict[str, list[str]] = {}
    for attack in results.attacks:
        for note in results.attack_records[attack].notes:
            said.setdefault(note, []).append(attack)
    return [*text, *(f"{', '.join(attacks)}: {note}" for note, attacks in said.items())]


def _training_notes(results: Results) -> list[str]:
    """How the frameworks' trainings differ, where the rest of the training is identical."""
    trained = [model for model in results.manifest["models"] if "differences" in model["info"]]
    differences = {model["framework"]: model["info"]["differences"] for model in trained}
    text: list[str] = []
    for kind in dict.fromkeys(kind for own in differences.values() for kind in own):
        each = "; ".join(f"{framework}: {own[kind]}" for framework, own in differences.items() if kind in own)
        text.append(f"Each framework uses its own {kind}: {each}. All other training settings are identical.")
    return text


def _order_notes(results: Results) -> list[str]:
    """Say which variants of R rank the models differently."""
    whole = results.indicator_variants["all"]
    has_converged = not any(outcomes.not_compared for outcomes in results.outcomes)
    changed = {
        variant: ", ".join(f"{b} before {a}" for a, b in pairs)
        for variant, r in results.indicator_variants.items()
        if (has_converged or "from distances" not in variant) and (pairs := reversed_pairs(whole, r))
    }
    if not changed:
        return []
    each = "; ".join(f"{variant}: {pairs}" for variant, pairs in changed.items())
    return [f"These variants rank models differently from R, the more robust one first: {each}."]


def _significance_notes(results: Results) -> list[str]:
    if len(results.labels) < 2 or not results.outcomes:
        return []
    over = "images and trainings" if results.has_several_trainings else "images"
    single = results.single_trainings
    if results.is_uneven:
        over += f" ({', '.join(single)} with one training: images only)"
    ranges = [
        f"Bootstrap range: the central 95 % of R over resamples of {over}. It is not a confidence interval, because R "
        "depends on the smallest and the largest rate and is therefore irregular. Rank: the shares of resamples in "
        "which a model has the smallest R, the second smallest, and so on."
    ]
    text: list[str] = ranges * bool(results.indicator_attacks)
    if results.within_noise:
        text.append(
            f"{WITHIN_NOISE}: the joint test of all {_compared(results)} is not significant for "
            f"{', '.join(results.within_noise)}, so the order in P may be due to chance."
        )
    if results.is_uneven:
        text.append("P compares means over several trainings with a single training; no test covers this comparison.")
    return [*text, *_difference_notes(results)]


def _compared(results: Results) -> str:
    """Say what the tests are over: all frameworks or models, by their names where deployed networks are no part."""
    return f"{results.level} ({', '.join(results.sources)})" if results.has_deployments else results.level


def _difference_notes(results: Results) -> list[str]:
    unit = "training run" if results.level == "frameworks" else "image"
    return [
        f"Differences: the {unit} is the unit of analysis. For distances, the difference is the share of images fooled "
        "at a smaller one on the first model minus that on the second. "
        '"easier to fool" and "not significant" follow p values with Holm\'s adjustment for all pairs and attacks; '
        "each interval is for one pair, without adjustment, so the two can disagree.",
        *(
            f"{attack}: tests, differences and variances use the expected success over all draws of positions; success "
            f"rates, P and R use the {results.repeats(attack)} draws of this run."
            for attack in results.exact_pixel.attacks
        ),
    ]


def _twin_notes(results: Results) -> Iterator[str]:
    """Say which sources are no independent trainings, and what that changes; `deployments.notes` has the deployed."""
    found = [pair for pair in results.twins if {pair.a[0], pair.b[0]} <= {*results.sources}]
    if not found:
        return
    correlations: dict[tuple[str, str], list[float]] = {}
    for pair in found:
        correlations.setdefault((pair.a[0], pair.b[0]), []).append(pair.correlation)
    each = "; ".join(
        f"{a} and {b}, {len(of_pair)} pair{'s' * (len(of_pair) > 1)} of trainings (correlation of the weights at least "
        f"{min(of_pair):.2f})"
        for (a, b), of_pair in correlations.items()
    )
    yield f"Twins, which began from the same weights and are no independent trainings: {each}."
    if results.level == "frameworks":
        yield (
            "Two frameworks are tested by the paired t if each training of both has its twin in the other. "
            "Joint tests, variance components and the range of R treat all trainings as independent. In simulations "
            "with twins, the joint test erred in 0 to 8 % of cases, at a level of 5 %."
        )
    if results.transferred is not None:
        yield "Means and p of transfer leave out pairs of twins."


def check_notes(checked: Checked) -> list[str]:
    """Return how many checks passed, and for each failed check its figure and what to do."""
    outcomes = [check.outcome for check in checked.checks]
    kinds = [PASS, FAIL, NOT_APPLICABLE] + [NOTED] * (NOTED in outcomes)
    total = ", ".join(f"{outcomes.count(outcome)} {outcome}" for outcome in kinds)
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
        f"Every framework runs the weights of {trained}. The largest difference between logits is "
        f"{control['logits']:.1e} of their standard deviation (limit {LARGEST_LOGITS:g}); "
        f"{percent(control['predictions'], 2)} of the predictions on the whole test set differ (limit "
        f"{percent(LARGEST_PREDICTIONS)}).",
        f"Under {' and '.join(control_attacks)}, outcomes may differ on at most {percent(LARGEST_OUTCOMES)} of the "
        "images; other attacks may diverge at the first near tie. There is no R, because there is nothing to rank.",
    ]

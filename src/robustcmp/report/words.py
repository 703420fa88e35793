"""Every sentence of a report, from results: terminal, page, notebook, Markdown and LaTeX lay them out."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np

from ..analysis.deployments import (
    DEPLOYED_MARGIN,
    FAILED,
    LARGEST_LOGITS,
    LARGEST_OUTCOMES,
    LARGEST_PREDICTIONS,
    OWN_DIFFERENCES,
    PASSED,
    SOURCE,
    SUCCESS,
    answers_alike,
)
from ..analysis.indicator import NO_SPREAD, reversed_pairs
from ..analysis.outcomes import Outcomes
from ..analysis.planning import ESTIMATE, SAME, UPPER_LIMIT
from ..analysis.results import Results
from ..analysis.significance import ALPHA, of_distances, select_deciding
from ..analysis.statistics import ONE_TRAINING
from ..analysis.verdicts import MEDIANS, Measure, Verdict, together
from ..errors import UsageError
from ..records.answers import FAIL, NOT_APPLICABLE, NOTED, PASS, Check, Checked
from ..records.attack import NORMS
from ..records.manifest import suite_names
from .format import bound, detectable_points, distance, fixed, number, p_text, percent, percent_2, plural, points, whole

if TYPE_CHECKING:
    import pandas

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")
Row = Mapping[Any, Any]  # of `Results.deployments`, or of `Results.deployed_networks`


def group(pairs: Iterable[tuple[Key, Value]]) -> dict[Key, list[Value]]:
    """Return the values of each key, in their order."""
    groups: dict[Key, list[Value]] = {}
    for key, value in pairs:
        groups.setdefault(key, []).append(value)
    return groups


# the heading -----------------------------------------------------------------------------------------------------


def title(results: Results) -> str:
    """Return the heading of a run."""
    about = results.manifest["about"]
    subject = " on ".join(about[key] for key in ("model", "dataset") if about.get(key))
    return ", ".join(part for part in (subject, f"suite {results.manifest['suite']['name']}") if part)


def setting(results: Results) -> str:
    """Say what was compared, on how many images, and how often."""
    names = [model["name"] for model in results.manifest["models"]]
    sizes = sorted({names.count(name) for name in results.models})
    parts = [", ".join(results.models)]
    if sizes != [1]:
        parts[0] += f": {' to '.join(map(str, sizes))} trainings each"
    used = results.manifest["images"]["used"]
    if results.on_all_images:
        parts.append(f"{used} images of the test set, also misclassified ones")
    else:
        classify = f"all {len(names)} classify" if len(names) > 1 else "the model classifies"
        parts.append(f"{used} images that {classify} correctly")
    if not all(results.deterministic(attack) for attack in results.attacks):
        parts.append(_repeats(results))
    return "; ".join(parts)


def _repeats(results: Results) -> str:
    """Say how often random attacks were repeated."""
    text = plural(results.manifest["repeats"], "repeat")
    for attack, repeats in results.own_repeats.items():
        text += f" ({attack} {repeats})"
    if results.is_spread:
        text += " per training, each with its own draws"
    return text


# the answer ------------------------------------------------------------------------------------------------------

ONE_NETWORK = (
    "One network each: if they were trained separately, run-to-run effects are confounded with what else differs."
)
ENOUGH_TRAININGS = 10
"""Of each framework: from here on, what has 80 % power by the formula has about as much in simulations of three."""
NOMINALLY = ", nominally (with few trainings, rather in 6 to 8)"
"""What docs/validity.md has for two to nine trainings of a framework, and for pairs of up to ten."""
NOMINAL = "That is nominal: with few trainings, it would rather be in 6 to 8."
NOTHING_TO_COMPARE = "No attack ran on every model: there is nothing to compare."
RATE: Measure = "success rate"


class Statement(NamedTuple):
    """A verdict in words.

    Attributes
    ----------
    attack : str
        Its name.
    kind : str
        ``"different"``, ``"same"`` or ``"nothing"``.
    word : str
        The verdict in two or three words.
    sentences : list of str
        What it rests on.
    """

    attack: str
    kind: str
    word: str
    sentences: list[str]


KINDS = {True: "different", False: "same", None: "nothing"}
WORDS = {True: "Significant difference", False: "No significant difference", None: "No information"}


class Answers(NamedTuple):
    """What a run answers, "" or nothing where it does not ask.

    Attributes
    ----------
    sources, deployed : str
        About the models themselves, and about what was deployed of them.
    statements : list of Statement
        About each attack.
    together : list of str
        About all attacks.
    """

    sources: str
    statements: list[Statement]
    together: list[str]
    deployed: str


def answers(results: Results) -> Answers:
    """Return all answers of a run."""
    return Answers(
        answer(results) if results.compares_sources else "",
        [state(verdict, is_nominal(results)) for verdict in results.verdicts],
        all_together(results),
        answer_deployed(results) if results.has_deployments else "",
    )


def answer(results: Results) -> str:
    """Return the answer about the sources in one sentence; `answer_deployed` has that about deployed networks."""
    verdicts = results.verdicts
    if results.same_weights:
        return "Same-weights control: every framework runs the same weights, so there is nothing to rank."
    if not verdicts:
        if len(results.sources) > 1:
            return NOTHING_TO_COMPARE
        return f"Only one {'model' if len(results.labels) == 1 else 'framework'}: there is nothing to compare."
    if unsound := _unsound(results):
        return f"Is one easier to fool? No answer yet: {unsound}. Check bounds and preprocessing first."
    unit = "these frameworks" if verdicts[0].level == "frameworks" else "these trained models"
    different = [verdict for verdict in verdicts if verdict.different]
    same_rates = [verdict for verdict in verdicts if verdict.different is False and verdict.measure == RATE]
    if different and same_rates and _measures(different) == "distances":
        sentence = (
            f"Is one easier to fool? No significant difference in {_measures(same_rates)} between {unit}, but "
            f"{_easier(different)}."
        )
    elif different:
        sentence = f"Is one easier to fool? Yes, of {unit}: {_easier(different)}."
    elif results.is_uneven:
        sentence = f"Frameworks cannot be compared: {', '.join(results.single_trainings)} has one training."
    elif all(verdict.different is None for verdict in verdicts):
        sentence = f"Is one easier to fool? These attacks give no information about {unit}."
    else:
        sentence = f"Is one easier to fool? No significant difference in {_measures(verdicts)} between {unit}."
    if verdicts[0].level == "frameworks":
        return sentence + _spread_of_trainings(results)
    if results.has_several_trainings:
        return sentence
    return f"{sentence} {ONE_TRAINING if results.is_of_the_zoo else ONE_NETWORK}"


def _easier(verdicts: Sequence[Verdict]) -> str:
    """Say which model is easier to fool than which by verdicts that find a difference."""
    attacks = group(((v.easier, v.harder, _measures([v])), v.attack) for v in verdicts)
    return "; ".join(
        f"{easier} is easier to fool than {harder} ({measure} under {', '.join(names)})"
        for (easier, harder, measure), names in attacks.items()
    )


def _unsound(results: Results) -> str:
    """Say which trained models are probably not asked as they were trained, "" where none is seen to be."""
    suspects = {
        "less than half the accuracy of the best model": results.poor_models,
        "no more accuracy than naming the most frequent class each time would": results.at_chance,
    }
    for reason, accuracies in suspects.items():
        models = [f"{name} ({percent(rate)})" for name, rate in accuracies.items() if name in results.sources]
        if models:
            return f"{', '.join(models)} {'has' if len(models) == 1 else 'have'} {reason}"
    return ""


def _measures(verdicts: Sequence[Verdict]) -> str:
    """Say what the verdicts are about: those that differ, or all that say something."""
    different = [verdict for verdict in verdicts if verdict.different]
    decided = different or [verdict for verdict in verdicts if verdict.different is not None]
    names = dict.fromkeys("success rates" if verdict.measure == RATE else "distances" for verdict in decided)
    return (" and " if different else " or ").join(names)


def _spread_of_trainings(results: Results) -> str:
    """Say how far single trainings of one framework are apart, under the attack where that is furthest; "" for 0."""
    spread, attack = max(
        (max(float(np.ptp(rates)) for rates in outcomes.rates.values()), outcomes.attack)
        for outcomes in results.outcomes
    )
    return f" Trainings of one framework differ by up to {points(spread)} points ({attack})." if spread else ""


def is_nominal(results: Results) -> bool:
    """Whether trainings are too few for what is called detectable to be detected as often as is said."""
    return results.level == "frameworks" and min(map(len, results.outcomes[0].rates.values())) < ENOUGH_TRAININGS


def all_together(results: Results) -> list[str]:
    """Say in a sentence what all attacks together show of frameworks; nothing where only one thing can differ."""
    summed = together(results)
    if summed is None:
        return []
    verdict = {True: "frameworks differ", False: "no significant difference", None: "undecided"}[summed.different]
    if len(summed.p) > 1:
        with_distances = "these with distances"
    elif any(verdict.measure == RATE and not verdict.why for verdict in results.verdicts):
        with_distances = "success rates and distances"
    else:
        with_distances = "distances"
    source = {"success rates": "success rates", "distances": with_distances}
    p = ", ".join(f"{p_text(p)} from {source[name]}" for name, p in summed.p.items())
    return [f"All attacks together: {verdict} ({p}; permuting trainings assumes equal spreads)."]


# a verdict, in sentences and on a line ---------------------------------------------------------------------------

DIFFER: dict[Measure, str] = {
    RATE: "by {by}",
    **{median: f"by {{by}} in the {median} of their trainings" for median in MEDIANS.values()},
    "nearness": "by {by} in how often a smaller change fools it than another model",
}
DIFFER_ON_A_LINE: dict[Measure, str] = {
    RATE: "{easier} easier by {by}",
    **{median: f"{{easier}} easier by {{by}} in {median}" for median in MEDIANS.values()},
    "nearness": "{easier} easier by {by}†",
}


def _is_of_medians(verdict: Verdict) -> bool:
    return verdict.measure in MEDIANS.values()


def _write(verdict: Verdict, value: float, unit: str = "") -> str:
    """Write a difference of what a verdict compares: a distance, or points and their unit."""
    return distance(value) if _is_of_medians(verdict) else points(value) + unit


def state(verdict: Verdict, nominal: bool = False) -> Statement:
    """Return a verdict in words. It never lacks the difference that would have been detected, or why there is none."""
    if verdict.why:
        sentences = [f"{verdict.why[0].upper()}{verdict.why[1:]}."]
    else:
        sentences = [_difference(verdict), *_power(verdict, nominal), *_limits(verdict)]
    return Statement(verdict.attack, KINDS[verdict.different], WORDS[verdict.different], sentences)


def _difference(verdict: Verdict) -> str:
    p = p_text(verdict.p_adjusted).replace(" ", "\N{NO-BREAK SPACE}")
    if not verdict.difference:
        alike = "rates are the same" if verdict.measure == RATE else "models are alike in their distances"
        return f"All {alike} ({p})."
    by = DIFFER[verdict.measure].format(by=_write(verdict, verdict.difference, " points"))
    if verdict.different:
        return f"The models differ ({p}): {verdict.easier} is easier to fool than {verdict.harder}, {by}."
    return f"The furthest apart are {verdict.easier}, the easier to fool, and {verdict.harder}, {by} ({p})."


def _power(verdict: Verdict, nominal: bool) -> list[str]:
    if verdict.few:
        return [f"Only {verdict.few}, too few to say which difference would be detected, or is excluded."]
    true = f"A true difference of {_write(verdict, verdict.detectable, ' points')}"
    if verdict.detectable > 1 and not _is_of_medians(verdict):
        true = "Not even a true difference of 100 points"
    return [f"{true} would be detected in 8 of 10 such comparisons.", *[NOMINAL] * nominal]


def _limits(verdict: Verdict) -> list[str]:
    sentences = []
    if not math.isnan(verdict.equivalent_within):
        margin = _write(verdict, verdict.equivalent_within, " points")
        sentences.append(f"Differences of more than {margin} are excluded (two one-sided tests, 5 %).")
    if not math.isnan(verdict.seed_share):
        seed = "The training seed, with its draws," if verdict.has_draws else "The training seed"
        sentences.append(
            f"{seed} accounts for {percent(verdict.seed_share, 0)} of the variance between trained models "
            f"(95 % interval {percent(verdict.seed_low, 0)} to {percent(verdict.seed_high, 0)})."
        )
    return sentences


def verdict_line(verdict: Verdict) -> tuple[str, str, str]:
    """Return a verdict as the attack, the finding, and the evidence."""
    if verdict.different is None:
        return verdict.attack, "no information", verdict.why
    apart = "no difference"
    if verdict.easier:
        by = _write(verdict, verdict.difference)
        apart = DIFFER_ON_A_LINE[verdict.measure].format(easier=verdict.easier, by=by)
    detectable = (distance if _is_of_medians(verdict) else detectable_points)(verdict.detectable)
    seen = f"{verdict.few}: too few" if verdict.few else f"{detectable} detectable*"
    evidence = [f"{apart} ({seen})", p_text(verdict.p_adjusted)]
    if not math.isnan(verdict.seed_share):
        seed = "seed+draw" if verdict.has_draws else "seed"
        ends = f"{fixed(100 * verdict.seed_low, 0)}–{fixed(100 * verdict.seed_high, 0)}"
        evidence.append(f"{seed} {percent(verdict.seed_share, 0)} ({ends})")
    if verdict.norm and not math.isnan(verdict.equivalent_within):
        evidence.append(f"over {distance(verdict.equivalent_within)} excluded at 5 %")
    return verdict.attack, "differ" if verdict.different else "not significant", "; ".join(evidence)


def explain_lines(results: Results) -> list[str]:
    """Return what the marks and words in the lines of verdicts mean."""
    verdicts = results.verdicts
    sentences = []
    if any(not math.isnan(verdict.detectable) for verdict in verdicts):
        nominally = f"{NOMINALLY}," if is_nominal(results) else ""
        sentences.append(
            f"* detected in 8 of 10 such comparisons{nominally} if this were the true difference; rates in percentage "
            "points"
        )
    if any(verdict.measure == "nearness" for verdict in verdicts):
        sentences.append("† on so many more of 100 images, a smaller change fools this model than fools another")
    margins = [
        f"{verdict.attack} {points(verdict.equivalent_within)}"
        for verdict in verdicts
        if not verdict.norm and not math.isnan(verdict.equivalent_within)
    ]
    if margins:
        sentences.append(f"larger differences than these are excluded at 5 %: {', '.join(margins)} points")
    if any(not math.isnan(verdict.seed_share) for verdict in verdicts):
        sentences.append(
            "seed: its share of the variance between trained models on these images (95 %); +draw: with draws"
        )
    return sentences


def name_stronger_suite(results: Results) -> str:
    """Return a line that names the suite of references, "" where a run has some, or attacks of the user's own."""
    with_reference = not all(record.in_indicator for record in results.attack_records.values())
    if results.same_weights or with_reference or results.manifest["suite"]["name"] not in suite_names():
        return ""
    return (
        "attacks of many steps can find adversarial images that these miss: --suite reference has APGD, Square and "
        "searches for the smallest change"
    )


# above the tables: is it the framework, or the seed? -------------------------------------------------------------


def headline(results: Results) -> list[str]:
    """Return what the comparison found: about the frameworks, one sentence per attack, and about deployed networks."""
    deployed = [answer_deployed(results)] if results.has_deployments else []
    if results.same_weights or len(results.sources) < 2:
        return deployed
    if not results.outcomes:
        return [NOTHING_TO_COMPARE, *deployed]
    if results.level != "frameworks":
        return [_level(results), *deployed]
    return [*_frameworks(results), *all_together(results), *deployed]


def _level(results: Results) -> str:
    """Say why frameworks are not compared."""
    if not results.is_of_the_zoo:
        return (
            "The image is the unit of analysis, so a difference is between these particular networks. To compare how "
            "networks were trained, pass several networks of each kind."
        )
    single = ", ".join(results.single_trainings)
    if results.is_uneven:
        return f"Only one training of {single}: frameworks cannot be compared. Pass several --training-seeds."
    return f"{ONE_TRAINING} Pass several --training-seeds to compare frameworks."


def _frameworks(results: Results) -> list[str]:
    """Say how far frameworks are apart, by their success rates and by the median distances of their trainings."""
    joint = select_deciding(results.tests("frameworks"))
    about_distances = of_distances(joint)
    tested = joint.p.notna()
    counts = {"attack": int((tested & ~about_distances).sum()), "distance": int((tested & about_distances).sum())}
    family = " and ".join(plural(count, noun) for noun, count in counts.items() if count)
    p_of_rates = joint[~about_distances].set_index("attack").p_adjusted
    p_of_distances = joint[about_distances & tested].set_index("attack").p_adjusted
    sentences: list[str] = []
    shares: dict[Any, Any] = {}
    try:
        shares = results.variance().to_dict("index")
    except UsageError as error:
        sentences.append(f"Variance shares are not available: {error}")
    for outcomes in results.outcomes:
        test = "no test, as all trained models have the same rate"
        if not math.isnan(p_of_rates[outcomes.attack]):
            test = f"{p_text(p_of_rates[outcomes.attack])}, joint test, adjusted for {family}"
        sentences.append(_rates(outcomes, test) + _share(shares.get(outcomes.attack), len(outcomes.rates)))
    for outcomes in results.outcomes:
        if outcomes.attack in p_of_distances:
            p = p_text(p_of_distances[outcomes.attack])
            sentences.append(_medians(outcomes, f"{p}, joint test, adjusted for {family}"))
    return sentences


def _rates(outcomes: Outcomes, test: str) -> str:
    means = {name: float(rates.mean()) for name, rates in outcomes.rates.items()}
    within = math.sqrt(np.mean([rates.var(ddof=1) for rates in outcomes.rates.values()]))
    return (
        f"{outcomes.attack}: the framework means differ by at most {points(max(means.values()) - min(means.values()))} "
        f"points{_direction(means)} ({test}); the standard deviation between trainings of one framework is "
        f"{points(within)} points."
    )


def _share(share: dict[str, float] | None, frameworks: int) -> str:
    if share is None:
        return ""
    estimate, low, high = (percent(share[end], 0) for end in ("share", "low", "high"))
    sentence = (
        f" Frameworks account for an estimated {estimate} of the variance between trained models (95 % interval {low} "
        f"to {high}, wide because it generalises from only {frameworks} frameworks)."
    )
    if share["high"] == 0:
        sentence += " Even 0 % is too much: in 39 of 40 cases chance alone would put the means further apart."
    return sentence


def _medians(outcomes: Outcomes, test: str) -> str:
    if outcomes.not_compared:
        return f"{outcomes.attack}: distances are not compared: {outcomes.not_compared}."
    nearness = {name: -float(medians.mean()) for name, medians in outcomes.medians.items()}
    apart = distance(max(nearness.values()) - min(nearness.values()))
    return (
        f"{outcomes.attack}: the frameworks' means of their trainings' median {outcomes.norm} differ by at most "
        f"{apart}{_direction(nearness)} ({test})."
    )


def _direction(ease: dict[str, float]) -> str:
    """Name the easiest and the hardest to fool, by numbers that are larger for what is easier; "" if all are alike."""
    easiest, hardest = max(ease, key=ease.__getitem__), min(ease, key=ease.__getitem__)
    if ease[easiest] == ease[hardest]:
        return ""
    return f", {easiest} the easiest to fool and {hardest} the hardest"


# below the tables ------------------------------------------------------------------------------------------------

NARROW = 0.25  # range of images
OF_THE_PAPER = 6  # models that its images are common to, if they are those of a whole dataset
NAMED = 3  # models of which a failed check gives its figure
NO_CHECKS = "Health checks have not been run; `ev.run_checks()` runs them."
WITHIN_NOISE = "(within noise)"


def notes(results: Results) -> list[str]:
    """Return the sentences that belong under the tables: what the figures are conditional on, and the limits of R."""
    manifest = results.manifest
    settings = (
        f"{manifest['images']['used']} images, {_repeats(results)}, suite {manifest['suite']['name']}, seed "
        f"{manifest['seed']}."
    )
    behaviour = behaviour_notes(manifest["models"])
    if results.same_weights:
        return [*_control_notes(results), *behaviour, f"{_condition(results)}.", settings]
    if results.has_indicator:
        settings += (
            " R is relative to the models compared: in P, 0 is the least and 1 the most easily fooled of them, however "
            "small the difference between them."
        )
    return [
        _condition_and_changes(results),
        settings,
        *_fewer_images(results),
        *manifest["about"].get("data_notes", []),
        *_model_notes(results),
        *behaviour,
        *_attack_notes(results),
        *_training_notes(results),
        *_order_notes(results),
        *_significance_notes(results),
        *_twin_notes(results),
        *deployment_notes(results),
        *(check_notes(results.checked) if results.checked else [NO_CHECKS]),
        *_paper_notes(results),
    ]


def key_notes(results: Results) -> list[str]:
    """Return the sentences that a reader of one screen needs, the most important first."""
    if results.same_weights:
        return _control_notes(results)
    return [
        *_reading_notes(results),
        *_model_notes(results),
        *behaviour_notes(results.manifest["models"]),
        *_attack_notes(results),
        _condition_and_changes(results),
        *_weight_notes(results),
        *_fewer_images(results),
    ]


def _paper_notes(results: Results) -> list[str]:
    if not results.paper:
        return []
    sentence = "paper: Guo et al., Fig. 6, measured on their own trained models and images"
    if results.on_all_images or len(results.labels) <= OF_THE_PAPER:
        return [f"{sentence}."]
    how = "see `ev.conditioning`" if results.conditioned else "`ev.run_conditioning()` measures by how much"
    return [
        f"{sentence}. Its images are common to few models; those common to all {len(results.labels)} here are, as a "
        f"rule, harder to fool: {how}."
    ]


def _weight_notes(results: Results) -> list[str]:
    """Say that R weighs every attack alike, by the attacks with the smallest and the largest difference."""
    if len(results.models) < 2 or not results.has_indicator:
        return []
    rates = results.indicator_rates().values()
    apart = {attack: float(np.ptp([of[attack] for of in rates])) for attack in results.indicator_attacks}
    apart = {attack: difference for attack, difference in apart.items() if difference > NO_SPREAD}
    if len(apart) < 2:
        return ["R ranks only the models compared, however small the differences between their rates."]
    least, most = min(apart, key=apart.__getitem__), max(apart, key=apart.__getitem__)
    return [
        f"R weighs every attack alike: {points(apart[least])} points under {least} count as much as "
        f"{points(apart[most])} under {most}."
    ]


def _condition(results: Results) -> str:
    if results.on_all_images:
        text = (
            "All rates are of all images attacked, also those that a model misclassifies: these have fallen without an "
            "attack"
        )
        bounded = group(
            (results.attack_records[attack].norm, (attack, bound(_epsilon(results, attack))))
            for attack in results.attacks
            if results.attack_records[attack].is_bounded
        )
        if not bounded:
            return text
        bounds = "; ".join(
            f"{', '.join(attack for attack, _ in pairs)}: {NORMS[norm]} ≤ {', '.join(bound for _, bound in pairs)}"
            for norm, pairs in bounded.items()
        )
        return f"{text}. Under a bound ({bounds}), 100 % minus the rate is at least the robust accuracy"
    count = len(results.manifest["models"])
    classify = f"all {count} models classify" if count > 1 else "the model classifies"
    share = percent(results.correct_by_all)
    return f"All rates are conditional on images that {classify} correctly ({share} of the test set)"


def _epsilon(results: Results, attack: str) -> float:
    """Return within which distance an attack has searched; for images in colour, that may be another."""
    record = results.attack_records[attack]
    if "radius" in record.extras:
        for model in results.models:
            radius = results.values(model, attack, "radius")
            if radius.size:
                return float(radius.flat[0])
    return float(record.settings["epsilon"])


def _condition_and_changes(results: Results) -> str:
    changes = "" if results.on_all_images else "; adding or removing a model changes the subset, every rate and R"
    return f"{_condition(results)}{changes}."


def _fewer_images(results: Results) -> list[str]:
    images = results.manifest["images"]
    if images["used"] == images["asked"] or results.on_all_images:
        return []
    return [
        f"Fewer images than the {images['asked']:,} requested: every model classifies {images['used']:,} of "
        f"{images['of']:,} correctly, and all of these are attacked."
    ]


def _model_notes(results: Results) -> list[str]:
    sentences: list[str] = []
    low, high = results.manifest["images"].get("range") or (0.0, 1.0)
    if high - low < NARROW:
        sentences.append(
            f"The images' values lie between {low:.3g} and {high:.3g}, where [0, 1] is expected: changes of {NARROW:g} "
            "and more leave their range. Check how they were scaled; a set whose largest value is 16 is divided by 16."
        )
    explained = {model["name"] for model in results.manifest["models"] if model.get("cause")}
    for model, accuracy in (results.poor_models | results.at_chance).items():
        if model in explained:
            continue
        chance = ", no more than naming the most frequent class each time would" if model in results.at_chance else ""
        sentences.append(
            f"{model} classifies only {percent(accuracy)} of the test set correctly{chance}. Check its bounds, "
            "preprocessing and training data before you interpret its rates."
        )
    if len(results.labels) == 1:
        sentences.append("Only one model: there is nothing to compare, so P and R are 0.")
    elif len(results.models) == 1:
        sentences.append("Only one framework: P and R are 0, and the pairs compare its trainings.")
    return sentences


def behaviour_notes(models: Sequence[Mapping[str, Any]]) -> list[str]:
    """Say, by their entries in a manifest, what models do that those of a comparison should not.

    Two are one network, one would be more accurate if it was asked otherwise, answers vary with the batch or from pass
    to pass, or a gradient is not that of the logits.
    """
    sentences = _one_network_notes(models)
    for name, trained in group((model["name"], model) for model in models).items():
        sentences += [model["cause"] for model in trained if model.get("cause")]
        if any(model.get("depends_on_batch") for model in trained):
            sentences.append(f"{name}: answers depend on the other images of a batch, so each image was asked alone.")
        if error := max(model.get("slope_error") or 0.0 for model in trained):
            sentences.append(
                f"The gradient of {name} is not that of its logits: slopes by it are {percent(error, 0)} off, and "
                "attacks that follow it may fool too few images. Look for detached tensors, and for a vjp or a "
                "backward pass of your own; one that stands in for the gradient on purpose may differ."
            )
        sentences += _noise_notes(name, [model["identity"] for model in trained if "identity" in model])
    return sentences


def _noise_notes(name: str, identities: Sequence[Mapping[str, Any]]) -> list[str]:
    noise, gradient = (
        max((identity[kind] for identity in identities), default=0.0) for kind in ("noise", "gradient_noise")
    )
    if not noise and not gradient:
        return []
    differ = f"logits by up to {noise:.1g}" if noise else f"gradients by up to {gradient:.1g}"
    cells = "The weights are not known, so cells cannot be found again and are computed anew each time."
    if all(identity["weights"] for identity in identities):
        cells = "Cells are found again by the weights."
    return [f"{name}: two passes over the same images differ, {differ}, and so can outcomes at near ties. {cells}"]


def _one_network_notes(models: Sequence[Mapping[str, Any]]) -> list[str]:
    """Name models that answer alike in every bit, with one set of weights: they may have been meant to differ."""
    parts = ("weights", "logits", "probes", "gradient")
    alike = group(
        (
            (model["framework"], *(model["identity"].get(part) for part in parts)),
            f"{model['name']}/{model['training_seed']}",
        )
        for model in models
        if model.get("identity") and "deployment" not in model["info"]
    )
    return [
        f"{_shorten(labels, NAMED)} are one network: their weights and answers are the same in every bit. If they "
        "should differ, wrap a copy for each: weights that are loaded later change a network that was wrapped before."
        for labels in alike.values()
        if len(labels) > 1
    ]


def _shorten(names: Sequence[str], most: int) -> str:
    return ", ".join([*names[:most], *["…"] * (len(names) > most)])


def _attack_notes(results: Results) -> list[str]:
    """Say where attacks could not run, and which of them are not in R."""
    sentences = [
        f"{attack} is not applicable to {labels}: {why}"
        for (attack, why), labels in _models_by_reason(results.not_applicable)
    ]
    sentences += [
        f"{attack} failed on {labels}: {why} Rerun the same command to try it again."
        for (attack, why), labels in _models_by_reason(results.failed)
    ]
    if results.failed:
        sentences.append(f"No health checks of {', '.join(results.failed)}, because an attack failed.")
    beside = [attack for attack, record in results.attack_records.items() if not record.in_indicator]
    if beside and results.has_indicator:
        sentences.append(f"A reference beside R, not in it: {', '.join(beside)}.")
    left_out = [attack for attack in results.attacks if attack not in [*results.common_attacks, *beside]]
    if left_out:
        sentences.append(f"Excluded from R because not every model ran it: {', '.join(left_out)}.")
    for attack in results.failed_starts:
        sentences.append(
            f"{attack}: some images have no starting point, so the attack could not begin. These failures are no sign "
            f"of robustness; R is also given without {attack}."
        )
    by_note = group((note, attack) for attack in results.attacks for note in results.attack_records[attack].notes)
    return [*sentences, *(f"{', '.join(attacks)}: {note}" for note, attacks in by_note.items())]


def _models_by_reason(reasons: dict[str, dict[str, str]]) -> Iterable[tuple[tuple[str, str], str]]:
    """Return the models by attack and reason."""
    models = group((reason, label) for label, of_model in reasons.items() for reason in of_model.items())
    return ((reason, ", ".join(labels)) for reason, labels in models.items())


def _training_notes(results: Results) -> list[str]:
    """Say how the frameworks' trainings differ, where the rest of the training is identical."""
    differences = {
        model["framework"]: model["info"]["differences"]
        for model in results.manifest["models"]
        if "differences" in model["info"]
    }
    by_kind = group(
        (kind, f"{framework}: {text}") for framework, kinds in differences.items() for kind, text in kinds.items()
    )
    return [
        f"Each framework uses its own {kind}: {'; '.join(each)}. All other training settings are identical."
        for kind, each in by_kind.items()
    ]


def _order_notes(results: Results) -> list[str]:
    """Say which variants of R rank the models differently."""
    if len(results.models) < 2 or not results.has_indicator:
        return []
    has_converged = not any(outcomes.not_compared for outcomes in results.outcomes)
    changed = []
    for variant, r in results.indicator_variants.items():
        pairs = reversed_pairs(results.indicator_variants["all"], r)
        if pairs and (has_converged or "from distances" not in variant):
            changed.append(f"{variant}: {', '.join(f'{b} before {a}' for a, b in pairs)}")
    if not changed:
        return []
    return [f"These variants rank models differently from R, the more robust one first: {'; '.join(changed)}."]


def _significance_notes(results: Results) -> list[str]:
    if not results.compares_sources or len(results.labels) < 2 or not results.outcomes:
        return []
    sentences = []
    if results.indicator_attacks:
        over = "images and trainings" if results.has_several_trainings else "images"
        if results.is_uneven:
            over += f" ({', '.join(results.single_trainings)} with one training: images only)"
        sentences.append(
            f"Bootstrap range: the central 95 % of R over resamples of {over}. It is not a confidence interval, "
            "because R depends on the smallest and the largest rate and is therefore irregular. Rank: the shares of "
            "resamples in which a model has the smallest R, the second smallest, and so on."
        )
    if results.within_noise:
        compared = f"{results.level} ({', '.join(results.sources)})" if results.has_deployments else results.level
        sentences.append(
            f"{WITHIN_NOISE}: the joint test of all {compared} is not significant for "
            f"{', '.join(results.within_noise)}, so the order in P may be due to chance."
        )
    if results.is_uneven:
        sentences.append(
            "P compares means over several trainings with a single training; no test covers this comparison."
        )
    unit = "training run" if results.level == "frameworks" else "image"
    sentences.append(
        f"Differences: the {unit} is the unit of analysis. For distances, the difference is the share of images fooled "
        "at a smaller one on the first model minus that on the second. "
        '"easier to fool" and "not significant" follow p values with Holm\'s adjustment for all pairs and attacks; '
        "each interval is for one pair, without adjustment, so the two can disagree."
    )
    for attack in results.exact_pixel.attacks:
        sentences.append(
            f"{attack}: tests, differences and variances use the expected success over all draws of positions; success "
            f"rates, P and R use the {results.repeats(attack)} draws of this run."
        )
    return sentences


def _twin_notes(results: Results) -> list[str]:
    """Say which sources are no independent trainings, and what that changes; `deployment_notes` has the deployed."""
    correlations = group(
        ((pair.a[0], pair.b[0]), pair.correlation)
        for pair in results.twins
        if {pair.a[0], pair.b[0]} <= {*results.sources}
    )
    if not correlations:
        return []
    each = "; ".join(
        f"{a} and {b}, {plural(len(of_pair), 'pair')} of trainings (correlation of the weights at least "
        f"{min(of_pair):.2f})"
        for (a, b), of_pair in correlations.items()
    )
    sentences = [f"Twins, which began from the same weights and are no independent trainings: {each}."]
    if results.level == "frameworks":
        sentences.append(
            "Two frameworks are tested by the paired t if each training of both has its twin in the other. "
            "Joint tests, variance components and the range of R treat all trainings as independent. In simulations "
            "with twins, the joint test erred in 0 to 8 % of cases, at a level of 5 %."
        )
    if results.transferred is not None:
        sentences.append("Means and p of transfer leave out pairs of twins.")
    return sentences


def check_notes(checked: Checked) -> list[str]:
    """Return how many checks passed, and for each failed check its figure and what to do."""
    outcomes = [check.outcome for check in checked.checks]
    kinds = [PASS, FAIL, NOT_APPLICABLE, *[NOTED] * (NOTED in outcomes)]
    total = ", ".join(f"{outcomes.count(outcome)} {outcome}" for outcome in kinds)
    sentences = [f"Health checks on {checked.images} images: {total}."]
    for name, checks in find_failed(checked).items():
        figures = [f"{check.model}: {check.figure}" for check in checks[:NAMED]]
        if len(checks) > NAMED:
            figures.append(f"and {len(checks) - NAMED} more, see `ev.checks`")
        sentences.append(f"Failed: {name}: {'; '.join(figures)}. {checks[0].advice}")
    return sentences


def find_failed(checked: Checked) -> dict[str, list[Check]]:
    """Return the checks that failed, by their names."""
    return group((check.check, check) for check in checked.checks if check.outcome == FAIL)


def check_lines(results: Results) -> list[str]:
    """Return one line per failed health check, with the models that failed it."""
    if results.same_weights:
        return []
    if results.checked is None:
        return [NO_CHECKS]
    return [
        f"Failed check: {name}: {_shorten([check.model for check in checks], 4)} ({len(checks)} of "
        f"{len(results.labels)} models)"
        for name, checks in find_failed(results.checked).items()
    ]


def _control_notes(results: Results) -> list[str]:
    control = results.same_weights
    assert control is not None
    infos = [model["info"] for model in results.manifest["models"]]
    trained = next(info["same_weights"] for info in infos if "same_weights" in info)
    attacks = " and ".join(attack for attack, record in results.attack_records.items() if record.in_control)
    return [
        PASSED if control["passed"] else FAILED,
        f"Every framework runs the weights of {trained}. The largest difference between logits is "
        f"{control['logits']:.1e} of their standard deviation (limit {LARGEST_LOGITS:g}); "
        f"{percent(control['predictions'], 2)} of the predictions on the whole test set differ (limit "
        f"{percent(LARGEST_PREDICTIONS)}).",
        f"Under {attacks}, outcomes may differ on at most {percent(LARGEST_OUTCOMES)} of the images; other attacks may "
        "diverge at the first near tie. There is no R, because there is nothing to rank.",
    ]


# deployed networks -----------------------------------------------------------------------------------------------

BY_SOURCE = "¹"
BY_DIFFERENCES = "²"
MOST_CHANGED = 0.5  # of the classes, where a file still is what it is said to be converted from


def name_comparison(row: Row) -> str:
    """Return an attack's name as it stands in tables of deployments: with what of it is compared, and a mark."""
    name = str(row["attack"]) + {SOURCE: BY_SOURCE, OWN_DIFFERENCES: BY_DIFFERENCES}.get(row["gradient"], "")
    return name if row["measure"] == SUCCESS else f"{name}, {_norm(row)}"


def _norm(row: Row) -> str:
    return str(row["measure"]).removeprefix("median ")


def write_apart(row: Row, value: float) -> str:
    """Write a difference of a deployment from its source: of rates in points, or of distances."""
    return points(value) if row["measure"] == SUCCESS else distance(value)


def write_difference(row: Row) -> str:
    """Write the difference of a deployment from its source, with its interval."""

    def sign(value: float) -> str:
        size = write_apart(row, abs(value))
        return size if size.strip("0.") == "" else f"{'−' if value < 0 else '+'}{size}"

    difference = sign(row["difference"])
    return difference if math.isnan(row["low"]) else f"{difference} ({sign(row['low'])} to {sign(row['high'])})"


def answer_deployed(results: Results) -> str:
    """Return in a sentence or two which deployments are easier or harder to fool than their sources."""
    reasons = group((reason, name) for name, reason in results.not_asked.items())
    return " ".join(
        [
            *_answer_attacked(results),
            *(
                f"{', '.join(names)}: converted, and not applicable to every attack: {reason}."
                for reason, names in reasons.items()
            ),
        ]
    )


def _answer_attacked(results: Results) -> list[str]:
    strangers, sentences = _find_strangers(results)
    all_rows = results.deployments().to_dict("records")
    rows = [row for row in all_rows if row["deployment"] not in strangers]
    if all_rows and not rows:
        return ["No answer yet.", *sentences]
    if not rows:
        return [*sentences, "No attack ran on a deployed network and its source: there is nothing to compare."]
    not_compared = group(
        ((name_comparison(row), row["not_compared"]), row["deployment"]) for row in rows if row["not_compared"]
    )
    last = [
        f"{attack}: distances of {', '.join(names)} are not compared: {reason}."
        for (attack, reason), names in not_compared.items()
    ]
    names = dict.fromkeys(row["deployment"] for row in rows)
    touched = {row["deployment"] for row in rows if not math.isnan(row["p_adjusted"])}
    same = [name for name in names if name not in touched]
    if touched and same:
        last.append(f"Every outcome is that of the source: {', '.join(same)}.")
    rows = [row for row in rows if not row["not_compared"]]
    rates = [row for row in rows if row["measure"] == SUCCESS]
    differing = [row for row in rows if row["p_adjusted"] < ALPHA]
    undecided = [row for row in rows if row["p_adjusted"] >= ALPHA]
    if not differing and not undecided:
        limit = points(max(row["equivalent_high"] for row in rates))
        compared = dict.fromkeys(row["deployment"] for row in rows)
        which = f" ({', '.join(compared)})" if strangers else ""
        sentences.append(
            f"No {'success' if not_compared else 'outcome'} of a deployed network{which} differs from its source's on "
            f"{rates[0]['images']} images; a difference of up to {limit} points is not excluded at 5 %."
        )
        return [*sentences, *last]
    if differing:
        sentences.append(f"Deploying makes a difference: {'; '.join(map(_describe, differing))}.")
    else:
        sentences.append("No significant difference between deployed networks and their sources.")
    others = "The other comparisons show none; in each, " if differing else "In each, "
    sentences += [others + text for text in _describe_power(undecided)]
    if rates and all(row["equivalent"] for row in rates):
        sentences.append(f"All success rates are shown to be within {points(DEPLOYED_MARGIN)} points of the source's.")
    elif rates and not any(row in differing for row in rates):
        limit = points(max(max(-row["equivalent_low"], row["equivalent_high"]) for row in rates))
        sentences.append(f"Success rates that differ by up to {limit} points are not excluded at 5 %.")
    return [*sentences, *last]


def _find_strangers(results: Results) -> tuple[set[str], list[str]]:
    """Return the deployments that do not classify as their sources, and what is said of them."""
    own_files = {model["name"] for model in results.manifest["models"] if _is_own_file(model)}
    strangers = {
        row["deployment"]: row for row in results.deployed_networks.to_dict("records") if row["changed"] > MOST_CHANGED
    }
    reason = {True: "it is another network, or it expects other images", False: "the conversion has damaged it"}
    sentences = [
        f"{name} gives {percent(row['changed'])} of the images another class than {row['source']} does: "
        f"{reason[name in own_files]}. Its differences say nothing of deploying."
        for name, row in strangers.items()
    ]
    return {*strangers}, sentences


def _describe(row: Row) -> str:
    """Return a difference in words."""
    name = row["deployment"]
    attack = row["attack"]
    more = row["difference"] > 0
    by = write_difference(row)
    if row["measure"] != SUCCESS:
        return f"{name} is {'harder' if more else 'easier'} to fool by {attack} ({by} in {_norm(row)})"
    fewer = f"{name} falls for {'more' if more else 'fewer'}"
    if row["gradient"] == OWN_DIFFERENCES:
        return f"{fewer} candidates of {attack} by its own finite differences{BY_DIFFERENCES} ({by} points)"
    if row["gradient"] == SOURCE:
        return f"{fewer} of its source's {attack} candidates{BY_SOURCE} ({by} points)"
    return f"{name} is {'easier' if more else 'harder'} to fool by {attack} ({by} points)"


def _describe_power(rows: Sequence[Row]) -> list[str]:
    """Say of each attack and measure what the comparison that needs the largest difference would have detected."""
    least: dict[str, Row] = {}
    for row in rows:
        attack = name_comparison(row)
        if not math.isnan(row["detectable"]) and (
            attack not in least or row["detectable"] > least[attack]["detectable"]
        ):
            least[attack] = row
    if not least:
        return []
    units = {True: " points", False: ""}
    detectable = ", ".join(
        f"{write_apart(row, row['detectable'])}{units[row['measure'] == SUCCESS]} by {attack}"
        for attack, row in least.items()
    )
    nominally = NOMINALLY if any(row["unit"] == "trainings" for row in least.values()) else ""
    return [f"this much would have been detected in 8 of 10 cases{nominally}: {detectable}."]


def _reading_notes(results: Results) -> list[str]:
    """Return what has to be known to read the tables of deployed networks, or of files that stand alone."""
    sentences = []
    if results.has_deployments:
        sentences.append(
            "A deployment and its source are one training, attacked on the same images with the same draws: everything "
            "is paired. A conversion that keeps float32 has to pass the same-weights control; any other is measured by "
            "it."
        )
        if SOURCE in set(results.deployments().gradient):
            sentences.append(
                f"{BY_SOURCE} FGSM by the source's gradient: the deployed network was asked about its source's "
                "candidates, which were made for the source. So fewer of them may fool it than its own gradient would "
                "find."
            )
    if any(model.get("own_differences") for model in results.manifest["models"]):
        sentences.append(
            f"{BY_DIFFERENCES} FGSM by finite differences of the deployed network's own answers. Where these are "
            "rounded to steps, as in int8, differences are often zero or noise, which hides the gradient: fewer "
            "successes then are no robustness."
        )
    return sentences


def deployment_notes(results: Results) -> list[str]:
    """Return what is known of deployed networks beyond the tables."""
    sentences = [*_reading_notes(results), *_own_file_notes(results)]
    for row in results.deployed_networks.to_dict("records"):
        if row["ties"] > 0:
            ties = percent(row["ties"], 1 if row["ties"] >= 0.001 else 3)
            sentences.append(
                f"In {row['deployment']}, the two largest logits are the same for {ties} of the images; the class is "
                "the first of them."
            )
    for name, trained in group((model["name"], model["info"]) for model in results.manifest["models"]).items():
        of_first = trained[0].get("deployment", {}).get("notes", [])  # others differ in their ranges alone
        sentences += [f"{name}: {note}." for note in of_first]
    return sentences


def file_notes(results: Results) -> list[str]:
    """Return what is done to images and answers of files of a user's own, a sentence for each file."""
    sentences = _own_file_notes(results)
    for model in results.manifest["models"]:
        if _is_own_file(model) and model["info"]["deployment"]["notes"]:
            each = "; ".join(model["info"]["deployment"]["notes"])
            sentences.append(f"{model['name']} ({model['info']['source']}): {each}.")
    return sentences


def _is_own_file(model: Mapping[str, Any]) -> bool:
    return bool(model["info"].get("deployment", {}).get("own_file"))


def _own_file_notes(results: Results) -> list[str]:
    """Say which files of a user's own do not answer as what they are taken to be converted from."""
    models = {(model["name"], model["training_seed"]): model for model in results.manifest["models"]}
    return [
        f"{entry['model'][0]}, training seed {entry['model'][1]}, does not answer as {entry['source'][0]}: logits "
        f"differ by up to {number(entry['logits'])} of their standard deviation, and "
        f"{percent_2(entry['changed'])} of the classes change. "
        "It is quantised, ends with a softmax, normalises its images itself (they are normalised for it as for its "
        "source, unless FILE,mean=0,std=1 says otherwise), or was not converted from that network."
        for entry in results.manifest.get("deployments", [])
        if _is_own_file(models[entry["model"][0], entry["model"][1]])
        and not answers_alike(entry["logits"], entry["changed"])
    ]


# plans -----------------------------------------------------------------------------------------------------------


def plan_notes(plan: pandas.DataFrame, difference: float, power: float) -> list[str]:
    """Say what the designs of a plan mean, and what they rest on."""
    same = plan[plan.design == SAME]
    is_described = same.room >= difference
    sentences = _needed_trainings(same[is_described], difference, power)
    beyond = ", ".join(dict.fromkeys(same[~is_described].attack))
    if beyond:
        sentences.append(
            f"Do not rely on the plan for: {beyond}. A rate of the pilot is less than {points(difference)} points from "
            "0 or 100 %, so its variance does not hold for this difference. Run a pilot with rates near those in "
            "question, or plan for a smaller difference."
        )
    reasons = [f"{row.attack}: {row.why}." for row in plan[plan.why != ""].itertuples()]
    if reasons:
        sentences += [*dict.fromkeys(reasons), "Plans are for success rates, not for distances."]
    if plan.seconds.isna().all():
        cost = "The pilot has no costs: the cheapest design asks the fewest queries, and training counts as free."
    elif plan.training_seconds.isna().all():
        cost = (
            "The cheapest design takes the least time for attacks, at the pilot's speed. Training counts as free: its "
            "time is not known."
        )
    else:
        cost = "The cheapest design takes the least time for training and attack, at the pilot's speed."
    return [*sentences, cost]


def _needed_trainings(same: pandas.DataFrame, difference: float, power: float) -> list[str]:
    """Say how many trainings all attacks need together on the pilot's images, and which of the numbers to take."""
    estimates, uppers = (
        same[same.variance == label].set_index("attack").trainings for label in (ESTIMATE, UPPER_LIMIT)
    )
    reached = estimates.dropna()
    if reached.empty:
        return _out_of_reach(estimates)
    uppers = uppers[reached.index]
    and_upper = "" if uppers.hasnans else f" and {whole(uppers.max())} by its upper 80 % limit"
    return [
        f"A difference of {points(difference)} points under {', '.join(reached.index)} needs {whole(reached.max())} "
        f"trainings of each framework by the estimated variance{and_upper}, with the images and repeats of the pilot.",
        *_out_of_reach(estimates),
        *_out_of_reach(uppers, " by the upper limit"),
        f"Plan with the upper limit: about 8 of 10 pilots then lead to {percent(power, 0)} power or more. With the "
        "estimate, about half do (Browne 1995).",
    ]


def _out_of_reach(trainings: pandas.Series[int], by: str = "") -> list[str]:
    attacks = ", ".join(trainings.index[trainings.isna()])
    return [f"With the images and repeats of the pilot, not within reach{by} for: {attacks}."] if attacks else []


# what stands in the place of pictures ----------------------------------------------------------------------------

NO_PICTURES = "Pictures need Matplotlib: pip install 'robustcmp[plot]', and write the page again."
NO_GALLERY = "The adversarial images were not stored with this run, so there is no gallery."
NO_PERTURBATIONS = "This run has no clean images, so the perturbations are not shown."


# the page, and the table for a paper -----------------------------------------------------------------------------

LEADS = {
    "answer": "",
    "deployments": (
        "Each deployed network beside the trained model that it was converted from. In the pictures, a dot right of "
        "zero is easier to fool than its source; the grey band is two points, the margin of equivalence."
    ),
    "trainings": (
        "A dot is one training. The horizontal line is the mean of a model, the vertical line its 95 % interval."
    ),
    "curves": (
        "How the success rate grows with ε, the largest change of a pixel, for images in [0, 1]. Bands are 95 % "
        "intervals at each ε."
    ),
    "distances": (
        "The share of images that are fooled within a distance, for images in [0, 1]. A curve further to the left is "
        "easier to fool, if the attack's search has converged."
    ),
    "ranks": (
        "R adds up how each model compares with the others under each attack; smaller is more robust. The ranges and "
        "ranks are over resamples and show how far R can be trusted."
    ),
    "variance": (
        "The standard deviation of a trained model's success rate, in percentage points, by its source. Where the "
        "training run outweighs the framework, one training of each cannot compare frameworks."
    ),
    "transfer": "The share of adversarial images made for one model (row) that also fool another (column).",
    "conditioning": (
        "Success rates against the number of models that classify the images correctly. Each further model removes "
        "images, those near a decision boundary first."
    ),
    "checks": "A success rate means nothing if the attack is broken.",
    "gallery": (
        "The same images in every model's first training. A perturbation is stretched to the full range; grey is no "
        "change."
    ),
    "tables": "",
    "notes": "What the figures mean, and what they depend on.",
    "settings": "",
    "cite": "",
}
"""What a section of the page shows and how it is read."""


def latex_caption(results: Results, subject: str) -> str:
    """Return what stands beside the table for a paper."""
    count = len(results.manifest["models"])
    trainings = count // len(results.models) if results.level == "frameworks" else 1
    over = f"{trainings} trainings of each framework" if trainings > 1 else "images"
    classify = f"all {count} models classify" if count > 1 else "the model classifies"
    used = results.manifest["images"]["used"]
    caption = (
        f"Attack success rates in percent{f', {subject}' if subject else ''}, on {used} images that {classify} "
        f"correctly; 95\\,\\% intervals are over {over}."
    )
    if len(results.models) > 1 and results.indicator and not results.same_weights:
        caption += " $R$ compares these models only; smaller is more robust."
    return caption

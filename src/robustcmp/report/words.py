"""The sentences of a run's report, from its results; terminal, page, notebook and Markdown lay them out."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np
import pandas

from ..analysis.deployments import (
    ANOTHER_NETWORK,
    DEPLOYED_MARGIN,
    FAILED,
    LARGEST_LOGITS,
    LARGEST_OUTCOMES,
    LARGEST_PREDICTIONS,
    PASSED,
    SOURCE,
    SUCCESS,
    answers_alike,
)
from ..analysis.figures import find_failed_starts
from ..analysis.indicator import find_published_rates
from ..analysis.planning import ESTIMATE, SAME, UPPER_LIMIT
from ..analysis.results import Results
from ..analysis.statistics.foundations import ALPHA
from ..analysis.verdicts import MEDIANS, Verdict, find_poor, find_within_noise, together
from ..records.answers import FAIL, NOT_APPLICABLE, NOTED, PASS, Check, Checked
from .format import distance, number, p_value, percent, percent_2, plural, points, whole

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")
Row = Mapping[Any, Any]  # of `Results.deployments`, or of `Results.deployed_networks`


def group(pairs: Iterable[tuple[Key, Value]]) -> dict[Key, list[Value]]:
    """Return the values of each key, in their order."""
    groups: dict[Key, list[Value]] = {}
    for key, value in pairs:
        groups.setdefault(key, []).append(value)
    return groups


UNNAMED = "own"  # the design of networks of the user's own
ZOO_SOURCES = ("own", "zoo")  # of weights that were trained here, or ship


# the heading -----------------------------------------------------------------------------------------------------


def title(results: Results) -> str:
    """Return the heading of a run."""
    about = results.manifest["about"]
    model = about.get("model")
    if model == UNNAMED:
        model = " and ".join(results.models) if len(results.models) <= NAMED else ""
    subject = " on ".join(part for part in (model, about.get("dataset")) if part)
    return ", ".join(part for part in (subject, f"suite {results.manifest['suite']['name']}") if part)


def _is_of_the_zoo(results: Results) -> bool:
    """Return whether every source was trained by a recipe of the zoo, where another seed makes another training."""
    infos = [model["info"] for model in results.manifest["models"] if model["name"] in results.sources]
    return all(info.get("source") in ZOO_SOURCES for info in infos)


def _name_unit(results: Results) -> str:
    return "framework" if _is_of_the_zoo(results) else "model"


def describe_setting(results: Results) -> str:
    """Say what was compared, and on how many images."""
    names = [model["name"] for model in results.manifest["models"]]
    sizes = sorted({names.count(name) for name in results.models})
    if sizes != [1]:
        compared = f"{' to '.join(map(str, sizes))} trainings of each {_name_unit(results)}"
    elif _is_of_the_zoo(results) and len(names) > 1:
        compared = "one training of each framework"
    else:
        compared = plural(len(names), "model")
    used = results.manifest["images"]["used"]
    if results.on_all_images:
        return f"{compared}; {used:,} images of the test set, also misclassified ones"
    classify = {1: "the model classifies", 2: "both classify"}.get(len(names), f"all {len(names)} classify")
    return f"{compared}; {used:,} images that {classify} correctly"


# the answer ------------------------------------------------------------------------------------------------------

ONE_EACH = "One training of each: two trainings of one framework may differ as much."
NO_PICTURES = "Pictures need Matplotlib: pip install 'robustcmp[plot]', and write the page again."
NOTHING_TO_COMPARE = "No attack ran on every model: there is nothing to compare."
KINDS = {True: "different", False: "same", None: "nothing"}
WORDS = {True: "Significant difference", False: "No significant difference", None: "No information"}


class Statement(NamedTuple):
    """The answer about one attack.

    Attributes
    ----------
    attack : str
        Its name.
    kind : str
        ``"different"``, ``"same"`` or ``"nothing"``.
    word : str
        The answer.
    sentences : list of str
        The figures behind it.
    details : list of str
        Further figures, which `explain` explains.
    """

    attack: str
    kind: str
    word: str
    sentences: list[str]
    details: Sequence[str] = ()


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
        return f"No answer yet: {unsound}. Check bounds and preprocessing first."
    if results.single_trainings:
        return f"Frameworks cannot be compared: {', '.join(results.single_trainings)} has one training."
    different = [verdict for verdict in verdicts if verdict.different]
    if different:
        return f"{_easier(different)}."
    if all(verdict.different is None or verdict.few for verdict in verdicts):
        return f"Is one {_name_unit(results)} easier to fool? These attacks cannot tell."
    return f"Is one {_name_unit(results)} easier to fool? No difference found."


def _easier(verdicts: Sequence[Verdict]) -> str:
    """Say which model is easier to fool than which by verdicts that find a difference."""
    attacks = group(((v.easier, v.harder, bool(v.norm)), v.attack) for v in verdicts)
    clauses = [
        f"{easier} is easier to fool than {harder} {'by distance ' if is_distance else ''}under {', '.join(names)}"
        for (easier, harder, is_distance), names in attacks.items()
    ]
    return "; ".join(clauses)


def _unsound(results: Results) -> str:
    """Say which trained models are probably not asked as they were trained, "" where none is seen to be."""
    models = [f"{name} ({percent(rate)})" for name, rate in find_poor(results).items() if name in results.sources]
    if not models:
        return ""
    verb = "has" if len(models) == 1 else "have"
    return f"{', '.join(models)} {verb} less than half the best model's accuracy, or no more than chance gives"


def state(results: Results) -> list[Statement]:
    """Return the answer about each attack."""
    return [_state(results, verdict) for verdict in results.verdicts]


def _state(results: Results, verdict: Verdict) -> Statement:
    kind = KINDS[verdict.different]
    p = _p_text(verdict.p_adjusted).replace(" ", "\N{NO-BREAK SPACE}")
    detectable = f"{_amount(verdict, verdict.detectable)} would have been detected"
    if verdict.different is None:
        return Statement(verdict.attack, kind, f"not compared: {_reason(results, verdict)}", [])
    if verdict.different:
        word = f"{verdict.easier} is easier to fool than {verdict.harder}, by {_amount(verdict, verdict.difference)}"
        sentences = [f"{p}."] if verdict.few else [f"{p}; {detectable}."]
        return Statement(verdict.attack, kind, word, sentences, _details(verdict))
    if verdict.difference:
        apart = f"{verdict.easier} and {verdict.harder} differ by {_amount(verdict, verdict.difference)} ({p})."
    else:
        apart = f"All models are alike ({p})."
    if verdict.few:
        count = verdict.few.replace("succeed", "images fooled").replace("fail", "images not fooled")
        return Statement(verdict.attack, "nothing", f"cannot tell: only {count}", [apart])
    return Statement(verdict.attack, kind, f"no difference found ({detectable})", [apart], _details(verdict))


def _reason(results: Results, verdict: Verdict) -> str:
    """Say why an attack compares nothing; its own note knows better where its search has only begun."""
    has_begun = any(outcomes.attack == verdict.attack and outcomes.not_compared for outcomes in results.outcomes)
    attack_notes = results.attack_records[verdict.attack].notes
    return attack_notes[0].rstrip(".") if has_begun and attack_notes else verdict.why


def _amount(verdict: Verdict, value: float) -> str:
    """Write a difference of what a verdict compares."""
    if verdict.measure in MEDIANS.values():
        return f"{distance(value)} in {verdict.measure}"
    return f"{_detectable_points(value)} points{' of nearness' if verdict.norm else ''}"


def _detectable_points(value: float) -> str:
    """Write the smallest difference of rates that would be detected, in points: two rates differ by 100 at most.

    >>> _detectable_points(0.043), _detectable_points(1.155)
    ('4.3', 'not even 100')
    """
    return "not even 100" if value > 1 else points(value)


def _p_text(value: float) -> str:
    """Write a p value after its letter.

    >>> _p_text(0.04), _p_text(0.0001)
    ('p = 0.040', 'p < 0.001')
    """
    text = p_value(value)
    return f"p {text}" if text.startswith("<") else f"p = {text}"


def _details(verdict: Verdict) -> list[str]:
    details = []
    if not math.isnan(verdict.equivalent_within):
        details.append(f"Excluded: more than {_amount(verdict, verdict.equivalent_within)}.")
    if not math.isnan(verdict.seed_share):
        share, low, high = (percent(end, 0) for end in (verdict.seed_share, verdict.seed_low, verdict.seed_high))
        details.append(f"Share of the training seed: {share} ({low} to {high}).")
    return details


def _all_together(results: Results) -> list[str]:
    """Say in a sentence where the test of all attacks together disagrees with those of single attacks."""
    summed = together(results)
    if summed is None:
        return []
    p = _p_text(min(summed.p.values()))
    if summed.different is None:
        return [f"All attacks together hint at a difference ({p}) that no single one shows."]
    if summed.different is False and any(verdict.different for verdict in results.verdicts):
        return [f"Single attacks show a difference, all attacks together do not ({p})."]
    return []


def remarks(results: Results) -> list[str]:
    """Say what follows the verdicts: of all attacks together, and how far trainings of one framework are apart."""
    if not results.verdicts:
        return []
    if not results.has_several_trainings:
        return [ONE_EACH] if _is_of_the_zoo(results) else []
    widths = {
        outcomes.attack: max(float(np.ptp(rates)) for rates in outcomes.rates.values()) for outcomes in results.outcomes
    }
    attack = max(widths, key=lambda name: widths[name])
    width = points(widths[attack])
    sentence = f"Trainings of one {_name_unit(results)} differ by up to {width} points under {attack}."
    return [*_all_together(results), sentence] if widths[attack] else _all_together(results)


def answers(results: Results) -> list[str]:
    """Return all answers of a run as sentences."""
    sentences = []
    if results.compares_sources:
        sentences += [answer(results), *(f"{each.attack}: {each.word}." for each in state(results))]
        sentences += remarks(results)
    if results.has_deployments:
        sentences.append(answer_deployed(results))
    return sentences


# on the page -----------------------------------------------------------------------------------------------------

LEADS = {
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
    "ranks": "R adds up how each model compares with the others under each attack; smaller is more robust.",
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
        "Images that fool at least one model, in every model's first training. A perturbation is stretched to the full "
        "range; grey is no change."
    ),
    "notes": "What the figures depend on, and what the words mean.",
}
NO_GALLERY = "The adversarial images were not stored with this run, so there is no gallery."
NOTHING_FOOLED = "No image that was stored fools a model."
IN_THE_TABLE = "The figures stand in the tables of this page and in `robustcmp report --format csv`."


# what words mean -------------------------------------------------------------------------------------------------

OF_FRAMEWORKS = {
    "Would have been detected": "in 8 of 10 such comparisons, if the true difference were that large; with fewer than "
    "ten trainings of each, rather in 6 to 8.",
    "p": "the training run is the unit; adjusted for all attacks by Holm's method. Intervals of pairs are not, so "
    "the two can disagree.",
    "All attacks together": "one test of all attacks, by permuting trainings; it assumes equal spreads.",
    "Share of the training seed": "of the variance between trained models on these images, with its 95 % interval; "
    "with the attack's draws where each training has its own.",
}
OF_MODELS = {
    "Would have been detected": "in 8 of 10 such comparisons, if the true difference were that large.",
    "p": "the image is the unit, so a difference is between these networks; adjusted for all pairs and attacks by "
    "Holm's method. Intervals of pairs are not adjusted, so the two can disagree.",
    "Nearness": "the share of images on which a smaller change fools the first model than the second.",
}
EXCLUDED = {"Excluded": "a larger true difference would have shown in 19 of 20 comparisons (two one-sided tests)."}
OF_RANKS = {
    "P and R": "relative to the models compared: in P, 0 is the least and 1 the most easily fooled of them, however "
    "small the difference. R adds P over attacks.",
    "Range and ranks of R": "over resamples of images and trainings: the central 95 % of R, which is no confidence "
    "interval, and how often a model has the smallest R, the second smallest, and so on.",
}


def _explain(results: Results) -> list[str]:
    """Say once what the words of a report mean."""
    terms: dict[str, str] = {}
    if results.verdicts:
        terms |= OF_FRAMEWORKS if results.level == "frameworks" else OF_MODELS
        terms |= EXCLUDED
    if results.indicator:
        terms |= OF_RANKS
    if find_within_noise(results):
        terms[WITHIN_NOISE] = "the test of all models finds no difference, so the order in P may be chance."
    return [f"{term}: {meaning}" for term, meaning in terms.items()]


WITHIN_NOISE = "(within noise)"


# notes -----------------------------------------------------------------------------------------------------------

NARROW = 0.25  # range of images
NAMED = 3  # models of which a failed check gives its figure
OF_THE_PAPER = "paper: Guo et al., Fig. 6, measured on their own trained models and images."
NO_CHECKS = "Health checks have not been run; `ev.run_checks()` runs them."


def notes(results: Results) -> list[str]:
    """Return the sentences that belong under the tables: what the figures are conditional on, and what words mean."""
    manifest = results.manifest
    settings = (
        f"{manifest['images']['used']} images, {_repeats(results)}, suite {manifest['suite']['name']}, seed "
        f"{manifest['seed']}."
    )
    if results.same_weights:
        return [*_control_notes(results), *behaviour_notes(manifest["models"]), _condition(results), settings]
    return [
        _condition(results),
        settings,
        *manifest["about"].get("data_notes", []),
        *warnings(results),
        *_attack_notes(results),
        *_note_trainings(results),
        *_twin_notes(results),
        *(deployment_notes(results) if results.has_deployments else []),
        *(check_notes(results.checked) if results.checked else [NO_CHECKS]),
        *([OF_THE_PAPER] if find_published_rates(results.manifest) else []),
        *_explain(results),
    ]


def warnings(results: Results) -> list[str]:
    """Return what a reader of one screen has to know: what went wrong, and what models do that they should not."""
    if results.same_weights:
        return _control_notes(results)
    return [
        *_model_notes(results),
        *behaviour_notes(results.manifest["models"]),
        *_absences(results),
        *_file_notes(results),
    ]


def find_own_repeats(results: Results) -> dict[str, int]:
    """Return the attacks that have fewer repeats than others, and how many."""
    counts = {attack: results.repeats(attack) for attack in results.attacks}
    return {attack: count for attack, count in counts.items() if count < results.manifest["repeats"]}


def _repeats(results: Results) -> str:
    """Say how often random attacks were repeated."""
    text = plural(results.manifest["repeats"], "repeat")
    text += "".join(f" ({attack} {repeats})" for attack, repeats in find_own_repeats(results).items())
    if results.manifest.get("spread", False):
        text += " per training, each with its own draws"
    return text


def _condition(results: Results) -> str:
    if results.on_all_images:
        return (
            "All rates are of all images attacked, also those that a model misclassifies: these have fallen without an "
            "attack. Under a bound, 100 % minus the rate is at least the robust accuracy."
        )
    count = len(results.manifest["models"])
    classify = f"all {count} models classify" if count > 1 else "the model classifies"
    share = percent(results.manifest["images"]["correct_by_all"])
    return (
        f"All rates are conditional on images that {classify} correctly ({share} of the test set); adding or "
        "removing a model changes the subset, every rate and R."
    )


def _model_notes(results: Results) -> list[str]:
    sentences: list[str] = []
    low, high = results.manifest["images"].get("range") or (0.0, 1.0)
    if high - low < NARROW:
        sentences.append(
            f"The images' values lie between {low:.3g} and {high:.3g}, where [0, 1] is expected: changes of {NARROW:g} "
            "and more leave their range. Check how they were scaled; a set whose largest value is 16 is divided by 16."
        )
    explained = {model["name"] for model in results.manifest["models"] if model.get("cause")}
    sentences += [
        f"{model} classifies only {percent(accuracy)} of the test set correctly. Check its bounds, preprocessing and "
        "training data before you interpret its rates."
        for model, accuracy in find_poor(results).items()
        if model not in explained
    ]
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
        identities = [model["identity"] for model in trained if "identity" in model]
        if any(identity["noise"] or identity["gradient_noise"] for identity in identities):
            cells = "The weights are not known, so cells cannot be found again and are computed anew each time."
            if all(identity["weights"] for identity in identities):
                cells = "Cells are found again by the weights."
            sentences.append(
                f"{name}: two passes over the same images differ, and so can outcomes at near ties. {cells}"
            )
    return sentences


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
        f"{_abbreviate(labels, NAMED)} are one network: their weights and answers are the same in every bit. If they "
        "should differ, wrap a copy for each: weights that are loaded later change a network that was wrapped before."
        for labels in alike.values()
        if len(labels) > 1
    ]


def _abbreviate(names: Sequence[str], most: int) -> str:
    return ", ".join([*names[:most], *["…"] * (len(names) > most)])


def _absences(results: Results) -> list[str]:
    """Say where attacks could not run, and which of them are not in R."""
    failed = results.reasons("failed")
    sentences = [
        f"{attack} is not applicable to {labels}: {why}"
        for (attack, why), labels in _models_by_reason(results.reasons("not_applicable"))
    ]
    sentences += [
        f"{attack} failed on {labels}: {why} Rerun the same command to try it again."
        for (attack, why), labels in _models_by_reason(failed)
    ]
    if failed:
        sentences.append(f"No health checks of {', '.join(failed)}, because an attack failed.")
    beside = [attack for attack, record in results.attack_records.items() if not record.in_indicator]
    left_out = [attack for attack in results.attacks if attack not in [*results.common_attacks, *beside]]
    if left_out:
        sentences.append(f"Excluded from R because not every model ran it: {', '.join(left_out)}.")
    sentences += [
        f"{attack}: some images have no starting point, so the attack could not begin. These failures are no sign "
        f"of robustness; R is also given without {attack}."
        for attack in find_failed_starts(results)
    ]
    return sentences


def _models_by_reason(reasons: dict[str, dict[str, str]]) -> Iterable[tuple[tuple[str, str], str]]:
    """Return the models by attack and reason."""
    models = group((reason, label) for label, of_model in reasons.items() for reason in of_model.items())
    return ((reason, ", ".join(labels)) for reason, labels in models.items())


def _attack_notes(results: Results) -> list[str]:
    """Say what attacks say of themselves, and which of them stand beside R."""
    sentences = []
    beside = [attack for attack, record in results.attack_records.items() if not record.in_indicator]
    if beside and results.indicator:
        sentences.append(f"A reference beside R, not in it: {', '.join(beside)}.")
    by_note = group((note, attack) for attack in results.attacks for note in results.attack_records[attack].notes)
    sentences += [f"{', '.join(attacks)}: {note}" for note, attacks in by_note.items()]
    sentences += [
        f"{attack}: tests, differences and variances use the expected success over all draws of positions; success "
        f"rates, P and R use the {results.repeats(attack)} draws of this run."
        for attack in results.exact_pixel.attacks
    ]
    return sentences


def _note_trainings(results: Results) -> list[str]:
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


def _twin_notes(results: Results) -> list[str]:
    """Say which sources are no independent trainings."""
    sources = {*results.sources}
    twins = dict.fromkeys(f"{pair.a[0]} and {pair.b[0]}" for pair in results.twins if {pair.a[0], pair.b[0]} <= sources)
    if not twins:
        return []
    return [
        f"Twins, which began from the same weights and are no independent trainings: {', '.join(twins)}. Pairs of them "
        "are tested by the paired t; joint tests and the range of R treat all trainings as independent."
    ]


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
    """Say in one line that the health checks passed, or in one for each failed check which models failed it."""
    if results.same_weights:
        return []
    if results.checked is None:
        return [NO_CHECKS]
    failed = find_failed(results.checked)
    if not failed:
        return ["Health checks passed."]
    return [
        f"Failed check: {name}: {_abbreviate([check.model for check in checks], NAMED)} ({len(checks)} of "
        f"{len(results.labels)} models)"
        for name, checks in failed.items()
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
MOST_CHANGED = 0.5  # of the classes, where a file still is what it is said to be converted from


def write_apart(row: Row, value: float) -> str:
    """Write a difference of a deployment from its source: of rates in points, or of distances."""
    return points(value) if row["measure"] == SUCCESS else distance(value)


def write_difference(row: Row) -> str:
    """Write the difference of a deployment from its source, with its interval."""

    def sign(value: float) -> str:
        size = write_apart(row, abs(value))
        if not size.strip("0."):
            return size
        return f"−{size}" if value < 0 else f"+{size}"

    difference = sign(row["difference"])
    if math.isnan(row["low"]):
        return difference
    low = sign(row["low"])
    high = sign(row["high"])
    return f"{difference} ({low} to {high})"


def answer_deployed(results: Results) -> str:
    """Return in a few sentences which deployments are easier or harder to fool than their sources."""
    strangers = _find_strangers(results)
    sentences = list(strangers.values())
    rows = [row for row in results.deployments.to_dict("records") if row["deployment"] not in strangers]
    if rows:
        sentences += _compare_deployed([row for row in rows if not row["not_compared"]])
    else:
        sentences.insert(0, "No answer yet." if strangers else "No attack ran on a deployed network and its source.")
    return " ".join(sentences)


def _compare_deployed(rows: Sequence[Row]) -> list[str]:
    rates = [row for row in rows if row["measure"] == SUCCESS]
    differing = [row for row in rows if row["p_adjusted"] < ALPHA]
    largest = max((row["detectable"] for row in rates if not math.isnan(row["detectable"])), default=math.nan)
    if differing:
        sentences = [f"Deploying makes a difference: {'; '.join(map(_describe, differing))}."]
    elif math.isnan(largest):
        limit = points(max(row["equivalent_high"] for row in rates))
        return [
            f"No outcome of a deployed network differs from its source's on {rates[0]['images']} images; a difference "
            f"of up to {limit} points is not excluded."
        ]
    else:
        sentences = [
            f"No difference found between deployed networks and their sources ({_detectable_points(largest)} points "
            "would have been detected under every attack)."
        ]
    if rates and all(row["equivalent"] for row in rates):
        sentences.append(f"All success rates are shown to be within {points(DEPLOYED_MARGIN)} points of the source's.")
    return sentences


def _find_strangers(results: Results) -> dict[str, str]:
    """Return what is said of the deployments that do not classify as their sources, by their names."""
    own_files = {model["name"] for model in results.manifest["models"] if _is_own_file(model)}
    reason = {True: "it is another network, or it expects other images", False: "the conversion has damaged it"}
    return {
        row["deployment"]: f"{row['deployment']} gives {percent(row['changed'])} of the images another class than "
        f"{row['source']} does: {reason[row['deployment'] in own_files]}. Its differences say nothing of deploying."
        for row in results.deployed_networks.to_dict("records")
        if row["changed"] > MOST_CHANGED or (row["deployment"] in own_files and row["distance"] > ANOTHER_NETWORK)
    }


def _describe(row: Row) -> str:
    """Return a difference in words."""
    more = row["difference"] > 0
    is_easier = more == (row["measure"] == SUCCESS)
    unit = "points" if row["measure"] == SUCCESS else f"in {row['measure']}"
    through = " with its source's gradient" if row["gradient"] == SOURCE else ""
    return (
        f"{row['deployment']} is {'easier' if is_easier else 'harder'} to fool by "
        f"{row['attack']}{through} ({write_difference(row)} {unit})"
    )


def deployment_notes(results: Results) -> list[str]:
    """Return what has to be known to read the tables of deployed networks."""
    sentences = [
        "A deployment and its source are one training, attacked on the same images with the same draws: everything is "
        "paired. A conversion that keeps float32 has to pass the same-weights control."
    ]
    if SOURCE in set(results.deployments.gradient):
        sentences.append(
            f"{BY_SOURCE} FGSM by the source's gradient: its candidates were made for the source, so fewer of them may "
            "fool the deployed network than its own gradient would find."
        )
    for name, trained in group((model["name"], model["info"]) for model in results.manifest["models"]).items():
        of_first = trained[0].get("deployment", {}).get("notes", [])  # others differ in their ranges alone
        sentences += [f"{name}: {note}." for note in of_first]
    return sentences


def _is_own_file(model: Mapping[str, Any]) -> bool:
    return bool(model["info"].get("deployment", {}).get("own_file"))


def _file_notes(results: Results) -> list[str]:
    """Say which files of a user's own do not answer as their source, and what is done to images and answers of each."""
    models = {(model["name"], model["training_seed"]): model for model in results.manifest["models"]}
    sentences = [
        f"{entry['model'][0]}, training seed {entry['model'][1]}, does not answer as {entry['source'][0]}: logits "
        f"differ by up to {number(entry['logits'])} of their standard deviation, and "
        f"{percent_2(entry['changed'])} of the classes change. "
        "It is quantised, ends with a softmax, normalises its images itself (they are normalised for it as for its "
        "source, unless FILE,mean=0,std=1 says otherwise), or was not converted from that network."
        for entry in results.manifest.get("deployments", [])
        if _is_own_file(models[entry["model"][0], entry["model"][1]])
        and not answers_alike(entry["logits"], entry["changed"])
    ]
    return [*sentences, *describe_inputs(results)]


def describe_inputs(results: Results) -> list[str]:
    """Say what was found out of files of a user's own: their layout, and a softmax at their end."""
    own_files = [model for model in results.manifest["models"] if _is_own_file(model)]
    by_note = group((note, model["name"]) for model in own_files for note in model["info"]["deployment"]["notes"])
    return [f"{', '.join(dict.fromkeys(files))}: {note}." for note, files in by_note.items()]


# plans -----------------------------------------------------------------------------------------------------------


def plan_notes(plan: pandas.DataFrame, difference: float, power: float) -> list[str]:
    """Say what the designs of a plan mean, and what they rest on."""
    same = plan[plan.design == SAME]
    is_described = same.room >= difference
    sentences = _count_trainings(same[is_described], difference, power)
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
    return sentences


def _count_trainings(same: pandas.DataFrame, difference: float, power: float) -> list[str]:
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


# the table for a paper -------------------------------------------------------------------------------------------


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

"""The gate: is a new model easier to fool than the one that it replaces, by more than a margin?"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import msgspec
import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri, stdtr, stdtrit

from ..errors import ModelError, UsageError
from .deployments import ANOTHER_NETWORK, answers_alike
from .statistics.foundations import ALPHA, NO_VARIANCE, check_fraction
from .statistics.hypotheses import compare_means, holm
from .statistics.paired_rates import PairedRates, images_to_show, pair_rates
from .statistics.power import POWER
from .twins import match_twins
from .verdicts import find_poor

if TYPE_CHECKING:
    from .results import Results

AttackAnswer = Literal["not easier", "easier", "not shown", "uninformative"]
AccuracyAnswer = Literal["holds", "worse", "not shown"]
Unit = Literal["image", "training"]
Outcome = Literal["passed", "easier", "less accurate", "not shown"]
MARGIN = 0.02
UNINFORMATIVE = 0.05
"""An attack that fools fewer images of both models than this share, or all but fewer, says nothing about them."""
FEWEST_IMAGES = 100  # rather than so few, attacks are left out
USUAL_DISCORDANCE = 0.05
NEAR_MARGIN = 0.9  # a difference found beyond this share of the margin would take a hundred times as many images


class AttackVerdict(msgspec.Struct, frozen=True):
    """Whether a new model is easier to fool than the baseline under one attack.

    Attributes
    ----------
    model, attack : str
        The new model and the attack.
    answer : str
        ``"not easier"`` (`high` is below the margin), ``"easier"`` (above the margin after Holm's adjustment over
        attacks), ``"not shown"``, or ``"uninformative"`` (under 5 % or over 95 % of both models' images are fooled, or
        it followed the gradient of another network, which might fool fewer).
    baseline_rate, rate : float
        The success rates on the baseline and on the new model, in [0, 1].
    baseline_rounded, rounded : float, optional
        The same once the images are saved in 8 bits; None unless the clean images came from image files.
    gradient_of : str, optional
        The model whose gradient the attack followed on one without, if the two answer differently: a gradient of its
        own might fool more images. Where they are different networks, a new model can thus be shown to be
        ``"easier"`` alone, and a baseline to be so that the new one is ``"not easier"``.
    low, high : float
        The bounds of `rate` - `baseline_rate`, each at 95 %.
    p_easier : float, optional
        The p value of "easier by at most the margin", adjusted over attacks by Holm's method; None if uninformative.
    unit : str
        ``"image"``, or ``"training"`` where both models have several trainings.
    images : int
        The number of images.
    images_needed : int, optional
        If not shown: how many images would show "not easier" with 80 % power over all attacks, if the difference is
        what was found. None where images cannot show it.
    """

    model: str
    attack: str
    answer: AttackAnswer
    baseline_rate: float
    rate: float
    low: float
    high: float
    p_easier: float | None
    unit: Unit
    images: int
    images_needed: int | None
    baseline_rounded: float | None = None
    rounded: float | None = None
    gradient_of: str | None = None

    @property
    def difference(self) -> float:
        """How much more often the new model is fooled, in [-1, 1]."""
        return self.rate - self.baseline_rate


class AccuracyVerdict(msgspec.Struct, frozen=True):
    """Whether a new model classifies clean images as well as the baseline.

    Attributes
    ----------
    model : str
        The new model.
    answer : str
        ``"holds"`` (`high` is below the margin), ``"worse"`` (`low` is above it) or ``"not shown"``.
    baseline_accuracy, accuracy : float
        The clean accuracies, in [0, 1].
    low, high : float
        The bounds of `baseline_accuracy` - `accuracy`, each at 95 %.
    images : int
        The number of images.
    """

    model: str
    answer: AccuracyAnswer
    baseline_accuracy: float
    accuracy: float
    low: float
    high: float
    images: int


class Gate(msgspec.Struct, frozen=True):
    """Whether new models may replace a baseline.

    Attributes
    ----------
    baseline : str
        The model that the others are compared with.
    margin, accuracy_margin : float
        By how much a new model may be easier to fool, or less accurate, in (0, 1).
    attacks : list of AttackVerdict
        For each new model and attack.
    accuracies : list of AccuracyVerdict
        For each new model.
    outcome : str
        ``"passed"`` (clean accuracy holds, every informative attack is *not easier*, and each new model has one),
        ``"easier"``, ``"less accurate"`` or ``"not shown"``.
    not_run : list of str
        Attacks of the suite that not every model could run, as one has no gradient.
    """

    baseline: str
    margin: float
    accuracy_margin: float
    attacks: list[AttackVerdict]
    accuracies: list[AccuracyVerdict]
    outcome: Outcome
    not_run: list[str] = []


class _ModelPair:
    """How often a baseline and a new model were fooled by one attack on the same images.

    Attributes
    ----------
    attack : str
        The attack.
    baseline, new : ndarray of float64, shape (trainings, images)
        The share of repeats in which each image was fooled, in [0, 1].
    difference : float
        How much more often the new model is fooled, in [-1, 1].
    is_informative : bool
        Whether the attack fools neither too few nor too many images of both models.
    unit : str
        ``"training"`` if both have several trainings. What images say bounds it then as well, so that trainings that
        happen to agree are not certainty.
    """

    def __init__(
        self, attack: str, baseline: NDArray[np.float64], new: NDArray[np.float64], repeats: int, *, paired: bool
    ):
        trainings = min(len(baseline), len(new))
        self.attack = attack
        self.baseline = baseline
        self.new = new
        self.difference = float(new.mean() - baseline.mean())
        rates = (float(baseline.mean()), float(new.mean()))
        self.is_informative = max(rates) >= UNINFORMATIVE and min(rates) <= 1 - UNINFORMATIVE
        self.unit: Unit = "training" if trainings > 1 else "image"
        self._images = pair_rates(new.mean(axis=0), baseline.mean(axis=0), repeats if trainings == 1 else 1)
        self._error = 0.0
        self._df = math.nan
        if trainings > 1:
            _, self._error, self._df = compare_means(new.mean(axis=1), baseline.mean(axis=1), paired)

    def p_below(self, margin: float) -> float:
        """Return the p value of the hypothesis that the difference is at least the margin."""
        return max(self._images.p_below(margin), self._tail(self.difference - margin))

    def p_above(self, margin: float) -> float:
        """Return the p value of the hypothesis that the difference is at most the margin."""
        return max(self._images.p_above(margin), self._tail(margin - self.difference))

    def interval(self) -> tuple[float, float]:
        """Return the lower and upper bounds of the difference, each at 95 %."""
        low, high = self._images.interval()
        if self._error**2 <= NO_VARIANCE:
            return low, high
        half = float(stdtrit(self._df, 1 - ALPHA)) * self._error
        return min(low, self.difference - half), max(high, self.difference + half)

    def images_needed(self, difference: float, margin: float, power: float) -> int | None:
        """Return how many images would show that a difference is below the margin.

        None where trainings decide, or if it is near the margin or above it.
        """
        if self.unit == "training" or difference > NEAR_MARGIN * margin:
            return None
        needed = images_to_show(self._images.discordance, margin, power, difference)
        repeats = self._images.images / len(self.new[0])  # independent image-repeats for each image
        return math.ceil(needed / repeats)

    def _tail(self, distance: float) -> float:
        """Return the probability of trainings' means at least as far below the margin; 0 if they do not vary."""
        if self._error**2 <= NO_VARIANCE:
            return 0.0
        return float(stdtr(self._df, distance / self._error))


def open_gate(results: Results, margin: float = MARGIN, accuracy_margin: float | None = None) -> Gate:
    """Compare every model of a run with its first one, for `Evaluation.gate`."""
    check_fraction("margin", margin)
    if accuracy_margin is None:
        accuracy_margin = margin
    check_fraction("accuracy_margin", accuracy_margin)
    if len(results.models) < 2:
        raise UsageError(f"expected two models or more, the baseline first; received {len(results.models)}")
    baseline, *others = results.models
    if baseline in (poor := find_poor(results)):
        raise ModelError(
            f"no verdict: {baseline} classifies {100 * poor[baseline]:.1f} % of the images, less than half as "
            "many as the best model, or no more than chance gives. Check labels, bounds and preprocessing; the classes "
            "of a folder are its subfolders in the order of their names"
        )
    attacks: list[AttackVerdict] = []
    for model in others:
        for verdict in _judge_attacks(model, _pairs(results, baseline, model), margin):
            rates = [results.rounded_rate(name, verdict.attack) for name in (baseline, model)]
            if not any(map(math.isnan, rates)):
                verdict = msgspec.structs.replace(verdict, baseline_rounded=rates[0], rounded=rates[1])
            for name, can_be_shown in ((baseline, "not easier"), (model, "easier")):
                if entry := _find_borrowed(results, name, verdict.attack):
                    verdict = msgspec.structs.replace(verdict, gradient_of=str(entry["source"][0]))
                    if entry.get("distance", 0.0) > ANOTHER_NETWORK and verdict.answer != can_be_shown:
                        verdict = msgspec.structs.replace(
                            verdict, answer="uninformative", p_easier=None, images_needed=None
                        )
            attacks.append(verdict)
    accuracies = [_judge_accuracy(results, baseline, model, accuracy_margin) for model in others]
    outcome = _decide(attacks, accuracies)
    not_run = [name for name in results.attacks if not all(results.seeds(model, name) for model in results.models)]
    return Gate(baseline, margin, accuracy_margin, attacks, accuracies, outcome, not_run)


def _find_borrowed(results: Results, model: str, attack: str) -> dict[str, Any] | None:
    """Return how a deployed model differs from the one whose gradient an attack followed on it; None if it does not."""
    deployed = [entry for entry in results.manifest["models"] if entry["name"] == model]
    if not any(attack in entry.get("source_gradient", ()) for entry in deployed):
        return None
    for entry in results.manifest["deployments"]:
        if entry["model"][0] == model and not answers_alike(entry["logits"], entry["changed"]):
            return dict(entry)
    return None


def _decide(attacks: Sequence[AttackVerdict], accuracies: Sequence[AccuracyVerdict]) -> Outcome:
    """Return the outcome of a gate."""
    informative = [verdict for verdict in attacks if verdict.answer != "uninformative"]
    if any(verdict.answer == "easier" for verdict in informative):
        return "easier"
    if any(verdict.answer == "worse" for verdict in accuracies):
        return "less accurate"
    every_model = {verdict.model for verdict in informative} == {verdict.model for verdict in accuracies}
    not_easier = all(verdict.answer == "not easier" for verdict in informative)
    holds = all(verdict.answer == "holds" for verdict in accuracies)
    return "passed" if every_model and not_easier and holds else "not shown"


def _judge_attacks(model: str, pairs: Sequence[_ModelPair], margin: float) -> list[AttackVerdict]:
    """Return the verdict of each attack on a new model."""
    informative = [pair for pair in pairs if pair.is_informative]
    adjusted = holm([pair.p_above(margin) for pair in informative])
    p_easier = {pair.attack: p for pair, p in zip(informative, adjusted, strict=True)}
    power = _power_of_each(len(informative))
    verdicts = []
    for pair in pairs:
        answer: AttackAnswer = "not shown"
        if not pair.is_informative:
            answer = "uninformative"
        elif pair.p_below(margin) < ALPHA:
            answer = "not easier"
        elif p_easier[pair.attack] < ALPHA:
            answer = "easier"
        low, high = pair.interval()
        disadvantage = max(pair.difference, 0.0)
        verdicts.append(
            AttackVerdict(
                model=model,
                attack=pair.attack,
                answer=answer,
                baseline_rate=float(pair.baseline.mean()),
                rate=float(pair.new.mean()),
                low=low,
                high=high,
                p_easier=p_easier.get(pair.attack),
                unit=pair.unit,
                images=pair.new.shape[1],
                images_needed=pair.images_needed(disadvantage, margin, power) if answer == "not shown" else None,
            )
        )
    return verdicts


def plan_gate(results: Results, margin: float) -> list[dict[str, Any]]:
    """Return how many images a gate needs for 80 % power over all informative attacks, from a run of the same models.

    The models' difference is taken as zero, and how often they disagree as it was found. A dict for each new model and
    attack: model, attack, and images, None where images cannot show it.
    """
    check_fraction("margin", margin)
    baseline, *others = results.models
    planned = []
    for model in others:
        pairs = [pair for pair in _pairs(results, baseline, model) if pair.is_informative]
        power = _power_of_each(len(pairs))
        planned += [
            {"model": model, "attack": pair.attack, "images": pair.images_needed(0.0, margin, power)} for pair in pairs
        ]
    return planned


def fit_within(seconds: Mapping[str, float], images: int, left: float) -> tuple[list[str], int]:
    """Return the attacks and the number of images that fit into a time; the slowest go while few images fit.

    `seconds` are those of each attack on `images` images, 0 where it cannot run on any of the models.

    >>> fit_within({"fgsm": 10.0, "boundary": 90.0}, images=1000, left=50.0)
    (['fgsm', 'boundary'], 500)
    >>> fit_within({"fgsm": 10.0, "boundary": 90.0}, images=1000, left=5.0)
    (['fgsm'], 500)
    >>> fit_within({"fgsm": 0.0, "boundary": 90.0}, images=1000, left=9.0)
    (['fgsm', 'boundary'], 100)
    """
    if left <= 0:
        return [], 0
    attacks = list(seconds)
    while True:
        running = [attack for attack in attacks if seconds[attack] > 0]
        total = sum(seconds[attack] for attack in running)
        fitting = images if total <= left else int(images * left / total)
        if fitting >= min(FEWEST_IMAGES, images) or len(running) <= 1:
            return attacks, fitting
        attacks.remove(max(running, key=lambda attack: seconds[attack]))


def smallest_margin(images: int) -> float:
    """Return the margin below which so many images show a difference with 80 % power, of equal models.

    >>> round(smallest_margin(1000), 3)
    0.018
    """
    return float(ndtri(1 - ALPHA) + ndtri(POWER)) * math.sqrt(USUAL_DISCORDANCE / images)


def _power_of_each(attacks: int) -> float:
    """Return the power that each of several attacks needs, so that all of them are shown with 80 % (Bonferroni)."""
    return 1 - (1 - POWER) / max(attacks, 1)


def _pairs(results: Results, baseline: str, model: str) -> list[_ModelPair]:
    """Return what every attack did that both models ran."""
    pairs = []
    for attack in results.attacks:
        seeds = results.seeds(baseline, attack), results.seeds(model, attack)
        if not all(seeds):
            continue
        expected = results.exact_pixel.probabilities(attack)
        shares = {}
        for name in (baseline, model):
            success = results.values(name, attack, "success")
            shares[name] = success.mean(axis=1) if expected is None else expected[name]
        order = match_twins(results.twins, model, baseline, *reversed(seeds))
        old = shares[baseline] if order is None else shares[baseline][order]
        repeats = success.shape[1] if expected is None else 1
        pairs.append(_ModelPair(attack, old, shares[model], repeats, paired=order is not None))
    return pairs


def _judge_accuracy(results: Results, baseline: str, model: str, margin: float) -> AccuracyVerdict:
    """Return the verdict on clean accuracy, from how many images both models classify correctly, or at least all do."""
    images = int(results.manifest["images"]["of"])
    old = results.clean_accuracy[baseline]
    new = results.clean_accuracy[model]
    both = min(results.manifest["images"]["correct_by_all"], old, new)
    rates = PairedRates((old - both) * images, (new - both) * images, images)
    low, high = rates.interval()
    answer: AccuracyAnswer = "not shown"
    if rates.p_below(margin) < ALPHA:
        answer = "holds"
    elif rates.p_above(margin) < ALPHA:
        answer = "worse"
    return AccuracyVerdict(model, answer, old, new, low, high, images)

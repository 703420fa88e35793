"""Simulated comparisons whose truth is known: what the intervals cover, and how often the tests err.

An image i has a difficulty d_i, a training run r an effect u_r, and the model is fooled where

    shift + d_i + u_r + e_ri > 0,    d ~ N(0, 1), u ~ N(0, run_sd²), e ~ N(0, 1),

so that models agree on most images, as trained networks do. Under a random attack e is drawn in part anew for each
repeat. Run as a script (`make validity`) it does many simulations and writes docs/validity.md and its supplement;
with titles of the supplement as arguments, it does only these parts.
"""

from __future__ import annotations

import itertools
import math
import sys
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any, Concatenate, ParamSpec

import numpy as np
import validity_page
from numpy.typing import NDArray
from scipy.stats import f_oneway, multivariate_normal, norm

import robustcmp as rc
from robustcmp.analysis.gate import _judge_attacks, _ModelPair, _power_of_each
from robustcmp.analysis.outcomes import Outcomes
from robustcmp.analysis.significance import run_tests
from robustcmp.analysis.statistics import (
    Interval,
    bootstrap_interval,
    brown_forsythe,
    cochran_q,
    common_draws,
    detectable_between_groups,
    detectable_between_pairs,
    detectable_with_variances,
    difference_intervals,
    equivalent_frameworks,
    equivalent_models,
    f_test,
    mantel,
    nested_variance,
    permute,
    t_interval,
    t_test,
    trainings_needed,
    two_way_interval,
    upper_variance,
    wilson_interval,
)
from robustcmp.analysis.statistics.paired_rates import images_to_show
from robustcmp.attacks import SinglePixel
from robustcmp.models.classifier import Classifier

Simulate = Callable[[np.random.Generator], bool]
Settings = ParamSpec("Settings")
MANY = 2000
DRAWS = 10_000
SPREADS_2018 = (0.042, 0.017, 0.017, 0.010, 0.021, 0.049)  # of LeNet-5 under FGSM, in six frameworks
TWINS = 0.98  # how the rates of twins correlate in LeNet-5 under FGSM, in the first and the last of them
BY_SEED = 0.95  # how the rates of equal training seeds correlate in ResNet-20 under single pixel, between frameworks
BY_FIVE = 0.65  # and with five trainings of each instead of three: the mean of three pairs, 0.52 to 0.81
LENET5 = ((0.0304, 0.0197, 0.0195), (0.0006, 0.0011, 0.0011))  # spreads of ten trainings: FGSM, single pixel
FRESH = 0.6  # the part of e's standard deviation that each repeat of a random attack draws anew


@dataclass(frozen=True)
class World:
    """Frameworks, their trainings, and images.

    Attributes
    ----------
    shifts : tuple of float
        How easily each framework's networks are fooled, in standard deviations of the latent scale.
    runs, images, repeats : int
        How many trainings of each framework, images, and repeats of the attack.
    run_sd : float or tuple of float
        The standard deviation between trainings, on the same scale, of all frameworks or of each.
    """

    shifts: tuple[float, ...] = (-0.8, -0.8)
    runs: int = 1
    images: int = 500
    repeats: int = 1
    run_sd: float | tuple[float, ...] = 0.0

    def draw(self, rng: np.random.Generator, difficulty: NDArray[np.float64] | None = None) -> NDArray[np.bool_]:
        """Return whether each image fell, (frameworks, runs, repeats, images)."""
        return self.ease(rng, difficulty) > 0

    def ease(self, rng: np.random.Generator, difficulty: NDArray[np.float64] | None = None) -> NDArray[np.float64]:
        """Return how easily each image falls, on the latent scale, (frameworks, runs, repeats, images)."""
        frameworks = len(self.shifts)
        d = rng.normal(size=self.images) if difficulty is None else difficulty
        u = rng.normal(0, np.reshape(self.run_sd, (-1, 1)), (frameworks, self.runs))
        kept = math.sqrt(1 - FRESH**2) if self.repeats > 1 else 1.0
        e = kept * rng.normal(size=(frameworks, self.runs, 1, self.images))
        if self.repeats > 1:
            e = e + FRESH * rng.normal(size=(frameworks, self.runs, self.repeats, self.images))
        ease: NDArray[np.float64] = np.array(self.shifts)[:, None, None, None] + d + u[..., None, None] + e
        return ease

    def variances(self) -> NDArray[np.float64]:
        """The variance of a training's rate within each framework, on the same images, averaged over choices of images.

        Exact. Two outcomes of a framework on one image or two fall together with the probability that two normal
        variables of known correlation, those of the parts that the outcomes share, are below h. Of a training's rate

            V = (1 - 1/n) (P_u - p²) + (P_r/s + (1 - 1/s) P_e - P_d) / n

        for n images and s repeats: P_u for two images in one training, P_d for two trainings on one image, P_e for two
        repeats on one image in one training, P_r = p for one repeat.
        """
        variances = []
        for shift, sd in zip(self.shifts, np.broadcast_to(self.run_sd, len(self.shifts)), strict=True):
            total = 2 + sd**2
            h = shift / math.sqrt(total)
            training, image, repeat = (both_fall(h, shared / total) for shared in (sd**2, 1.0, total - FRESH**2))
            fall = float(norm.cdf(h))
            of_image = fall / self.repeats + (1 - 1 / self.repeats) * repeat - image
            variances.append((1 - 1 / self.images) * (training - fall**2) + of_image / self.images)
        return np.array(variances)

    def rate(self, shift: float) -> float:
        """The rate of a framework over all trainings and images, where all vary alike."""
        return float(norm.cdf(shift / math.sqrt(2 + float(np.asarray(self.run_sd)) ** 2)))

    def outcomes(self, fell: NDArray[np.bool_]) -> Outcomes:
        """Return a draw as what the tests take."""
        names = [f"f{i}" for i in range(len(self.shifts))]
        return Outcomes(
            "attack",
            self.repeats == 1,
            dict(zip(names, fell, strict=True)),
            {name: list(range(self.runs)) for name in names},
        )


def both_fall(h: float, correlation: float) -> float:
    """Return the probability that two standard normal variables of this correlation are both below h."""
    return float(multivariate_normal.cdf([h, h], cov=[[1, correlation], [correlation, 1]]))


def simulation(simulate: Callable[Concatenate[np.random.Generator, Settings], bool]) -> Callable[Settings, Simulate]:
    """Return a function of the settings alone, which returns a function of the generator."""

    def choose_settings(*args: Settings.args, **kwargs: Settings.kwargs) -> Simulate:
        return lambda rng: simulate(rng, *args, **kwargs)

    return choose_settings


def share(simulate: Simulate, runs: int, seed: int) -> float:
    """Return in what share of simulations something holds."""
    return float(np.mean([simulate(rng) for rng in np.random.default_rng(seed).spawn(runs)]))


def holds(interval: Interval, truth: float) -> bool:
    return interval.low <= truth <= interval.high


# What intervals cover


@simulation
def wilson(rng: np.random.Generator, images: int = 500, shift: float = -0.8) -> bool:
    """One model under a deterministic attack, over images."""
    world = World((shift,), images=images)
    return holds(wilson_interval(int(world.draw(rng).sum()), images), world.rate(shift))


@simulation
def image_bootstrap(rng: np.random.Generator, images: int = 500, shift: float = -0.8) -> bool:
    """One model under a random attack with five repeats, over images."""
    world = World((shift,), images=images, repeats=5)
    means = world.draw(rng)[0, 0].mean(axis=0)
    return holds(bootstrap_interval(means, resamples=1000, seed=int(rng.integers(2**32))), world.rate(shift))


@simulation
def difference_bootstrap(
    rng: np.random.Generator, images: int = 500, shifts: tuple[float, float] = (-0.8, -0.6), repeats: int = 1
) -> bool:
    """The difference of two models over the images that both saw."""
    world = World(shifts, images=images, repeats=repeats)
    truth = world.rate(shifts[0]) - world.rate(shifts[1])
    a, b = world.draw(rng)[:, 0].mean(axis=1)
    [interval] = difference_intervals((a - b)[None], resamples=1000, seed=int(rng.integers(2**32)))
    return holds(interval, truth)


@simulation
def student(rng: np.random.Generator, runs: int = 10, run_sd: float = 0.1, shift: float = -0.8) -> bool:
    """A framework's rate over its trainings, on the images at hand; where it is undefined it does not hold."""
    world = World((shift,), runs=runs, run_sd=run_sd)
    d = rng.normal(size=world.images)
    truth = float(norm.cdf((shift + d) / math.sqrt(1 + run_sd**2)).mean())
    return holds(t_interval(world.draw(rng, d)[0].mean(axis=(1, 2))), truth)


@simulation
def welch_difference(rng: np.random.Generator, runs: int = 5, skewed: bool = False) -> bool:
    """The difference of two frameworks over their trainings, which vary unequally."""
    means, sds = np.array([0.15, 0.25]), np.array([0.01, 0.049])
    found = t_test(*rates_of(rng, means, sds, runs, skewed))
    return found.low <= -0.1 <= found.high


@simulation
def two_way(rng: np.random.Generator, runs: int = 10, run_sd: float = 0.1) -> bool:
    """The difference of two frameworks over trainings and images together."""
    world = World((-0.8, -0.6), runs=runs, run_sd=run_sd)
    truth = world.rate(-0.8) - world.rate(-0.6)
    a, b = world.draw(rng).mean(axis=2)
    return holds(two_way_interval(a, b, resamples=1000, seed=int(rng.integers(2**32))), truth)


def rates(
    rng: np.random.Generator, frameworks: int, runs: int, framework_sd: float, run_sd: float
) -> NDArray[np.float64]:
    """Return rates with normal effects, (frameworks, runs): what the analysis of variance assumes."""
    effects = rng.normal(0, framework_sd, (frameworks, 1)) if framework_sd else np.zeros((frameworks, 1))
    return 0.3 + effects + rng.normal(0, run_sd, (frameworks, runs))


@simulation
def f_interval(rng: np.random.Generator, frameworks: int = 3, runs: int = 10, true_share: float = 0.5) -> bool:
    """The share of variance between frameworks."""
    run_sd = 0.03
    framework_sd = run_sd * math.sqrt(true_share / (1 - true_share))
    found = nested_variance(rates(rng, frameworks, runs, framework_sd, run_sd))
    return found.low <= true_share <= found.high


# How often tests err


@simulation
def models_told_apart(
    rng: np.random.Generator,
    repeats: int = 1,
    models: int = 2,
    images: int = 500,
    run_sd: float = 0.0,
    joint: bool = False,
) -> bool:
    """Whether some models of one framework are told apart at the level of models: any pair, or all of them jointly."""
    world = World((-0.8,) * models, images=images, repeats=repeats, run_sd=run_sd)
    table = run_tests([world.outcomes(world.draw(rng))], "models", resamples=1000)
    return bool((table.p_adjusted[(table.b == "") == joint] < 0.05).any())


@simulation
def distances_told_apart(rng: np.random.Generator, models: int = 2, joint: bool = False) -> bool:
    """The same from the distances at which every image falls."""
    world = World((-0.8,) * models)
    nearer = world.ease(rng)
    outcomes = world.outcomes(np.ones(nearer.shape, np.bool_))
    outcomes = replace(outcomes, distances=dict(zip(outcomes.success, np.exp(-nearer), strict=True)), norm="L2")
    table = run_tests([outcomes], "models", resamples=1000)
    table = table[table.test.str.contains("L2")]
    return bool((table.p_adjusted[(table.b == "") == joint] < 0.05).any())


@simulation
def frameworks_told_apart(
    rng: np.random.Generator,
    runs: int = 10,
    run_sd: float = 0.15,
    shift: float = -0.8,
    frameworks: int = 2,
    joint: bool = False,
) -> bool:
    """Whether frameworks are told apart that are the trainings of one, split up: any pair, or all of them jointly."""
    world = World((shift,) * frameworks, runs=runs, run_sd=run_sd)
    table = run_tests([world.outcomes(world.draw(rng))], "frameworks")
    table = table[table.test != "F"]
    return bool((table.p_adjusted[(table.b == "") == joint] < 0.05).any())


def rates_of(
    rng: np.random.Generator, means: NDArray[np.float64], sds: NDArray[np.float64], runs: int, skewed: bool
) -> NDArray[np.float64]:
    """Return rates of trainings (frameworks, runs) with given means and spreads, normal or skewed (beta)."""
    if not skewed:
        return rng.normal(means[:, None], sds[:, None], (len(means), runs))
    counts = means * (1 - means) / sds**2 - 1
    return rng.beta((means * counts)[:, None], ((1 - means) * counts)[:, None], (len(means), runs))


@simulation
def unequal_spreads(
    rng: np.random.Generator,
    test: Callable[[list[NDArray[np.float64]]], float],
    frameworks: int = 6,
    runs: int = 5,
    skewed: bool = False,
    mean: float = 0.15,
    sds: Sequence[float] = SPREADS_2018,
) -> bool:
    """Whether a test claims a difference between frameworks of one mean, whose trainings vary unequally."""
    chosen = {2: [3, 5], 3: [0, 1, 3], 6: range(6)}[frameworks]
    spreads = np.array(sds)[list(chosen)]
    return test(list(rates_of(rng, np.full(frameworks, mean), spreads, runs, skewed))) < 0.05


def by_f(groups: list[NDArray[np.float64]]) -> float:
    return f_test(groups).p


def by_brown_forsythe(groups: list[NDArray[np.float64]]) -> float:
    return brown_forsythe(groups).p


def by_permutation(groups: list[NDArray[np.float64]]) -> float:
    return permute(np.concatenate(groups)[None], list(map(len, groups)), 500).joint([0]).p


def by_welch(groups: list[NDArray[np.float64]]) -> float:
    return t_test(groups[0], groups[-1]).p


def by_welch_anova(groups: list[NDArray[np.float64]]) -> float:
    return float(f_oneway(*groups, equal_var=False).pvalue)


def by_pairs(groups: list[NDArray[np.float64]]) -> float:
    return t_test(groups[0], groups[-1], paired=True).p


def by_equivalence(groups: list[NDArray[np.float64]]) -> float:
    return equivalent_frameworks(groups[0], groups[-1], 0.02, paired=True).p


@simulation
def twins_told_apart(
    rng: np.random.Generator,
    test: Callable[[list[NDArray[np.float64]]], float],
    sds: Sequence[float] = (SPREADS_2018[0], SPREADS_2018[-1]),
    apart: float = 0.0,
    runs: int = 5,
) -> bool:
    """Whether a test is significant where each training of the last framework is the twin of one of the first."""
    effects = rng.normal(size=(len(sds), runs))
    effects[-1] = TWINS * effects[0] + math.sqrt(1 - TWINS**2) * effects[-1]
    groups = 0.2 + effects * np.array(sds)[:, None]
    groups[-1] += apart
    return test(list(groups)) < 0.05


def sharing_seeds(rng: np.random.Generator, frameworks: int, runs: int, correlation: float) -> NDArray[np.float64]:
    """Return effects of trainings (frameworks, runs) that correlate between frameworks where the seed is the same."""
    common, own = rng.normal(size=(1, runs)), rng.normal(size=(frameworks, runs))
    effects: NDArray[np.float64] = math.sqrt(correlation) * common + math.sqrt(1 - correlation) * own
    return effects


@simulation
def seeds_told_apart(
    rng: np.random.Generator, frameworks: int = 3, runs: int = 3, correlation: float = BY_SEED
) -> bool:
    """Whether frameworks of one mean are told apart if equal training seeds fare alike in all of them."""
    return brown_forsythe(list(sharing_seeds(rng, frameworks, runs, correlation))).p < 0.05


@simulation
def several_attacks(
    rng: np.random.Generator,
    joint: bool,
    sds: Sequence[Sequence[float]] = ((0.03,) * 6,) * 3,
    runs: int = 5,
    shared: float = 0.7,
) -> bool:
    """Whether permutations claim something under attacks, (attacks, frameworks), whose rates depend on each other."""
    spreads = np.array(sds)
    attacks, frameworks = spreads.shape
    common, own = rng.normal(size=(1, frameworks, runs)), rng.normal(size=(attacks, frameworks, runs))
    rates = (shared * common + math.sqrt(1 - shared**2) * own) * spreads[..., None]
    permuted = permute(rates.reshape(attacks, -1), [runs] * frameworks, 500)
    return (permuted.joint(range(attacks)).p if joint else min(permuted.adjust())) < 0.05


@simulation
def nearly_one_model(rng: np.random.Generator, permuted: bool, correlation: float = 0.98) -> bool:
    """Whether three exchangeable models are told apart that agree on nearly all images."""
    own = math.sqrt(1 / correlation - 1)
    fell = rng.normal(size=(1, 500)) + own * rng.normal(size=(3, 500)) > 1.3
    if not permuted:
        return cochran_q(fell).p < 0.05
    table = run_tests([World((0.0,) * 3).outcomes(fell[:, None, None])], "models", resamples=1000)
    return bool((table.p_adjusted[table.b == ""] < 0.05).any())


@simulation
def called_equivalent(
    rng: np.random.Generator,
    apart: float,
    margin: float = 0.05,
    runs: int = 10,
    sds: tuple[float, float] = (0.02, 0.05),
) -> bool:
    """Whether two frameworks so far apart are called equivalent within a margin."""
    a, b = rates_of(rng, np.array([0.2, 0.2 + apart]), np.array(sds), runs, False)
    return equivalent_frameworks(a, b, margin).p < 0.05


@simulation
def models_called_equivalent(rng: np.random.Generator, images: int = 500, only: float = 0.05) -> bool:
    """Whether two models are called equivalent within the margin by which they differ."""
    differences = rng.choice([1.0, -1.0, 0.0], size=images, p=[only, only / 2, 1 - 1.5 * only])
    return equivalent_models(differences, only / 2).p < 0.05


@simulation
def detected(
    rng: np.random.Generator,
    runs: int = 10,
    frameworks: int = 3,
    sds: Sequence[float] = (0.03,) * 6,
    by_seed: float = 0.0,
    tests: int = 1,
) -> bool:
    """Whether the difference that a pilot calls detectable is detected by the same comparison once more.

    `by_seed` is how the rates of equal training seeds correlate between frameworks, `tests` by how many joint tests
    the level is divided.
    """
    spreads = np.array(sds[:frameworks])

    def compared(rng: np.random.Generator, means: NDArray[np.float64]) -> list[NDArray[np.float64]]:
        if not by_seed:
            return list(rates_of(rng, means, spreads, runs, False))
        return list(means[:, None] + spreads[:, None] * sharing_seeds(rng, frameworks, runs, by_seed))

    means = np.full(frameworks, 0.2)
    apart = detectable_between_groups(compared(rng, means), 0.05 / tests)
    means[0], means[-1] = 0.2 - apart / 2, 0.2 + apart / 2
    return brown_forsythe(compared(rng, means)).p < 0.05 / tests


@simulation
def pairs_detected(rng: np.random.Generator, runs: int, tests: int = 1, sd: float = 0.02) -> bool:
    """Whether the difference that pairs of trainings call detectable is detected by as many pairs once more."""
    apart = detectable_between_pairs(rng.normal(0, sd, runs), 0.05 / tests)
    return t_test(rng.normal(apart, sd, runs), np.zeros(runs), paired=True).p < 0.05 / tests


def detected_by(
    test: Callable[[list[NDArray[np.float64]]], float], frameworks: int, runs: int, tests: int = 1, sd: float = 0.03
) -> Simulate:
    """Whether a test detects what F detects in 80 % of cases, where all spreads are equal."""
    apart = detectable_with_variances(np.full(frameworks, sd**2), [runs] * frameworks, 0.05 / tests)
    means = np.full(frameworks, 0.2)
    means[0], means[-1] = 0.2 - apart / 2, 0.2 + apart / 2

    def simulate(rng: np.random.Generator) -> bool:
        return test(list(rates_of(rng, means, np.full(frameworks, sd), runs, False))) < 0.05 / tests

    return simulate


@dataclass(frozen=True)
class Planned:
    """A pilot of three frameworks, and the comparison that is planned with it to detect five points in 20 %.

    Attributes
    ----------
    pilot : World
        Its trainings, images and repeats, and how trainings vary: 0.2 is about four points.
    """

    pilot: World

    @classmethod
    def of(cls, trainings: int, sds: tuple[float, ...] = (0.2,) * 3) -> Planned:
        """Return what is planned with so many trainings."""
        rates = [0.2 - APART / 2, 0.2, 0.2 + APART / 2]
        shifts = [math.sqrt(2 + sd**2) * float(norm.ppf(rate)) for rate, sd in zip(rates, sds, strict=True)]
        return cls(World(tuple(shifts), trainings, 500, 1, sds))

    def needed(self) -> int:
        """Return how many trainings the true variances need."""
        return trainings_needed(replace(self.pilot, runs=2).variances(), APART) or 0

    def simulate(self, rng: np.random.Generator) -> list[tuple[int, bool]]:
        """Return the planned trainings, and whether so many detect the difference, by the estimate and by the limit."""
        groups = list(self.pilot.draw(rng).mean(axis=(2, 3)))
        variances = np.array([group.var(ddof=1) for group in groups])
        results = []
        for planned in (variances, variances / variances.mean() * upper_variance(groups)):
            trainings = trainings_needed(planned, APART) or 0
            drawn = replace(self.pilot, runs=trainings).draw(rng).mean(axis=(2, 3))
            results.append((trainings, brown_forsythe(list(drawn)).p < 0.05))
        return results


APART = 0.05
PLANNED = {
    f"{n} trainings{name}": Planned.of(n, sds)
    for name, sds in {"": (0.2,) * 3, ", unequal spreads": (0.21, 0.085, 0.05)}.items()
    for n in (3, 5, 10)
}


@simulation
def quantised_passes(
    rng: np.random.Generator,
    differences: tuple[float, ...],
    images: int,
    discordance: float,
    rate: float = 0.3,
    repeats: int = 1,
) -> bool:
    """Whether a new model passes a gate that differs from its baseline on a share of the images.

    In each repeat, both models' chances to be fooled on a discordant image are drawn independently for the image. On a
    share of the others, as large as the difference, only the new model is fooled.
    """
    pairs = []
    for attack, difference in enumerate(differences):
        kinds = (discordance, difference, rate, 1 - discordance - difference - rate)
        kind = rng.choice(4, images, p=kinds)
        chances = rng.random((2, images)) if repeats > 1 else np.full((2, images), 0.5)
        chances[:, kind == 1] = [[0], [1]]
        chances[:, kind == 2] = 1
        chances[:, kind == 3] = 0
        old, new = (rng.random((repeats, 2, images)) < chances).mean(axis=0)
        pairs.append(_ModelPair(str(attack), old[None], new[None], repeats, paired=False))
    return passes(pairs)


@simulation
def retrained_passes(rng: np.random.Generator, worlds: Sequence[World]) -> bool:
    """Whether a new model with trainings of its own passes a gate, in one world an attack."""
    pairs = []
    for attack, world in enumerate(worlds):
        old, new = world.draw(rng).mean(axis=2)
        pairs.append(_ModelPair(str(attack), old, new, world.repeats, paired=False))
    return passes(pairs)


def passes(pairs: Sequence[_ModelPair]) -> bool:
    """Whether every informative attack is "not easier", and there is one."""
    answers = {verdict.answer for verdict in _judge_attacks("new", pairs, GATE_MARGIN)} - {"uninformative"}
    return answers == {"not easier"}


def retrained(difference: float, **settings: Any) -> World:
    """Return a world in which 30 % of the baseline's images are fooled, and more of the new model's."""
    sd = settings.get("run_sd", 0.0)
    shifts = [math.sqrt(2 + sd**2) * float(norm.ppf(rate)) for rate in (0.3, 0.3 + difference)]
    return World((shifts[0], shifts[1]), **settings)


GATE_MARGIN = 0.02
WORSE = (GATE_MARGIN, 0.0, 0.0)
EQUAL = (0.0, 0.0, 0.0)
# Half of the discordant images of a deterministic attack differ: 0.1 of them is a discordance of 0.05.
GATED = {
    **{
        f"worse by the margin under one of three attacks, {images:,} images, {share / 2:.1%} differ": (
            quantised_passes(WORSE, images, share),
            0.0,
            0.065,
        )
        for images in (200, 1000, 5000)
        for share in (0.01, 0.05, 0.2)
    },
    "the same, 1,000 images, 5 repeats, 10 % contested": (quantised_passes(WORSE, 1000, 0.1, repeats=5), 0.0, 0.065),
    "the same, 5,000 images, 5 repeats, 20 % contested": (quantised_passes(WORSE, 5000, 0.2, repeats=5), 0.0, 0.065),
    "the same, 1,000 images, 3 % are fooled": (quantised_passes(WORSE, 1000, 0.05, rate=0.03), 0.0, 0.065),
    "the same, another training, 20,000 images": (
        retrained_passes([retrained(each, images=20_000) for each in WORSE]),
        0.0,
        0.065,
    ),
    "the same, 5 trainings of each, 2,000 images": (
        retrained_passes([retrained(each, images=2000, runs=5, run_sd=0.02) for each in WORSE]),
        0.0,
        0.065,
    ),
    "the same, 10 trainings of each that vary more, 1,000 images": (
        retrained_passes([retrained(each, images=1000, runs=10, run_sd=0.1) for each in WORSE]),
        0.0,
        0.065,
    ),
    **{
        f"equal under three attacks, the {images:,} images that the planner names for {share / 2:.1%}": (
            quantised_passes(EQUAL, images, share),
            0.773,
            1.0,
        )
        for share in (0.01, 0.05, 0.2)
        for images in (images_to_show(share / 2, GATE_MARGIN, _power_of_each(3)),)
    },
}


@simulation
def planted_difference(rng: np.random.Generator, points: float = 0.10, run_sd: float = 0.03, runs: int = 10) -> bool:
    """Whether a difference between two frameworks' rates is found at the level of frameworks."""
    one, other = rates(rng, 2, runs, 0.0, run_sd)
    images = 1000
    fell = np.array([[np.arange(images) < round(rate * images) for rate in its] for its in (one, other + points)])
    table = run_tests([World((0.0, 0.0), runs=runs).outcomes(fell[:, :, None, :])], "frameworks")
    return bool(table.p_adjusted[table.b != ""].item() < 0.05)


@simulation
def weaknesses_shared(rng: np.random.Generator, groups: str, shared: float = 0.0) -> bool:
    """Whether transfer is told to be larger within frameworks, of which some are easier to fool and fool more."""
    names = np.array(list(groups))
    level = 2.0 * (names == groups[0])
    within = names[:, None] == names
    transfer = level + 2 * level[:, None] + shared * within + rng.normal(size=within.shape)
    return mantel(transfer, list(groups), resamples=500, seed=int(rng.integers(2**32))).p < 0.05


def components(runs: int, seed: int, framework_sd: float = 0.02, run_sd: float = 0.03) -> NDArray[np.float64]:
    """Return the estimated components of simulated rates, (simulations, 2)."""
    found = [
        nested_variance(rates(rng, 3, 10, framework_sd, run_sd)) for rng in np.random.default_rng(seed).spawn(runs)
    ]
    return np.array([(its.framework, its.training_run) for its in found])


# What is not simulated: models of the zoo, with draws instead of formulas, and with themselves


def single_pixel_draws(draws: int) -> list[tuple[str, float, float, float]]:
    """Return what two models come to under the same draws: by formula, over many draws, and with which error.

    The images are those that have a vulnerable position in either model; the draws are the attack's own repeats.
    """
    data = rc.load_dataset("digits")
    names = ("torch", "tensorflow")
    models = {name: rc.load_model("lenet1", framework=name, dataset="digits", device="cpu") for name in names}
    chosen = rc.common_subset(models, data.images, data.labels)
    x, y = data.images[chosen], data.labels[chosen]
    packed = [SinglePixel(exact=True).attack(model, x, y).extras["vulnerable_map"] for model in models.values()]
    maps = np.unpackbits(packed, axis=2, count=x[0, ..., 0].size).astype(np.bool_)
    weak = maps.any(axis=(0, 2))
    attack = SinglePixel()
    exact = common_draws(*maps[:, weak], attack.max_pixels)
    a, b = (
        np.array(
            [
                its.success
                for start in range(0, draws, 500)  # what repeats share stays in memory
                for its in attack.outcomes(
                    Classifier(model), x[weak], y[weak], 0, range(start, min(start + 500, draws))
                )
            ]
        )
        for model in models.values()
    )
    difference = a.mean(axis=1) - b.mean(axis=1)
    sd = float(difference.std(ddof=1))
    shares = {"difference": difference, "both": a & b, "only_a": a & ~b, "only_b": ~a & b}
    rows = []
    for name, its in shares.items():
        of_draws = its.reshape(draws, -1).mean(axis=1)
        rows.append(
            (name, getattr(exact, name), float(of_draws.mean()), float(of_draws.std(ddof=1) / math.sqrt(draws)))
        )
    return [*rows, ("sd", exact.sd, sd, sd / math.sqrt(2 * draws))]


def three_names(images: int) -> float:
    """Return the smallest adjusted p of one model compared with itself under three names."""
    data = rc.load_dataset("digits")
    model = rc.load_model("lenet1", framework="jax", dataset="digits", device="cpu")
    same = dict.fromkeys("abc", model)
    ev = rc.evaluate(same, data.images, data.labels, suite="smoke", n=images, progress=False)
    return float(ev.tests().p_adjusted.fillna(1.0).min())


TENTH = float(norm.ppf(0.1)) * math.sqrt(2)  # the shift at which a tenth of the images falls
COVERAGE = {
    "Wilson, one model, 500 images": (wilson(), 0.93, 0.97),
    "Wilson, 100 images": (wilson(100), 0.93, 0.97),
    "bootstrap, one model, random attack, 500 images": (image_bootstrap(), 0.92, 0.98),
    "bootstrap, one model, random attack, 100 images": (image_bootstrap(100), 0.92, 0.98),
    "bootstrap, difference of two models, deterministic attack": (difference_bootstrap(), 0.92, 0.98),
    "bootstrap, difference of two models, random attack": (difference_bootstrap(repeats=5), 0.92, 0.98),
    "t, a framework's rate, 10 trainings": (student(), 0.93, 0.97),
    "t, a framework's rate, 3 trainings": (student(3), 0.93, 0.97),
    "F, share of frameworks, truth 50 %, 3 frameworks": (f_interval(), 0.93, 0.97),
    "F, share of frameworks, truth 10 %, 3 frameworks": (f_interval(true_share=0.1), 0.93, 0.97),
    "two-way bootstrap, difference of frameworks, 10 trainings": (two_way(), 0.92, 1.0),
    "Wilson, 100 images, 10 expected successes": (wilson(100, TENTH), 0.93, 0.97),
    "bootstrap, one model, random attack, 100 images, 10 expected": (image_bootstrap(100, TENTH), 0.92, 0.98),
    "bootstrap, difference, 150 images, 10 expected to fall in one alone": (
        difference_bootstrap(150, (TENTH, TENTH)),
        0.92,
        0.98,
    ),
    "Welch's t, difference of two frameworks, 5 trainings, 1.0 and 4.9 points": (welch_difference(), 0.92, 0.97),
    "the same, 10 trainings, skewed": (welch_difference(10, True), 0.92, 0.97),
    "Welch's t, difference of two frameworks, 3 trainings, 1.0 and 4.9 points": (welch_difference(3), 0.92, 0.97),
}
TABULATED = {
    "Wilson, 100 images, 1 to 2 expected successes": wilson(100, -3.0),
    "bootstrap, random attack, 100 images, 1 to 2 expected": image_bootstrap(100, -3.0),
    "bootstrap, difference, 100 images, few differ": difference_bootstrap(100, (-3.0, -2.8)),
    "two-way bootstrap, 3 trainings": two_way(3),
    "F, share of frameworks, truth 0 %, 3 frameworks": f_interval(true_share=0.0),
    "t, a framework's rate, 2 trainings, 0.5 % of the images fall": student(2, shift=-3.65),
    "t, a framework's rate, 10 trainings, 0.5 % of the images fall": student(10, shift=-3.65),
}
UNEQUALLY = {
    **{
        f"{name}, {k} frameworks, {n} trainings, spreads of 2018{', skewed' * skewed}": unequal_spreads(
            test, k, n, skewed
        )
        for name, test in (("F", by_f), ("permutation of F", by_permutation))
        for k in (3, 6)
        for n in (3, 5, 10)
        for skewed in (False, True)
    },
    "Brown-Forsythe, 2 frameworks, 5 trainings, very skewed (mean 1 %, sd 0.2 and 1.0)": unequal_spreads(
        by_brown_forsythe, 2, 5, True, 0.01, (0, 0, 0, 0.002, 0, 0.01)
    ),
    "Brown-Forsythe, 6 frameworks, 5 trainings, very skewed (mean 1 %, sd 0.2 to 1.0)": unequal_spreads(
        by_brown_forsythe, 6, 5, True, 0.01, [its / 5 for its in SPREADS_2018]
    ),
    "Westfall-Young, three dependent attacks, spreads of 2018": several_attacks(False, (SPREADS_2018,) * 3),
    "permutation of the summed F, three dependent attacks, spreads of 2018": several_attacks(True, (SPREADS_2018,) * 3),
    "Cochran's Q by chi-square, three nearly equal models (latent correlation 0.98)": nearly_one_model(False),
    "Welch's t of twins, 5 trainings, 4.2 and 4.9 points": twins_told_apart(by_welch),
    "Welch's t of twins that are 2 points apart": twins_told_apart(by_welch, apart=0.02),
    "Brown-Forsythe, 2 frameworks, twins": twins_told_apart(by_brown_forsythe),
    "Brown-Forsythe, 3 frameworks, two of them twins, 4.2, 1.0 and 4.9 points": twins_told_apart(
        by_brown_forsythe, (0.042, 0.010, 0.049)
    ),
    "Brown-Forsythe, 6 frameworks, two of them twins, equal spreads": twins_told_apart(by_brown_forsythe, (0.03,) * 6),
    "Brown-Forsythe, 6 frameworks, two of them twins, spreads of 2018": twins_told_apart(
        by_brown_forsythe, SPREADS_2018
    ),
    "Brown-Forsythe, 3 frameworks, 3 trainings, equal seeds correlated by 0.95": seeds_told_apart(),
    "permutation of the summed F, two attacks, 3 frameworks, 10 trainings, LeNet-5's spreads": several_attacks(
        True, LENET5, 10, 0.0
    ),
    **{
        f"Welch's analysis of variance, {k} frameworks, {n} trainings, spreads of 2018": unequal_spreads(
            by_welch_anova, k, n
        )
        for k in (3, 6)
        for n in (3, 5)
    },
    **{
        f"what F detects in 80 % of cases, found by {name}, {k} frameworks, {n} trainings, equal spreads": detected_by(
            test, k, n
        )
        for k, n in ((3, 3), (3, 5), (6, 5), (3, 10))
        for name, test in (("F", by_f), ("Brown-Forsythe", by_brown_forsythe))
    },
    **{
        f"the same at 5 % divided by 3, found by Brown-Forsythe, 3 frameworks, {n} trainings": detected_by(
            by_brown_forsythe, 3, n, 3
        )
        for n in (3, 5, 10)
    },
    "Brown-Forsythe, 3 frameworks, 5 trainings, equal seeds correlated by 0.65": seeds_told_apart(3, 5, BY_FIVE),
}
# What is told apart: at least, at most. 5 % and three Monte Carlo standard errors of 2,000 simulations.
CHANCE = 0.05 + 3 * math.sqrt(0.05 * 0.95 / MANY)
UNEQUAL = 0.08  # where no test is exact
TOLD_APART: dict[str, tuple[Simulate, float, float]] = {
    "models, exchangeable, deterministic attack": (models_told_apart(), 0.0, CHANCE),
    "models, three exchangeable, deterministic attack": (models_told_apart(models=3), 0.0, CHANCE),
    "models, exchangeable, random attack": (models_told_apart(repeats=5), 0.0, CHANCE),
    "frameworks, trainings of one framework split in two": (frameworks_told_apart(), 0.0, CHANCE),
    "the same, two trainings each, 0.5 % fall": (frameworks_told_apart(2, shift=-3.65), 0.0, CHANCE),
    "the same, three trainings each, 0.5 % fall": (frameworks_told_apart(3, shift=-3.65), 0.0, CHANCE),
    "models, two trainings of one framework": (models_told_apart(run_sd=0.15), 0.1, 1.0),
    "frameworks, 10 points apart, deviation 3 points, ten trainings": (planted_difference(), 0.9, 1.0),
    "joint test of three exchangeable models, deterministic attack": (
        models_told_apart(models=3, joint=True),
        0.0,
        CHANCE,
    ),
    "joint test of three exchangeable models, random attack": (
        models_told_apart(5, models=3, joint=True),
        0.0,
        CHANCE,
    ),
    "distances of two exchangeable models": (distances_told_apart(), 0.0, CHANCE),
    "joint test of three exchangeable models' distances": (distances_told_apart(3, joint=True), 0.0, CHANCE),
    "frameworks, trainings of one framework split in three": (frameworks_told_apart(frameworks=3), 0.0, CHANCE),
    "joint test of them": (frameworks_told_apart(frameworks=3, joint=True), 0.0, CHANCE),
    "transfer, five and five trainings that share nothing": (weaknesses_shared("aaaaabbbbb"), 0.0, CHANCE),
    "transfer, eight and two trainings that share nothing": (weaknesses_shared("aaaaaaaabb"), 0.0, CHANCE),
    "transfer, five and five that share one standard deviation": (weaknesses_shared("aaaaabbbbb", 1.0), 0.9, 1.0),
    **{
        f"Brown-Forsythe, {k} frameworks, {n} trainings, spreads of 2018{', skewed' * skewed}": (
            unequal_spreads(by_brown_forsythe, k, n, skewed),
            0.0,
            UNEQUAL,
        )
        for k in (2, 3, 6)
        for n in (3, 5, 10)
        for skewed in (False, True)
    },
    "Brown-Forsythe, 3 frameworks, 5 trainings, equal spreads": (
        unequal_spreads(by_brown_forsythe, 3, 5, sds=(0.03,) * 6),
        0.0,
        CHANCE,
    ),
    "Welch's t of a pair, 5 trainings, 1.0 and 4.9 points": (unequal_spreads(by_welch, 2, 5), 0.0, UNEQUAL),
    "Westfall-Young, three dependent attacks, equal spreads": (several_attacks(False), 0.0, CHANCE),
    "permutation of the summed F, three dependent attacks, equal spreads": (several_attacks(True), 0.0, CHANCE),
    "joint test of three nearly equal models (latent correlation 0.98)": (nearly_one_model(True), 0.0, CHANCE),
    "equivalence, two frameworks apart by the margin, unequal spreads": (called_equivalent(0.05), 0.0, CHANCE),
    "the same, three trainings": (called_equivalent(0.05, runs=3), 0.0, CHANCE),
    "equivalence, two models apart by the margin": (models_called_equivalent(), 0.0, CHANCE),
    "equivalence of frameworks with one mean, margin three deviations": (
        called_equivalent(0.0, 0.09, sds=(0.03, 0.03)),
        0.9,
        1.0,
    ),
    "the detectable difference, three frameworks, ten trainings": (detected(), 0.74, 0.86),
    "the detectable difference, six frameworks, five trainings, spreads of 2018": (
        detected(5, 6, SPREADS_2018),
        0.0,
        1.0,
    ),
    "paired t of twins, 5 trainings, 4.2 and 4.9 points": (twins_told_apart(by_pairs), 0.0, CHANCE),
    "paired t of twins that are 2 points apart": (twins_told_apart(by_pairs, apart=0.02), 0.75, 1.0),
    "equivalence of twins that are apart by the margin": (twins_told_apart(by_equivalence, apart=0.02), 0.0, CHANCE),
    "the detectable difference, three frameworks, three trainings": (detected(3), 0.0, 1.0),
    "the detectable difference, three frameworks, two trainings": (detected(2), 0.0, 1.0),
    "the detectable difference, three frameworks, five trainings": (detected(5), 0.0, 1.0),
    "the same, three trainings, equal seeds correlated by 0.95": (detected(3, by_seed=BY_SEED), 0.0, 1.0),
    **{
        f"the detectable difference at 5 % divided by 3, three frameworks, {name} trainings": (
            detected(n, tests=3),
            0.0,
            1.0,
        )
        for name, n in (("three", 3), ("five", 5), ("ten", 10))
    },
    **{
        f"Brown-Forsythe, {k} frameworks, {n} trainings, equal spreads": (
            unequal_spreads(by_brown_forsythe, k, n, sds=(0.03,) * 6),
            0.0,
            CHANCE,
        )
        for k, n in ((3, 3), (6, 3), (6, 5))
    },
    "the detectable difference at 5 % divided by 3, six frameworks, five trainings, spreads of 2018": (
        detected(5, 6, SPREADS_2018, tests=3),
        0.0,
        1.0,
    ),
    "the detectable difference, six frameworks, ten trainings, spreads of 2018": (
        detected(10, 6, SPREADS_2018),
        0.0,
        1.0,
    ),
    **{
        f"the detectable difference of pairs, {n} trainings{f', at 5 % divided by {tests}' * (tests > 1)}": (
            pairs_detected(n, tests),
            0.0,
            1.0,
        )
        for n, tests in ((2, 1), (3, 1), (5, 1), (10, 1), (5, 8), (10, 8))
    },
    "the detectable difference, three frameworks, five trainings, equal seeds correlated by 0.65": (
        detected(5, by_seed=BY_FIVE),
        0.0,
        1.0,
    ),
}


Part = tuple[list[str], int]
"""The lines of a part of the page, and how many of its figures are not where they should be."""


def shares(entries: dict[str, tuple[Simulate, float, float]], unused_seeds: Collection[int] = ()) -> Part:
    """Simulate each entry with a seed of its own; those of entries that were deleted stay unused."""
    lines, failed = ["| simulation | found | should be |", "|---|---:|---|"], 0
    seeds = (seed for seed in itertools.count() if seed not in unused_seeds)
    for seed, (name, (simulate, low, high)) in zip(seeds, entries.items(), strict=False):
        found = share(simulate, MANY, seed)
        passed = low <= found <= high
        failed += not passed
        wanted = "–" if (low, high) == (0.0, 1.0) else f"{low:.1%} to {high:.1%}{'' if passed else ', **missed**'}"
        lines.append(f"| {name} | {found:.1%} | {wanted} |")
        print(lines[-1], file=sys.stderr, flush=True)
    return lines, failed


def without_threshold(entries: dict[str, Simulate]) -> Part:
    return shares({name: (simulate, 0.0, 1.0) for name, simulate in entries.items()})


def planned_comparisons() -> Part:
    """Whether comparisons detect what they were planned for; with the upper limit they should."""
    lines = [
        "| pilot | planned by | trainings planned, median | trainings needed | detected | enough planned | should be |",
        "|---|---|---:|---:|---:|---:|---|",
    ]
    failed = 0
    for seed, (name, planned) in enumerate(PLANNED.items()):
        needed = planned.needed()
        results = np.array([planned.simulate(rng) for rng in np.random.default_rng(seed).spawn(MANY)], np.float64)
        for label, (trainings, detected) in zip(("estimate", "upper limit"), results.transpose(1, 2, 0), strict=True):
            found, enough = float(detected.mean()), float((trainings >= needed).mean())
            missed = label == "upper limit" and min(found, enough) < AT_LEAST
            failed += missed
            wanted = "–" if label == "estimate" else f"{AT_LEAST:.1%} or more{', **missed**' * missed}"
            shown = f"{np.median(trainings):.0f} | {needed} | {found:.1%} | {enough:.1%} | {wanted}"
            lines.append(f"| {name} | {label} | {shown} |")
            print(lines[-1], file=sys.stderr, flush=True)
    return lines, failed


def variance_components() -> Part:
    found = components(MANY, 0)
    lines, failed = ["| component | planted | mean found | standard error |", "|---|---:|---:|---:|"], 0
    for i, (name, truth) in enumerate((("framework", 0.02**2), ("training run", 0.03**2))):
        mean, error = found[:, i].mean(), found[:, i].std(ddof=1) / math.sqrt(MANY)
        failed += abs(mean - truth) > 3 * error
        lines.append(f"| {name} | {truth:.2e} | {mean:.3e} | {error:.1e} |")
    return lines, failed


def exact_pixel() -> Part:
    lines = ["| two models under the same draws | exact | over draws | standard error |", "|---|---:|---:|---:|"]
    failed = 0
    for name, truth, found, error in single_pixel_draws(DRAWS):
        failed += abs(found - truth) > 3 * error
        lines.append(f"| {name} | {truth:.5f} | {found:.5f} | {error:.5f} |")
    return lines, failed


def one_model() -> Part:
    smallest = three_names(200)
    return [
        f"The smallest adjusted p of all tests is {smallest:.3f}; at least 0.05 is as it should be."
    ], smallest < 0.05


AT_LEAST = 0.8 - 3 * math.sqrt(0.8 * 0.2 / MANY)
PARTS: dict[str, Callable[[], Part]] = {
    "What the 95 % intervals cover": lambda: shares(COVERAGE, unused_seeds=(11, 12, 18, 19, 20)),
    "Elsewhere, without a threshold": lambda: without_threshold(TABULATED),
    "How often tests find a difference, where there is none and where there is one": lambda: shares(TOLD_APART),
    "Tests that do not decide, and cases for which no test is valid": lambda: without_threshold(UNEQUALLY),
    "Whether a planned comparison detects its difference": planned_comparisons,
    "How often a gate with a margin of two points passes": lambda: shares(GATED),
    "Variance components": variance_components,
    f"Exact single pixel, and {DRAWS:,} draws": exact_pixel,
    "One model under three names": one_model,
}


def main(titles: Sequence[str] = ()) -> int:
    """Do all simulations, or the parts of the page with these titles; write the page, and return 1 if one missed."""
    parts = validity_page.read()
    failed, start = 0, time.perf_counter()
    for title in titles or PARTS:
        lines, missed = PARTS[title]()
        parts[title] = "\n".join(lines)
        failed += missed
        print(f"{title}: {time.perf_counter() - start:.0f} s", file=sys.stderr, flush=True)
    validity_page.write({title: parts[title] for title in PARTS if title in parts})
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

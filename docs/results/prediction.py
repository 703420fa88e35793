"""Where one more training of a framework is expected, in a comparison of one training each."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.stats import t as student_t

from robustcmp.analysis.results import Results

PICKS = 50  # random choices of the other models for each training


class Prediction(NamedTuple):
    """The mean rate of the trainings that there are, and the 95 % interval of one more, within [0, 1]."""

    mean: float
    low: float
    high: float


def predict(results: Results, model: str, attack: str, models: int, images: int = 1000) -> Prediction:
    """Return where a training is expected beside one of each of `models` - 1 other frameworks, none of them its twin.

    m ± t·√V with V = σ²(1 + 1/n) + w + p(1 − p)/images + choice. m is the mean of the n trainings' rates, and σ² the
    variance between trainings: that of their rates less what images do to one training and not to the others, at least
    0. w is the variance of m from the choice of these images, the third term that of p = m from the choice of the other
    ones, and the last that over the choices of the other models. t is Student's quantile with Satterthwaite's degrees
    of freedom, (n − 1)(V / A)² but at least n − 1, where A = s²(1 + 1/n), with the variance s² of the rates, is the
    part that n trainings estimate (Satterthwaite 1946, "An approximate distribution of estimates of variance
    components"; a prediction interval as in Hahn and Meeker 1991, "Statistical Intervals", section 4.2).
    """
    conditioned = results.conditioned
    assert conditioned is not None
    column = conditioned.attacks.index(attack)
    frameworks = [name for name in results.sources if name != model]
    rng = np.random.default_rng(0)
    rates = []
    for seed in results.seeds(model, attack):
        training = results.keys.index((model, seed))
        picks = [_choose_others(results, training, frameworks, models - 1, rng) for _ in range(PICKS)]
        rates.append([conditioned.rates(training, others)[0][-1, column] for others in picks])
    falls = results.values(model, attack).mean(axis=1)
    n, attacked = falls.shape
    of_trainings = np.mean(rates, axis=1)
    mean = float(of_trainings.mean())
    measured = float(of_trainings.var(ddof=1))
    training = max(measured - _measure_interaction(falls) / attacked, 0.0)
    of_images = float(falls.mean(axis=0).var(ddof=1)) / attacked + mean * (1 - mean) / images
    variance = training * (1 + 1 / n) + of_images + float(np.var(rates, axis=1, ddof=1).mean())
    df = (n - 1) * max(variance / (measured * (1 + 1 / n)), 1.0) ** 2
    half = float(student_t.ppf(0.975, df) * np.sqrt(variance))
    return Prediction(mean, max(mean - half, 0.0), min(mean + half, 1.0))


def _measure_interaction(values: NDArray[np.float64]) -> float:
    """Return the variance of what an image does to one training and not to the others, of (trainings, images).

    The residual variance of an analysis of variance of trainings × images with one value each (Searle, Casella and
    McCulloch 1992, "Variance Components", chapter 4).
    """
    residuals = values - values.mean(axis=0) - values.mean(axis=1, keepdims=True) + values.mean()
    trainings, images = values.shape
    return float((residuals**2).sum() / ((trainings - 1) * (images - 1)))


def _choose_others(
    results: Results, training: int, frameworks: list[str], count: int, rng: np.random.Generator
) -> NDArray[np.int64]:
    """Return one random training of each of so many random frameworks."""
    key = results.keys[training]
    twins = {partner for pair in results.twins for partner in (pair.a, pair.b) if key in (pair.a, pair.b)}
    places = [
        [place for place, (name, seed) in enumerate(results.keys) if name == framework and (name, seed) not in twins]
        for framework in frameworks
    ]
    able = [members for members in places if members]
    chosen = rng.permutation(len(able))[:count]
    return np.array([rng.choice(able[position]) for position in chosen], np.int64)

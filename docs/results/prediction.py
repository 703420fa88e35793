"""Where one more training of a framework is expected, in a comparison of one training each."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from robustcmp.analysis.results import Results
from robustcmp.analysis.statistics import Prediction, prediction_interval

PICKS = 50  # random choices of the other models for each training


def predict(results: Results, model: str, attack: str, models: int, images: int = 1000) -> Prediction:
    """Return where a training is expected beside one of each of `models` - 1 other frameworks, none of them its twin.

    From `prediction_interval`, with the variance over the choices of the other models. Of contested images, only that
    those attacked stand for all is not in it.
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
    choice = float(np.var(rates, axis=1, ddof=1).mean())
    return prediction_interval(falls, images, rates=np.mean(rates, axis=1), choice=choice)


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

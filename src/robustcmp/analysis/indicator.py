"""The robustness indicator R(m) of Guo et al., its range, and the success rates that they published."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..errors import UsageError
from ..untrusted import read_toml
from .outcomes import Outcomes
from .significance import RESAMPLES
from .statistics.intervals import resample_rates

if TYPE_CHECKING:
    from .results import Results

Rates = Mapping[str, Mapping[str, float]]
NO_SPREAD = 1e-9
"""Success rates nearer than this are the same: counts differ by 1/n or not at all."""


def _common_attacks(rates: Rates) -> list[str]:
    """Return the attacks that every model has a success rate for, in the order of the first model."""
    models = list(rates.values())
    return [
        attack
        for attack in (models[0] if models else {})
        if all(attack in model and np.isfinite(model[attack]) for model in models)
    ]


def indicator_terms(rates: Rates) -> dict[str, dict[str, float]]:
    """Return P(m, A) = (S[m][A] − min) / (max − min) over the models, 0 where max − min ≤ 1e-9.

    Parameters
    ----------
    rates : dict of dict of float
        Success rates in [0, 1] by model and attack. Attacks that a model lacks, or has NaN for, are left out.

    Returns
    -------
    dict of dict of float
        By model and attack, in [0, 1].

    Raises
    ------
    UsageError
        A rate is outside [0, 1].
    """
    terms: dict[str, dict[str, float]] = {model: {} for model in rates}
    for attack in _common_attacks(rates):
        values = np.array([rates[model][attack] for model in rates], np.float64)
        if values.min() < 0 or values.max() > 1:
            raise UsageError(
                f"success rates should be in [0, 1], received {values.min()} to {values.max()} for {attack!r}"
            )
        for model, term in zip(rates, _relative(values), strict=True):
            terms[model][attack] = float(term)
    return terms


def _relative(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return where values lie between the smallest and the largest along the last axis, 0 where these are the same."""
    low = values.min(axis=-1, keepdims=True)
    spread = values.max(axis=-1, keepdims=True) - low
    return np.where(spread > NO_SPREAD, values - low, 0.0) / np.where(spread > NO_SPREAD, spread, 1.0)


def robustness_indicator(rates: Rates) -> dict[str, float]:
    """Return R(m) = Σ over attacks A of P(m, A): how easily each model is fooled, relative to the others.

    Smaller is more robust. R depends on which models are compared: for each attack it gives a model's position between
    the least and the most easily fooled model, but not how far apart those two are.

    Parameters
    ----------
    rates : dict of dict of float
        Success rates in [0, 1] by model and attack. Only attacks that every model has are summed.

    Returns
    -------
    dict of str to float
        From 0 to the number of attacks.

    Raises
    ------
    UsageError
        A rate is outside [0, 1].

    References
    ----------
    Guo et al., "An Orchestrated Empirical Study on Deep Learning Frameworks and Platforms", arXiv:1811.05187, 2018.

    Examples
    --------
    >>> robustness_indicator({"a": {"fgsm": 0.2, "boundary": 1.0}, "b": {"fgsm": 0.4, "boundary": 1.0}})
    {'a': 0.0, 'b': 1.0}
    """
    return {model: float(sum(values.values())) for model, values in indicator_terms(rates).items()}


def _variants(rates: Rates) -> dict[str, dict[str, float]]:
    """Return R as it is and as it would be: without each attack in turn, and without each model in turn.

    Parameters
    ----------
    rates : dict of dict of float
        As for `robustness_indicator`. With one attack, or with two models or fewer, nothing is left out.

    Returns
    -------
    dict of dict of float
        By what was left out, then by model: ``"all"``, ``"without fgsm"``, …, ``"torch left out"``, …

    Examples
    --------
    >>> _variants({"a": {"fgsm": 0.2, "pixel": 0.1}, "b": {"fgsm": 0.4, "pixel": 0.0}})
    {'all': {'a': 1.0, 'b': 1.0}, 'without fgsm': {'a': 1.0, 'b': 0.0}, 'without pixel': {'a': 0.0, 'b': 1.0}}
    """
    indicators = {"all": robustness_indicator(rates)}
    attacks = _common_attacks(rates)
    for attack in attacks if len(attacks) > 1 else []:
        left = {
            model: {a: rate for a, rate in attack_rates.items() if a != attack} for model, attack_rates in rates.items()
        }
        indicators[f"without {attack}"] = robustness_indicator(left)
    for model in rates if len(rates) > 2 else []:
        indicators[f"{model} left out"] = robustness_indicator(
            {m: attack_rates for m, attack_rates in rates.items() if m != model}
        )
    return indicators


DISTANCE_QUANTILES = (0.5, 0.25, 0.1)


def find_variants(results: Results) -> dict[str, dict[str, float]]:
    """Return R under other rules: without each attack and each model in turn, and from distances."""
    indicators = _variants(results.rates(results.indicator_attacks))
    for q in DISTANCE_QUANTILES:
        total = np.zeros(len(results.models))
        counted = []
        for attack in results.indicator_attacks:
            norm = results.attack_records[attack].norm
            distances = np.array([results.distances.quantile(model, attack, norm, q) for model in results.models])
            if np.isfinite(distances).all():
                total = total + _relative(-distances)
                counted.append(attack)
        if counted:
            name = f"from distances at {q:.0%} of the images ({', '.join(counted)})"
            indicators[name] = dict(zip(results.models, total.tolist(), strict=True))
    return indicators


class IndicatorRange(NamedTuple):
    """How far R of one model varies over resamples.

    Attributes
    ----------
    low, high : float
        What 95 % of the resamples lie between: a bootstrap range, and no confidence interval, as the smallest and the
        largest rate make R irregular.
    ranks : list of float
        The share of resamples in which the model is the most robust one, the second, and so on; ties are shared.
    """

    low: float
    high: float
    ranks: list[float]


def indicator_ranges(
    outcomes: Sequence[Outcomes], resamples: int = RESAMPLES, seed: int = 0
) -> dict[str, IndicatorRange]:
    """Return how far R varies if other images had been attacked, and, with several trainings, others been trained.

    An image is drawn with everything that happened to it, in all models, attacks and repeats, and a training run with
    all its attacks.
    """
    names = list(outcomes[0].success)
    values = [np.stack([attack_outcomes.success[name].mean(axis=1) for attack_outcomes in outcomes]) for name in names]
    totals = _relative(np.stack(resample_rates(values, resamples, seed), axis=-1)).sum(axis=1)
    rounded = totals.round(9)
    below, last = (
        compare(rounded[:, None, :], rounded[:, :, None]).sum(axis=2) for compare in (np.less, np.less_equal)
    )
    first = below + 1
    places = np.arange(1, len(names) + 1)
    at_place = (first[..., None] <= places) & (places <= last[..., None])
    ranks = (at_place / (last - first + 1)[..., None]).mean(axis=0)
    low, high = np.quantile(totals, [0.025, 0.975], axis=0)
    return {
        name: IndicatorRange(float(low[i]), float(high[i]), [float(share) for share in ranks[i]])
        for i, name in enumerate(names)
    }


PUBLISHED = files("robustcmp.resources") / "guo2019.toml"
# What Guo et al. trained the networks on.
DATASETS = {"lenet1": "mnist", "lenet5": "mnist", "resnet20": "cifar10", "vgg16": "cifar10"}


def read_published() -> dict[str, Any]:
    """Return the figures that Guo et al. published."""
    return read_toml(PUBLISHED, "the published figures")


def find_published_rates(manifest: dict[str, Any]) -> dict[str, dict[str, float]]:
    """Return the success rates that were published for a run's network, by framework and attack, or nothing.

    Only for the paper's attacks with the paper's settings, on the dataset that the paper has for the network.
    """
    about = manifest["about"]
    attacks = manifest["suite"]["attacks"]
    figures = read_published()
    same_settings = all(
        attack in attacks and settings.items() <= attacks[attack]["settings"].items()
        for attack, settings in figures["settings"].items()
        if isinstance(settings, dict)
    )
    model = about.get("model")
    if not same_settings or model not in DATASETS or about.get("dataset") != DATASETS[model]:
        return {}
    return dict(figures["success_rate"][model])

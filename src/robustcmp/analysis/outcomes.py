"""What one attack did to every trained model, and where the variance of its success rates lies."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas
from numpy.typing import NDArray

from ..records.attack import NORMS, Floats
from .statistics import nested_variance
from .twins import Twins, match_twins

if TYPE_CHECKING:
    from .results import Results


@dataclass(frozen=True)
class Outcomes:
    """What one attack did to every trained model on the images of a comparison.

    Attributes
    ----------
    attack : str
        Its name.
    deterministic : bool
        Whether all repeats are one and the same.
    success : dict of str to ndarray of bool
        By framework (the name of the models), (training runs, repeats, images).
    seeds : dict of str to list of int
        The training seeds, by framework.
    expected : dict of str to ndarray of float64, optional
        For exact single pixel: the probability of each image to fall to a draw of positions, (training runs, images).
    distances : dict of str to ndarray of float64
        By framework, as `success`, +inf where the attack failed; empty for an attack that is not about distances.
    norm : str
        Their norm, as it is written: L2.
    not_compared : str
        Why verdicts do not use these distances, "" where they do.
    twins : sequence of Twins
        The pairs of trained models that began from the same weights.
    """

    attack: str
    deterministic: bool
    success: Mapping[str, NDArray[np.bool_]]
    seeds: Mapping[str, list[int]]
    expected: Mapping[str, Floats] | None = None
    distances: Mapping[str, Floats] = field(default_factory=dict)
    norm: str = ""
    not_compared: str = ""
    twins: Sequence[Twins] = ()

    def pair_up(self, values: Mapping[str, Floats], a: str, b: str) -> tuple[Floats, Floats, bool]:
        """Return values of a's and of b's trainings, and whether these are twins, which then stand in one order."""
        places = match_twins(self.twins, a, b, self.seeds[a], self.seeds[b])
        if places is None:
            return values[a], values[b], False
        return values[a], values[b][places], True

    @property
    def labels(self) -> list[str]:
        """The trained models: ``torch``, or ``torch/3`` where there are several trainings of one framework."""
        several = any(len(seeds) > 1 for seeds in self.seeds.values())
        return [f"{name}/{seed}" if several else name for name, seeds in self.seeds.items() for seed in seeds]

    @property
    def image_means(self) -> Floats:
        """How often each image falls, (models, images): over all draws, else over repeats, which are no images."""
        means = self.expected or {name: success.mean(axis=1) for name, success in self.success.items()}
        return np.concatenate(list(means.values()))

    @property
    def medians(self) -> dict[str, Floats]:
        """The median distance of each training run over repeats and images, by framework.

        Empty if the attack is not about distances, or if a median is +inf because a training resisted half of them.
        """
        # "higher": between a finite distance and +inf there is nothing to interpolate.
        medians = {
            name: np.quantile(of_model, 0.5, axis=(1, 2), method="higher") for name, of_model in self.distances.items()
        }
        return medians if all(np.isfinite(of_runs).all() for of_runs in medians.values()) else {}

    @property
    def image_distances(self) -> Floats:
        """The median distance of each image over repeats, (models, images)."""
        return np.concatenate([np.median(of_model, axis=1) for of_model in self.distances.values()])

    @property
    def rates(self) -> dict[str, Floats]:
        """A rate for each training run, by framework: the expectation over all draws where that is known."""
        if self.expected is not None:
            return {name: expected.mean(axis=1) for name, expected in self.expected.items()}
        return {name: success.mean(axis=(1, 2)) for name, success in self.success.items()}


def collect_outcomes(results: Results, attack: str, models: Sequence[str]) -> Outcomes:
    """Return what an attack did to every training of some models that ran it."""

    def collect(name: str) -> dict[str, NDArray[Any]]:
        return {model: results.values(model, attack, name) for model in models}

    record = results.attack_records[attack]
    expected = results.exact_pixel.probabilities(attack)
    return Outcomes(
        attack=attack,
        deterministic=record.deterministic,
        success=collect("success"),
        seeds={model: results.seeds(model, attack) for model in models},
        expected=expected and {model: expected[model] for model in models},
        distances=collect(record.norm) if record.compares_distances else {},
        norm=NORMS[record.norm] if record.compares_distances else "",
        not_compared=results.distances.not_compared(attack, models),
        twins=results.twins,
    )


def split_variance(outcomes: Iterable[Outcomes]) -> pandas.DataFrame:
    """Return where the variance of a trained model's success rate lies, a row an attack; see `Evaluation.variance`."""
    rows = [
        {
            "attack": each.attack,
            **nested_variance(list(each.rates.values()))._asdict(),
            "repeat": _repeat_variance(each),
            "image": _image_variance(each),
        }
        for each in outcomes
    ]
    names = ["attack", "framework", "training_run", "repeat", "image", "share", "low", "high"]
    return pandas.DataFrame(rows, columns=names).set_index("attack")


def _image_variance(outcomes: Outcomes) -> float:
    """Return the variance of a model's rate that comes from the choice of images; NaN for one image."""
    values = outcomes.image_means
    n = values.shape[1]
    if n < 2:
        return math.nan
    of_repeats = 0.0 if outcomes.expected else _repeat_variance(outcomes)  # is in the images' means as well
    return float(values.var(axis=1, ddof=1).mean() / n) - of_repeats


def _repeat_variance(outcomes: Outcomes) -> float:
    """Return the variance of a model's mean rate that comes from its repeats; NaN for one repeat of a random attack."""
    if outcomes.deterministic:
        return 0.0
    rates = np.concatenate([success.mean(axis=2) for success in outcomes.success.values()])
    repeats = rates.shape[1]
    if outcomes.expected:  # draws are independent between images
        p = outcomes.image_means
        return float((p * (1 - p)).mean() / p.shape[1] / repeats)
    return float(rates.var(axis=1, ddof=1).mean() / repeats) if repeats > 1 else math.nan

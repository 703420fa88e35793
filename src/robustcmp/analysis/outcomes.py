"""What one attack did to every trained model, and where the variance of its success rates lies."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ..errors import UsageError
from ..records.attack import NORMS
from .recorded import Twins, match_twins
from .statistics.foundations import ONE_TRAINING
from .statistics.variance import nested_variance

if TYPE_CHECKING:
    import pandas


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
    l0, l2, linf : dict of str to ndarray of float64, optional
        The distances in the norm of an attack whose distances are what it is about; +inf where it failed.
    not_compared : str
        Why verdicts do not use these distances, "" where they do.
    twins : sequence of Twins
        The pairs of trained models that began from the same weights.
    """

    attack: str
    deterministic: bool
    success: Mapping[str, NDArray[np.bool_]]
    seeds: Mapping[str, list[int]]
    expected: Mapping[str, NDArray[np.float64]] | None = None
    l2: Mapping[str, NDArray[np.float64]] | None = None
    twins: Sequence[Twins] = ()
    l0: Mapping[str, NDArray[np.float64]] | None = None
    linf: Mapping[str, NDArray[np.float64]] | None = None
    not_compared: str = ""

    def match_twins(self, a: str, b: str) -> list[int] | None:
        """Return where the twin of each training of a is among those of b, None unless twins pair all of them."""
        return match_twins(self.twins, a, b, self.seeds[a], self.seeds[b])

    @property
    def labels(self) -> list[str]:
        """The trained models: ``torch``, or ``torch/3`` where there are several trainings of one framework."""
        several = any(len(seeds) > 1 for seeds in self.seeds.values())
        return [f"{name}/{seed}" if several else name for name, seeds in self.seeds.items() for seed in seeds]

    @property
    def image_means(self) -> NDArray[np.float64]:
        """How often each image falls, (models, images): over all draws, else over repeats, which are no images."""
        means = self.expected or {name: success.mean(axis=1) for name, success in self.success.items()}
        return np.concatenate(list(means.values()))

    @property
    def norm(self) -> str:
        """The norm of the distances that the attack is about, as it is written; "" if it is about none."""
        fields = {"l0": self.l0, "l2": self.l2, "linf": self.linf}
        return next((NORMS[norm] for norm in NORMS if fields[norm] is not None), "")

    @property
    def distances(self) -> Mapping[str, NDArray[np.float64]]:
        """The distances that the attack is about, as the field of their norm has them; empty if it is about none."""
        return self.l0 or self.l2 or self.linf or {}

    @property
    def medians(self) -> dict[str, NDArray[np.float64]]:
        """The median distance of each training run over repeats and images, by framework.

        Empty if the attack is not about distances, or if a median is +inf because a training resisted half of them.
        """
        # "higher": between a finite distance and +inf there is nothing to interpolate.
        medians = {
            name: np.quantile(of_model, 0.5, axis=(1, 2), method="higher") for name, of_model in self.distances.items()
        }
        return medians if all(np.isfinite(of_runs).all() for of_runs in medians.values()) else {}

    @property
    def nearness(self) -> NDArray[np.float64] | None:
        """Of how many other models an image falls at a larger distance, as a share, (models, images); ties count half.

        None if the attack is not about distances. Its differences between models are what Friedman's test is about.
        """
        if not self.distances:
            return None
        medians = np.concatenate([np.median(of_model, axis=1) for of_model in self.distances.values()])
        farther = (medians[None] > medians[:, None]).sum(axis=1)
        equal = (medians[None] == medians[:, None]).sum(axis=1) - 1
        share: NDArray[np.float64] = (farther + equal / 2) / max(len(medians) - 1, 1)
        return share

    @property
    def rates(self) -> dict[str, NDArray[np.float64]]:
        """A rate for each training run, by framework: the expectation over all draws where that is known."""
        if self.expected is not None:
            return {name: expected.mean(axis=1) for name, expected in self.expected.items()}
        return {name: success.mean(axis=(1, 2)) for name, success in self.success.items()}


def variance(outcomes: Iterable[Outcomes]) -> pandas.DataFrame:
    """Return where the variance of a trained model's success rate lies, a row an attack.

    ``framework`` and ``training_run`` are the components of `robustcmp.statistics.nested_variance`, ``share``,
    ``low`` and ``high`` the share of frameworks between trained models with its interval. Beside them stand two
    variances of one trained model's rate: ``repeat``, from its repeats, and ``image``, from the choice of images,
    without what repeats add. All models see the same images and draws. What these do to all of them alike is not in
    ``training_run``; what they do to each model in its own way is. Exact single pixel is analysed by its expectation,
    where repeats do nothing; ``repeat`` is then what as many draws would have added, exactly. ``image`` is NaN for one
    image, both are NaN for one repeat of a random attack that is not exact.

    Raises
    ------
    UsageError
        There is one training per framework, or their numbers differ.
    """
    import pandas

    rows = []
    for attack_outcomes in outcomes:
        sizes = {len(rates) for rates in attack_outcomes.rates.values()}
        if len(sizes) > 1:
            raise UsageError(
                f"the frameworks have {', '.join(map(str, sorted(sizes)))} training runs; the nested analysis of "
                "variance needs equal numbers. Compare the same number of trainings of each framework."
            )
        if len(attack_outcomes.rates) < 2 or sizes == {1}:
            reason = (
                f"{ONE_TRAINING} Compare several trainings of each framework."
                if sizes == {1}
                else "There is one framework alone."
            )
            raise UsageError(f"expected at least two frameworks with at least two trainings each. {reason}")
        components = nested_variance(np.array(list(attack_outcomes.rates.values())))
        rows.append(
            {
                "attack": attack_outcomes.attack,
                "framework": components.framework,
                "training_run": components.training_run,
                "repeat": _repeat_variance(attack_outcomes),
                "image": _image_variance(attack_outcomes),
                "share": components.share,
                "low": components.low,
                "high": components.high,
            }
        )
    names = ("attack", "framework", "training_run", "repeat", "image", "share", "low", "high")
    return pandas.DataFrame(rows, columns=list(names)).set_index("attack")


def _image_variance(outcomes: Outcomes) -> float:
    """Return the variance of a model's rate that comes from the choice of images; NaN for one image."""
    values = outcomes.image_means
    n = values.shape[1]
    of_repeats = 0.0 if outcomes.expected else _repeat_variance(outcomes)  # is in the images' means as well
    return float(values.var(axis=1, ddof=1).mean() / n) - of_repeats if n > 1 else math.nan


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

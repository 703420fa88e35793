"""Where the variance of a trained model's success rate lies."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np

from ..errors import UsageError
from .outcomes import Outcomes
from .statistics.foundations import ONE_TRAINING
from .statistics.variance import nested_variance

if TYPE_CHECKING:
    import pandas


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

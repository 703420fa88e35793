"""How far R can be trusted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from .indicator import relative
from .outcomes import Outcomes
from .significance import (
    RESAMPLES,
)
from .statistics.intervals import resampled_rates


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
    totals = relative(np.stack(resampled_rates(values, resamples, seed), axis=-1)).sum(axis=1)
    rounded = totals.round(9)
    below, at_most = (
        compare(rounded[:, None, :], rounded[:, :, None]).sum(axis=2) for compare in (np.less, np.less_equal)
    )
    first, last = below + 1, at_most
    places = np.arange(1, len(names) + 1)
    at_place = (first[..., None] <= places) & (places <= last[..., None])
    ranks = (at_place / (last - first + 1)[..., None]).mean(axis=0)
    low, high = np.quantile(totals, [0.025, 0.975], axis=0)
    return {
        name: IndicatorRange(float(low[i]), float(high[i]), [float(share) for share in ranks[i]])
        for i, name in enumerate(names)
    }

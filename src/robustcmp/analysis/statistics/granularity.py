"""Granularity: which numbers of images and repeats published rates are consistent with."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...errors import UsageError, check_count

ROUNDING = 1e-9  # of float64, far below any published decimal


class Granularity(NamedTuple):
    """What the steps of published rates say about how many outcomes each is a mean of.

    Attributes
    ----------
    consistent : list of int
        The repeats, from 1 to those stated, of which every rate can be a mean over the stated images.
    fewest : int or None
        The fewest of them; None if there is none, so the rates contradict the stated images.
    chance : float
        The probability that rates of the stated repeats would all be consistent with the fewest; NaN without evidence.
    rates : int
        How many rates it rests on: those of exactly 0 and 1 are consistent with everything and left out.
    """

    consistent: list[int]
    fewest: int | None
    chance: float
    rates: int


def granularity(rates: Sequence[float], images: int, repeats: int, decimals: int) -> Granularity:
    """Return with how many repeats published rates are consistent, the GRIM test (Brown and Heathers 2017).

    A mean over `images` × r outcomes is a multiple of 1 / (images × r), up to rounding. Rates of more repeats are such
    multiples only by chance: with probability r / repeats each if r divides `repeats` and the decimals show every
    step. In general it is the share of the stated design's means whose rounded value r repeats can have as well; means
    are taken as equally likely.

    Parameters
    ----------
    rates : sequence of float
        Published success rates, in [0, 1].
    images, repeats : int
        The stated design: how many images each rate is over, and how often each was attacked.
    decimals : int
        To how many decimals the rates, as shares, were published.

    Returns
    -------
    Granularity

    Raises
    ------
    UsageError
        A rate is outside [0, 1] or has more decimals, or a number is not positive.

    Examples
    --------
    >>> steps = granularity([0.0424, 0.044, 0.0302], images=1000, repeats=10, decimals=4)
    >>> steps.consistent, steps.fewest, steps.chance
    ([5, 8, 9, 10], 5, 0.125)
    """
    images, repeats, decimals = (
        check_count(name, value) for name, value in (("images", images), ("repeats", repeats), ("decimals", decimals))
    )
    values = np.asarray(rates, np.float64)
    if values.ndim != 1 or not (np.isfinite(values) & (values >= 0) & (values <= 1)).all():
        raise UsageError(f"rates should be shares from 0 to 1, received {list(rates)}")
    if (np.abs(values - np.round(values, decimals)) > ROUNDING).any():
        raise UsageError(f"rates should have at most {decimals} decimals, received {list(rates)}")
    inner = values[(values > 0) & (values < 1)]
    consistent = [r for r in range(1, repeats + 1) if _reachable(inner, images * r, decimals).all()]
    if not consistent or not len(inner):
        return Granularity(consistent, min(consistent, default=None), math.nan, len(inner))
    total = images * repeats
    stated = np.round(np.arange(total) / total, decimals)  # of one period: 1 is as 0
    share = float(_reachable(stated, images * consistent[0], decimals).mean())
    return Granularity(consistent, consistent[0], share ** len(inner), len(inner))


def _reachable(rates: NDArray[np.float64], outcomes: int, decimals: int) -> NDArray[np.bool_]:
    """Say which rates a mean over so many outcomes can have after rounding, halves up or down."""
    reachable: NDArray[np.bool_] = (
        np.abs(np.rint(rates * outcomes) / outcomes - rates) <= 0.5 * 10.0**-decimals + ROUNDING
    )
    return reachable

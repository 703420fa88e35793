"""Which of the paper's rates can be means of so many repeats, and what our networks have beside them, for `tables.py`.

``forensics.py`` makes the fingerprints: what the attacks do to networks that are trained, wrapped or counted in certain
ways.
"""

from __future__ import annotations

import json
import math
import tomllib
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from robustcmp.analysis.indicator import PUBLISHED
from robustcmp.report.format import number

ROUNDING = 1e-9  # of float64, far below any published decimal
IMAGES = 1000
REPEATS = 10
Fingerprint = dict[str, Any]
Rates = dict[str, float]


class Granularity(NamedTuple):
    """What the steps of published rates say about how many outcomes each is a mean of.

    Attributes
    ----------
    consistent : list of int
        The repeats, from 1 to those stated, of which every rate can be a mean over the stated images.
    chance : float
        The probability that rates of the stated repeats would all be consistent with the fewest; NaN without evidence.
    rates : int
        How many rates it rests on: those of exactly 0 and 1 are consistent with everything and left out.
    """

    consistent: list[int]
    chance: float
    rates: int


def granularity(rates: list[float], images: int, repeats: int, decimals: int) -> Granularity:
    """Return with how many repeats published rates are consistent, the GRIM test (Brown and Heathers 2017).

    A mean over `images` × r outcomes is a multiple of 1 / (images × r), up to rounding. Rates of more repeats are such
    multiples only by chance: it is the share of the stated design's means whose rounded value r repeats can have as
    well; means are taken as equally likely.
    """
    values = np.asarray(rates, np.float64)
    inner = values[(values > 0) & (values < 1)]
    consistent = [r for r in range(1, repeats + 1) if _is_reachable(inner, images * r, decimals).all()]
    if not consistent or not len(inner):
        return Granularity(consistent, math.nan, len(inner))
    total = images * repeats
    stated = np.round(np.arange(total) / total, decimals)  # of one period: 1 is as 0
    share = float(_is_reachable(stated, images * consistent[0], decimals).mean())
    return Granularity(consistent, share ** len(inner), len(inner))


def _is_reachable(rates: NDArray[np.float64], outcomes: int, decimals: int) -> NDArray[np.bool_]:
    """Say which rates a mean over so many outcomes can have after rounding, halves up or down."""
    apart: NDArray[np.float64] = np.abs(np.rint(rates * outcomes) / outcomes - rates)
    return apart <= 0.5 * 10.0**-decimals + ROUNDING


def read_rates() -> tuple[list[tuple[str, str, Rates]], dict[str, Granularity]]:
    """Return the paper's rates by model and framework, and the granularity of each attack's.

    >>> rows, steps = read_rates()
    >>> len(rows), steps["single_pixel"].consistent
    (12, [5, 8, 9, 10])
    """
    table = tomllib.loads(PUBLISHED.read_text(encoding="utf-8"), parse_float=Decimal)
    rows = []
    decimals = 1
    for model, frameworks in table["success_rate"].items():
        for framework, rates in frameworks.items():
            rows.append((model, framework, {attack: float(rate) for attack, rate in rates.items()}))
            for rate in rates.values():
                decimals = max(decimals, -int(Decimal(rate).normalize().as_tuple().exponent))
    steps = {}
    for attack in dict.fromkeys(attack for *_, rates in rows for attack in rates):
        published = [rates[attack] for *_, rates in rows if attack in rates]
        steps[attack] = granularity(published, IMAGES, REPEATS, decimals)
    return rows, steps


def fingerprints() -> list[Fingerprint]:
    """Return the fingerprints that are stored beside this file."""
    content: list[Fingerprint] = json.loads(Path(__file__).with_name("fingerprints.json").read_text(encoding="utf-8"))
    return content


def describe(fingerprint: Fingerprint, beside: str = "") -> str:
    """Return what a fingerprint is of; its model, unless that stands beside it."""
    parts = [fingerprint["name"]]
    if fingerprint["model"] != beside:
        parts.insert(0, fingerprint["model"])
    if fingerprint["recipe"] != "default":
        parts.append(fingerprint["recipe"])
    if fingerprint["training_seed"]:
        parts.append(f"seed {fingerprint['training_seed']}")
    return "; ".join(parts)


def probability(value: float) -> str:
    """Return a probability as text, a power of ten where it is small."""
    if math.isnan(value):
        return "–"
    return f"{value:.1e}" if value < 0.001 else number(value)

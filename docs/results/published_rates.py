"""Which published rates can be means of so many repeats, and which of our networks have rates like them.

``python docs/results/published_rates.py`` shows it for the paper's rates, ``… published_rates.py rates.toml`` for
others: a file with a table ``[success_rate.MODEL]`` for each network, of ``FRAMEWORK = { ATTACK = RATE, … }``, and with
``[settings]``, ``images`` and ``repeats``. ``forensics.py`` makes the fingerprints: what the attacks do to networks
that are trained, wrapped or counted in certain ways.
"""

from __future__ import annotations

import json
import math
import sys
import tomllib
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from robustcmp.analysis.indicator import DATASETS, PUBLISHED
from robustcmp.report.format import number, percent

ROUNDING = 1e-9  # of float64, far below any published decimal
NEAREST = 3
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


def read_rates(path: Path | None = None) -> tuple[list[tuple[str, str, Rates]], dict[str, Granularity]]:
    """Return published rates by model and framework, and the granularity of each attack's; the paper's without a path.

    >>> rows, steps = read_rates()
    >>> len(rows), steps["single_pixel"].consistent
    (12, [5, 8, 9, 10])
    """
    table = tomllib.loads((path or PUBLISHED).read_text(encoding="utf-8"), parse_float=Decimal)
    images, repeats = (
        table["settings"].get(name, otherwise) for name, otherwise in (("images", 1000), ("repeats", 10))
    )
    exact = [
        (model, framework, rates)
        for model, frameworks in table["success_rate"].items()
        for framework, rates in frameworks.items()
    ]
    decimals = max(
        -int(Decimal(rate).normalize().as_tuple().exponent) for *_, rates in exact for rate in rates.values()
    )
    rows = [
        (model, framework, {attack: float(rate) for attack, rate in rates.items()}) for model, framework, rates in exact
    ]
    attacks = dict.fromkeys(attack for *_, rates in rows for attack in rates)
    steps = {
        attack: granularity([rates[attack] for *_, rates in rows if attack in rates], images, repeats, max(1, decimals))
        for attack in attacks
    }
    return rows, steps


def fingerprints() -> list[Fingerprint]:
    """Return the fingerprints that are stored beside this file."""
    content: list[Fingerprint] = json.loads(Path(__file__).with_name("fingerprints.json").read_text(encoding="utf-8"))
    return content


def distance(rates: Rates, others: Rates) -> float:
    """Return the largest of the attacks' effect sizes h = |2 asin √p − 2 asin √q|, NaN if no attack is in both.

    0.2 is a small difference, 0.8 a large one (Cohen 1988, "Statistical Power Analysis for the Behavioral Sciences",
    chapter 6).

    >>> round(distance({"pixel": 0.03}, {"pixel": 0.001}), 2)
    0.28
    """
    both = rates.keys() & others.keys()
    sizes = (abs(2 * math.asin(math.sqrt(rates[one])) - 2 * math.asin(math.sqrt(others[one]))) for one in both)
    return max(sizes, default=math.nan)


def nearest(model: str, rates: Rates, known: list[Fingerprint]) -> list[tuple[float, Fingerprint]]:
    """Return a model's fingerprints by their distance from rates; those of its dataset if it has none itself."""
    same = [one for one in known if one["model"] == model]
    same = same or [one for one in known if one["dataset"] == DATASETS.get(model)]
    pairs = [(distance(rates, one["rates"]), one) for one in same]
    return sorted((pair for pair in pairs if not math.isnan(pair[0])), key=lambda pair: pair[0])


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


def main() -> None:
    """Print the granularity of each attack's rates, and the nearest fingerprints of each network."""
    rows, steps = read_rates(Path(sys.argv[1]) if sys.argv[1:] else None)
    for attack, found in steps.items():
        repeats = ", ".join(map(str, found.consistent)) or "none"
        print(f"{attack}: consistent with {repeats} repeats; by chance {probability(found.chance)}")
    for model, framework, rates in rows:
        print(f"\n{model}, {framework}: " + ", ".join(f"{attack} {percent(rate)}" for attack, rate in rates.items()))
        for apart, near in nearest(model, rates, fingerprints())[:NEAREST]:
            figures = ", ".join(percent(near["rates"][attack]) for attack in rates if attack in near["rates"])
            print(f"  {apart:.2f} apart: {figures} ({describe(near, model)})")


if __name__ == "__main__":
    main()

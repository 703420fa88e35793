"""Published rates beside the fingerprints they resemble, and their granularity: as tables."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ..analysis.forensics import Fingerprint, Published, nearest
from .format import NOTHING, number, percent
from .table import Column, Table, names

MEANING = (
    "Distance: the largest of the attacks' effect sizes h, |2 asin √p − 2 asin √q|; 0.2 is a small difference, 0.8 a "
    "large one.",
    "A fingerprint counts images that the wrapper misclassifies as fallen, as Foolbox 1.x does; inside is the share "
    "classified correctly there.",
    "A near fingerprint shows that such a setup can give such rates, not that it did.",
)


def steps(published: Published) -> Table:
    """The granularity of each attack's rates."""
    images, repeats = published.settings.images, published.settings.repeats
    columns = [*names("attack"), Column("rates", str), Column("consistent repeats", str)]
    columns += [Column("coarsest step", str), Column(f"chance with {repeats}", probability)]
    rows = [
        [
            attack,
            steps.rates,
            ", ".join(map(str, steps.consistent)) or "none",
            f"{1 / (images * steps.fewest):.6f}".rstrip("0") if steps.fewest else NOTHING,
            steps.chance,
        ]
        for attack, steps in published.granularity.items()
    ]
    exact = f"if exact to {published.decimals} decimals"
    return Table(f"Granularity: repeats of {images:,} images consistent with the rates, {exact}", columns, rows)


def beside(published: Published, known: Sequence[Fingerprint], count: int) -> Table:
    """Published rates, each with the nearest fingerprints."""
    attacks = published.attacks
    columns = [*names("published, and nearest"), *(Column(attack, percent) for attack in attacks)]
    columns += [Column("inside", percent), Column("distance", number)]
    rows = []
    for model, framework, rates in published.rows:
        cells = [rates.get(attack, math.nan) for attack in attacks]
        rows.append([f"{model}, {framework}", *cells, math.nan, math.nan])
        for near in nearest(model, rates, known, count):
            fingerprint = near.fingerprint
            cells = [fingerprint.rates.get(attack, math.nan) for attack in attacks]
            lines = described(fingerprint, model).replace("; ", "\n    ").replace(", bounds", "\n    bounds")
            rows.append([f"  {lines}", *cells, fingerprint.clean_accuracy, near.distance])
    return Table("Published rates and the nearest fingerprints", columns, rows)


def described(fingerprint: Fingerprint, beside: str = "") -> str:
    """Return what a fingerprint is of; its model, unless that stands beside it."""
    parts = [fingerprint.model] * (fingerprint.model != beside) + [fingerprint.name]
    parts += [fingerprint.recipe] * (fingerprint.recipe != "default")
    return "; ".join([*parts, *[f"seed {fingerprint.training_seed}"] * bool(fingerprint.training_seed)])


def probability(value: float) -> str:
    """A probability, as a power of ten where it is small."""
    return NOTHING if math.isnan(value) else f"{value:.1e}" if value < 0.001 else number(value)

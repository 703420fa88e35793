"""What published success rates say of how they came about: their granularity, and the fingerprints they resemble.

A fingerprint is what the attacks do to a network that is trained, wrapped or counted in a certain way. Those that ship
are in ``resources/fingerprints.json``, made by ``docs/results/forensics.py``.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from decimal import Decimal
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any

import msgspec

from .. import limits
from ..documents import read_toml
from ..errors import UsageError, check_count, unknown
from ..errors import nearest as nearest_name
from .paper import DATASETS, PUBLISHED
from .statistics.granularity import Granularity, granularity


class Settings(msgspec.Struct, frozen=True):
    """What a file of published rates may state of its design."""

    images: Annotated[int, msgspec.Meta(ge=1, le=limits.IMAGES)] = 1000
    repeats: Annotated[int, msgspec.Meta(ge=1, le=limits.REPEATS)] = 10

    def check(self) -> None:
        """Raise `UsageError` for more outcomes than can be counted one by one."""
        check_count("images", self.images, limits.IMAGES)
        check_count("repeats", self.repeats, limits.REPEATS)
        check_count("the product of images and repeats", self.images * self.repeats, limits.OUTCOMES)


class Published(msgspec.Struct, frozen=True):
    """Published success rates.

    Attributes
    ----------
    success_rate : dict
        By model, framework and attack, as shares, with the decimals that were published.
    settings : Settings
        The stated images and repeats, the paper's unless the file says otherwise.
    """

    success_rate: dict[str, dict[str, dict[str, Decimal]]]
    settings: Settings = Settings()

    @property
    def attacks(self) -> list[str]:
        """The attacks, in the order of the file."""
        return list(dict.fromkeys(attack for _, _, rates in self.rows for attack in rates))

    @property
    def rows(self) -> list[tuple[str, str, dict[str, float]]]:
        """Every model and framework with its rates by attack."""
        return [
            (model, framework, {attack: float(rate) for attack, rate in rates.items()})
            for model, frameworks in self.success_rate.items()
            for framework, rates in frameworks.items()
        ]

    @property
    def decimals(self) -> int:
        """The decimals of the longest rate: those of the others may have been zeros."""
        exponents = [
            rate.normalize().as_tuple().exponent
            for frameworks in self.success_rate.values()
            for rates in frameworks.values()
            for rate in rates.values()
        ]
        return max(1, *(-exponent for exponent in exponents if isinstance(exponent, int)))

    @property
    def granularity(self) -> dict[str, Granularity]:
        """The granularity of each attack's rates, for the stated images and repeats."""
        images, repeats = self.settings.images, self.settings.repeats
        return {
            attack: granularity(
                [rates[attack] for _, _, rates in self.rows if attack in rates], images, repeats, self.decimals
            )
            for attack in self.attacks
        }

    def stating(self, images: int | None = None, repeats: int | None = None) -> Published:
        """Return the same rates with other images or repeats stated, where they are given."""
        stated = Settings(images or self.settings.images, repeats or self.settings.repeats)
        stated.check()
        return msgspec.structs.replace(self, settings=stated)


class Fingerprint(msgspec.Struct, frozen=True):
    """What the attacks do to one network in one wrapper.

    Attributes
    ----------
    name : str
        How it is wrapped, counted or given its images, in a few words.
    model, dataset, recipe, training_seed, framework
        The network and its training.
    bounds : tuple of float
        What the attacks take for the smallest and the largest value of a pixel.
    images : int
        How many were attacked, all of which the network classifies correctly outside the wrapper.
    common : bool
        Whether all of the zoo's torch networks of the dataset classify them correctly as well.
    clean_accuracy : float
        The share that it classifies correctly inside.
    rates : dict of str to float
        The success rate of each attack; images misclassified inside count as fallen at distance 0, as in Foolbox 1.x.
    of_correct : dict of str to float
        The success rate among the images classified correctly inside; None without any.
    seed : int
        The seed of the choice of images and of the attacks.
    test_accuracy : float
        On the whole test set, outside.
    weights : str
        The SHA-256 of the weights.
    versions : dict of str to str
        Of the packages that made it.
    """

    name: str
    model: str
    dataset: str
    recipe: str
    training_seed: int
    framework: str
    bounds: tuple[float, float]
    images: int
    common: bool
    clean_accuracy: float
    rates: dict[str, float]
    of_correct: dict[str, float | None]
    seed: int
    test_accuracy: float
    weights: str
    versions: dict[str, str | None]


class Near(msgspec.Struct, frozen=True):
    """A fingerprint beside published rates; `distance` is as for `distance`."""

    fingerprint: Fingerprint
    distance: float


def read_published(path: str | os.PathLike[str] | None = None) -> Published:
    """Read published rates from a TOML file, the paper's without one.

    The file has a table ``[success_rate.MODEL]`` for each network, with ``FRAMEWORK = { ATTACK = RATE, … }``, and may
    have ``[settings]`` with ``images`` and ``repeats``; what else it has is ignored. Rates are shares.

    Raises
    ------
    UsageError
        The file cannot be read, or is not such a file.

    Examples
    --------
    >>> read_published().granularity["single_pixel"].fewest
    5
    """
    source = PUBLISHED if path is None else Path(path)
    table = read_toml(source, "the rates", parse_float=Decimal)
    try:
        _check_settings(table.get("settings"))
        published = msgspec.convert(table, Published)
        published.settings.check()
        wrong = [
            f"{model}.{framework}.{attack} = {rate}"
            for model, framework, rates in published.rows
            for attack, rate in rates.items()
            if not 0 <= rate <= 1
        ]
        if wrong or not published.attacks:
            received = wrong[0] if wrong else "none"
            raise UsageError(f"expected rates from 0 to 1 in [success_rate.MODEL], received {received}")
        if published.decimals > limits.DECIMALS:
            raise UsageError(f"expected rates of at most {limits.DECIMALS} decimals, received {published.decimals}")
    except (msgspec.ValidationError, UsageError) as error:
        raise UsageError(f"the rates {source}: {error}") from None
    return published


def _check_settings(settings: Any) -> None:
    """Raise `UsageError` for a misspelt key, and leave the settings of attacks aside."""
    fields = Settings.__struct_fields__
    for key, value in settings.items() if isinstance(settings, dict) else ():
        if key not in fields and not isinstance(value, dict) and nearest_name(key, fields):
            raise unknown("key of [settings]", key, fields)


def fingerprints() -> list[Fingerprint]:
    """Return the fingerprints that ship."""
    content = (files("robustcmp.resources") / "fingerprints.json").read_bytes()
    return msgspec.json.decode(content, type=list[Fingerprint])


def distance(rates: Mapping[str, float], others: Mapping[str, float]) -> float:
    """Return how far apart two sets of rates are: the largest of the attacks' effect sizes h, NaN if none is in both.

    h = |2 asin √p − 2 asin √q| (Cohen 1988, "Statistical Power Analysis for the Behavioral Sciences", chapter 6): 0.2
    is a small difference, 0.8 a large one, and π the largest, between 0 and 1.

    >>> round(distance({"pixel": 0.03}, {"pixel": 0.001}), 2)
    0.28
    """
    return max(
        (
            abs(2 * math.asin(math.sqrt(rates[attack])) - 2 * math.asin(math.sqrt(others[attack])))
            for attack in rates
            if attack in others
        ),
        default=math.nan,
    )


def nearest(
    model: str, rates: Mapping[str, float], known: Sequence[Fingerprint], count: int | None = None
) -> list[Near]:
    """Return the fingerprints of a model by their distance from published rates, the nearest first.

    Where there is none of the model, those of its dataset are taken; where that is not known, all.
    """
    same = [setup for setup in known if setup.model == model]
    same = same or [setup for setup in known if setup.dataset == DATASETS.get(model, setup.dataset)]
    setups = [Near(setup, distance(rates, setup.rates)) for setup in same]
    return sorted((near for near in setups if not math.isnan(near.distance)), key=lambda near: near.distance)[:count]


def to_json(published: Published, known: Sequence[Fingerprint], count: int) -> dict[str, Any]:
    """Return all of it in JSON's types."""
    return {
        **msgspec.to_builtins(published.settings),
        "decimals": published.decimals,
        "granularity": {
            attack: one._asdict() | {"chance": None if math.isnan(one.chance) else one.chance}
            for attack, one in published.granularity.items()
        },
        "published": [
            {
                "model": model,
                "framework": framework,
                "rates": rates,
                "nearest": msgspec.to_builtins(nearest(model, rates, known, count)),
            }
            for model, framework, rates in published.rows
        ],
    }

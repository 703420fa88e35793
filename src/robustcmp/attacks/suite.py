"""Suites: which attacks with which settings, read from TOML files and checked before anything runs.

A file of the directory ``attacks/`` or any other::

    description = "what it is for"
    images = 1000                   # how many images are attacked, if the caller does not say
    repeats = 10

    [attacks.fgsm]                  # the name in tables and results
    attack = "FGSM"                 # one of ours, or a class of foolbox.attacks
    epsilons = 100                  # all other keys are the attack's own parameters
    max_epsilon = 0.1

    [attacks.pgd]
    attack = "LinfPGD"
    epsilons = [0.01, 0.03, 0.1]    # for Foolbox's: where success is counted; the largest one is the success rate
    steps = 40
"""

from __future__ import annotations

import inspect
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import foolbox as fb
import msgspec

from .. import attacks, limits
from ..errors import RobustcmpError, UsageError, check_count, is_name, unknown
from ..files import as_path, json_digest
from ..records.attack import AttackRecord
from ..records.manifest import Subset, SuiteFile, read_suite_file
from .base import Attack
from .foolbox import FoolboxAttack

OURS: dict[str, type[Attack]] = {
    name: cls
    for name, cls in vars(attacks).items()
    if inspect.isclass(cls) and issubclass(cls, Attack) and cls not in (Attack, attacks.FunctionAttack)
}
FOOLBOX = {
    name: cls
    for name, cls in vars(fb.attacks).items()
    if inspect.isclass(cls) and issubclass(cls, fb.attacks.base.Attack) and not inspect.isabstract(cls)
}

Epsilons = Annotated[
    list[Annotated[float, msgspec.Meta(gt=0, le=limits.EPSILON)]],
    msgspec.Meta(min_length=1, max_length=limits.EPSILONS),
]


@dataclass(frozen=True)
class Suite:
    """A named list of attacks with their settings.

    Attributes
    ----------
    name, description : str
        The file's name without ``.toml``, and what the suite is for.
    images, repeats : int
        The default numbers of images and repeats.
    attacks : dict of str to attack
        By their names in tables and results.
    subset : str
        Which images are attacked: ``"common"``, those that all models classify correctly, or ``"all"``.
    """

    name: str
    description: str
    images: int
    repeats: int
    attacks: dict[str, Attack]
    subset: Subset = "common"

    def __post_init__(self) -> None:
        refused = [name for name, attack in self.attacks.items() if not attack.takes_misclassified]
        if self.subset == "all" and refused:
            raise UsageError(
                f'subset = "all" attacks images that a model misclassifies too, and {", ".join(refused)} cannot: '
                "leave subset out, or use attacks that begin with the clean image, such as AutoAttack"
            )

    def count_repeats(self, repeats: int | Mapping[str, int] | None = None) -> dict[str, int]:
        """Return the repeats of each attack: `repeats`, for all or for the named attacks, else the suite's number.

        A deterministic attack has as many repeats as the others, all the same.

        Raises
        ------
        UsageError
            The attack is unknown, or a number is below 1.

        Examples
        --------
        >>> load_suite("guo2019").count_repeats({"boundary": 2})
        {'fgsm': 10, 'single_pixel': 10, 'boundary': 2}
        """
        if repeats is None:
            repeats = {}
        elif not isinstance(repeats, Mapping):
            repeats = dict.fromkeys(self.attacks, repeats)
        counts = dict.fromkeys(self.attacks, self.repeats)
        for name, count in repeats.items():
            if name not in self.attacks:
                raise unknown("attack", name, self.attacks)
            counts[name] = check_count("repeats", count, limits.REPEATS)
        deterministic = [name for name, attack in self.attacks.items() if attack.deterministic]
        return counts | dict.fromkeys(deterministic, max(counts.values()))

    def only_draws(self) -> Suite:
        """Return the suite with attacks that ask nothing beyond their repeats: single pixel is not exact."""
        return replace(self, attacks={name: attack.only_draws() for name, attack in self.attacks.items()})

    @property
    def records(self) -> dict[str, AttackRecord]:
        """What each attack says of itself."""
        return {name: attack.record for name, attack in self.attacks.items()}

    @property
    def digest(self) -> str:
        """The SHA-256 (hex) of what determines the outcomes of the attacks."""
        return json_digest({name: record.outcome for name, record in self.records.items()})


AnySuite = str | os.PathLike[str] | Suite | Mapping[str, Attack]


def load_suite(suite: AnySuite) -> Suite:
    """Return a suite by name, from a TOML file, or of attacks made in Python.

    Parameters
    ----------
    suite : str, path or dict of str to attack
        The name of a suite that ships (``"guo2019"``), or the path of a ``.toml`` file; or attacks by their names, such
        as `FunctionAttack`, with 1,000 images and 10 repeats by default. A `Suite` is returned unchanged.

    Raises
    ------
    UsageError
        The suite does not exist, or its file is invalid; the message names the file, the key and the allowed values.

    Examples
    --------
    >>> list(load_suite("guo2019").attacks)
    ['fgsm', 'single_pixel', 'boundary']
    """
    if isinstance(suite, Suite):
        return suite
    if isinstance(suite, Mapping):
        if not suite:
            raise UsageError("expected at least one attack in the suite, received none")
        for name, attack in suite.items():
            check_attack(name, attack)
        defaults = SuiteFile({})
        return Suite("own", "", defaults.images, defaults.repeats, dict(suite))
    path = as_path(suite, "suite")
    if path.stem and not is_name(path.stem):
        raise UsageError(f"a suite's file should have a name without control characters, received {str(path)!r}")
    content = read_suite_file(suite)
    try:
        attacks = {name: _attack(name, dict(table)) for name, table in content.attacks.items()}
        return Suite(path.stem, content.description, content.images, content.repeats, attacks, content.subset)
    except RobustcmpError as error:
        raise UsageError(f"the suite {path}: {error}") from None


def check_attack(name: object, attack: object) -> None:
    """Raise `UsageError` for what a suite cannot have as an attack, or as the name of one."""
    _check_name(name, "the suite")
    if not isinstance(attack, Attack):
        raise UsageError(
            f"the suite: {name} should be an attack of robustcmp.attacks, received {type(attack).__name__}. Wrap a "
            "function in robustcmp.attacks.FunctionAttack; name an attack of Foolbox in a TOML file"
        )


def _check_name(name: object, where: str) -> None:
    if not isinstance(name, str) or not re.fullmatch(rf"[a-z][a-z0-9_]{{,{limits.NAME_LENGTH - 1}}}", name):
        raise UsageError(
            f"{where}: a name should consist of at most {limits.NAME_LENGTH} of a-z, 0-9 and _, and begin with a "
            f"letter, received {name!r}"
        )


def _attack(name: str, table: dict[str, Any]) -> Attack:
    where = f"[attacks.{name}]"
    _check_name(name, where)
    cls_name = table.pop("attack", None)
    if not isinstance(cls_name, str):
        raise UsageError(f"{where}: expected the key attack, the name of a class, received {cls_name!r}")
    try:
        if cls_name in OURS:
            return OURS[cls_name](**_parameters(OURS[cls_name], table))
        if cls_name in FOOLBOX:
            return _foolbox(FOOLBOX[cls_name], table)
    except msgspec.ValidationError as error:
        raise UsageError(f"{where}: {error}") from None
    except (UsageError, ValueError, TypeError) as error:
        raise UsageError(f"{where}: {cls_name}: {error}") from None
    except ImportError as error:  # some of Foolbox's need more than Foolbox
        raise UsageError(f"{where}: {cls_name} needs another package: {error}") from None
    raise UsageError(f"{where}: {unknown('attack', cls_name, [*OURS, *FOOLBOX])}")


def _foolbox(cls: type[fb.attacks.base.Attack], table: dict[str, Any]) -> FoolboxAttack:
    epsilons = table.pop("epsilons", None)
    if epsilons is not None:
        epsilons = sorted(msgspec.convert({"epsilons": epsilons}, _Epsilons).epsilons)
    elif issubclass(cls, fb.attacks.base.FixedEpsilonAttack):
        raise UsageError(
            "expected the key epsilons, a list of perturbation sizes, because this attack does not search for "
            "the smallest"
        )
    parameters = _parameters(cls, table)
    for name, value in parameters.items():
        _check_size(name, value)
    attack = cls(**parameters)
    if epsilons is not None and not isinstance(attack, fb.attacks.base.FixedEpsilonAttack):
        try:
            can_clip = attack.distance != fb.distances.l0  # type: ignore[attr-defined]
        except (AttributeError, ValueError):  # it has none, or none that a file can set
            can_clip = False
        if not can_clip:
            raise UsageError("this attack minimises no distance that epsilons could limit: remove the key epsilons")
    return FoolboxAttack(attack, parameters, epsilons)


class _Epsilons(msgspec.Struct):
    epsilons: Epsilons


def _parameters(cls: type, given: dict[str, Any]) -> dict[str, Any]:
    """Check parameters against the names and types of a constructor.

    A file sets numbers, switches and words that the constructor lists. It names no file, directory or object: a
    parameter that takes any text, as Foolbox's ``tensorboard`` does, writes wherever the author of a suite likes.
    """
    hints = get_type_hints(cls.__init__)  # type: ignore[misc]
    allowed = {
        name: hints.get(name, Any) for name in inspect.signature(cls).parameters if name not in ("args", "kwargs")
    }
    for key in given:
        if key not in allowed:
            raise unknown("key", key, allowed)
    checked: dict[str, Any] = {}
    for key, value in given.items():
        if not _is_plain(allowed[key]):
            raise UsageError(
                f"{key} cannot be set in a file, because it takes more than numbers, switches and listed words: "
                "remove it"
            )
        try:
            checked[key] = msgspec.convert(value, allowed[key])
        except msgspec.ValidationError as error:
            raise UsageError(f"{key}: {error}") from None
    return checked


def _is_plain(hint: Any) -> bool:
    """Say whether a type has only numbers, switches, words that it lists, None, and lists of these."""
    origin = get_origin(hint)
    if origin is Literal:
        return True
    if origin in (Union, UnionType, list, tuple):
        return all(inner is Ellipsis or _is_plain(inner) for inner in get_args(hint))
    return hint in (bool, int, float, type(None))


def _check_size(name: str, value: Any) -> None:
    """Raise `UsageError` for a number with which an attack of Foolbox, which has no limits, would not end."""
    for number in value if isinstance(value, list | tuple) else [value]:
        if type(number) is int and name != "channel_axis":
            check_count(name, number, limits.ITERATIONS if name == "steps" else limits.DIRECTIONS)
        elif isinstance(number, int | float) and not abs(number) <= limits.EPSILON:
            raise UsageError(f"{name} should be at most {limits.EPSILON:,g}, received {number}")

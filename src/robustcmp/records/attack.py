"""What an attack says of itself, once, and its outcomes: what a reader of a run has to know of it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from ..errors import UsageError

Floats = NDArray[np.float64]  # what attacks and statistics compute
Norm = Literal["l0", "l2", "linf"]
Whole = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
Seed = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
CellKey = Annotated[str, msgspec.Meta(pattern=r"\A[0-9a-f]{1,64}\Z")]
NORMS: dict[Norm, str] = {"l0": "L0", "l2": "L2", "linf": "L∞"}
# The values an image that every attack has, with their types.
OWN_TYPES: dict[str, type[np.generic]] = {
    "success": np.bool_,
    "l0": np.float64,
    "l2": np.float64,
    "linf": np.float64,
    "adversarial_class": np.int64,
    "queries": np.int64,
}
OWN_NAMES = tuple(OWN_TYPES)
# The axes, in the results, of the values that every attack has.
DIMS = ("model", "training_seed", "attack", "repeat", "image")
# Names that the dataset of every run has.
RESERVED = {*OWN_NAMES, *DIMS, "label", "epsilon", "ran", "repeats", "epsilon_curve", "margin"}


class Extra(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A value an image that only some attacks have.

    Attributes
    ----------
    dims : tuple of str
        The names of its axes after the image's: none for one number an image.
    per_repeat : bool
        Whether it differs between repeats; otherwise the value of any of them stands for all.
    empty : float, optional
        What stands where an attack or a model has no such value; NaN if None, and the values are float64.
    in_results : bool
        Whether it is in the run's dataset; otherwise only in the cells.
    """

    dims: tuple[str, ...] = ()
    per_repeat: bool = True
    empty: float | None = None
    in_results: bool = True


class Column(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A column that an attack adds to a report: one number a model, over its trainings, repeats and images.

    Attributes
    ----------
    title : str
        Its heading.
    value : str
        A value an image: ``"l2"``, or an extra.
    statistic : str
        ``"mean"``; ``"median"``, where a failure counts as +inf; ``"within"``, the share of values up to `limit`; or
        ``"beyond"``, the share above it.
    limit : float
        For ``"within"`` and ``"beyond"``.
    percent : bool
        Whether it is shown in percent.
    """

    title: str
    value: str
    statistic: Literal["mean", "median", "within", "beyond"] = "mean"
    limit: float = 0.0
    percent: bool = False


class AttackTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A table that an attack adds to a report, a row a model."""

    title: str
    columns: tuple[Column, ...]


class PositionDraws(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An attack that draws positions without replacement, and of which every position is known.

    Attributes
    ----------
    vulnerable, positions, vulnerable_map : str
        The extras that hold how many positions make an image fall, how many there are, and which they are, as
        `numpy.packbits` has it.
    tried : int
        How many positions a draw has.
    """

    vulnerable: str
    positions: str
    vulnerable_map: str
    tried: int


class Convergence(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """When a search has converged, so that its distances are its result and not where it began.

    Attributes
    ----------
    step, half : str
        The extras that hold the last step size, and the distance after half of the search.
    largest_step, largest_gain : float
        The largest median of the last steps, and the share by which the second half has to change the median distance
        less.
    otherwise : str
        Why the distances of a search that has not converged are not compared, and what to do.
    """

    step: str
    half: str
    largest_step: float
    largest_gain: float
    otherwise: str

    def measure(self, steps: Floats, halves: Floats, distances: Floats) -> tuple[float, float]:
        """Return the median last step, and the share that the second half took off the median distance, NaN of +inf."""
        half, whole = (float(np.quantile(values, 0.5, method="higher")) for values in (halves, distances))
        gain = 1 - whole / half if math.isfinite(half) and half > 0 else math.nan
        return float(np.median(steps)), gain

    def is_reached(self, step: float, gain: float) -> bool:
        """Say whether a search with this median step and this gain has converged."""
        return step <= self.largest_step and abs(gain) < self.largest_gain


class AttackRecord(msgspec.Struct, frozen=True, rename={"class_name": "class"}):
    """What the manifest of a run keeps of an attack.

    Attributes
    ----------
    class_name : str
        The attack's class.
    settings : dict
        What it was made with, JSON types.
    semantics : int
        The version of what it computes.
    deterministic : bool
        Whether all repeats are one and the same.
    norm : str
        The distance that it keeps small: ``"l0"``, ``"l2"`` or ``"linf"``.
    extras : dict of str to Extra
        The values an image that not every attack has.
    grid : list of float
        The ε at which success is counted.
    at_epsilon : str
        The extra that says at which ε an image falls: success (N, epsilons) at each where it has that dimension, else
        the smallest such ε; "" for an attack without a grid.
    start : str
        The extra that says whether the attack could begin at all, "" if it always can. Where it could not, its success
        rate is not about robustness.
    compares_distances : bool
        Whether its distances, in its norm, are tested beside its success, as those of an attack that nearly always
        succeeds.
    convergence : Convergence, optional
        For an attack whose distances are only compared where its search has converged.
    position_draws : PositionDraws, optional
        For an attack whose expectation over all draws is known.
    in_indicator : bool
        Whether it counts in R; an attack that does not is a reference beside R.
    in_control : bool
        Whether the same weights in two frameworks should fall to it on the same images.
    table : AttackTable, optional
        What it adds to a report.
    notes : list of str
        Sentences for a report, said after its name and a colon.
    cite : str
        What to cite for it, as BibTeX; "" where there is nothing.
    expected_failures : list of str
        Health checks that fail with these settings by nature: they are noted, and are no failures.
    """

    class_name: str
    settings: dict[str, Any]
    semantics: int
    deterministic: bool
    norm: Norm = "l2"
    extras: dict[str, Extra] = {}
    grid: list[float] = []
    at_epsilon: str = ""
    start: str = ""
    compares_distances: bool = False
    convergence: Convergence | None = None
    position_draws: PositionDraws | None = None
    in_indicator: bool = True
    in_control: bool = False
    table: AttackTable | None = None
    notes: list[str] = []
    cite: str = ""
    expected_failures: list[str] = []

    @property
    def is_bounded(self) -> bool:
        """Whether it searches within a fixed distance, its setting ``epsilon``: its distances are then no result."""
        return isinstance(self.settings.get("epsilon"), int | float)

    @property
    def outcome(self) -> dict[str, Any]:
        """What determines the outcomes of the attack, as JSON types."""
        return {
            "class": self.class_name,
            "settings": self.settings,
            "semantics": self.semantics,
            "deterministic": self.deterministic,
        }


def collect_extras(attacks: Mapping[str, AttackRecord]) -> dict[str, Extra]:
    """Return all extras of some attacks, or raise `UsageError` for declarations that cannot be kept."""
    extras: dict[str, Extra] = {}
    for attack, record in attacks.items():
        for name, extra in record.extras.items():
            if name in RESERVED or extras.setdefault(name, extra) != extra:
                raise UsageError(
                    f"{attack} has an extra value {name!r}, a name that every attack or an earlier one already uses. "
                    "Rename it."
                )
            if extra.in_results and RESERVED & {*extra.dims}:
                raise UsageError(f"{attack}: {name!r} has the dimensions {extra.dims}: give them unique names")
        if not all(map(math.isfinite, record.grid)):
            raise UsageError(f"{attack} has the grid {record.grid}: its values have to be finite")
        draws = record.position_draws
        for name in _list_values(record):
            if name not in record.extras and name not in OWN_NAMES:
                raise UsageError(
                    f"{attack} uses the value {name!r}, which it does not declare. It declares "
                    f"{', '.join(record.extras) or 'no extras'}."
                )
        if draws and not _fits(draws, record.extras):
            raise UsageError(
                f"{attack}: {draws.vulnerable_map!r} needs one further dimension and no repeats, and "
                f"{draws.vulnerable!r} and {draws.positions!r} no further dimension"
            )
    return extras


def _fits(draws: PositionDraws, extras: Mapping[str, Extra]) -> bool:
    """Whether the extras of drawn positions have the axes that they need."""
    which, *numbers = (extras.get(name) for name in (draws.vulnerable_map, draws.vulnerable, draws.positions))
    map_fits = which is not None and len(which.dims) == 1 and not which.per_repeat
    return map_fits and all(extra is not None and not extra.dims for extra in numbers)


def _list_values(record: AttackRecord) -> list[str]:
    """Return the values that an attack's declarations name."""
    draws = record.position_draws
    names = [
        record.start,
        record.at_epsilon,
        *(column.value for column in (record.table.columns if record.table else ())),
    ]
    names += [draws.vulnerable, draws.positions, draws.vulnerable_map] if draws else []
    names += [record.convergence.step, record.convergence.half] if record.convergence else []
    return [name for name in names if name]


TaskKey = tuple[str, int, str]


@dataclass(frozen=True)
class Cell:
    """One model under one attack in one repeat."""

    model: str
    training_seed: Seed
    attack: str
    repeat: Whole
    key: CellKey

    @property
    def task(self) -> TaskKey:
        """Whose missing cells are attacked together: the model's name, its training seed and the attack."""
        return self.model, self.training_seed, self.attack


Extras = dict[str, NDArray[Any]]


@dataclass(frozen=True)
class AttackResult:
    """What an attack did to each of N images.

    Attributes
    ----------
    adversarials : array or tensor like the images that were passed
        The adversarial image, or the clean one where the attack failed.
    success : ndarray of bool, shape (N,)
        A final, separate forward pass says that the adversarial image is taken for another class than the label.
    l0, l2, linf : ndarray of float64, shape (N,)
        Distances to the clean image, +inf where the attack failed. L0 counts pixels of which any channel changed.
    adversarial_class : ndarray of int64, shape (N,)
        The class that the adversarial image is taken for, -1 where the attack failed.
    queries : ndarray of int64, shape (N,)
        How many candidates the attack's sequential definition asks the model about, however the work is batched.
        Gradients and the final check are not counted. -1 for Foolbox's own attacks, which do not count.
    extras : dict of str to ndarray
        What only this attack has, one entry an image.
    """

    adversarials: Any
    success: NDArray[np.bool_]
    l0: Floats
    l2: Floats
    linf: Floats
    adversarial_class: NDArray[np.int64]
    queries: NDArray[np.int64]
    extras: dict[str, NDArray[Any]] = field(default_factory=dict)

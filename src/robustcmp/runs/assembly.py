"""The cells of a run put together: a value an image, over models, attacks and repeats."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..records.attack import DIMS, OWN_NAMES, AttackRecord, Cell, collect_extras
from ..records.store import Run

if TYPE_CHECKING:
    import xarray

EMPTY: dict[str, tuple[Any, type]] = {
    "success": (False, np.bool_),
    "l0": (np.nan, np.float64),
    "l2": (np.nan, np.float64),
    "linf": (np.nan, np.float64),
    "adversarial_class": (-1, np.int64),
    "queries": (-1, np.int64),
}

Arrays = dict[str, NDArray[Any]]
Place = tuple[int, int, int]  # of a model, a training seed and an attack


@dataclass(frozen=True)
class _Axes:
    """What the run's values are over."""

    models: list[str]
    seeds: list[int]
    attacks: dict[str, AttackRecord]
    repeats: Mapping[str, int]
    images: int
    first_repeats: Mapping[tuple[str, int, str], int]

    @property
    def shape(self) -> tuple[int, ...]:
        return len(self.models), len(self.seeds), len(self.attacks), max(self.repeats.values()), self.images

    def place(self, cell: Cell) -> Place:
        return self.models.index(cell.model), self.seeds.index(cell.training_seed), [*self.attacks].index(cell.attack)

    def at(self, cell: Cell) -> tuple[Any, ...]:
        """Where a cell's values belong: repeats count from the first of their training.

        A deterministic attack's one cell stands for every repeat.
        """
        deterministic = self.attacks[cell.attack].deterministic
        counted = cell.repeat - self.first_repeats[cell.model, cell.training_seed, cell.attack]
        return (*self.place(cell), slice(self.repeats[cell.attack]) if deterministic else counted)


def assemble(
    run: Run,
    cells: Sequence[Cell],
    models: Sequence[tuple[str, int]],
    attacks: Mapping[str, AttackRecord],
    repeats: Mapping[str, int],
    image_index: NDArray[np.int64],
    labels: NDArray[np.int64],
    margins: Mapping[tuple[str, int], NDArray[np.float64]],
) -> xarray.Dataset:
    """Put cells together: a value an image, over (model, training_seed, attack, repeat, image).

    A training's repeats count from its first: where they are spread over trainings, the second training's first repeat
    is another draw than the first training's. A deterministic attack's one cell stands for every repeat. Where there is
    no cell (a model with fewer training seeds, or one that an attack cannot run on, for which ``ran`` is False, or a
    repeat from ``repeats`` of the attack on) distances are NaN, success is False and classes and queries are -1. What
    only some attacks have is empty for the others, as these attacks say.

    Parameters
    ----------
    run : Run
        Where the cells are.
    cells : sequence of Cell
        What to put together.
    models : sequence of (str, int)
        The models' names and training seeds.
    attacks : dict of str to AttackRecord
        The attacks, by name.
    repeats : dict of str to int
        How many each attack has.
    image_index : ndarray of int64, shape (N,)
        Where the images stand in the dataset.
    labels : ndarray of int64, shape (N,)
        The true classes.
    margins : dict of (str, int) to ndarray of float64, shape (N,)
        The clean margins of each model.

    Raises
    ------
    UsageError
        Two attacks have an extra of one name and of different kinds.
    StoreError
        A cell is broken.
    """
    import xarray

    names, seeds = list(dict.fromkeys(name for name, _ in models)), sorted({seed for _, seed in models})
    first: dict[tuple[str, int, str], int] = {}
    for cell in cells:
        group = cell.model, cell.training_seed, cell.attack
        first[group] = min(cell.repeat, first.get(group, cell.repeat))
    axes = _Axes(names, seeds, dict(attacks), repeats, len(labels), first)
    loaded = [(cell, run.load(cell.key)) for cell in cells]
    grid = sorted({epsilon for attack in attacks.values() for epsilon in attack.grid})
    ran = np.zeros(axes.shape[:3], np.bool_)
    for cell, _ in loaded:
        ran[axes.place(cell)] = True
    variables = _own(axes, loaded) | _extras(axes, loaded)
    variables["ran"] = (DIMS[:3], ran)
    variables["repeats"] = ("attack", [repeats[attack] for attack in attacks])
    variables["epsilon_curve"] = ((*DIMS[:3], "epsilon"), _epsilon_curve(axes, loaded, grid))
    margin = np.full((len(names), len(seeds), len(labels)), np.nan)
    for (name, seed), of_model in margins.items():
        margin[names.index(name), seeds.index(seed)] = of_model
    variables["margin"] = (("model", "training_seed", "image"), margin)
    coords = {
        "model": names,
        "training_seed": seeds,
        "attack": list(attacks),
        "repeat": np.arange(axes.shape[3]),
        "image": image_index,
        "label": ("image", labels),
        "epsilon": np.array(grid, np.float64),
    }
    return xarray.Dataset(variables, coords=coords)


def _own(axes: _Axes, loaded: Sequence[tuple[Cell, Arrays]]) -> dict[str, Any]:
    """Return what every attack has."""
    values = {name: np.full(axes.shape, *EMPTY[name]) for name in OWN_NAMES}
    for cell, arrays in loaded:
        for name in OWN_NAMES:
            values[name][axes.at(cell)] = arrays[name]
    return {name: (DIMS, array) for name, array in values.items()}


def _extras(axes: _Axes, loaded: Sequence[tuple[Cell, Arrays]]) -> dict[str, Any]:
    """Return what only some attacks have."""
    variables = {}
    for name, extra in collect_extras(axes.attacks).items():
        parts = [(cell, arrays[f"extras/{name}"]) for cell, arrays in loaded if f"extras/{name}" in arrays]
        if not parts or not extra.in_results:
            continue
        sizes = tuple(np.max([array.shape[1:] for _, array in parts], axis=0)) if extra.dims else ()
        dims = DIMS if extra.per_repeat else (*DIMS[:3], "image")
        shape = axes.shape if extra.per_repeat else (*axes.shape[:3], axes.images)
        if extra.empty is None:
            values = np.full((*shape, *sizes), np.nan)
        else:
            values = np.full((*shape, *sizes), extra.empty, parts[0][1].dtype)
        for cell, array in parts:
            at = axes.at(cell) if extra.per_repeat else axes.place(cell)
            values[(*at, ..., *(slice(size) for size in array.shape))] = array
        variables[name] = ((*dims, *extra.dims), values)
    return variables


def _epsilon_curve(axes: _Axes, loaded: Sequence[tuple[Cell, Arrays]], grid: list[float]) -> NDArray[np.float64]:
    """Return the success rate at each ε (models, seeds, attacks, ε), the mean over repeats; NaN where there is none."""
    at_epsilon = np.zeros((*axes.shape[:4], len(grid)))
    curve = np.full((*axes.shape[:3], len(grid)), np.nan)
    for cell, arrays in loaded:
        attack = axes.attacks[cell.attack]
        if attack.grid:
            columns = [grid.index(epsilon) for epsilon in attack.grid]
            place, at = axes.place(cell), axes.at(cell)
            at_epsilon[at][..., columns] = _rate_at_epsilons(arrays, attack)
            curve[place][columns] = at_epsilon[place][: axes.repeats[cell.attack], columns].mean(axis=0)
    return curve


def _rate_at_epsilons(arrays: Arrays, attack: AttackRecord) -> NDArray[np.float64]:
    """Return a cell's success rate at each ε."""
    falls = arrays[f"extras/{attack.at_epsilon}"]
    if attack.extras[attack.at_epsilon].dims:
        return np.asarray(falls.mean(axis=0))
    smallest = np.where(arrays["success"], falls, np.inf)
    return np.array([(smallest <= epsilon).mean() for epsilon in attack.grid])

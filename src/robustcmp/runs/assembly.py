"""The cells of a run put together: a value an image, over models, attacks and repeats."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..records.attack import OWN_NAMES, AttackRecord, Cell, TaskKey, collect_extras
from ..records.results_file import Arrays
from ..records.store import Run

EMPTY: dict[str, tuple[Any, type]] = {
    "success": (False, np.bool_),
    "l0": (np.nan, np.float64),
    "l2": (np.nan, np.float64),
    "linf": (np.nan, np.float64),
    "adversarial_class": (-1, np.int64),
    "queries": (-1, np.int64),
}


class _Part(NamedTuple):
    """A cell's arrays, and where they belong: over (model, training seed, attack), and over their repeats."""

    position: tuple[int, int, int]
    repeats: int | slice
    attack: AttackRecord
    arrays: Arrays


def assemble(
    run: Run,
    cells: Sequence[Cell],
    attacks: Mapping[str, AttackRecord],
    repeats: Mapping[str, int],
    image_index: NDArray[np.int64],
    labels: NDArray[np.int64],
    margins: Mapping[tuple[str, int], NDArray[np.float64]],
) -> Arrays:
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
    attacks : dict of str to AttackRecord
        The attacks, by name.
    repeats : dict of str to int
        How many each attack has.
    image_index : ndarray of int64, shape (N,)
        Where the images stand in the dataset.
    labels : ndarray of int64, shape (N,)
        The true classes.
    margins : dict of (str, int) to ndarray of float64, shape (N,)
        The clean margins of each model, by its name and training seed.

    Raises
    ------
    UsageError
        Two attacks have an extra of one name and of different kinds.
    StoreError
        A cell is broken.
    """
    names = list(dict.fromkeys(name for name, _ in margins))
    seeds = sorted({seed for _, seed in margins})
    shape = (len(names), len(seeds), len(attacks), max(repeats.values()), len(labels))
    first: dict[TaskKey, int] = {}
    for cell in cells:
        first[cell.task] = min(cell.repeat, first.get(cell.task, cell.repeat))
    parts = []
    for cell in cells:
        attack = attacks[cell.attack]
        position = names.index(cell.model), seeds.index(cell.training_seed), [*attacks].index(cell.attack)
        counted = cell.repeat - first[cell.task]
        rows = slice(repeats[cell.attack]) if attack.deterministic else counted
        parts.append(_Part(position, rows, attack, run.load(cell.key)))
    values: Arrays = {name: np.full(shape, *EMPTY[name]) for name in OWN_NAMES}
    ran = np.zeros(shape[:3], np.bool_)
    for part in parts:
        ran[part.position] = True
        for name in OWN_NAMES:
            values[name][part.position][part.repeats] = part.arrays[name]
    margin = np.full((len(names), len(seeds), len(labels)), np.nan)
    for (name, seed), of_model in margins.items():
        margin[names.index(name), seeds.index(seed)] = of_model
    grid = sorted({epsilon for attack in attacks.values() for epsilon in attack.grid})
    counts = np.array([repeats[attack] for attack in attacks])
    values |= _gather_extras(attacks, parts, shape)
    return values | {
        "ran": ran,
        "repeats": counts,
        "epsilon_curve": _measure_curve(parts, counts, grid, shape),
        "margin": margin,
        "model": np.array(names),
        "training_seed": np.array(seeds),
        "attack": np.array(list(attacks)),
        "repeat": np.arange(shape[3]),
        "image": image_index,
        "label": labels,
        "epsilon": np.array(grid, np.float64),
    }


def _gather_extras(attacks: Mapping[str, AttackRecord], parts: Sequence[_Part], shape: tuple[int, ...]) -> Arrays:
    """Return what only some attacks have."""
    variables = {}
    for name, extra in collect_extras(attacks).items():
        key = f"extras/{name}"
        having = [part for part in parts if key in part.arrays]
        if not having or not extra.in_results:
            continue
        sizes = tuple(np.max([part.arrays[key].shape[1:] for part in having], axis=0)) if extra.dims else ()
        of_cells = shape if extra.per_repeat else (*shape[:3], shape[4])
        if extra.empty is None:
            values = np.full((*of_cells, *sizes), np.nan)
        else:
            values = np.full((*of_cells, *sizes), extra.empty, having[0].arrays[key].dtype)
        for part in having:
            array = part.arrays[key]
            target = values[part.position][part.repeats] if extra.per_repeat else values[part.position]
            within: Any = (..., *(slice(size) for size in array.shape))
            target[within] = array
        variables[name] = values
    return variables


def _measure_curve(
    parts: Sequence[_Part], repeats: NDArray[np.int64], grid: list[float], shape: tuple[int, ...]
) -> NDArray[np.float64]:
    """Return the success rate at each ε (models, seeds, attacks, ε), the mean over repeats; NaN where there is none."""
    at_epsilon = np.zeros((*shape[:4], len(grid)))
    curve = np.full((*shape[:3], len(grid)), np.nan)
    for position, rows, attack, arrays in parts:
        if attack.grid:
            columns = [grid.index(epsilon) for epsilon in attack.grid]
            at_epsilon[position][rows][..., columns] = _rate_at_epsilons(arrays, attack)
            curve[position][columns] = at_epsilon[position][: repeats[position[2]], columns].mean(axis=0)
    return curve


def _rate_at_epsilons(arrays: Arrays, attack: AttackRecord) -> NDArray[np.float64]:
    """Return a cell's success rate at each ε."""
    falls = arrays[f"extras/{attack.at_epsilon}"]
    if attack.extras[attack.at_epsilon].dims:
        return np.asarray(falls.mean(axis=0))
    smallest = np.where(arrays["success"], falls, np.inf)
    return np.array([(smallest <= epsilon).mean() for epsilon in attack.grid])

"""The cells of a run put together: a value an image, over models, attacks and repeats."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..records.cell import Cell
from ..records.store import PER_IMAGE, Run

if TYPE_CHECKING:
    import xarray


def assemble(
    run: Run,
    cells: Iterable[Cell],
    image_index: NDArray[np.int64],
    labels: NDArray[np.int64],
    repeats: Mapping[str, int],
    epsilons: dict[str, list[float]],
) -> xarray.Dataset:
    """Put cells together: a value an image, over (model, training_seed, attack, repeat, image).

    A deterministic attack's one cell stands for every repeat. Where there is no cell (a model with fewer training
    seeds, for which ``ran`` is False, or a repeat from ``repeats`` of the attack on) distances are NaN, success is
    False and classes and queries are -1. What only some attacks have is NaN for the others.

    Parameters
    ----------
    run : Run
        Where the cells are.
    cells : iterable of Cell
        What to put together.
    image_index : ndarray of int64, shape (N,)
        Where the images stand in the dataset.
    labels : ndarray of int64, shape (N,)
        The true classes.
    repeats : dict of str to int
        How many each attack has.
    epsilons : dict of str to list of float
        The grid of each attack that has one, for ``epsilon_curve``.
    """
    import xarray

    cells = list(cells)
    models = list(dict.fromkeys(cell.model for cell in cells))
    seeds = sorted({cell.training_seed for cell in cells})
    attacks = list(dict.fromkeys(cell.attack for cell in cells))
    grid = sorted({epsilon for values in epsilons.values() for epsilon in values})
    shape = (len(models), len(seeds), len(attacks), max(repeats.values()), len(labels))
    values: dict[str, NDArray[Any]] = {
        "success": np.zeros(shape, np.bool_),
        "l0": np.full(shape, np.nan),
        "l2": np.full(shape, np.nan),
        "linf": np.full(shape, np.nan),
        "adversarial_class": np.full(shape, -1, np.int64),
        "queries": np.full(shape, -1, np.int64),
    }
    ran = np.zeros(shape[:3], np.bool_)
    at_epsilon = np.zeros((*shape[:4], len(grid)))
    curve = np.full((*shape[:3], len(grid)), np.nan)
    maps: dict[tuple[int, int, int], NDArray[np.uint8]] = {}  # the same in every repeat
    per_attack = {attack: [cell for cell in cells if cell.attack == attack] for attack in attacks}
    for attack, its_cells in per_attack.items():
        single = all(cell.repeat == 0 for cell in its_cells)
        for cell in its_cells:
            place = (models.index(cell.model), seeds.index(cell.training_seed), attacks.index(attack))
            where = (*place, slice(repeats[attack]) if single else cell.repeat)
            ran[place] = True
            arrays = run.load(cell.key)
            for name in PER_IMAGE:
                values[name][where] = arrays[name]
            for name, extra in arrays.items():
                if name.startswith("extras/") and extra.ndim == 1:
                    values.setdefault(name.removeprefix("extras/"), np.full(shape, np.nan))[where] = extra
            if "extras/vulnerable_map" in arrays:
                maps[place] = arrays["extras/vulnerable_map"]
            if attack in epsilons:
                columns = [grid.index(epsilon) for epsilon in epsilons[attack]]
                at_epsilon[where][..., columns] = _rate_at_epsilons(arrays, epsilons[attack])
                curve[place][columns] = at_epsilon[place][: repeats[attack], columns].mean(axis=0)
    dims = ("model", "training_seed", "attack", "repeat", "image")
    variables: dict[str, Any] = {name: (dims, array) for name, array in values.items()}
    variables["ran"] = (dims[:3], ran)
    variables["repeats"] = ("attack", [repeats[attack] for attack in attacks])
    if maps:
        vulnerable = np.zeros((*shape[:3], *next(iter(maps.values())).shape), np.uint8)
        for at, its in maps.items():
            vulnerable[at] = its
        variables["vulnerable_map"] = ((*dims[:3], "image", "byte"), vulnerable)
    variables["epsilon_curve"] = ((*dims[:3], "epsilon"), curve)
    return xarray.Dataset(
        variables,
        coords={
            "model": models,
            "training_seed": seeds,
            "attack": attacks,
            "repeat": np.arange(shape[3]),
            "image": image_index,
            "label": ("image", labels),
            "epsilon": np.array(grid, np.float64),
        },
    )


def _rate_at_epsilons(arrays: dict[str, NDArray[Any]], epsilons: list[float]) -> NDArray[np.float64]:
    """Return a cell's success rate at each ε."""
    if "extras/epsilon_success" in arrays:
        return np.asarray(arrays["extras/epsilon_success"].mean(axis=0))
    found = np.where(arrays["success"], arrays["extras/smallest_epsilon"], np.inf)
    return np.array([(found <= epsilon).mean() for epsilon in epsilons])

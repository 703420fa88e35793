"""Transfer: does what fools one trained model also fool another?"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import pandas
    import xarray


def as_dataset(counts: NDArray[np.int64], models: Sequence[str], attacks: Sequence[str]) -> xarray.Dataset:
    """Return counts as shares over (source, target, attack).

    ``of_all`` is the share of all attacked images, ``of_successes`` that of those that succeeded on the source, NaN
    where none did.
    """
    import xarray

    dims = ("source", "target", "attack")
    fooled, succeeded, attacked = (counts[..., i].astype(np.float64) for i in range(3))
    with np.errstate(invalid="ignore"):
        shares = {"of_all": (dims, fooled / attacked), "of_successes": (dims, fooled / succeeded)}
    return xarray.Dataset(shares, coords={"source": list(models), "target": list(models), "attack": list(attacks)})


def blocks(
    transfer: xarray.Dataset, frameworks: Sequence[str], left_out: NDArray[np.bool_] | None = None
) -> pandas.DataFrame:
    """Return the mean transfer between trainings of one framework, and between frameworks, a row an attack and block.

    Parameters
    ----------
    transfer : xarray.Dataset
        From `as_dataset`.
    frameworks : sequence of str
        The framework of each model, in the order of the sources. No model is paired with itself.
    left_out : ndarray of bool, shape (sources, targets), optional
        Pairs that do not count.

    Returns
    -------
    pandas.DataFrame
        attack, block (``"within torch"``, …, ``"within"`` for all of them, ``"across"``), pairs, of_all,
        of_successes. Blocks without pairs are left out.
    """
    import pandas

    names = np.array(frameworks)
    same = names[:, None] == names[None, :]
    other = ~np.eye(len(names), dtype=np.bool_)
    if left_out is not None:
        other &= ~left_out
    masks: dict[str, NDArray[Any]] = {
        f"within {name}": same & other & (names == name)[:, None] for name in dict.fromkeys(frameworks)
    }
    masks |= {"within": same & other, "across": ~same & other}
    rows = []
    for attack in transfer.attack.values.tolist():
        shares = transfer.sel(attack=attack)
        for block, mask in masks.items():
            if mask.any():
                of_all, of_successes = (values[mask] for values in (shares.of_all.values, shares.of_successes.values))
                rows.append(
                    {
                        "attack": attack,
                        "block": block,
                        "pairs": int(mask.sum()),
                        "of_all": _mean(of_all),
                        "of_successes": _mean(of_successes),
                    }
                )
    return pandas.DataFrame(rows, columns=["attack", "block", "pairs", "of_all", "of_successes"])


def _mean(shares: NDArray[np.float64]) -> float:
    """Return the mean of the shares that are known, NaN without one."""
    known = shares[np.isfinite(shares)]
    return float(known.mean()) if known.size else math.nan

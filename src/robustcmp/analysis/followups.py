"""Conditioning and transfer: rates on the subset of some of the models, and what fools one model under another.

The images of a comparison are those that all its models classify correctly. Each further model takes images away, those
near a decision boundary first, so rates fall with the number of models. A rate of three models is therefore not
comparable with one of thirty.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import pandas
from numpy.typing import NDArray

from ..errors import SealError, UsageError
from ..records.answers import Checked, Contested
from ..sealed import Hdf5
from .statistics import mantel
from .twins import Key, Twins

if TYPE_CHECKING:
    import xarray

    from .results import Results

Answer = TypeVar("Answer")
PICKS = 50
"""Random choices of other models for each trained model."""
COLUMNS = ("attack", "model", "models", "images", "success_rate", "low", "high")


class Conditioning:
    """Rates on the subset of any of the compared models.

    The images that all models classify correctly are one stratum, with its own rate and size; contested images are the
    other. For some models S, the rate of a model in S is the mean over the first stratum and over those contested
    images that all of S classify correctly, each stratum weighted by its number of images among all that were passed.

    Parameters
    ----------
    results : Results
        The outcomes on the common subset.
    contested : Contested
        Those on the other images.
    """

    def __init__(self, results: Results, contested: Contested):
        self._results = results
        self._contested = contested
        self.attacks = contested.attacks
        self._names = np.array([model["name"] for model in results.manifest["models"]])
        shape = len(self._names), len(contested.attacks)
        self._common = np.full(shape, math.nan)  # rates on the images that all models classify correctly
        for row, model in enumerate(results.manifest["models"]):
            for column, attack in enumerate(contested.attacks):
                name = model["name"]
                seed = model["training_seed"]
                if seed in results.seeds(name, attack):
                    self._common[row, column] = results.values(name, attack, training_seed=seed).mean()

    def rates(self, model: int, others: NDArray[np.int64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return a model's rates on the subsets of itself and growing numbers of others.

        Parameters
        ----------
        model : int
            Which of the trained models, in the order of the manifest.
        others : ndarray of int64, shape (others,)
            The first k of them make the subset of k + 1 models, from k = 0.

        Returns
        -------
        rates : ndarray of float64, shape (others + 1, attacks)
        images : ndarray of float64, shape (others + 1,)
            The number of images in each subset, among all that were passed.
        """
        contested = self._contested
        common, left_out = contested.counts
        each = left_out / max(len(contested.index), 1)  # contested images that each attacked one stands for
        subsets = np.logical_and.accumulate(contested.right[[model, *others]], axis=0)
        images = common + each * subsets.sum(axis=1)
        fallen = np.where(contested.right[model], contested.success[model], 0.0)  # NaN where the attack cannot run
        rates = (common * self._common[model] + each * subsets @ fallen.T) / images[:, None]
        return rates, images

    def curve(self) -> pandas.DataFrame:
        """Return the rates against the number of models that the subset is conditioned on.

        Returns
        -------
        pandas.DataFrame
            One row per attack, model and number of models: attack, model, models (1 to all), images (the mean share of
            all images that so many models classify correctly), success_rate (the mean over trainings and picks), low
            and high (the central 95 % of trainings and picks).
        """
        rng = np.random.default_rng(0)
        total = len(self._names)
        of_all = self._results.manifest["images"]["of"]
        rates: dict[str, list[NDArray[np.float64]]] = {}
        images: dict[str, list[NDArray[np.float64]]] = {}
        for model, name in enumerate(self._names):
            others = np.delete(np.arange(total), model)
            for _ in range(PICKS):
                of_pick, images_of_pick = self.rates(model, rng.permutation(others))
                rates.setdefault(name, []).append(of_pick)
                images.setdefault(name, []).append(images_of_pick)
        rows = []
        for column, attack in enumerate(self._contested.attacks):
            for name in rates:
                values = np.array(rates[name])[:, :, column]  # (trainings × picks, models)
                low, high = np.quantile(values, (0.025, 0.975), axis=0)
                share = np.mean(images[name], axis=0) / of_all
                ends = zip(share, values.mean(axis=0), low, high, strict=True)
                rows += [(attack, name, size, *figures) for size, figures in enumerate(ends, start=1)]
        return pandas.DataFrame(rows, columns=list(COLUMNS))


def read_checked(results: Results) -> Checked | None:
    """Return the stored health checks, with those only noted that fail by the nature of an attack's settings."""
    stored = results.run.read_answer("checks", Checked.from_json)
    if stored is None:
        return None
    return stored.note_expected(
        {check for record in results.attack_records.values() for check in record.expected_failures}
    )


def read_transferred(results: Results) -> xarray.Dataset | None:
    """Return the stored transfer, None if it has not been measured."""

    def read(stored: dict[str, Any]) -> xarray.Dataset:
        counts = np.array(stored["counts"])
        attacks = stored["attacks"]
        shape = (len(results.labels), len(results.labels), len(attacks), 3)
        if counts.dtype != np.int64 or counts.shape != shape or (counts < 0).any():
            raise SealError(f"counts should be int64 {shape}, received {counts.dtype} {counts.shape}")
        _check_attacks(attacks, results)
        return _as_dataset(counts, results.labels, attacks)

    return results.run.read_answer("transfer", read)


def read_conditioned(results: Results) -> Conditioning | None:
    """Return the rates on the subsets of fewer models, None if contested images have not been attacked."""

    def read(file: Hdf5) -> Conditioning:
        contested = Contested.from_file(file, *sizes)
        _check_attacks(contested.attacks, results)
        return Conditioning(results, contested)

    sizes = len(results.labels), len(results.attacks), results.manifest["images"]["of"]
    return results.run.read_arrays("contested", read, Contested.most_bytes(*sizes))


def _check_attacks(attacks: list[str], results: Results) -> None:
    """Raise `SealError` for attacks that the run has not, or twice."""
    if len({*attacks}) < len(attacks) or not {*attacks} <= {*results.attacks}:
        raise SealError(f"expected attacks among {', '.join(results.attacks)}, received {attacks}")


def require(answer: Answer | None, name: str) -> Answer:
    """Return a stored answer, or raise `UsageError` for what a run does not have and its models are needed for."""
    if answer is None:
        raise UsageError(
            f"this run was stored without {name}, and its models are not loaded. Call robustcmp.evaluate with the same "
            f"models and out, then run_{name}() on the result."
        )
    return answer


def _as_dataset(counts: NDArray[np.int64], models: Sequence[str], attacks: Sequence[str]) -> xarray.Dataset:
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


def average_blocks(results: Results) -> pandas.DataFrame:
    """Return the mean transfer between trainings of one framework, and between frameworks, a row an attack and block.

    Of the sources; no model is paired with itself, nor with its twin. Columns: attack, block (``"within torch"``, …,
    ``"within"`` for all of them, ``"across"``), pairs, of_all, of_successes, p (of ``"within"``: that transfer there is
    not larger than across). Blocks without pairs are left out.
    """
    transferred = require(results.transferred, "transfer")
    places = [position for position, (name, _) in enumerate(results.keys) if name in results.sources]
    names = np.array([results.keys[position][0] for position in places])
    left_out = _mask_twins(results.twins, results.keys)[np.ix_(places, places)]
    other = ~np.eye(len(names), dtype=np.bool_) & ~left_out
    same = names[:, None] == names
    masks = {f"within {name}": same & other & (names == name)[:, None] for name in dict.fromkeys(names.tolist())}
    masks |= {"within": same & other, "across": ~same & other}
    transfer = transferred.isel(source=places, target=places)
    rows = []
    for attack in transfer.attack.values.tolist():
        of_all = transfer.of_all.sel(attack=attack).values
        of_successes = transfer.of_successes.sel(attack=attack).values
        p = mantel(np.where(left_out, math.nan, of_successes), names.tolist()).p
        rows += [
            {
                "attack": attack,
                "block": block,
                "pairs": int(mask.sum()),
                "of_all": _mean(of_all[mask]),
                "of_successes": _mean(of_successes[mask]),
                "p": p if block == "within" else math.nan,
            }
            for block, mask in masks.items()
            if mask.any()
        ]
    return pandas.DataFrame(rows, columns=["attack", "block", "pairs", "of_all", "of_successes", "p"])


def _mean(shares: NDArray[np.float64]) -> float:
    """Return the mean of the shares that are known, NaN without one."""
    finite = shares[np.isfinite(shares)]
    return float(finite.mean()) if finite.size else math.nan


def _mask_twins(twins: Sequence[Twins], models: Sequence[Key]) -> NDArray[np.bool_]:
    """Return which pairs of models are twins, (models, models)."""
    mask = np.zeros((len(models), len(models)), np.bool_)
    for pair in twins:
        i = models.index(pair.a)
        j = models.index(pair.b)
        mask[i, j] = mask[j, i] = True
    return mask

"""What an attack found beside its success: distances, starts, and the vulnerable pixels of exact single pixel."""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ..errors import UsageError
from ..records.answers import IMAGES
from ..records.attack import Column, PositionDraws
from .recorded import Recorded
from .statistics import CommonDraws, common_draws, fall_probability

if TYPE_CHECKING:
    import xarray


class Distances:
    """Distances between adversarial and clean images, over trainings, repeats and images."""

    def __init__(self, recorded: Recorded):
        self._recorded = recorded

    def quantile(self, model: str, attack: str, distance: str = "l2", q: float = 0.5) -> float:
        """Return a quantile of the distances; a failure counts as +inf. NaN if none were attacked."""
        values = self._recorded.values(model, attack, distance).ravel()
        # "higher": between a finite distance and +inf there is nothing to interpolate.
        return float(np.quantile(values, q, method="higher")) if values.size else math.nan

    def success_within(self, model: str, attack: str, budget: float, distance: str = "l2") -> float:
        """Return the share of attacks that succeeded at a distance of at most `budget`; NaN if there were none."""
        values = self._recorded.values(model, attack, distance)
        return float((values <= budget).mean()) if values.size else math.nan

    def not_compared(self, attack: str, models: Iterable[str]) -> str:
        """Return why an attack's distances are not compared, "" where its search has converged on every training.

        On the images that its health check looks at, so that both say the same.
        """
        record = self._recorded.attack_records[attack]
        convergence = record.convergence
        if convergence is None:
            return ""
        for model in models:
            names = (convergence.step, convergence.half, record.norm)
            arrays = (self._recorded.values(model, attack, name)[..., :IMAGES] for name in names)
            for of_training in zip(*arrays, strict=True):
                if not convergence.is_reached(*convergence.measure(*of_training)):
                    return convergence.otherwise
        return ""

    def column(self, model: str, attack: str, column: Column) -> float:
        """Return a model's value in a column that an attack adds to reports."""
        if column.statistic == "median":
            return self.quantile(model, attack, column.value)
        if column.statistic == "within":
            return self.success_within(model, attack, column.limit, column.value)
        values = self._recorded.values(model, attack, column.value)
        if column.statistic == "beyond":
            values = values > column.limit
        return float(np.mean(values)) if values.size else math.nan


class Starts:
    """Attacks such as boundary, which begin at an image that already fools the model."""

    def __init__(self, recorded: Recorded):
        self._recorded = recorded

    @property
    def attacks(self) -> list[str]:
        """The attacks that need a start."""
        return [attack for attack, record in self._recorded.attack_records.items() if record.start]

    def share(self, model: str, attack: str) -> float:
        """Return the share of images, over trainings and repeats, with a starting point; NaN if none were attacked."""
        began = self._recorded.values(model, attack, self._recorded.attack_records[attack].start)
        return float(np.mean(began)) if began.size else math.nan

    @property
    def failed(self) -> list[str]:
        """The attacks that had no starting point on some images, where failure says nothing about robustness."""
        return [
            attack for attack in self.attacks if any(self.share(model, attack) < 1 for model in self._recorded.models)
        ]


class ExactPixel:
    """Expected results of single pixel with ``exact``, over all draws of positions."""

    def __init__(self, recorded: Recorded):
        self._recorded = recorded

    @property
    def _draws(self) -> dict[str, PositionDraws]:
        records, dataset = self._recorded.attack_records, self._recorded.dataset
        return {
            name: record.position_draws
            for name, record in records.items()
            if record.position_draws and record.position_draws.vulnerable in dataset
        }

    @property
    def attacks(self) -> list[str]:
        """The attacks that every model ran and whose expectation over all draws is known."""
        return [attack for attack in self._recorded.common_attacks if self.probabilities(attack) is not None]

    @property
    def success_rate(self) -> xarray.DataArray:
        """The expectation of the success rate over all draws, over (model, training_seed, attack).

        The mean over images of 1 − C(N − K, m)/C(N, m), where K of N positions are vulnerable and m are tried. NaN for
        other attacks.

        Raises
        ------
        UsageError
            No attack of the run is exact.
        """
        return self._falls.mean(("repeat", "image")).rename("expected_success_rate")

    @property
    def success_sd(self) -> xarray.DataArray:
        """The standard deviation of the success rate over draws, which are independent between images."""
        p = self._falls.isel(repeat=0)
        variance: xarray.DataArray = (p * (1 - p)).sum("image", skipna=False) / p.sizes["image"] ** 2
        return (variance**0.5).rename("expected_success_sd")

    def probabilities(self, attack: str) -> dict[str, NDArray[np.float64]] | None:
        """Return each image's probability of success, (training seeds that ran, images) by model; None if not known."""
        if attack not in self._draws:
            return None
        falls, ran = (values.sel(attack=attack) for values in (self._falls.isel(repeat=0), self._recorded.dataset.ran))
        probabilities = {m: falls.sel(model=m).values[ran.sel(model=m).values] for m in self._recorded.models}
        return None if any(np.isnan(values).any() for values in probabilities.values()) else probabilities

    def common_draws(self, attack: str, a: str, b: str, *, training_seed: int | None = None) -> CommonDraws:
        """Return two models' expected success under the same draws of positions, see `statistics.common_draws`.

        `training_seed` defaults to each model's smallest.

        Raises
        ------
        UsageError
            The attack is not single pixel with ``exact``, or the model does not exist.
        """
        recorded = self._recorded
        self._check()
        maps = []
        for model in (a, b):
            recorded.cell_key(model, attack, training_seed)  # or there is none
            draws = self._draws.get(attack)
            seed = recorded.first_seed(model) if training_seed is None else training_seed
            if draws is None or not bool(recorded.dataset.ran.sel(model=model, attack=attack, training_seed=seed)):
                raise UsageError(f"expected a single-pixel attack with exact = true, received {attack}")
            where = recorded.dataset.sel(model=model, attack=attack, training_seed=seed, repeat=0)
            positions = int(where[draws.positions].max())
            packed = where[draws.vulnerable_map].values
            maps.append(np.unpackbits(packed, axis=1, count=positions).astype(np.bool_))
        return common_draws(maps[0], maps[1], self._draws[attack].tried)

    @cached_property
    def _falls(self) -> xarray.DataArray:
        """The probability, for each image, that a draw of positions fools the model."""
        self._check()
        dataset = self._recorded.dataset
        falls: xarray.DataArray = dataset.success.astype(np.float64) * math.nan
        for attack, draws in self._draws.items():
            where = {"attack": attack}
            vulnerable, positions = (dataset[name].sel(where).values for name in (draws.vulnerable, draws.positions))
            falls.loc[where] = fall_probability(vulnerable, positions, draws.tried)
        return falls

    def _check(self) -> None:
        if not self._draws:
            raise UsageError(
                "expected a single-pixel attack with exact = true in the suite; without it, only "
                "the sampled draws are known"
            )

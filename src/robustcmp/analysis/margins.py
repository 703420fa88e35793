"""Clean margins: how far ahead the true class is before any attack, and rates with that held fixed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ..errors import UsageError, check_count, unknown
from .recorded import Recorded

if TYPE_CHECKING:
    import pandas

STRATA = 10


class Margins:
    """The margins of clean images, and success rates with the margin held fixed.

    An image's margin in a model is the true class's logit minus the largest other one. Images with small margins fall
    first. A model whose margins are larger is not thereby more robust: `standardised` compares rates where margins are
    alike. Runs made before margins were recorded have none. Margins are in units of logits: a
    network whose logits are all twice as large has twice the margins and the same decisions, so compare only networks
    that were trained alike.
    """

    def __init__(self, recorded: Recorded):
        self._recorded = recorded

    def values(self, model: str) -> NDArray[np.float64]:
        """Return a model's margins, (training seeds that it has, images); negative where it is wrong.

        Raises
        ------
        UsageError
            The model does not exist, or the run was stored before margins were recorded.
        """
        if model not in self._recorded.models:
            raise unknown("model", model, self._recorded.models)
        if "margin" not in self._recorded.dataset:
            raise UsageError(
                "this run was stored without clean margins. Rerun the same command or the same call of "
                "robustcmp.evaluate: finished cells are kept, and the margins are added."
            )
        margins: NDArray[np.float64] = self._recorded.dataset.margin.sel(model=model).values
        return margins[np.isfinite(margins).all(axis=1)]

    def rates(self, attack: str, strata: int = STRATA) -> pandas.DataFrame:
        """Return success rates by margin.

        Parameters
        ----------
        attack : str
            The attack; only models that ran it on all their trainings are listed.
        strata : int, default 10
            Into how many parts, of equally many outcomes each, the margins of all models together are divided.

        Returns
        -------
        pandas.DataFrame
            One row per model and stratum: model, stratum (from 0, the smallest margins), low and high (its margins, in
            logits), n (outcomes: trainings × images), success_rate (NaN if n is 0).

        Raises
        ------
        UsageError
            The attack does not exist, `strata` is not a positive number, or the run has no margins.
        """
        import pandas

        check_count("strata", strata)
        margins, falls = self._outcomes(attack)
        edges = np.quantile(np.concatenate(list(margins.values())), np.linspace(0, 1, strata + 1))
        rows = []
        for model, of_model in margins.items():
            stratum = np.clip(np.searchsorted(edges, of_model, side="right") - 1, 0, strata - 1)
            counts = np.bincount(stratum, minlength=strata)
            fallen = np.bincount(stratum, falls[model], strata)
            with np.errstate(invalid="ignore"):
                rates = fallen / counts
            rows += [
                (model, position, edges[position], edges[position + 1], int(counts[position]), rates[position])
                for position in range(strata)
            ]
        return pandas.DataFrame(rows, columns=["model", "stratum", "low", "high", "n", "success_rate"])

    def standardised(self, attack: str, strata: int = STRATA) -> pandas.DataFrame:
        """Return each model's success rate as it would be with the margins of all models together.

        Direct standardisation: the mean of a model's rates over strata of equally many outcomes of all models. Strata
        that some model has no image in are left out for all models.

        Parameters
        ----------
        attack, strata
            As for `rates`.

        Returns
        -------
        pandas.DataFrame
            One row per model: success_rate, median_margin (in logits), at_equal_margins (the standardised rate), and
            covered (the share of all outcomes in the strata that count).

        Raises
        ------
        UsageError
            As `rates`.
        """
        import pandas

        table = self.rates(attack, strata)
        counts, rates = (table.pivot(index="model", columns="stratum", values=name) for name in ("n", "success_rate"))
        shared = (counts > 0).all().to_numpy()
        weights = counts.to_numpy().sum(axis=0) * shared
        margins, falls = self._outcomes(attack)
        rows = {
            model: {
                "success_rate": falls[model].mean(),
                "median_margin": np.median(margins[model]),
                "at_equal_margins": np.average(rates.loc[model].fillna(0), weights=weights)
                if weights.any()
                else np.nan,
                "covered": weights.sum() / counts.to_numpy().sum(),
            }
            for model in margins
        }
        return pandas.DataFrame.from_dict(rows, orient="index").rename_axis("model")

    def _outcomes(self, attack: str) -> tuple[dict[str, NDArray[np.float64]], dict[str, NDArray[np.float64]]]:
        """Return margins and shares of repeats with success, (trainings × images,) each, by model."""
        margins, falls = {}, {}
        for model in self._recorded.models:
            of_model, success = self.values(model), self._recorded.values(model, attack)
            if len(success) == len(of_model):
                margins[model], falls[model] = of_model.ravel(), success.mean(axis=1).ravel()
        if not margins:
            raise UsageError(f"{attack} is not applicable to any of the models")
        return margins, falls

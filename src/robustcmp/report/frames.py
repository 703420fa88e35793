"""A run as data frames, for files that other programs read."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from ..analysis.results import Results
from ..analysis.trainings import root_mean_std
from ..errors import printable
from ..records.attack import OWN_NAMES

if TYPE_CHECKING:
    import pandas

FORMULA = ("=", "+", "-", "@", "\t")
PER_IMAGE = ("model", "training_seed", "attack", "repeat", "image")


def to_dataframe(results: Results, *, per_image: bool = False) -> pandas.DataFrame:
    """Return the run as a tidy table: a row a model, training seed and attack, or, `per_image`, a row an outcome."""
    return _outcomes(results) if per_image else _rates(results)


def to_csv(results: Results, *, per_image: bool = False) -> str:
    """Return the data frame as CSV, in which no text is a formula to a spreadsheet, or moves a terminal's cursor."""
    return as_csv(to_dataframe(results, per_image=per_image))


def as_csv(frame: pandas.DataFrame) -> str:
    """Return a data frame as CSV, in which no text is a formula to a spreadsheet, or moves a terminal's cursor."""
    frame = frame.copy(deep=False)
    texts = frame.select_dtypes(include=["object", "string"]).columns
    frame[texts] = frame[texts].map(_cell)
    text: str = frame.to_csv(index=False)
    return text


def _cell(value: Any) -> Any:
    """Return text with an apostrophe before what a spreadsheet would compute."""
    if not isinstance(value, str):
        return value
    return "'" * value.startswith(FORMULA) + printable(value)


def _rates(results: Results) -> pandas.DataFrame:
    import pandas

    rows = [_rate(results, model, attack) for model in results.manifest["models"] for attack in results.attacks]
    return pandas.DataFrame(rows)


def _rate(results: Results, about: dict[str, Any], attack: str) -> dict[str, Any]:
    model, seed = about["name"], int(about["training_seed"])
    row = {
        "model": model,
        "training_seed": seed,
        "attack": attack,
        "images": results.manifest["images"]["used"],
        "repeats": results.repeats(attack),
        "success_rate": math.nan,
        "low": math.nan,
        "high": math.nan,
        "repeat_std": math.nan,
        "clean_accuracy": about["clean_accuracy"],
        "framework": about["framework"],
        "framework_version": about["framework_version"],
    }
    seeds = results.seeds(model, attack)
    if seed not in seeds:  # the attack is not applicable to the model
        return row
    success = results.values(model, attack)[[seeds.index(seed)]]
    low, high = results.interval(model, attack, training_seed=seed)
    return row | {
        "success_rate": float(np.count_nonzero(success)) / success.size,
        "low": low,
        "high": high,
        "repeat_std": 0.0 if results.deterministic(attack) else root_mean_std(success.mean(axis=2)),
    }


def _outcomes(results: Results) -> pandas.DataFrame:
    import pandas

    dataset = results.dataset
    whole = [name for name, values in dataset.data_vars.items() if set(values.dims) == set(PER_IMAGE)]
    parts = []
    for model in results.models:
        for attack in results.attacks:
            repeats = range(1 if results.deterministic(attack) else results.repeats(attack))
            chosen = {"model": [model], "training_seed": results.seeds(model, attack), "attack": [attack]}
            part = dataset[whole].sel(chosen | {"repeat": dataset.repeat.values[list(repeats)]})
            parts.append(part.to_dataframe(dim_order=list(PER_IMAGE)).reset_index())
    frame: pandas.DataFrame = pandas.concat(parts, ignore_index=True)
    first = [*PER_IMAGE, "label", *OWN_NAMES]
    return frame[[*first, *(name for name in whole if name not in first)]]

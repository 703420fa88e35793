"""A run as a table for a paper, in LaTeX."""

from __future__ import annotations

import math
import re

from ..analysis.results import Results
from ..errors import printable
from .format import NOTHING, fixed

SPECIAL = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"} | {
    character: f"\\{character}" for character in "&%$#_{}"
}


def to_latex(results: Results) -> str:
    """Return the success rates and R of every model as a table environment, which needs the package booktabs."""
    import pandas

    ranks = len(results.models) > 1 and bool(results.indicator)
    rows = {
        model: [
            *(text for attack in results.attacks for text in _rate(results, model, attack)),
            *[_number(results.indicator[model], 3)] * ranks,
        ]
        for model in results.models
    }
    columns = [(escaped(attack), part) for attack in results.attacks for part in ("rate", r"95\,\%")]
    frame = pandas.DataFrame.from_dict(
        {escaped(model): row for model, row in rows.items()},
        orient="index",
        columns=pandas.MultiIndex.from_tuples([*columns, *[("$R$", "")] * ranks]),
    )
    about, suite = results.manifest["about"], results.manifest["suite"]["name"]
    names = [str(about[key]) for key in ("model", "dataset") if about.get(key)]
    table: str = frame.style.to_latex(
        hrules=True,
        multicol_align="c",
        column_format="l" + "rl" * len(results.attacks) + "r" * ranks,
        position="tbp",
        position_float="centering",
        caption=_caption(results, " on ".join(map(escaped, names))),
        label="tab:" + re.sub(r"[^A-Za-z0-9._-]+", "-", "-".join([*names, suite])),
    )
    return "% \\usepackage{booktabs}\n" + table


def _rate(results: Results, model: str, attack: str) -> tuple[str, str]:
    low, high = _interval(results, model, attack)
    rate = results.rate(model, attack)
    ends = NOTHING if math.isnan(low + high) else f"[{_number(100 * low)}, {_number(100 * high)}]"
    return _number(100 * rate), ends.replace(NOTHING, "--")


def _interval(results: Results, model: str, attack: str) -> tuple[float, float]:
    if not results.seeds(model, attack):
        return math.nan, math.nan
    of_trainings = results.level == "frameworks"
    low, high = results.trainings.interval(model, attack) if of_trainings else results.interval(model, attack)
    return low, high


def _number(value: float, digits: int = 1) -> str:
    return "--" if math.isnan(value) else fixed(value, digits)


def _caption(results: Results, what: str) -> str:
    images, count = results.manifest["images"], len(results.manifest["models"])
    trainings = count // len(results.models) if results.level == "frameworks" else 1
    over = f"{trainings} trainings of each framework" if trainings > 1 else "images"
    sentences = [
        f"Attack success rates in percent{f', {what}' if what else ''}, on {images['used']} images that "
        f"{f'all {count} models classify' if count > 1 else 'the model classifies'} correctly; 95\\,\\% intervals are "
        f"over {over}."
    ]
    if len(results.models) > 1 and not results.same_weights:
        sentences.append("$R$ compares these models only; smaller is more robust.")
    return " ".join(sentences)


def escaped(text: str) -> str:
    """Return text with the characters that LaTeX reads as commands written out."""
    return "".join(SPECIAL.get(character, character) for character in printable(text))

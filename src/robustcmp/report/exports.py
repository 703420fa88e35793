"""A run for other programs: data frames and CSV, a table in LaTeX, and what to cite as BibTeX."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from dataclasses import asdict
from importlib.resources import files
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pandas

from ..analysis.results import Results
from ..errors import printable
from ..untrusted import read_toml
from .format import fixed
from .words import find_own_repeats, latex_caption

# images ----------------------------------------------------------------------------------------------------------


def write_adversarials(results: Results, directory: Path) -> int:
    """Write the adversarial images of every model and attack as PNG files of 8 bits, and return how many there are.

    ``DIR/MODEL/ATTACK/CLASS/IMAGE.png``, with a folder for each class, so that a model and an attack are a data set.
    """
    from PIL import Image

    written = 0
    labels = results.arrays["label"]
    places = results.arrays["image"]
    for model in results.models:
        for attack in (attack for attack in results.attacks if results.has_adversarials(model, attack)):
            images = np.rint(results.adversarials(model, attack) * 255).astype(np.uint8)
            fooled = results.values(model, attack, "success")[0, 0]
            for row in np.flatnonzero(fooled):
                path = directory / model / attack / str(labels[row]) / f"{places[row]}.png"
                path.parent.mkdir(parents=True, exist_ok=True)
                pixels = images[row, ..., 0] if images.shape[-1] == 1 else images[row]
                Image.fromarray(pixels).save(path)
                written += 1
    return written


# data frames -----------------------------------------------------------------------------------------------------

FORMULA = ("=", "+", "-", "@", "\t")


def to_dataframe(results: Results) -> pandas.DataFrame:
    """Return the rates as a tidy table: a row a model, training seed and attack."""
    models = results.manifest["models"]
    return pandas.DataFrame([_rate(results, model, attack) for model in models for attack in results.attacks])


def to_csv(results: Results) -> str:
    """Return the data frame as CSV, in which no text is a formula to a spreadsheet, or moves a terminal's cursor."""
    frame = to_dataframe(results)
    texts = frame.select_dtypes(include=["object", "string"]).columns
    frame[texts] = frame[texts].map(_as_text)
    return str(frame.to_csv(index=False))


def _as_text(value: Any) -> Any:
    """Return text with an apostrophe before what a spreadsheet would compute."""
    if not isinstance(value, str):
        return value
    return ("'" if value.startswith(FORMULA) else "") + printable(value)


def _rate(results: Results, about: dict[str, Any], attack: str) -> dict[str, Any]:
    model = about["name"]
    seed = int(about["training_seed"])
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
    if seed not in results.seeds(model, attack):  # the attack is not applicable to the model
        return row
    success = results.values(model, attack, training_seed=seed)
    low, high = results.interval(model, attack, training_seed=seed)
    return row | {
        "success_rate": float(np.count_nonzero(success)) / success.size,
        "low": low,
        "high": high,
        "repeat_std": results.repeat_std(model, attack, training_seed=seed),
    }


# JSON ------------------------------------------------------------------------------------------------------------


def to_json(results: Results) -> dict[str, Any]:
    """Return the summary that ``python -m robustcmp.eval --json`` prints; undefined values are None."""
    about = results.manifest["about"]
    versions = {model["framework"]: model["framework_version"] for model in results.manifest["models"]}
    summary: dict[str, Any] = {
        "model": about.get("model"),
        "dataset": about.get("dataset"),
        "recipe": about.get("recipe"),
        "training_seeds": results.arrays["training_seed"].tolist(),
        "suite": results.manifest["suite"]["name"],
        "images": results.manifest["images"]["used"],
        "repeats": results.manifest["repeats"],
        "seed": results.manifest["seed"],
        "frameworks": results.models,
        "success_rate": results.rates(),
        "success_std": _tabulate(results, results.repeat_std),
        "indicator": results.indicator or None,
        "clean_accuracy": results.clean_accuracy,
        "correct_by_all": results.manifest["images"]["correct_by_all"],
        "out": None if results.run.temporary else str(results.run.directory),
        "verdicts": [asdict(verdict) for verdict in results.verdicts],
        "intervals": _tabulate(results, results.interval),
        "tests": [],
        "indicator_ranges": {},
        "versions": results.manifest["environment"]["versions"] | versions,
    }
    if not results.same_weights and results.outcomes:
        summary["tests"] = results.tests(results.level).to_dict("records")
    if not results.same_weights and len(results.models) > 1:
        summary["indicator_ranges"] = {name: each._asdict() for name, each in results.indicator_ranges.items()}
    if results.has_several_trainings:
        summary["training_intervals"] = _tabulate(results, results.trainings.interval)
    parts = {
        "own_repeats": find_own_repeats(results),
        "not_applicable": results.reasons("not_applicable"),
        "failed": results.reasons("failed"),
        "same_weights": results.same_weights,
        "twins": [pair._asdict() for pair in results.twins],
    }
    summary |= {name: part for name, part in parts.items() if part}
    if results.on_all_images:
        summary["subset"] = "all"
    if results.checked:
        summary["checks"] = msgspec.to_builtins(results.checked.checks)
    if results.has_deployments:
        summary["sources"] = results.sources
        networks = results.deployed_networks.to_dict("records")
        summary["deployments"] = {"networks": networks, "differences": results.deployments.to_dict("records")}
    return dict(without_nan(summary))


def _tabulate(results: Results, figure: Callable[[str, str], Any]) -> dict[str, dict[str, Any]]:
    return {model: {attack: figure(model, attack) for attack in results.attacks} for model in results.models}


def without_nan(value: Any) -> Any:
    """Return JSON types with None for floats that are undefined."""
    if isinstance(value, dict):
        return {name: without_nan(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [without_nan(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


# LaTeX -----------------------------------------------------------------------------------------------------------

SPECIAL = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"} | {
    character: f"\\{character}" for character in "&%$#_{}"
}


def to_latex(results: Results) -> str:
    """Return the success rates and R of every model as a table environment, which needs the package booktabs."""
    has_r = len(results.models) > 1 and bool(results.indicator)
    columns = [(escape(attack), part) for attack in results.attacks for part in ("rate", r"95\,\%")]
    if has_r:
        columns.append(("$R$", ""))
    rows = {}
    for model in results.models:
        row = [text for attack in results.attacks for text in _rate_and_interval(results, model, attack)]
        if has_r:
            row.append(_number(results.indicator[model], 3))
        rows[escape(model)] = row
    frame = pandas.DataFrame.from_dict(rows, orient="index", columns=pandas.MultiIndex.from_tuples(columns))
    about = results.manifest["about"]
    names = [str(about[key]) for key in ("model", "dataset") if about.get(key)]
    table: str = frame.style.to_latex(
        hrules=True,
        multicol_align="c",
        column_format="l" + "rl" * len(results.attacks) + "r" * has_r,
        position="tbp",
        position_float="centering",
        caption=latex_caption(results, " on ".join(map(escape, names))),
        label="tab:" + re.sub(r"[^A-Za-z0-9._-]+", "-", "-".join([*names, results.manifest["suite"]["name"]])),
    )
    return "% \\usepackage{booktabs}\n" + table


def _rate_and_interval(results: Results, model: str, attack: str) -> tuple[str, str]:
    rate = _number(100 * results.rate(model, attack))
    if not results.seeds(model, attack):
        return rate, "--"
    over_trainings = results.level == "frameworks"
    low, high = results.trainings.interval(model, attack) if over_trainings else results.interval(model, attack)
    if math.isnan(low + high):
        return rate, "--"
    return rate, f"[{_number(100 * low)}, {_number(100 * high)}]"


def _number(value: float, digits: int = 1) -> str:
    return "--" if math.isnan(value) else fixed(value, digits)


def escape(text: str) -> str:
    """Return text with the characters that LaTeX reads as commands written out."""
    return "".join(SPECIAL.get(character, character) for character in printable(text))


# BibTeX ----------------------------------------------------------------------------------------------------------

SOFTWARE = """\
@software{{robustcmp,
  title   = {{robustcmp: is one trained model easier to fool than another, and is the difference real?}},
  author  = {{{{The robustcmp developers}}}},
  version = {{{version}}},
  year    = {{2026}}
}}"""


def to_bibtex(results: Results) -> str:
    """Return an entry for each of what a run used: the method, attacks, frameworks, datasets and networks."""
    entries = dict.fromkeys(entry.strip() for entry in _entries(results))
    return printable("\n\n".join(entries)) + "\n"


def _entries(results: Results) -> Iterator[str]:
    manifest = results.manifest
    references = read_toml(files("robustcmp.resources") / "references.toml", "the references")
    cited_for = references["cited_for"]
    entries = references["entries"]
    yield SOFTWARE.format(version=manifest["environment"]["versions"].get("robustcmp") or "unknown")
    yield from (entries[key] for key in cited_for["every_run"])
    for record in results.attack_records.values():
        if record.cite:
            yield from record.cite.split("\n\n")
    used = {"framework": [model["framework"].partition("@")[0] for model in manifest["models"]]}
    for kind in ("dataset", "model"):
        used[kind] = [manifest["about"].get(kind), *(model["info"].get(kind) for model in manifest["models"])]
    for kind, names in used.items():
        yield from (entries[key] for name in names for key in cited_for[kind].get(name, ()))

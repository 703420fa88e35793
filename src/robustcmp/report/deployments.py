"""Deployed networks beside their sources: the tables, and the answer in words."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from ..analysis.deployments import DEPLOYED_MARGIN
from ..analysis.results import Results
from ..analysis.significance import ALPHA
from .format import NOTHING, fixed, number, p_value, percent_2, points, whole
from .table import Column, Table

SOURCE = "¹"
FOLLOWED = f"{SOURCE} FGSM by the source's gradient: the deployed network was asked about its source's candidates."


def networks(results: Results) -> Table:
    """Return a row per deployment: its size and time, and how alike it answers."""
    columns = [Column("deployment"), Column("size, kB", str), Column("accuracy", percent_2)]
    columns += [Column("classes changed", percent_2), Column("logits apart", str), Column("time, 1,000", str)]
    columns += [Column("time, 10,000", str), Column("control")]
    rows = [
        [
            row["deployment"],
            f"{whole(row['bytes'] / 1000)} ({fixed(row['size'], 2)} ×)",
            row["clean_accuracy"],
            row["changed"],
            f"{row['distance']:.1e}",
            _time(row["seconds_1000"], row["time_1000"]),
            _time(row["seconds_10000"], row["time_10000"]),
            row["gate"],
        ]
        for row in results.deployed_networks.to_dict("records")
    ]
    return Table(
        "Deployed networks beside their sources (×: of the source's weights, of its time for as many images); logits "
        "apart: root mean square, in standard deviations; control: same weights, judged in float32 only",
        columns,
        rows,
    )


def differences(results: Results) -> Table:
    """Return a row per deployment and attack: how much easier it is to fool than its source."""
    found = results.deployments()
    over = "trainings" if (found.trainings > 1).any() else "images"
    columns = [Column("deployment"), Column("attack"), Column("source", percent_2), Column("deployed", percent_2)]
    columns += [Column("points easier", str), Column("p", p_value), Column("detectable", points)]
    columns += [Column("alone", str)]
    columns += [Column(f"within ±{points(DEPLOYED_MARGIN)}", str)]
    rows = [
        [
            row["deployment"],
            row["attack"] + SOURCE * (row["gradient"] == "source"),
            row["source_rate"],
            row["rate"],
            _difference(row),
            row["p_adjusted"],
            row["detectable"],
            f"{row['only_source']:,} : {row['only_deployed']:,}",
            "shown" if row["equivalent"] else "not shown",
        ]
        for row in found.to_dict("records")
    ]
    title = (
        f"Deployed minus source, 95 % intervals over {over}; p by Holm over all rows; detectable: with 80 % power, in "
        "points; alone: outcomes (trainings × repeats × images) where only the source falls : only the deployed"
    )
    return Table(title, columns, rows)


def answer(results: Results) -> str:
    """Return in a sentence or two which deployments are easier or harder to fool than their sources."""
    found = results.deployments().to_dict("records")
    if not found:
        return "No attack ran on a deployed network and its source: there is nothing to compare."
    differing = [row for row in found if row["p_adjusted"] < ALPHA]
    alike = [row for row in found if math.isnan(row["p_adjusted"])]
    open_ = [row for row in found if row["p_adjusted"] >= ALPHA]
    sentences = []
    if differing:
        each = [
            f"{row['deployment']} is {'easier' if row['difference'] > 0 else 'harder'} to fool by {row['attack']} "
            f"({_difference(row)} points)"
            for row in differing
        ]
        sentences.append(f"Does deploying change how easily it is fooled? Yes: {'; '.join(each)}.")
    elif open_:
        sentences.append("Does deploying change how easily it is fooled? No significant difference from the sources.")
    else:
        sentences.append("Does deploying change how easily it is fooled? No: every outcome is that of the source.")
    if open_:
        attacks = dict.fromkeys(row["attack"] for row in open_)
        seen = ", ".join(
            f"{points(max(row['detectable'] for row in open_ if row['attack'] == attack))} points by {attack}"
            for attack in attacks
        )
        others = "The other comparisons show no significant difference; in each, " * bool(differing) or "In each, "
        sentences.append(f"{others}this much would have been detected in 8 of 10 cases: {seen}.")
    if open_ and all(row["equivalent"] for row in open_):
        sentences.append(f"These differences are shown to be smaller than {points(DEPLOYED_MARGIN)} points.")
    names = dict.fromkeys(row["deployment"] for row in alike)
    same = [name for name in names if name not in {row["deployment"] for row in [*differing, *open_]}]
    if same and len(alike) < len(found):
        sentences.append(f"Every outcome is that of the source: {', '.join(same)}.")
    return " ".join(sentences)


def notes(results: Results) -> list[str]:
    """Return what has to be known to read the tables."""
    said = [
        "A deployment and its source are one training, attacked on the same images with the same draws: everything is "
        "paired. A conversion that keeps float32 has to pass the same-weights control; any other is measured by it."
    ]
    if any(row == "source" for row in results.deployments().gradient):
        said.append(FOLLOWED)
    seen: set[str] = set()
    for model in results.manifest["models"]:  # of the first training of each: others differ in their ranges alone
        found = model["info"].get("deployment", {}).get("notes", []) if model["name"] not in seen else []
        said += [f"{model['name']}: {note}." for note in found]
        seen.add(model["name"])
    return said


def _difference(row: Mapping[Any, Any]) -> str:
    difference = _signed(row["difference"])
    if math.isnan(row["low"]):
        return difference
    return f"{difference} ({_signed(row['low'])} to {_signed(row['high'])})"


def _signed(value: float) -> str:
    written = points(abs(value))
    return written if written.strip("0.") == "" else f"{'−' if value < 0 else '+'}{written}"


def _time(seconds: float, ratio: float) -> str:
    return NOTHING if math.isnan(seconds) else f"{number(seconds)} ({fixed(ratio, 2)} ×)"

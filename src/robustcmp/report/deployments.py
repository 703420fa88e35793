"""Deployed networks beside their sources: the tables, and the answer in words."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from ..analysis.control import answers_alike
from ..analysis.deployments import DEPLOYED_MARGIN, OWN_DIFFERENCES, SUCCESS
from ..analysis.deployments import SOURCE as OF_SOURCE
from ..analysis.results import Results
from ..analysis.significance import ALPHA
from .format import NOTHING, distance, fixed, number, p_value, percent, percent_2, points, whole
from .table import Column, Table
from .verdict_text import NOMINALLY

SOURCE = "¹"
DIFFERENCES = "²"
MARKS = {OF_SOURCE: SOURCE, OWN_DIFFERENCES: DIFFERENCES}
MOST_CHANGED = 0.5  # of the classes, where a file still is what it is said to be converted from
NOT_APPLICABLE = "not applicable"
PAIRED = (
    "A deployment and its source are one training, attacked on the same images with the same draws: everything is "
    "paired. A conversion that keeps float32 has to pass the same-weights control; any other is measured by it."
)
FOLLOWED = (
    f"{SOURCE} FGSM by the source's gradient: the deployed network was asked about its source's candidates, which were "
    "made for the source. So fewer of them may fool it than its own gradient would find."
)
BY_DIFFERENCES = (
    f"{DIFFERENCES} FGSM by finite differences of the deployed network's own answers. Where these are rounded to "
    "steps, as in int8, differences are often zero or noise, which hides the gradient: fewer successes then are no "
    "robustness."
)


def networks(results: Results) -> Table:
    """Return a row per deployment: its size and time, and how alike it answers."""
    columns = [Column("deployment"), Column("size, kB", str), Column("accuracy", percent_2)]
    columns += [Column("classes changed", percent_2), Column("logits apart", str), Column("time, 1,000", str)]
    columns += [Column("time, 10,000", str), Column("control")]
    rows: list[list[Any]] = [
        [row["deployment"], _size(row), *[NOT_APPLICABLE] * (len(columns) - 2)]
        if row["not_applicable"]
        else [
            row["deployment"],
            _size(row),
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


def _size(row: Mapping[Any, Any]) -> str:
    return f"{whole(row['bytes'] / 1000)} ({fixed(row['size'], 2)} ×)"


def differences(results: Results) -> Table:
    """Return a row per deployment and attack: how much easier it is to fool than its source."""
    found = results.deployments()
    over, nominally = ("trainings", "nominally ") if (found.trainings > 1).any() else ("images", "")
    columns = [Column("deployment"), Column("attack"), Column("source", str), Column("deployed", str)]
    columns += [Column("difference", str), Column("p", p_value), Column("detectable", str), Column("alone", str)]
    columns += [Column(f"within ±{points(DEPLOYED_MARGIN)}", str)]
    rows: list[list[Any]] = [
        [
            row["deployment"],
            _attack(row),
            _written(row, row["source_value"]),
            _written(row, row["value"]),
            _difference(row),
            row["p_adjusted"],
            _apart(row, row["detectable"]),
            f"{row['only_source']:,} : {row['only_deployed']:,}",
            _within(row),
        ]
        for row in found.to_dict("records")
    ]
    rows += [
        [name, attack, NOTHING, NOT_APPLICABLE, *[NOTHING] * (len(columns) - 4)]
        for name in results.not_asked
        for attack in results.attacks
    ]
    title = (
        f"Deployed minus source, rates in points, 95 % intervals over {over}; p by Holm over all rows; detectable: "
        f"{nominally}with 80 % power; alone: outcomes (trainings × repeats × images) where only the source falls, or "
        "nearer : only the deployed"
    )
    return Table(title, columns, rows)


def answer(results: Results) -> str:
    """Return in a sentence or two which deployments are easier or harder to fool than their sources."""
    return " ".join([_of_attacked(results), *not_applicable(results)])


def not_applicable(results: Results) -> list[str]:
    """Say which deployments were converted and not attacked, and why."""
    by_reason: dict[str, list[str]] = {}
    for name, reason in results.not_asked.items():
        by_reason.setdefault(reason, []).append(name)
    return [
        f"{', '.join(names)}: converted, and not applicable to every attack: {reason}."
        for reason, names in by_reason.items()
    ]


def _of_attacked(results: Results) -> str:
    strangers = _strangers(results)
    own = {model["name"] for model in results.manifest["models"] if _is_own_file(model)}
    sentences = [
        f"{name} gives {percent(changed)} of the images another class than {source} does: "
        f"{'it is another network, or it expects other images' if name in own else 'the conversion has damaged it'}. "
        "Its differences say nothing of deploying."
        for name, (source, changed) in strangers.items()
    ]
    all_found = results.deployments().to_dict("records")
    found = [row for row in all_found if row["deployment"] not in strangers]
    if all_found and not found:
        return " ".join(["No answer yet.", *sentences])
    if not found:
        nothing = "No attack ran on a deployed network and its source: there is nothing to compare."
        return " ".join([*sentences, nothing])
    touched = {row["deployment"] for row in found if not math.isnan(row["p_adjusted"])}
    same = [name for name in dict.fromkeys(row["deployment"] for row in found) if name not in touched]
    not_compared = _not_compared(found)
    last = list(not_compared)
    if touched and same:
        last.append(f"Every outcome is that of the source: {', '.join(same)}.")
    found = [row for row in found if not row["not_compared"]]
    differing = [row for row in found if row["p_adjusted"] < ALPHA]
    open_ = [row for row in found if row["p_adjusted"] >= ALPHA]
    rates = [row for row in found if row["measure"] == SUCCESS]
    if not differing and not open_:
        bound = max(row["equivalent_high"] for row in rates)
        which = f" ({', '.join(dict.fromkeys(row['deployment'] for row in found))})" if strangers else ""
        none = (
            f"No {'success' if not_compared else 'outcome'} of a deployed network{which} differs from its source's on "
            f"{rates[0]['images']} images; a difference of up to {points(bound)} points is not excluded at 5 %."
        )
        return " ".join([*sentences, none, *last])
    if differing:
        sentences.append(f"Deploying makes a difference: {'; '.join(map(_said, differing))}.")
    else:
        sentences.append("No significant difference between deployed networks and their sources.")
    worst = _least_powerful(open_)
    seen = ", ".join(
        f"{_apart(row, row['detectable'])}{' points' * (row['measure'] == SUCCESS)} by {_attack(row)}" for row in worst
    )
    if seen:
        others = "The other comparisons show none; in each, " * bool(differing) or "In each, "
        nominally = NOMINALLY * any(row["unit"] == "trainings" for row in worst)
        sentences.append(f"{others}this much would have been detected in 8 of 10 cases{nominally}: {seen}.")
    if rates and all(row["equivalent"] for row in rates):
        sentences.append(f"All success rates are shown to be within {points(DEPLOYED_MARGIN)} points of the source's.")
    elif rates and not any(row in differing for row in rates):
        bound = max(max(-row["equivalent_low"], row["equivalent_high"]) for row in rates)
        sentences.append(f"Success rates that differ by up to {points(bound)} points are not excluded at 5 %.")
    return " ".join([*sentences, *last])


def _not_compared(rows: Sequence[Mapping[Any, Any]]) -> list[str]:
    """Say of which deployments distances are not compared under an attack, and why."""
    names: dict[tuple[str, str], list[str]] = {}
    for row in rows:
        if row["not_compared"]:
            names.setdefault((_attack(row), row["not_compared"]), []).append(row["deployment"])
    return [
        f"{attack}: distances of {', '.join(deployments)} are not compared: {reason}."
        for (attack, reason), deployments in names.items()
    ]


def _least_powerful(rows: Sequence[Mapping[Any, Any]]) -> list[Mapping[Any, Any]]:
    """Return of each attack and measure the comparison that would have needed the largest difference."""
    worst: dict[str, Mapping[Any, Any]] = {}
    for row in rows:
        name = _attack(row)
        if not math.isnan(row["detectable"]) and row["detectable"] > worst.get(name, {"detectable": -1})["detectable"]:
            worst[name] = row
    return list(worst.values())


def _said(row: Mapping[Any, Any]) -> str:
    """Return a difference in words."""
    more, name, attack, by = row["difference"] > 0, row["deployment"], row["attack"], _difference(row)
    if row["measure"] != SUCCESS:
        return f"{name} is {'harder' if more else 'easier'} to fool by {attack} ({by} in {_norm(row)})"
    if row["gradient"] == OWN_DIFFERENCES:
        return (
            f"{name} falls for {'more' if more else 'fewer'} candidates of {attack} by its own finite "
            f"differences{DIFFERENCES} ({by} points)"
        )
    if row["gradient"] == OF_SOURCE:
        return (
            f"{name} falls for {'more' if more else 'fewer'} of its source's {attack} candidates{SOURCE} ({by} points)"
        )
    return f"{name} is {'easier' if more else 'harder'} to fool by {attack} ({by} points)"


def reading(results: Results) -> list[str]:
    """Return what has to be known to read the tables of deployed networks, or of files that stand alone."""
    by_differences = any(model.get("own_differences") for model in results.manifest["models"])
    said = [BY_DIFFERENCES] * by_differences
    if not results.has_deployments:
        return said
    followed = OF_SOURCE in set(results.deployments().gradient)
    return [PAIRED, *[FOLLOWED] * followed, *said]


def notes(results: Results) -> list[str]:
    """Return what is known of deployed networks beyond the tables."""
    said = [*reading(results), *_own_files(results)]
    said += [
        f"In {row['deployment']}, the two largest logits are the same for "
        f"{percent(row['ties'], 1 if row['ties'] >= 0.001 else 3)} of the images; the class is the first of them."
        for row in results.deployed_networks.to_dict("records")
        if row["ties"] > 0
    ]
    seen: set[str] = set()
    for model in results.manifest["models"]:  # of the first training of each: others differ in their ranges alone
        found = model["info"].get("deployment", {}).get("notes", []) if model["name"] not in seen else []
        said += [f"{model['name']}: {note}." for note in found]
        seen.add(model["name"])
    return said


def of_files(results: Results) -> list[str]:
    """Return what is done to images and answers of files of a user's own, a sentence for each file."""
    said = [
        f"{model['name']} ({model['info']['source']}): {'; '.join(notes)}."
        for model in results.manifest["models"]
        if _is_own_file(model) and (notes := model["info"]["deployment"]["notes"])
    ]
    return [*_own_files(results), *said]


def _is_own_file(model: Mapping[str, Any]) -> bool:
    return bool(model["info"].get("deployment", {}).get("own_file"))


def _strangers(results: Results) -> dict[str, tuple[str, float]]:
    """Return the deployments that do not classify as their sources, with these and the share of classes that change."""
    return {
        row["deployment"]: (row["source"], row["changed"])
        for row in results.deployed_networks.to_dict("records")
        if row["changed"] > MOST_CHANGED
    }


def _own_files(results: Results) -> list[str]:
    """Say which files of a user's own do not answer as what they are taken to be converted from."""
    models = {(model["name"], model["training_seed"]): model for model in results.manifest["models"]}
    return [
        f"{entry['model'][0]}, training seed {entry['model'][1]}, does not answer as {entry['source'][0]}: logits "
        f"differ by up to {number(entry['logits'])} of their standard deviation, and "
        f"{percent_2(entry['changed'])} of the classes change. "
        "It is quantised, ends with a softmax, normalises its images itself (they are normalised for it as for its "
        "source, unless --mean NAME=0 --std NAME=1 says otherwise), or was not converted from that network."
        for entry in results.manifest.get("deployments", [])
        if _is_own_file(models[entry["model"][0], entry["model"][1]])
        and not answers_alike(entry["logits"], entry["changed"])
    ]


def _attack(row: Mapping[Any, Any]) -> str:
    """Return an attack's name as it stands in tables: with what of it is compared, and a mark."""
    name = str(row["attack"]) + MARKS.get(row["gradient"], "")
    return name if row["measure"] == SUCCESS else f"{name}, {_norm(row)}"


def _within(row: Mapping[Any, Any]) -> str:
    """Return the verdict on equivalence, which only success rates have."""
    if row["measure"] != SUCCESS:
        return "not compared" if row["not_compared"] else NOTHING
    return "shown" if row["equivalent"] else "not shown"


def _norm(row: Mapping[Any, Any]) -> str:
    return str(row["measure"]).removeprefix("median ")


def _written(row: Mapping[Any, Any], value: float) -> str:
    return percent_2(value) if row["measure"] == SUCCESS else distance(value)


def _apart(row: Mapping[Any, Any], value: float) -> str:
    return points(value) if row["measure"] == SUCCESS else distance(value)


def _difference(row: Mapping[Any, Any]) -> str:
    difference = _signed(row, row["difference"])
    if math.isnan(row["low"]):
        return difference
    return f"{difference} ({_signed(row, row['low'])} to {_signed(row, row['high'])})"


def _signed(row: Mapping[Any, Any], value: float) -> str:
    written = _apart(row, abs(value))
    return written if written.strip("0.") == "" else f"{'−' if value < 0 else '+'}{written}"


def _time(seconds: float, ratio: float) -> str:
    return NOTHING if math.isnan(seconds) else f"{number(seconds)} ({fixed(ratio, 2)} ×)"

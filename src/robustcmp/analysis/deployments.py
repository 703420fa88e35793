"""The same weights elsewhere: in each framework, the control, and deployed networks beside their sources.

A deployment and its source are one training, attacked on the same images with the same draws, so everything is paired.
The unit is the training where there are several, else the image.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas
from scipy.special import bdtr, betaincinv

from ..records.attack import NORMS
from .statistics import (
    Equivalence,
    detectable_between_models,
    detectable_between_pairs,
    detectable_by_signs,
    difference_intervals,
    equivalent_frameworks,
    equivalent_models,
    holm,
    mcnemar,
    sign_flips,
    sign_test,
    t_test,
)
from .statistics.foundations import ALPHA, Floats, check_fraction
from .twins import Key, read_key

if TYPE_CHECKING:
    from .results import Results

COLUMNS = (
    *("deployment", "source", "attack", "measure", "gradient", "unit", "trainings", "images", "source_value", "value"),
    *("difference", "low", "high", "p", "p_adjusted", "detectable", "only_source", "only_deployed"),
    *("equivalent_low", "equivalent_high", "p_equivalent", "equivalent", "not_compared"),
)
MEASURED = (
    *("deployment", "source", "precision", "bytes", "size", "clean_accuracy", "source_clean_accuracy", "changed"),
    *("ties", "logits", "distance", "seconds_1000", "time_1000", "seconds_10000", "time_10000", "gate"),
)
FEW_DIFFER = 10  # images
ANOTHER_NETWORK = 0.2
"""The distance of logits (`describe_deployments`) beyond which a file was not converted from the network beside it.

Conversions to 8 bits gave at most 0.12, but for one whose clipping changed 12 % of the classes (0.32); other trainings
of a design gave 0.45 and more.
"""
SUCCESS = "success rate"
SOURCE = "source"  # whose gradient FGSM followed
DEPLOYED_MARGIN = 0.02
"""Within which a deployment counts as equivalent to its source, unless a caller says otherwise: two points."""
Pairs = Sequence[tuple[Key, Key]]  # each deployed training with its source


def _group_by_name(results: Results) -> dict[str, list[dict[str, Any]]]:
    """Return the manifest's entries of deployments, by name."""
    entries: dict[str, list[dict[str, Any]]] = {}
    for entry in results.manifest.get("deployments", []):
        entries.setdefault(entry["model"][0], []).append(entry)
    return entries


def _pair_up(entries: Sequence[Mapping[str, Any]]) -> Pairs:
    return [(read_key(entry["model"]), read_key(entry["source"])) for entry in entries]


def describe_deployments(results: Results) -> pandas.DataFrame:
    """Return what each deployment is, beside its source; a row a deployment.

    ``bytes`` is the mean size of its files, and ``size`` its ratio to the source's weights in float32; ``changed``, the
    mean share of all images of which the class changes; ``ties``, that of images whose two largest logits are equal,
    NaN in runs that were stored before it was counted; ``logits``, the largest difference of logits, and ``distance``,
    the mean root mean square, in standard deviations of the source's logits; ``seconds_1000`` and ``seconds_10000``,
    the median over trainings of how long so many images took, and ``time_…``, the ratio to the source's. ``gate`` is
    ``"passed"`` or ``"not passed"`` for a conversion that should change nothing: its logits and classes, and the images
    that it falls on under the attacks of the control. It is ``"measured"`` for every other.
    """
    models = results.manifest["models"]
    accuracy = {key: float(model["clean_accuracy"]) for key, model in zip(results.keys, models, strict=True)}
    rows = []
    for name, entries in _group_by_name(results).items():
        pairs = _pair_up(entries)
        info = models[results.keys.index(pairs[0][0])]["info"]
        size = _mean(entries, "bytes")
        row = {
            "deployment": name,
            "source": pairs[0][1][0],
            "precision": info.get("deployment", {}).get("precision"),
            "bytes": size,
            "size": size / max(_mean(entries, "source_bytes"), 1.0),
        }
        row |= {measure: _mean(entries, measure) for measure in ("changed", "ties", "distance")}
        for position, images in enumerate((1000, 10000)):
            seconds = _median_seconds(entries, "seconds", position)
            row[f"seconds_{images}"] = seconds
            row[f"time_{images}"] = seconds / _median_seconds(entries, "source_seconds", position)
        row["clean_accuracy"] = float(np.mean([accuracy[deployed] for deployed, _ in pairs]))
        row["source_clean_accuracy"] = float(np.mean([accuracy[source] for _, source in pairs]))
        row["logits"] = max(float(entry["logits"]) for entry in entries)
        row["gate"] = _gate(results, entries)
        rows.append(row)
    return pandas.DataFrame(rows, columns=list(MEASURED))


def _mean(entries: Sequence[Mapping[str, Any]], name: str) -> float:
    """Return the mean over trainings of a number, NaN where one has none."""
    numbers: list[Any] = [entry.get(name) for entry in entries]
    return math.nan if None in numbers else float(np.mean(numbers))


def _median_seconds(entries: Sequence[Mapping[str, Any]], name: str, position: int) -> float:
    """Return the median over trainings of a time, NaN where it was not measured."""
    seconds = [entry[name][position] for entry in entries]
    return math.nan if None in seconds else float(np.median(seconds))


def _gate(results: Results, entries: Sequence[Mapping[str, Any]]) -> str:
    if not all(entry["exact"] for entry in entries):
        return "measured"
    alike = all(answers_alike(entry["logits"], entry["changed"]) for entry in entries)
    for attack, record in results.attack_records.items():
        both = _stack(results, _pair_up(entries), attack, "success") if record.in_control else None
        if both is not None:
            differing = (both[0] != both[1]).any(axis=1).mean(axis=1)  # of each training's images
            alike = alike and bool((differing <= LARGEST_OUTCOMES).all())
    return "passed" if alike else "not passed"


def compare_deployments(results: Results, margin: float) -> pandas.DataFrame:
    """Return how much easier each deployment is to fool than its source; see `Evaluation.deployments`."""
    check_fraction("margin", margin)
    rows = [
        row
        for name, entries in _group_by_name(results).items()
        for attack in results.attacks
        for row in _compare_pairs(results, name, _pair_up(entries), attack, margin)
    ]
    tested = [row for row in rows if not math.isnan(row["p"])]
    for row, p in zip(tested, holm([row["p"] for row in tested]), strict=True):
        row["p_adjusted"] = p
    for row in tested:  # at the level of the smallest p, which Holm multiplies by the number of tests
        if "detectable" in row:
            row["detectable"] = row["detectable"](ALPHA / len(tested))
    return pandas.DataFrame(rows, columns=list(COLUMNS)).astype({"detectable": float})


def _compare_pairs(results: Results, name: str, pairs: Pairs, attack: str, margin: float) -> list[dict[str, Any]]:
    """Return a row about success rates, and one about distances where the attack is about these."""
    success = _stack(results, pairs, attack, "success")
    if success is None:
        return []
    deployed, source = pairs[0]
    about = {"deployment": name, "source": source[0], "attack": attack}
    about |= {"trainings": success.shape[1], "images": success.shape[3]}
    gradient = _find_gradient(results, deployed, attack)
    rows = [about | {"gradient": gradient, "not_compared": ""} | _compare_success(success[0], success[1], margin)]
    record = results.attack_records[attack]
    distances = _stack(results, pairs, attack, record.norm) if record.compares_distances else None
    row = {} if distances is None else _compare_distances(*distances)
    if row:
        reason = results.distances.not_compared(attack, [name, source[0]])
        rows.append(about | {"measure": f"median {NORMS[record.norm]}", "gradient": "", "not_compared": reason} | row)
    return rows


def _stack(results: Results, pairs: Pairs, attack: str, measure: str) -> Floats | None:
    """Return the values of deployments and of their sources, (2, trainings, repeats, images); None without a pair."""
    stacked = [
        [results.values(model, attack, measure, seed)[0] for model, seed in pair]
        for pair in pairs
        if all(seed in results.seeds(model, attack) for model, seed in pair)
    ]
    if not stacked:
        return None
    values = np.array(stacked, np.float64).swapaxes(0, 1)
    return values[:, :, :1] if results.attack_records[attack].deterministic else values


def _compare_success(deployed: Floats, source: Floats, margin: float) -> dict[str, Any]:
    a = deployed.mean(axis=(1, 2))
    b = source.mean(axis=(1, 2))
    row = {
        "measure": SUCCESS,
        "source_value": float(source.mean()),
        "value": float(deployed.mean()),
        "difference": float((deployed - source).mean()),
        "only_source": int((source > deployed).sum()),
        "only_deployed": int((deployed > source).sum()),
    }
    if len(a) == 1 or np.ptp(a - b) == 0:  # where all rates differ by the same, trainings say nothing
        return row | _compare_images(deployed, source, margin)
    test = t_test(a, b, paired=True)
    row |= {"unit": "trainings", "low": test.low, "high": test.high, "p": test.p}
    row["detectable"] = partial(detectable_between_pairs, a - b)
    return row | _describe_equivalence(equivalent_frameworks(a, b, margin, paired=True))


def _compare_images(deployed: Floats, source: Floats, margin: float) -> dict[str, Any]:
    """Return the evidence over images, each with its mean over trainings and repeats."""
    a = deployed.mean(axis=(0, 1))
    b = source.mean(axis=(0, 1))
    row: dict[str, Any] = {"unit": "images", "p": math.nan}
    if (deployed != source).any():
        is_single = deployed.shape[:2] == (1, 1)  # then flipping signs is McNemar's test, which is exact
        row["p"] = mcnemar(a > 0, b > 0).p if is_single else sign_flips((a - b)[None])[0].p
        row["low"], row["high"] = difference_intervals((a - b)[None])[0]
        row["detectable"] = partial(_detectable, a, b, is_single)
    differing = int(np.count_nonzero(a - b))
    is_coarse = 0 < differing < FEW_DIFFER  # where many differ, or none, t is good enough
    test = _compare_few(a - b, margin) if is_coarse else equivalent_models(a - b, margin)
    return row | _describe_equivalence(test)


def _detectable(a: Floats, b: Floats, is_single: bool, alpha: float) -> float:
    """Return what a test over images would have found: chi-square is too hopeful where few images differ."""
    by_signs = detectable_by_signs(int((a != b).sum()), len(a), alpha)
    return by_signs if is_single else max(by_signs, detectable_between_models(np.stack([a, b]), alpha))


def _compare_few(differences: Floats, margin: float) -> Equivalence:
    """Return two one-sided tests where few images differ.

    Clopper and Pearson's limits of the shares of images that fall in one alone: exact, and on the safe side, as the
    other direction is taken to be nothing.
    """
    n = len(differences)
    counts = [int((differences < 0).sum()), int((differences > 0).sum())]
    low, high = (float(betaincinv(count + 1, n - count, 1 - ALPHA)) if count < n else 1.0 for count in counts)
    p = max(float(bdtr(count, n, margin)) for count in counts)
    return Equivalence(float(differences.mean()), -low, high, p)


def _compare_distances(deployed: Floats, source: Floats) -> dict[str, Any]:
    """Return what is said of median distances; nothing where half of the images resist the attack."""
    a, b = np.quantile([deployed, source], 0.5, axis=(2, 3), method="higher")
    if not np.isfinite([a, b]).all():
        return {}
    row = {
        "unit": "trainings",
        "p": math.nan,
        "source_value": float(b.mean()),
        "value": float(a.mean()),
        "difference": float((a - b).mean()),
        "only_source": int((source < deployed).sum()),
        "only_deployed": int((deployed < source).sum()),
        "equivalent": False,
    }
    if len(a) > 1 and np.ptp(a - b):
        test = t_test(a, b, paired=True, largest=math.inf)
        row |= {"low": test.low, "high": test.high, "p": test.p}
        row["detectable"] = partial(detectable_between_pairs, a - b)
    elif (deployed != source).any():
        of_images = [np.median(values, axis=(0, 1)) for values in (deployed, source)]
        row |= {"unit": "images", "p": sign_test(*of_images).p}
    return row


def _describe_equivalence(test: Equivalence) -> dict[str, Any]:
    return {
        "equivalent_low": test.low,
        "equivalent_high": test.high,
        "p_equivalent": test.p,
        "equivalent": test.p < ALPHA,
    }


def _find_gradient(results: Results, key: Key, attack: str) -> str:
    """Return `SOURCE` where an attack followed the gradient of the source; "" where it needs none."""
    model = results.manifest["models"][results.keys.index(key)]
    return SOURCE if attack in model.get("source_gradient", ()) else ""


LARGEST_LOGITS = 1e-4
"""The largest difference of logits, in standard deviations of all of them."""


LARGEST_PREDICTIONS = 1e-3
"""The largest share of images whose predicted class differs."""


LARGEST_OUTCOMES = 2e-3
"""The largest share of attacked images that fool one framework and not another, under FGSM and single pixel."""


PASSED = (
    "Passed: the same weights give the same results in every framework, so the evaluation itself adds no difference. "
    "This does not show that a difference between trained models is caused by their frameworks."
)
FAILED = (
    "Not passed: the same weights give different results in these frameworks. Find the cause before you interpret any "
    "difference between trained models."
)


def answers_alike(logits: float, predictions: float) -> bool:
    """Say whether networks answer alike, by the largest difference of logits and the share of other predictions."""
    return logits <= LARGEST_LOGITS and predictions <= LARGEST_PREDICTIONS


def judge_control(results: Results) -> dict[str, Any] | None:
    """Return how closely frameworks agree on the same weights, None for a run without the control.

    ``passed``; ``logits``, the largest difference in standard deviations of the logits, and ``predictions``, the
    largest share of the whole test set, between two frameworks; ``differ``, for each attack and pair of frameworks the
    images that fool one and not the other.
    """
    measured = results.manifest.get("same_weights")
    if measured is None:
        return None
    differ = {}
    passed = answers_alike(measured["logits"], measured["predictions"])
    for attack, record in results.attack_records.items():
        success = {model: results.values(model, attack) for model in results.models}
        differ[attack] = {
            f"{a}|{b}": int((success[a] != success[b]).any(axis=(0, 1)).sum()) for a, b in combinations(success, 2)
        }
        if record.in_control:
            most = LARGEST_OUTCOMES * results.manifest["images"]["used"]
            passed = passed and all(count <= most for count in differ[attack].values())
    return {"passed": passed, **measured, "differ": differ}

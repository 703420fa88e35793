"""The same weights elsewhere: in each framework, the control, and deployed networks beside their sources.

A deployment and its source are one training, attacked on the same images with the same draws, so everything is paired.
The unit is the training where there are several, else the image.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..records.attack import NORMS
from .distances import Distances
from .recorded import Recorded
from .significance import ALPHA
from .statistics.equivalence import Equivalence, equivalent_models, equivalent_twins
from .statistics.foundations import check_fraction
from .statistics.hypotheses import holm, mcnemar, paired_t, sign_flips, sign_test
from .statistics.intervals import difference_intervals
from .statistics.power import detectable_between_models, detectable_between_pairs, detectable_by_signs

if TYPE_CHECKING:
    import pandas

Key = tuple[str, int]
COLUMNS = (
    *("deployment", "source", "attack", "measure", "gradient", "unit", "trainings", "images", "source_value", "value"),
    *(
        "difference",
        "low",
        "high",
        "p",
        "p_adjusted",
        "detectable",
        "only_source",
        "only_deployed",
        "equivalent_low",
        "equivalent_high",
    ),
    *("p_equivalent", "equivalent", "not_compared"),
)
OF_SIZE = ("deployment", "source", "precision", "bytes", "size", "clean_accuracy", "source_clean_accuracy")
MEASURED = (
    *OF_SIZE,
    "changed",
    "ties",
    "logits",
    "distance",
    "seconds_1000",
    "time_1000",
    "seconds_10000",
    "time_10000",
    "gate",
    "not_applicable",
)
RESAMPLES = 10_000
FEW_DIFFER = 10  # images
SUCCESS = "success rate"
SOURCE, OWN_DIFFERENCES = "source", "finite-differences"  # whose gradient FGSM followed, as in `deploy`
DEPLOYED_MARGIN = 0.02
"""Within which a deployment counts as equivalent to its source, unless a caller says otherwise: two points."""


def pairs_of(recorded: Recorded) -> dict[str, list[tuple[Key, Key]]]:
    """Return each deployed training with its source, by the name of the deployment."""
    pairs: dict[str, list[tuple[Key, Key]]] = {}
    for entry in recorded.manifest.get("deployments", []):
        (name, seed), (source, source_seed) = entry["model"], entry["source"]
        pairs.setdefault(name, []).append(((name, int(seed)), (source, int(source_seed))))
    return pairs


def describe_deployments(recorded: Recorded) -> pandas.DataFrame:
    """Return what each deployment is, beside its source; a row a deployment.

    ``bytes`` is the mean size of its files, and ``size`` its ratio to the source's weights in float32; ``changed``, the
    mean share of all images of which the class changes; ``ties``, that of images whose two largest logits are equal,
    NaN in runs that were stored before it was counted; ``logits``, the largest difference of logits, and ``distance``,
    the mean root mean square, in standard deviations of the source's logits; ``seconds_1000`` and ``seconds_10000``,
    the median over trainings of how long so many images took, and ``time_…``, the ratio to the source's. ``gate`` is
    ``"passed"`` or ``"not passed"`` for a conversion that should change nothing: its logits and classes, and the images
    that it falls on under the attacks of the control. It is ``"measured"`` for every other. A network that cannot be
    asked here has its size alone, and ``not_applicable`` says why; it is "" for every other.
    """
    import pandas

    accuracy = {(m["name"], int(m["training_seed"])): float(m["clean_accuracy"]) for m in recorded.manifest["models"]}
    rows = []
    for name, pairs in pairs_of(recorded).items():
        entries = [entry for entry in recorded.manifest["deployments"] if entry["model"][0] == name]
        size = _mean(entries, "bytes")
        few, seconds = (_median(entries, "seconds", position) for position in (0, 1))
        source_few, source_seconds = (_median(entries, "source_seconds", position) for position in (0, 1))
        rows.append(
            {
                "deployment": name,
                "source": pairs[0][1][0],
                "precision": _of(recorded, pairs[0][0])["info"].get("deployment", {}).get("precision"),
                "bytes": size,
                "size": size / max(_mean(entries, "source_bytes"), 1.0),
                "clean_accuracy": float(np.mean([accuracy[ours] for ours, _ in pairs])),
                "source_clean_accuracy": float(np.mean([accuracy[theirs] for _, theirs in pairs])),
                "changed": _mean(entries, "changed"),
                "ties": _mean(entries, "ties"),
                "logits": max(float(entry["logits"]) for entry in entries),
                "distance": _mean(entries, "distance"),
                "seconds_1000": few,
                "time_1000": few / source_few,
                "seconds_10000": seconds,
                "time_10000": seconds / source_seconds,
                "gate": _gate(recorded, entries, pairs),
                "not_applicable": "",
            }
        )
    rows += _not_asked(recorded, accuracy)
    return pandas.DataFrame(rows, columns=list(MEASURED))


def _not_asked(recorded: Recorded, accuracy: Mapping[Key, float]) -> list[dict[str, Any]]:
    """Return a row for each deployment that was converted and not asked: all but its size is NaN."""
    by_name: dict[str, list[Mapping[str, Any]]] = {}
    for entry in recorded.manifest.get("not_asked", []):
        by_name.setdefault(entry["model"][0], []).append(entry)
    rows = []
    for name, entries in by_name.items():
        size = _mean(entries, "bytes")
        sources = [(entry["source"][0], int(entry["source"][1])) for entry in entries]
        rows.append(
            dict.fromkeys(MEASURED, math.nan)
            | {
                "deployment": name,
                "source": sources[0][0],
                "precision": entries[0]["precision"],
                "bytes": size,
                "size": size / max(_mean(entries, "source_bytes"), 1.0),
                "source_clean_accuracy": float(np.mean([accuracy[source] for source in sources])),
                "gate": "not applicable",
                "not_applicable": entries[0]["not_applicable"],
            }
        )
    return rows


def compare_deployments(recorded: Recorded, margin: float) -> pandas.DataFrame:
    """Return how much easier each deployment is to fool than its source; a row a deployment and attack.

    Parameters
    ----------
    recorded : Recorded
        A run.
    margin : float
        Of equivalence, in the unit of the rates.

    Returns
    -------
    pandas.DataFrame
        ``value`` is the deployment's success rate or, in a row of its own for an attack whose distances are compared,
        its median in the attack's norm; ``difference`` is that minus the source's, with a 95 % interval. ``unit`` says
        over what. With several trainings the unit is the training: the paired t test. With one it is the image:
        McNemar's test where there is one outcome an image, sign flips for a random attack's repeats, and the interval
        by the bootstrap over images. ``p_adjusted`` is Holm's over all rows with a p; it is NaN where no outcome
        differs. ``detectable`` is the difference that the test finds with 80 % power, at 5 % divided by the number of
        tests. ``only_source`` and ``only_deployed`` count outcomes (trainings × repeats × images) of which one falls
        and the other does not.
        ``equivalent_low`` and ``equivalent_high`` are the ends of the 90 % interval, ``p_equivalent`` that of two
        one-sided tests, and ``equivalent`` says whether it is below 5 %: the difference is smaller than the margin.
        ``not_compared`` says why distances say nothing, because the search has not converged; "" in every other row.
        ``gradient`` is ``"source"`` where the attack followed the gradient of the source: then both were asked about
        the same candidates; and ``"finite-differences"`` where it followed those of the deployed network.

    Raises
    ------
    UsageError
        The margin is not above 0, or above 1.
    """
    import pandas

    check_fraction("margin", margin)
    rows = [
        row
        for name, pairs in pairs_of(recorded).items()
        for attack in recorded.attacks
        for row in (
            _of_success(recorded, name, pairs, attack, margin),
            _of_distance(recorded, name, pairs, attack),
        )
        if row
    ]
    tested = [row for row in rows if not math.isnan(row["p"])]
    for row, p in zip(tested, holm([row["p"] for row in tested]), strict=True):
        row["p_adjusted"] = p
    for row in rows:  # at the level of the smallest p, which Holm multiplies by the number of tests
        row["detectable"] = row["detectable"](ALPHA / max(len(tested), 1))
    return pandas.DataFrame(rows, columns=list(COLUMNS))


def _of_success(
    recorded: Recorded, name: str, pairs: Sequence[tuple[Key, Key]], attack: str, margin: float
) -> dict[str, Any]:
    """Return a row about success rates, nothing where the attack did not run on both of any pair."""
    outcomes = list(_both(recorded, pairs, attack, "success"))
    if not outcomes:
        return {}
    ours, theirs = _stack(outcomes)
    evidence = _over_trainings(ours, theirs, margin) if len(outcomes) > 1 else None
    if evidence is None:
        evidence = _over_images(ours, theirs, margin)
    return evidence | {
        "deployment": name,
        "source": pairs[0][1][0],
        "attack": attack,
        "measure": SUCCESS,
        "gradient": _gradient(recorded, pairs[0][0], attack),
        "not_compared": "",
        **_compare(theirs, ours, theirs, ours),
        "difference": float((ours - theirs).mean()),
    }


def _of_distance(recorded: Recorded, name: str, pairs: Sequence[tuple[Key, Key]], attack: str) -> dict[str, Any]:
    """Return a row about distances; nothing for an attack that is not about them, or resisted by half of the images."""
    if not recorded.attack_records[attack].compares_distances:
        return {}
    norm = recorded.attack_records[attack].norm
    outcomes = list(_both(recorded, pairs, attack, norm))
    if not outcomes:
        return {}
    ours, theirs = _stack(outcomes)
    a, b = np.quantile([ours, theirs], 0.5, axis=(2, 3), method="higher")
    if not np.isfinite([a, b]).all():
        return {}
    said: dict[str, Any] = {
        "unit": "trainings",
        "low": math.nan,
        "high": math.nan,
        "p": math.nan,
        "detectable": _nan,
    }
    if len(outcomes) > 1 and np.ptp(a - b):
        test = paired_t(a, b, largest=math.inf)
        said |= {
            "low": test.low,
            "high": test.high,
            "p": test.p,
            "detectable": partial(detectable_between_pairs, a - b),
        }
    elif (ours != theirs).any():
        of_images = [np.median(each, axis=(0, 1)) for each in (ours, theirs)]
        said |= {"unit": "images", "p": sign_test(*of_images).p}
    source = pairs[0][1][0]
    return said | {
        "deployment": name,
        "source": source,
        "attack": attack,
        "measure": f"median {NORMS[norm]}",
        "gradient": "",
        "not_compared": Distances(recorded).not_compared(attack, [name, source]),
        **_compare(-theirs, -ours, b, a),
        "difference": float((a - b).mean()),
        **_equivalent(Equivalence(math.nan, math.nan, math.nan, math.nan)),
    }


def _stack(outcomes: Sequence[tuple[NDArray[Any], NDArray[Any]]]) -> NDArray[np.float64]:
    """Return the values of deployments and of their sources, each (trainings, repeats, images)."""
    return np.array(outcomes, np.float64).swapaxes(0, 1)


def _compare(
    theirs: NDArray[np.float64], ours: NDArray[np.float64], source: NDArray[np.float64], deployed: NDArray[np.float64]
) -> dict[str, Any]:
    """Return on how many outcomes each falls alone, where the larger value falls first, and the means."""
    return {
        "trainings": len(ours),
        "images": ours.shape[2],
        "source_value": float(source.mean()),
        "value": float(deployed.mean()),
        "p_adjusted": math.nan,
        "only_source": int((theirs > ours).sum()),
        "only_deployed": int((ours > theirs).sum()),
    }


def _both(
    recorded: Recorded, pairs: Sequence[tuple[Key, Key]], attack: str, what: str
) -> Iterator[tuple[NDArray[Any], NDArray[Any]]]:
    """Yield the values (repeats, images) of each pair of which both were attacked."""
    for ours, theirs in pairs:
        both = [_values(recorded, key, attack, what) for key in (ours, theirs)]
        if both[0] is not None and both[1] is not None:
            yield both[0], both[1]


def _values(recorded: Recorded, key: Key, attack: str, what: str) -> NDArray[Any] | None:
    name, seed = key
    seeds = recorded.seeds(name, attack)
    if seed not in seeds:
        return None
    values: NDArray[Any] = recorded.values(name, attack, what)[seeds.index(seed)]
    return values[:1] if recorded.deterministic(attack) else values


def _over_trainings(ours: NDArray[np.float64], theirs: NDArray[np.float64], margin: float) -> dict[str, Any] | None:
    """Return the evidence over trainings; None where all of their rates differ by the same, so that it says nothing."""
    a, b = ours.mean(axis=(1, 2)), theirs.mean(axis=(1, 2))
    if np.ptp(a - b) == 0:
        return None
    test = paired_t(a, b)
    said = {"unit": "trainings", "low": test.low, "high": test.high, "p": test.p}
    said["detectable"] = partial(detectable_between_pairs, a - b)
    return said | _equivalent(equivalent_twins(a, b, margin))


def _over_images(ours: NDArray[np.float64], theirs: NDArray[np.float64], margin: float) -> dict[str, Any]:
    """Return the evidence over images, each with its mean over trainings and repeats."""
    a, b = ours.mean(axis=(0, 1)), theirs.mean(axis=(0, 1))
    said: dict[str, Any] = {"unit": "images", "low": math.nan, "high": math.nan, "p": math.nan, "detectable": _nan}
    if (ours != theirs).any():
        single = ours.shape[:2] == (1, 1)  # then flipping signs is McNemar's test, which is exact
        p = mcnemar(a > 0, b > 0).p if single else sign_flips((a - b)[None])[0].p
        [(low, high)] = difference_intervals((a - b)[None], resamples=RESAMPLES)
        said |= {"low": float(low), "high": float(high), "p": p, "detectable": partial(_detectable, a, b, single)}
    return said | _equivalent(_few(a - b, margin) or equivalent_models(a - b, margin))


def _detectable(a: NDArray[np.float64], b: NDArray[np.float64], single: bool, alpha: float) -> float:
    """Return what a test over images would have found: chi-square is too hopeful where few images differ."""
    by_signs = detectable_by_signs(int((a != b).sum()), len(a), alpha)
    return by_signs if single else max(by_signs, detectable_between_models(np.stack([a, b]), alpha))


def _few(differences: NDArray[np.float64], margin: float) -> Equivalence | None:
    """Return two one-sided tests where few images differ; None where many do, and t is good enough.

    Clopper and Pearson's limits of the shares of images that fall in one alone: exact, and on the safe side, as the
    other direction is taken to be nothing.
    """
    from scipy.stats import beta, binom

    n, counts = len(differences), [int((differences < 0).sum()), int((differences > 0).sum())]
    if not 0 < sum(counts) < FEW_DIFFER:
        return None
    low, high = (float(beta.ppf(1 - ALPHA, count + 1, n - count)) if count < n else 1.0 for count in counts)
    p = max(float(binom.cdf(count, n, margin)) for count in counts)
    return Equivalence(float(differences.mean()), -low, high, p)


def _nan(alpha: float) -> float:
    """Return NaN: where no outcome differs, there is nothing to say what could have been seen."""
    return math.nan


def _equivalent(evidence: Equivalence) -> dict[str, Any]:
    return {
        "equivalent_low": evidence.low,
        "equivalent_high": evidence.high,
        "p_equivalent": evidence.p,
        "equivalent": evidence.p < ALPHA,
    }


def _gate(recorded: Recorded, entries: Sequence[Mapping[str, Any]], pairs: Sequence[tuple[Key, Key]]) -> str:
    if not all(entry["exact"] for entry in entries):
        return "measured"
    alike = all(answers_alike(entry["logits"], entry["changed"]) for entry in entries)
    for attack, record in recorded.attack_records.items():
        if record.in_control:
            alike &= all(
                float((ours != theirs).any(axis=0).mean()) <= LARGEST_OUTCOMES
                for ours, theirs in _both(recorded, pairs, attack, "success")
            )
    return "passed" if alike else "not passed"


def _of(recorded: Recorded, key: Key) -> dict[str, Any]:
    """Return what a run says of a trained model."""
    said: dict[str, Any] = recorded.manifest["models"][recorded.keys.index(key)]
    return said


def _gradient(recorded: Recorded, key: Key, attack: str) -> str:
    """Return what gradient an attack followed of a deployed network, as for `deploy`; "" where it needs none."""
    said = _of(recorded, key)
    if attack in said.get("own_differences", ()):
        return OWN_DIFFERENCES
    return SOURCE if attack in said.get("source_gradient", ()) else ""


def _mean(entries: Sequence[Mapping[str, Any]], name: str) -> float:
    """Return the mean over trainings of a number, NaN where one has none."""
    return float(np.mean([_number(entry.get(name)) for entry in entries]))


def _median(entries: Sequence[Mapping[str, Any]], of: str, position: int) -> float:
    """Return the median over trainings of a time, NaN where it was not measured."""
    return float(np.median([_number(entry[of][position]) for entry in entries]))


def _number(said: float | None) -> float:
    """Return what a manifest says, NaN for what was not measured."""
    return math.nan if said is None else said


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


def count_differing(success: Mapping[str, NDArray[np.bool_]]) -> dict[str, int]:
    """Return, for each pair of frameworks, how many images fool one and not the other.

    Parameters
    ----------
    success : dict of str to ndarray of bool, shape (trainings, repeats, images)
        By framework. An image counts once, in however many trainings and repeats it differs.
    """
    return {f"{a}|{b}": int((success[a] != success[b]).any(axis=(0, 1)).sum()) for a, b in combinations(success, 2)}


def answers_alike(logits: float, predictions: float) -> bool:
    """Say whether networks answer alike, by the largest difference of logits and the share of other predictions."""
    return logits <= LARGEST_LOGITS and predictions <= LARGEST_PREDICTIONS


def verdict(
    measured: Mapping[str, float], differ: Mapping[str, dict[str, int]], control_attacks: Sequence[str], n: int
) -> bool:
    """Say whether the control passed; under each of `control_attacks` at most 2 in 1,000 of n images may differ."""
    return answers_alike(measured["logits"], measured["predictions"]) and all(
        count <= LARGEST_OUTCOMES * n for attack in control_attacks for count in differ[attack].values()
    )


def control(recorded: Recorded) -> dict[str, Any] | None:
    """Return how closely frameworks agree on the same weights, None for a run without the control.

    ``passed``; ``logits``, the largest difference in standard deviations of the logits, and ``predictions``, the
    largest share of the whole test set, between two frameworks; ``differ``, for each attack and pair of frameworks the
    images that fool one and not the other.
    """
    measured = recorded.manifest.get("same_weights")
    if measured is None:
        return None
    differ = {
        attack: count_differing({model: recorded.values(model, attack) for model in recorded.models})
        for attack in recorded.attacks
    }
    control_attacks = [attack for attack, record in recorded.attack_records.items() if record.in_control]
    passed = verdict(measured, differ, control_attacks, recorded.manifest["images"]["used"])
    return {"passed": passed, **measured, "differ": differ}

"""The summary of a run as JSON types, for other programs."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from .statistics import Interval

if TYPE_CHECKING:
    from .results import Results


def as_json(results: Results) -> dict[str, Any]:
    """Return what `Results.to_json` promises."""
    about, images = results.manifest["about"], results.manifest["images"]
    rates = results.rates()
    return {
        "model": about.get("model"),
        "dataset": about.get("dataset"),
        "recipe": about.get("recipe"),
        "training_seeds": results.training_seeds,
        "suite": results.manifest["suite"]["name"],
        "images": images["used"],
        **({"subset": "all"} if results.on_all_images else {}),
        "repeats": results.manifest["repeats"],
        **({"own_repeats": results.own_repeats} if results.own_repeats else {}),
        "seed": results.manifest["seed"],
        "frameworks": results.models,
        **({"sources": results.sources} if results.has_deployments else {}),
        "success_rate": {m: {a: _null(rate) for a, rate in of_model.items()} for m, of_model in rates.items()},
        "success_std": {m: {a: _null(results.repeat_std(m, a)) for a in results.attacks} for m in results.models},
        "indicator": {model: _null(r) for model, r in results.indicator.items()} or None,
        **({"not_applicable": results.not_applicable} if results.not_applicable else {}),
        **({"failed": results.failed} if results.failed else {}),
        "clean_accuracy": results.clean_accuracy,
        "correct_by_all": results.correct_by_all,
        "out": None if results.run.temporary else str(results.run.directory),
        **({"checks": results.checked.to_json()["checks"]} if results.checked else {}),
        **({"same_weights": results.same_weights} if results.same_weights else {}),
        **({"deployments": _deployments(results)} if results.has_deployments else {}),
        **({"twins": [pair._asdict() for pair in results.twins]} if results.twins else {}),
        **_uncertainty(results),
        "versions": results.manifest["environment"]["versions"]
        | {model["framework"]: model["framework_version"] for model in results.manifest["models"]},
    }


def _deployments(results: Results) -> dict[str, Any]:
    """Return what is known of deployed networks as JSON types."""
    networks, differences = (
        [{name: None if value != value else value for name, value in row.items()} for row in frame.to_dict("records")]
        for frame in (results.deployed_networks, results.deployments())
    )
    return {"networks": networks, "differences": differences}


def _uncertainty(results: Results) -> dict[str, Any]:
    """Return verdicts, intervals, p values and ranges of R as JSON types."""
    tests = [] if results.same_weights or not results.outcomes else results.tests(results.level).to_dict("records")
    over_trainings = {m: {a: results.trainings.interval(m, a) for a in results.attacks} for m in results.models}
    ranges = results.indicator_ranges if len(results.models) > 1 and not results.same_weights else {}
    return {
        "verdicts": [_finite(asdict(verdict)) for verdict in results.verdicts],
        "intervals": {m: {a: _ends(results.interval(m, a)) for a in results.attacks} for m in results.models},
        **(
            {"training_intervals": {m: {a: _ends(ends) for a, ends in of.items()} for m, of in over_trainings.items()}}
            if results.has_several_trainings
            else {}
        ),
        "tests": [_finite({str(name): value for name, value in test.items()}) for test in tests],
        "indicator_ranges": {m: {"low": r.low, "high": r.high, "ranks": list(r.ranks)} for m, r in ranges.items()},
    }


def _null(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _ends(interval: Interval) -> list[float | None]:
    return [_null(end) for end in interval]


def _finite(said: dict[str, Any]) -> dict[str, Any]:
    return {name: _null(value) if isinstance(value, float) else value for name, value in said.items()}

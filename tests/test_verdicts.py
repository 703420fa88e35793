"""The answer, an attack at a time, and the difference that would have been detected.

The digests of published runs, which test_docs compares, hold their verdicts.
"""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import scipy.stats

import robustcmp as rc
from robustcmp.analysis.outcomes import Outcomes
from robustcmp.analysis.significance import of_distances, run_tests
from robustcmp.analysis.statistics import (
    cochran_q,
    detectable_between_groups,
    detectable_between_models,
)
from robustcmp.analysis.verdicts import _few_outcomes, together
from robustcmp.attacks import Boundary
from robustcmp.errors import UsageError
from robustcmp.records.store import Run
from robustcmp.report.words import _all_together

RUNS = Path(__file__).parents[1] / "docs" / "results"
TIMES = 2000


@pytest.mark.parametrize("models", [2, 3, 5])
def test_a_joint_test_over_images_detects_the_difference(models: int) -> None:
    rng = np.random.default_rng(0)
    alike = (rng.random((models, 4000)) < 0.3)[:, :1000]
    difference = detectable_between_models(alike.astype(float))
    rates = np.full(models, 0.3)
    rates[0], rates[-1] = 0.3 - difference / 2, 0.3 + difference / 2
    drawn = [cochran_q(rng.random((models, 1000)) < rates[:, None]).p < 0.05 for _ in range(TIMES)]
    assert np.mean(drawn) == pytest.approx(0.8, abs=0.06)  # the variance is estimated from one sample of images


def test_nothing_to_measure_a_difference_by() -> None:
    assert math.isnan(detectable_between_groups([np.full(3, 0.1), np.full(3, 0.2)]))
    assert math.isnan(detectable_between_models(np.ones((3, 10))))
    assert math.isnan(detectable_between_models(np.ones((1, 10))))
    with pytest.raises(UsageError, match="at least two trainings each"):
        detectable_between_groups([np.array([0.1]), np.array([0.2, 0.3])])


@pytest.mark.parametrize("run", ["lenet5-mnist-boundary-long", "lenet5-mnist-guo2019", "lenet5-digits"])
def test_verdicts_use_distances_of_walks_that_have_converged(run: str) -> None:
    """That is what the stored health check says of every training, and nothing else is interpreted."""
    ev = rc.open_run(RUNS / run)
    assert ev.results.checked is not None
    outcomes_of = [check.outcome for check in ev.results.checked.checks if check.check == "boundary has converged"]
    for outcomes in ev.results.outcomes:
        assert bool(outcomes.not_compared) == (outcomes.attack == "boundary" and {*outcomes_of} != {"pass"})
        if outcomes.not_compared:
            [verdict] = [verdict for verdict in ev.verdicts if verdict.attack == outcomes.attack] or [None]
            assert verdict is None or verdict.measure == "success rate"
            assert "distances" not in getattr(together(ev.results), "p", {})


@pytest.mark.parametrize(("fallen", "few"), [(9, "9 of 400 succeed"), (10, ""), (390, ""), (391, "9 of 400 fail")])
def test_five_successes_and_failures_of_each_framework_are_enough(fallen: int, few: str) -> None:
    fell = np.arange(400).reshape(2, 2, 1, 100) < fallen
    assert _few_outcomes(fell, 2) == few


# all attacks together, and distances


@pytest.mark.parametrize(
    ("run", "p", "different"),
    [
        ("lenet5-mnist-ten-trainings", {"success rates": 0.036}, None),  # boundary's distances are not compared
        ("lenet1-mnist-ten-trainings", {"success rates": 0.417}, False),
        ("lenet5-digits", {"success rates": 0.061}, False),
        ("reference/lenet5-mnist-ten-trainings", {"success rates": 0.017, "distances": 0.012}, True),
    ],
)
def test_all_attacks_together(run: str, p: dict[str, float], different: bool | None) -> None:
    """Of docs/is-it-the-framework.md and docs/results.md; the permutations have a fixed seed."""
    ev = rc.open_run(RUNS / run)
    found = together(ev.results)
    assert found is not None
    assert found.p == pytest.approx(p, abs=1e-3)
    assert found.different is different


def test_permutations_alone_do_not_decide(tmp_path: Path) -> None:
    """Two attacks with p = 0.061 each, adjusted, and 0.017 together."""
    ev = rc.open_run(RUNS / "reference" / "lenet5-mnist-ten-trainings")
    some, suite = ["medium", "small"], ev.manifest["suite"]
    manifest = ev.manifest | {
        "suite": suite | {"attacks": {name: suite["attacks"][name] for name in some}},
        "cells": [cell for cell in ev.manifest["cells"] if cell["attack"] in some],
    }
    run = Run.create(tmp_path)
    run.write_manifest(manifest)
    selected = ev.dataset.sel(attack=some).variables
    run.write_results({str(name): variable.values for name, variable in selected.items()}, manifest)
    [sentence] = _all_together(rc.open_run(tmp_path).results)
    assert sentence == "All attacks together hint at a difference (p = 0.017) that no single one shows."


@pytest.mark.parametrize("written", ["L0", "L2", "L∞"])
def test_distances_are_tested_in_the_norm_of_their_attack(written: str) -> None:
    rng = np.random.default_rng(0)
    fell = {name: np.ones((4, 1, 50), bool) for name in "ab"}
    distances = {"a": rng.uniform(0.1, 0.2, (4, 1, 50)), "b": rng.uniform(0.3, 0.4, (4, 1, 50))}
    outcomes = Outcomes("x", True, fell, {name: list(range(4)) for name in "ab"}, distances=distances, norm=written)
    tests = run_tests([outcomes], None)
    of = tests[of_distances(tests)].set_index("test")
    assert set(of.index) == {
        f"{test} of {written}" for test in ("Friedman", "sign test", "Brown-Forsythe", "F", "Welch's t")
    }
    expected = scipy.stats.ttest_ind(
        *(np.quantile(its, 0.5, (1, 2), method="higher") for its in distances.values()), equal_var=False
    )
    assert of.loc[f"Welch's t of {written}"].p == pytest.approx(expected.pvalue)


@pytest.mark.parametrize(("step", "gain", "reached"), [(1e-5, 0.1, True), (1e-3, 0.1, False), (1e-5, 0.2, False)])
def test_a_walk_that_still_moves_has_not_converged(step: float, gain: float, reached: bool) -> None:
    convergence = Boundary().convergence
    assert convergence is not None
    assert convergence.is_reached(step, gain) == convergence.is_reached(step, -gain) == reached
    assert not convergence.is_reached(step, math.nan)

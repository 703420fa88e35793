"""How large a comparison has to be: formulas, properties, what is planned from a run, and the command."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chi2, f, ncf

import robustcmp as rc
from robustcmp.analysis.planning import PILOT, SAME
from robustcmp.analysis.statistics import (
    trainings_needed,
    upper_variance,
)
from robustcmp.analysis.statistics.power import detectable_with_variances
from robustcmp.cli import command
from robustcmp.errors import UsageError

RUNS = Path(__file__).parents[1] / "docs" / "results"
TEN = RUNS / "lenet5-mnist-ten-trainings"
SUITE = """
images = 30
repeats = 2
[attacks.fgsm]
attack = "FGSM"
epsilons = 8
max_epsilon = 0.08
[attacks.pixel]
attack = "SinglePixel"
max_pixels = 3
"""

VARIANCES = st.lists(st.floats(1e-5, 0.01), min_size=2, max_size=6).map(np.array)
DIFFERENCES = st.floats(0.005, 0.5)


# formulas ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("frameworks", [2, 3, 6])
@pytest.mark.parametrize(("difference", "alpha", "power"), [(0.05, 0.05, 0.8), (0.03, 0.05 / 3, 0.9), (0.2, 0.05, 0.8)])
def test_trainings_by_the_noncentral_f(frameworks: int, difference: float, alpha: float, power: float) -> None:
    """With equal variances: the fewest trainings whose power, by SciPy's distribution, is as stated."""
    sd = 0.04

    def reached(trainings: int) -> bool:
        df = frameworks - 1, frameworks * (trainings - 1)
        noncentrality = trainings * difference**2 / (2 * sd**2)  # two means differ, the others lie between them
        return bool(ncf.sf(f.isf(alpha, *df), *df, noncentrality) >= power)

    expected = next(n for n in range(2, 1000) if reached(n))
    assert trainings_needed(np.full(frameworks, sd**2), difference, alpha, power) == expected


@given(VARIANCES, DIFFERENCES)
def test_so_many_trainings_detect_it_and_one_less_does_not(variances: Any, difference: float) -> None:
    needed = trainings_needed(variances, difference)
    assert needed is not None
    assert detectable_with_variances(variances, [needed] * len(variances)) <= difference
    if needed > 2:
        assert detectable_with_variances(variances, [needed - 1] * len(variances)) > difference


def test_no_number_of_trainings() -> None:
    assert trainings_needed(np.full(3, 0.04**2), 1e-5) is None
    assert trainings_needed(np.zeros(3), 0.05) is None
    with pytest.raises(UsageError, match=r"for 3 points pass 0\.03"):
        trainings_needed(np.full(3, 0.04**2), 3)


# variances -----------------------------------------------------------------------------------------------------------


def test_the_upper_limit_of_a_variance() -> None:
    rng = np.random.default_rng(1)
    equal = [np.array([0.1, 0.2, 0.3, 0.2]), np.array([0.5, 0.6, 0.7, 0.6])]
    assert upper_variance(equal, 0.8) == pytest.approx(equal[0].var(ddof=1) * 6 / chi2.ppf(0.2, 6))
    assert upper_variance([np.full(3, 0.2)] * 2) == 0
    above = [upper_variance(list(rng.normal(0, 1, (3, 5)))) > 1 for _ in range(2000)]
    assert 0.78 < np.mean(above) < 0.92  # above 80 %: spreads are not taken to be equal
    with pytest.raises(UsageError, match="at least two trainings each"):
        upper_variance([np.array([0.1]), np.array([0.2, 0.3])])


# a published run -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def ten() -> rc.Evaluation:
    return rc.open_run(TEN)


def test_a_plan_from_ten_trainings(ten: rc.Evaluation) -> None:
    plan = ten.plan(0.03)
    fgsm, pixel = (plan[plan.attack == name] for name in ("fgsm", "single_pixel"))
    assert fgsm.design.tolist() == [PILOT, SAME, SAME]
    assert fgsm.trainings.tolist() == [10, 19, 25]
    assert fgsm.images.tolist() == [1000] * 3
    verdict = ten.verdicts[0]
    assert fgsm.detectable.iloc[0] == verdict.detectable
    assert (fgsm.detectable.iloc[1:] <= 0.03).all()
    assert set(pixel.repeats) == {1}  # exact


def test_an_attack_without_information(ten: rc.Evaluation) -> None:
    plan = ten.plan(0.05, attack="boundary")
    assert plan.why.tolist() == ["the attack succeeds on every image of every model"]
    assert math.isnan(plan.detectable.item())


@pytest.mark.parametrize(
    ("run", "options", "message"),
    [
        (
            "lenet5-mnist-ten-trainings",
            {"difference": 5},
            "difference should be a fraction.*received 5: for 5 points pass 0.05",
        ),
        ("lenet5-mnist-ten-trainings", {"difference": 0}, "difference should be above 0, in the unit of the rates"),
        ("lenet5-mnist-ten-trainings", {"difference": 0.05, "power": 1}, "power should be above 0 and below 1"),
        ("lenet5-mnist-ten-trainings", {"difference": 0.05, "attack": "fgms"}, "did you mean 'fgsm'"),
        ("lenet5-mnist-guo2019", {"difference": 0.05}, "received 1 of torch.*Compare at least three trainings of each"),
    ],
)
def test_what_cannot_be_planned(run: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        rc.open_run(RUNS / run).plan(**options)


# the command ---------------------------------------------------------------------------------------------------------

Command = Callable[..., tuple[int, str, str]]


@pytest.fixture
def planned(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Command:
    """Return a function that runs ``robustcmp plan`` and returns its status and what it printed."""
    monkeypatch.setenv("COLUMNS", "100")

    def call(*arguments: object) -> tuple[int, str, str]:
        status = command.main(["plan", *map(str, arguments)])
        return status, *capsys.readouterr()

    return call


def test_the_command_on_a_small_run(zoo_model: Any, digits: Any, tmp_path: Path, planned: Command) -> None:
    (tmp_path / "suite.toml").write_text(SUITE)
    models = {name: [zoo_model(name, "lenet1", seed=seed) for seed in range(3)] for name in ("torch", "jax")}
    options: dict[str, Any] = {"suite": tmp_path / "suite.toml", "progress": False, "batch_size": 64}
    ev = rc.evaluate(models, digits.images, digits.labels, out=tmp_path / "run", **options)
    arguments = ("--pilot", tmp_path / "run", "--difference", 20, "--attack", "fgsm")
    status, out, _ = planned(*arguments)
    assert status == 0
    assert "To detect 20.0 points with 80 % power" in out
    status, out, _ = planned(*arguments, "--json")
    rows = json.loads(out)
    assert [row["design"] for row in rows] == [PILOT, SAME, SAME]
    expected = ev.plan(0.2, attack="fgsm")
    assert [row["trainings"] for row in rows] == expected.trainings.tolist()


def test_the_command_on_a_published_run(planned: Command) -> None:
    status, out, _ = planned("--pilot", TEN, "--difference", 3)
    text = " ".join(out.split())
    assert status == 0
    assert "A difference of 3.0 points under fgsm needs 19 trainings of each framework" in text
    assert "Do not rely on the plan for: single_pixel. A rate of the pilot is less than 3.0 points from 0" in text
    assert "boundary: the attack succeeds on every image of every model." in text
    assert "nan" not in text.lower()
    rows = json.loads(planned("--pilot", TEN, "--difference", 3, "--json")[1])
    assert len(rows) == 7


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["--pilot", TEN, "--difference", 0],
            "--difference should be points above 0.1 and below 100, such as 2, received 0",
        ),
        (["--pilot", TEN, "--difference", 100], "received 100"),
        (["--pilot", TEN, "--difference", "nan"], "received nan"),
        (["--pilot", TEN, "--difference", 5, "--power", 0], "power should be above 0"),
        (["--pilot", RUNS / "lenet5-mnist-guo2019", "--difference", 5], "framework and run-to-run effects"),
        (["--pilot", RUNS, "--difference", 5], "is not a run"),
        (["--difference", 5], "--pilot"),
    ],
)
def test_unusable_arguments(planned: Command, arguments: list[object], message: str) -> None:
    status, out, err = planned(*arguments)
    assert (status, out) == (2, "")
    assert message in err

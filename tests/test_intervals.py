"""Intervals: Wilson's against its formula, the bootstrap against what it should cover."""

from __future__ import annotations

import math
from statistics import NormalDist

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from robustcmp.analysis.statistics.intervals import NO_EVIDENCE, bootstrap_interval, wilson_interval
from robustcmp.errors import UsageError


def wilson(successes: int, n: int, confidence: float) -> tuple[float, float]:
    z = NormalDist().inv_cdf(0.5 + confidence / 2)
    p = successes / n
    centre = (p + z**2 / (2 * n)) / (1 + z**2 / n)
    half = z / (1 + z**2 / n) * math.sqrt(p * (1 - p) / n + z**2 / (4 * n**2))
    return centre - half, centre + half


@st.composite
def outcomes(draw: st.DrawFn) -> tuple[int, int]:
    n = draw(st.integers(1, 2000))
    return draw(st.integers(0, n)), n


@given(outcomes(), st.sampled_from([0.5, 0.9, 0.95, 0.99]))
@settings(deadline=None)
def test_wilson_is_its_formula(outcome: tuple[int, int], confidence: float) -> None:
    assert wilson_interval(*outcome, confidence) == pytest.approx(wilson(*outcome, confidence), abs=1e-12)


@given(outcomes())
@settings(deadline=None)
def test_wilson_holds_the_rate_and_stays_in_0_to_1(outcome: tuple[int, int]) -> None:
    low, high = wilson_interval(*outcome)
    assert 0 <= low <= outcome[0] / outcome[1] <= high <= 1
    assert low < high


def test_no_images_are_no_evidence() -> None:
    assert all(math.isnan(end) for end in wilson_interval(0, 0))
    assert all(math.isnan(end) for end in bootstrap_interval(np.zeros(0)))
    assert all(math.isnan(end) for end in NO_EVIDENCE)


@pytest.mark.parametrize(("successes", "n"), [(-1, 10), (11, 10), (1, 0)])
def test_counts_that_cannot_be_are_errors(successes: int, n: int) -> None:
    with pytest.raises(UsageError, match=rf"from 0 to n = {n}, received {successes}"):
        wilson_interval(successes, n)


def test_the_bootstrap_is_the_normal_interval_on_many_images() -> None:
    values = np.random.default_rng(5).random(4000)
    half = NormalDist().inv_cdf(0.975) * values.std() / math.sqrt(len(values))
    # The ends of 10,000 resamples scatter by about 0.03 standard errors.
    assert bootstrap_interval(values) == pytest.approx((values.mean() - half, values.mean() + half), abs=0.1 * half)


@pytest.mark.parametrize("value", [0.0, 1.0])
@pytest.mark.parametrize("n", [1, 12, 500])
def test_where_no_image_differs_at_an_end_wilson_stands_in(value: float, n: int) -> None:
    interval = bootstrap_interval(np.full(n, value), 0.9)
    assert interval == wilson_interval(round(n * value), n, 0.9)
    assert interval.low < interval.high

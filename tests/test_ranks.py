"""Statistics of times: against brute force over everything that could have been, SciPy, and published examples."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st

from robustcmp.analysis.statistics import (
    change_point,
    hodges_lehmann,
    median_interval,
    pairs_needed,
    wilcoxon,
)

# Hamilton's depression scale of nine patients, before and after treatment: Hollander and Wolfe 1973, "Nonparametric
# Statistical Methods", p. 29; also the first example of wilcox.test in R, which says V = 40 and p = 0.01953.
BEFORE = np.array([1.83, 0.50, 1.62, 2.48, 1.68, 1.88, 1.55, 3.06, 1.30])
AFTER = np.array([0.878, 0.647, 0.598, 2.05, 1.06, 1.29, 1.06, 3.14, 1.29])

whole = st.integers(-6, 6).map(float)  # few values, so that there are ties
real = st.floats(-100, 100).map(lambda value: round(value, 3))


def sample(of: st.SearchStrategy[float], most: int, least: int = 1) -> st.SearchStrategy[np.ndarray]:
    return st.lists(of, min_size=least, max_size=most).map(np.array)


# pairs


def rank_sum(differences: np.ndarray) -> float:
    return float(scipy.stats.rankdata(np.abs(differences))[differences > 0].sum())


@given(sample(whole, 9))
@settings(max_examples=60)
def test_wilcoxon_counts_all_signs(differences: np.ndarray) -> None:
    some = differences[differences != 0]
    sums = np.array([rank_sum(np.abs(some) * signs) for signs in product([-1, 1], repeat=len(some))])
    observed = rank_sum(some)
    expected = min(1.0, 2 * min(np.mean(sums <= observed), np.mean(sums >= observed)))
    assert wilcoxon(differences) == pytest.approx((observed, expected))


@given(st.integers(1, 50), st.integers(0, 1000))
@settings(max_examples=40)
def test_wilcoxon_is_that_of_scipy(n: int, seed: int) -> None:
    differences = np.random.default_rng(seed).normal(0.3, 1, n)
    expected = scipy.stats.wilcoxon(differences, method="exact").pvalue
    assert wilcoxon(differences).p == pytest.approx(expected, rel=1e-9)


def test_the_published_example_of_pairs() -> None:
    assert wilcoxon(BEFORE - AFTER).statistic == 40
    assert wilcoxon(BEFORE - AFTER).p == pytest.approx(2 * 0.01953, abs=1e-5)
    shift = hodges_lehmann(AFTER - BEFORE)
    # The book's examples 3.3 and 3.4: −0.46, and −0.786 to −0.010 with 96.1 %.
    assert (shift.estimate, shift.low, shift.high) == pytest.approx((-0.46, -0.786, -0.010), abs=5e-4)
    assert shift.coverage == pytest.approx(0.961, abs=5e-4)


@given(sample(real, 9))
@settings(max_examples=60)
def test_hodges_lehmann_is_the_median_of_walsh_averages(differences: np.ndarray) -> None:
    averages = [(x + y) / 2 for i, x in enumerate(differences) for y in differences[i:]]
    shift = hodges_lehmann(differences)
    assert shift.estimate == pytest.approx(np.median(averages))
    assert shift.low <= shift.estimate <= shift.high
    if len(differences) < 6:
        assert (shift.low, shift.high, shift.coverage) == (-math.inf, math.inf, 1)
    else:
        assert 0.95 <= shift.coverage < 1
        assert {shift.low, shift.high} <= {*averages}


def test_enough_pairs_can_be_significant() -> None:
    for tests in range(1, 40):
        needed = pairs_needed(tests)
        enough, fewer = (tests * wilcoxon(np.arange(1.0, pairs + 1)).p for pairs in (needed, needed - 1))
        assert enough <= 0.05 < fewer


# medians


@given(st.integers(1, 40), st.sampled_from([0.5, 0.9, 0.95, 0.99]))
def test_the_interval_of_the_median_is_the_narrowest_that_covers(n: int, confidence: float) -> None:
    located = median_interval(np.arange(1.0, n + 1), confidence)
    covering = {
        k: scipy.stats.binom.cdf(n - k, n, 0.5) - scipy.stats.binom.cdf(k - 1, n, 0.5) for k in range(1, n // 2 + 1)
    }
    enough = [k for k, coverage in covering.items() if coverage >= confidence - 1e-9]
    if enough:
        assert (located.low, located.high) == (enough[-1], n + 1 - enough[-1])
        assert located.coverage == pytest.approx(covering[enough[-1]])
    else:
        assert (located.low, located.high, located.coverage) == (-math.inf, math.inf, 1)


def test_the_median_of_what_was_not_reached() -> None:
    never = math.inf
    assert median_interval(np.array([1.0, never, 2.0, never, never])).estimate == never
    assert median_interval(np.array([never] * 4)).estimate == never
    located = median_interval(np.array([1.0, 2.0, 3.0, 4.0, 5.0, never]))
    assert (located.estimate, located.low, located.high) == (3.5, 1.0, never)
    assert math.isnan(median_interval(np.zeros(0)).estimate)
    assert math.isnan(hodges_lehmann(np.zeros(0)).estimate)


# series


@given(sample(whole, 15, 2))
def test_pettitt_is_its_definition(values: np.ndarray) -> None:
    n = len(values)
    distances = [abs(sum(np.sign(values[i] - values[j]) for i in range(t) for j in range(t, n))) for t in range(1, n)]
    found = change_point(values)
    assert distances[found.before - 1] == max(distances)
    assert found.p == pytest.approx(min(1, 2 * math.exp(-6 * max(distances) ** 2 / (n**3 + n**2))))

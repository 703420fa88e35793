"""Is the difference real: tests and variances against their formulas, and on simulated truth."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from itertools import combinations, permutations
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
import scipy.stats
import statsmodels.stats.contingency_tables
import statsmodels.stats.multitest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray

from robustcmp.analysis.indicator import indicator_ranges
from robustcmp.analysis.outcomes import Outcomes, split_variance
from robustcmp.analysis.significance import COLUMNS, has_framework_level, run_tests
from robustcmp.analysis.statistics import (
    bootstrap_interval,
    brown_forsythe,
    cochran_q,
    difference_intervals,
    equivalent_frameworks,
    equivalent_models,
    f_test,
    friedman,
    holm,
    label_permutation,
    mcnemar,
    nested_variance,
    permute,
    sign_flips,
    sign_test,
    t_interval,
    t_test,
    two_way_interval,
    wilson_interval,
)
from robustcmp.analysis.statistics.hypotheses import NOTHING_VARIES, mantel
from robustcmp.errors import UsageError

Rates = NDArray[np.float64]


def outcomes(success: dict[str, Any], attack: str = "x", deterministic: bool = True, **more: Any) -> Outcomes:
    """Success (training runs, repeats, images), or (images,) for one training under a deterministic attack."""
    arrays = {name: np.asarray(its, np.bool_) for name, its in success.items()}
    arrays = {name: its[None, None] if its.ndim == 1 else its for name, its in arrays.items()}
    return Outcomes(
        attack, deterministic, arrays, {name: list(range(len(its))) for name, its in arrays.items()}, **more
    )


def drawn(frameworks: int = 3, runs: int = 4, repeats: int = 2, images: int = 30, seed: int = 0) -> Outcomes:
    rng = np.random.default_rng(seed)
    shares = rng.uniform(0.2, 0.8, (frameworks, runs, 1, 1))
    fell = rng.random((frameworks, runs, repeats, images)) < shares
    return outcomes({f"f{i}": its for i, its in enumerate(fell)}, deterministic=repeats == 1)


# One by one, against their formulas


rate_tables = st.integers(2, 4).flatmap(
    lambda frameworks: st.integers(2, 5).flatmap(
        lambda runs: st.lists(
            st.lists(st.integers(0, 1000).map(lambda hits: hits / 1000), min_size=runs, max_size=runs),
            min_size=frameworks,
            max_size=frameworks,
        ).map(np.array)
    )
)


@given(rate_tables)
@settings(deadline=None)
def test_nested_variance_is_the_textbooks(rates: Rates) -> None:
    found = nested_variance(rates)
    frameworks, runs = rates.shape
    between = runs * rates.mean(axis=1).var(ddof=1)
    within = rates.var(axis=1, ddof=1).mean()
    assert found.training_run == pytest.approx(within, abs=1e-12)
    assert found.framework == pytest.approx((between - within) / runs, abs=1e-12)
    assert 0 <= found.low <= found.high <= 1
    if within < 1e-20:
        return
    assert found.share == pytest.approx(found.framework / (found.framework + within), abs=1e-9)
    # The ends are the shares at which the statistic is the 97.5 % and the 2.5 % point of its distribution.
    df = frameworks - 1, frameworks * (runs - 1)
    for end, tail in ((found.low, 0.975), (found.high, 0.025)):
        if 0 < end < 1:
            scale = 1 + runs * end / (1 - end)
            assert scipy.stats.f.cdf(between / within / scale, *df) == pytest.approx(tail, abs=1e-6)


@pytest.mark.parametrize(
    ("rates", "message"),
    [
        ([[0.1], [0.2]], "effects are confounded"),
        ([[0.1, 0.2]], r"at least two trainings each; received 2 trainings\.$"),
        ([[0.1, 0.2], [0.3, 0.4, 0.5]], "different numbers"),
        ([[0.1, math.nan], [0.3, 0.2]], "NaN"),
    ],
)
def test_what_cannot_be_split_is_refused(rates: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        nested_variance(rates)


@given(rate_tables)
@settings(deadline=None)
def test_f_is_scipys(rates: Rates) -> None:
    groups = list(rates)
    within = rates.var(axis=1, ddof=1).mean()
    found = f_test(groups)
    if within < 1e-20 or rates.mean(axis=1).var() < 1e-20:  # SciPy may have NaN there
        assert found.p == pytest.approx(1, abs=1e-9)
        return
    expected = scipy.stats.f_oneway(*groups)
    assert found.p == pytest.approx(expected.pvalue, abs=1e-9)


@given(rate_tables)
@settings(deadline=None)
def test_welch_is_scipys_and_brown_forsythe_of_two_is_welch(rates: Rates) -> None:
    a, b = rates[:2]
    assume(min(np.ptp(a), np.ptp(b), abs(a.mean() - b.mean())) > 1e-6)
    found = t_test(a, b)
    expected = scipy.stats.ttest_ind(a, b, equal_var=False)
    interval = expected.confidence_interval()
    assert (found.statistic, found.p) == pytest.approx((expected.statistic, expected.pvalue), rel=1e-6, abs=1e-12)
    assert (found.low, found.high) == pytest.approx(np.clip([interval.low, interval.high], -1, 1), abs=1e-9)
    assert brown_forsythe([a, b]).p == pytest.approx(found.p, rel=1e-6, abs=1e-12)
    with_same_sizes = brown_forsythe(list(rates))
    assert with_same_sizes.statistic == pytest.approx(f_test(list(rates)).statistic)


def test_permutations_of_trainings_are_all_of_them() -> None:
    rng = np.random.default_rng(5)
    rates = rng.normal(size=(2, 6))
    rates[0, :3] += 1.5
    orders = list(permutations(range(6)))

    def statistics(order: tuple[int, ...]) -> list[float]:
        return [f_test([its[list(order[:3])], its[list(order[3:])]]).statistic for its in rates]

    observed, others = np.array(statistics(orders[0])), np.array([statistics(order) for order in orders])
    found = permute(rates, [3, 3])
    adjusted = found.adjust()
    assert found.joint([0, 1]).p == pytest.approx((others.sum(axis=1) >= observed.sum() - 1e-9).mean())
    first, second = np.argsort(-observed)
    smallest = (others.max(axis=1) >= observed[first] - 1e-9).mean()
    assert adjusted[first] == pytest.approx(smallest)
    alone = (others[:, second] >= observed[second] - 1e-9).mean()
    assert adjusted[second] == pytest.approx(max(smallest, alone))
    all_of_them, few = (permute(np.tile(rates, 2), [6, 6], resamples) for resamples in (4000, 900))  # 924 exist
    assert few.joint([0, 1]).p == pytest.approx(all_of_them.joint([0, 1]).p, abs=0.06)


def test_what_is_permuted_must_fit() -> None:
    for rates, sizes in ((np.ones((1, 4)), [2, 3]), (np.ones((1, 3)), [2, 1]), (np.ones(4), [2, 2])):
        with pytest.raises(UsageError, match="at least two frameworks with at least two trainings each"):
            permute(rates, sizes)
    assert permute(np.ones((2, 4)), [2, 2]).adjust() == [1, 1]


def test_equivalence_is_an_interval_within_the_margin() -> None:
    rng = np.random.default_rng(8)
    a, b = rng.normal(0.2, 0.02, (2, 8))
    ends = scipy.stats.ttest_ind(a, b, equal_var=False).confidence_interval(0.9)
    found = equivalent_frameworks(a, b, 0.05)
    assert (found.low, found.high) == pytest.approx((ends.low, ends.high))
    farthest = max(-found.low, found.high)
    assert equivalent_frameworks(a, b, farthest * 1.001).p < 0.05 < equivalent_frameworks(a, b, farthest * 0.999).p
    same = equivalent_models(np.zeros(59), 0.05)
    assert same.p == pytest.approx(0.95**59)
    assert equivalent_models(np.zeros(59), same.high * 1.001).p < 0.05
    assert equivalent_frameworks(np.ones(3), np.ones(3), 0.5).p == 1


@pytest.mark.parametrize(
    "test",
    [
        lambda margin: equivalent_models(np.array([0.0, 0.1]), margin),
        lambda margin: equivalent_models(np.zeros(3), margin),
        lambda margin: equivalent_frameworks(np.array([0.1, 0.2]), np.array([0.1, 0.3]), margin),
        lambda margin: equivalent_frameworks(np.array([0.1, 0.2]), np.array([0.1, 0.3]), margin, paired=True),
    ],
)
def test_a_margin_in_points_is_an_error(test: Callable[[float], object]) -> None:
    """With 5 for five points, all rates would be equivalent."""
    with pytest.raises(
        UsageError, match=r"margin should be a fraction of at most 1, received 5: for 5 points pass 0\.05"
    ):
        test(5)
    test(1.0)
    with pytest.raises(UsageError, match="margin should be above 0"):
        test(-0.05)


def test_student_over_trainings() -> None:
    rates = np.array([0.2, 0.25, 0.4, 0.3])
    expected = scipy.stats.t.interval(0.95, 3, rates.mean(), scipy.stats.sem(rates))
    assert t_interval(rates) == pytest.approx(expected)
    assert all(math.isnan(end) for end in t_interval(rates[:1]))
    assert all(math.isnan(end) for end in t_interval(np.full(4, 0.1)))  # nothing to tell by how much they differ


def test_sign_flips_are_all_of_them_in_the_limit() -> None:
    differences = np.array([[0.5, 0.1, -0.2, 0.4, 0.3, 0.0, 0.2]])
    signs = np.array(np.meshgrid(*[[1, -1]] * 7)).reshape(7, -1)
    exact = (np.abs(signs.T @ differences[0]) >= abs(differences.sum()) - 1e-12).mean()
    [found] = sign_flips(differences, resamples=40_000, seed=1)
    assert found.statistic == pytest.approx(differences.mean())
    assert found.p == pytest.approx(exact, abs=4 * math.sqrt(exact * (1 - exact) / 40_000))
    [other] = sign_flips(-differences, resamples=40_000, seed=1)
    assert (other.statistic, other.p) == (-found.statistic, found.p)


def test_distances_rank_failures_last() -> None:
    a = np.array([1.0, 2, 3, np.inf])
    b = np.array([2.0, 3, np.inf, np.inf])
    assert sign_test(b, a) == (3, 0.25)  # three farther, none nearer, one tie of failures
    assert friedman(np.array([a, b])) == sign_test(a, b)


@given(hnp.arrays(np.float64, st.tuples(st.integers(3, 6), st.integers(2, 30)), elements=st.integers(0, 4)))
def test_friedman_is_that_of_scipy(values: NDArray[np.float64]) -> None:
    assume(not (values == values[0]).all())
    expected = scipy.stats.friedmanchisquare(*values)
    assert friedman(values) == pytest.approx((expected.statistic, expected.pvalue), rel=1e-9, abs=1e-12)


@given(hnp.arrays(np.bool_, st.tuples(st.integers(3, 6), st.integers(2, 30))))
def test_cochran_is_that_of_statsmodels(fell: NDArray[np.bool_]) -> None:
    assume((fell.any(axis=0) & ~fell.all(axis=0)).any())
    expected = statsmodels.stats.contingency_tables.cochrans_q(fell.T.astype(np.int64))
    assert cochran_q(fell) == pytest.approx((expected.statistic, expected.pvalue), rel=1e-9, abs=1e-12)


@given(st.integers(0, 400), st.integers(0, 400))
def test_mcnemar_is_the_binomial_test_of_scipy(only_a: int, only_b: int) -> None:
    assume(only_a + only_b)
    a = np.repeat([True, False], [only_a, only_b])
    assert mcnemar(a, ~a).p == pytest.approx(scipy.stats.binomtest(only_a, only_a + only_b).pvalue, rel=1e-9)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=30))
@settings(deadline=None)
def test_holm_is_that_of_statsmodels(p: list[float]) -> None:
    with patch("gc.collect"):  # which statsmodels does in every adjustment, and which takes longer than all else
        theirs = statsmodels.stats.multitest.multipletests(p, method="holm")[1]
    assert holm(p) == pytest.approx(theirs)


# Tables of tests


def test_every_pair_of_both_levels() -> None:
    its = drawn()
    table = run_tests([its, replace(drawn(repeats=1, seed=1), attack="y")], None, resamples=200)
    assert tuple(table.columns) == COLUMNS
    models, frameworks = (table[table.level == level] for level in ("models", "frameworks"))
    assert len(models) == 2 * (1 + math.comb(12, 2))
    assert len(frameworks) == 2 * (2 + math.comb(3, 2)) + 1
    assert set(models.test) == {"permutation of models", "sign flips", "Cochran's Q, permuted", "McNemar, exact"}
    for _, its_pairs in models[models.b != ""].groupby("test"):
        assert list(zip(its_pairs.a, its_pairs.b, strict=True)) == list(combinations(its.labels, 2))
    means = its.image_means.mean(axis=1)
    pairs = models[models.test == "sign flips"]
    assert pairs.effect.values == pytest.approx([a - b for a, b in combinations(means, 2)])
    assert models[models.test == "permutation of models"].effect.item() == pytest.approx(np.ptp(means))
    # Holm's over all pairs and attacks of one level, and over its joint tests.
    beside = frameworks.test == "F"
    together = frameworks.attack == "all"
    assert frameworks[together].p_adjusted.tolist() == frameworks[together].p.tolist()
    assert frameworks[(frameworks.b == "") & ~beside].p_westfall_young.notna().sum() == 2
    for level in (models, frameworks[beside], frameworks[~beside & ~together]):
        for family in (level[level.b == ""], level[level.b != ""]):
            assert family.p_adjusted.values == pytest.approx(holm(list(family.p)))


def test_frameworks_need_several_trainings_and_are_not_approximated() -> None:
    one = drawn(runs=1)
    assert one.labels == ["f0", "f1", "f2"]
    assert set(run_tests([one], None, 100).level) == {"models"}
    assert not has_framework_level([one])
    for call in (lambda: run_tests([one], "frameworks"), lambda: split_variance([one])):
        with pytest.raises(UsageError, match="framework and run-to-run effects are confounded"):
            call()
    with pytest.raises(UsageError, match="level should be one of models, frameworks, received 'both'"):
        run_tests([one], "both")  # type: ignore[arg-type]


def test_unequal_numbers_of_trainings() -> None:
    fell = np.random.default_rng(0).random((5, 1, 20)) < 0.5
    its = outcomes({"a": fell[:2], "b": fell[2:]})
    assert len(run_tests([its], "frameworks")) == 3  # the unbalanced form
    with pytest.raises(UsageError, match="expected as many trainings of each framework"):
        split_variance([its])


# Never a warning from inside SciPy, never a silent NaN (warnings are errors in these tests).


@pytest.mark.parametrize("value", [True, False])
@pytest.mark.parametrize("images", [1, 20])
@pytest.mark.parametrize("deterministic", [True, False])
def test_an_attack_that_never_or_always_succeeds(value: bool, images: int, deterministic: bool) -> None:
    fell = np.full((3, 3, 1 if deterministic else 2, images), value)
    far = np.full(fell.shape, 1.0 if value else np.inf)
    distances = {f"f{i}": far[i] for i in range(3)}
    success = {f"f{i}": fell[i] for i in range(3)}
    its = outcomes(success, deterministic=deterministic, distances=distances, norm="L2")
    table = run_tests([its], None, resamples=100)
    assert table.p.isna().all()  # in no family: nothing could differ
    assert table.p_adjusted.isna().all()
    assert (table.statistic == 0).all()
    pairs = table[table.b != ""]
    assert not pairs[["effect", "low", "high"]].isna().any(axis=None)
    unseen = wilson_interval(0, images).high if images > 1 else 1
    assert pairs[pairs.level == "models"].high.values == pytest.approx(unseen)
    found = split_variance([its])
    assert found.loc["x", ["framework", "training_run", "repeat", "share", "low", "high"]].tolist() == [
        0,
        0,
        0,
        0,
        0,
        1,
    ]
    for low, high, ranks in indicator_ranges([its], 50).values():
        assert (low, high) == (0, 0)
        assert ranks == pytest.approx([1 / 3] * 3)


def test_trainings_that_agree_are_nothing_to_measure_a_difference_by() -> None:
    fell = np.zeros((2, 3, 1, 10), np.bool_)
    fell[1, ..., :5] = True
    its = outcomes({"a": fell[0], "b": fell[1]})
    table = run_tests([its], "frameworks")
    assert table.p.tolist() == [1, 1, 1]
    assert table.statistic.tolist() == [0, 0, 0]
    assert (table.effect.tolist(), table.low.iloc[2], table.high.iloc[2]) == ([0.5, 0.5, -0.5], -1, 1)
    assert split_variance([its]).loc["x", ["training_run", "share", "low", "high"]].tolist() == [0, 1, 0, 1]


def test_different_images_and_nan_are_errors() -> None:
    with pytest.raises(UsageError, match=r"the same images, received the shapes"):
        mcnemar(np.ones(3, np.bool_), np.ones(1, np.bool_))
    with pytest.raises(UsageError, match=r"on the same images, received 3 and 4"):
        two_way_interval(np.ones((2, 3)), np.ones((2, 4)))
    for call in (lambda x: sign_flips(x), lambda x: label_permutation(x), lambda x: friedman(x)):
        with pytest.raises(UsageError, match="received NaN"):
            call(np.array([[0.1, math.nan], [0.2, 0.3]]))
    nan = np.array([0.1, math.nan])
    for missing in (
        lambda: bootstrap_interval(nan),
        lambda: t_interval(nan),
        lambda: difference_intervals(nan[None]),
        lambda: two_way_interval(np.array([nan, nan]), np.ones((2, 2))),
        lambda: f_test([nan, nan]),
        lambda: holm([0.1, math.nan]),
    ):
        with pytest.raises(UsageError, match="expected a value for every image and training, received NaN"):
            missing()


def test_two_models_are_tested_jointly_as_the_pair_that_they_are() -> None:
    fell = np.zeros((2, 10), np.bool_)
    fell[0, :4] = True
    table = run_tests([outcomes({"a": fell[0], "b": fell[1]})], None, resamples=100)
    assert table.test.tolist() == ["McNemar, exact"] * 2
    assert table.p.tolist() == [0.125, 0.125]


def test_one_model_has_nothing_to_test() -> None:
    table = run_tests([outcomes({"a": np.arange(10) < 3})], None)
    assert table.empty
    assert tuple(table.columns) == COLUMNS
    assert cochran_q(np.zeros((2, 0), np.bool_)) == NOTHING_VARIES


# R


def test_the_range_of_r_and_the_ranks() -> None:
    rng = np.random.default_rng(6)
    uniform = rng.random(400)
    clear = outcomes({"a": uniform < 0.1, "b": uniform < 0.5, "c": uniform < 0.9})
    found = indicator_ranges([clear], 500)
    assert [found[name][:2] for name in "ac"] == [(0, 0), (1, 1)]
    assert 0.35 < found["b"].low < 0.5 < found["b"].high < 0.65
    assert [found[name].ranks.index(1.0) for name in "abc"] == [0, 1, 2]
    same = outcomes({"a": uniform < 0.3, "b": uniform > 0.7})
    ranges = indicator_ranges([clear, outcomes(dict(clear.success), "y")], 500)
    assert ranges["c"][:2] == (2, 2)
    assert min(indicator_ranges([same], 2000)["a"].ranks) > 0.1
    assert sum(indicator_ranges([same], 100)["b"].ranks) == pytest.approx(1)


# Blocks of pairs


@pytest.mark.parametrize("shift", [0.0, 1.0])
def test_mantel_is_the_share_of_all_partitions(shift: float) -> None:
    """Of the 15 ways to split six into pairs, each equally likely, after source and target effects are taken out."""
    rng = np.random.default_rng(3)
    groups = ["a", "a", "b", "b", "c", "c"]
    same = np.array(groups)[:, None] == np.array(groups)
    off = ~np.eye(6, dtype=bool)
    values = rng.normal(size=(6, 6)) + shift * same
    # For a full square without its diagonal the additive fit has a closed form.
    rows, columns, total = ((values * off).sum(axis=axis) for axis in (1, 0, None))
    source = (5 * rows + columns) / 24 - total / 24
    target = (5 * columns + rows) / 24 - total / 24
    rest = values - source[:, None] - target[None, :] - total / 30 + (source.mean() + target.mean())
    assert np.abs((rest * off).sum(axis=0)).max() < 1e-9
    assert np.abs((rest * off).sum(axis=1)).max() < 1e-9

    def difference(order: tuple[int, ...]) -> float:
        within = same[np.ix_(order, order)]
        return float(rest[within & off].mean() - rest[~within].mean())

    every = np.array([difference(order) for order in permutations(range(6))])
    found = mantel(values, groups)
    assert found.statistic == pytest.approx(every[0])
    assert found.p == pytest.approx((every >= every[0] - 1e-9).mean(), abs=0.02)


def test_mantel_on_what_it_cannot_say() -> None:
    assert all(map(math.isnan, mantel(np.ones((2, 2)), ["a", "b"])))
    assert all(map(math.isnan, mantel(np.ones((2, 2)), ["a", "a"])))
    values = np.full((4, 4), 0.5)
    assert mantel(values, ["a", "a", "b", "b"]) == (pytest.approx(0, abs=1e-12), 1)
    values[0] = np.nan  # a source on which nothing succeeded
    assert mantel(values, ["a", "a", "b", "b"]) == (pytest.approx(0, abs=1e-12), 1)

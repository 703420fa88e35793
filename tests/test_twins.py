"""Twins: found from weights and not from names, stored with a run, compared pair by pair, left out of transfer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray

import robustcmp as rc
from robustcmp.analysis.outcomes import Outcomes
from robustcmp.analysis.significance import run_tests
from robustcmp.analysis.statistics.hypotheses import (
    NOTHING_VARIES,
    equivalent_frameworks,
    mantel,
    t_test,
)
from robustcmp.analysis.twins import Twins, match_twins
from robustcmp.data.dataset import Dataset
from robustcmp.errors import UsageError
from robustcmp.networks.architecture import get_architecture
from robustcmp.networks.weights import Weights, read_weights
from robustcmp.report.words import notes
from robustcmp.runs import related
from robustcmp.sources.from_files import FromFile

ROOT = Path(__file__).parents[1]


def shipped(network: str, dataset: str) -> dict[tuple[str, int], Weights]:
    """The weights of the zoo that ships, by framework and training seed."""
    paths = sorted((ROOT / "zoo/weights").glob(f"{network}-{dataset}-*.h5"))
    contents = [read_weights(path) for path in paths]
    return {(it.metadata["framework"], it.metadata["training_seed"]): it.weights for it in contents}


# From weights


@pytest.mark.parametrize("network", ["lenet1", "lenet5"])
def test_the_twins_of_the_zoo_are_the_versions_of_torch_whatever_the_names(network: str) -> None:
    weights = shipped(network, "mnist")
    assert len(weights) == {"lenet1": 45, "lenet5": 66}[network]
    keys = list(weights)
    order = np.random.default_rng(0).permutation(len(keys))
    renamed = [(("model", int(i)), weights[keys[i]]) for i in order]
    pairs = related._correlate(renamed)
    found = {frozenset((keys[pair["a"][1]], keys[pair["b"][1]])) for pair in pairs}
    assert found == {frozenset({("torch", seed), ("torch@1.0", seed)}) for seed in range(5)}
    assert len(pairs) == 5


def test_a_copy_that_was_trained_further_is_a_twin_and_another_network_is_none(random_weights: Any) -> None:
    lenet1, lenet5, resnet20 = map(get_architecture, ("lenet1", "lenet5", "resnet20"))
    original, tuned = random_weights(resnet20, 0), random_weights(resnet20, 1)
    further = {name: array + 0.3 * tuned[name] for name, array in original.items()}
    models = {
        ("original", 0): original,
        ("further", 7): further,
        ("elsewhere", 0): tuned,
        ("lenet1", 0): random_weights(lenet1, 0),
        ("lenet5", 0): random_weights(lenet5, 0),
        ("zeros", 0): {name: np.zeros_like(array) for name, array in original.items()},
    }
    [pair] = related._correlate(models.items())
    assert (pair["a"], pair["b"]) == (["original", 0], ["further", 7])
    expected = np.corrcoef(*(np.concatenate([w[k].ravel() for k in w if "kernel" in k]) for w in (original, further)))
    assert pair["correlation"] == pytest.approx(expected[0, 1], abs=0.005)  # of a sample of the weights
    backwards = dict(reversed(further.items()))
    assert related._correlate([(("x", 0), original), (("y", 0), backwards)])[0]["correlation"] == pair["correlation"]
    assert related._correlate([]) == []


def test_twins_are_paired_off_or_not_at_all() -> None:
    pairs = [Twins(("a", 0), ("b", 1), 0.9), Twins(("b", 0), ("a", 1), 0.9), Twins(("a", 2), ("b", 2), 0.9)]
    assert match_twins(pairs, "a", "b", [0, 1, 2], [0, 1, 2]) == [1, 0, 2]
    assert match_twins(pairs, "b", "a", [0, 1, 2], [0, 1, 2]) == [1, 0, 2]
    assert match_twins(pairs, "a", "b", [0, 1], [0, 1, 2]) is None
    assert match_twins(pairs, "a", "b", [0, 1, 2], [0, 1]) is None
    assert match_twins(pairs, "a", "c", [0, 1, 2], [0, 1, 2]) is None
    assert match_twins([*pairs, Twins(("a", 0), ("b", 2), 0.6)], "a", "b", [0, 1, 2], [0, 1, 2]) is None


# The paired tests

paired_rates = st.integers(2, 6).flatmap(
    lambda pairs: hnp.arrays(np.float64, (2, pairs), elements=st.integers(0, 1000).map(lambda hits: hits / 1000))
)


@given(paired_rates)
@settings(deadline=None)
def test_paired_t_is_that_of_scipy(rates: NDArray[np.float64]) -> None:
    a, b = rates
    found = t_test(a, b, paired=True)
    assert found.difference == pytest.approx((a - b).mean())
    if np.ptp(a - b) < 1e-9:
        assert (found.statistic, found.p, found.low, found.high) == (*NOTHING_VARIES, -1, 1)
        assert t_test(a, b, largest=np.inf, paired=True).high == np.inf
        return
    expected = scipy.stats.ttest_rel(a, b)
    interval = expected.confidence_interval()
    assert (found.statistic, found.p) == pytest.approx((expected.statistic, expected.pvalue), rel=1e-6, abs=1e-12)
    assert (found.low, found.high) == pytest.approx(np.clip([interval.low, interval.high], -1, 1), abs=1e-9)


def test_equivalence_of_twins_is_a_paired_interval_within_the_margin() -> None:
    rng = np.random.default_rng(3)
    a = rng.normal(0.2, 0.05, 6)
    b = a + rng.normal(0.005, 0.004, 6)
    ends = scipy.stats.ttest_rel(a, b).confidence_interval(0.9)
    found = equivalent_frameworks(a, b, 0.02, paired=True)
    assert (found.low, found.high) == pytest.approx((ends.low, ends.high))
    assert found.p < 0.05 < equivalent_frameworks(a, b, 0.02).p
    farthest = max(-found.low, found.high)
    assert (
        equivalent_frameworks(a, b, farthest * 1.001, paired=True).p
        < 0.05
        < equivalent_frameworks(a, b, farthest * 0.999, paired=True).p
    )
    assert equivalent_frameworks(a, a, 0.5, paired=True).p == 1
    with pytest.raises(UsageError, match="margin should be above 0"):
        equivalent_frameworks(a, b, 0, paired=True)
    for test in (lambda: t_test(a, b[:5], paired=True), lambda: equivalent_frameworks(a[:1], b[:1], 0.1, paired=True)):
        with pytest.raises(UsageError, match="expected two pairs of trainings or more, received"):
            test()


def test_only_pairs_of_twins_are_tested_as_pairs() -> None:
    rng = np.random.default_rng(0)
    a = rng.random((4, 1, 200)) < rng.uniform(0.2, 0.6, (4, 1, 1))
    b, c = a[::-1] ^ (rng.random((4, 1, 200)) < 0.05), rng.random((4, 1, 200)) < 0.4
    l2 = {name: rng.uniform(1, 2, (4, 1, 200)) for name in "abc"}
    pairs = [Twins(("a", seed), ("b", 3 - seed), 0.9) for seed in range(4)]
    seeds = {name: list(range(4)) for name in "abc"}
    outcomes = Outcomes("x", True, {"a": a, "b": b, "c": c}, seeds, distances=l2, norm="L2", twins=pairs)
    table = run_tests([outcomes], "frameworks").set_index(["a", "b", "test"])
    names = {(pair[0], pair[1], pair[2]) for pair in table.index if pair[1]}
    of = ("", " of L2")
    assert names == {
        *(("a", "b", f"paired t{what}") for what in of),
        *((one, "c", f"Welch's t{what}") for one in "ab" for what in of),
    }
    rates, medians = outcomes.rates, outcomes.medians
    assert medians is not None
    for what, values in zip(of, (rates, medians), strict=True):
        expected = scipy.stats.ttest_rel(values["a"], values["b"][::-1])
        found = table.loc["a", "b", f"paired t{what}"]
        assert (found.statistic, found.p) == pytest.approx((expected.statistic, expected.pvalue))


# In a run


@pytest.fixture(scope="module")
def run(zoo_model: Any, digits: Dataset, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two trainings, and files of their copies that were changed a little and stand in another order."""
    directory = tmp_path_factory.mktemp("twins")
    rng = np.random.default_rng(0)
    originals, copies = [zoo_model("torch", "lenet1", seed=seed) for seed in (0, 1)], []
    for model in originals[::-1]:
        weights = {name: array + 0.01 * rng.normal(size=array.shape) for name, array in model.weights.items()}
        path = directory / f"{len(copies)}.npz"
        np.savez(path, **weights)
        copies.append(FromFile(str(path), "torch", "lenet1"))
    models = {
        "mine": originals,
        "yours": copies,
        "others": [zoo_model("torch", "lenet1", seed=seed) for seed in (2, 3)],
    }
    out = directory / "run"
    ev = rc.evaluate(models, digits.images, digits.labels, suite="smoke", n=20, repeats=1, out=out, progress=False)
    ev.run_transfer()
    return out


def test_a_run_knows_its_twins(run: Path) -> None:
    ev = rc.open_run(run)
    assert {(pair.a, pair.b) for pair in ev.results.twins} == {(("mine", 0), ("yours", 1)), (("mine", 1), ("yours", 0))}
    assert min(pair.correlation for pair in ev.results.twins) > 0.95
    assert json.loads(json.dumps(ev.to_json()))["twins"][0]["b"] == ["yours", 1]
    text = " ".join(notes(ev.results))
    assert "Twins, which began from the same weights and are no independent trainings: mine and yours" in text


def test_twins_are_compared_pair_by_pair(run: Path) -> None:
    ev = rc.open_run(run)
    tests = ev.tests("frameworks")
    pairs = tests[(tests.attack == "fgsm") & (tests.b != "")].set_index(["a", "b"])
    assert pairs.test.to_dict() == {
        ("mine", "yours"): "paired t",
        ("mine", "others"): "Welch's t",
        ("yours", "others"): "Welch's t",
    }
    mine, yours = (ev.trainings.rates(name, "fgsm") for name in ("mine", "yours"))
    expected = t_test(mine, yours[::-1], paired=True)
    found = pairs.loc[("mine", "yours")]
    assert (found.statistic, found.low, found.high) == (expected.statistic, expected.low, expected.high)
    equivalent = ev.equivalence(0.05).query("attack == 'fgsm'").set_index(["a", "b"]).loc[("mine", "yours")]
    assert equivalent.p == equivalent_frameworks(mine, yours[::-1], 0.05, paired=True).p
    low, high = ev.trainings.difference_interval("fgsm", "mine", "yours")
    assert low <= expected.low <= expected.high <= high


def test_transfer_leaves_twins_out(run: Path) -> None:
    ev = rc.open_run(run)
    blocks = ev.results.transfer_blocks.query("attack == 'fgsm'").set_index("block")
    assert blocks.pairs["across"] == 24 - 4
    assert blocks.pairs["within"] == 6
    shares = ev.transfer.of_successes.sel(attack="fgsm").values.copy()
    for i, j in ((0, 3), (1, 2)):
        shares[i, j] = shares[j, i] = np.nan
    names = [name for name, _ in ev.results.keys]
    apart = [shares[i, j] for i in range(6) for j in range(6) if names[i] != names[j] and np.isfinite(shares[i, j])]
    assert blocks.of_successes["across"] == pytest.approx(np.mean(apart))
    assert blocks.p["within"] == mantel(shares, names).p


def test_unknown_weights_and_the_control_have_no_twins(zoo_model: Any, digits: Dataset) -> None:
    model = zoo_model("torch", "lenet1")
    settings = {"suite": "control", "n": 5, "repeats": 1, "batch_size": 64, "progress": False}
    wrapped = {name: rc.wrap(model.native, framework="torch") for name in "ab"}
    ev = rc.evaluate(wrapped, digits.images, digits.labels, **settings)
    assert ev.manifest["twins"] == []
    carried = rc.same_weights(model, ["torch", "jax"], device="cpu")
    control = rc.evaluate(carried, digits.images, digits.labels, **settings)
    assert control.results.same_weights is not None
    assert control.results.same_weights["passed"]
    assert control.manifest["twins"] == []
    same = rc.evaluate({"a": model, "b": model}, digits.images, digits.labels, **settings)
    assert [pair.correlation for pair in same.results.twins] == [1.0]

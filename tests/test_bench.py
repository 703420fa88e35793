"""Benchmarks that are read: figures by hand, tests that find what is there and nothing else, and what is missing."""

from __future__ import annotations

import json
import math
import re
import shutil
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import made_up
import matplotlib
import msgspec
import numpy as np
import pytest
import scipy.stats
from matplotlib.figure import Figure
from pages import Page

import robustcmp as rc
from robustcmp.bench import page
from robustcmp.bench.benchmark import Benchmark
from robustcmp.bench.figures import find_warm_up, largest_mean, summarise
from robustcmp.bench.measurement import SEMANTICS, Asked, Epoch, Measurement, Resources
from robustcmp.bench.pairs import Setting
from robustcmp.bench.published import Published, list_published, list_sources
from robustcmp.bench.tables import INTERVAL, list_tables, tabulate_learning
from robustcmp.bench.words import headline, list_key_notes, list_notes
from robustcmp.cli import command, report, verify
from robustcmp.errors import StoreError, UsageError
from robustcmp.report.words import NO_PICTURES

matplotlib.use("agg")

SLOWED = {"jax": 1.43, "tensorflow": 1.30, "torch": 1.30}
AT_64 = Setting("train", 0, 64)
TORCH = Asked("train", "torch", 32, 0, 0)
SECTIONS = ["answer", "times", "pairs", "learning", "accuracy", "latency", "resources", "machine", "published"]
SECTIONS += ["missing", "notes", "settings"]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Benchmark:
    """Ten trainings of each of three frameworks at two batch sizes; jax takes 10 % longer, and mxnet failed."""
    failed = [Asked("train", "mxnet", 64, 0, repetition) for repetition in range(10)]
    why = {made_up.planned(asked).key: "it ended with signal 9" for asked in failed}
    measured = made_up.trainings(SLOWED, batch_sizes=(32, 64))
    directory = tmp_path_factory.mktemp("trained")
    return made_up.make(directory, measured, failed, accuracy=0.97, failed=why, control={"jax": "passed"})


@pytest.fixture(scope="module")
def predicted(tmp_path_factory: pytest.TempPathFactory) -> Benchmark:
    """Five predictions of each of two frameworks and a deployed network, which has no gradient."""
    forward = made_up.predictions({"onnxruntime": 0.0007}, 5)
    both = made_up.predictions({"jax": 0.0011, "torch": 0.001}, 5, tasks=("forward", "forward-backward"))
    reasons = {"onnxruntime forward-backward": "a deployed network has no gradient"}
    return made_up.make(tmp_path_factory.mktemp("predicted"), [*both, *forward], not_applicable=reasons)


@pytest.fixture(autouse=True)
def close_figures() -> Iterator[None]:
    yield
    import matplotlib.pyplot as plt

    plt.close("all")


def one_line(text: str) -> str:
    return " ".join(text.split())


def change(measurements: list[Measurement], **changes: Any) -> list[Measurement]:
    return [msgspec.structs.replace(measured, **changes) for measured in measurements]


# one process


def test_the_figures_of_a_training_by_hand() -> None:
    process = summarise(made_up.trained(TORCH, [4.0, 1.0, 1.2, 1.1]), accuracy=0.95)
    expected = {"epoch_seconds": 1.1, "first_epoch_seconds": 4.0, "seconds_to_accuracy": 5.0, "loss": 0.125}
    expected |= {"convergence_epoch": 3, "validation_accuracy": 0.98, "cpu_seconds": 12.0, "processors": 1.5}
    assert {name: process[name] for name in expected} == expected
    assert process["training_accuracy"] == pytest.approx(0.99)
    assert math.isnan(summarise(made_up.trained(TORCH, [4.0]), accuracy=0.95)["seconds_to_accuracy"])
    assert math.isnan(summarise(made_up.trained(TORCH, [4.0]), accuracy=None)["epoch_seconds"])


def test_a_share_of_an_epoch_counts_as_such() -> None:
    parts = [Epoch(1.0, 3.0, 0.4, 0.9, 0.9), Epoch(0.5, 1.0, None, 0.95, 0.95)]
    process = summarise(made_up.measurement(TORCH, [0.1], epochs=parts), None)
    assert (process["epoch_seconds"], process["epochs"]) == (2.0, 1.5)
    assert math.isnan(process["loss"])  # the training diverged
    part = summarise(made_up.measurement(TORCH, [0.1], epochs=parts[1:]), None)
    assert np.isnan([part["epoch_seconds"], part["first_epoch_seconds"]]).all()


def test_the_figures_of_calls_by_hand() -> None:
    asked = Asked("forward", "a", 8, 800, 0)
    calls = np.random.default_rng(0).permutation(np.arange(1, 101) / 1000)
    process = summarise(made_up.measurement(asked, calls), None)
    assert process["warm_up"] == 0
    assert process["call_seconds"] == pytest.approx(0.0505)
    assert (process["p90"], process["p95"], process["p99"]) == (0.091, 0.096, 0.1)
    assert process["throughput"] == pytest.approx(100 * 8 / calls.sum())
    few = summarise(made_up.measurement(asked, calls[:30]), None)
    assert few["p95"] == np.sort(calls[:30])[28]
    assert math.isnan(few["p99"])
    assert math.isnan(summarise(made_up.measurement(asked, calls[:19]), None)["p95"])
    none = summarise(made_up.measurement(asked, []), None)
    assert np.isnan([none["call_seconds"], none["throughput"]]).all()


def test_warm_up_and_drift_are_found_where_they_are() -> None:
    steady = np.random.default_rng(1).gamma(400, 1 / 400, 200)
    assert find_warm_up(steady).warm_up == 0
    assert not find_warm_up(steady).drifts
    slow = np.concatenate([1.5 * steady[:30], steady[30:]])
    assert find_warm_up(slow).warm_up == pytest.approx(30, abs=1)
    assert find_warm_up(slow).seconds == pytest.approx(slow[:30].sum(), rel=0.05)
    assert find_warm_up(np.concatenate([steady[:150], 1.5 * steady[150:]])).warm_up == 0  # not in the first half
    assert find_warm_up(np.concatenate([1.03 * steady[:30], steady[30:]])).warm_up == 0  # 3 % do not matter
    rising = find_warm_up(steady * np.linspace(1, 1.2, 200))
    # Pettitt sees a change in the middle of a trend, which may be taken for warm-up; the size is still of all calls.
    assert rising.drift == pytest.approx(0.2 / 1.1, abs=0.05)
    assert rising.drifts
    assert find_warm_up(steady * np.linspace(1.2, 1, 200)).drift < -0.1
    assert not find_warm_up(steady * np.linspace(1, 1.03, 200)).drifts
    assert math.isnan(find_warm_up(steady[:5]).drift)


@pytest.mark.parametrize(("calls", "slow", "share"), [(100, 15, 1), (1000, 75, 1), (100, 5, 0), (1000, 0, 0)])
def test_a_short_warm_up_is_not_found(calls: int, slow: int, share: int) -> None:
    """As the notes say it, of 200 cases; here of 20."""
    rng = np.random.default_rng(0)
    warm_ups = []
    for _ in range(20):
        times = rng.gamma(400, 1 / 400, calls)
        times[:slow] *= 9
        warm_ups.append(find_warm_up(times).warm_up > 0)
    assert np.mean(warm_ups) == pytest.approx(share, abs=0.1)


def test_the_largest_mean_of_what_is_not_known() -> None:
    [measured] = made_up.trainings({"a": 1.0}, 1)

    def most(others: list[float | None]) -> float:
        moments = [0.1 * (look + 1) for look in range(len(others))]
        resources = msgspec.structs.replace(made_up.resources(), seconds=moments, series={"others": others})
        return largest_mean(msgspec.structs.replace(measured, resources=resources), "others", 2.0)

    assert math.isnan(most([]))
    assert math.isnan(most([None] * 50))
    assert most([0.4, None, 0.2]) == pytest.approx(0.3)
    assert most([0.0] * 30 + [None] * 10 + [0.8] * 10) == pytest.approx(0.8)


# summaries


def test_a_summary_is_the_median_over_processes(trained: Benchmark) -> None:
    frame = trained.summary_of_training().set_index(["subject", "batch_size"])
    measured = trained.select(AT_64, "jax")
    values = np.sort([np.median([epoch.seconds for epoch in each.epochs[1:]]) for each in measured])
    row = frame.loc[("jax", 64)]
    assert row.epoch_seconds == pytest.approx(np.median(values))
    # Of ten values, the second smallest and the second largest cover the median with 97.9 %.
    assert (row.epoch_seconds_low, row.epoch_seconds_high) == (values[1], values[8])
    assert row.first_epoch_seconds == np.median([each.epochs[0].seconds for each in measured])
    to_97 = [sum(epoch.seconds for epoch in each.epochs[:3]) for each in measured]
    assert row.seconds_to_accuracy == pytest.approx(np.median(to_97))
    assert (row.n, row.asked, row.reached, row.busy, row.reason) == (10, 10, 10, 0, "")
    assert (row.parameters, row["bytes"], row.peak_memory) == (44_426, 177_704, 320_000_000)


def test_predictions_are_summarised_by_setting(predicted: Benchmark) -> None:
    frame = predicted.summary_of_prediction().set_index(["task", "subject"])
    processes = [summarise(each, None) for each in predicted.select(Setting("forward", 1000, 1), "torch")]
    row = frame.loc[("forward", "torch")]
    for name in ("call_seconds", "p90", "p95", "p99", "throughput"):
        assert row[name] == pytest.approx(np.median([process[name] for process in processes]))
    assert (row.call_seconds_low, row.call_seconds_high) == (-math.inf, math.inf)  # of five processes
    without = frame.loc[("forward-backward", "onnxruntime")]
    assert (without.n, without.reason) == (0, "not applicable: a deployed network has no gradient")
    assert math.isnan(without.call_seconds)
    assert predicted.summary_of_training().epoch_seconds.empty


def test_too_few_calls_are_a_value_with_a_reason(tmp_path: Path) -> None:
    found = made_up.make(tmp_path, made_up.predictions({"a": 1e-3}, 6, calls=99))
    table = next(table for table in list_tables(found) if table.title.startswith("Prediction"))
    [row] = [dict(zip(table.names, row, strict=True)) for row in table.written]
    assert row["p99"] == "too few calls"
    assert row["p95"].endswith("ms")
    assert "too few calls" in page.to_html(found)


def test_an_accuracy_that_most_do_not_reach_has_no_time(tmp_path: Path) -> None:
    def summarised(directory: str, reached: int) -> dict[Any, Any]:
        measured = [
            made_up.trained(Asked("train", "torch", 64, 0, i), [3.0, 1.0], [0.5, 0.97 if i < reached else 0.9])
            for i in range(8)
        ]
        found = made_up.make(tmp_path / directory, measured, accuracy=0.95)
        assert f"{reached} of 8" in found.to_text()
        [row] = found.summary_of_training().to_dict("records")
        return row

    few, most = summarised("few", 3), summarised("most", 6)
    assert few["reached"] == 3
    assert math.isnan(few["seconds_to_accuracy"])
    assert (most["reached"], most["seconds_to_accuracy"]) == (6, 4.0)
    assert most["seconds_to_accuracy_high"] == math.inf


# tests


def test_a_pair_by_hand(trained: Benchmark) -> None:
    tests = trained.tests()
    row = tests[(tests.batch_size == 64) & (tests.a == "jax") & (tests.b == "torch")].iloc[0]
    times = trained.times(AT_64)
    a, b = (np.log(times[subject].to_numpy()) for subject in ("jax", "torch"))
    walsh = [(x + y) / 2 for i, x in enumerate(a - b) for y in (a - b)[i:]]
    assert row.ratio == pytest.approx(math.exp(np.median(walsh)))
    assert row.low <= 1.1 <= row.high
    assert row.p == pytest.approx(scipy.stats.wilcoxon(a, b, method="exact").pvalue)
    assert row.ks_p == pytest.approx(scipy.stats.ks_2samp(a, b, method="exact").pvalue)
    assert row.a12 == np.mean(a[:, None] > b)
    assert (row.n, row.family, row.needed, row.measure) == (10, 6, 8, "epoch")
    assert row.smallest_p == 2 / 2**10
    assert row.p_adjusted == pytest.approx(min(1, 6 * row.p))  # the smallest of the family
    assert len(tests) == 6
    is_of_jax = tests.a == "jax"
    assert (tests[is_of_jax].p_adjusted < 0.05).all()
    assert (tests[is_of_jax].low > 1).all()
    assert (tests[~is_of_jax].p_adjusted > 0.05).all()


def test_other_figures_are_tested_like_times(tmp_path: Path, trained: Benchmark) -> None:
    better = np.random.default_rng(0).normal(0.02, 0.002, 10).tolist()
    measured = [
        made_up.trained(
            Asked("train", subject, 64, 0, repetition), [3, 1], [0.9, 0.9 + better[repetition] * (subject == "a")]
        )
        for subject in "ab"
        for repetition in range(10)
    ]
    found = made_up.make(tmp_path, change(measured, semantics=SEMANTICS))
    [row] = found.tests("validation_accuracy").to_dict("records")
    assert (row["measure"], row["n"], row["family"], row["a12"]) == ("validation_accuracy", 10, 1, 1)
    assert row["ratio"] == pytest.approx(1 + 0.02 / 0.9, abs=0.001)
    assert row["p"] == 2 / 2**10
    assert found.tests("peak_memory").p.tolist() == [1.0]
    assert "validation accuracy over the other's" in found.to_text()
    assert "validation accuracy over the other's" not in trained.to_text()
    for benchmark, measure, message in (
        (found, "validation_acuracy", "unknown measure 'validation_acuracy': did you mean 'validation_accuracy'"),
        (found, "drift", "drift has values that are not positive"),
        (trained, "validation_accuracy", "all repetitions of this benchmark are of one training"),
    ):
        with pytest.raises(UsageError, match=message):
            benchmark.tests(measure)


def test_processes_are_paired_by_repetition(tmp_path: Path) -> None:
    """Without repetitions in common nothing is tested, and those that are left are in their order."""
    first, second = made_up.trainings({"a": 1.0}, 4), made_up.trainings({"b": 2.0}, 6)[2:]
    some = made_up.make(tmp_path / "some", [*reversed(first), *second])
    [row] = some.tests().to_dict("records")
    times = some.times(AT_64)
    ratios = np.array([times["a"][i] / times["b"][i] for i in (2, 3)])
    assert row["n"] == 2
    assert row["ratio"] == pytest.approx(math.sqrt(ratios.prod()))
    none = made_up.make(tmp_path / "none", [*first[:2], *second])
    [row] = none.tests().to_dict("records")
    assert row["n"] == 0
    assert np.isnan([row["p"], row["p_adjusted"]]).all()
    assert "no repetition in common" in none.to_text()


@pytest.mark.parametrize("is_training", [True, False])
def test_the_same_twice_is_no_difference(tmp_path: Path, is_training: bool) -> None:
    """Calls are no units: processes that differ by chance, each with many calls that hardly do, do not differ."""
    claims = 0
    for seed in range(20):
        measured = (
            made_up.trainings({"a": 1.3, "b": 1.3}, seed=seed)
            if is_training
            else made_up.predictions({"a": 1e-3, "b": 1e-3}, 8, noise=0.1, calls=50, seed=seed)
        )
        claims += bool((made_up.make(tmp_path / str(seed), measured).tests().p_adjusted < 0.05).any())
    assert claims <= 1


def test_five_repetitions_find_nothing_and_that_is_said(predicted: Benchmark) -> None:
    tests = predicted.tests()
    assert (tests.p_adjusted > 0.05).all()
    assert set(tests[tests.task == "forward"].needed) == {7}  # of three pairs
    [sentence] = [each for each in headline(predicted) if each.startswith("prediction, batch 1, 1,000 images")]
    assert "no significant difference" in sentence
    assert "with 5 repetitions none can be, 7 would be enough" in sentence
    assert any("smallest possible p is 0.0625" in note for note in list_key_notes(predicted))
    pairs = next(table for table in list_tables(predicted) if table.title.startswith("Pairs"))
    assert {row[pairs.names.index("verdict")] for row in pairs.written} == {"too few repetitions"}
    assert all("no information" in row for row in pairs.written)


def test_equivalence_is_of_a_stated_margin(trained: Benchmark) -> None:
    frame = trained.equivalence()
    same = frame[(frame.a == "tensorflow") & (frame.b == "torch")]
    assert same.equivalent.all()
    assert ((same.low > 1 / 1.05) & (same.high < 1.05)).all()
    assert not frame[frame.a == "jax"].equivalent.any()
    assert trained.equivalence(margin=1.2).equivalent.all()
    with pytest.raises(UsageError, match=r"a ratio above 1 \(1.05 is 5 %\), received 0.05"):
        trained.equivalence(margin=0.05)


def test_without_a_second_epoch_steps_are_compared(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    measured = [
        made_up.measurement(
            Asked("train", subject, 64, 0, repetition),
            seconds * np.exp(rng.normal(0, 0.01)) * rng.gamma(100, 0.01, 50),
            epochs=[Epoch(0.1, 50 * seconds, 1.0, 0.5, 0.5)],
        )
        for repetition in range(8)
        for subject, seconds in {"jax": 0.02, "torch": 0.01}.items()
    ]
    found = made_up.make(tmp_path, measured)
    assert set(found.tests().measure) == {"step"}
    assert found.tests().ratio[0] == pytest.approx(2, rel=0.03)
    assert headline(found)[0].startswith("torch takes a training step of lenet5 fastest: 10.")
    text = " ".join(list_notes(found))
    assert "Not all epochs are whole ones (10 % of one)" in text
    assert "steps after warm-up are compared" in text


# answers


def test_a_claim_has_its_data(trained: Benchmark) -> None:
    at_32, at_64 = headline(trained)
    assert re.fullmatch(
        r"t\w+ trains an epoch of lenet5 in 1\.\d\d s \(1\.\d\d to 1\.\d\d\) at batch 64; jax takes 1\.\d\d times as "
        r"long \(1\.\d\d to 1\.\d\d; adjusted p = 0\.\d{3}\); no significant difference from t\w+ \(.*\)\.",
        at_64,
    )
    assert "fastest" not in at_32 + at_64
    assert [finding.is_different for finding in trained.findings] == [True, True]


@pytest.mark.parametrize(
    ("seconds", "repetitions", "sentence"),
    [
        (
            {"a": 2.0, "b": 1.0, "c": 3.0},
            10,
            r"b trains an epoch of lenet5 fastest: .* at batch 64; a takes [12]\.\d\d times as long .*; c takes "
            r"[23]\.\d\d times as long \(.*; adjusted p = 0\.\d+\)\.",
        ),
        (
            {"a": 1.0, "b": 1.0},
            10,
            r"training, batch 64: no significant difference in the time of an epoch \([ab] .*\)\. Compared with [ab]: "
            r"[ab] \([\d.]+ times as long, [\d.]+ to [\d.]+\)\.",
        ),
        ({"a": 1.0}, 3, r"Only a was measured: it trains an epoch of lenet5 in .*"),
    ],
)
def test_an_answer_says_no_more_than_was_found(
    tmp_path: Path, seconds: dict[str, float], repetitions: int, sentence: str
) -> None:
    found = made_up.make(tmp_path, made_up.trainings(seconds, repetitions, seed=2))
    [answer] = headline(found)
    assert re.fullmatch(sentence, answer)
    found.to_html(tmp_path / "page.html")
    assert answer in Page.of((tmp_path / "page.html").read_text(encoding="utf-8")).texts
    json.dumps(found.to_json(), allow_nan=False)


# what is not there, and what disturbs


def test_what_failed_or_cannot_be_stands_in_tables(trained: Benchmark, predicted: Benchmark) -> None:
    [failed] = trained.absent
    assert failed[:6] == ("mxnet", "train", 64, 0, 10, "failed")
    assert trained.failed["mxnet, train, batch 64, repetition 0"] == "it ended with signal 9"
    text = trained.to_text(width=200)
    assert re.search(r"mxnet +64 +0 +failed", text)
    assert "it ended with signal 9" in text
    assert "10 of 70 measurements have failed (mxnet). Rerun the same command to try again." in text
    text = predicted.to_text(width=200)
    assert re.search(r"gradient +onnxruntime +1 of 1,000 +0 +not applicable", text)
    assert "Not applicable: onnxruntime, gradient: a deployed network has no gradient" in text


def test_an_interrupted_benchmark_says_what_is_missing(tmp_path: Path) -> None:
    rest = [Asked("train", "b", 64, 0, repetition) for repetition in range(3)]
    interrupted = made_up.make(tmp_path / "b", made_up.trainings({"a": 1.0}, 3), rest)
    assert [each.status for each in interrupted.absent] == ["not measured yet"]
    assert "3 of 6 measurements are missing (b). Rerun the same command to resume." in interrupted.summary()
    assert interrupted.failed == {}
    why = {made_up.planned(rest[0]).key: "no memory"}
    with pytest.raises(UsageError, match=r"no finished measurement \(no memory\)\. Rerun the same command"):
        made_up.make(tmp_path / "none", [], rest, failed=why)


def test_busy_measurements_are_counted(tmp_path: Path) -> None:
    measured = made_up.trainings({"a": 1.0, "b": 1.0}, 6)
    others = [0.5 if each.asked.subject == "a" and each.asked.repetition < 3 else 0.05 for each in measured]
    resources = [made_up.resources(used) for used in [*others[:-1], None]]
    busy = [msgspec.structs.replace(each, resources=used) for each, used in zip(measured, resources, strict=True)]
    found = made_up.make(tmp_path, busy)
    assert found.summary_of_training().busy.tolist() == [0.5, 0]
    assert found.to_dataframe().busy.sum() == 3
    text = " ".join(list_key_notes(found))
    assert "during 3 of 12 measurements, other programs used more than 0.1 processors on average (a 3)" in text
    assert "not known for 1 of 12 measurements" in text


def burst(seconds: float, used: float) -> Resources:
    """What is seen of a process of 20 seconds beside which something else works for some of them."""
    moments = [0.1 * look for look in range(1, 201)]
    others = [used if 5 < moment <= 5 + seconds + 1e-9 else 0.01 for moment in moments]
    series = {"cpu": [1.0] * 200, "memory": [3e8] * 200, "others": [*others]}
    return msgspec.structs.replace(made_up.resources(), seconds=moments, series=series)


@pytest.mark.parametrize(
    ("seconds", "used", "semantics", "busy"),
    [
        (2.0, 0.5, 2, True),
        (1.0, 0.9, 2, True),
        (0.3, 1.0, 2, False),
        (2.0, 0.2, 2, False),
        (2.0, 0.5, 1, False),  # from before bursts were looked for
    ],
)
def test_a_burst_of_other_programs_is_busy(
    tmp_path: Path, seconds: float, used: float, semantics: int, busy: bool
) -> None:
    [measured] = change(made_up.trainings({"a": 1.0}, 1), resources=burst(seconds, used), semantics=semantics)
    process = summarise(measured, None)
    assert process["others"] < 0.1
    assert process["others_most"] == pytest.approx((used * seconds + 0.01 * (2 - seconds)) / 2, rel=0.01)
    assert process["busy"] == busy
    notes = " ".join(list_key_notes(made_up.make(tmp_path, [measured])))
    assert ("0.1 processors on average, or 0.25 over 2 seconds" in notes) == (semantics == 2)


def test_what_a_gpu_is_used_counts_from_when_the_network_was_there(tmp_path: Path) -> None:
    series: dict[str, list[float | None]] = {"gpu": [0, 0, 0.8, 0.6], "gpu_memory": [1e9, 4e9, 3e9, 3e9]}
    series |= {"gpu_temperature": [90, 30, 50, None], "gpu_power": [20, 20, 100, 300]}
    series |= {"cpu_temperature": [99, 1, 60, 7]}
    seen = msgspec.structs.replace(made_up.resources(), seconds=[1.0, 2.0, 3.0, 4.0], series=series)
    found = made_up.make(tmp_path, change(made_up.trainings({"a": 1.0}, 6), resources=seen))
    process = found.to_dataframe().iloc[0]
    assert (process.gpu, process.gpu_memory, process.gpu_temperature) == (0.7, 4e9, 50)
    assert (process.gpu_power, process.cpu_temperature) == (200, 60)
    assert math.isnan(process.processors)  # it was not looked at
    text = found.to_text(width=300)
    for column in ("GPU, °C", "GPU, W", "processor, °C"):
        assert column in text


def test_subjects_on_other_devices_are_named(tmp_path: Path) -> None:
    devices = {"a": "cuda", "theano": "cpu"}
    measured = made_up.trainings({"a": 1.0, "theano": 2.0}, 6)
    found = made_up.make(
        tmp_path, [msgspec.structs.replace(each, device=devices[each.asked.subject]) for each in measured]
    )
    text = one_line(found.summary())
    assert "Devices differ (theano on cpu; a on cuda): a pair across them compares devices" in text


@pytest.mark.parametrize(
    ("order", "late"),
    [
        ([0, 1, 2, 3, 4, 5], 0),
        ([0, 1, 1, 1, 2, 2], 0),  # within the second that moments are kept in
        ([0, 1, 9, 3, 4, 5], 1),  # repeated after it failed
        ([0, 5, 1, 6, 2, 7], 2),  # as many as were there: those of a subject that was added
        ([5, 4, 3, 2, 1, 0], 5),
    ],
)
def test_what_was_not_made_in_its_order_is_counted(order: list[int], late: int, tmp_path: Path) -> None:
    measured = [
        msgspec.structs.replace(each, began=f"2026-11-26T08:00:{second:02}+00:00")
        for each, second in zip(made_up.trainings({"a": 1.0}, len(order)), order, strict=True)
    ]
    text = one_line(made_up.make(tmp_path, measured).summary())
    assert ("not made in the planned random order" in text) == bool(late)
    assert late == 0 or f"{late} measurement{'s' if late > 1 else ''} of 6 " in text


def test_the_first_screen(trained: Benchmark, predicted: Benchmark) -> None:
    for shown in (trained, predicted):
        lines = repr(shown).splitlines()
        assert max(map(len, lines)) <= 100
        assert len(lines) <= 45
        assert shown.summary() == repr(shown)
    text = one_line(trained.summary())
    assert "Devices differ" not in text
    assert "Load average of the machine, its measurements included: 0.2 before them, 1.4 after them." in text
    assert "Accuracy: n = 1. All repetitions repeat one training (seed 0); only times are repeated." in text


def test_newer_measurements_have_a_seed_and_a_file_size_each(tmp_path: Path, trained: Benchmark) -> None:
    measured = change(made_up.trainings({"a": 1.0, "b": 2.0}, 6), semantics=SEMANTICS, file_bytes=190_000)
    found = made_up.make(tmp_path, measured)
    assert "n = 1" not in found.summary()
    assert INTERVAL in tabulate_learning(found).names
    assert INTERVAL not in tabulate_learning(trained).names
    assert found.summary_of_training().file_bytes.tolist() == [190_000, 190_000]
    assert "file on disk" in found.to_text(width=300)
    assert "file on disk" not in trained.to_text(width=300), "it was not written down before"


def test_broken_files_are_named(tmp_path: Path) -> None:
    measured = made_up.trainings({"a": 1.0}, 2)
    store = made_up.write(tmp_path, measured)
    path = store.path(measured[0].key)
    path.write_text(path.read_text(encoding="utf-8").replace("0.98", "0.99"), encoding="utf-8")
    with pytest.raises(StoreError, match=f"{path.name} is broken"):
        rc.open_benchmark(tmp_path)
    store.save(msgspec.structs.replace(measured[0], asked=Asked("train", "b", 64, 0, 0)))
    with pytest.raises(StoreError, match="but the manifest asks for"):
        rc.open_benchmark(tmp_path)
    resources = msgspec.structs.replace(measured[0].resources, series={"cpu": [1.0]})
    store.save(msgspec.structs.replace(measured[0], resources=resources))
    with pytest.raises(StoreError, match=r"series 'cpu' has 1 values at 5 times"):
        rc.open_benchmark(tmp_path)


def test_a_benchmark_is_no_run_and_a_run_no_benchmark(trained: Benchmark) -> None:
    with pytest.raises(UsageError, match=r"is a benchmark, not a run: open it with robustcmp\.open_benchmark"):
        rc.open_run(trained.store.directory)
    with pytest.raises(UsageError, match="is a run, not a benchmark"):
        rc.open_benchmark(Path(__file__).parents[1] / "docs" / "results" / "lenet5-mnist-guo2019")


# for people and programs


def test_the_page_has_all_sections(trained: Benchmark, predicted: Benchmark, tmp_path: Path) -> None:
    trained.to_html(tmp_path / "page.html")
    html = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert re.findall(r'<section id="([\w-]+)"', html) == SECTIONS
    assert re.search(r"https?:|//[a-z]|@import|url\((?!#)", html) is None
    shown = Page.of(html)
    assert "Is one faster? Yes, in every setting." in shown.texts
    for table in list_tables(trained):
        assert shown.tables.count([list(table.names), *map(list, table.written)]) == 1, table.title
    assert {*list_notes(trained)} <= {*shown.texts}
    ids = [value for _, name, value in shown.attributes if name == "id"]
    assert len(ids) == len(set(ids))
    assert html.count("<svg") == 3 + 1 + 2 + 2
    sections = re.findall(r'<section id="([\w-]+)"', page.to_html(predicted))
    assert sections == [name for name in SECTIONS if name not in ("learning", "accuracy")]


def test_without_matplotlib_the_page_has_tables(trained: Benchmark, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("robustcmp.report.page.can_draw", lambda: False)
    html = page.to_html(trained)
    assert "<svg" not in html
    assert NO_PICTURES in Page.of(html).texts


def test_names_are_no_markup(tmp_path: Path) -> None:
    found = made_up.make(tmp_path, made_up.trainings({"<script>x\u001b[31m": 1.0, "=b": 1.1}))
    html = page.to_html(found)
    assert "<script>x" not in html
    assert "\u001b" not in html + found.to_text() + found._repr_html_()


def test_a_row_is_a_process(trained: Benchmark) -> None:
    frame = trained.to_dataframe()
    assert len(frame) == 60
    assert not frame.duplicated(["subject", "batch_size", "repetition"]).any()
    content = trained.to_json()
    assert json.loads(json.dumps(content, allow_nan=False)) == content
    assert content["answer"] == headline(trained)


@pytest.mark.parametrize(
    ("draw", "panels"),
    [
        (lambda plot, figure: plot.learning(figure=figure), 2),
        (lambda plot, figure: plot.learning(batch_size=64, figure=figure), 1),
        (lambda plot, figure: plot.learning(measure="loss", figure=figure), 2),
        (lambda plot, figure: plot.time_to_accuracy(figure=figure), 2),
        (lambda plot, figure: plot.latency(figure=figure), 2),
        (lambda plot, figure: plot.resources(setting=AT_64, figure=figure), 3),
    ],
)
def test_pictures_are_axes(trained: Benchmark, draw: Callable[[Any, Figure], np.ndarray], panels: int) -> None:
    figure = Figure()
    axes = draw(trained.plot, figure)
    assert axes.shape == (panels,)
    assert all(panel.figure is figure and panel.get_title() for panel in axes)
    assert axes[0].get_legend_handles_labels()[1] == ["jax", "tensorflow", "torch"]
    assert len({line.get_linestyle() for line in axes[0].get_lines()}) >= 3


def test_a_line_is_what_was_measured(trained: Benchmark, predicted: Benchmark) -> None:
    [axes] = trained.plot.time_to_accuracy(batch_size=64)
    first = trained.select(AT_64, "jax")[0]
    x, y = (np.asarray(values) for values in axes.get_lines()[0].get_data())
    assert x == pytest.approx(np.cumsum([epoch.seconds for epoch in first.epochs]))
    assert y == pytest.approx([100 * epoch.validation_accuracy for epoch in first.epochs])
    with pytest.raises(UsageError, match="no training was measured, so"):
        predicted.plot.learning()
    with pytest.raises(UsageError, match="no training was measured at batch 7, so"):
        trained.plot.time_to_accuracy(batch_size=7)


@pytest.mark.parametrize(("slow", "scale"), [(2.0, "linear"), (20.0, "log")])
def test_times_far_apart_are_on_a_logarithmic_axis(tmp_path: Path, slow: float, scale: str) -> None:
    [axes] = made_up.make(tmp_path, made_up.predictions({"a": 1e-3, "b": slow * 1e-3}, 1)).plot.latency()
    assert axes.get_xscale() == scale
    assert axes.get_title() == "prediction, batch 1 of 1,000, %"


# published figures


def published_beside(directory: Path, seconds: dict[str, float]) -> tuple[dict[str, Published], str]:
    """Return what DLBench's logs have beside noiseless trainings, and the report of these."""
    found = made_up.make(directory, made_up.trainings(seconds, noise=0))
    logs = [each for each in list_published(found) if each.source == "DLBench, logs" and each.hardware == "Tesla P4"]
    return {each.framework: each for each in logs}, found.to_text()


def test_published_times_are_ratios_within_their_source(trained: Benchmark) -> None:
    published = list_published(trained)
    logs = [each for each in published if each.source == "DLBench, logs" and each.hardware == "Tesla P4"]
    by_name = {each.framework: each for each in logs}
    assert by_name["tensorflow"].seconds == pytest.approx(73.2 / 15)
    assert by_name["pytorch"].ratio == pytest.approx(358.5 / 73.2)  # both are in both, and TensorFlow is the faster
    medians = trained.summary_of_training().set_index(["subject", "batch_size"]).epoch_seconds
    assert by_name["pytorch"].ours == pytest.approx(medians["torch", 64] / medians["tensorflow", 64])
    assert by_name["pytorch"].our_batch_size == 64  # of 32 and 64, the nearer to 128
    assert math.isnan(by_name["chainer"].ours)
    assert all(math.isnan(each.ours) for each in published if each.source == "GTDLBench")  # of other networks each


def test_hosts_stand_for_a_framework_where_that_is_right(tmp_path: Path) -> None:
    versions = {"torch": 1.0, "torch@1.0": 5.0, "tensorflow": 2.0, "chainer@7": 3.0}
    by_name, _ = published_beside(tmp_path / "versions", versions)
    assert by_name["pytorch"].ours / by_name["tensorflow"].ours == pytest.approx(0.5, rel=0.02)
    assert by_name["chainer"].ours / by_name["tensorflow"].ours == pytest.approx(1.5, rel=0.02), "the only one"
    keras = {"keras-tensorflow": 4.0, "keras-torch": 9.0, "tensorflow": 2.0, "torch": 1.0}
    by_name, text = published_beside(tmp_path / "keras", keras)
    assert by_name["keras"].ours / by_name["tensorflow"].ours == pytest.approx(2, rel=0.02)
    assert "Keras 2 on TensorFlow 1, ours of the host keras-tensorflow" in text
    del keras["keras-tensorflow"]
    by_name, text = published_beside(tmp_path / "without", keras)
    assert math.isnan(by_name["keras"].ours), "Keras on PyTorch is not what is published"
    assert "keras-tensorflow" not in text


def test_every_source_says_what_differs() -> None:
    for source in list_sources():
        assert {"name", "cite", "at", "versions", "differs", "table"} == {*source}
        assert re.match(r"github\.com/[\w-]+/[\w-]+@[0-9a-f]{8,40}: ", source["at"])
        for table in source["table"]:
            assert min(table["seconds"].values()) > 0


# among runs


def test_a_benchmark_is_listed_verified_and_has_its_page(
    trained: Benchmark, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    directory = tmp_path / "bench"
    shutil.copytree(trained.store.directory, directory)
    assert command.main(["list", "runs", str(tmp_path)]) == 0
    assert "bench train" in capsys.readouterr().out
    assert verify.main([str(directory)]) == 0
    assert report.main([str(directory)]) == 0
    assert "<html" in (directory / "report.html").read_text()
    broken = directory / "measurements" / f"{trained.measurements[0].key}.json"
    broken.write_text(broken.read_text().replace('"place": ', '"place": 1', 1))
    capsys.readouterr()
    assert verify.main([str(directory)]) == 1
    captured = capsys.readouterr()
    assert str(broken) in captured.out
    assert "1 broken" in captured.err
    broken.unlink()
    assert verify.main([str(directory)]) == 1
    assert command.main(["list", "runs", str(tmp_path)]) == 0


def test_trainings_are_logs_of_tensorboard(tmp_path: Path) -> None:
    pytest.importorskip("tensorboardX")
    from tensorboardX.proto.event_pb2 import Event

    found = made_up.make(tmp_path / "bench", made_up.trainings({"a": 1.0}, 1))
    [directory] = found.to_tensorboard(tmp_path / "logs")
    found.to_tensorboard(tmp_path / "logs")
    [log] = directory.iterdir()
    content, scalars = log.read_bytes(), dict[tuple[str, int], float]()
    while content:  # records: length, its checksum, an event, its checksum
        (length,) = struct.unpack("<Q", content[:8])
        event = Event.FromString(content[12 : 12 + length])
        scalars |= {(value.tag, event.step): value.simple_value for value in event.summary.value}
        content = content[16 + length :]
    epochs = found.measurements[0].epochs
    for step, epoch in enumerate(epochs, 1):
        for name in ("loss", "training_accuracy", "validation_accuracy", "seconds"):
            assert scalars[name, step] == pytest.approx(getattr(epoch, name))
    assert len(scalars) == 4 * len(epochs)

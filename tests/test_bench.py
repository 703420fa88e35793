"""Benchmarks that are read: figures by hand, tests that find what is there and nothing else, and what is missing."""

from __future__ import annotations

import json
import math
import re
import shutil
from collections.abc import Iterator
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
from robustcmp.bench.figures import _count_warm_up, summarise
from robustcmp.bench.measurement import Asked, Epoch, Measurement, Setting
from robustcmp.bench.tables import make_tables
from robustcmp.bench.words import list_answers, list_notes
from robustcmp.cli import command, report, verify
from robustcmp.errors import StoreError, UsageError

matplotlib.use("agg")

SLOWED = {"jax": 1.43, "tensorflow": 1.30, "torch": 1.30}
AT_64 = Setting("train", 0, 64)
TORCH = Asked("train", "torch", 32, 0, 0)
SECTIONS = ["answer", "times", "pairs", "learning", "resources", "missing", "notes", "settings"]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Benchmark:
    """Ten trainings of each of three frameworks at two batch sizes; jax takes 10 % longer, and mxnet failed."""
    failed = [Asked("train", "mxnet", 64, 0, repetition) for repetition in range(10)]
    why = {made_up.planned(asked).key: "it ended with signal 9" for asked in failed}
    measured = made_up.trainings(SLOWED, batch_sizes=(32, 64))
    directory = tmp_path_factory.mktemp("trained")
    return made_up.make(directory, measured, failed, failed=why, control={"jax": "passed"})


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


def change(measurements: list[Measurement], **changes: Any) -> list[Measurement]:
    return [msgspec.structs.replace(measured, **changes) for measured in measurements]


def take_times(benchmark: Benchmark) -> dict[str, Any]:
    """Return the seconds an epoch of each subject at batch 64, by repetition."""
    frame = benchmark.to_dataframe().query("batch_size == 64").set_index("repetition")
    return {subject: rows.epoch_seconds for subject, rows in frame.groupby("subject")}


# one process


def test_the_figures_of_a_training_by_hand() -> None:
    process = summarise(made_up.trained(TORCH, [4.0, 1.0, 1.2, 1.1]))
    expected = {"epoch_seconds": 1.1, "first_epoch_seconds": 4.0, "loss": 0.125}
    expected |= {"validation_accuracy": 0.98, "cpu_seconds": 12.0, "processors": 1.5}
    assert {name: process[name] for name in expected} == expected
    assert math.isnan(summarise(made_up.trained(TORCH, [4.0]))["epoch_seconds"])
    parts = [Epoch(1.0, 3.0, 0.4, 0.9, 0.9), Epoch(0.5, 1.0, None, 0.95, 0.95)]
    process = summarise(made_up.measurement(TORCH, [0.1], epochs=parts))
    assert process["epoch_seconds"] == 2.0, "half of an epoch counts as if it had gone on"
    assert math.isnan(process["loss"])  # the training diverged
    part = summarise(made_up.measurement(TORCH, [0.1], epochs=parts[1:]))
    assert math.isnan(part["first_epoch_seconds"])


def test_the_figures_of_calls_by_hand() -> None:
    asked = Asked("forward", "a", 8, 800, 0)
    calls = np.random.default_rng(0).permutation(np.arange(1, 101) / 1000)
    process = summarise(made_up.measurement(asked, calls))
    assert process["warm_up"] == 0
    assert process["call_seconds"] == pytest.approx(0.0505)
    assert (process["p90"], process["p95"], process["p99"]) == (0.091, 0.096, 0.1)
    assert process["throughput"] == pytest.approx(100 * 8 / calls.sum())
    few = summarise(made_up.measurement(asked, calls[:30]))
    assert few["p95"] == np.sort(calls[:30])[28]
    assert math.isnan(few["p99"])
    none = summarise(made_up.measurement(asked, []))
    assert np.isnan([none["call_seconds"], none["throughput"]]).all()


STEADY = np.random.default_rng(1).gamma(400, 1 / 400, 200)


@pytest.mark.parametrize(
    ("factors", "warm_up"),
    [
        (np.ones(200), 0),
        (np.repeat([1.5, 1], [30, 170]), 30),
        (np.repeat([1, 1.5], [150, 50]), 0),  # not in the first half
        (np.repeat([1.03, 1], [30, 170]), 0),  # 3 % do not matter
        (np.repeat([9, 1], [5, 195]), 0),  # short ones are not found
    ],
)
def test_warm_up_is_found_where_it_is(factors: Any, warm_up: int) -> None:
    assert _count_warm_up(STEADY * factors) == pytest.approx(warm_up, abs=1)


@pytest.mark.parametrize(
    ("seconds", "used", "busy"), [(2.0, 0.5, True), (1.0, 0.9, True), (0.3, 1.0, False), (2.0, 0.2, False)]
)
def test_a_burst_of_other_programs_is_busy(tmp_path: Path, seconds: float, used: float, busy: bool) -> None:
    moments = [0.1 * look for look in range(1, 201)]
    others = [used if 5 < moment <= 5 + seconds + 1e-9 else 0.01 for moment in moments]
    seen = msgspec.structs.replace(made_up.resources(), seconds=moments, series={"others": [*others]})
    [measured] = change(made_up.trainings({"a": 1.0}, 1), resources=seen)
    assert summarise(measured)["busy"] == busy
    notes = " ".join(list_notes(made_up.make(tmp_path, [measured])))
    assert ("during 1 of 1 measurements, other programs used more than" in notes) == busy


# summaries


def test_a_summary_is_the_median_over_processes(trained: Benchmark, predicted: Benchmark) -> None:
    frame = trained.summary_of_training().set_index(["subject", "batch_size"])
    measured = trained.select(AT_64, "jax")
    values = np.sort([np.median([epoch.seconds for epoch in each.epochs[1:]]) for each in measured])
    row = frame.loc[("jax", 64)]
    assert row.epoch_seconds == pytest.approx(np.median(values))
    # Of ten values, the second smallest and the second largest cover the median with 97.9 %.
    assert (row.epoch_seconds_low, row.epoch_seconds_high) == (values[1], values[8])
    assert (row.n, row.busy, row.peak_memory) == (10, 0, 320_000_000)
    of_calls = predicted.summary_of_prediction().set_index(["task", "subject"]).loc[("forward", "torch")]
    assert (of_calls.call_seconds_low, of_calls.call_seconds_high) == (-math.inf, math.inf)  # of five processes
    assert predicted.summary_of_training().epoch_seconds.empty


# tests


def test_a_pair_by_hand(trained: Benchmark) -> None:
    tests = trained.tests()
    row = tests[(tests.batch_size == 64) & (tests.a == "jax") & (tests.b == "torch")].iloc[0]
    times = take_times(trained)
    a, b = (np.log(times[subject].to_numpy()) for subject in ("jax", "torch"))
    walsh = [(x + y) / 2 for i, x in enumerate(a - b) for y in (a - b)[i:]]
    assert row.ratio == pytest.approx(math.exp(np.median(walsh)))
    assert row.low <= 1.1 <= row.high
    assert row.p == pytest.approx(scipy.stats.wilcoxon(a, b, method="exact").pvalue)
    assert (row.n, row.needed, row.measure) == (10, 8, "epoch")
    assert row.p_adjusted == pytest.approx(min(1, 6 * row.p))  # the smallest of the family
    is_of_jax = tests.a == "jax"
    assert (tests[is_of_jax].p_adjusted < 0.05).all()
    assert (tests[~is_of_jax].p_adjusted > 0.05).all()


def test_processes_are_paired_by_repetition(tmp_path: Path) -> None:
    """Without repetitions in common nothing is tested, and those that are left are in their order."""
    first, second = made_up.trainings({"a": 1.0}, 4), made_up.trainings({"b": 2.0}, 6)[2:]
    some = made_up.make(tmp_path / "some", [*reversed(first), *second])
    [row] = some.tests().to_dict("records")
    times = take_times(some)
    ratios = np.array([times["a"][i] / times["b"][i] for i in (2, 3)])
    assert row["n"] == 2
    assert row["ratio"] == pytest.approx(math.sqrt(ratios.prod()))
    none = made_up.make(tmp_path / "none", [*first[:2], *second])
    [row] = none.tests().to_dict("records")
    assert row["n"] == 0
    assert np.isnan([row["p"], row["p_adjusted"]]).all()
    assert "(no repetition in common)" in list_answers(none)[0]


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
    assert re.match(r"training, batch 64: torch takes 10\.\d ms .* a step; jax 2\.\d\d", list_answers(found)[0])


# answers


@pytest.mark.parametrize(
    ("seconds", "repetitions", "sentence"),
    [
        (
            {"a": 2.0, "b": 1.0, "c": 3.0},
            10,
            r"b takes .* an epoch; a [12]\.\d\d times as long \(.*\), adjusted p = 0\.\d+; c [23]\.\d\d times .*\.",
        ),
        ({"a": 1.0, "b": 1.0}, 10, r"[ab] takes .* an epoch; no significant difference from [ab] [\d.]+ times .*\)\."),
        ({"a": 1.0, "b": 2.0}, 5, r"a takes 1\S+ s an epoch; no sig.*; 5 repetitions cannot show one, 6 could\."),
        ({"a": 1.0}, 3, r"a takes \S+ s an epoch\."),
    ],
)
def test_an_answer_says_no_more_than_was_found(
    tmp_path: Path, seconds: dict[str, float], repetitions: int, sentence: str
) -> None:
    found = made_up.make(tmp_path, made_up.trainings(seconds, repetitions, seed=2))
    assert re.fullmatch(f"training, batch 64: {sentence}", list_answers(found)[0])
    json.dumps(found.to_json(), allow_nan=False)


# what is not there, and what disturbs


def test_what_failed_or_cannot_be_stands_in_tables(trained: Benchmark, predicted: Benchmark) -> None:
    assert trained.absent == {("mxnet, training, batch 64", "failed: it ended with signal 9"): 10}
    assert trained.failed == {"mxnet, training, batch 64": "it ended with signal 9"}
    text = trained.to_text(width=200)
    assert re.search(r"mxnet, training, batch 64 +failed: it ended with signal 9 +10", text)
    assert "10 measurements failed: it ended with signal 9. Rerun the same command" in text
    assert "5 measurements not applicable: a deployed network has no gradient" in predicted.summary()


def test_an_interrupted_benchmark_says_what_is_missing(tmp_path: Path) -> None:
    rest = [Asked("train", "b", 64, 0, repetition) for repetition in range(3)]
    interrupted = made_up.make(tmp_path / "b", made_up.trainings({"a": 1.0}, 3), rest)
    assert "3 measurements not measured yet. Rerun the same command" in interrupted.summary()
    assert interrupted.failed == {}
    why = {made_up.planned(rest[0]).key: "no memory"}
    with pytest.raises(UsageError, match=r"no finished measurement \(no memory\)\. Rerun the same command"):
        made_up.make(tmp_path / "none", [], rest, failed=why)


def test_broken_files_are_named(tmp_path: Path) -> None:
    measured = made_up.trainings({"a": 1.0}, 2)
    store = made_up.write(tmp_path, measured)
    path = store.path(measured[0].key)
    path.write_text(path.read_text(encoding="utf-8").replace("0.98", "0.99"), encoding="utf-8")
    with pytest.raises(StoreError, match=f"{path.name} is broken"):
        rc.open_benchmark(tmp_path)
    resources = msgspec.structs.replace(measured[0].resources, series={"cpu": [1.0]})
    for changes in ({"asked": Asked("train", "b", 64, 0, 0)}, {"resources": resources}):
        store.save(msgspec.structs.replace(measured[0], **changes))
        with pytest.raises(StoreError, match="as in the manifest, and series of one length"):
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
    assert "Is one faster? A difference is shown in 2 of 2 settings." in shown.texts
    for table in make_tables(trained).values():
        assert shown.tables.count([list(table.names), *map(list, table.written)]) == 1, table.title
    assert {*list_notes(trained)} <= {*shown.texts}
    ids = [value for _, name, value in shown.attributes if name == "id"]
    assert len(ids) == len(set(ids))
    assert html.count("<svg") == 1
    sections = re.findall(r'<section id="([\w-]+)"', page.to_html(predicted))
    assert sections == [name for name in SECTIONS if name != "learning"]


def test_names_are_no_markup(tmp_path: Path) -> None:
    found = made_up.make(tmp_path, made_up.trainings({"<script>x\u001b[31m": 1.0, "=b": 1.1}))
    html = page.to_html(found)
    assert "<script>x" not in html
    assert "\u001b" not in html + found.to_text()


def test_a_line_is_what_was_measured(trained: Benchmark, predicted: Benchmark) -> None:
    figure = Figure()
    panel = trained.plot_learning(figure)[1]
    assert panel.figure is figure
    assert panel.get_legend_handles_labels()[1] == ["jax", "tensorflow", "torch"]
    first = trained.select(AT_64, "jax")[0]
    x, y = (np.asarray(values) for values in panel.get_lines()[0].get_data())
    assert x == pytest.approx(np.cumsum([epoch.seconds for epoch in first.epochs]))
    assert y == pytest.approx([epoch.validation_accuracy for epoch in first.epochs])
    with pytest.raises(UsageError, match="no training was measured, so"):
        predicted.plot_learning()


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
    broken.write_text(broken.read_text().replace('"seconds": ', '"seconds": 1', 1))
    capsys.readouterr()
    assert verify.main([str(directory)]) == 1
    captured = capsys.readouterr()
    assert str(broken) in captured.out
    assert "1 broken" in captured.err
    broken.unlink()
    assert verify.main([str(directory)]) == 1

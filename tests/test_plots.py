"""The pictures: what is drawn is what was found."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

import robustcmp as rc
from robustcmp.errors import StoreError, UsageError
from robustcmp.report.plots import Plots
from robustcmp.report.plots.gallery import _choose_images, choose_outcomes

matplotlib.use("agg")

RESULTS = Path(__file__).parents[1] / "docs" / "results"
NAMES = [name for name in vars(Plots) if name[0] != "_" and name not in ("deployments", "conditioning")]


@pytest.fixture(scope="module")
def ev(small_run: Path) -> rc.Evaluation:
    return rc.open_run(small_run)


@pytest.fixture(scope="module")
def one_each() -> rc.Evaluation:
    """A stored run with one training of each framework."""
    return rc.open_run(RESULTS / "lenet5-mnist-guo2019")


@pytest.fixture(autouse=True)
def no_open_figures() -> Iterator[None]:
    import matplotlib.pyplot as plt

    plt.close("all")  # another file's test may have left one
    yield
    plt.close("all")


@pytest.mark.parametrize("name", NAMES)
def test_a_picture_is_drawn_where_it_is_asked_to_be_and_can_be_saved(ev: rc.Evaluation, name: str) -> None:
    import matplotlib.pyplot as plt

    figure = Figure()
    axes = getattr(ev.plot, name)(figure=figure)
    assert {panel.figure for panel in axes.flat} == {figure}
    assert plt.get_fignums() == []
    stream = io.StringIO()
    figure.savefig(stream, format="svg")
    assert len(stream.getvalue()) > 1000
    if name not in ("indicator", "gallery"):
        [alone] = getattr(ev.plot, name)(attacks=["fgsm"])
        assert alone.get_title().startswith("fgsm")
        assert plt.get_fignums() == [1]


def test_a_dot_is_a_training(ev: rc.Evaluation) -> None:
    for axes, attack in zip(ev.plot.trainings(), ev.results.attacks, strict=True):
        if ev.results.attack_records[attack].compares_distances or ev.exact_pixel.probabilities(attack):
            continue
        for line, model in zip(axes.get_lines(), ev.results.models, strict=True):
            assert list(_y(line)) == pytest.approx(list(100 * ev.trainings.rates(model, attack)))


def test_a_curve_is_the_success_rate_within_its_band(ev: rc.Evaluation, one_each: rc.Evaluation) -> None:
    for run in (ev, one_each):
        [axes] = run.plot.curves()
        for line, band, model in zip(axes.get_lines(), axes.collections, run.results.models, strict=True):
            expected = 100 * run.epsilon_curve.sel(model=model, attack="fgsm").mean("training_seed").values
            assert np.asarray(_y(line)) == pytest.approx(expected)
            corners = band.get_paths()[0].vertices
            for x, y in zip(np.asarray(line.get_xdata(), float), expected, strict=True):
                ends = corners[np.isclose(corners[:, 0], x), 1]
                assert ends.min() - 1e-9 <= y <= ends.max() + 1e-9


def test_distances_rise_to_the_success_rate(ev: rc.Evaluation) -> None:
    for axes, attack in zip(ev.plot.distances(attacks=["fgsm", "boundary"]), ["fgsm", "boundary"], strict=True):
        norm = ev.results.attack_records[attack].norm
        for line, model in zip(axes.get_lines(), ev.results.models, strict=True):
            x, y = np.asarray(line.get_xdata(), float), np.asarray(_y(line))
            assert (np.diff(y) >= 0).all()
            assert y[-1] == pytest.approx(100 * ev.distances.success_within(model, attack, float(x[-1]), norm))


def test_the_indicator_has_its_value_its_range_and_its_ranks(ev: rc.Evaluation) -> None:
    ranges, ranks = ev.plot.indicator()
    assert [float(line.get_xdata()[0]) for line in ranges.get_lines()] == pytest.approx(list(ev.indicator.values()))
    drawn = [tuple(lines.get_segments()[0][:, 0]) for lines in ranges.collections]
    np.testing.assert_allclose(drawn, [ev.indicator_ranges[model][:2] for model in ev.results.models])
    widths = [bar.get_width() for bar in ranks.patches]
    assert widths == pytest.approx(
        [100 * share for model in ev.results.models for share in ev.indicator_ranges[model].ranks]
    )


def test_variance_is_drawn_as_standard_deviations(ev: rc.Evaluation) -> None:
    components = ev.variance().loc["fgsm"]
    [axes] = ev.plot.variance(attacks=["fgsm"])
    parts = components[["framework", "training_run", "image", "repeat"]].to_numpy(float)
    assert [bar.get_width() for bar in axes.patches] == pytest.approx(list(100 * np.sqrt(np.maximum(parts, 0))))


def test_the_heat_map_has_every_pair_and_no_model_beside_itself(ev: rc.Evaluation) -> None:
    for axes, attack in zip(ev.plot.transfer(), ev.results.attacks, strict=True):
        expected = 100 * ev.transfer.of_successes.sel(attack=attack).values
        np.fill_diagonal(expected, np.nan)
        np.testing.assert_allclose(np.ma.filled(axes.images[0].get_array(), np.nan), expected)


def test_the_gallery_shows_clean_perturbation_and_outcome(ev: rc.Evaluation) -> None:
    axes = ev.plot.gallery("fgsm", images=3)
    assert axes.shape == (3, 1 + 2 * len(ev.results.models))
    rows = choose_outcomes(ev.results, "fgsm", 3)
    for row, shown in zip(axes, rows, strict=True):
        clean, *outcomes = (np.asarray(panel.images[0].get_array()) for panel in row)
        np.testing.assert_array_equal(clean, ev.results.clean[shown[0].position, ..., 0])  # type: ignore[index]
        for of_model, outcome in zip(shown, outcomes[1::2], strict=True):
            np.testing.assert_array_equal(outcome, ev.adversarials(of_model.model, "fgsm")[of_model.position, ..., 0])


@given(arrays(np.bool_, st.tuples(st.integers(1, 4), st.just(30))), st.integers(0, 30))
def test_images_on_which_models_differ_are_chosen_first(success: Any, count: int) -> None:
    chosen = _choose_images(success, count)
    assert chosen == sorted(set(chosen))
    assert len(chosen) == count
    differ = np.ptp(success.astype(int), axis=0) > 0
    assert differ[chosen].sum() == min(count, differ.sum())


# what cannot be drawn


def test_what_a_run_does_not_have_is_said(one_each: rc.Evaluation, ev: rc.Evaluation) -> None:
    with pytest.raises(UsageError, match="at least two trainings each"):
        one_each.plot.variance()
    with pytest.raises(StoreError, match="without adversarial images"):
        one_each.plot.gallery()
    with pytest.raises(UsageError, match="fgms"):
        ev.plot.gallery("fgms")
    long = rc.open_run(RESULTS / "lenet5-mnist-boundary-long")
    with pytest.raises(UsageError, match="nothing to draw"):
        long.plot.curves()
    with pytest.raises(UsageError, match="without transfer"):
        long.plot.transfer()


def _y(line: Line2D) -> Any:
    return line.get_ydata()

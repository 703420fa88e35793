"""One screen: the answer, at any width."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import robustcmp as rc
from robustcmp.analysis.statistics import ONE_TRAINING
from robustcmp.report.format import percent, points
from robustcmp.report.words import NOMINAL, NOMINALLY, ONE_NETWORK, answer

RUNS = Path(__file__).parents[1] / "docs" / "results"
NAMES = [
    "lenet5-mnist-guo2019",
    "lenet5-mnist-ten-trainings",
    "lenet1-mnist-2018-five-trainings",
    "resnet20-cifar10-guo2019",
]


@pytest.fixture(scope="module", params=NAMES)
def ev(request: pytest.FixtureRequest) -> rc.Evaluation:
    return rc.open_run(RUNS / request.param)


@pytest.mark.parametrize("width", [60, 80, 100, 120])
def test_nothing_is_wider_than_the_terminal(ev: rc.Evaluation, width: int) -> None:
    for text in (ev.summary(width=width), ev.to_text(width=width)):
        assert max(map(len, text.splitlines())) <= width
        assert "…" not in text


@pytest.mark.parametrize("width", [60, 80, 100])
def test_a_figure_is_never_wrapped(ev: rc.Evaluation, width: int) -> None:
    text = ev.summary(width=width)
    for model in ev.models:
        for attack in ev.attacks:
            assert percent(ev.rate(model, attack)) in text
    assert all(line.strip() != "%" for line in ev.to_text(width=width).splitlines())


def test_it_fits_one_screen(ev: rc.Evaluation) -> None:
    assert len(ev.summary().splitlines()) <= 38  # and a line for the page's path, and one for the prompt


def test_its_end_is_the_answer_with_what_would_have_been_detected() -> None:
    ten = rc.open_run(RUNS / "lenet5-mnist-ten-trainings")
    lines = ten.summary().splitlines()
    *answer, fgsm, pixel, _, boundary, why, detectable, equivalent, seed = (line.rstrip() for line in lines[-10:])
    rates = ten.success_rate.sel(attack="fgsm").mean("repeat")
    spread = points(float((rates.max("training_seed") - rates.min("training_seed")).max()))
    assert " ".join(answer) == (
        "Is one easier to fool? No significant difference in success rates between these frameworks. "
        f"Trainings of one framework differ by up to {spread} points (fgsm)."
    )
    assert fgsm == "fgsm          not significant  jax easier by 1.8 (4.3 detectable*); p = 0.395; seed 93 % (13–100)"
    assert pixel == "single_pixel  not significant  tensorflow easier by 0.12 (0.17 detectable*); p = 0.100; seed 76 %"
    assert f"{boundary} {why.strip()}" == (
        "boundary      no information   the attack succeeds on every image of every model; distances are not compared: "
        "the walk has not converged; run the suite boundary-long"
    )
    assert detectable.startswith("* detected in 8 of 10 such comparisons if this were the true difference")
    assert equivalent.startswith(
        "larger differences than these are excluded at 5 %: fgsm 3.8, single_pixel 0.19 points"
    )
    assert seed.startswith("seed: its share of the variance between trained models")


@pytest.mark.parametrize(
    ("run", "few"),
    [
        ("reference/resnet20-cifar10-small-epsilon", True),
        ("lenet5-mnist-ten-trainings", False),
        ("lenet5-mnist-guo2019", False),  # one training each: tested over images
    ],
)
def test_what_few_trainings_would_detect_is_nominal(run: str, few: bool) -> None:
    ev = rc.open_run(RUNS / run)
    summary, notebook = (" ".join(its.split()) for its in (ev.summary(), ev._repr_html_()))
    assert (f"in 8 of 10 such comparisons{NOMINALLY}, if this" in summary) == few
    assert "would be detected in 8 of 10 such comparisons" in notebook
    assert (f"in 8 of 10 such comparisons. {NOMINAL}" in notebook) == few


@pytest.mark.parametrize(
    ("run", "nominally"),
    [
        ("lenet5-mnist-deployed", NOMINALLY),  # several trainings
        ("resnet20-cifar10-deployed-openvino-and-executorch", ""),  # one
    ],
)
def test_what_a_deployment_would_have_been_told_apart_by(run: str, nominally: str) -> None:
    summary = " ".join(rc.open_run(RUNS / run).summary().split())
    assert f"this much would have been detected in 8 of 10 cases{nominally}: " in summary
    assert (": nominally with 80 % power;" in summary) == bool(nominally)


def test_distances_alone_are_not_a_yes() -> None:
    text = " ".join(rc.open_run(RUNS / "reference" / "lenet5-mnist-ten-trainings").summary().split())
    assert (
        "No significant difference in success rates between these frameworks, but jax is easier to fool than torch "
        "(distances under nearest_l2, nearest_linf)." in text
    )


def test_one_training_each_answers_about_these_models_alone() -> None:
    text = rc.open_run(RUNS / "lenet5-mnist-guo2019").summary()
    assert (
        "Yes, of these trained models: tensorflow is easier to fool than torch (success rates under fgsm). With one "
        "training per framework, framework and run-to-run effects are confounded." in " ".join(text.split())
    )
    assert "fgsm          differ           tensorflow easier by 5.9 (4.1 detectable*); p < 0.001" in text


@pytest.mark.parametrize(("source", "caveat"), [("zoo", ONE_TRAINING), ("file", ONE_NETWORK)])
@pytest.mark.parametrize("different", [True, False, None])
def test_one_training_each_is_said_beside_every_answer(source: str, caveat: str, different: bool | None) -> None:
    ev = rc.open_run(RUNS / "lenet5-mnist-guo2019")
    for model in ev.manifest["models"]:
        model["info"]["source"] = source
    ev.verdicts[:] = [replace(verdict, different=different) for verdict in ev.verdicts]
    assert answer(ev).endswith(caveat)


def test_no_verdict_of_no_difference_without_what_would_have_been_detected(ev: rc.Evaluation) -> None:
    for line in ev.summary(width=100).splitlines():
        assert "detectable*" in line or "not significant" not in line


def test_what_the_papers_settings_fail_is_a_note() -> None:
    ev = rc.open_run(RUNS / "lenet5-mnist-guo2019")
    converged = ev.checks[ev.checks.check == "boundary has converged"]
    assert set(converged.outcome) == {"noted"}
    assert "Failed check: boundary has converged" not in ev.summary()
    assert "at 100 iterations success only means that a start was found" in ev.summary()


def test_colours_only_where_they_are_asked_for(ev: rc.Evaluation) -> None:
    assert "\x1b[" not in ev.summary() + ev.to_text() + repr(ev)
    assert "\x1b[1m" in ev.summary(color=True)
    assert repr(ev) == ev.summary()


def test_a_model_that_is_wrapped_wrongly_is_not_declared_robust() -> None:
    ev = rc.open_run(RUNS / "resnet20-cifar10-guo2019")
    assert "No answer yet" not in ev.summary()
    ev.manifest["models"][0]["clean_accuracy"] = 0.098
    text = " ".join(ev.summary().split())
    assert f"No answer yet: {ev.models[0]} (9.8 %) has less than half the accuracy of the best model." in text
    assert "Yes:" not in text


@pytest.mark.parametrize(
    ("accuracies", "is_named"),
    [((0.118, 0.101), True), ((0.127, 0.2), True), ((0.13, 0.2), False), ((0.3, 0.3), False)],
)
def test_models_at_chance_give_no_answer(accuracies: tuple[float, float], is_named: bool) -> None:
    """10.1 % of digits' test images are of the most frequent class; of 500 images two standard errors are 2.7 %."""
    ev = rc.open_run(RUNS / "lenet5-digits")
    ev.manifest["images"]["most_frequent"] = 0.101
    for model in ev.manifest["models"]:
        model["clean_accuracy"] = accuracies[model["name"] != ev.models[0]]
    text = " ".join(ev.summary().split())
    chance = "no more accuracy than naming the most frequent class each time would"
    assert (f"{chance}. Check bounds" in text) == is_named
    assert (f"{ev.models[0]} classifies only" in text) == is_named


@pytest.mark.parametrize(
    ("span", "is_named"), [((0.0, 0.063), True), ((0.4, 0.6), True), ((0.0, 1.0), False), (None, False)]
)
def test_images_of_a_narrow_range_are_named(span: tuple[float, float] | None, is_named: bool) -> None:
    ev = rc.open_run(RUNS / "lenet5-digits")
    ev.manifest["images"]["range"] = span
    ev.manifest["models"][0]["slope_error"] = None
    assert ("The images' values lie between" in ev.summary()) == is_named

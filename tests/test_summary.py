"""One screen: the answer, at any width."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

import robustcmp as rc
from robustcmp.analysis.statistics import ONE_TRAINING
from robustcmp.report.format import percent, points
from robustcmp.report.text import summary, to_text
from robustcmp.report.words import NOMINAL, NOMINALLY, ONE_NETWORK, answer, key_notes

RUNS = Path(__file__).parents[1] / "docs" / "results"
TEN = "lenet5-mnist-ten-trainings"
ONE = "lenet5-mnist-guo2019"


@cache
def open_once(run: str) -> rc.Evaluation:
    """Return a stored run that no test changes."""
    return rc.open_run(RUNS / run)


def words_of(text: str) -> str:
    return " ".join(text.split())


@pytest.mark.parametrize("run", [ONE, TEN, "resnet20-cifar10-guo2019"])
def test_a_screen_at_any_width(run: str) -> None:
    ev = open_once(run)
    for width in (60, 100):
        texts = [summary(ev.results, width=width), to_text(ev.results, width=width)]
        for line in "\n".join(texts).splitlines():
            assert len(line) <= width
            assert "…" not in line
            assert line.strip() != "%"  # a figure is never wrapped
        for model in ev.results.models:
            for attack in ev.results.attacks:
                assert percent(ev.results.rate(model, attack)) in texts[0]
    lines = summary(ev.results).splitlines()
    assert len(lines) <= 38  # and a line for the page's path, and one for the prompt
    assert all("detectable*" in line for line in lines if "not significant" in line)


def test_colours_only_where_they_are_asked_for() -> None:
    ev = open_once(ONE)
    assert "\x1b[" not in summary(ev.results) + to_text(ev.results)
    assert "\x1b[1m" in summary(ev.results, color=True)
    assert repr(ev) == summary(ev.results)


def test_its_end_is_the_answer_with_what_would_have_been_detected() -> None:
    ten = open_once(TEN)
    lines = summary(ten.results).splitlines()
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
        (TEN, False),
        (ONE, False),  # one training each: tested over images
    ],
)
def test_what_few_trainings_would_detect_is_nominal(run: str, few: bool) -> None:
    ev = open_once(run)
    text, notebook = words_of(repr(ev)), words_of(ev._repr_html_())
    assert (f"in 8 of 10 such comparisons{NOMINALLY}, if this" in text) == few
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
    text = words_of(summary(open_once(run).results))
    assert f"this much would have been detected in 8 of 10 cases{nominally}: " in text
    assert (": nominally with 80 % power;" in text) == bool(nominally)


def test_distances_alone_are_not_a_yes() -> None:
    text = words_of(summary(open_once(f"reference/{TEN}").results))
    assert (
        "No significant difference in success rates between these frameworks, but jax is easier to fool than torch "
        "(distances under nearest_l2, nearest_linf)." in text
    )


def test_one_training_each_answers_about_these_models_alone() -> None:
    ev = open_once(ONE)
    text = summary(ev.results)
    assert (
        "Yes, of these trained models: tensorflow is easier to fool than torch (success rates under fgsm). With one "
        "training per framework, framework and run-to-run effects are confounded." in words_of(text)
    )
    assert "fgsm          differ           tensorflow easier by 5.9 (4.1 detectable*); p < 0.001" in text
    converged = ev.checks[ev.checks.check == "boundary has converged"]
    assert set(converged.outcome) == {"noted"}
    assert "Failed check: boundary has converged" not in text
    assert "at 100 iterations success only means that a start was found" in text


def test_one_training_each_is_said_beside_every_answer() -> None:
    ev = rc.open_run(RUNS / ONE)
    verdicts = ev.verdicts
    for source, caveat in (("zoo", ONE_TRAINING), ("file", ONE_NETWORK)):
        for model in ev.manifest["models"]:
            model["info"]["source"] = source
        for different in (True, False, None):
            verdicts[:] = [replace(verdict, different=different) for verdict in verdicts]
            assert answer(ev.results).endswith(caveat)


def test_a_model_that_is_wrapped_wrongly_is_not_declared_robust() -> None:
    ev = rc.open_run(RUNS / "resnet20-cifar10-guo2019")
    assert "No answer yet" not in summary(ev.results)
    ev.manifest["models"][0]["clean_accuracy"] = 0.098
    text = " ".join(summary(ev.results).split())
    assert f"No answer yet: {ev.results.models[0]} (9.8 %) has less than half the accuracy of the best model." in text
    assert "Yes:" not in text


def test_models_at_chance_give_no_answer() -> None:
    """10.1 % of digits' test images are of the most frequent class; of 500 images two standard errors are 2.7 %."""
    for accuracies, is_named in (
        ((0.118, 0.101), True),
        ((0.127, 0.2), True),
        ((0.13, 0.2), False),
        ((0.3, 0.3), False),
    ):
        ev = rc.open_run(RUNS / "lenet5-digits")
        ev.manifest["images"]["most_frequent"] = 0.101
        for model in ev.manifest["models"]:
            model["clean_accuracy"] = accuracies[model["name"] != ev.results.models[0]]
        chance = "no more accuracy than naming the most frequent class each time would"
        assert (f"{chance}. Check bounds" in answer(ev.results)) == is_named
        assert (
            any(note.startswith(f"{ev.results.models[0]} classifies only") for note in key_notes(ev.results))
            == is_named
        )


def test_images_of_a_narrow_range_are_named() -> None:
    ev = rc.open_run(RUNS / "lenet5-digits")
    for span, is_named in (((0.0, 0.063), True), ((0.4, 0.6), True), ((0.0, 1.0), False), (None, False)):
        ev.manifest["images"]["range"] = span
        assert any("The images' values lie between" in note for note in key_notes(ev.results)) == is_named

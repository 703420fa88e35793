"""One screen: the answer, at any width."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import msgspec
import pytest

import robustcmp as rc
from robustcmp.report.format import percent
from robustcmp.report.text import summary, to_text
from robustcmp.report.words import ONE_EACH, answer, warnings

RUNS = Path(__file__).parents[1] / "docs" / "results"
TEN = "lenet5-mnist-ten-trainings"
ONE = "lenet5-mnist-guo2019"
OVER_TRAININGS = """\
lenet5 on mnist, suite guo2019
10 trainings of each framework; 1,000 images that all 30 classify correctly

model                  fgsm      single_pixel   boundary      R    clean
────────────────────────────────────────────────────────────────────────
torch        14.2 % (12–16)   0.1 % (0.1–0.1)    100.0 %   0.00   99.1 %
tensorflow   15.8 % (14–17)   0.2 % (0.1–0.3)    100.0 %   1.92   99.1 %
jax          15.9 % (15–17)   0.2 % (0.1–0.2)    100.0 %   1.58   99.1 %
Images fooled, 95 % intervals over trainings. R: smaller is more robust.

Is one framework easier to fool? No difference found.
  fgsm          no difference found (4.3 points would have been detected)
  single_pixel  no difference found (0.17 points would have been detected)
  boundary      not compared: at 100 iterations success only means that a start
                was found
All attacks together hint at a difference (p = 0.036) that no single one shows.
Trainings of one framework differ by up to 9.2 points under fgsm.
Health checks passed."""


@cache
def open_once(run: str) -> rc.Evaluation:
    """Return a stored run that no test changes."""
    return rc.open_run(RUNS / run)


def words_of(text: str) -> str:
    return " ".join(text.split())


def test_the_screen_of_many_trainings() -> None:
    assert summary(open_once(TEN).results) == OVER_TRAININGS == repr(open_once(TEN))


@pytest.mark.parametrize("run", [ONE, "resnet20-cifar10-guo2019", f"reference/{TEN}", "lenet5-mnist-deployed"])
def test_a_screen_at_any_width(run: str) -> None:
    results = open_once(run).results
    for width in (60, 80):
        for line in "\n".join([summary(results, width=width), to_text(results, width=width)]).splitlines():
            assert len(line) <= width
            assert line.strip() != "%"  # a figure is never wrapped
    lines = summary(results).splitlines()
    assert len(lines) <= 20  # and two for the page's path
    assert all(percent(results.rate(model, results.attacks[0])) in "\n".join(lines) for model in results.models)


@pytest.mark.parametrize(
    ("run", "first", "lines"),
    [
        ("lenet5-digits", "Is one framework easier to fool? No", ["cannot tell: only 1 of 3,000 images fooled"]),
        (
            ONE,
            "tensorflow is easier to fool than torch under fgsm.",
            ["fgsm tensorflow is easier to fool than torch, by 5.9 points", ONE_EACH],
        ),
        (
            f"reference/{TEN}",
            "jax is easier to fool than torch by distance under nearest_l2, nearest_linf.",
            ["nearest_l2 jax is easier to fool than torch, by 0.064 in median L2"],
        ),
        (
            "lenet5-mnist-deployed",
            "No difference found between deployed networks and their sources (0.49 points would have been detected",
            ["All success rates are shown to be within 2.0 points of the source's."],
        ),
    ],
)
def test_the_first_sentence_answers_and_lines_give_reasons(run: str, first: str, lines: list[str]) -> None:
    text = words_of(summary(open_once(run).results))
    for line in [first, *lines]:
        assert line in text


def test_health_checks_are_said() -> None:
    ev = rc.open_run(RUNS / ONE)
    checked = ev.results.checked
    assert checked is not None
    failed = [
        msgspec.structs.replace(check, outcome="fail") if check.model == "jax" else check for check in checked.checks
    ]
    ev.results.checked = msgspec.structs.replace(checked, checks=failed)
    assert f"Failed check: {checked.checks[0].check}: jax (1 of 3 models)" in summary(ev.results)
    assert "Health checks passed" not in summary(ev.results)


def test_a_model_that_is_wrapped_wrongly_is_not_declared_robust() -> None:
    ev = rc.open_run(RUNS / "resnet20-cifar10-guo2019")
    ev.manifest["models"][0]["clean_accuracy"] = 0.098
    text = words_of(summary(ev.results))
    assert f"No answer yet: {ev.results.models[0]} (9.8 %) has less than half the best model's accuracy" in text
    assert "is easier to fool than" not in answer(ev.results)


@pytest.mark.parametrize(
    ("accuracies", "is_named"),
    [((0.118, 0.101), True), ((0.127, 0.2), True), ((0.13, 0.2), False), ((0.3, 0.3), False)],
)
def test_models_at_chance_give_no_answer(accuracies: tuple[float, float], is_named: bool) -> None:
    """10.1 % of digits' test images are of the most frequent class; of 500 images two standard errors are 2.7 %."""
    ev = rc.open_run(RUNS / "lenet5-digits")
    ev.manifest["images"]["most_frequent"] = 0.101
    first = ev.results.models[0]
    for model in ev.manifest["models"]:
        model["clean_accuracy"] = accuracies[model["name"] != first]
    assert ("no more than chance gives. Check bounds" in answer(ev.results)) == is_named
    assert any(note.startswith(f"{first} classifies only") for note in warnings(ev.results)) == is_named


@pytest.mark.parametrize(
    ("span", "is_named"), [((0.0, 0.063), True), ((0.4, 0.6), True), ((0.0, 1.0), False), (None, False)]
)
def test_images_of_a_narrow_range_are_named(span: tuple[float, float] | None, is_named: bool) -> None:
    ev = rc.open_run(RUNS / "lenet5-digits")
    ev.manifest["images"]["range"] = span
    assert any("The images' values lie between" in note for note in warnings(ev.results)) == is_named

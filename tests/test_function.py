"""Attacks that are functions of the caller's: their draws, what a run keeps of them, and mistakes."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from brought.attacks import CLASSES, EPSILON, N, away, drawn, moved, network, plain, weights
from numpy.typing import NDArray

import robustcmp as rc
from robustcmp.attacks import FGSM, FunctionAttack
from robustcmp.cli import eval as eval_command
from robustcmp.errors import ModelError, UsageError
from robustcmp.models.classifier import Classifier
from robustcmp.report.gate import to_markdown, write_junit
from robustcmp.report.text import to_text


def labelled(model: Any) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Return images, and the classes that a model gives them."""
    images = drawn()
    return images, Classifier(model).predict(images)


# draws ----------------------------------------------------------------------------------------------------------------


def of_a_seed(model: Any, images: Any, labels: Any, seed: int) -> Any:
    return np.random.default_rng(seed).random(images.shape, np.float32)


def of_numpy(model: Any, images: Any, labels: Any) -> Any:
    return np.random.random(images.shape)  # noqa: NPY002


def of_torch(model: Any, images: Any, labels: Any) -> Any:
    return import_module("torch").rand(images.shape)


@pytest.mark.parametrize("function", [of_a_seed, of_numpy, of_torch], ids=lambda it: it.__name__)
@pytest.mark.parametrize("one_by_one", [False, True])
def test_draws_are_a_function_of_what_is_attacked(function: Any, one_by_one: bool) -> None:
    takes: Any = "torch" if function is of_torch else "numpy"
    if takes == "torch":
        pytest.importorskip("torch")
    attack = FunctionAttack(function, epsilon=None, takes=takes, one_by_one=one_by_one, needs_gradient=False)
    model = network("functions")
    images, labels = labelled(model)
    images, labels = images.repeat(20, axis=0), labels.repeat(20)  # so that two calls are needed
    images[:, 0, 0, 0] = np.linspace(0, 1, len(images))
    labels = plain(images)
    first, second = attack.outcomes(Classifier(model), images, labels, 0, [0, 1])
    assert (first.adversarials != second.adversarials).any()
    again = attack.attack(model, images, labels, repeat=1, batch_size=7)
    np.testing.assert_array_equal(again.adversarials, second.adversarials)
    other = attack.attack(model, images, labels, seed=1)
    assert (other.adversarials != first.adversarials).any()
    some = attack.attack(model, images[300:], labels[300:]).adversarials
    assert (some == first.adversarials[300:]).all() == one_by_one


# in a suite -----------------------------------------------------------------------------------------------------------


def test_what_a_run_keeps_of_it(tmp_path: Path) -> None:
    model = network("functions")
    images, labels = labelled(model)

    def made(epsilon: float, **parameters: Any) -> rc.Evaluation:
        suite = {"own": FunctionAttack(away, epsilon=epsilon, packages=["numpy"], **parameters)}
        given = {"n": N, "repeats": 2, "progress": False, "out": tmp_path / "run"}
        return rc.evaluate({"m": model}, images, labels, suite=suite, **given)

    ev = made(EPSILON)
    stored = rc.open_run(tmp_path / "run")
    assert stored.dataset.identical(ev.dataset)
    settings = stored.results.attack_records["own"].settings
    assert settings["function"] == "brought.attacks:away"
    assert settings["epsilon"] == EPSILON
    assert settings["packages"] == {"numpy": np.__version__}
    assert "an attack from elsewhere, away: budget linf ≤ 0.1, checked" in to_text(ev.results)
    assert made(EPSILON).dataset.identical(ev.dataset)
    assert made(2 * EPSILON).results.rates()["m"]["own"] > ev.results.rates()["m"]["own"]  # computed again


def closing_over(value: Any) -> FunctionAttack:
    def attack(model: Any, images: Any, labels: Any) -> Any:
        return value(model, images, labels) if callable(value) else images + value

    return FunctionAttack(attack, epsilon=None)


@pytest.mark.parametrize(("value", "other"), [(0.1, 0.2), (np.zeros(2), np.ones(2)), (away, moved), (dict, list)])
def test_functions_are_told_apart_by_what_they_close_over(value: Any, other: Any) -> None:
    assert closing_over(value).settings == closing_over(value).settings != closing_over(other).settings


ATTACKS = """
import numpy as np
from robustcmp.attacks import FunctionAttack


def darker(model, images, labels, epsilon):
    return np.maximum(images - np.float32(epsilon), 0)


def mine():
    return FunctionAttack(darker, epsilon=0.5, needs_gradient=False, deterministic=True)


def nothing():
    return None
"""


def in_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *more: str) -> int:
    """Compare two models by the command, with attacks from a file of the working directory."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    Path("brought_attacks.py").write_text(ATTACKS)
    given = ["--model", "lenet1", "--framework", "torch", "--dataset", "digits", "--training-seeds", "0"]
    given += ["--images", "30", "--repeats", "1", "--json", "--suite", "smoke"]
    return eval_command.main([*given, *more])


@pytest.mark.brought(
    group="Attacks from elsewhere",
    what="an attack of yours in the command",
    typed="robustcmp eval --suite guo2019 mine=module:function",
    got="a comparison",
)
@pytest.mark.parametrize("isolated", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_an_attack_in_the_command(
    isolated: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("torch")
    more = ["mine=brought_attacks:mine", "--executor", "isolated" if isolated else "in-process"]
    assert in_command(tmp_path, monkeypatch, *more) == 0
    summary = json.loads(capfd.readouterr().out)
    assert Path(summary["out"]).name == "lenet1-digits-smoke-mine"
    rates = summary["success_rate"]["torch"]
    assert set(rates) == {"fgsm", "single_pixel", "boundary", "mine"}
    ev = rc.open_run(summary["out"])
    of = ev.dataset.sel(attack="mine").squeeze()
    model, data = rc.load_model("lenet1", framework="torch", dataset="digits", device="cpu"), rc.load_dataset("digits")
    images = data.images[of.image.values]
    fooled = rc.predict(model, np.maximum(images - np.float32(0.5), 0)) != data.labels[of.image.values]
    assert fooled.any()
    assert (of.success.values == fooled).all()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("mine", "expected NAME=module:function, received 'mine'"),
        ("fgsm=brought_attacks:mine", "fgsm is the name of another attack of the suite smoke"),
        ("mine=brought_attacks:darker", "Name a function without arguments that returns an attack"),
        ("mine=brought_attacks:nothing", "mine should be an attack of robustcmp.attacks, received NoneType"),
        ("mine=brought_attacks:other", "has no attribute 'other'"),
        ("Mine=brought_attacks:mine", "a-z, 0-9 and _"),
    ],
)
def test_mistakes_in_the_command(
    given: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    assert in_command(tmp_path, monkeypatch, given) == 2
    error = capfd.readouterr().err
    assert message in error
    assert "Traceback" not in error
    assert not (tmp_path / "runs").exists()


MISTAKES: dict[str, tuple[Callable[[], Any], str]] = {
    "no function": (lambda: FunctionAttack(partial(away), epsilon=0.1), "received partial. Write a function with def"),
    "an unknown parameter": (
        lambda: FunctionAttack(away, epsilon=0.1, steps=3),
        r"function of model, images, labels, steps; away.* unexpected keyword argument 'steps'",
    ),
    "a missing parameter": (lambda: FunctionAttack(moved, epsilon=0.1, by=1), "missing a required argument: 'only'"),
    "an object that it closes over": (lambda: closing_over(Path()), "received PosixPath. Make it inside the function"),
    "a parameter that JSON has not": (
        lambda: FunctionAttack(moved, epsilon=0.1, by=float("inf"), only=1),
        "parameters should be finite numbers",
    ),
    "a parameter that is an object": (
        lambda: FunctionAttack(moved, epsilon=0.1, by=np.ones(3)),
        "parameters should be .* ndarray",
    ),
    "norm": (lambda: FunctionAttack(away, epsilon=0.1, norm="l1"), "norm should be one of 'l0', 'l2', 'linf'"),  # type: ignore[arg-type]
    "takes": (lambda: FunctionAttack(away, epsilon=0.1, takes="jax"), "takes should be one of 'numpy'"),  # type: ignore[arg-type]
    "epsilon": (lambda: FunctionAttack(away, epsilon=0), "epsilon should be more than 0"),
    "a package": (
        lambda: FunctionAttack(away, epsilon=0.1, packages=["torchattack5"]),
        "'torchattack5' is not installed",
    ),
    "a bare function in a suite": (
        lambda: rc.evaluate({}, drawn(), plain(drawn()), suite={"own": away}),
        "FunctionAttack",
    ),
    "a name": (lambda: rc.evaluate({}, drawn(), plain(drawn()), suite={"Own": FGSM()}), "a-z, 0-9 and _.*'Own'"),
    "no attack": (lambda: rc.evaluate({}, drawn(), plain(drawn()), suite={}), "at least one attack"),
}


@pytest.mark.parametrize("mistake", [*MISTAKES])
def test_mistakes(mistake: str) -> None:
    make, message = MISTAKES[mistake]
    with pytest.raises(UsageError, match=message):
        make()


def test_success_is_not_for_the_function_to_say() -> None:
    def unchanged(model: Any, images: Any, labels: Any) -> Any:
        return images

    model = network("functions")
    images, labels = labelled(model)
    labels[:3] = (labels[:3] + 1) % CLASSES  # misclassified: fallen at distance 0, and not shown to the function
    result = FunctionAttack(unchanged, epsilon=EPSILON).attack(model, images, labels)
    assert result.success.tolist() == [True] * 3 + [False] * (N - 3)
    assert (result.l2[:3] == 0).all()


def test_one_that_needs_gradients_does_not_run_without() -> None:
    hidden, _ = weights()
    model = rc.wrap_functions(logits=lambda x: x.reshape(len(x), -1) @ hidden[:, :CLASSES])
    images, labels = labelled(model)
    suite = {
        "away": FunctionAttack(away, epsilon=EPSILON),
        "noise": FunctionAttack(of_a_seed, epsilon=None, needs_gradient=False),
    }
    ev = rc.evaluate({"m": model, "n": model}, images, labels, suite=suite, n=N, repeats=1, progress=False)
    assert "away is not compared" in to_markdown(ev.gate())
    assert 'name="away"><skipped' in write_junit(ev.gate())
    assert "no gradient" in ev.results.reasons("not_applicable")["m"]["away"]
    assert 0 < ev.results.rates()["m"]["noise"] < 1
    with pytest.raises(ModelError, match="no gradient"):
        FunctionAttack(away, epsilon=EPSILON, needs_gradient=False).attack(model, images, labels)

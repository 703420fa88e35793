"""Health checks: they pass on sound models and attacks, and each fails on one that is broken on purpose."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from conftest import Slow
from numpy.typing import NDArray

import robustcmp as rc
from robustcmp.attacks import FGSM, Boundary
from robustcmp.data.dataset import Dataset
from robustcmp.errors import UsageError
from robustcmp.frameworks import TrainableFramework
from robustcmp.models.classifier import Classifier
from robustcmp.records.answers import FAIL, NOT_APPLICABLE, NOTED, PASS, Check, Checked
from robustcmp.report.tables import tables
from robustcmp.report.text import to_text
from robustcmp.report.words import check_notes, notes
from robustcmp.runs import checks
from robustcmp.runs.checks import ADVICE, BOUNDS, INSIDE, _compare_slopes
from robustcmp.runs.followups import FollowUps

torch = pytest.importorskip("torch")

NOISE = np.random.default_rng(0)

SUITE = """
images = 20
repeats = 1
[attacks.fgsm]
attack = "FGSM"
[attacks.pixel]
attack = "SinglePixel"
max_pixels = 20
[attacks.walk]
attack = "Boundary"
iterations = {iterations}
max_directions = 5
"""


EVERY_CHECK = {*ADVICE, *Boundary.check_names}


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    path = tmp_path / "quick.toml"
    path.write_text(SUITE.format(iterations=6))
    return path


def run(model: Any, data: Dataset, suite: Path, **options: Any) -> rc.Evaluation:
    return rc.evaluate({"model": model}, data.images, data.labels, suite=suite, progress=False, **options)


def outcomes(ev: rc.Evaluation) -> dict[str, str]:
    table = ev.run_checks()
    assert tuple(table.columns) == ("check", "model", "outcome", "figure", "advice")
    return dict(zip(table.check, table.outcome, strict=True))


@pytest.fixture(scope="module")
def network() -> Any:
    return rc.load_model("lenet1", framework="torch", dataset="digits", device="cpu").native


@pytest.fixture(scope="module")
def sound(network: Any, digits: Dataset, tmp_path_factory: pytest.TempPathFactory) -> rc.Evaluation:
    """A comparison with nothing wrong in it; what a test breaks of it, it mends."""
    path = tmp_path_factory.mktemp("sound") / "quick.toml"
    path.write_text(SUITE.format(iterations=6))
    return run(rc.wrap(network), digits, path)


class Module(torch.nn.Module):  # type: ignore[misc, name-defined]
    """A network with something done to its images or its logits."""

    def __init__(self, network: Any, before: Any = lambda x: x, after: Any = lambda z: z):
        super().__init__()
        self.network, self.before, self.after = network, before, after
        self.eval()

    def forward(self, x: Any) -> Any:
        return self.after(self.network(self.before(x)))


@pytest.mark.slow
def test_sound_models_pass(framework: TrainableFramework, zoo_model: Any, digits: Dataset, suite: Path) -> None:
    found = outcomes(run(zoo_model(framework), digits, suite))
    assert set(found) == EVERY_CHECK
    short = found.pop("boundary has converged")  # six iterations are none
    assert short == NOTED
    assert found == dict.fromkeys(found, PASS)


def test_gradients_that_point_elsewhere(network: Any, digits: Dataset, suite: Path) -> None:
    class Backwards(torch.autograd.Function):  # type: ignore[misc, name-defined]
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x.clone()

        @staticmethod
        def backward(ctx: Any, gradient: Any) -> Any:
            return -gradient.flip(-1)

    found = outcomes(run(rc.wrap(Module(network, before=Backwards.apply)), digits, suite))
    assert found["gradient fits finite differences"] == FAIL
    assert found["pgd rises with epsilon"] == FAIL
    assert found["two passes agree"] == PASS


def test_masked_gradients(network: Any, digits: Dataset, suite: Path) -> None:
    """The images are rounded, and only the gradient of a ripple passes."""

    def coarse(x: Any) -> Any:
        return (x * 8).round() / 8 + 1e-6 * torch.sin(1e4 * x)

    found = outcomes(run(rc.wrap(Module(network, before=coarse)), digits, suite))
    assert found["gradient fits finite differences"] == FAIL
    assert found["pgd rises with epsilon"] == FAIL


def test_a_gradient_of_which_parts_are_cut_off(network: Any, digits: Dataset, suite: Path) -> None:
    mask = (torch.arange(784).reshape(28, 28) % 4 == 0).float()
    detached = Module(network, before=lambda x: x * mask + (x * (1 - mask)).detach())
    assert outcomes(run(rc.wrap(detached), digits, suite))["gradient fits finite differences"] == FAIL


def test_a_model_that_noise_fools(network: Any, digits: Dataset, suite: Path) -> None:
    """Where few pixels are black, the model says class 0: any noise does that, and the gradient does no better."""

    class Fragile(Module):
        def forward(self, x: Any) -> Any:
            black = torch.sigmoid((0.02 - x) * 1000).mean(dim=(1, 2, 3))
            zero = torch.nn.functional.one_hot(torch.zeros(len(x), dtype=torch.int64), 10)
            return self.network(x) + 1000 * torch.relu(0.4 - black)[:, None] * zero

    assert outcomes(run(rc.wrap(Fragile(network)), digits, suite))["noise is weaker"] == FAIL


def test_perturbations_that_8_bits_cannot_hold(network: Any, digits: Dataset, tmp_path: Path) -> None:
    """A ripple of one level's length: nothing at 8 bits, and much between two levels."""
    path = tmp_path / "fine.toml"
    path.write_text('images = 40\n[attacks.fgsm]\nattack = "FGSM"\nmax_epsilon = 0.01\n')
    images = (np.rint(digits.images * 255) / 255).astype(np.float32)
    ripple = Module(network, before=lambda x: x + 0.3 * torch.sin(2 * torch.pi * 255 * x))
    ev = rc.evaluate({"model": rc.wrap(ripple)}, images, digits.labels, suite=path, progress=False)
    assert outcomes(ev)["holds at 8 bits"] == FAIL


def test_a_saturated_softmax(network: Any, digits: Dataset, suite: Path) -> None:
    saturated = Module(network, after=lambda z: torch.softmax(40 * z, dim=1))
    found = outcomes(run(rc.wrap(saturated, outputs="probabilities"), digits, suite))
    assert found["pgd rises with epsilon"] == FAIL
    assert found["noise is weaker"] in (FAIL, NOT_APPLICABLE)


@pytest.mark.parametrize(
    ("change", "check"),
    [
        (lambda infer, images: infer(images) + NOISE.normal(0, 1e-2, (len(images), 10)), "two passes agree"),
        (lambda infer, images: infer(images[:, ::-1].copy()), INSIDE),
    ],
    ids=["other answers each time", "other images"],
)
def test_a_wrapper_that_does_not_ask_what_the_network_answers(
    sound: rc.Evaluation, change: Any, check: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert isinstance(sound._at_hand, FollowUps)
    classifier = sound._at_hand.plan.models[0].classifier
    infer = classifier.forward
    monkeypatch.setattr(classifier, "forward", lambda images: change(infer, images).astype(np.float32))
    assert outcomes(sound)[check] == FAIL


MEAN, STD = 0.2, 0.4


@pytest.mark.slow
@pytest.mark.parametrize(
    ("before", "options"),
    [
        (lambda x: x / 255, {"bounds": (0, 255)}),
        (lambda x: (x + 1) / 2, {"bounds": (-1, 1)}),
        (lambda x: x * STD + MEAN, {"preprocessing": {"mean": MEAN, "std": STD}}),
        (lambda x: (x * STD + MEAN) / 255, {"bounds": (0, 255), "preprocessing": {"mean": MEAN, "std": STD}}),
        (lambda x: x * STD + MEAN, {"preprocessing": {"mean": torch.tensor([MEAN]), "std": [STD], "axis": -3}}),
        (lambda x: x.flip(-1), {"preprocessing": {"flip_axis": -1}}),
    ],
    ids=["bytes", "-1 to 1", "normalised", "mean of another scale", "by channel", "mirrored"],
)
def test_a_wrapper_that_undoes_what_the_network_does(
    network: Any, digits: Dataset, suite: Path, before: Any, options: dict[str, Any]
) -> None:
    """All are the same network; in one the mean is not in the units of the bounds, which is a mistake elsewhere."""
    options = {"bounds": (0, 1), **options}
    model = rc.wrap(Module(network, before=before), **options)
    ev = run(model, digits, suite)
    found = outcomes(ev)
    assert found[INSIDE] == PASS
    mistaken = options["bounds"] == (0, 255) and "preprocessing" in options
    assert found[BOUNDS] == (FAIL if mistaken else PASS)
    low, high = options["bounds"]
    assert f"values from {low} to {high} in bounds {low} to {high}" in ev.checks.set_index("check").figure[BOUNDS]


def test_images_that_leave_most_of_the_bounds_empty(network: Any, digits: Dataset, suite: Path) -> None:
    dark = replace(digits, images=digits.images / 2)
    assert outcomes(run(rc.wrap(Module(network, before=lambda x: 2 * x)), dark, suite))[BOUNDS] == FAIL


def test_pgd_that_stops_early(sound: rc.Evaluation, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "STEPS", 1)
    found = outcomes(sound)
    assert found["pgd reaches fgsm"] == FAIL
    assert found["pgd rises with epsilon"] == FAIL


def test_a_threshold_that_has_no_gradient(network: Any, digits: Dataset, suite: Path) -> None:
    """One white pixel in the upper rows gives the image away, which no gradient tells."""

    class Trapped(Module):
        def forward(self, x: Any) -> Any:
            white = (x[:, :, :6] > 0.95).any(dim=3).any(dim=2)
            return self.network(x) - 1000 * white * torch.softmax(10 * self.network(x), dim=1)

    ev = run(rc.wrap(Trapped(network)), digits, suite)
    assert ev.results.rates()["model"]["pixel"] > 0.3
    assert outcomes(ev)["gradient-free is weaker"] == FAIL


@pytest.mark.slow
def test_a_model_that_calls_all_noise_one_class(network: Any, digits: Dataset, suite: Path) -> None:
    """So the images of that class have no start."""

    class Calm(Module):
        def forward(self, x: Any) -> Any:
            rough = (x[:, :, 1:] - x[:, :, :-1]).abs().mean(dim=(1, 2, 3))
            three = torch.nn.functional.one_hot(torch.full((len(x),), 3), 10)
            return self.network(x) + 1000 * torch.relu(rough - 0.2)[:, None] * three

    ev = run(rc.wrap(Calm(network)), digits, suite)
    assert 0.5 < float(ev.dataset.start.sel(model="model", attack="walk").mean()) < 1
    found = outcomes(ev)
    assert found["every image had a start"] == FAIL
    assert found["boundary's points hold"] == PASS


def test_answers_that_depend_on_the_batch(zoo_model: Any, digits: Dataset, suite: Path) -> None:
    """Batch norm by the statistics of a batch, if it is large: what was asked in one batch is asked again in another.

    Of small batches the pre-flight checks know it.
    """

    class Normed(Module):
        def __init__(self) -> None:
            super().__init__(zoo_model("torch").native)
            self.norm = torch.nn.BatchNorm2d(1, track_running_stats=False)
            self.eval()

        def forward(self, x: Any) -> Any:
            return self.network(0.13 + 0.3 * self.norm(x) if len(x) > 32 else x)

    suite.write_text(SUITE.format(iterations=6).replace("images = 20", "images = 40"))
    found = outcomes(run(rc.wrap(Normed()), digits, suite))
    assert found["two passes agree"] == PASS
    assert found["boundary's points hold"] == FAIL


@pytest.mark.parametrize(("seconds", "checked"), [(1e-4, 19), (0.2, 10)])
def test_a_slow_network_that_is_attacked_little_is_checked_on_fewer_images(
    seconds: float, checked: int, digits: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = Slow(seconds, monkeypatch)
    x = digits.images[:40]
    suite = {"fgsm": FGSM()}
    ev = rc.evaluate({"slow": slow.model}, x, rc.predict(slow.model, x), suite=suite, n=19, progress=False)
    found = ev.run_checks()
    assert set(found.check) == set(ADVICE)
    assert ev.results.checked is not None
    assert ev.results.checked.images == checked


def test_a_model_without_a_gradient(digits: Dataset, tmp_path: Path) -> None:
    import foolbox as fb

    path = tmp_path / "free.toml"
    path.write_text('[attacks.pixel]\nattack = "SinglePixel"\nmax_pixels = 5\n')

    def logits(x: Any) -> Any:
        return np.stack([x.mean(axis=(1, 2, 3)) - 1, np.full(len(x), -0.9)], axis=1).astype(np.float32)

    model = fb.NumPyModel(logits, bounds=(0, 1))
    labels = logits(digits.images).argmax(axis=1)
    ev = rc.evaluate({"model": model}, digits.images, labels, suite=path, n=10, progress=False)
    table = ev.run_checks().set_index("check")
    assert table.outcome["two passes agree"] == table.outcome[BOUNDS] == PASS
    for check in set(ADVICE) - {"two passes agree", BOUNDS}:
        assert table.outcome[check] == NOT_APPLICABLE, check
        assert table.figure[check]
    assert ev.results.checked is not None
    assert Checked.from_json(json.loads(msgspec.json.encode(ev.results.checked))) == ev.results.checked


@pytest.mark.parametrize(
    ("source_step", "half", "whole", "outcome"),
    [(1e-6, 1.6, 1.5, PASS), (1e-2, 1.6, 1.5, FAIL), (1e-6, 3.0, 1.5, FAIL), (1e-6, np.inf, 1.5, FAIL)],
)
def test_when_a_boundary_attack_has_converged(source_step: float, half: float, whole: float, outcome: str) -> None:
    """Both its steps and what its second half brought count; on outcomes that nobody's run would wait for."""
    xarray = pytest.importorskip("xarray")
    dims, shape = ("repeat", "image"), (2, 5)
    values = {"source_step": source_step, "l2_half": half, "l2": whole, "start": 1.0, "success": True}
    table = xarray.Dataset({name: (dims, np.full(shape, value)) for name, value in values.items()})
    assert {check.check: check.outcome for check in Boundary().health_checks("walk", table)} == {
        "boundary has converged": outcome,
        "every image had a start": PASS,
        "boundary's points hold": PASS,
    }


def test_of_many_models_that_fail_the_first_three_are_named() -> None:
    failed = [Check("noise is weaker", f"torch/{seed}", FAIL, f"noise {seed}%", "Look.") for seed in range(5)]
    checked = Checked([*failed, Check("two passes agree", "torch/0", PASS, "none")], 0.1, 10)
    assert check_notes(checked) == [
        "Health checks on 10 images: 1 pass, 5 fail, 0 not applicable.",
        "Failed: noise is weaker: torch/0: noise 0%; torch/1: noise 1%; torch/2: noise 2%; and 2 more, see "
        "`ev.checks`. Look.",
    ]


def test_they_are_stored_and_read_and_otherwise_the_error_names_the_command(
    network: Any, digits: Dataset, suite: Path, tmp_path: Path
) -> None:
    ev = run(rc.wrap(Module(network)), digits, suite, out=tmp_path / "run")
    opened = rc.open_run(tmp_path / "run")
    with pytest.raises(UsageError, match=r"stored without checks.*robustcmp\.evaluate"):
        _ = opened.checks
    assert "Health checks have not been run; `ev.run_checks()` runs them." in notes(opened.results)
    made = ev.run_checks()
    opened = rc.open_run(tmp_path / "run")
    assert opened.checks.equals(made)
    (total,) = (note for note in notes(opened.results) if note.startswith("Health checks on 20 images: "))
    assert f"{(made.outcome == PASS).sum()} pass, {(made.outcome == FAIL).sum()} fail" in total
    assert made.set_index("check").outcome["boundary has converged"] == NOTED  # an attack of few iterations says so
    assert f", {(made.outcome == NOTED).sum()} noted." in total
    assert not any(note.startswith("Failed: boundary has converged") for note in notes(opened.results))
    (table,) = (table for table in tables(opened.results) if "a lower bound on vulnerability" in table.title)
    assert table.title.startswith("PGD at ε = 0.1 on 20 images, not in R")
    assert to_text(opened.results).count("lower bound on vulnerability") == 1
    # Another question in the same directory has other checks.
    again = run(rc.wrap(Module(network)), digits, suite, out=tmp_path / "run", seed=5)
    assert again.results.checked is None


def test_a_sound_model_passes(sound: rc.Evaluation) -> None:
    found = outcomes(sound)
    assert found == dict.fromkeys(EVERY_CHECK, PASS) | {"boundary has converged": NOTED}


# a gradient that its caller wrote is compared with slopes -------------------------------------------------------------

Images = NDArray[np.float32]
WRONG: dict[str, Callable[[Classifier], Callable[[Images, Images], Images]]] = {
    "its sign": lambda zoo: lambda x, v: -zoo.vjp(x, v),
    "its size": lambda zoo: lambda x, v: zoo.vjp(x, v) / 255,
    "its axes": lambda zoo: lambda x, v: zoo.vjp(x, v).transpose(0, 2, 1, 3),
    "a part": lambda zoo: lambda x, v: zoo.vjp(x, v) * (np.arange(x.shape[2]) < x.shape[2] / 2)[:, None],
    "other images": lambda zoo: lambda x, v: zoo.vjp(1 - x, v),
    "of another class": lambda zoo: lambda x, v: zoo.vjp(x, np.roll(v, 1, axis=1)),
}


@pytest.mark.parametrize("kind", ["right", *WRONG])
def test_a_wrong_gradient_is_seen(kind: str, zoo_model: Any, digits: Dataset) -> None:
    zoo = Classifier(zoo_model("torch", "lenet5"))
    vjp = zoo.vjp if kind == "right" else WRONG[kind](zoo)
    model = Classifier(rc.wrap_functions(logits=zoo.logits, vjp=vjp))
    along, across = _compare_slopes(model, digits.images[:40], digits.labels[:40], 0)
    assert (max(along, across) > 0.25) == (kind != "right")


@pytest.mark.brought(
    group="Other models",
    what="functions of NumPy arrays whose `vjp` is not the gradient of their logits",
    typed="rc.wrap_functions(logits=…, vjp=…)",
    got="a comparison; its health checks fail and say how far the slopes are off",
)
def test_the_health_checks_of_a_comparison_say_so(zoo_model: Any, digits: Dataset) -> None:
    zoo = Classifier(zoo_model("torch", "lenet5"))
    model = rc.wrap_functions(logits=zoo.logits, vjp=WRONG["its sign"](zoo))
    ev = rc.evaluate(
        {"m": model}, digits.images, digits.labels, suite={"fgsm": rc.attacks.FGSM()}, n=20, progress=False
    )
    check = ev.run_checks().set_index("check").loc["gradient fits finite differences"]
    assert check.outcome == "fail"
    assert "off along the gradient" in check.figure

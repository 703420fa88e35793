"""Attacks that people bring: they run beside those of robustcmp on models of every framework, within their budget."""

from __future__ import annotations

import inspect
import json
import random
from collections.abc import Callable
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import foolbox as fb
import numpy as np
import pytest
from numpy.typing import NDArray

import robustcmp as rc
from robustcmp.attacks import FGSM, FunctionAttack
from robustcmp.attacks.suite import FOOLBOX, load_suite
from robustcmp.cli import eval as eval_command
from robustcmp.errors import AttackError, ModelError, UsageError
from robustcmp.models.classifier import Classifier
from robustcmp.report.text import to_text

N, SIDE, CLASSES, EPSILON = 16, 8, 3, 0.1
PIXELS = SIDE * SIDE * 3
pytestmark = pytest.mark.filterwarnings("ignore:torch.meshgrid:UserWarning")  # by Foolbox's SpatialAttack
FRAMEWORKS = ["torch", "tensorflow", "jax", "functions"]
brought = partial(pytest.mark.brought, group="Attacks from elsewhere", got="a comparison")


def drawn(n: int = N) -> NDArray[np.float32]:
    """Return images in 8 bits."""
    return (np.random.default_rng(0).integers(0, 256, (n, SIDE, SIDE, 3)) / 255).astype(np.float32)


def weights() -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    rng = np.random.default_rng(0)
    hidden, out = rng.normal(size=(PIXELS, 16)) / 8, rng.normal(size=(16, CLASSES))
    return hidden.astype(np.float32), out.astype(np.float32)


def network(framework: str) -> Any:
    """Return the same network of two layers as a model of a framework."""
    hidden, out = weights()
    if framework == "functions":

        def vjp(x: Any, v: Any) -> Any:
            return ((v @ out.T) * (x.reshape(len(x), -1) @ hidden > 0) @ hidden.T).reshape(x.shape)

        return rc.wrap_functions(logits=lambda x: np.maximum(x.reshape(len(x), -1) @ hidden, 0) @ out, vjp=vjp)
    pytest.importorskip(framework)
    if framework == "torch":
        torch = import_module("torch")
        layers = [torch.nn.Flatten(), torch.nn.Linear(PIXELS, 16), torch.nn.ReLU(), torch.nn.Linear(16, CLASSES)]
        for layer, kernel in ((layers[1], hidden), (layers[3], out)):
            layer.weight.data, layer.bias.data = torch.tensor(kernel.T.copy()), torch.zeros(kernel.shape[1])
        return rc.wrap(torch.nn.Sequential(*layers).eval(), device="cpu", data_format="channels_last")
    if framework == "jax":
        numpy = import_module("jax.numpy")
        return rc.wrap(
            (lambda p, x: numpy.maximum(x.reshape(len(x), -1) @ p[0], 0) @ p[1], (hidden, out)), device="cpu"
        )
    keras = import_module("keras")
    layers = [keras.layers.Dense(16, "relu"), keras.layers.Dense(CLASSES)]
    made = keras.Sequential([keras.Input((SIDE, SIDE, 3)), keras.layers.Flatten(), *layers])
    for layer, kernel in zip(layers, (hidden, out), strict=True):
        layer.set_weights([kernel, np.zeros(kernel.shape[1], np.float32)])
    return rc.wrap(made, device="cpu")


def labelled(model: Any) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Return images, and the classes that a model gives them."""
    images = drawn()
    return images, Classifier(model).predict(images)


def plain(images: NDArray[np.float32]) -> NDArray[np.int64]:
    """Return the classes of the network, without robustcmp."""
    hidden, out = weights()
    classes: NDArray[np.int64] = (np.maximum(images.reshape(len(images), -1) @ hidden, 0) @ out).argmax(axis=1)
    return classes


# the bridge -----------------------------------------------------------------------------------------------------------


# other libraries ------------------------------------------------------------------------------------------------------


def torchattacks(model: Any, images: Any, labels: Any, epsilon: float, steps: int) -> Any:
    library = pytest.importorskip("torchattacks", reason="torchattacks is not installed")
    return library.PGD(model, eps=epsilon, alpha=epsilon / 4, steps=steps)(images, labels)


def pyautoattack(model: Any, images: Any, labels: Any, epsilon: float, seed: int) -> Any:
    library = pytest.importorskip("pyautoattack", reason="pyautoattack is not installed")
    attack = library.AutoAttack(model, eps=epsilon, seed=seed, version="custom", attacks=["apgd-ce", "square"])
    attack.apgd.n_iter, attack.apgd.n_restarts, attack.square.n_queries = 5, 1, 5
    return attack.run_standard_evaluation(images, labels)[0]


def art(model: Any, images: Any, labels: Any, epsilon: float, steps: int) -> Any:
    estimators = pytest.importorskip("art.estimators.classification", reason="ART is not installed")
    evasion, torch = import_module("art.attacks.evasion"), import_module("torch")
    shape = tuple(images.shape[1:])
    classifier = estimators.PyTorchClassifier(
        model, torch.nn.CrossEntropyLoss(), shape, CLASSES, clip_values=(0, 1), device_type="cpu"
    )
    attack = evasion.ProjectedGradientDescent(
        classifier, eps=epsilon, eps_step=epsilon / 4, max_iter=steps, num_random_init=1, verbose=False
    )
    return attack.generate(images.numpy(), labels.numpy())


LIBRARIES: dict[str, tuple[str, Callable[[], FunctionAttack]]] = {
    "torchattacks": (
        'FunctionAttack(pgd, epsilon=0.1, takes="torch", steps=10)',
        lambda: FunctionAttack(torchattacks, epsilon=EPSILON, takes="torch", steps=5),
    ),
    "AutoAttack from the package pyautoattack": (
        'FunctionAttack(autoattack, epsilon=0.1, takes="torch")',
        lambda: FunctionAttack(pyautoattack, epsilon=EPSILON, takes="torch"),
    ),
    "ART: a gradient attack": (
        'FunctionAttack(pgd, epsilon=0.1, takes="torch", steps=10)',
        lambda: FunctionAttack(art, epsilon=EPSILON, takes="torch", steps=5),
    ),
}


def generators() -> tuple[Any, ...]:
    """Return the states of the global generators."""
    numpy = np.random.get_state()[1]  # noqa: NPY002
    return random.getstate(), numpy.tolist(), import_module("torch").get_rng_state().tolist()  # type: ignore[union-attr]


@pytest.mark.filterwarnings("default")  # theirs
@pytest.mark.parametrize(
    "library",
    [
        pytest.param(name, marks=brought(what=f"{name}, on models of every framework", typed=typed))
        for name, (typed, _) in LIBRARIES.items()
    ],
)
def test_another_library(library: str) -> None:
    pytest.importorskip("torch")
    attack = LIBRARIES[library][1]()
    images, labels = drawn(), plain(drawn())
    models = {framework: network(framework) for framework in FRAMEWORKS}
    before = generators()
    ev = rc.evaluate(
        models,
        images,
        labels,
        suite={"theirs": attack, "fgsm": FGSM(epsilons=10, max_epsilon=EPSILON)},
        n=N,
        repeats=1,
        batch_size=4,
        progress=False,
    )
    assert generators() == before
    rates = {framework: of_model["theirs"] for framework, of_model in ev.results.rates().items()}
    assert set(rates) == {*FRAMEWORKS}
    assert len(set(rates.values())) == 1  # the network and the draws are the same everywhere
    assert rates["torch"] >= 0.9 * ev.results.rates()["torch"]["fgsm"] > 0
    of = ev.dataset.sel(attack="theirs")
    if attack.epsilon is not None:
        assert (of.linf.values[of.success.values.astype(bool)] <= EPSILON + 1e-6).all()


# Foolbox's ------------------------------------------------------------------------------------------------------------

NAMES = sorted({cls.__name__ for cls in FOOLBOX.values()})  # without aliases, such as PGD
MORE_THAN_LABELS = {  # and what Foolbox says of it
    "BinarizationRefinementAttack": "requires starting_points",
    "DatasetAttack": r"data has been provided using 'feed\(\)'",
    "GenAttack": "unsupported criterion",
}
LABELS_ALONE = sorted({*NAMES} - {*MORE_THAN_LABELS} - {name for name in NAMES if "BrendelBethge" in name})
FAILING = {  # in Foolbox 3.3.4
    ("PointwiseAttack", "tensorflow"): "AttributeError: 'list' object has no attribute 'dtype'",
    ("PointwiseAttack", "jax"): "AttributeError: module 'jax.ops' has no attribute 'index_update'",
    ("SpatialAttack", "jax"): "NotImplementedError: no message",
}
FEW = {"steps": 10, "binary_search_steps": 2, "max_gradient_eval_steps": 10, "initial_gradient_eval_steps": 5}
OTHER = {"HopSkipJumpAttack": {"steps": 1}, "VirtualAdversarialAttack": {"xi": 0.1}}
foolboxs = partial(brought, typed='[attacks.x] attack = "NAME"')


def of_foolbox(name: str, tmp_path: Path, **more: Any) -> Any:
    """Return an attack of Foolbox from a suite, with few steps, and the budgets of its norm if it needs some."""
    cls = FOOLBOX[name]
    few = {key: value for key, value in FEW.items() if key in inspect.signature(cls).parameters}
    table: dict[str, Any] = few | OTHER.get(name, {}) | more
    if issubclass(cls, fb.attacks.base.FixedEpsilonAttack):
        table["epsilons"] = [0.5 * budget(name), budget(name)]
    lines = ["[attacks.x]", f'attack = "{name}"', *(f"{key} = {value}" for key, value in table.items())]
    (tmp_path / "x.toml").write_text("\n".join(lines))
    return load_suite(tmp_path / "x.toml").attacks["x"]


def budget(name: str) -> float:
    return 60.0 if name.startswith(("L1", "Sparse")) else 8.0 if name.startswith(("L2", "Virtual", "Gen")) else 0.5


def check_foolboxs(name: str, framework: str, tmp_path: Path) -> None:
    """Run an attack of Foolbox on a model and judge its images without robustcmp, or see the message."""
    images, labels = drawn(6), plain(drawn(6))
    attack, model = of_foolbox(name, tmp_path), Classifier(network(framework), 6)
    message = MORE_THAN_LABELS.get(name, FAILING.get((name, framework)))
    if message is not None:
        with pytest.raises(
            ModelError, match=rf"Foolbox's {name} cannot attack a model of \w+: .*{message}.* Leave it out"
        ):
            next(attack.outcomes(model, images, labels, 0, [0]))
        return
    result = next(attack.outcomes(model, images, labels, 0, [0]))
    assert result.success.any()
    assert ((plain(result.adversarials) != labels) == result.success).all()
    if attack.grid:
        far = np.abs(result.adversarials - images).reshape(6, -1).astype(np.float64)
        sizes = {60.0: far.sum(axis=1), 8.0: np.sqrt((far**2).sum(axis=1)), 0.5: far.max(axis=1)}
        assert (sizes[budget(name)] <= budget(name) * (1 + 1e-5)).all()


@pytest.mark.parametrize(
    "framework",
    [
        pytest.param(
            framework,
            marks=[
                foolboxs(
                    what=f"Foolbox: {len(LABELS_ALONE)} attacks that take labels alone, on "
                    f"{framework.replace('functions', 'wrap_functions')} models",
                    got="a comparison"
                    + "".join(f"; {name} fails in Foolbox, with a message" for name, of in FAILING if of == framework),
                ),
                *([pytest.mark.whole_zoo] if framework in ("tensorflow", "jax") else []),  # two minutes
            ],
        )
        for framework in FRAMEWORKS
    ],
)
def test_attacks_of_foolbox(framework: str, tmp_path: Path) -> None:
    pytest.importorskip("torch")  # through which they get gradients of functions
    for name in LABELS_ALONE:
        check_foolboxs(name, framework, tmp_path)


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(
            name,
            marks=foolboxs(
                what=f"Foolbox: {name}, which needs more than labels", got="the message: call it in a function"
            ),
        )
        for name in MORE_THAN_LABELS
    ],
)
def test_an_attack_of_foolbox_that_needs_more(name: str, tmp_path: Path) -> None:
    check_foolboxs(name, "functions", tmp_path)


# functions of one's own -----------------------------------------------------------------------------------------------


def away(model: Any, images: Any, labels: Any, epsilon: float) -> Any:
    """Take a step along the sign of the gradient of the true class's logit, with the NumPy classifier."""
    v = -np.eye(CLASSES, dtype=np.float32)[labels]
    return np.clip(images + np.float32(epsilon) * np.sign(model.vjp(images, v)), 0, 1)


def away_in_torch(model: Any, images: Any, labels: Any, epsilon: float) -> Any:
    torch = import_module("torch")
    x = images.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(-model(x).gather(1, labels[:, None]).sum(), x)
    return (images + epsilon * gradient.sign()).clamp(0, 1)


def away_in_foolbox(model: Any, images: Any, labels: Any, epsilon: float) -> Any:
    """Do the same in EagerPy, with the tensors of any framework."""
    ep = import_module("eagerpy")
    x, y = ep.astensor(images), ep.astensor(labels)
    _, gradient = ep.value_and_grad(
        lambda x: -(ep.astensor(model(x.raw)) * ep.onehot_like(x.zeros((len(y), CLASSES)), y)).sum(), x
    )
    return ep.clip(x + epsilon * gradient.sign(), 0, 1).raw


OWN: dict[str, tuple[Callable[..., Any], list[str]]] = {
    "numpy": (away, FRAMEWORKS),
    "torch": (away_in_torch, FRAMEWORKS),
    "foolbox": (away_in_foolbox, ["torch", "tensorflow", "jax"]),
}


@pytest.mark.parametrize(
    "takes",
    [
        pytest.param(
            "numpy",
            marks=brought(what="a function of yours, of NumPy arrays", typed="FunctionAttack(attack, epsilon=0.1)"),
        ),
        pytest.param(
            "torch",
            marks=brought(
                what="a function of yours, of torch tensors, on models of every framework",
                typed='FunctionAttack(attack, epsilon=0.1, takes="torch")',
            ),
        ),
        pytest.param(
            "foolbox",
            marks=brought(
                what="a function of yours, of a Foolbox model and its own tensors",
                typed='FunctionAttack(attack, epsilon=0.1, takes="foolbox")',
            ),
        ),
    ],
)
def test_a_function(takes: Any) -> None:
    images, labels = drawn(), plain(drawn())
    function, named = OWN[takes]
    hidden, out = weights()
    before = images.reshape(N, -1) @ hidden
    slopes = (-out.T[labels] * (before > 0)) @ hidden.T
    expected = np.clip(images + np.float32(EPSILON) * np.sign(slopes.reshape(images.shape)), 0, 1)
    fooled = plain(expected) != labels
    assert 0 < fooled.sum() < N
    attack = FunctionAttack(function, epsilon=EPSILON, takes=takes, deterministic=True)
    for framework in named:
        result = attack.attack(network(framework), images, labels)
        assert (result.success == fooled).all()
        np.testing.assert_allclose(result.adversarials[fooled], expected[fooled], atol=1e-6)
        assert (result.adversarials[~fooled] == images[~fooled]).all()
        np.testing.assert_allclose(result.linf[fooled], EPSILON, atol=1e-6)


# budgets --------------------------------------------------------------------------------------------------------------


def moved(model: Any, images: Any, labels: Any, by: float, only: int) -> Any:
    """Move some values of one image, away from the nearer bound, and leave the others."""
    images.reshape(len(images), -1)[5, :only] += np.where(images.reshape(len(images), -1)[5, :only] > 0.5, -by, by)
    return images


@brought(
    what="an attack that leaves its budget",
    typed="FunctionAttack(attack, epsilon=0.1)",
    got="the message: which image, and how far it is",
)
@pytest.mark.parametrize(
    ("norm", "epsilon", "by", "only", "far"),
    [("linf", 0.1, 0.11, 3, "0.11"), ("l2", 0.2, 0.11, 4, "0.22"), ("l0", 2, 0.1, 9, "3")],
)
def test_a_budget_is_checked(norm: Any, epsilon: float, by: float, only: int, far: str) -> None:
    model = network("functions")
    images, labels = labelled(model)
    message = rf"test_brought_attacks:moved left its budget at image 5: expected {norm} ≤ {epsilon:g}, received {far}"
    with pytest.raises(AttackError, match=message):
        FunctionAttack(moved, norm=norm, epsilon=epsilon, by=by, only=only).attack(model, images, labels)
    wider = FunctionAttack(moved, norm=norm, epsilon=epsilon * 1.5, by=by, only=only)
    assert wider.attack(model, images, labels).success.shape == (N,)


BROKEN: dict[str, tuple[Callable[..., Any], str, str]] = {
    "images beyond [0, 1]": (lambda m, x, y: x + 0.1, "clip its images", r"left \[0, 1\] at image 0, by 0\.\d+: clip"),
    "NaN in its images": (lambda m, x, y: x * np.nan, "which image is no number", r"left \[0, 1\] at image 0, by nan"),
    "8-bit images": (lambda m, x, y: (x * 255).astype(np.uint8), "return float32 in [0, 1]", "float32 in .* uint8"),
    "another shape": (
        lambda m, x, y: x[:, :4],
        "which shape was expected",
        r"\(16, 8, 8, 3\) as \(N, H, W, C\), received float32 \(16, 4, 8, 3\)",
    ),
    "more than its images": (lambda m, x, y: (x, y), "return the images alone", "images alone, received tuple"),
    "nothing": (lambda m, x, y: None, "return the images alone", "images alone, received NoneType"),
    "an exception": (
        lambda m, x, y: 1 / 0,
        "which attack failed, where and how",
        "failed on a model of numpy: ZeroDivisionError",
    ),
}


@pytest.mark.parametrize(
    "what",
    [
        pytest.param(
            what,
            marks=brought(
                what=f"an attack that returns {what}".replace("returns an exc", "raises an exc"),
                typed="FunctionAttack(attack, epsilon=0.1)",
                got=f"the message: {got}",
            ),
        )
        for what, (_, got, _) in BROKEN.items()
    ],
)
def test_what_a_function_returns_is_checked(what: str) -> None:
    model = network("functions")
    with pytest.raises(AttackError, match=BROKEN[what][2]) as caught:
        FunctionAttack(BROKEN[what][0], epsilon=EPSILON, needs_gradient=False).attack(model, *labelled(model))
    assert "\n" not in str(caught.value)


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
    assert settings["function"] == "test_brought_attacks:away"
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


@brought(what="an attack of yours in the command", typed="robustcmp eval --suite guo2019 mine=module:function")
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
    ev = rc.evaluate({"m": model}, images, labels, suite=suite, n=N, repeats=1, progress=False)
    assert "no gradient" in ev.results.reasons("not_applicable")["m"]["away"]
    assert 0 < ev.results.rates()["m"]["noise"] < 1
    with pytest.raises(ModelError, match="no gradient"):
        FunctionAttack(away, epsilon=EPSILON, needs_gradient=False).attack(model, images, labels)

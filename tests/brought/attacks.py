"""Attacks that people bring: they run on models of every framework within their budget, or a message names it."""

from __future__ import annotations

import inspect
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
from brought import Case, Figures, library
from robustcmp.attacks import FGSM, FunctionAttack
from robustcmp.attacks.suite import FOOLBOX, load_suite
from robustcmp.errors import ModelError
from robustcmp.models.classifier import Classifier

N, SIDE, CLASSES, EPSILON = 16, 8, 3, 0.1
PIXELS = SIDE * SIDE * 3
FRAMEWORKS = ["torch", "tensorflow", "jax", "functions"]


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


def plain(images: NDArray[np.float32]) -> NDArray[np.int64]:
    """Return the classes of the network, without robustcmp."""
    hidden, out = weights()
    classes: NDArray[np.int64] = (np.maximum(images.reshape(len(images), -1) @ hidden, 0) @ out).argmax(axis=1)
    return classes


# other libraries ------------------------------------------------------------------------------------------------------


def torchattacks(model: Any, images: Any, labels: Any, epsilon: float, steps: int) -> Any:
    return library("torchattacks").PGD(model, eps=epsilon, alpha=epsilon / 4, steps=steps)(images, labels)


def pyautoattack(model: Any, images: Any, labels: Any, epsilon: float, seed: int) -> Any:
    attack = library("pyautoattack").AutoAttack(
        model, eps=epsilon, seed=seed, version="custom", attacks=["apgd-ce", "square"]
    )
    attack.apgd.n_iter, attack.apgd.n_restarts, attack.square.n_queries = 5, 1, 5
    return attack.run_standard_evaluation(images, labels)[0]


def art(model: Any, images: Any, labels: Any, epsilon: float, steps: int) -> Any:
    estimators = library("art.estimators.classification")
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


def compare_libraries(attack: FunctionAttack, case: Case) -> Figures:
    """Attack the same network in every framework, and compare with FGSM of the same budget."""
    labels = plain(drawn())
    models = {framework: network(framework) for framework in FRAMEWORKS}
    suite = {"theirs": attack, "fgsm": FGSM(epsilons=10, max_epsilon=EPSILON)}
    before = generators()
    ev = rc.evaluate(models, drawn(), labels, suite=suite, n=N, repeats=1, batch_size=4, progress=False)
    assert generators() == before
    rates = {framework: rates["theirs"] for framework, rates in ev.results.rates().items()}
    yield [rates[framework] for framework in FRAMEWORKS], len(FRAMEWORKS) * [rates["torch"]]
    assert rates["torch"] >= 0.9 * ev.results.rates()["torch"]["fgsm"] > 0
    outcomes = ev.dataset.sel(attack="theirs")
    assert (outcomes.linf.values[outcomes.success.values.astype(bool)] <= EPSILON + 1e-6).all()


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


def of_foolbox(name: str) -> Any:
    """Return an attack of Foolbox from a suite, with few steps, and the budgets of its norm if it needs some."""
    cls = FOOLBOX[name]
    few = {key: value for key, value in FEW.items() if key in inspect.signature(cls).parameters}
    table: dict[str, Any] = few | OTHER.get(name, {})
    if issubclass(cls, fb.attacks.base.FixedEpsilonAttack):
        table["epsilons"] = [0.5 * budget(name), budget(name)]
    lines = ["[attacks.x]", f'attack = "{name}"', *(f"{key} = {value}" for key, value in table.items())]
    Path("x.toml").write_text("\n".join(lines))
    return load_suite("x.toml").attacks["x"]


def budget(name: str) -> float:
    return 60.0 if name.startswith(("L1", "Sparse")) else 8.0 if name.startswith(("L2", "Virtual", "Gen")) else 0.5


def attack_with_foolbox(name: str, framework: str) -> Any:
    return next(of_foolbox(name).outcomes(Classifier(network(framework), 6), drawn(6), plain(drawn(6)), 0, [0]))


def judge_foolbox(framework: str, case: Case) -> Figures:
    """Judge the images of Foolbox's attacks without robustcmp, or see the message of what fails in Foolbox."""
    library("torch")  # through which they get gradients of functions
    for name in LABELS_ALONE:
        if (name, framework) in FAILING:
            with pytest.raises(ModelError, match=failure(name, FAILING[name, framework])):
                attack_with_foolbox(name, framework)
            continue
        result = attack_with_foolbox(name, framework)
        assert result.success.any()
        yield plain(result.adversarials) != plain(drawn(6)), result.success
        if issubclass(FOOLBOX[name], fb.attacks.base.FixedEpsilonAttack):
            far = np.abs(result.adversarials - drawn(6)).reshape(6, -1).astype(np.float64)
            sizes = {60.0: far.sum(axis=1), 8.0: np.sqrt((far**2).sum(axis=1)), 0.5: far.max(axis=1)}
            assert (sizes[budget(name)] <= budget(name) * (1 + 1e-5)).all()


def failure(name: str, message: str) -> str:
    return rf"Foolbox's {name} cannot attack a model of \w+: .*{message}.* Leave it out"


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


def compare_functions(attack: FunctionAttack, case: Case) -> Figures:
    """Attack models of every framework with a step along a gradient, and take the step without robustcmp."""
    images, labels = drawn(), plain(drawn())
    hidden, out = weights()
    slopes = (-out.T[labels] * (images.reshape(N, -1) @ hidden > 0)) @ hidden.T
    expected = np.clip(images + np.float32(EPSILON) * np.sign(slopes.reshape(images.shape)), 0, 1)
    fooled = plain(expected) != labels
    assert 0 < fooled.sum() < N
    for framework in FRAMEWORKS[: 3 if attack.takes == "foolbox" else 4]:
        result = attack.attack(network(framework), images, labels)
        yield result.success, fooled
        yield result.adversarials, np.where(fooled[:, None, None, None], expected, images)
        yield result.linf[fooled], EPSILON


def moved(model: Any, images: Any, labels: Any, by: float, only: int) -> Any:
    """Move some values of one image, away from the nearer bound, and leave the others."""
    images.reshape(len(images), -1)[5, :only] += np.where(images.reshape(len(images), -1)[5, :only] > 0.5, -by, by)
    return images


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


def break_off(attack: FunctionAttack) -> None:
    model = network("functions")
    attack.attack(model, drawn(), plain(drawn()))


Brought = partial(Case, "Attacks from elsewhere")
Own = partial(Brought, figures=compare_functions, near=1e-6)
Foolbox = partial(Brought, typed='[attacks.x] attack = "NAME"')
CASES = [
    *(
        Brought(
            f"{name}, on models of every framework",
            typed,
            make,
            figures=compare_libraries,
            marks=[pytest.mark.filterwarnings("default")],  # theirs
        )
        for name, (typed, make) in LIBRARIES.items()
    ),
    *(
        Foolbox(
            f"Foolbox: {len(LABELS_ALONE)} attacks that take labels alone, on "
            f"{framework.replace('functions', 'wrap_functions')} models",
            make=partial(str, framework),
            got="a comparison"
            + "".join(f"; {name} fails in Foolbox, with a message" for name, of in FAILING if of == framework),
            figures=judge_foolbox,
            marks=[pytest.mark.whole_zoo] if framework in ("tensorflow", "jax") else [],  # two minutes
        )
        for framework in FRAMEWORKS
    ),
    *(
        Foolbox(
            f"Foolbox: {name}, which needs more than labels",
            make=partial(attack_with_foolbox, name, "functions"),
            got="the message: call it in a function",
            message=failure(name, message),
        )
        for name, message in MORE_THAN_LABELS.items()
    ),
    Own(
        "a function of yours, of NumPy arrays",
        "FunctionAttack(attack, epsilon=0.1)",
        lambda: FunctionAttack(away, epsilon=EPSILON, deterministic=True),
    ),
    Own(
        "a function of yours, of torch tensors, on models of every framework",
        'FunctionAttack(attack, epsilon=0.1, takes="torch")',
        lambda: FunctionAttack(away_in_torch, epsilon=EPSILON, takes="torch", deterministic=True),
    ),
    Own(
        "a function of yours, of a Foolbox model and its own tensors",
        'FunctionAttack(attack, epsilon=0.1, takes="foolbox")',
        lambda: FunctionAttack(away_in_foolbox, epsilon=EPSILON, takes="foolbox", deterministic=True),
    ),
    *(
        Brought(
            f"an attack that leaves its budget of {norm}",
            "FunctionAttack(attack, epsilon=0.1)",
            lambda norm=norm, epsilon=epsilon, by=by, only=only: break_off(
                FunctionAttack(moved, norm=norm, epsilon=epsilon, by=by, only=only)
            ),
            "the message: which image, and how far it is",
            f"attacks:moved left its budget at image 5: expected {norm} ≤ {epsilon:g}, received {far}",
        )
        for norm, epsilon, by, only, far in (
            ("linf", 0.1, 0.11, 3, "0.11"),
            ("l2", 0.2, 0.11, 4, "0.22"),
            ("l0", 2, 0.1, 9, "3"),
        )
    ),
    *(
        Brought(
            f"an attack that {'raises' if 'exception' in what else 'returns'} {what}",
            "FunctionAttack(attack, epsilon=0.1)",
            lambda function=function: break_off(FunctionAttack(function, epsilon=EPSILON, needs_gradient=False)),
            f"the message: {got}",
            message,
        )
        for what, (function, got, message) in BROKEN.items()
    ),
]

"""Any code as a model: functions of NumPy arrays behave as the network that they come from."""

from __future__ import annotations

from typing import Any

import foolbox as fb
import numpy as np
import pytest
from numpy.typing import NDArray

import robustcmp as rc
from robustcmp.attacks import FGSM, Boundary, SinglePixel
from robustcmp.attacks.base import Attack
from robustcmp.data.dataset import Dataset
from robustcmp.errors import ModelError, UsageError
from robustcmp.models.classifier import Classifier
from robustcmp.models.model import FunctionsModel
from robustcmp.models.preflight import check_model, in_unit_bounds

N = 24


def functions(model: fb.models.base.Model, **more: Any) -> FunctionsModel:
    """The functions of a model, as code of one's own would have them."""
    classifier = Classifier(model)
    return rc.wrap_functions(**{"logits": classifier.logits, "vjp": classifier.vjp, "bounds": model.bounds} | more)


def linear(seed: int = 0) -> tuple[Any, Any]:
    """A linear classifier of 4 × 4 images, and its gradient."""
    weights = np.random.default_rng(seed).normal(size=(16, 3)).astype(np.float32)
    return lambda x: x.reshape(len(x), 16) @ weights, lambda x, v: (v @ weights.T).reshape(x.shape)


def drawn(n: int = 6, lower: float = 0, upper: float = 1) -> NDArray[np.float32]:
    return np.random.default_rng(1).uniform(lower, upper, (n, 4, 4, 1)).astype(np.float32)


@pytest.mark.parametrize(
    "attack",
    [FGSM(epsilons=20), SinglePixel(max_pixels=30), Boundary(iterations=8)],
    ids=lambda its: type(its).__name__,
)
def test_attacks_find_what_they_find_on_the_network(zoo_model: Any, digits: Dataset, attack: Attack) -> None:
    model = zoo_model("torch")
    n = 10 if isinstance(attack, Boundary) else N  # a start alone is up to a thousand questions an image
    x, y = digits.images[:n], digits.labels[:n]
    own, bridged = (attack.attack(its, x, y, seed=3) for its in (model, functions(model)))
    for name in ("success", "l0", "l2", "linf", "queries", "adversarial_class"):
        np.testing.assert_array_equal(getattr(own, name), getattr(bridged, name), err_msg=name)
    np.testing.assert_array_equal(own.adversarials, bridged.adversarials)


@pytest.mark.parametrize("bounds", [(0, 1), (-1, 3)])
@pytest.mark.parametrize("outputs", ["logits", "probabilities"])
def test_gradients_follow_the_bounds_and_the_outputs(bounds: tuple[float, float], outputs: str) -> None:
    logits, vjp = linear()

    def probabilities(x: NDArray[np.float32]) -> NDArray[np.float32]:
        p: NDArray[np.float32] = np.exp(logits(x))
        return p / p.sum(axis=1, keepdims=True)

    def vjp_of_probabilities(x: NDArray[np.float32], v: NDArray[np.float32]) -> NDArray[np.float32]:
        p = probabilities(x)
        return vjp(x, p * (v - (p * v).sum(axis=1, keepdims=True)))

    if outputs == "logits":
        model = rc.wrap_functions(logits=logits, vjp=vjp, bounds=bounds)
    else:
        model = rc.wrap_functions(logits=probabilities, vjp=vjp_of_probabilities, bounds=bounds, outputs=outputs)
    lower, upper = bounds
    x, v = drawn(), np.random.default_rng(2).normal(size=(6, 3)).astype(np.float32)
    classifier = Classifier(in_unit_bounds(model))
    inner = lower + (upper - lower) * x
    z, direction = logits(inner), v
    if outputs == "probabilities":
        p = probabilities(inner)
        z, direction = np.log(p), v - p * v.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(classifier.logits(x), z, atol=1e-5)
    np.testing.assert_allclose(classifier.vjp(x, v), (upper - lower) * vjp(inner, direction), atol=1e-4)


@pytest.mark.parametrize("shape", [(-1,), (-1, 1)])
@pytest.mark.parametrize("outputs", ["binary-logit", "binary-probability"])
def test_one_number_for_two_classes(outputs: str, shape: tuple[int, ...]) -> None:
    logits, vjp = linear()
    one, other = np.float32([0, 1, 0]), np.float32([0, -1, 0])
    bounds = (-1, 3)

    def number(x: NDArray[np.float32]) -> NDArray[np.float32]:
        z = logits(x)[:, 1].reshape(shape)
        return z if outputs == "binary-logit" else 1 / (1 + np.exp(-z))

    def vjp_of_number(x: NDArray[np.float32], v: NDArray[np.float32]) -> NDArray[np.float32]:
        assert v.shape == number(x).shape
        p = number(x)
        slope = 1 if outputs == "binary-logit" else p * (1 - p)
        return vjp(x, (v * slope).reshape(-1, 1) * one)

    model = rc.wrap_functions(logits=number, vjp=vjp_of_number, bounds=bounds, outputs=outputs)
    x, v = drawn(), np.random.default_rng(2).normal(size=(6, 2)).astype(np.float32)
    classifier, inner = Classifier(in_unit_bounds(model)), -1 + 4 * drawn()
    z = logits(inner)[:, 1]
    p = 1 / (1 + np.exp(-z))
    expected = np.stack([0 * z, z] if outputs == "binary-logit" else [np.log(1 - p), np.log(p)], axis=1)
    np.testing.assert_allclose(classifier.logits(x), expected, atol=1e-5)
    np.testing.assert_array_equal(classifier.predict(x), (z > 0).astype(np.int64))
    along = v[:, 1] if outputs == "binary-logit" else v[:, 1] * (1 - p) - v[:, 0] * p
    np.testing.assert_allclose(classifier.vjp(x, v), 4 * vjp(inner, along[:, None] * one), atol=1e-4)
    assert not np.allclose(classifier.vjp(x, v), 4 * vjp(inner, along[:, None] * other), atol=1e-4)
    check_model("m", classifier, x, np.zeros(6, np.int64))


def test_torch_tensors_have_the_gradient_of_vjp() -> None:
    torch = pytest.importorskip("torch")
    logits, vjp = linear()
    model = in_unit_bounds(rc.wrap_functions(logits=logits, vjp=vjp, bounds=(-1, 3)))
    x = torch.tensor(drawn(), requires_grad=True)
    z = model(x)
    np.testing.assert_allclose(z.detach().numpy(), model(drawn()), atol=1e-6)
    z[:, 1].sum().backward()
    v = np.tile(np.float32([0, 1, 0]), (6, 1))
    np.testing.assert_allclose(x.grad.numpy(), 4 * vjp(drawn(), v), atol=1e-5)


def test_without_a_gradient_a_gradient_attack_is_refused(digits: Dataset, zoo_model: Any) -> None:
    model = functions(zoo_model("jax"), vjp=None)
    x, y = digits.images[:N], digits.labels[:N]
    with pytest.raises(ModelError, match=r'wrap_functions got no vjp.*single pixel.*vjp="finite-differences"'):
        FGSM(epsilons=5).attack(model, x, y)
    # Those that need none run.
    for attack in (SinglePixel(max_pixels=3), Boundary(iterations=2)):
        assert attack.attack(model, x, y).queries.sum() > 0


@pytest.mark.parametrize("bounds", [(0, 1), (-1, 3)])
def test_finite_differences_are_the_gradient_where_it_is_one(bounds: tuple[float, float]) -> None:
    logits, vjp = linear()
    asked: list[int] = []

    def counted(x: NDArray[np.float32]) -> NDArray[np.float32]:
        assert bounds[0] <= x.min() <= x.max() <= bounds[1]
        asked.append(len(x))
        answer: NDArray[np.float32] = logits(x)
        return answer

    model = rc.wrap_functions(logits=counted, vjp="finite-differences", bounds=bounds)
    x, v = drawn(6, *bounds), np.random.default_rng(2).normal(size=(6, 3)).astype(np.float32)
    x[0], x[1] = bounds  # nothing outside is asked
    np.testing.assert_allclose(Classifier(model).vjp(x, v), vjp(x, v), rtol=1e-3, atol=1e-3)
    assert sum(asked) == 6 * 2 * 16


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"logits": 3}, "logits should be a function of images, received int"),
        ({"vjp": "finite"}, "vjp should be a function"),
        ({"bounds": (1, 0)}, "the smaller one first"),
        ({"outputs": "softmax"}, "softmax"),
    ],
)
def test_what_cannot_be_wrapped(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        rc.wrap_functions(**{"logits": linear()[0]} | arguments)


@pytest.mark.parametrize(
    ("logits", "vjp", "message"),
    [
        (lambda x: linear()[0](x)[:-1], None, "logits"),
        (lambda x: linear()[0](x) * np.nan, None, "NaN"),
        (lambda x: linear()[0](x).astype(str), None, "dtype <U"),
        (linear()[0], lambda x, v: v, r"of the images' shape .*, received the shape \(6, 3\)"),
        (linear()[0], lambda x, v: linear()[1](x, v) * 0, "gradient of model 'm' is zero"),
    ],
    ids=["short", "nan", "text", "shape of the gradient", "no gradient"],
)
def test_functions_that_answer_wrongly(logits: Any, vjp: Any, message: str) -> None:
    model = rc.wrap_functions(logits=logits, vjp=vjp or linear()[1])
    with pytest.raises(ModelError, match=message):
        rc.evaluate({"m": model}, drawn(), linear()[0](drawn()).argmax(axis=1), suite="smoke", progress=False)

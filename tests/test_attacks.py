"""The attacks against the plain reference, on every framework, and as Foolbox attacks."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import foolbox as fb
import numpy as np
import pytest
import reference as ref
from conftest import NumpyNetwork
from numpy.typing import NDArray

import robustcmp as rc
from robustcmp.attacks import FGSM, Attack, AttackResult, Boundary, SinglePixel, base, boundary
from robustcmp.attacks.base import first_on_grid
from robustcmp.data.dataset import Dataset
from robustcmp.errors import ModelError, UsageError
from robustcmp.frameworks import TrainableFramework
from robustcmp.models.classifier import Candidates, Classifier
from robustcmp.models.model import Model
from robustcmp.networks.architecture import Architecture, get_architecture
from robustcmp.networks.weights import Weights

UNIT = (0.0, 1.0)
NEAR_TIE = 1e-4  # the margin of the top two logits below which floating point may decide

Zoo = Callable[..., Model]


class Images(NamedTuple):
    images: NDArray[np.float32]
    labels: NDArray[np.int64]


def correct(model: Model, data: Dataset, contrast: float = 1.0) -> Images:
    """The images that a model classifies correctly, those with the smallest margin first."""
    images = (data.images * contrast).astype(np.float32)
    logits = Classifier(model).logits(images)
    right = np.flatnonzero(logits.argmax(axis=1) == data.labels)
    top = np.sort(logits[right], axis=1)
    order = right[np.argsort(top[:, -1] - top[:, -2], kind="stable")]
    return Images(images[order], data.labels[order])


Walks = dict[int, list[ref.Decision]]


@pytest.fixture
def walks(monkeypatch: pytest.MonkeyPatch) -> Walks:
    """Every decision of the boundary attack, by image, with its margin."""
    recorded: Walks = defaultdict(list)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")  # or images are cut into parts, which would be recorded as one

    margins: list[float] = []

    def classes(self: Any, infer: Callable[..., Any], *arrays: NDArray[Any]) -> NDArray[np.int64]:
        if not len(arrays[0]):
            return np.zeros(0, np.int64)
        logits = self._join(infer, *arrays)
        top = np.sort(logits, axis=1)
        margins[:] = (top[:, -1] - top[:, -2]).tolist()
        answer: NDArray[np.int64] = logits.argmax(axis=1)
        return answer

    def record(rows: NDArray[np.int64], fooled: NDArray[np.bool_]) -> None:
        if len(rows):
            for row, yes, margin in zip(rows.tolist(), fooled.tolist(), margins, strict=True):
                recorded[row].append(ref.Decision(0, 0, 0, yes, margin))

    class Recorded(Candidates):
        def __init__(self, *arguments: Any):
            super().__init__(*arguments)
            self.labels, self.pending = np.zeros(0, np.int64), np.arange(len(arguments[-1]))
            self.finished: set[int] = set()

        def predict(self, rows: NDArray[np.int64], *of_each: NDArray[Any]) -> NDArray[np.int64]:
            answer = super().predict(rows, *of_each)
            asked = self.pending[rows]
            fooled = answer != self.labels[asked]
            in_order = zip(asked.tolist(), fooled.tolist(), margins, strict=True)
            for row, yes, margin in in_order:
                if row not in self.finished:  # others were asked in advance
                    recorded[row].append(ref.Decision(0, 0, 0, yes, margin))
                if yes:
                    self.finished.add(row)
            return answer

        def keep(self, rows: NDArray[np.int64]) -> None:
            super().keep(rows)
            self.pending = self.pending[rows]

    def searched(candidates: Any, labels: NDArray[np.int64], grid: list[float]) -> Any:
        candidates.labels = labels
        return first_on_grid(candidates, labels, grid)

    fools = boundary._Walk.fools

    def fools_recorded(self: Any, rows: NDArray[np.int64], points: NDArray[np.float64]) -> NDArray[np.bool_]:
        fooled = fools(self, rows, points)
        record(rows, fooled)
        return fooled

    monkeypatch.setattr(Classifier, "classes", classes)
    monkeypatch.setattr(boundary, "Candidates", Recorded)
    monkeypatch.setattr(boundary, "first_on_grid", searched)
    monkeypatch.setattr(boundary._Walk, "fools", fools_recorded)
    return recorded


def same_walk(ours: list[ref.Decision], theirs: list[ref.Decision]) -> bool:
    """Say whether two walks decided alike; where they first part, both must be at a near tie."""
    for i, (a, b) in enumerate(zip(ours, theirs, strict=False)):
        if a.fooled != b.fooled:
            assert max(a.margin, b.margin) < NEAR_TIE, f"query {i}: margins {a.margin} and {b.margin}"
            return False
    assert len(ours) == len(theirs)
    return True


def assert_agrees(result: AttackResult, i: int, outcome: ref.Outcome) -> None:
    assert bool(result.success[i]) == outcome.success
    assert result.queries[i] == outcome.queries
    assert result.adversarial_class[i] == outcome.adversarial_class
    assert result.l0[i] == outcome.l0
    np.testing.assert_allclose([result.l2[i], result.linf[i]], [outcome.l2, outcome.linf], rtol=1e-6)
    np.testing.assert_allclose(result.adversarials[i], outcome.adversarial, atol=1e-6)


# agreement with the reference ----------------------------------------------------------------------------------------


def test_fgsm_agrees_with_the_reference(framework: TrainableFramework, zoo_model: Zoo, digits: Dataset) -> None:
    model = zoo_model(framework)
    x, y = correct(model, digits)
    x, y = x[:16], y[:16]
    one = Classifier(model, batch_size=1)
    result = FGSM().attack(model, x, y)
    for i in range(len(x)):
        outcome = ref.fgsm(one.logits, one.vjp, x[i], int(y[i]), UNIT)
        assert_agrees(result, i, outcome)
        assert result.extras["smallest_epsilon"][i] == outcome.extras["epsilon"]
    assert result.success.sum() > 4


def test_single_pixel_agrees_with_the_reference(framework: TrainableFramework, zoo_model: Zoo, digits: Dataset) -> None:
    model = zoo_model(framework)
    x, y = correct(model, digits, contrast=0.5)
    x, y = x[:24:4], y[:24:4]
    one = Classifier(model, batch_size=1)
    for repeat in range(2):
        result = SinglePixel(max_pixels=50).attack(model, x, y, seed=3, repeat=repeat)
        for i in range(len(x)):
            outcome = ref.single_pixel(one.logits, x[i], int(y[i]), UNIT, 3, repeat, max_pixels=50)
            assert_agrees(result, i, outcome)
        assert 0 < result.success.sum() < len(x)


def test_exact_single_pixel_finds_every_vulnerable_position(
    framework: TrainableFramework, zoo_model: Zoo, digits: Dataset
) -> None:
    model = zoo_model(framework)
    x, y = correct(model, digits, contrast=0.5)
    one = Classifier(model, batch_size=1)
    result = SinglePixel(max_pixels=1, exact=True).attack(model, x[:1], y[:1])
    expected = ref.vulnerable_pixels(one.logits, x[0], int(y[0]), UNIT).reshape(-1)
    assert result.extras["vulnerable_pixels"].tolist() == [expected.sum()]
    np.testing.assert_array_equal(np.unpackbits(result.extras["vulnerable_map"][0], count=784), expected)
    assert result.extras["pixels"].tolist() == [784]
    assert 0 < expected.sum() < 784


@pytest.mark.parametrize(("n", "iterations"), [(2, 25), pytest.param(6, 100, marks=pytest.mark.slow)])
def test_boundary_agrees_with_the_reference(
    framework: TrainableFramework, zoo_model: Zoo, digits: Dataset, walks: Walks, n: int, iterations: int
) -> None:
    model = zoo_model(framework)
    x, y = correct(model, digits)
    x, y = x[-n:], y[-n:]
    one = Classifier(model, batch_size=1)
    result = Boundary(iterations=iterations).attack(model, x, y, seed=1, repeat=2)
    together = 0
    for i in range(len(x)):
        outcome = ref.boundary(one.logits, x[i], int(y[i]), UNIT, 1, 2, iterations=iterations)
        if same_walk(walks[i], outcome.extras["decisions"]):
            together += 1
            assert_agrees(result, i, outcome)
            assert result.extras["start"][i] == outcome.extras["start"]
            np.testing.assert_allclose(result.extras["l2_half"][i], outcome.extras["l2_half"], rtol=1e-6)
            np.testing.assert_allclose(result.extras["source_step"][i], outcome.extras["source_step"], rtol=1e-12)
    assert together >= n - 1


@pytest.mark.slow
def test_long_boundary_agrees_with_the_reference(
    framework: TrainableFramework, zoo_model: Zoo, digits: Dataset, walks: Walks
) -> None:
    model = zoo_model(framework, "lenet1")
    x, y = correct(model, digits)
    x, y = x[-2:], y[-2:]
    one = Classifier(model, batch_size=1)
    attack = Boundary(iterations=1000, max_directions=25)
    result = attack.attack(model, x, y)
    adapted = 0
    for i in range(len(x)):
        outcome = ref.boundary(one.logits, x[i], int(y[i]), UNIT, 0, 0, iterations=1000, max_directions=25)
        if same_walk(walks[i], outcome.extras["decisions"]):
            assert_agrees(result, i, outcome)
            np.testing.assert_allclose(
                [result.extras["source_step"][i], result.extras["spherical_step"][i]],
                [outcome.extras["source_step"], outcome.extras["spherical_step"]],
                rtol=1e-12,
            )
        adapted += sum(outcome.extras["adaptations"].values())
    assert adapted > 10


# planted landscapes --------------------------------------------------------------------------------------------------


DIRECTIONS = np.random.default_rng(5).normal(size=(2, 4 * 4))


def waves(x: NDArray[np.float64]) -> float:
    """A function that is positive for few points, here and there: a landscape in which a walk cannot settle."""
    return float(np.sin(150 * DIRECTIONS @ x.reshape(-1)).sum() - 1.75)


def on_ray(ray: NDArray[np.float64], x: NDArray[np.float64]) -> float:
    """Positive on the ray from 0 through a point."""
    cosine = float((x * ray).sum()) / max(ref.norm(x) * ref.norm(ray), 1e-300)
    return (cosine - (1 - 1e-6)) * 1e6


def landscape(ray: NDArray[np.float64], x: NDArray[np.float64]) -> float:
    """Adversarial where positive, around the image 0: what makes the attack adapt its steps in all four ways.

    The ray to the first noise is adversarial from 1.5 on, so that the attack starts there; beside it waves that
    seldom fool (both steps shrink), inside everything does (the source step grows), and in the innermost ball
    nothing (spherical candidates always fool, candidates nearer to the image never).
    """
    d = ref.norm(x)
    return max(min(on_ray(ray, x), d - 1.5), min(d - 0.02, max(0.9 - d, waves(x)), -on_ray(ray, x)))


def dead_end(ray: NDArray[np.float64], x: NDArray[np.float64]) -> float:
    """A sphere of which few points are adversarial, and nothing inside: the steps shrink to nothing."""
    d = ref.norm(x)
    return max(min(on_ray(ray, x), d - 1.5), min(d - 1.4999, waves(x), -on_ray(ray, x)))


def planted(value: Callable[[NDArray[np.float64], NDArray[np.float64]], float], bounds: tuple[float, float]) -> Any:
    """A Foolbox model of two classes, in NumPy: class 1 where the value is positive."""
    image = np.zeros((4, 4, 1), np.float32)
    ray = ref.start_noise(image, bounds, 0, 0, 0)

    @cache  # the attack and the reference ask about the same points
    def value_of(point: bytes) -> float:
        return value(ray, np.frombuffer(point, np.float32).reshape(image.shape).astype(np.float64))

    def logits(x: NDArray[np.float32]) -> NDArray[np.float64]:
        return np.array([[0, value_of(point.tobytes())] for point in x])

    return fb.NumPyModel(logits, bounds=bounds, data_format="channels_last")


def no_start(ray: NDArray[np.float64], x: NDArray[np.float64]) -> float:
    return -1.0


@pytest.mark.parametrize(
    ("value", "source_step", "reached"),
    [
        (landscape, 0.01, {"spherical_up", "spherical_down", "source_up", "source_down"}),
        (dead_end, 1e-5, {"spherical_down", "source_down", "stopped"}),
        (no_start, 0.01, {"failed start"}),
    ],
)
def test_boundary_agrees_where_it_adapts_stops_and_fails(
    value: Callable[..., float], source_step: float, reached: set[str], walks: Walks
) -> None:
    bounds = (-1.0, 1.0)
    model = planted(value, bounds)
    images, labels = np.zeros((1, 4, 4, 1), np.float32), np.zeros(1, np.int64)
    settings: dict[str, Any] = {"iterations": 1000, "max_directions": 25, "source_step": source_step}
    [result] = Boundary(**settings).outcomes(Classifier(model), images, labels, 0, [0])
    outcome = ref.boundary(Classifier(model, 1).logits, images[0], 0, bounds, 0, 0, **settings)
    extras = outcome.extras
    seen = {name for name, count in extras["adaptations"].items() if count}
    seen |= {"stopped"} if extras["stopped"] else set()
    seen |= set() if extras["start"] else {"failed start"}
    assert seen >= reached
    assert same_walk(walks[0], extras["decisions"])
    assert_agrees(result, 0, outcome)
    for name in ("start", "source_step", "spherical_step", "l2_half"):
        np.testing.assert_allclose(result.extras[name][0], extras[name], rtol=1e-9)


def test_an_image_without_a_start_fails_alone(zoo_model: Zoo, digits: Dataset) -> None:
    # Class 0 is what the model says of everything but the images themselves.
    images, labels = digits.images[:6], np.array([0, 1, 2, 0, 1, 2])
    known = {image.tobytes(): label for image, label in zip(images, labels, strict=True)}

    def logits(x: NDArray[np.float32]) -> NDArray[np.float32]:
        return np.eye(3, dtype=np.float32)[[known.get(image.tobytes(), 0) for image in x]]

    model = fb.NumPyModel(logits, bounds=UNIT, data_format="channels_last")
    result = Boundary(iterations=3).attack(model, images, labels)
    assert result.success.tolist() == [False, True, True] * 2
    assert result.extras["start"].tolist() == [False, True, True] * 2
    failed = ~result.success
    assert np.isinf(result.l2[failed]).all()
    assert (result.adversarial_class[failed] == -1).all()
    assert (result.queries[failed] == 2000).all()
    np.testing.assert_array_equal(result.adversarials[failed], images[failed])


def test_a_result_counts_only_if_a_separate_pass_says_so(digits: Dataset) -> None:
    answers = 0

    def logits(x: NDArray[np.float32]) -> NDArray[np.float32]:
        nonlocal answers
        answers += len(x)
        fooled = answers <= 10  # the start is found, and then taken back
        return np.tile(np.array([0, 1] if fooled else [1, 0], np.float32), (len(x), 1))

    model = fb.NumPyModel(logits, bounds=UNIT, data_format="channels_last")
    result = Boundary(iterations=2).attack(model, digits.images[:4], np.zeros(4, np.int64))
    assert result.extras["start"].all()
    assert not result.success.any()
    np.testing.assert_array_equal(result.adversarials, digits.images[:4])


# FGSM on a confident network -----------------------------------------------------------------------------------------


@pytest.mark.needs("first of equals")
def test_fgsm_on_a_confident_network(
    framework: TrainableFramework,
    zoo_model: Zoo,
    digits: Dataset,
    numpy_network: Callable[[Architecture, Weights], NumpyNetwork],
) -> None:
    """Logits × 5: the gradient of the cross-entropy is zero in float32, and in float64 by way of the probabilities."""
    architecture = get_architecture("lenet5")
    native = framework.build(architecture, 0, "cpu")
    weights = dict(zoo_trained(framework))
    weights |= {name: 5 * weights[name] for name in ("logits/kernel", "logits/bias")}
    framework.set_weights(native, architecture, weights)
    model = rc.wrap(native, framework=framework.name, device="cpu")
    x, y = correct(model, digits)
    x, y = x[::20], y[::20]
    result = FGSM().attack(model, x, y)
    exact = numpy_network(architecture, weights)
    outcomes = [ref.fgsm(exact.logits, exact.vjp, x[i], int(y[i]), UNIT) for i in range(len(x))]
    assert result.success.tolist() == [outcome.success for outcome in outcomes]
    np.testing.assert_array_equal(result.linf, [outcome.linf for outcome in outcomes])
    assert 2 < result.success.sum() < len(x)

    logits = Classifier(model).logits(x)
    p = np.exp(logits - logits.max(axis=1, keepdims=True)).astype(np.float32)
    p /= p.sum(axis=1, keepdims=True)
    drowned = (p - np.eye(10, dtype=np.float32)[y]) == 0
    assert drowned.all(axis=1).sum() >= 3  # plain autograd would see no gradient at all in these


def zoo_trained(framework: TrainableFramework) -> Weights:
    from robustcmp.sources.from_zoo import FromZoo, find_weights

    content = find_weights(FromZoo("lenet5", "digits", framework.name))
    assert content is not None
    return content.weights


# nothing but (seed, attack, repeat, image) ---------------------------------------------------------------------------

SHORT = Boundary(iterations=30, max_directions=3)
ATTACKS: list[Attack] = [FGSM(), SinglePixel(), SHORT]


@pytest.fixture(params=ATTACKS, ids=lambda attack: type(attack).__name__)
def attack(request: pytest.FixtureRequest) -> Attack:
    """Each of the attacks."""
    chosen: Attack = request.param
    return chosen


def parted(a: AttackResult, b: AttackResult) -> int:
    """How many images have another outcome."""
    same = (
        (a.success == b.success)
        & (a.queries == b.queries)
        & (a.adversarial_class == b.adversarial_class)
        & np.isclose(a.l2, b.l2, rtol=1e-6)
    )
    return int((~same).sum())


@pytest.fixture(scope="module")
def half_fall(zoo_model: Zoo, digits: Dataset) -> Callable[[str, Attack], Images]:
    """Return a function that gives 20 images of little contrast; of those for `SinglePixel`, 12 fall.

    How many fall differs widely: at half the contrast, 7 of 487 of a network of tensorflow@1.15.
    """

    @cache
    def chosen(framework: str, attack: Attack) -> Images:
        model = zoo_model(framework)
        pools = [correct(model, digits, contrast) for contrast in (0.5, 0.25)]
        if not isinstance(attack, SinglePixel):
            return Images(pools[0].images[:20], pools[0].labels[:20])
        x, y = (np.concatenate([part[:100] for part in parts]) for parts in zip(*pools, strict=True))
        fell = attack.attack(model, x, y, seed=5).success
        which = np.sort(np.concatenate([np.flatnonzero(fell)[:12], np.flatnonzero(~fell)[:8]]))
        return Images(x[which], y[which])

    return chosen


@pytest.fixture(scope="module")
def at_once(zoo_model: Zoo, half_fall: Callable[[str, Attack], Images]) -> Callable[[str, Attack], AttackResult]:
    """Return a function that attacks these images in the batches that the attack makes by itself."""

    @cache
    def attacked(framework: str, attack: Attack) -> AttackResult:
        return attack.attack(zoo_model(framework), *half_fall(framework, attack), seed=5)

    return attacked


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
def test_results_do_not_depend_on_the_batch(
    framework: TrainableFramework,
    zoo_model: Zoo,
    attack: Attack,
    compiled: bool,
    half_fall: Callable[[str, Attack], Images],
    at_once: Callable[[str, Attack], AttackResult],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = zoo_model(framework)
    x, y = half_fall(framework.name, attack)
    whole = at_once(framework.name, attack)
    if isinstance(attack, SinglePixel):
        assert len(x) == 20
        assert whole.success.sum() >= 10
    if compiled:
        monkeypatch.setattr(base, "WORTH_COMPILING", 0)
    part = slice(13, 2, -1)
    other = attack.attack(model, x[part], y[part], seed=5, batch_size=7)
    assert parted(other, select(whole, part)) <= 1


def test_repeats_that_are_done_together_are_those_that_are_done_alone(
    zoo_model: Zoo, digits: Dataset, attack: Attack
) -> None:
    model = zoo_model("torch")
    x, y = correct(model, digits, contrast=0.5)
    x, y = x[:6], y[:6]
    together = list(attack.outcomes(Classifier(model), x, y, 5, [2, 0, 1]))
    for repeat, result in zip([2, 0, 1], together, strict=True):
        assert parted(attack.attack(model, x, y, seed=5, repeat=repeat), result) == 0


def test_boundary_parts_only_at_near_ties(zoo_model: Zoo, digits: Dataset, walks: Walks) -> None:
    model = zoo_model("torch")
    x, y = correct(model, digits, contrast=0.5)
    long = Boundary(iterations=50)
    whole = long.attack(model, x[:10], y[:10])
    first = {i: list(decisions) for i, decisions in walks.items()}
    walks.clear()
    reverse = long.attack(model, x[:10][::-1], y[:10][::-1], batch_size=7)
    together = sum(same_walk(walks[9 - i], first[i]) for i in range(10))
    assert together >= 9
    assert parted(select(reverse, slice(None, None, -1)), whole) <= 10 - together


def select(result: AttackResult, part: slice) -> AttackResult:
    """Return the result of some of the images."""
    fields = {name: value[part] for name, value in vars(result).items() if name != "extras"}
    return AttackResult(**fields, extras={name: value[part] for name, value in result.extras.items()})


def test_draws_depend_on_seed_and_repeat(zoo_model: Zoo, digits: Dataset) -> None:
    model = zoo_model("torch")
    x, y = correct(model, digits)
    x, y = x[-3:], y[-3:]
    results = [SHORT.attack(model, x, y, seed=s, repeat=r) for s, r in ((0, 0), (0, 0), (1, 0), (0, 1))]
    np.testing.assert_array_equal(results[0].adversarials, results[1].adversarials)
    assert not np.array_equal(results[0].adversarials, results[2].adversarials)
    assert not np.array_equal(results[0].adversarials, results[3].adversarials)


def test_common_random_numbers(zoo_model: Zoo, digits: Dataset) -> None:
    """Every framework gets the same noise: with the same weights the walks begin at the same points."""
    x, y = digits.images[:4], digits.labels[:4]
    weights = zoo_trained(rc.frameworks.get_framework("torch"))
    architecture = get_architecture("lenet5")
    starts = []
    for name in ("torch", "jax"):
        adapter = rc.frameworks.get_framework(name)
        native = adapter.build(architecture, 0, "cpu")
        adapter.set_weights(native, architecture, weights)
        model = rc.wrap(native, framework=name, device="cpu")
        starts.append(Boundary(iterations=1, max_directions=1).attack(model, x, y).adversarials)
    np.testing.assert_allclose(starts[0], starts[1], atol=1e-6)


def test_no_global_generator_is_touched(zoo_model: Zoo, digits: Dataset, attack: Attack) -> None:
    import random

    model = zoo_model("torch")
    before = random.getstate(), np.random.get_state()  # noqa: NPY002
    attack.attack(model, digits.images[:3], digits.labels[:3])
    after = random.getstate(), np.random.get_state()  # noqa: NPY002
    assert before[0] == after[0]
    np.testing.assert_equal(before[1], after[1])


def test_repeats_share_answers(zoo_model: Zoo, digits: Dataset) -> None:
    """Single pixel asks about one (image, position, value) at most once over all repeats, and never about the image."""
    model = zoo_model("torch")
    x, y = digits.images[:5], digits.labels[:5]
    asked = 0

    def count(n: int) -> None:
        nonlocal asked
        asked += n

    classifier = Classifier(model, asked=count)
    attack = SinglePixel(max_pixels=784)
    list(attack.perturb(classifier, x, y, 0, range(3)))
    different = sum((x != np.float32(value)).any(axis=3).sum() for value in UNIT)
    assert asked == different + len(x)  # and the clean images once


def test_repeats_of_a_deterministic_attack_are_asked_once(zoo_model: Zoo, digits: Dataset) -> None:
    asked: list[int] = []
    classifier = Classifier(zoo_model("torch"), asked=asked.append)
    first = list(FGSM().outcomes(classifier, digits.images[:6], digits.labels[:6], 0, [0]))
    once = sum(asked)
    more = list(FGSM().outcomes(classifier, digits.images[:6], digits.labels[:6], 0, range(3)))
    assert len(more) == 3
    assert sum(asked) == 2 * once
    assert all(parted(result, first[0]) == 0 for result in more)


@pytest.mark.parametrize(("attack", "more"), [(FGSM(), 1), (SHORT, 0)], ids=["FGSM", "Boundary"])
def test_a_batched_attack_asks_hardly_more_than_its_queries(
    zoo_model: Zoo, digits: Dataset, attack: Attack, more: int
) -> None:
    asked: list[int] = []
    classifier = Classifier(zoo_model("torch"), asked=asked.append)
    (changed,) = attack.perturb(classifier, digits.images[:8], digits.labels[:8], 0, [0])
    assert changed.fooled.any()
    needed = changed.queries.sum() + 8 * more  # FGSM takes the gradient at the clean images
    assert needed <= sum(asked) <= 1.13 * needed


# as Foolbox attacks --------------------------------------------------------------------------------------------------


def foolbox_model(framework: TrainableFramework, model: Model) -> Any:
    """The same network as a model that Foolbox itself made."""
    function = model._model
    if framework.name == "torch":
        import torch

        class Module(torch.nn.Module):
            def forward(self, x: torch.Tensor) -> torch.Tensor:
                return function(x)  # type: ignore[no-any-return]

        return fb.PyTorchModel(Module().eval(), bounds=UNIT, device="cpu")
    if framework.name == "tensorflow":
        return fb.TensorFlowModel(function, bounds=UNIT, device="/CPU:0")
    return fb.JAXModel(function, bounds=UNIT)


@pytest.mark.needs("tensors")
def test_attacks_run_on_models_that_foolbox_made(
    framework: TrainableFramework, zoo_model: Zoo, digits: Dataset
) -> None:
    attack = FGSM()
    ours = zoo_model(framework)
    theirs = foolbox_model(framework, ours)
    x, y = correct(ours, digits, contrast=0.5)
    x, y = x[:6], y[:6]
    expected = attack.attack(ours, x, y)
    assert parted(attack.attack(theirs, x, y), expected) == 0

    classifier = Classifier(theirs)
    images, labels = classifier.tensor(x), classifier.tensor(y)
    raw, clipped, success = attack(theirs, images, labels, epsilons=None)
    assert type(raw) is type(images)
    assert classifier.array(success).tolist() == expected.success.tolist()
    np.testing.assert_allclose(classifier.array(clipped), expected.adversarials, atol=1e-6)
    _, _, at_each = attack(theirs, images, fb.criteria.Misclassification(labels), epsilons=[1e-6, 1000.0])
    np.testing.assert_array_equal(classifier.array(at_each), [np.zeros(6, np.bool_), expected.success])


def test_other_bounds_change_nothing(zoo_model: Zoo, digits: Dataset, attack: Attack) -> None:
    model = zoo_model("torch")
    x, y = (part[:6] for part in correct(model, digits))
    other = model.transform_bounds((0, 2))  # exact in float32
    result, expected = attack.attack(other, x, y), attack.attack(model, x, y)
    assert result.success.tolist() == expected.success.tolist()
    assert result.queries.tolist() == expected.queries.tolist()
    np.testing.assert_allclose(result.l2[result.success], expected.l2[expected.success], rtol=1e-5)
    with pytest.raises(UsageError, match="Images are compared in"):
        attack.attack(other, np.float32(2) * x, y)


def test_what_is_refused(zoo_model: Zoo, digits: Dataset) -> None:
    model = zoo_model("torch")
    x, y = digits.images[:2], digits.labels[:2]
    with pytest.raises(UsageError, match="max_epsilon should be more than 0 and finite, received 0"):
        FGSM(max_epsilon=0)
    with pytest.raises(UsageError, match="max_pixels should be 1 or more, received 0"):
        SinglePixel(max_pixels=0)
    with pytest.raises(UsageError, match="source_step should be more than 0 and finite, received -1"):
        Boundary(source_step=-1.0)
    with pytest.raises(UsageError, match="repeats have draws of their own"):
        FGSM().repeat(2)
    with pytest.raises(UsageError, match="a repeat should be a 64-bit integer"):
        FGSM().attack(model, x, y, repeat=2**63)
    with pytest.raises(UsageError, match="expected a NumPy array, or a tensor of the model's framework, received list"):
        FGSM().attack(model, x.tolist(), y)
    with pytest.raises(UsageError, match=r"lie within the bounds \(0.0, 1.0\)"):
        FGSM().attack(model, x + 1, y)
    with pytest.raises(UsageError, match=r"labels should have the shape \(2,\)"):
        FGSM().attack(model, x, y[:1])
    classifier = Classifier(model)
    targeted = fb.criteria.TargetedMisclassification(classifier.tensor(y))
    with pytest.raises(UsageError, match="FGSM is untargeted"):
        FGSM()(model, classifier.tensor(x), targeted, epsilons=None)
    with pytest.raises(TypeError, match="unexpected keyword argument 'repeats'"):
        FGSM()(model, classifier.tensor(x), classifier.tensor(y), epsilons=None, repeats=3)
    numpy_model = fb.NumPyModel(lambda x: np.zeros((len(x), 2), np.float32), bounds=UNIT, data_format="channels_last")
    with pytest.raises(ModelError, match="a NumPy model has no gradients"):
        FGSM().attack(numpy_model, x, np.zeros(2, np.int64))

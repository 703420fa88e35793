"""The plain reference of the attacks, on tiny models whose answers are known beforehand."""

from __future__ import annotations

import hashlib
import math
import struct
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import reference as ref
from numpy.typing import NDArray

SHAPE = (4, 4, 1)
UNIT = (0.0, 1.0)
SYMMETRIC = (-1.0, 1.0)


# ---------------------------------------------------------------------------------------------------------- models


def binary(adversarial: Callable[[ref.Array64], bool]) -> ref.Logits:
    """Make a model of two classes: class 1, by a margin of 1, where the function of one image says so."""

    def logits(x: ref.Array32) -> ref.Array32:
        fooled = [adversarial(image.astype(np.float64)) for image in x]
        return np.array([[0, 1] if one else [1, 0] for one in fooled], dtype=np.float32)

    return logits


def linear(w: ref.Array64, threshold: float) -> ref.Logits:
    """Make a model of two classes with the logits (threshold, Σ w·x), computed in float64."""

    def logits(x: ref.Array32) -> ref.Array64:
        score = x.astype(np.float64).reshape(len(x), -1) @ w.reshape(-1)
        return np.stack([np.full(len(x), threshold), score], axis=1)

    return logits


def linear_vjp(w: ref.Array64) -> ref.Vjp:
    """Make the vector-Jacobian product of :func:`linear`."""

    def vjp(x: ref.Array32, v: ref.Array64) -> ref.Array64:
        return v[:, 1].reshape(-1, *[1] * (x.ndim - 1)) * w[None]

    return vjp


class Recorder:
    """A model that keeps what it was asked."""

    def __init__(self, logits: ref.Logits) -> None:
        self.logits = logits
        self.asked: list[ref.Array32] = []

    def __call__(self, x: ref.Array32) -> ref.AnyArray:
        """Answer as the model does."""
        assert x.dtype == np.float32
        assert x.ndim == 4
        self.asked.extend(x)
        return self.logits(x)


def coin(x: ref.Array64, chance: float) -> bool:
    """Toss a coin that depends on the image alone: adversarial regions without any structure."""
    digest = hashlib.blake2b(x.astype("<f4").tobytes(), digest_size=4).digest()
    return int.from_bytes(digest, "little") < chance * 2**32


def distance_along(ray: ref.Array64, x: ref.Array64) -> tuple[float, bool]:
    """Return the distance from the clean image, which is 0, and whether the image lies on the ray."""
    d = ref.norm(x)
    return d, d > 0 and float(np.sum(x * ray)) / (d * ref.norm(ray)) > 1 - 1e-6


def plant_landscape(ray: ref.Array64) -> Callable[[ref.Array64], bool]:
    """Plant what makes the boundary attack adapt its steps in all four ways on the image 0.

    The ray to the first noise is adversarial from 1.5 on, so the attack starts there. Beside it lies a shell where one
    image in ten is adversarial (both steps shrink), inside it everything is (the source step grows), and within the
    innermost ball nothing is (spherical candidates always fool, candidates nearer to the image never).
    """

    def adversarial(x: ref.Array64) -> bool:
        d, on_ray = distance_along(ray, x)
        if on_ray:
            return d >= 1.5
        return d > 0.02 and (d < 0.9 or coin(x, 0.1))

    return adversarial


def some_image(seed: int = 1, shape: tuple[int, int, int] = SHAPE) -> ref.Array32:
    """Return an image of multiples of 1/64 between 0.25 and 0.75, exact in float32."""
    return (np.random.default_rng(seed).integers(16, 49, size=shape) / 64).astype(np.float32)


def some_weights(seed: int = 2, shape: tuple[int, int, int] = SHAPE) -> ref.Array64:
    """Return weights of both signs, none near 0, multiples of 1/64."""
    rng = np.random.default_rng(seed)
    return rng.choice([-1, 1], size=shape) * rng.integers(16, 65, size=shape) / 64


def assert_failed(outcome: ref.Outcome, image: ref.Array32) -> None:
    """Check what every failure looks like."""
    assert not outcome.success
    assert outcome.adversarial.dtype == np.float32
    assert np.array_equal(outcome.adversarial, image)
    assert outcome.adversarial is not image
    assert (outcome.l0, outcome.l2, outcome.linf) == (math.inf, math.inf, math.inf)
    assert outcome.adversarial_class == -1


# ------------------------------------------------------------------------------------------------------ randomness


def test_key_is_the_digest_of_its_parts() -> None:
    image = some_image()
    content = b"robustcmp" + struct.pack("<qq", 7, -2) + b"\x0bSinglePixel" + image.astype("<f4").tobytes()
    expected = np.frombuffer(hashlib.blake2b(content, digest_size=16).digest(), dtype="<u8")
    assert np.array_equal(ref.key("SinglePixel", image, UNIT, 7, -2), expected)


def test_key_depends_on_each_part_and_not_on_the_bounds() -> None:
    image = some_image()
    other = image.copy()
    other[3, 3, 0] += np.float32(1e-6)
    keys = [
        ref.key("Boundary", image, UNIT, 0, 0),
        ref.key("SinglePixel", image, UNIT, 0, 0),
        ref.key("Boundary", image, UNIT, 1, 0),
        ref.key("Boundary", image, UNIT, 0, 1),
        ref.key("Boundary", other, UNIT, 0, 0),
    ]
    assert len({tuple(k.tolist()) for k in keys}) == len(keys)
    assert np.array_equal(ref.key("Boundary", 2 * image - 1, SYMMETRIC, 0, 0), keys[0])
    assert np.array_equal(ref.key("Boundary", np.asfortranarray(image), UNIT, 0, 0), keys[0])


def test_generator_is_philox_with_its_counter_in_this_order() -> None:
    key = np.array([5, 6], dtype=np.uint64)
    philox = np.random.Philox(key=[5, 6], counter=[0, 3, 2, 1])
    expected = np.random.Generator(philox).random(9)
    assert np.array_equal(ref.generator(key, purpose=1, iteration=2, direction=3).random(9), expected)


# ------------------------------------------------------------------------------------------------------------ FGSM


@pytest.mark.parametrize("bounds", [UNIT, SYMMETRIC, (0.0, 255.0)])
def test_fgsm_finds_the_analytic_epsilon(bounds: ref.Bounds) -> None:
    lo, hi = bounds
    w = some_weights()
    image = lo + (hi - lo) * some_image()
    needed = 0.0375  # between two grid values, and nothing is clipped
    threshold = float(np.sum(w * image)) + needed * (hi - lo) * float(np.sum(np.abs(w)))
    model = Recorder(linear(w, threshold))
    outcome = ref.fgsm(model, linear_vjp(w), image, 0, bounds)
    assert outcome.success
    assert outcome.extras["epsilon"] == 0.1 * 38 / 100
    assert outcome.queries == 38
    assert len(model.asked) == 1 + 38 + 1  # the gradient's logits and the verification are not counted
    assert outcome.adversarial_class == 1
    assert outcome.l0 == 16
    assert outcome.linf == pytest.approx(0.038 * (hi - lo), rel=1e-5)
    assert outcome.l2 == pytest.approx(0.038 * (hi - lo) * 4, rel=1e-5)
    assert np.array_equal(np.sign(outcome.adversarial - image), np.sign(w))


def test_fgsm_finds_the_smallest_epsilon_where_success_is_not_monotone() -> None:
    image = np.full(SHAPE, 0.5, dtype=np.float32)
    ones = np.ones(SHAPE)

    def adversarial(x: ref.Array64) -> bool:
        shift = float(np.mean(x)) - 0.5
        return 0.0115 < shift < 0.0125 or 0.05 < shift < 0.08

    outcome = ref.fgsm(binary(adversarial), linear_vjp(ones), image, 0, UNIT)
    assert outcome.success
    assert outcome.queries == 12
    assert outcome.extras["epsilon"] == pytest.approx(0.012)


def test_fgsm_cotangent_does_not_drown() -> None:
    z = np.array([1.0, 60.0, 0.0])  # in float32, softmax(z) is exactly onehot
    v = ref.cross_entropy_cotangent(z, 1)
    share = 1 / (1 + math.exp(-1))
    np.testing.assert_allclose(v, [share, -1, 1 - share], rtol=1e-12)
    np.testing.assert_array_equal(ref.cross_entropy_cotangent(np.array([0.0, 5000.0]), 1), [0, 0])


# ---------------------------------------------------------------------------------------------------- single pixel


def planted_pixel(row: int, column: int, value: float) -> ref.Logits:
    """Make a model that only one position fools, and only with this value in all channels."""
    return binary(lambda x: bool(np.all(x[row, column] == value)))


@pytest.mark.parametrize("value", [0.0, 1.0])
def test_single_pixel_finds_the_planted_pixel(value: float) -> None:
    image = some_image(shape=(4, 5, 3))
    model = Recorder(planted_pixel(2, 4, value))
    outcome = ref.single_pixel(model, image, 0, UNIT, 0, 0)
    rank = ref.pixel_order(image, UNIT, 0, 0).tolist().index(2 * 5 + 4)
    assert outcome.success
    assert outcome.queries == 2 * rank + 1 + int(value)
    assert len(model.asked) == outcome.queries + 1
    assert outcome.l0 == 1
    assert outcome.extras["position"] == 14
    expected = image.copy()
    expected[2, 4] = value
    assert np.array_equal(outcome.adversarial, expected)
    assert outcome.l2 == pytest.approx(float(np.linalg.norm(expected - image)), rel=1e-6)
    vulnerable = ref.vulnerable_pixels(planted_pixel(2, 4, value), image, 0, UNIT)
    assert np.argwhere(vulnerable).tolist() == [[2, 4]]


def test_single_pixel_meets_the_exact_expectation() -> None:
    image = some_image()
    spots = {(0, 1), (2, 2), (3, 0)}
    model = binary(lambda x: any(x[spot] in (0.0, 1.0) for spot in spots))
    vulnerable = ref.vulnerable_pixels(model, image, 0, UNIT)
    assert {(int(row), int(column)) for row, column in np.argwhere(vulnerable)} == spots
    hits = []
    for repeat in range(400):
        outcome = ref.single_pixel(model, image, 0, UNIT, 0, repeat, max_pixels=4)
        tried = ref.pixel_order(image, UNIT, 0, repeat)[:4]
        assert outcome.success == bool(vulnerable.reshape(-1)[tried].any())
        hits.append(outcome.success)
    expected = 1 - math.comb(13, 4) / math.comb(16, 4)
    assert np.mean(hits) == pytest.approx(expected, abs=3 * math.sqrt(expected * (1 - expected) / 400))


# -------------------------------------------------------------------------------------------------------- boundary


def replay(outcome: ref.Outcome, spherical_step: float = 0.01, source_step: float = 0.01) -> tuple[Any, ...]:
    """Compute the steps and the adaptations once more, from the decisions alone."""
    counts = {"spherical_up": 0, "spherical_down": 0, "source_up": 0, "source_down": 0}
    answers: dict[str, list[bool]] = {"spherical": [], "source": []}
    walk = [
        (decision, kind)
        for decision, kind in zip(outcome.extras["decisions"], outcome.extras["kinds"], strict=True)
        if decision.purpose == ref.DIRECTION
    ]
    for iteration in range(10, outcome.extras["iterations"] + 1, 10):
        for decision, kind in walk:
            if decision.iteration == iteration:
                answers[kind].append(decision.fooled)
        for kind, length, moves_both in (("spherical", 100, True), ("source", 30, False)):
            if len(answers[kind]) < length:
                continue
            mean = np.mean(answers[kind][-length:])
            if 0.2 <= mean <= 0.5:
                continue
            name, factor = ("up", 1.5) if mean > 0.5 else ("down", 1 / 1.5)
            counts[f"{kind}_{name}"] += 1
            source_step *= factor
            spherical_step *= factor if moves_both else 1
            answers[kind] = []
    return spherical_step, source_step, counts


def assert_walk_is_in_order(outcome: ref.Outcome, max_directions: int) -> None:
    """Check that the decisions follow the definition: who is asked next depends only on the last answer."""
    decisions, kinds = outcome.extras["decisions"], outcome.extras["kinds"]
    assert len(decisions) == len(kinds) == outcome.queries
    draws = kinds.count("draw")
    blends = kinds.count("blend")
    assert kinds[: draws + blends] == ["draw"] * draws + ["blend"] * blends
    assert [d.direction for d in decisions[:draws]] == list(range(draws))
    assert [d.fooled for d in decisions[:draws]] == [False] * (draws - 1) + [True]
    assert [d.iteration for d in decisions[draws : draws + blends]] == list(range(1, blends + 1))
    assert [d.fooled for d in decisions[draws : draws + blends]] == [False] * (blends - 1) + [True]
    position = draws + blends
    for iteration in range(1, outcome.extras["iterations"] + 1):
        for direction in range(max_directions):
            expected = ["spherical", "source"] if iteration % 10 == 0 else ["source"]
            for kind in expected:
                decision = decisions[position]
                assert (kinds[position], decision[:3]) == (kind, (2, iteration, direction))
                position += 1
                if not decision.fooled:
                    break
            if decision.fooled:
                break
    assert position == len(decisions)


def test_boundary_adapts_its_steps_in_all_four_ways() -> None:
    image = np.zeros(SHAPE, dtype=np.float32)
    ray = ref.start_noise(image, SYMMETRIC, 0, 0, 0)
    model = Recorder(binary(plant_landscape(ray)))
    outcome = ref.boundary(model, image, 0, SYMMETRIC, 0, 0, iterations=1000, max_directions=25)
    extras = outcome.extras
    assert outcome.success
    assert all(count > 0 for count in extras["adaptations"].values())
    spherical_step, source_step, counts = replay(outcome)
    assert extras["adaptations"] == counts
    assert extras["spherical_step"] == pytest.approx(spherical_step, rel=1e-12)
    assert extras["source_step"] == pytest.approx(source_step, rel=1e-12)
    assert_walk_is_in_order(outcome, 25)
    assert len(model.asked) == outcome.queries + 1
    assert not extras["stopped"]
    assert 0.02 < outcome.l2 <= extras["l2_half"] < 0.9
    assert outcome.l2 == pytest.approx(0.02, rel=1e-3)
    assert extras["start_l2"] == pytest.approx(1.5, abs=0.003)


def test_boundary_without_a_start_fails() -> None:
    image = some_image()
    outcome = ref.boundary(binary(lambda x: False), image, 0, UNIT, 0, 0)
    assert_failed(outcome, image)
    assert outcome.queries == 2000
    assert not outcome.extras["start"]
    assert outcome.extras["l2_half"] == math.inf
    assert outcome.extras["source_step"] == 0.01
    assert not any(outcome.extras["adaptations"].values())


def test_boundary_blends_the_last_draw_where_no_draw_fools() -> None:
    image = np.zeros(SHAPE, dtype=np.float32)
    noise = ref.start_noise(image, UNIT, 0, 0, 999)
    middle = 0.5 * noise

    def adversarial(x: ref.Array64) -> bool:
        return ref.norm(x - middle) < 0.01

    outcome = ref.boundary(binary(adversarial), image, 0, UNIT, 0, 0, iterations=0)
    assert outcome.success
    assert outcome.extras["start"]
    assert outcome.extras["kinds"].count("draw") == 1000
    assert outcome.queries == 1000 + next(k for k in range(1000) if adversarial(k / 1000 * noise))
    assert outcome.extras["l2_half"] == outcome.l2 == outcome.extras["start_l2"]


def test_boundary_candidates_of_the_first_iteration_by_hand() -> None:
    image = some_image(shape=(3, 5, 2))
    image[0] = 0
    image[2] = 1  # here the steps meet the bounds
    x = image.astype(np.float64)
    distance = 1.0
    model = Recorder(binary(lambda y: ref.norm(y - x) > distance))
    outcome = ref.boundary(model, image, 0, UNIT, 1, 2, iterations=1, spherical_step=2.0, source_step=0.3)
    kinds = outcome.extras["kinds"]
    noise = ref.start_noise(image, UNIT, 1, 2, 0)
    blend = kinds.count("blend") / 1000
    current = (1 - blend) * x + blend * noise
    d = math.sqrt(np.sum((x - current) ** 2))
    assert d > distance
    key = ref.key("Boundary", image, UNIT, 1, 2)
    clipped = False
    for j in range(kinds.count("source")):
        eta = np.random.Generator(np.random.Philox(key=key, counter=[0, j, 1, 2])).standard_normal((3, 5, 2))
        eta -= np.sum(eta * (x - current)) / d**2 * (x - current)
        eta *= 2 * d / math.sqrt(np.sum(eta**2))
        raw = x + (eta - (x - current)) / math.sqrt(5)
        s = np.clip(raw, 0, 1)
        nearer = math.sqrt(np.sum((x - s) ** 2))
        length = max(0, 0.3 * d + nearer - d)
        c = s + length / nearer * (x - s)
        clipped = clipped or (nearer < 0.99 * d and length > 0)
        asked = model.asked[kinds.index("source") + j]
        np.testing.assert_allclose(asked, c, rtol=0, atol=1e-6)
    assert clipped


def test_boundary_comes_near_the_smallest_distance_on_a_linear_model() -> None:
    image = some_image()
    w = some_weights()
    distance = 0.2
    model = linear(w, float(np.sum(w * image)) + distance * ref.norm(w))
    outcome = ref.boundary(model, image, 0, UNIT, 0, 0, iterations=1000, max_directions=25)
    assert outcome.success
    assert distance < outcome.l2 < 1.05 * distance
    assert outcome.l2 <= outcome.extras["l2_half"] < outcome.extras["start_l2"]
    assert outcome.extras["adaptations"] == replay(outcome)[2]
    assert_walk_is_in_order(outcome, 25)
    assert all(d.margin >= 0 for d in outcome.extras["decisions"])


# --------------------------------------------------------------------------------------------------------- network


LAYERS: list[tuple[str, ...]] = [
    ("conv", "conv1"),
    ("relu",),
    ("pool",),
    ("conv", "conv2"),
    ("relu",),
    ("pool",),
    ("flatten",),
    ("dense", "dense1"),
    ("relu",),
    ("dense", "dense2"),
]


def some_network(seed: int = 3) -> dict[str, NDArray[np.float64]]:
    """Return random weights for images of 13x15x2: pools with an odd row and an odd column to leave out."""
    rng = np.random.default_rng(seed)
    shapes = {"conv1": (3, 3, 2, 4), "conv2": (2, 3, 4, 5), "dense1": (20, 7), "dense2": (7, 3)}
    weights = {}
    for name, shape in shapes.items():
        weights[f"{name}/kernel"] = rng.normal(size=shape) / math.sqrt(math.prod(shape[:-1]))
        weights[f"{name}/bias"] = 0.1 * rng.normal(size=shape[-1])
    return weights


def test_network_by_single_sums() -> None:
    rng = np.random.default_rng(4)
    kernel, bias, x = rng.normal(size=(2, 3, 2, 3)), rng.normal(size=3), rng.normal(size=(2, 6, 7, 2))
    out = ref.numpy_logits([("conv", "a")], {"a/kernel": kernel, "a/bias": bias}, x)
    assert out.shape == (2, 5, 5, 3)
    for n, i, j, c in np.ndindex(out.shape):
        assert out[n, i, j, c] == pytest.approx(np.sum(x[n, i : i + 2, j : j + 3] * kernel[..., c]) + bias[c])
    pooled = ref.numpy_logits([("pool",)], {}, x)
    assert pooled.shape == (2, 3, 3, 2)
    for n, i, j, c in np.ndindex(pooled.shape):
        assert pooled[n, i, j, c] == x[n, 2 * i : 2 * i + 2, 2 * j : 2 * j + 2, c].max()
    flat = ref.numpy_logits([("flatten",)], {}, x)
    assert flat[1, (3 * 7 + 4) * 2 + 1] == x[1, 3, 4, 1]


def test_vjp_agrees_with_finite_differences() -> None:
    rng = np.random.default_rng(5)
    weights = some_network()
    x, v = rng.random((2, 13, 15, 2)), rng.normal(size=(2, 3))
    gradient = ref.numpy_vjp(LAYERS, weights, x, v)
    assert ref.numpy_logits(LAYERS, weights, x).shape == (2, 3)
    assert gradient.shape == x.shape
    assert np.count_nonzero(gradient) > 100
    step = 1e-6
    for place in rng.permutation(x.size)[:200]:
        moved = np.zeros(x.size)
        moved[place] = step
        up, down = (ref.numpy_logits(LAYERS, weights, x + sign * moved.reshape(x.shape)) for sign in (1, -1))
        expected = np.sum(v * (up - down)) / (2 * step)
        assert gradient.reshape(-1)[place] == pytest.approx(expected, rel=1e-5, abs=1e-8)


def test_vjp_gives_a_tie_to_the_first_of_a_window() -> None:
    x = np.ones((1, 2, 2, 1))
    gradient = ref.numpy_vjp([("pool",), ("flatten",)], {}, x, np.array([[3.0]]))
    assert gradient.reshape(-1).tolist() == [3, 0, 0, 0]

"""The attacks and a small network once more, as plainly as possible: the judge of the batched implementation.

Everything here works on one image, asks one query at a time, computes in float64 and optimises nothing. The model
is asked with float32. Nothing is imported from ``robustcmp``.
"""

from __future__ import annotations

import hashlib
import math
import struct
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Array32 = NDArray[np.float32]
Array64 = NDArray[np.float64]
AnyArray = NDArray[Any]
Logits = Callable[[Array32], AnyArray]
Vjp = Callable[[Array32, Array64], AnyArray]
Bounds = tuple[float, float]
Layers = Sequence[tuple[Any, ...]]
Weights = Mapping[str, AnyArray]

PIXEL_ORDER, START_NOISE, DIRECTION = 0, 1, 2
START_DRAWS = 1000
BLENDS = 1000
CHECK_EVERY = 10
SPHERICAL_WINDOW = 100
STEP_WINDOW = 30
FACTOR = 1.5
SMALLEST_STEP = 1e-7
CONVERGED = 1e-4


class Decision(NamedTuple):
    """One query of the boundary attack.

    A start draw is (1, 0, j), a blend (1, k, 0), and both candidates of a direction are (2, i, j), s before c.
    """

    purpose: int
    iteration: int
    direction: int
    fooled: bool
    margin: float


@dataclass(frozen=True)
class Outcome:
    """What one attack did to one image; ``extras`` holds what only this attack has."""

    success: bool
    adversarial: Array32
    l0: float
    l2: float
    linf: float
    adversarial_class: int
    queries: int
    extras: dict[str, Any] = field(default_factory=dict)


# ---------------------------------------------------------------------------------------------------- randomness


def unit_image(image: Array32, bounds: Bounds) -> Array32:
    """Map an image from the model's bounds to [0, 1]."""
    lo, hi = bounds
    return ((image.astype(np.float64) - lo) / (hi - lo)).astype(np.float32)


def key(attack: str, image: Array32, bounds: Bounds, seed: int, repeat: int) -> NDArray[np.uint64]:
    """Return the Philox key of one attack on one image: BLAKE2b of everything that the draws depend on."""
    digest = hashlib.blake2b(digest_size=16)
    digest.update(b"robustcmp")
    digest.update(struct.pack("<qq", seed, repeat))
    digest.update(bytes([len(attack)]) + attack.encode("ascii"))
    digest.update(np.ascontiguousarray(unit_image(image, bounds)).astype("<f4").tobytes())
    low, high = struct.unpack("<QQ", digest.digest())
    return np.array([low, high], dtype=np.uint64)


def generator(philox_key: NDArray[np.uint64], purpose: int, iteration: int, direction: int) -> np.random.Generator:
    """Return the generator of one block of draws; word 0 of its counter runs."""
    counter = np.array([0, direction, iteration, purpose], dtype=np.uint64)
    return np.random.Generator(np.random.Philox(key=philox_key, counter=counter))


def pixel_order(image: Array32, bounds: Bounds, seed: int, repeat: int) -> NDArray[np.int64]:
    """Return the order of the h·w positions (row · width + column) that the single-pixel attack tries."""
    height, width = image.shape[:2]
    gen = generator(key("SinglePixel", image, bounds, seed, repeat), PIXEL_ORDER, 0, 0)
    return np.argsort(gen.random(height * width), kind="stable").astype(np.int64)


def start_noise(image: Array32, bounds: Bounds, seed: int, repeat: int, draw: int) -> Array64:
    """Return one draw of the boundary attack's start: uniform noise in the bounds."""
    lo, hi = bounds
    gen = generator(key("Boundary", image, bounds, seed, repeat), START_NOISE, 0, draw)
    return lo + (hi - lo) * gen.random(image.shape)


# ------------------------------------------------------------------------------------------------- asking, judging


def ask(logits: Logits, candidate: AnyArray) -> Array64:
    """Ask the model about one candidate, in float32; return its logits in float64."""
    batch = np.ascontiguousarray(candidate, dtype=np.float32)[None]
    answer: Array64 = np.asarray(logits(batch)).astype(np.float64)[0]
    return answer


def fools(z: Array64, label: int) -> bool:
    """Say whether these logits name another class than the label."""
    return int(np.argmax(z)) != label


def margin(z: Array64) -> float:
    """Return the difference of the two largest logits."""
    first, second = np.sort(z)[::-1][:2]
    return float(first - second)


def norm(x: Array64) -> float:
    """Return the Euclidean norm of the flattened array."""
    return math.sqrt(float(np.sum(x * x)))


def unit(x: Array64) -> Array64:
    """Return x / ‖x‖, and zeros where the norm is zero."""
    length = norm(x)
    return x / length if length > 0 else np.zeros_like(x)


def l2_distance(adversarial: Array32, image: Array32) -> float:
    """Return the L2 distance of two float32 images, in float64."""
    return norm(adversarial.astype(np.float64) - image.astype(np.float64))


def judge(
    logits: Logits, found: AnyArray | None, image: Array32, label: int, queries: int, extras: dict[str, Any]
) -> Outcome:
    """Make the outcome: a success only if a final, separate forward pass on the float32 image says so."""
    if found is not None:
        adversarial = found.astype(np.float32)
        z = ask(logits, adversarial)
        if fools(z, label):
            difference = np.abs(adversarial.astype(np.float64) - image.astype(np.float64))
            return Outcome(
                success=True,
                adversarial=adversarial,
                l0=float(np.sum(np.any(adversarial != image, axis=-1))),
                l2=norm(difference),
                linf=float(np.max(difference)),
                adversarial_class=int(np.argmax(z)),
                queries=queries,
                extras=extras,
            )
    return Outcome(
        success=False,
        adversarial=image.copy(),
        l0=math.inf,
        l2=math.inf,
        linf=math.inf,
        adversarial_class=-1,
        queries=queries,
        extras=extras,
    )


# ----------------------------------------------------------------------------------------------------------- FGSM


def cross_entropy_cotangent(z: Array64, label: int) -> Array64:
    """Return softmax(z) - onehot over its largest magnitude; the true class's entry is minus the sum of the others."""
    p = np.exp(z - np.max(z))
    v: Array64 = p / np.sum(p)
    v[label] = 0.0
    v[label] = -np.sum(v)
    largest = float(np.max(np.abs(v)))
    return v / largest if largest > 0 else np.zeros_like(v)


def fgsm(
    logits: Logits,
    vjp: Vjp,
    image: Array32,
    label: int,
    bounds: Bounds,
    epsilons: int = 100,
    max_epsilon: float = 0.1,
) -> Outcome:
    """Attack one image with FGSM: the smallest ε on the grid that fools the model.

    Parameters
    ----------
    logits
        The model, ``(N, H, W, C)`` float32 to ``(N, K)``.
    vjp
        ``(x (1, H, W, C), v (1, K))`` to the gradient of Σ v·z at x.
    image, label, bounds
        The clean image in float32, its class, and the model's bounds.
    epsilons, max_epsilon
        The grid: max_epsilon · k / epsilons for k = 1 … epsilons.

    Returns
    -------
    Outcome
        ``extras["epsilon"]`` is the ε that was found, +inf where none was.
    """
    lo, hi = bounds
    x = image.astype(np.float64)
    v = cross_entropy_cotangent(ask(logits, image), label)
    sign = np.sign(np.asarray(vjp(image[None].astype(np.float32), v[None]))[0].astype(np.float64))
    queries = 0
    epsilon = math.inf
    found = None
    for k in range(1, epsilons + 1):
        size = max_epsilon * k / epsilons
        candidate = np.clip(x + size * (hi - lo) * sign, lo, hi)
        queries += 1
        if fools(ask(logits, candidate), label):
            found, epsilon = candidate, size
            break
    outcome = judge(logits, found, image, label, queries, {"epsilon": epsilon})
    if not outcome.success:
        outcome.extras["epsilon"] = math.inf
    return outcome


# --------------------------------------------------------------------------------------------------- single pixel


def set_pixel(image: Array32, position: int, value: float) -> Array32:
    """Return a copy of the image with all channels of one position set to a value."""
    width = image.shape[1]
    candidate = image.copy()
    candidate[position // width, position % width, :] = value
    return candidate


def single_pixel(
    logits: Logits, image: Array32, label: int, bounds: Bounds, seed: int, repeat: int, max_pixels: int = 100
) -> Outcome:
    """Attack one image with the single-pixel attack.

    Parameters
    ----------
    logits, image, label, bounds
        As for :func:`fgsm`.
    seed, repeat
        What the order of the positions depends on, beside the image.
    max_pixels
        How many positions are tried.

    Returns
    -------
    Outcome
        ``extras["position"]`` is the position that was found (-1 where none was), ``extras["order"]`` those tried.
    """
    order = pixel_order(image, bounds, seed, repeat)[:max_pixels]
    queries = 0
    for position in order:
        for value in bounds:
            candidate = set_pixel(image, int(position), value)
            queries += 1
            if fools(ask(logits, candidate), label):
                extras = {"position": int(position), "order": order}
                outcome = judge(logits, candidate, image, label, queries, extras)
                if not outcome.success:
                    outcome.extras["position"] = -1
                return outcome
    return judge(logits, None, image, label, queries, {"position": -1, "order": order})


def vulnerable_pixels(logits: Logits, image: Array32, label: int, bounds: Bounds) -> NDArray[np.bool_]:
    """Say for every position whether either value, the lower or the upper bound, fools the model there."""
    height, width = image.shape[:2]
    vulnerable = np.zeros((height, width), dtype=np.bool_)
    for position in range(height * width):
        for value in bounds:
            if fools(ask(logits, set_pixel(image, position, value)), label):
                vulnerable[position // width, position % width] = True
    return vulnerable


# ------------------------------------------------------------------------------------------------------- boundary


def spherical_candidate(x: Array64, current: Array64, eta: Array64, step: float, bounds: Bounds) -> Array64:
    """Return s: a step across the sphere around x on which the current point lies."""
    towards = x - current
    d = norm(towards)
    u = unit(towards)
    eta = eta - float(np.sum(eta * u)) * u
    eta = unit(eta) * (step * d)
    return np.clip(x + (eta - towards) / math.sqrt(1 + step**2), *bounds)


def source_candidate(x: Array64, current: Array64, s: Array64, step: float, bounds: Bounds) -> Array64:
    """Return c: from s a step towards x."""
    d = norm(x - current)
    length = max(0.0, step * d + norm(x - s) - d)
    return np.clip(s + length * unit(x - s), *bounds)


def boundary(
    logits: Logits,
    image: Array32,
    label: int,
    bounds: Bounds,
    seed: int,
    repeat: int,
    iterations: int = 100,
    max_directions: int = 5,
    spherical_step: float = 0.01,
    source_step: float = 0.01,
) -> Outcome:
    """Attack one image with the boundary attack.

    Parameters
    ----------
    logits, image, label, bounds
        As for :func:`fgsm`.
    seed, repeat
        What all draws depend on, beside the image.
    iterations, max_directions
        How many iterations, and how many directions at most in each.
    spherical_step, source_step
        The two relative step sizes at the start.

    Returns
    -------
    Outcome
        ``extras`` holds ``start`` (a start was found), ``start_l2`` (its distance), ``source_step`` and
        ``spherical_step`` (the last ones), ``l2_half``, ``adaptations`` (counts by name), ``stopped``,
        ``iterations`` (done), ``decisions`` (a :class:`Decision` a query) and ``kinds`` (the queries' names: ``draw``,
        ``blend``, ``spherical``, ``source``).
    """
    lo, hi = bounds
    x = image.astype(np.float64)
    philox_key = key("Boundary", image, bounds, seed, repeat)
    decisions: list[Decision] = []
    kinds: list[str] = []

    def query(candidate: Array64, kind: str, purpose: int, iteration: int, direction: int) -> bool:
        z = ask(logits, candidate)
        fooled = fools(z, label)
        decisions.append(Decision(purpose, iteration, direction, fooled, margin(z)))
        kinds.append(kind)
        return fooled

    adaptations = {"spherical_up": 0, "spherical_down": 0, "source_up": 0, "source_down": 0}
    extras: dict[str, Any] = {
        "start": False,
        "start_l2": math.inf,
        "source_step": source_step,
        "spherical_step": spherical_step,
        "l2_half": math.inf,
        "adaptations": adaptations,
        "stopped": False,
        "iterations": 0,
        "decisions": decisions,
        "kinds": kinds,
    }

    # The start: noise that fools the model (or else the last draw), then the first blend that does.
    noise = x
    for draw in range(START_DRAWS):
        noise = start_noise(image, bounds, seed, repeat, draw)
        if query(noise, "draw", START_NOISE, 0, draw):
            break
    current = None
    for k in range(1, BLENDS + 1):
        blend = np.clip((1 - k / BLENDS) * x + k / BLENDS * noise, lo, hi)
        if query(blend, "blend", START_NOISE, k, 0):
            current = blend
            break
    if current is None:
        return judge(logits, None, image, label, len(decisions), extras)
    extras["start"] = True
    extras["start_l2"] = l2_distance(current.astype(np.float32), image)

    # The walk.
    half = iterations // 2
    l2_half = extras["start_l2"] if half == 0 else None
    spherical_statistic: deque[bool] = deque(maxlen=SPHERICAL_WINDOW)
    step_statistic: deque[bool] = deque(maxlen=STEP_WINDOW)
    for iteration in range(1, iterations + 1):
        checking = iteration % CHECK_EVERY == 0
        d = norm(x - current)
        for direction in range(max_directions):
            eta = generator(philox_key, DIRECTION, iteration, direction).standard_normal(image.shape)
            s = spherical_candidate(x, current, eta, spherical_step, bounds)
            c = source_candidate(x, current, s, source_step, bounds)
            if checking:
                s_fools = query(s, "spherical", DIRECTION, iteration, direction)
                spherical_statistic.append(s_fools)
                if not s_fools:
                    continue
            c_fools = query(c, "source", DIRECTION, iteration, direction)
            if checking:
                step_statistic.append(c_fools)
            if c_fools:
                if norm(x - c) < d:
                    current = c
                break

        if checking and len(spherical_statistic) == SPHERICAL_WINDOW:
            mean = sum(spherical_statistic) / SPHERICAL_WINDOW
            if mean > 0.5:
                spherical_step *= FACTOR
                source_step *= FACTOR
                adaptations["spherical_up"] += 1
                spherical_statistic.clear()
            elif mean < 0.2:
                spherical_step /= FACTOR
                source_step /= FACTOR
                adaptations["spherical_down"] += 1
                spherical_statistic.clear()
        if checking and len(step_statistic) == STEP_WINDOW:
            mean = sum(step_statistic) / STEP_WINDOW
            if mean > 0.5:
                source_step *= FACTOR
                adaptations["source_up"] += 1
                step_statistic.clear()
            elif mean < 0.2:
                source_step /= FACTOR
                adaptations["source_down"] += 1
                step_statistic.clear()

        extras["iterations"] = iteration
        if iteration == half:
            l2_half = l2_distance(current.astype(np.float32), image)
        if source_step < SMALLEST_STEP:
            extras["stopped"] = True
            break

    extras["source_step"] = source_step
    extras["spherical_step"] = spherical_step
    if source_step <= CONVERGED:
        current = np.clip(x + (1 + CONVERGED) * (current - x), lo, hi)
    outcome = judge(logits, current, image, label, len(decisions), extras)
    if outcome.success:
        extras["l2_half"] = outcome.l2 if l2_half is None else l2_half
    return outcome


# ----------------------------------------------------------------------------------------------- reference attacks


def other_logit(z: Array64, label: int) -> float:
    """Return the largest logit of any other class."""
    return max(float(value) for k, value in enumerate(z) if k != label)


def loss_and_cotangent(z: Array64, label: int, loss: str) -> tuple[float, Array64]:
    """Return the cross-entropy or the DLR loss of a class that has the largest logit, and a multiple of its gradient.

    The DLR loss of Croce and Hein (2020) is -(z1 - z2) / (z1 - z3 + 1e-12), with the logits in descending order.
    """
    if loss == "ce":
        others = sum(math.exp(value - z[label]) for k, value in enumerate(z) if k != label)
        return math.log1p(others), cross_entropy_cotangent(z, label)
    first, second, third = np.argsort(z, kind="stable")[::-1][:3]
    difference, width = z[first] - z[second], z[first] - z[third] + 1e-12
    v = np.zeros_like(z)
    v[first] = -1 / width + difference / width**2
    v[second] = 1 / width
    v[third] = -difference / width**2
    return -float(difference / width), v / np.max(np.abs(v))


def apgd_checkpoints(steps: int) -> list[int]:
    """Return the steps after which Auto-PGD looks back: 22 % of all, then 3 % less each time, and at least 6 %."""
    shrink, shortest = max(int(0.03 * steps), 1), max(int(0.06 * steps), 1)
    length = max(int(0.22 * steps), 1)
    checkpoints = []
    step = length
    while step <= steps:
        checkpoints.append(step)
        length = max(length - shrink, shortest)
        step += length
    return checkpoints


def apgd(
    logits: Logits,
    vjp: Vjp,
    image: Array32,
    label: int,
    bounds: Bounds,
    seed: int,
    repeat: int,
    loss: str,
    epsilon: float,
    steps: int = 100,
    restarts: int = 5,
) -> Outcome:
    """Attack one image with Auto-PGD (Croce and Hein 2020) in L∞.

    Parameters
    ----------
    logits, vjp, image, label, bounds
        As for :func:`fgsm`.
    seed, repeat
        What the starting points depend on, beside the image.
    loss
        ``"ce"`` or ``"dlr"``.
    epsilon, steps, restarts
        The distance as a share of the bounds' width, and how many steps in how many restarts.

    Returns
    -------
    Outcome
        ``extras["halvings"]`` counts how often a step size was halved, and ``extras["loss"]`` is the highest loss
        before the model was fooled, -inf where none was asked for.
    """
    lo, hi = bounds
    radius = epsilon * (hi - lo)
    x = image.astype(np.float64)
    low, high = np.maximum(x - radius, lo), np.minimum(x + radius, hi)
    philox_key = key("APGD", image, bounds, seed, repeat)
    checkpoints = apgd_checkpoints(steps)
    extras = {"halvings": 0, "loss": -math.inf}
    queries = 1
    if fools(ask(logits, x), label):
        return judge(logits, x, image, label, queries, extras)
    for restart in range(restarts):
        noise = 2 * generator(philox_key, 0, restart, 0).random(image.shape) - 1
        point = np.clip(x + radius * noise / (np.max(np.abs(noise)) + 1e-12), low, high)
        previous, step, halved = point, 2 * radius, True
        losses: list[float] = []
        best_loss = -math.inf
        best = best_gradient = point
        looked_back, best_then = 0, -math.inf
        for i in range(steps + 1):
            point = point.astype(np.float32).astype(np.float64)
            z = ask(logits, point)
            queries += 1
            if fools(z, label):
                return judge(logits, point, image, label, queries, extras)
            if i == steps:
                break
            value, v = loss_and_cotangent(z, label, loss)
            gradient = np.asarray(vjp(point[None].astype(np.float32), v[None]))[0].astype(np.float64)
            losses.append(value)
            if value > best_loss:
                best_loss, best, best_gradient = value, point, gradient
            if i == 0:
                best_then = value
            extras["loss"] = max(extras["loss"], value)
            if i in checkpoints:
                before = [0.0, *losses[1:]]  # the authors compare the first step's loss with 0
                rises = sum(losses[j] > before[j - 1] for j in range(looked_back + 1, i + 1))
                halved = rises <= 0.75 * (i - looked_back) or (not halved and best_then >= best_loss)
                if halved:
                    step /= 2
                    point, gradient = best, best_gradient
                    extras["halvings"] += 1
                looked_back, best_then = i, best_loss
            kept = 1.0 if i == 0 else 0.75
            ahead = np.clip(point + step * np.sign(gradient), low, high)
            moved = np.clip(point + kept * (ahead - point) + (1 - kept) * (point - previous), low, high)
            previous, point = point, moved
    return judge(logits, None, image, label, queries, extras)


def square_side(iteration: int, height: int, width: int) -> int:
    """Return the side of the Square attack's square: it covers 80 % of the image at first, and ever less."""
    share = 0.8
    for limit in (10, 50, 200, 500, 1000, 2000, 4000, 6000, 8000):
        if iteration > limit:
            share /= 2
    return min(max(round(math.sqrt(share * height * width)), 1), height, width)


def square(
    logits: Logits,
    image: Array32,
    label: int,
    bounds: Bounds,
    seed: int,
    repeat: int,
    epsilon: float,
    iterations: int = 5000,
) -> Outcome:
    """Attack one image with the Square attack (Andriushchenko et al. 2020) in L∞.

    Parameters
    ----------
    logits, image, label, bounds
        As for :func:`fgsm`.
    seed, repeat
        What the stripes and squares depend on, beside the image.
    epsilon, iterations
        The distance as a share of the bounds' width, and how many squares are tried.

    Returns
    -------
    Outcome
        ``extras["margin"]`` is how far the true class was ahead at the last point that was kept.
    """
    lo, hi = bounds
    radius = epsilon * (hi - lo)
    height, width, channels = image.shape
    x = image.astype(np.float64)
    low, high = np.maximum(x - radius, lo), np.minimum(x + radius, hi)
    philox_key = key("Square", image, bounds, seed, repeat)
    queries = 1
    extras = {"margin": math.inf}
    if fools(ask(logits, x), label):
        return judge(logits, x, image, label, queries, extras)
    stripes = generator(philox_key, 0, 0, 0).random((1, width, channels))
    candidate = best = np.clip(x + np.where(stripes < 0.5, -radius, radius), low, high)
    for i in range(iterations + 1):
        candidate = candidate.astype(np.float32).astype(np.float64)
        z = ask(logits, candidate)
        queries += 1
        if fools(z, label):
            return judge(logits, candidate, image, label, queries, extras)
        ahead = float(z[label]) - other_logit(z, label)
        if ahead < extras["margin"]:
            best, extras["margin"] = candidate, ahead
        side = square_side(i, height, width)
        u = generator(philox_key, 1, i // 100, 0).random((100, 2 + channels))[i % 100]
        top, left = int(u[0] * (height - side)), int(u[1] * (width - side))
        candidate = best.copy()
        candidate[top : top + side, left : left + side] += np.where(u[2:] < 0.5, -2 * radius, 2 * radius)
        candidate = np.clip(candidate, low, high)
    return judge(logits, None, image, label, queries, extras)


def minimum_norm(
    logits: Logits,
    vjp: Vjp,
    image: Array32,
    label: int,
    bounds: Bounds,
    kind: str,
    steps: int = 200,
    step_size: float | None = None,
) -> Outcome:
    """Search for the smallest perturbation of one image with FMN (Pintor et al. 2021), as robustcmp changes it.

    Parameters
    ----------
    logits, vjp, image, label, bounds
        As for :func:`fgsm`.
    kind
        ``"l2"`` or ``"linf"``.
    steps, step_size
        How many points are asked, and the L2 of the first step as a share of the bounds' width (1 or 10).
    """
    lo, hi = bounds
    width = hi - lo
    x = image.astype(np.float64)
    first = step_size if step_size is not None else {"l2": 1.0, "linf": 10.0}[kind]
    size = {"l2": norm, "linf": lambda d: float(np.max(np.abs(d)))}[kind]
    dual = {"l2": norm, "linf": lambda d: float(np.sum(np.abs(d)))}[kind]
    farthest = size(np.maximum(x - lo, hi - x) / width)
    point, found = x, None
    smallest, radius = farthest, math.inf
    for i in range(steps):
        falling = (1 + math.cos(math.pi * i / steps)) / 2
        length, gamma = first * (0.01 + 0.99 * falling), 0.001 + 0.049 * falling
        point = point.astype(np.float32).astype(np.float64)
        delta = (point - x) / width
        z = ask(logits, point)
        fell = fools(z, label)
        if fell and i == 0:
            return judge(logits, point, image, label, 1, {})
        if fell and size(delta) <= smallest:
            found, smallest = point, size(delta)
        gradient = np.asarray(vjp(point[None].astype(np.float32), cross_entropy_cotangent(z, label)[None]))[0]
        gradient = gradient.astype(np.float64) * width
        if fell:
            radius = min(radius * (1 - gamma), smallest)
        elif found is not None:
            radius *= 1 + gamma
        else:
            radius = size(delta) + abs(other_logit(z, label) - float(z[label])) / max(dual(gradient), 1e-12)
        radius = min(radius, farthest)
        delta = delta + length * gradient / max(norm(gradient), 1e-12)
        delta = (np.clip(x + width * delta, lo, hi) - x) / width
        shrunk = delta * min(1.0, radius / max(norm(delta), 1e-12))
        delta = shrunk if kind == "l2" else np.clip(delta, -radius, radius)
        point = np.clip(x + width * delta, lo, hi)
    return judge(logits, found, image, label, steps, {})


# -------------------------------------------------------------------------------------------------------- network


def _pool_windows(x: Array64) -> tuple[Array64, ...]:
    """Return the four corners of every 2x2 window, in row-major order; an odd last row or column is left out."""
    height, width = x.shape[1] // 2 * 2, x.shape[2] // 2 * 2
    return tuple(x[:, i:height:2, j:width:2, :] for i in (0, 1) for j in (0, 1))


def _conv_windows(
    a: Array64, kernel: Array64, stride: int = 1, padding: int = 0
) -> tuple[Array64, dict[tuple[int, int], tuple[slice, ...]]]:
    """Return the padded input, and for each place of the kernel what of it is multiplied there."""
    rows, columns = kernel.shape[:2]
    padded = np.pad(a, ((0, 0), (padding, padding), (padding, padding), (0, 0)))
    height, width = ((padded.shape[axis] - kernel.shape[axis - 1]) // stride + 1 for axis in (1, 2))
    return padded, {
        (i, j): np.s_[:, i : i + stride * (height - 1) + 1 : stride, j : j + stride * (width - 1) + 1 : stride]
        for i in range(rows)
        for j in range(columns)
    }


def _norm(weights: Weights, name: str) -> list[Array64]:
    return [np.asarray(weights[f"{name}/{kind}"], np.float64) for kind in ("gamma", "beta", "mean", "variance")]


def _scale(weights: Weights, name: str) -> Array64:
    gamma, _, _, variance = _norm(weights, name)
    return gamma / np.sqrt(variance + 1e-5)


def _forward(layers: Layers, weights: Weights, x: AnyArray) -> list[Array64]:
    """Return the input of every layer, and last the output."""
    values: list[Array64] = [np.asarray(x, dtype=np.float64)]
    for layer in layers:
        a = values[-1]
        if layer[0] == "conv":
            kernel = np.asarray(weights[f"{layer[1]}/kernel"], dtype=np.float64)
            padded, places = _conv_windows(a, kernel, *layer[2:])
            out = sum(padded[place] @ kernel[i, j] for (i, j), place in places.items())
            out = out + np.asarray(weights[f"{layer[1]}/bias"], dtype=np.float64)
        elif layer[0] == "norm":
            _, beta, mean, _ = _norm(weights, layer[1])
            out = (a - mean) * _scale(weights, layer[1]) + beta
        elif layer[0] == "mean":
            out = a.mean(axis=(1, 2))
        elif layer[0] == "residual":
            out = _forward(layer[1], weights, a)[-1] + _forward(layer[2], weights, a)[-1]
        elif layer[0] == "relu":
            out = np.maximum(a, 0.0)
        elif layer[0] == "pool":
            out = np.maximum.reduce(_pool_windows(a))
        elif layer[0] == "flatten":
            out = a.reshape(len(a), -1)
        elif layer[0] == "dense":
            kernel = np.asarray(weights[f"{layer[1]}/kernel"], dtype=np.float64)
            out = a @ kernel + np.asarray(weights[f"{layer[1]}/bias"], dtype=np.float64)
        else:
            raise ValueError(f"unknown layer {layer!r}")
        values.append(out)
    return values


def numpy_logits(layers: Layers, weights: Weights, x: AnyArray) -> Array64:
    """Run a small network forward in float64.

    Parameters
    ----------
    layers
        For instance ``[("conv", "conv1"), ("relu",), ("pool",), ("flatten",), ("dense", "dense1")]``: convolutions,
        which may have a stride and a padding after their name, 2x2 max pools of stride 2, flattening in (H, W, C)
        order; ``("norm", name)`` with its statistics, ``("mean",)`` over height and width, and
        ``("residual", layers, shortcut)``.
    weights
        ``name/kernel``, (KH, KW, Cin, Cout) or (in, out), and ``name/bias``.
    x
        Images (N, H, W, C).

    Returns
    -------
    Array64
        The logits (N, K).
    """
    return _forward(layers, weights, x)[-1]


def nearest_turn(layers: Layers, weights: Weights, x: AnyArray) -> Array64:
    """How near each image (N, H, W, C) brings any ReLU to 0, where rounding decides whether a gradient passes."""
    nearest = np.full(len(x), np.inf)
    for layer, a in zip(layers, _forward(layers, weights, x), strict=False):
        if layer[0] == "relu":
            nearest = np.minimum(nearest, np.abs(a).reshape(len(a), -1).min(axis=1))
        elif layer[0] == "residual":
            for part in layer[1:]:
                nearest = np.minimum(nearest, nearest_turn(part, weights, a))
    return nearest


def numpy_vjp(layers: Layers, weights: Weights, x: AnyArray, v: AnyArray) -> Array64:
    """Return the gradient of Σ v·z with respect to x, by hand and in float64.

    A ReLU at 0 passes nothing; of equal largest values in a pool the first in row-major order gets the gradient.
    """
    values = _forward(layers, weights, x)
    g: Array64 = np.asarray(v, dtype=np.float64)
    for layer, a in zip(reversed(layers), reversed(values[:-1]), strict=True):
        if layer[0] == "conv":
            kernel = np.asarray(weights[f"{layer[1]}/kernel"], dtype=np.float64)
            padded, places = _conv_windows(a, kernel, *layer[2:])
            gathered = np.zeros_like(padded)
            for (i, j), place in places.items():
                gathered[place] += g @ kernel[i, j].T
            padding = (padded.shape[1] - a.shape[1]) // 2
            back = gathered[:, padding : padding + a.shape[1], padding : padding + a.shape[2]]
        elif layer[0] == "norm":
            back = g * _scale(weights, layer[1])
        elif layer[0] == "mean":
            back = np.broadcast_to(g[:, None, None] / (a.shape[1] * a.shape[2]), a.shape)
        elif layer[0] == "residual":
            back = numpy_vjp(layer[1], weights, a, g) + numpy_vjp(layer[2], weights, a, g)
        elif layer[0] == "relu":
            back = np.where(a > 0, g, 0.0)
        elif layer[0] == "pool":
            back = np.zeros_like(a)
            largest = np.maximum.reduce(_pool_windows(a))
            given = np.zeros(largest.shape, dtype=np.bool_)
            for source, target in zip(_pool_windows(a), _pool_windows(back), strict=True):
                here = (source == largest) & ~given
                target[here] = g[here]  # a view of back
                given |= here
        elif layer[0] == "flatten":
            back = g.reshape(a.shape)
        else:
            back = g @ np.asarray(weights[f"{layer[1]}/kernel"], dtype=np.float64).T
        g = back
    return g

"""Health checks: a success rate means nothing if the attack is broken.

Each check looks at one trained model, on at most fifty of the images that were attacked, and passes, fails or is
not applicable. After Carlini et al., "On Evaluating Adversarial Robustness", arXiv:1902.06705, 2019.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import TYPE_CHECKING

import msgspec
import numpy as np
from numpy.typing import NDArray

from ..attacks.ball import measure
from ..attacks.base import pixels
from ..attacks.draws import Draws
from ..attacks.fgsm import FGSM
from ..attacks.gradients import cross_entropy, follow, margin
from ..attacks.suite import Suite
from ..data.arrays import Images, Labels
from ..errors import ModelError
from ..models.batches import is_slow
from ..models.classifier import Classifier, unwrap
from ..models.model import Model, along, predict_outside
from ..records.answers import IMAGES, Check, Checked, judge, not_applicable
from ..threads import cores, in_order
from .blame import blame
from .plan import CHECKED
from .progress import Progress

if TYPE_CHECKING:
    import xarray

FEWEST = 10  # images that a slow model is asked about
QUERIES = 200  # of the attacks for each image that a slow network is checked on
STEPS = 40  # of PGD, each a tenth of the ball's radius: enough to cross it twice
UNBOUNDED = 1.0  # as ε: every image within the bounds
REACHED = 0.99  # by PGD without a bound
L2_BUDGETS = (1.0, 2.0, 3.0)
PASSES = 1e-5  # of the logits' spread, between two passes
SLOPES = 0.02  # error of the median slope along the gradient
SLOPES_ACROSS = 0.1  # along a random direction, where the slope is small and kinks weigh more
KEPT = 0.8  # of the images that fall, at 8 bits
LEVEL = 1e-3  # of a level: float32's rounding of an image that is on one
OTHERWISE = 0.01  # of the predictions, between a network inside and outside its wrapper: near ties
SPAN = 0.75  # of the bounds' width, which the images' values should span
EDGE = 0.01  # of the bounds' width, within which no images have their mean
NOISE = 0
SLOPE = 1
TIE = 2
SLOPE_STEP = 3e-3  # in L2, of a slope: a smaller one drowns in float32, a larger one meets the kinks of ReLU and pools
TIES = 0.03  # the largest change of a pixel that breaks the ties of pools on a constant background
TWO_PASSES = "two passes agree"
INSIDE = "as accurate inside as outside"
BOUNDS = "bounds fit the images"
ADVICE = {
    TWO_PASSES: "The same images give different logits each time: look for dropout, or batch norm in training mode.",
    INSIDE: "In its wrapper the network sees other images than in training: compare bounds, mean, std, the order of "
    "channels and the layout with the code that trained it.",
    BOUNDS: "Attacks step by a share of the bounds and set pixels to them: the bounds should be the smallest and the "
    "largest value that an image can have, in the units of mean and std.",
    "gradient fits finite differences": "The gradient is not that of the logits, or the logits are not smooth near "
    "the images.",
    "pgd reaches fgsm": "PGD should not be weaker than one step: its step size or its number of steps is too small, or "
    "the gradient is masked.",
    "pgd rises with epsilon": "A larger ball contains the smaller one, and without a bound every image is fooled: look "
    "for a saturated softmax, rounding or detached tensors in the model.",
    "noise is weaker": "Random noise fools at least half as many images as the gradient does: the gradient is not "
    "informative, or ε is so large that the direction hardly matters.",
    "gradient-free is weaker": "Attacks without the gradient should not do better: the gradient is masked.",
    "holds at 8 bits": "The perturbations are finer than 8-bit images can represent.",
}


def run_checks(
    models: Sequence[tuple[str, Classifier, xarray.Dataset]],
    suite: Suite,
    images: Images,
    labels: Labels,
    seed: int,
    progress: Progress,
) -> Checked:
    """Check trained models on the images that they were attacked on.

    Parameters
    ----------
    models : sequence of (label, Classifier, Dataset)
        Each with its outcomes over (attack, repeat, image), the images being those that are passed.
    suite : Suite
        The attacks that were run.
    images, labels : ndarray
        What was attacked, (N, H, W, C) float32 in [0, 1] and (N,). The first fifty are looked at; of slow networks
        that the attacks ask little, fewer, and at least ten.
    seed : int
        The attacks' seed, on which noise and directions depend.
    progress : Progress
        Is told of every model.
    """
    fgsm = next((attack for attack in suite.attacks.values() if isinstance(attack, FGSM)), FGSM())
    count = CHECKED
    if any(is_slow(classifier, images) for _, classifier, _ in models):
        queries = sum(attack.usual_queries(pixels(images), 1) for attack in suite.attacks.values()) * len(images)
        count = max(FEWEST, min(CHECKED, queries // QUERIES))
    images = images[:count]
    labels = labels[:count]
    without_gradient = [name for name, attack in suite.attacks.items() if not attack.needs_gradient]

    def check_model(position: int, stop: Callable[[], None]) -> list[Check]:
        stop()
        label, classifier, outcomes = models[position]
        l2 = outcomes.isel(image=slice(count)).l2.sel(attack=without_gradient)
        nearest = np.asarray(l2.min(("attack", "repeat"))) if without_gradient else None
        examination = _Examination(classifier, images, labels, fgsm, seed, nearest)
        checks = [*examination.check()]
        for name, attack in suite.attacks.items():
            if reason := attack.not_applicable(classifier):
                checks += [not_applicable(check, reason) for check in attack.check_names]
            else:
                outcomes_of_attack = outcomes.isel(image=slice(IMAGES)).sel(attack=name)
                checks += attack.health_checks(
                    name, outcomes_of_attack.isel(repeat=slice(int(outcomes_of_attack.repeats)))
                )
        pgd[label] = examination.pgd.get(fgsm.max_epsilon)
        return [msgspec.structs.replace(check, model=label) for check in checks]

    def check_named(position: int, stop: Callable[[], None]) -> list[Check]:
        return blame(f"making health checks of {models[position][0]}", check_model, position, stop)

    checks: list[Check] = []
    pgd: dict[str, float | None] = {}
    progress.begin("health checks", len(models))
    with _side_by_side([classifier for _, classifier, _ in models]) as (workers, begin):
        for made in in_order(check_named, range(len(models)), workers, begin):
            checks += made
            progress.step()
    return Checked(checks, fgsm.max_epsilon, len(images), {label: pgd[label] for label, *_ in models})


@contextmanager
def _side_by_side(classifiers: Sequence[Classifier]) -> Iterator[tuple[int, Callable[[], None]]]:
    """Yield how many models may be asked at once, and what each thread calls first: it takes its share of the cores."""
    workers = min((1 if each.on_gpu else each.workers for each in classifiers), default=1)
    used = {classifier.framework.name: classifier.framework for classifier in classifiers}
    before = {name: framework.threads() for name, framework in used.items()}

    def share() -> None:
        if workers > 1:
            for framework in used.values():
                framework.set_threads(max(1, cores() // workers))

    try:
        yield workers, share
    finally:
        for name, framework in used.items():
            framework.set_threads(before[name])


class _Examination:
    """One model, asked what its gradient is worth: about images and labels, compared with a single step of FGSM.

    `nearest` is the least L2 (N,) at which an attack without the gradient fooled the model, if there is such an attack.
    """

    def __init__(
        self,
        classifier: Classifier,
        images: Images,
        labels: Labels,
        fgsm: FGSM,
        seed: int,
        nearest: NDArray[np.float64] | None,
    ):
        self.classifier = classifier
        self.images = images
        self.labels = labels
        self.fgsm = fgsm
        self.seed = seed
        self.nearest = nearest
        self.no_gradient = ""
        self.pgd: dict[float, float] = {}  # by ε
        self.pgd_l2: list[float] = []  # by L2_BUDGETS
        self.fgsm_rate = math.nan
        if classifier.gradient_source is not None:
            self.no_gradient = (
                "FGSM follows the gradient of the model that it was converted from, which has its own checks"
            )
            return
        epsilon = fgsm.max_epsilon
        grid = sorted({epsilon / 2, epsilon, min(2 * epsilon, UNBOUNDED), UNBOUNDED})
        try:
            rates = self._run_pgd(grid, () if nearest is None else L2_BUDGETS).tolist()
            self.pgd = dict(zip(grid, rates[: len(grid)], strict=True))
            self.pgd_l2 = rates[len(grid) :]
            [self.by_fgsm] = fgsm.outcomes(classifier, images, labels, seed, [0])
            self.fgsm_rate = float(self.by_fgsm.success.mean())
        except (ModelError, NotImplementedError) as error:
            self.no_gradient = str(error).partition(". ")[0]

    def _run_pgd(self, linf: Sequence[float], l2: Sequence[float]) -> NDArray[np.float64]:
        """Return the success rate of projected gradient descent (Madry et al. 2018) in each ball, all side by side.

        Steps are a tenth of the radius, along the sign of the gradient in the balls of L∞ and the gradient in those of
        L2. An image has fallen at the first step that fools the model.
        """
        n = len(self.images)
        balls = len(linf) + len(l2)
        clean = np.tile(self.images, (balls, 1, 1, 1)).astype(np.float64)
        labels = np.tile(self.labels, balls)
        radius = np.repeat([*linf, *l2], n)[:, None, None, None]
        in_linf = np.repeat(np.arange(balls) < len(linf), n)[:, None, None, None]
        x = clean.copy()
        fallen = np.zeros(len(x), np.bool_)
        pending = np.arange(len(x))
        for _ in range(STEPS):
            if fallen.all():
                break
            half = len(pending) // 2
            if (~fallen[pending]).sum() <= half:  # not fewer, as some frameworks compile for every new number
                pending = pending[np.argsort(fallen[pending], kind="stable")[:half]]
            inputs = x[pending].astype(np.float32)
            logits, _, in_float32 = follow(self.classifier, None, inputs, cross_entropy, labels[pending])
            fallen[pending] |= logits.argmax(axis=1) != labels[pending]
            gradient = in_float32.astype(np.float64)
            unit = gradient / np.maximum(measure(gradient, "l2"), 1e-30)
            limit = radius[pending]
            moved = x[pending] + 0.1 * limit * np.where(in_linf[pending], np.sign(gradient), unit) - clean[pending]
            shrunk = moved * np.minimum(1, limit / np.maximum(measure(moved, "l2"), 1e-30))
            moved = np.where(in_linf[pending], np.clip(moved, -limit, limit), shrunk)
            x[pending] = np.clip(clean[pending] + moved, 0, 1)
        fallen[pending] |= self.classifier.predict(x[pending].astype(np.float32)) != labels[pending]
        return np.asarray(fallen.reshape(balls, n).mean(axis=1))

    def check(self) -> Iterator[Check]:
        """Yield each check."""
        without_gradient = [self._two_passes(), self._inside(), self._bounds()]
        yield from without_gradient
        if self.no_gradient:
            made = {check.check for check in without_gradient}
            yield from (not_applicable(check, self.no_gradient) for check in ADVICE if check not in made)
            return
        epsilon = self.fgsm.max_epsilon
        yield self._finite_differences()
        figure = f"PGD {self.pgd[epsilon]:.0%}, FGSM {self.fgsm_rate:.0%} at ε = {epsilon:g}"
        yield _judge("pgd reaches fgsm", self.pgd[epsilon] >= self.fgsm_rate, figure)
        rates = list(self.pgd.values())
        rises = all(low <= high for low, high in pairwise(rates)) and rates[-1] >= REACHED
        figure = ", ".join(f"{rate:.0%} at {epsilon:g}" for epsilon, rate in self.pgd.items())
        yield _judge("pgd rises with epsilon", rises, figure)
        yield self._noise()
        yield self._gradient_free()
        yield self._eight_bits()

    def _two_passes(self) -> Check:
        first = self.classifier.logits(self.images)
        second = self.classifier.logits(self.images)
        largest = float(np.abs(first - second).max() / max(float(first.std()), 1e-30))
        return _judge(TWO_PASSES, largest <= PASSES, f"logits differ by {largest:.1g} of their spread")

    def _inside(self) -> Check:
        """Compare with the network as it is."""
        try:
            outside = predict_outside(self.classifier, self.images)
        except ModelError as error:
            return not_applicable(INSIDE, str(error))
        inside = self.classifier.predict(self.images)
        figure = f"{np.mean(inside == self.labels):.0%} inside, {np.mean(outside == self.labels):.0%} outside"
        return _judge(INSIDE, bool(np.mean(inside != outside) <= OTHERWISE), figure)

    def _bounds(self) -> Check:
        """Compare the range of the images with the bounds, and a mean that is subtracted with either.

        A mean at the edge of the bounds has another scale: 0.49 in bounds from 0 to 255.
        """
        model = unwrap(self.classifier.model)
        (low, high), preprocessing = model.wrapped_as if isinstance(model, Model) else ((0, 1), {})
        ends = [float(end) for end in (self.images.min(), self.images.max())]
        least, most = (low + (high - low) * end for end in ends)
        figure = f"values from {least:g} to {most:g} in bounds {low:g} to {high:g}"
        passed = ends[1] - ends[0] >= SPAN
        mean = along(preprocessing, "mean", 0)
        if mean.any():
            position = (mean - low) / (high - low)
            passed &= bool(((position >= EDGE) & (position <= 1 - EDGE)).all())
            figure += f", mean {mean.mean():.3g}"
        return _judge(BOUNDS, passed, figure)

    def _finite_differences(self) -> Check:
        along, across = _compare_slopes(self.classifier, self.images, self.labels, self.seed)
        figure = f"the median slope is {along:.1%} off along the gradient, {across:.0%} across"
        return _judge("gradient fits finite differences", along <= SLOPES and across <= SLOPES_ACROSS, figure)

    def _noise(self) -> Check:
        if self.fgsm_rate == 0:
            return not_applicable("noise is weaker", "FGSM fools no image")
        draws = Draws("Noise", self.seed, [0], self.images)
        noise = np.array([draws.block(i, NOISE).random(image.shape) < 0.5 for i, image in enumerate(self.images)])
        signs = np.where(noise, -1, 1)
        candidates = np.clip(self.images + self.fgsm.max_epsilon * signs, 0, 1).astype(np.float32)
        rate = float((self.classifier.predict(candidates) != self.labels).mean())
        figure = f"noise {rate:.0%}, FGSM {self.fgsm_rate:.0%} at ε = {self.fgsm.max_epsilon:g}"
        return _judge("noise is weaker", rate <= self.fgsm_rate / 2, figure)

    def _gradient_free(self) -> Check:
        check = "gradient-free is weaker"
        if self.nearest is None:
            return not_applicable(check, "the suite has no attack without the gradient")
        pairs = [
            (budget, float((self.nearest <= budget).mean()), rate)
            for budget, rate in zip(L2_BUDGETS, self.pgd_l2, strict=True)
        ]
        figure = ", ".join(f"{without:.0%} beside {rate:.0%} at L2 ≤ {budget:g}" for budget, without, rate in pairs)
        return _judge(check, all(without <= rate for _, without, rate in pairs), figure)

    def _eight_bits(self) -> Check:
        """Ask about FGSM's adversarial images rounded to 8 bits, away from the clean ones but within whole levels."""
        check = "holds at 8 bits"
        levels = math.floor(255 * self.fgsm.max_epsilon + LEVEL)
        fell = self.by_fgsm.success & (255 * self.by_fgsm.linf <= levels + LEVEL)
        if levels < 1 or not fell.any():
            reason = "FGSM fools no image" if levels else "ε is below one level of 8 bits"
            return not_applicable(check, reason)
        clean, adversarial = (
            255 * images[fell].astype(np.float64) for images in (self.images, self.by_fgsm.adversarials)
        )
        away = np.where(adversarial > clean, np.ceil(adversarial - LEVEL), np.floor(adversarial + LEVEL))
        rounded = np.where(adversarial == clean, np.rint(adversarial), away)
        rounded = np.clip(rounded, np.ceil(clean - levels - LEVEL), np.floor(clean + levels + LEVEL))
        share = float((self.classifier.predict((rounded / 255).astype(np.float32)) != self.labels[fell]).mean())
        figure = f"{share:.0%} of FGSM's adversarial images within ε = {levels}/255 fool at 8 bits"
        return _judge(check, share >= KEPT, figure)


def _compare_slopes(classifier: Classifier, images: Images, labels: Labels, seed: int) -> tuple[float, float]:
    """Return how far the gradient's slopes are off, along itself and along a random direction.

    The slopes are those of each image's margin, that of its class over the largest other. Both are shares of the
    typical slope. Along its own gradient a network with parts of it cut off shows nothing; along others kinks weigh
    more.
    """
    draws = Draws("Slopes", seed, [0], images)
    # On a constant background all inputs of a pool are largest.
    moves = np.array([draws.block(i, TIE).random(image.shape) for i, image in enumerate(images)])
    beside: NDArray[np.float32] = np.abs(images - TIES * moves).astype(np.float32)
    _, v = margin(classifier.logits(beside), labels)
    gradient = classifier.vjp(beside, v).astype(np.float64)
    random = np.array([draws.block(i, SLOPE).standard_normal(image.shape) for i, image in enumerate(images)])

    def measure_error(direction: NDArray[np.float64]) -> float:
        up = classifier.logits((beside + SLOPE_STEP * direction).astype(np.float32)).astype(np.float64)
        down = classifier.logits((beside - SLOPE_STEP * direction).astype(np.float32))
        measured = ((up - down) * v).sum(axis=1) / (2 * SLOPE_STEP)
        expected = (gradient * direction).sum(axis=(1, 2, 3))
        return float(np.median(np.abs(measured - expected)) / max(float(np.median(np.abs(measured))), 1e-30))

    along = measure_error(gradient / np.maximum(measure(gradient, "l2"), 1e-30))
    return along, measure_error(random / measure(random, "l2"))


def _judge(check: str, passed: bool, figure: str) -> Check:
    return judge(check, passed, figure, ADVICE[check])

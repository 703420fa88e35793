"""What tells a model from every other one, as far as its cells depend on it.

No model can be seen whole: a wrapper may do anything with an image that nobody has asked about. So a cell's key holds
all that can be known at a bounded cost:

- the weights, where the framework gives them (torch, Keras, JAX networks with their parameters, hosts). They are not
  enough, because a network can be wrapped in code that answers differently;
- the logits on all images that are attacked;
- the logits on perturbed copies of a few of these images. A defence that leaves clean images alone, such as one that
  detects noise, shows there;
- for an attack that follows the gradient, the gradient of the cross-entropy at the same few images and copies, taken as
  the attacks take it. A model whose gradient is masked, or wrong, has the same logits as the plain one.

The same network under two names has the same of all four, and shares its cells. Code that differs only on images other
than these remains unseen.

All four are compared bit by bit: a model that differs in the last bit may decide a near tie differently. Where the bits
vary from pass to pass, or from one machine to the next, *sketches*, a few rounded numbers, say whether it is the same
network nevertheless.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from ..attacks.draws import Draws
from ..attacks.gradients import cross_entropy
from ..data.arrays import Images, Labels
from ..files import digest
from ..models.classifier import Classifier

FEW = 16  # images that are perturbed, at the most
FEWEST = 4
SMALL = 0.1  # perturbations in L∞
LARGE = 0.5
SIGNS = 0
NOISE = 1
UNIFORM = 2
SKETCHED = 8  # of all probes, each is one number
AGREEMENT = 1e-3  # of the largest number of a sketch, between two machines


class Identity(msgspec.Struct, frozen=True):
    """What tells a model from others.

    Attributes
    ----------
    weights : str or None
        The SHA-256 of its parameters, in their order; None where its framework cannot give them.
    logits, probes : str
        Of its logits on the attacked images, and on perturbed copies of a few of them.
    gradient : str or None
        Of its gradient there; None where no attack needs one.
    logits_sketch, gradient_sketch : list of float
        What is left of these answers to recognise the model by where their last bits differ.
    noise, gradient_noise : float
        The largest difference between two passes over the same images; 0 where they agree bit for bit.
    """

    weights: str | None
    logits: str
    probes: str
    gradient: str | None
    logits_sketch: list[float]
    gradient_sketch: list[float]
    noise: float = 0.0
    gradient_noise: float = 0.0

    def in_key(self, needs_gradient: bool) -> dict[str, str | None]:
        """Return what of it determines the cells of an attack."""
        content = {"weights": self.weights, "logits": self.logits, "probes": self.probes}
        return content | {"gradient": self.gradient} if needs_gradient else content

    def is_like(self, other: Identity) -> bool:
        """Say whether this and another are one network, whose answers differ in their last bits at the most.

        The weights have to be known and the same. Of the gradient half has to agree: where rounding breaks a tie of a
        pool, the gradient takes another way.
        """
        return (
            self.weights is not None
            and self.weights == other.weights
            and _agreement(self.logits_sketch, other.logits_sketch) == 1
            and (
                None in (self.gradient, other.gradient) or _agreement(self.gradient_sketch, other.gradient_sketch) > 0.5
            )
        )

    def difference(self, other: Identity, needs_gradient: bool) -> str:
        """Say what an attack's cells depend on that differs in a model of another process; nothing if all is the same.

        Bits that vary from pass to pass are compared by their sketches, except those of the clean logits: cells whose
        logits another process cannot repeat are this process's.
        """
        if self.logits != other.logits:
            return "its clean logits"
        alike = _agreement(self.logits_sketch, other.logits_sketch) == 1 if self.noise else self.probes == other.probes
        if not alike:
            return "its logits on perturbed images"
        if needs_gradient:
            likeness = _agreement(self.gradient_sketch, other.gradient_sketch)
            if not (likeness > 0.5 if self.gradient_noise else self.gradient == other.gradient):
                return "its gradients"
        return "" if self.weights == other.weights else "its weights"

    def steady(self, stored: Sequence[Identity]) -> Identity:
        """Return this identity without its noise: bits that vary are those of an earlier session that is like it."""
        if not self.noise and not self.gradient_noise:
            return self
        same = next((other for other in stored if self.is_like(other)), self)
        names = ["logits", "probes", "logits_sketch", "noise"] if self.noise else []
        if self.gradient_noise and same.gradient is not None:
            names += ["gradient", "gradient_sketch", "gradient_noise"]
        return msgspec.structs.replace(self, **{name: getattr(same, name) for name in names})


def identify(
    classifier: Classifier, images: Images, labels: Labels, needs_gradient: bool
) -> tuple[Identity, NDArray[np.float32]]:
    """Return what tells a model from others, and its logits (N, K) on the attacked images.

    Everything is asked twice, so that noise is seen. The cost is two passes over the images and over at most 64 probes,
    with their gradients where an attack needs the gradient.

    Parameters
    ----------
    classifier : Classifier
        The model, with the batch size that it is attacked with.
    images, labels : ndarray
        The images that are attacked, (N, H, W, C) float32 in [0, 1], and their classes (N,).
    needs_gradient : bool
        Whether an attack follows its gradient.
    """
    first, again = (_Look.at(classifier, images, labels, needs_gradient) for _ in range(2))
    noise = max(_difference(first.logits, again.logits), _difference(first.answers, again.answers))
    gradient_noise = 0.0 if first.slopes is None or again.slopes is None else _difference(first.slopes, again.slopes)
    identity = msgspec.structs.replace(first.identity(classifier), noise=noise, gradient_noise=gradient_noise)
    return identity, first.logits


def identify_once(classifier: Classifier, images: Images, labels: Labels, needs_gradient: bool) -> Identity:
    """Return what `identify` does, at half its cost, for a comparison with an identity whose noise is known."""
    return _Look.at(classifier, images, labels, needs_gradient).identity(classifier)


class _Look(NamedTuple):
    """What a model answers once: to the attacked images and to the probes, with its gradient there if it is needed."""

    logits: NDArray[np.float32]
    answers: NDArray[np.float32]
    slopes: NDArray[np.float32] | None

    @classmethod
    def at(cls, classifier: Classifier, images: Images, labels: Labels, needs_gradient: bool) -> _Look:
        few = min(FEW, max(FEWEST, len(images) // 8, classifier.batch_size // 8))  # what determines a cell's key, too
        some = _make_probes(images[:few])
        logits = classifier.logits(images)
        answers = classifier.logits(some)
        followed = classifier.gradient_source  # the model that a deployed network was converted from
        if not needs_gradient or (followed is None and classifier.no_gradient):
            return cls(logits, answers, None)
        answers_there = answers if followed is None else followed.logits(some)
        classes = np.tile(labels[:few], len(some) // len(labels[:few]))
        slope = cross_entropy(np.nan_to_num(answers_there), classes)[1]
        return cls(logits, answers, (followed or classifier).vjp(some, slope))

    def identity(self, classifier: Classifier) -> Identity:
        return Identity(
            weights=classifier.weights_digest,
            logits=digest({"logits": self.logits}),
            probes=digest({"logits": self.answers}),
            gradient=None if self.slopes is None else digest({"gradient": self.slopes}),
            logits_sketch=_sketch(self.answers),
            gradient_sketch=[] if self.slopes is None else _sketch(self.slopes),
        )


def _make_probes(images: Images) -> NDArray[np.float32]:
    """Return a few images and perturbed copies of them, four times as many.

    The perturbations are ±0.1 in each value, uniform noise of ±0.5, and uniform noise instead of the image. Each is a
    function of the image alone.
    """
    draws = Draws("Probe", 0, [0], images)
    shape = images.shape[1:]
    rows = range(len(images))
    signs = np.array([draws.block(row, SIGNS).choice([-1.0, 1.0], shape) for row in rows])
    noise = np.array([draws.block(row, NOISE).uniform(-1, 1, shape) for row in rows])
    uniform = np.array([draws.block(row, UNIFORM).random(shape) for row in rows])
    perturbed = [np.clip(images + SMALL * signs, 0, 1), np.clip(images + LARGE * noise, 0, 1), uniform]
    return np.concatenate([images, *(copies.astype(np.float32) for copies in perturbed)])


def _difference(first: NDArray[np.float32], other: NDArray[np.float32]) -> float:
    """Return the largest difference, 0 only where all bits are the same."""
    if first.tobytes() == other.tobytes():
        return 0.0
    with np.errstate(invalid="ignore"):
        difference = np.abs(first.astype(np.float64) - other)
    return max(float(np.nan_to_num(difference, posinf=0.0).max()), float(np.finfo(np.float32).tiny))


def _sketch(answers: NDArray[np.float32]) -> list[float]:
    """Return one number of each of a few rows: the sum of their values, each with a weight of its own."""
    rows = np.nan_to_num(answers[:: max(1, len(answers) // SKETCHED)].reshape(-1, answers[0].size)).astype(np.float64)
    return [float(f"{value:.6g}") for value in rows @ np.cos(np.arange(1, rows.shape[1] + 1))]


def _agreement(first: Sequence[float], other: Sequence[float]) -> float:
    """Return the share of two sketches that agree."""
    if len(first) != len(other) or not first:
        return 0.0
    a = np.array(first)
    b = np.array(other)
    return float((np.abs(a - b) <= AGREEMENT * max(np.abs(a).max(), np.abs(b).max())).mean())

"""What the three attacks share: asking, repeats, distances, and the final check."""

from __future__ import annotations

import copy
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, cast

import eagerpy as ep
import foolbox as fb
import numpy as np
from foolbox.attacks.base import MinimizationAttack, get_criterion, raise_if_kwargs
from numpy.typing import NDArray

from ..data.arrays import check_images, check_labels, check_unit_images
from ..errors import UsageError, check_count, check_seed
from ..frameworks import DataFormat
from ..models.classifier import Candidates, Classifier
from ..models.preflight import in_unit_bounds
from ..records.answers import Check
from ..records.attack import AttackRecord, AttackResult, AttackTable, Convergence, Extra, Extras, Norm, PositionDraws

if TYPE_CHECKING:
    import xarray

Images = NDArray[np.float32]
Labels = NDArray[np.int64]
WORTH_COMPILING = 10_000  # queries


@dataclass(frozen=True)
class Perturbed:
    """What an attack ended with, before the final check: one entry an image.

    `images` (N, H, W, C) float32 are adversarial where `fooled` (N,) says so, by the answers that the attack got.
    """

    fooled: NDArray[np.bool_]
    images: Images
    queries: NDArray[np.int64]
    extras: dict[str, NDArray[Any]] = field(default_factory=dict)

    def part(self, rows: slice) -> Perturbed:
        """Return what came of some of the images."""
        extras = {name: values[rows] for name, values in self.extras.items()}
        return Perturbed(self.fooled[rows], self.images[rows], self.queries[rows], extras)


def first_on_grid(
    candidates: Candidates, labels: Labels, grid: Sequence[float]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Ask about each row with one value of the grid after another, until the model is fooled.

    Returns
    -------
    first : ndarray of int64, shape (N,)
        The place on the grid of the first value that fools the model, -1 where none does.
    queries : ndarray of int64, shape (N,)
        How many were asked.
    """
    first, queries = np.full(len(labels), -1), np.zeros(len(labels), np.int64)
    pending = np.arange(len(labels))
    for place, value in enumerate(grid):
        if not len(pending):
            break
        fooled = candidates.predict(np.arange(len(pending)), np.full(len(pending), value)) != labels[pending]
        queries[pending] += 1
        if fooled.any():
            first[pending[fooled]] = place
            pending = pending[~fooled]
            candidates.keep(np.flatnonzero(~fooled))
    return first, queries


def pixels(images: Images) -> int:
    """Return how many pixels an image has."""
    _, height, width, _ = images.shape
    return int(height * width)


def judge(classifier: Classifier, images: Images, labels: Labels, perturbed: Perturbed) -> AttackResult:
    """Ask once more about every image that fooled the model, and measure the distances of those that still do."""
    classes = np.full(len(images), -1, np.int64)
    classes[perturbed.fooled] = classifier.predict(perturbed.images[perturbed.fooled])
    success = perturbed.fooled & (classes != labels)
    adversarials = np.where(success[:, None, None, None], perturbed.images, images)
    l0, l2, linf = (np.where(success, distance, np.inf) for distance in distances(images, adversarials))
    return AttackResult(
        adversarials=adversarials,
        success=success,
        l0=l0,
        l2=l2,
        linf=linf,
        adversarial_class=np.where(success, classes, -1),
        queries=perturbed.queries,
        extras=perturbed.extras,
    )


def _tensor(value: Any) -> ep.Tensor:
    try:
        return cast(ep.Tensor, ep.astensor(value))
    except ValueError:
        raise UsageError(
            f"expected a NumPy array, or a tensor of the model's framework, received {type(value).__name__}"
        ) from None


def empty_like(part: AttackResult, n: int) -> AttackResult:
    """Return a result of n images to be filled with parts such as this one."""

    def empty(values: NDArray[Any]) -> NDArray[Any]:
        return np.empty((n, *values.shape[1:]), values.dtype)

    arrays = {name: empty(values) for name, values in vars(part).items() if name != "extras"}
    return AttackResult(**arrays, extras={name: empty(values) for name, values in part.extras.items()})


def _join(results: Iterator[list[AttackResult]], parts: Sequence[slice], n: int) -> list[AttackResult]:
    """Put the results of parts together, in one or more repeats, each as soon as it is there."""
    wholes: list[AttackResult] = []
    for part in parts:
        of_repeats = next(results)
        wholes = wholes or [empty_like(result, n) for result in of_repeats]
        for whole, result in zip(wholes, of_repeats, strict=True):
            fill(whole, part, result)
    return wholes


def fill(whole: AttackResult, where: slice, part: AttackResult) -> None:
    """Copy the result of some images into that of all."""
    for name, values in vars(part).items():
        if name != "extras":
            getattr(whole, name)[where] = values
    for name, values in part.extras.items():
        whole.extras[name][where] = values


def distances(images: Images, others: Images) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Return L0 (in pixels), L2 and L∞ between images (N, H, W, C), each (N,), in float64."""
    difference = np.abs(others.astype(np.float64) - images)
    return (
        (difference != 0).any(axis=3).sum(axis=(1, 2)).astype(np.float64),
        np.sqrt((difference**2).sum(axis=(1, 2, 3))),
        difference.max(axis=(1, 2, 3), initial=0.0),
    )


def unit(images: Images, bounds: tuple[float, float]) -> Images:
    """Return images within bounds scaled to [0, 1], as the random draws are keyed."""
    lower, upper = bounds
    if (lower, upper) == (0.0, 1.0):
        return images
    scaled: Images = ((images.astype(np.float64) - lower) / (upper - lower)).astype(np.float32)
    return scaled


class L0(fb.distances.LpDistance):
    """Foolbox's L0, the number of values that differ (three for a pixel in colour), with a way to clip.

    Foolbox scales a perturbation down to an epsilon, which changes no L0; one that is too large is dropped.
    """

    def __init__(self) -> None:
        super().__init__(0)

    def clip_perturbation(self, references: Any, perturbed: Any, epsilon: float) -> Any:
        """Return the perturbed images where at most epsilon values differ, and the references elsewhere."""
        (x, y), restore = ep.astensors_(references, perturbed)
        within = self(x, y) <= epsilon
        return restore(ep.where(within.reshape((-1, *[1] * (x.ndim - 1))), y, x))


class Attack(MinimizationAttack):
    """An untargeted attack that searches for the smallest adversarial perturbation, a Foolbox `MinimizationAttack`.

    A subclass defines how candidates are made (`perturb`). It works on every Foolbox model, with the
    candidates of many images in one batch. Reports read its `record`, which is built from the attributes
    below.
    """

    semantics: ClassVar[int] = 1
    """The version of what the attack computes; results of different versions are not mixed in a run."""
    deterministic: bool = False
    """Whether all repeats are the same."""
    needs_gradient: bool = False
    takes_source_gradient: ClassVar[bool] = False
    """Whether the gradient of the model that a deployed network was converted from will do, where it has none."""
    shares_answers: ClassVar[bool] = False
    """Whether an answer of one repeat saves queries of another, so that all repeats are done together."""
    norm: Norm
    """The distance that the attack keeps small, by its name."""
    at_epsilon: ClassVar[str] = ""
    """The extra that holds the smallest ε of the `grid` at which an image falls."""
    start: ClassVar[str] = ""
    """The extra that says whether the attack could begin; where it could not, success is not about robustness."""
    compares_distances: ClassVar[bool] = False
    """Whether its distances, in its `norm`, are tested beside its success."""
    in_indicator: ClassVar[bool] = True
    """Whether it counts in R; an attack that does not is a reference beside R."""
    takes_misclassified: ClassVar[bool] = False
    """Whether an image that the model misclassifies falls at distance 0, so that it can run on all images."""
    in_control: ClassVar[bool] = False
    """Whether the same weights in two frameworks should fall to it on the same images."""
    table: ClassVar[AttackTable | None] = None
    """What it adds to a report."""
    cite: ClassVar[str] = ""
    """What to cite for it, as BibTeX."""
    check_names: ClassVar[tuple[str, ...]] = ()
    """The names of the health checks that it makes of its own outcomes."""

    _first = 0  # the repeat that `run` stands for, and
    _times = 1  # of how many repeats from there on it gives the best
    _finished: Mapping[str, NDArray[Any]] = MappingProxyType({})  # the extras of a repeat that is done, or nothing

    @abstractmethod
    def perturb(
        self, classifier: Classifier, images: Images, labels: Labels, seed: int, repeats: Sequence[int]
    ) -> Iterator[Perturbed]:
        """Yield what comes out of each of the repeats, in their order, for so many images as advance together."""

    @property
    def distance(self) -> fb.distances.Distance:
        """The distance that the attack keeps small."""
        return L0() if self.norm == "l0" else cast(fb.distances.Distance, getattr(fb.distances, self.norm))

    @abstractmethod
    def most_queries(self, pixels: int, repeats: int) -> int:
        """Return how many queries one image can take at the most, in so many repeats."""

    def usual_queries(self, pixels: int, repeats: int) -> int:
        """Return about how many queries one image takes in so many repeats; for the time that is left."""
        return self.most_queries(pixels, repeats)

    @property
    def grid(self) -> list[float]:
        """The ε at which success is counted, none for an attack that has no grid."""
        return []

    @property
    def extras(self) -> dict[str, Extra]:
        """The values an image that not every attack has."""
        return {}

    @property
    def convergence(self) -> Convergence | None:
        """When its search has converged, where its distances are only compared then."""
        return None

    @property
    def position_draws(self) -> PositionDraws | None:
        """How the expectation over all draws comes from the extras, where it is known."""
        return None

    @property
    def expected_failures(self) -> list[str]:
        """Those of its health checks that fail with its settings by nature."""
        return []

    @property
    def notes(self) -> list[str]:
        """Sentences for a report, said after the attack's name and a colon."""
        return []

    @property
    def settings(self) -> dict[str, Any]:
        """The constructor's arguments."""
        return {name: value for name, value in vars(self).items() if not name.startswith("_")}

    @property
    def record(self) -> AttackRecord:
        """What a reader of its outcomes has to know of it."""
        if not hasattr(self, "norm"):
            raise UsageError(f'{type(self).__name__} should declare its norm, "l0", "l2" or "linf"')
        return AttackRecord(
            class_name=type(self).__name__,
            settings=self.settings,
            semantics=self.semantics,
            deterministic=self.deterministic,
            norm=self.norm,
            extras=self.extras,
            grid=self.grid,
            at_epsilon=self.at_epsilon,
            start=self.start,
            compares_distances=self.compares_distances,
            convergence=self.convergence,
            position_draws=self.position_draws,
            in_indicator=self.in_indicator,
            in_control=self.in_control,
            table=self.table,
            notes=self.notes,
            cite=self.cite,
            expected_failures=self.expected_failures,
        )

    def not_applicable(self, classifier: Classifier) -> str:
        """Return why the attack cannot run on a model, or "" if it can."""
        if not self.needs_gradient or (self.takes_source_gradient and classifier.gradient_source is not None):
            return ""
        return classifier.no_gradient

    def health_checks(self, name: str, outcomes: xarray.Dataset) -> Iterator[Check]:
        """Yield what its own outcomes say of one model, a check for each of `check_names`.

        Parameters
        ----------
        name : str
            What it is called in its suite.
        outcomes : xarray.Dataset
            Over (repeat, image), of its own repeats.
        """
        return iter(())

    def attack(
        self,
        model: fb.models.base.Model,
        images: Any,
        labels: Any,
        *,
        seed: int = 0,
        repeat: int = 0,
        batch_size: int | None = None,
        data_format: DataFormat | None = None,
    ) -> AttackResult:
        """Attack images and return all outcomes.

        Parameters
        ----------
        model : foolbox.models.base.Model
            From `robustcmp.wrap`, or one that Foolbox made.
        images : ndarray of float32, shape (N, H, W, C), or a tensor of the model in its own layout
            An ndarray in [0, 1], whatever the model's bounds; a tensor within them.
        labels : array or tensor of int, shape (N,)
            The true classes.
        seed, repeat : int
            All random draws are a function of (seed, attack, repeat, image).
        batch_size : int, optional
            Images per forward pass (default: 256, or as many as fit in 64 MiB in float64).
        data_format : str, optional
            Where the channels of an ndarray are, as for `robustcmp.evaluate`.

        Returns
        -------
        AttackResult

        Raises
        ------
        UsageError
            Images or labels are invalid, or a batch of this size does not fit into memory.
        """
        if isinstance(images, np.ndarray):
            model, images = in_unit_bounds(model), check_unit_images(images, data_format)
            data_format = "channels_last"
        [result] = self.attack_repeats(
            model, images, labels, seed=seed, repeats=[repeat], batch_size=batch_size, data_format=data_format
        )
        return result

    def attack_repeats(
        self,
        model: fb.models.base.Model,
        images: Any,
        labels: Any,
        *,
        seed: int = 0,
        repeats: Sequence[int],
        batch_size: int | None = None,
        data_format: DataFormat | None = None,
    ) -> Iterator[AttackResult]:
        """Return an iterator of `attack` of each of the repeats; answers they have in common are asked for once."""
        numpy_images = isinstance(images, np.ndarray)
        classifier = Classifier(model, batch_size, like=None if numpy_images else _tensor(images).raw)
        seed, repeats = check_seed(seed), [check_seed(repeat, "a repeat") for repeat in repeats]
        if not numpy_images:
            if data_format is not None:
                raise UsageError("data_format is for NumPy arrays: a tensor has the layout of its model. Omit it")
            images, data_format = classifier.array(images), "channels_last"
        x = check_images(images, classifier.bounds, data_format=data_format)
        if not len(x):
            raise UsageError("expected at least one image, received none")
        classifier = classifier.with_batch_size_for(x, batch_size)
        classes = classifier.logits(x[:1]).shape[1]
        y = check_labels(labels if isinstance(labels, np.ndarray) else _tensor(labels).numpy(), len(x), classes)
        if len(x) * self.most_queries(pixels(x), len(repeats)) >= WORTH_COMPILING:
            classifier = classifier.compile(x)
        results = self.outcomes(classifier, x, y, seed, repeats)
        if numpy_images:
            return results
        return (replace(result, adversarials=classifier.tensor(result.adversarials)) for result in results)

    def outcomes(
        self, classifier: Classifier, images: Images, labels: Labels, seed: int, repeats: Sequence[int]
    ) -> Iterator[AttackResult]:
        """Yield the result of each of the repeats, in NumPy, on images and labels that were checked.

        The images are cut into parts that fit into a batch: so memory does not grow with their number, and the parts
        are done side by side. Repeats that share answers are all done together, others as many as fill a batch.
        """
        if self.deterministic and len(repeats) > 1:
            [result] = self.outcomes(classifier, images, labels, seed, repeats[:1])
            yield from [result] * len(repeats)
            return
        parts = classifier.parts(images)
        a_batch = max(1, classifier.largest_part(images) // len(images[parts[0]]))
        at_once = max(1, len(repeats)) if self.shares_answers else a_batch
        together = [repeats[start : start + at_once] for start in range(0, len(repeats), at_once)]

        def attack_part(classifier: Classifier, task: tuple[Sequence[int], slice]) -> list[AttackResult]:
            some, part = task
            x, y = images[part], labels[part]
            attack = self.with_finished_repeat({name: values[part] for name, values in self._finished.items()})
            return [attack.assess(classifier, x, y, each) for each in attack.perturb(classifier, x, y, seed, some)]

        # Closed here: an interrupt while it waits for its threads is lost where the garbage collector closes it.
        with closing(classifier.map(attack_part, ((some, part) for some in together for part in parts))) as results:
            for _ in together:
                yield from _join(results, parts, len(images))

    def assess(self, classifier: Classifier, images: Images, labels: Labels, perturbed: Perturbed) -> AttackResult:
        """Return what `perturb` yielded with its final check; raise `UsageError` for undeclared extras."""
        if perturbed.extras.keys() != self.extras.keys():
            raise UsageError(
                f"{type(self).__name__} declares the extras {', '.join(self.extras) or 'none'}, and yields "
                f"{', '.join(perturbed.extras) or 'none'}"
            )
        return judge(classifier, images, labels, perturbed)

    def run(
        self,
        model: fb.models.base.Model,
        inputs: Any,
        criterion: Any,
        *,
        early_stop: float | None = None,
        seed: int = 0,
        repeat: int | None = None,
        batch_size: int | None = None,
        data_format: DataFormat | None = None,
        **kwargs: Any,
    ) -> Any:
        """Return the adversarial images, or the clean ones where the attack failed: Foolbox's interface."""
        raise_if_kwargs(kwargs)
        x, restore = ep.astensor_(inputs)
        criterion = get_criterion(criterion)
        if not isinstance(criterion, fb.criteria.Misclassification):
            raise UsageError(f"{type(self).__name__} is untargeted: expected labels, received {criterion!r}")
        first = self._first if repeat is None else repeat
        results = self.attack_repeats(
            model,
            x.raw,
            criterion.labels.raw,
            seed=seed,
            repeats=range(first, first + self._times),
            batch_size=batch_size,
            data_format=data_format,
        )
        best = next(results)
        adversarials, smallest = ep.astensor(best.adversarials), getattr(best, self.norm)
        for result in results:
            size = getattr(result, self.norm)
            closer, smallest = size < smallest, np.minimum(size, smallest)
            mask = ep.from_numpy(x, closer.reshape(-1, *[1] * (x.ndim - 1)))
            adversarials = ep.where(mask, ep.astensor(result.adversarials), adversarials)
        return restore(adversarials)

    def repeat(self, times: int) -> Attack:
        """Return the attack whose result is the best of `times` repeats, counted from the one that it stands for."""
        check_count("times", times)
        attack = copy.copy(self)
        attack._times = self._times * times
        return attack

    def at_repeat(self, n: int) -> Attack:
        """Return the attack that stands for the repeat n instead of 0."""
        attack = copy.copy(self)
        attack._first = n
        return attack

    def with_finished_repeat(self, extras: Extras) -> Attack:
        """Return the attack with the extras of a repeat of these images: they may save queries, and change nothing."""
        attack = copy.copy(self)
        attack._finished = extras
        return attack

    def only_draws(self) -> Attack:
        """Return the attack without queries beyond those of its repeats, as where these are spread over trainings."""
        return self

    def __repr__(self) -> str:
        arguments = ", ".join(f"{name}={value!r}" for name, value in self.settings.items())
        return f"{type(self).__name__}({arguments})"

"""What the three attacks share: asking, repeats, distances, and the final check."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, cast

import eagerpy as ep
import foolbox as fb
import numpy as np
from foolbox.attacks.base import MinimizationAttack, get_criterion, raise_if_kwargs
from numpy.typing import NDArray

from ..data.arrays import check_images, check_labels, check_unit_images
from ..errors import AttackError, UsageError, check_seed
from ..frameworks import DataFormat
from ..models.classifier import Candidates, Classifier
from ..models.preflight import in_unit_bounds
from ..records.answers import Check
from ..records.attack import AttackRecord, AttackResult, AttackTable, Convergence, Extra, Floats, Norm, PositionDraws

if TYPE_CHECKING:
    import xarray

Images = NDArray[np.float32]
Labels = NDArray[np.int64]
WORTH_COMPILING = 10_000  # queries
LOOK_BACK = 8  # values of a grid that were asked, for each that is asked in advance


@dataclass(frozen=True)
class Perturbed:
    """What an attack ended with, before the final check: one entry an image.

    `images` (N, H, W, C) float32 are adversarial where `fooled` (N,) says so, by the answers that the attack got.
    """

    fooled: NDArray[np.bool_]
    images: Images
    queries: NDArray[np.int64]
    extras: dict[str, NDArray[Any]] = field(default_factory=dict)

    @classmethod
    def start(cls, images: Images) -> Perturbed:
        """Return copies of images about which nothing has been asked yet."""
        n = len(images)
        return cls(np.zeros(n, np.bool_), images.copy(), np.zeros(n, np.int64))

    def part(self, rows: slice) -> Perturbed:
        """Return what came of some of the images."""
        extras = {name: values[rows] for name, values in self.extras.items()}
        return Perturbed(self.fooled[rows], self.images[rows], self.queries[rows], extras)


def first_on_grid(
    candidates: Candidates, labels: Labels, grid: Sequence[float]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Ask about each row with one value of the grid after another, until the model is fooled.

    Several values are asked at once where few rows are left, a few more than the definition asks: a call takes longer
    than the images that it adds.

    Returns
    -------
    first : ndarray of int64, shape (N,)
        The place on the grid of the first value that fools the model, -1 where none does.
    queries : ndarray of int64, shape (N,)
        How many the definition asks.
    """
    first = np.full(len(labels), -1)
    queries = np.zeros(len(labels), np.int64)
    pending = np.arange(len(labels))
    index = 0
    while index < len(grid) and len(pending):
        width = min(1 + index // LOOK_BACK, max(1, candidates.batch_size // len(pending)))
        values = np.asarray(grid[index : index + width])
        rows = np.tile(np.arange(len(pending)), len(values))
        classes = candidates.predict(rows, np.repeat(values, len(pending)))
        fools = classes.reshape(len(values), len(pending)) != labels[pending]
        fooled = fools.any(axis=0)
        offset = fools.argmax(axis=0)
        queries[pending] += np.where(fooled, offset + 1, len(values))
        if fooled.any():
            first[pending[fooled]] = index + offset[fooled]
            pending = pending[~fooled]
            candidates.keep(np.flatnonzero(~fooled))
        index += len(values)
    return first, queries


def pixels(images: Images) -> int:
    """Return how many pixels an image has."""
    _, height, width, _ = images.shape
    return int(height * width)


def _tensor(value: Any) -> ep.Tensor:
    try:
        return cast(ep.Tensor, ep.astensor(value))
    except ValueError:
        raise UsageError(
            f"expected a NumPy array, or a tensor of the model's framework, received {type(value).__name__}"
        ) from None


def concatenate(parts: Sequence[AttackResult]) -> AttackResult:
    """Return the result of all images from those of parts of them."""
    first = parts[0]
    arrays = {name: np.concatenate([getattr(part, name) for part in parts]) for name in vars(first) if name != "extras"}
    extras = {name: np.concatenate([part.extras[name] for part in parts]) for name in first.extras}
    return AttackResult(**arrays, extras=extras)


def distances(images: Images, others: Images) -> tuple[Floats, Floats, Floats]:
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
    return ((images.astype(np.float64) - lower) / (upper - lower)).astype(np.float32)


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
    candidates of many images in one batch. Reports read its `record`, which is built from these attributes.

    Attributes
    ----------
    semantics : int
        The version of what the attack computes; results of different versions are not mixed in a run.
    deterministic, needs_gradient : bool
        Whether all repeats are the same, and whether it needs the model's gradient.
    takes_source_gradient : bool
        Whether the gradient of the model that a deployed network was converted from will do, where it has none.
    shares_answers : bool
        Whether an answer of one repeat saves queries of another, so that all repeats are done together.
    norm : {"l0", "l2", "linf"}
        The distance that the attack keeps small.
    at_epsilon : str
        The extra that holds the smallest ε of the `grid` at which an image falls.
    start : str
        The extra that says whether the attack could begin; where it could not, success is not about robustness.
    compares_distances : bool
        Whether its distances, in its `norm`, are tested beside its success.
    in_indicator : bool
        Whether it counts in R; an attack that does not is a reference beside R.
    takes_misclassified : bool
        Whether an image that the model misclassifies falls at distance 0, so that it can run on all images.
    in_control : bool
        Whether the same weights in two frameworks should fall to it on the same images.
    table : AttackTable, optional
        What it adds to a report.
    cite : str
        What to cite for it, as BibTeX.
    check_names : tuple of str
        The names of the health checks that it makes of its own outcomes.
    """

    semantics: ClassVar[int] = 1
    deterministic: bool = False
    needs_gradient: bool = False
    takes_source_gradient: ClassVar[bool] = False
    shares_answers: ClassVar[bool] = False
    norm: Norm
    at_epsilon: str = ""
    start: ClassVar[str] = ""
    compares_distances: ClassVar[bool] = False
    in_indicator: ClassVar[bool] = True
    takes_misclassified: ClassVar[bool] = False
    in_control: ClassVar[bool] = False
    table: ClassVar[AttackTable | None] = None
    cite: ClassVar[str] = ""
    check_names: ClassVar[tuple[str, ...]] = ()

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
    def usual_queries(self, pixels: int, repeats: int) -> int:
        """Return about how many queries one image takes in so many repeats."""

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
            model = in_unit_bounds(model)
            images = check_unit_images(images, data_format)
            data_format = "channels_last"
        return self._attack(
            model, images, labels, seed=seed, repeat=repeat, batch_size=batch_size, data_format=data_format
        )

    def _attack(
        self,
        model: fb.models.base.Model,
        images: Any,
        labels: Any,
        *,
        seed: int,
        repeat: int,
        batch_size: int | None,
        data_format: DataFormat | None,
    ) -> AttackResult:
        """Return all outcomes for images within the model's bounds."""
        is_numpy = isinstance(images, np.ndarray)
        classifier = Classifier(model, batch_size, like=None if is_numpy else _tensor(images).raw)
        seed = check_seed(seed)
        repeat = check_seed(repeat, "a repeat")
        if not is_numpy:
            if data_format is not None:
                raise UsageError("data_format is for NumPy arrays: a tensor has the layout of its model. Omit it")
            images = classifier.array(images)
            data_format = "channels_last"
        x = check_images(images, classifier.bounds, data_format=data_format)
        if not len(x):
            raise UsageError("expected at least one image, received none")
        classifier = classifier.with_batch_size_for(x, batch_size)
        classes = classifier.logits(x[:1]).shape[1]
        y = check_labels(labels if isinstance(labels, np.ndarray) else _tensor(labels).numpy(), len(x), classes)
        if len(x) * self.usual_queries(pixels(x), 1) >= WORTH_COMPILING:
            classifier = classifier.compile(x)
        [result] = self.outcomes(classifier, x, y, seed, [repeat])
        return result if is_numpy else replace(result, adversarials=classifier.tensor(result.adversarials))

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
            results = [self.assess(classifier, x, y, each) for each in self.perturb(classifier, x, y, seed, some)]
            if len(results) != len(some):
                raise AttackError(
                    f"{type(self).__name__} should yield what comes out of each of {len(some)} repeats, received "
                    f"{len(results)}"
                )
            return results

        # Closed here: an interrupt while it waits for its threads is lost where the garbage collector closes it.
        with closing(classifier.map(attack_part, ((some, part) for some in together for part in parts))) as results:
            for _ in together:
                of_parts = [next(results) for _ in parts]
                yield from map(concatenate, zip(*of_parts, strict=True))

    def assess(self, classifier: Classifier, images: Images, labels: Labels, perturbed: Perturbed) -> AttackResult:
        """Ask once more about every image that fooled the model, and measure the distances of those that still do."""
        if perturbed.extras.keys() != self.extras.keys():
            raise UsageError(
                f"{type(self).__name__} declares the extras {', '.join(self.extras) or 'none'}, and yields "
                f"{', '.join(perturbed.extras) or 'none'}"
            )
        lower, upper = classifier.bounds
        made = perturbed.images
        if made.shape != images.shape or not (lower <= made.min() and made.max() <= upper):  # nor is it NaN
            raise AttackError(
                f"{type(self).__name__} should yield an image within {classifier.bounds} for each of {images.shape}, "
                f"received {made.shape}, from {made.min()} to {made.max()}"
            )
        classes = np.full(len(images), -1, np.int64)
        classes[perturbed.fooled] = classifier.confirm(perturbed.images[perturbed.fooled])
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

    def run(
        self,
        model: fb.models.base.Model,
        inputs: Any,
        criterion: Any,
        *,
        early_stop: float | None = None,
        seed: int = 0,
        repeat: int = 0,
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
        result = self._attack(
            model,
            x.raw,
            criterion.labels.raw,
            seed=seed,
            repeat=repeat,
            batch_size=batch_size,
            data_format=data_format,
        )
        return restore(ep.astensor(result.adversarials))

    def repeat(self, times: int) -> Attack:
        """Raise `UsageError`: Foolbox's repeats would all have the same draws."""
        raise UsageError("repeats have draws of their own: pass repeat=0, 1, … when calling the attack")

    def only_draws(self) -> Attack:
        """Return the attack without queries beyond those of its repeats, as where these are spread over trainings."""
        return self

    def __repr__(self) -> str:
        arguments = ", ".join(f"{name}={value!r}" for name, value in self.settings.items())
        return f"{type(self).__name__}({arguments})"

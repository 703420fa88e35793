"""Any Foolbox model seen from NumPy, asked as fast as its framework can."""

from __future__ import annotations

import copy
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import AbstractContextManager
from functools import cached_property, partial
from itertools import pairwise
from typing import Any, TypeVar

import foolbox as fb
import numpy as np
from numpy.typing import NDArray

from .. import frameworks
from ..data.arrays import Images
from ..errors import LOG, ModelError, RobustcmpError, UsageError, check_count
from ..files import digest
from ..frameworks import DataFormat
from ..frameworks.base import pad
from ..threads import MOST_WORKERS, cores, in_order
from .batches import DEFAULT_BATCH_SIZE, default_batch_size

Task = TypeVar("Task")
Result = TypeVar("Result")
COMPARED = 4  # images, of which compiled and eager outputs are compared
AGREEMENT = 1e-5


class Classifier:
    """A Foolbox model seen from NumPy: images (N, H, W, C) float32 in, logits (N, K) out, in batches.

    Parameters
    ----------
    model : foolbox.models.base.Model
        From `wrap`, or one that Foolbox made.
    batch_size : int, optional
        How many images are asked at once: 256 if it is left out.
    like : tensor, optional
        A tensor of the model's framework on its device; needed only for a Foolbox model that carries none.
    asked : callable, optional
        Called with the number of images after every batch that was asked, for a progress bar; from any thread.

    Attributes
    ----------
    bounds : tuple of float
        The smallest and the largest value of a pixel.
    data_format : str
        The layout of the model's own tensors.
    function : callable
        Images in the model's own tensors to logits: the model, or a compiled snapshot of it.
    workers : int
        How many threads may ask at the same time: in so many parts work is cut, and results may depend on it.
    at_once : int, optional
        How many of them do ask at the same time, if fewer; no result depends on it.
    traced : ndarray, optional
        The images that it was compiled with; None if it is asked as it is.
    draws : bool
        Whether a call was seen to draw from a global generator, when it was to be compiled.
    """

    def __init__(
        self,
        model: fb.models.base.Model,
        batch_size: int | None = None,
        like: Any = None,
        asked: Callable[[int], object] | None = None,
    ):
        if not isinstance(model, fb.models.base.Model):
            raise UsageError(
                f"expected a Foolbox model, received {type(model).__name__}. Make one with robustcmp.wrap."
            )
        if batch_size is not None:
            check_count("batch_size", batch_size)
        inner = unwrap(model)
        if like is None:
            like = inner.dummy.raw if hasattr(inner, "dummy") else np.zeros(0, np.float32)  # as foolbox.NumPyModel
        self.model = model
        self.batch_size = batch_size or DEFAULT_BATCH_SIZE
        self.bounds: tuple[float, float] = (float(model.bounds[0]), float(model.bounds[1]))
        self.framework = frameworks.recognise(like, getattr(inner, "native", None))
        self.data_format: DataFormat = getattr(model, "data_format", self.framework.data_format)
        self.workers = 1
        self.at_once: int | None = None
        self.traced: NDArray[np.float32] | None = None
        self.draws = False
        self._like = like
        self._asked = asked
        self.function: frameworks.Function = model
        self._pullback: frameworks.Pullback | None = None
        self._fits = [self.batch_size]  # what fits into the device's memory; shared with copies
        self.image_seconds: float | None = None  # what `batches` measured

    # variants ----------------------------------------------------------------------------------------------------

    def compile(self, images: Images) -> Classifier:
        """Return a classifier that asks a compiled snapshot of the model, from as many threads as there are cores.

        A model that cannot be traced, that answers otherwise once it is (by more than 1e-5, or for another number of
        images), or that writes into arrays of its own, is asked as it is, one call after another; the logger
        ``robustcmp`` says so at level INFO.

        Parameters
        ----------
        images : ndarray of float32, shape (N, H, W, C)
            A few, to trace and to compare with.
        """
        some = images[: min(len(images), self.batch_size, COMPARED)]
        other = copy.copy(self)
        try:
            if "averaged" in getattr(unwrap(self.model), "info", ()):
                raise ModelError("a call seeds a random generator, which compiled code would not repeat")
            native = getattr(unwrap(self.model), "native", None)
            generators = self.framework.generator_states()
            eager = self.forward(some)
            if self.framework.generator_states() != generators:
                self.draws = True
                raise ModelError("a call draws at random, and compiled code would always draw the same")
            other.function, other._pullback = self.framework.compile(
                self.model, native, self._to_layout(some), self._like
            )
            self._check_writes_nothing(native, some)
            alone = some[:1]
            for batch, before in ((some, eager), (alone, self.forward(alone)), (some, eager)):
                after = other.forward(batch)  # torch optimises at the second call
                if before.shape != after.shape or not np.allclose(after, before, rtol=AGREEMENT, atol=AGREEMENT):
                    raise ModelError(f"compiled and eager outputs differ by up to {np.abs(after - before).max():.2g}")
        except Exception as error:
            LOG.info("%s runs without compilation: %s: %s", self.model, type(error).__name__, error)
            return self
        other.workers = min(cores(), MOST_WORKERS)
        other.traced = some
        return other

    def _check_writes_nothing(self, native: Any, images: Images) -> None:
        """Raise `ModelError` for a network that keeps what it computes, where calls from other threads write, too."""
        before = self.framework.state(native)
        if not before:
            return
        self.forward(1 - images)  # different images, so that cached state changes
        after = self.framework.state(native)
        if len(after) != len(before) or not all(map(np.array_equal, before, after)):
            raise ModelError("a call writes into the network's own arrays, where several threads would mix")

    def with_callback(self, asked: Callable[[int], object]) -> Classifier:
        """Return the same classifier with another callback."""
        other = copy.copy(self)
        other._asked = asked
        return other

    def with_batch_size(self, batch_size: int) -> Classifier:
        """Return the same classifier with another batch size."""
        other = copy.copy(self)
        other.batch_size = batch_size
        other._fits = [batch_size]
        return other

    def with_batch_size_for(self, images: Images, batch_size: int | None) -> Classifier:
        """Return the same classifier with a batch size of the caller's, or else with one that suits such images."""
        return self.with_batch_size(batch_size or default_batch_size(images))

    # asking ------------------------------------------------------------------------------------------------------

    def logits(self, images: Images) -> NDArray[np.float32]:
        """Return the logits (N, K) of images (N, H, W, C)."""
        return _check_rows(self._join(self.forward, images))

    def predict(self, images: Images) -> NDArray[np.int64]:
        """Return the classes (N,) of images (N, H, W, C)."""
        return self.classes(self.forward, images)

    def confirm(self, images: Images) -> NDArray[np.int64]:
        """Return the classes (N,) as `predict`, by the model's own computation where a snapshot has another order."""
        exact = getattr(self.function, "exact", self.function)
        return self.classes(lambda batch: self.ask(exact, self._to_layout(batch)), images)

    def vjp(self, images: Images, v: NDArray[np.floating[Any]]) -> NDArray[np.float32]:
        """Return the gradient (N, H, W, C) of Σ v·logits with respect to the images; v (N, K) is held constant.

        Raises
        ------
        ModelError
            The model has no gradient.
        """
        if self.no_gradient:
            raise ModelError(self.no_gradient)
        return self._numpy_layout(self._join(self._pull_back, images, v.astype(np.float32)))

    def logits_and_vjp(
        self, images: Images, rise: Callable[..., tuple[NDArray[Any], NDArray[Any]]], *arrays: NDArray[Any]
    ) -> tuple[NDArray[np.float32], NDArray[Any], NDArray[np.float32]]:
        """Return logits (N, K), a loss (N,) and its gradient (N, H, W, C), in one pass where the framework can.

        ``rise(logits, *arrays)``, on a batch of arrays with N entries each, returns the loss and its gradient (N, K) in
        the logits.
        """
        if self.no_gradient:
            raise ModelError(self.no_gradient)
        parts = [*self.in_batches(partial(self._ask_and_pull_back, rise), images, *arrays)]
        logits, loss, gradient = (np.concatenate(each) for each in zip(*parts, strict=True))
        return logits, loss, self._numpy_layout(gradient)

    def forward(self, images: Images) -> NDArray[np.float32]:
        """Return what the model answers to one batch of images (N, H, W, C), unchecked."""
        return self.ask(self.function, self._to_layout(images))

    def ask(self, function: frameworks.Function, *arrays: NDArray[Any]) -> NDArray[np.float32]:
        """Return what a function of the framework's tensors answers to one batch, arrays with N entries each."""
        n = len(arrays[0])
        filled = self._fill(*arrays)
        size = len(filled[0])
        logits = self.framework.forward(function, self._like, *filled)
        if logits.shape[:1] != (size,):
            raise ModelError(f"the model should return one row per image for {size} images, received {logits.shape}")
        if self._asked is not None:
            self._asked(n)
        return logits[:n]

    def _fill(self, *arrays: NDArray[Any]) -> list[NDArray[Any]]:
        n = len(arrays[0])
        size = min(self.framework.fill_size(n), max(n, self._fits[0]))
        return [pad(array, size) for array in arrays]

    def classes(self, forward: Callable[..., NDArray[np.float32]], *arrays: NDArray[Any]) -> NDArray[np.int64]:
        """Return the classes (N,) of what a function of one batch answers, arrays with N entries each."""
        if not len(arrays[0]):
            return np.zeros(0, np.int64)
        logits = _check_rows(self._join(forward, *arrays))
        check_finite(logits)
        return np.asarray(logits.argmax(axis=1), np.int64)

    @property
    def on_gpu(self) -> bool:
        """Whether the model is on a GPU."""
        return self.framework.is_on_gpu(self._like)

    @cached_property
    def no_gradient(self) -> str:
        """Why the model has no gradient, "" if it has one."""
        model = unwrap(self.model)
        reason: str = getattr(model, "no_gradient", "") or self.framework.no_gradient(getattr(model, "native", None))
        if reason or self._pullback is not None:
            return reason
        try:
            self.framework.pullback(self.model)
        except ModelError as error:
            return str(error)
        return ""

    def parameters(self) -> list[NDArray[Any]] | None:
        """Return all that the model has learned, None where it is not known."""
        return self.framework.parameters(getattr(unwrap(self.model), "native", None))

    @property
    def weights_digest(self) -> str | None:
        """The SHA-256 of the model's parameters in their order, None where they are not known.

        Names have no part in it: Keras counts the layers of a process in them, and a module has others inside a
        wrapper.
        """
        parameters = self.parameters()
        if not parameters:
            return None
        return digest(
            {
                f"{number:06} {array.dtype} {array.shape}": np.ascontiguousarray(array).reshape(-1).view(np.uint8)
                for number, array in enumerate(parameters)
            }
        )

    @property
    def gradient_source(self) -> Classifier | None:
        """The model whose gradient FGSM takes for a deployed network without one; None for every other model."""
        source = getattr(unwrap(self.model), "gradient_source", None)
        return None if source is None else source(self.bounds)

    def full_precision(self) -> AbstractContextManager[None]:
        """Keep the model's device from multiplying with fewer bits than float32 has, inside a ``with`` block."""
        return self.framework.full_precision(self._like)

    def _pull_back(self, images: Images, v: NDArray[np.float32]) -> NDArray[np.float32]:
        pullback = self._pullback or self.framework.pullback(self.model)
        # A gradient in float16 drowns where v is small. By powers of two, scaling is exact.
        _, exponents = np.frexp(np.abs(v).max(axis=1))
        x, filled_v = self._fill(self._to_layout(images), np.ldexp(v, -exponents[:, None]))
        gradient = self.framework.vjp(pullback, x, filled_v, self._like)
        return np.asarray(np.ldexp(gradient[: len(images)], exponents[:, None, None, None]))

    def _ask_and_pull_back(
        self,
        rise: Callable[..., tuple[NDArray[Any], NDArray[Any]]],
        images: Images,
        *arrays: NDArray[Any],
    ) -> tuple[NDArray[np.float32], NDArray[Any], NDArray[np.float32]]:
        n = len(images)
        answers: list[NDArray[Any]] = []

        def choose(filled: NDArray[np.float32]) -> NDArray[np.float32]:
            logits = _check_rows(filled)[:n]
            check_finite(logits)
            loss, v = rise(logits, *arrays)
            _, exponents = np.frexp(np.abs(v).max(axis=1))
            answers.extend((logits, loss, exponents))
            return pad(np.ldexp(v, -exponents[:, None]).astype(np.float32), len(filled))

        (x,) = self._fill(self._to_layout(images))
        pullback = self._pullback or self.framework.pullback(self.model)
        gradient = self.framework.ask_and_pull_back(self.function, pullback, x, choose, self._like)
        logits, loss, exponents = answers
        if self._asked is not None:
            self._asked(n)
        return logits, loss, np.ldexp(gradient[:n], exponents[:, None, None, None])

    def _join(self, function: Callable[..., NDArray[np.float32]], *arrays: NDArray[Any]) -> NDArray[np.float32]:
        """Return what a function answers on batches of arrays."""
        parts = [*self.in_batches(function, *arrays)]
        for part in parts:
            if part.shape[1:] != parts[0].shape[1:]:
                raise ModelError(
                    "the model should return the same number of classes for every batch, "
                    f"received the shapes {parts[0].shape}, {part.shape}"
                )
        return np.concatenate(parts)

    def in_batches(self, function: Callable[..., Result], *arrays: NDArray[Any]) -> Iterator[Result]:
        """Yield what a function answers on batches of arrays, smaller ones where the device's memory is too small."""
        start = 0
        while start < len(arrays[0]):
            size = self._fits[0]  # read once, as another thread may halve it
            batch = [array[start : start + size] for array in arrays]
            try:
                answer = function(*batch)
            except Exception as error:
                n = len(batch[0])
                if n == 1 or not self.framework.is_out_of_memory(error):
                    raise
                self._fits[0] = min(self._fits[0], n // 2)
                LOG.info("a batch of %d does not fit into the memory; %d at once from now on", n, n // 2)
            else:
                start += len(batch[0])
                yield answer

    # tensors -----------------------------------------------------------------------------------------------------

    def tensor(self, array: NDArray[Any]) -> Any:
        """Return an array as a tensor of the model: images (N, H, W, C) in its own layout, all else as it is."""
        return self.framework.tensor(self._to_layout(array) if array.ndim == 4 else array, self._like)

    def array(self, tensor: Any) -> NDArray[Any]:
        """The inverse of `tensor`."""
        array = self.framework.array(tensor)
        return self._numpy_layout(array) if array.ndim == 4 else array

    def _to_layout(self, images: NDArray[Any]) -> NDArray[Any]:
        return images.transpose(0, 3, 1, 2) if self.data_format == "channels_first" else images

    def _numpy_layout(self, images: NDArray[Any]) -> NDArray[Any]:
        return np.ascontiguousarray(images.transpose(0, 2, 3, 1)) if self.data_format == "channels_first" else images

    # side by side ------------------------------------------------------------------------------------------------

    def largest_part(self, images: Images) -> int:
        """Return how many such images are worked on at once: as many as a batch has, and not fewer than by default."""
        return max(self.batch_size, default_batch_size(images))

    def parts(self, images: Images) -> list[slice]:
        """Cut images into parts for `map`: equal ones, no larger than a batch, a multiple of the workers."""
        n = len(images)
        largest = self.largest_part(images)
        count = -(-n // (largest * self.workers)) * self.workers
        edges = [n * i // count for i in range(count + 1)]
        return [slice(start, stop) for start, stop in pairwise(edges) if start < stop]

    def map(self, function: Callable[[Classifier, Task], Result], tasks: Iterable[Task]) -> Generator[Result]:
        """Yield function(classifier, task) of each task, in their order, several of them at work at once.

        Each worker has its share of the cores, so that no two fight for one. A result depends on its task alone.
        """
        if self.workers == 1:
            yield from (function(self, task) for task in tasks)
            return

        def work(task: Task, check: Callable[[], None]) -> Result:
            def count(images: int) -> None:
                check()
                if self._asked is not None:
                    self._asked(images)

            classifier = self.with_callback(count)
            classifier.workers = 1
            return function(classifier, task)

        before = self.framework.threads()
        share = max(1, cores() // self.workers)
        try:
            threads = min(self.workers, self.at_once or self.workers)
            yield from in_order(work, tasks, threads, lambda: self.framework.set_threads(share))
        finally:
            self.framework.set_threads(before)


class Candidates:
    """What an attack asks about, made from a few arrays: by NumPy, or on the model's GPU, where they stay.

    Parameters
    ----------
    classifier : Classifier
        Who is asked.
    make : callable
        ``make(*arrays, rows, *of_each)`` returns the candidates of M rows, in a new NumPy array or EagerPy tensor, as
        it gets them; `rows` can be a slice. They are rounded to float32 and clipped to the bounds. A function of a
        module, so that it is compiled once.
    arrays : ndarray
        Those with four axes are images (N, H, W, C), as the first one is; tensors are in the model's own layout.
    """

    def __init__(self, classifier: Classifier, make: frameworks.Make, *arrays: NDArray[Any]):
        self.batch_size = classifier.batch_size
        self._classifier = classifier
        self._make = make
        self._arrays = list(arrays)
        self._rows: NDArray[np.int64] | None = None  # those of the arrays on the GPU that are kept
        self._there: frameworks.Function | None = None  # from arrays on the GPU to candidates
        if classifier.on_gpu:
            self._arrays = [classifier.tensor(array) for array in arrays]
            self._rows = np.arange(len(arrays[0]))
            self._there = classifier.framework.maker(make, classifier.bounds)

    def predict(self, rows: NDArray[np.int64], *of_each: NDArray[Any]) -> NDArray[np.int64]:
        """Return the classes (M,) of the candidates of M rows, with an entry of other arrays for each of them."""
        return self._classifier.classes(self.forward, rows if self._rows is None else self._rows[rows], *of_each)

    def keep(self, rows: NDArray[np.int64]) -> None:
        """Forget all other rows; those that are kept are counted anew."""
        if self._rows is None:
            self._arrays = [array[rows] for array in self._arrays]
        else:
            self._rows = self._rows[rows]

    def forward(self, rows: NDArray[np.int64], *of_each: NDArray[Any]) -> NDArray[np.float32]:
        classifier = self._classifier
        make = self._there
        if make is not None:
            return classifier.ask(lambda *tensors: classifier.function(make(*self._arrays, *tensors)), rows, *of_each)
        # No row has to be copied where they are in a row.
        some = slice(rows[0], rows[-1] + 1) if (np.diff(rows) == 1).all() else rows
        images = self._make(*self._arrays, some, *of_each).astype(np.float32, copy=False)
        return classifier.forward(np.clip(images, *classifier.bounds, out=images))


def _check_rows(answer: NDArray[np.float32]) -> NDArray[np.float32]:
    if answer.ndim != 2 or answer.shape[1] == 1:
        wanted = f"{len(answer)} images with logits ({len(answer)}, classes)"
        one_number = answer.shape in ((len(answer),), (len(answer), 1))
        remedy = (
            '. If it is one number for two classes, say so: robustcmp.wrap(..., outputs="binary-logit"), or '
            '"binary-probability"; if it is a class, an attack needs what it is computed from'
        )
        raise ModelError(f"the model should return {wanted}, received shape {answer.shape}{remedy * one_number}")
    return answer


class NotFiniteError(ModelError):
    """A model answered NaN or infinity.

    Attributes
    ----------
    place : int
        The first row for which it did, among those that it was asked about.
    """

    def __init__(self, number: int, model: str = "the model"):
        super().__init__(
            f"{model} returns NaN or infinity for image {number}; check its weights and preprocessing, what it divides "
            "by if the image is of one colour, and its gradient if it is attacked"
        )
        self.place = number


def check_finite(logits: NDArray[np.float32], model: str = "the model") -> None:
    """Raise `NotFiniteError` for logits (N, K) that are NaN or infinite."""
    finite = np.isfinite(logits)
    if not finite.all():
        raise NotFiniteError(int(np.flatnonzero(~finite.all(axis=1))[0]), model)


def make_refusal(model: str, images: Images, error: Exception) -> ModelError:
    """Return the error for images (N, H, W, C) that made a network raise an error of its own."""
    return ModelError(
        f"{model} does not accept images of shape {images.shape[1:]} (H, W, C): {type(error).__name__}: {error}"
    )


def predict_named(model: str, classifier: Classifier, images: Images) -> NDArray[np.int64]:
    """Return the classes (N,) of images (N, H, W, C); an error of the network's own becomes one that names it."""
    try:
        return classifier.predict(images)
    except NotFiniteError as error:
        raise NotFiniteError(error.place, model) from None
    except Exception as error:
        is_ours = isinstance(error, RobustcmpError) and not isinstance(error, UsageError)  # as which JAX's come
        if is_ours or isinstance(error, MemoryError) or classifier.framework.is_out_of_memory(error):
            raise
        raise make_refusal(model, images, error) from error


def unwrap(model: Any) -> Any:
    """Return the model that Foolbox's `TransformBoundsWrapper` wraps, or the model itself."""
    while isinstance(model, fb.models.base.TransformBoundsWrapper):
        model = model._model
    return model

"""One pixel, set to the smallest or the largest value."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import eagerpy as ep
import numpy as np
from numpy.typing import NDArray

from .. import limits
from ..errors import check_count
from ..models.classifier import Candidates, Classifier
from ..records.attack import Extra, PositionDraws
from .base import Attack, Images, Labels, Perturbed, unit
from .draws import Draws

PIXEL_ORDER = 0
UNKNOWN = -1


CITE = """\
@misc{narodytska2016simple,
  title         = {Simple Black-Box Adversarial Perturbations for Deep Networks},
  author        = {Narodytska, Nina and Kasiviswanathan, Shiva Prasad},
  year          = {2016},
  eprint        = {1612.06299},
  archiveprefix = {arXiv}
}"""


class SinglePixel(Attack):
    """The single-pixel attack of Narodytska and Kasiviswanathan (2016), as Guo et al. ran it with Foolbox 1.x.

    Positions are tried in a random order, at most `max_pixels` of them; at each, all channels are first set to the
    smallest value, then to the largest. The first candidate that fools the model is the result.

    Parameters
    ----------
    max_pixels : int, default 100
        How many positions are tried.
    exact : bool, default False
        Also query every position, which makes the expectation over all draws exact: an image with K vulnerable
        positions of N fools the model with probability 1 − C(N − K, m)/C(N, m), m = max_pixels.
        ``extras["vulnerable_pixels"]`` (N,) is K, ``extras["pixels"]`` (N,) the number of positions;
        ``extras["vulnerable_map"]`` (N, bytes) of uint8 marks the vulnerable positions, row by row as
        `numpy.packbits` stores them.

    Notes
    -----
    The model's answer for one (image, position, value) never changes, so repeats share it.

    Examples
    --------
    >>> import robustcmp as rc
    >>> data = rc.load_dataset("digits")
    >>> model = rc.load_model("lenet5", framework="torch", dataset="digits")
    >>> int(SinglePixel(max_pixels=10).attack(model, data.images[:8], data.labels[:8]).queries.max())
    20
    """

    norm = "l0"
    cite = CITE
    in_control = True
    semantics = 2  # 2: an exact one says which positions are vulnerable
    shares_answers = True

    def __init__(self, *, max_pixels: int = 100, exact: bool = False):
        self.max_pixels = check_count("max_pixels", max_pixels, limits.PIXELS)
        self.exact = exact

    def only_draws(self) -> SinglePixel:
        """Return the attack that is not exact."""
        return type(self)(max_pixels=self.max_pixels)

    @property
    def extras(self) -> dict[str, Extra]:
        if not self.exact:
            return {}
        vulnerable_map = Extra(dims=("byte",), per_repeat=False, empty=0)
        return {"vulnerable_pixels": Extra(), "pixels": Extra(), "vulnerable_map": vulnerable_map}

    @property
    def position_draws(self) -> PositionDraws | None:
        return PositionDraws("vulnerable_pixels", "pixels", "vulnerable_map", self.max_pixels) if self.exact else None

    def usual_queries(self, pixels: int, repeats: int) -> int:
        return 2 * (pixels if self.exact else min(pixels, repeats * self.max_pixels))

    def perturb(
        self, classifier: Classifier, images: Images, labels: Labels, seed: int, repeats: Sequence[int]
    ) -> Iterator[Perturbed]:
        n, height, width, _ = images.shape
        pixels = height * width
        m = min(self.max_pixels, pixels)
        answers = _Answers(classifier, images)
        extras: dict[str, NDArray[Any]] = {}
        if self.exact:
            answers.fill(np.broadcast_to(np.arange(pixels), (n, pixels)))
            vulnerable = (answers.classes != labels[:, None, None]).any(axis=2)
            extras = {
                "vulnerable_pixels": vulnerable.sum(axis=1),
                "pixels": np.full(n, pixels),
                "vulnerable_map": np.packbits(vulnerable, axis=1),
            }
        rows = np.arange(n)
        for repeat in repeats:
            draws = Draws("SinglePixel", seed, [repeat], unit(images, classifier.bounds))
            order = np.array(
                [np.argsort(draws.block(i, PIXEL_ORDER).random(pixels), kind="stable")[:m] for i in range(n)], np.int64
            ).reshape(n, m)
            answers.fill(order)
            tried = answers.classes[rows[:, None], order].reshape(n, 2 * m)
            fooled = tried != labels[:, None]
            fell = fooled.any(axis=1)
            first = fooled.argmax(axis=1)
            hit, tries = rows[fell], first[fell]
            adversarials = images.copy()
            adversarials[hit] = answers.images(hit, order[hit, tries // 2], tries % 2)
            yield Perturbed(fell, adversarials, np.where(fell, first + 1, 2 * m), dict(extras))


class _Answers:
    """The class of every candidate that was asked: `classes` (N, positions, 2), UNKNOWN where none was."""

    def __init__(self, classifier: Classifier, images: Images):
        n, height, width, _ = images.shape
        self._bounds, self._images = np.array(classifier.bounds, np.float32), images
        self._places = np.arange(height * width).reshape(1, height, width, 1)
        self._clean = classifier.predict(images).astype(np.int32)
        self._candidates = Candidates(classifier, _with_pixel, images, self._places)
        self.classes = np.full((n, height * width, 2), UNKNOWN, np.int32)

    def fill(self, positions: NDArray[np.int64]) -> None:
        """Ask about both values at positions (N, m) of each image, where that is not known yet."""
        needed = np.zeros(self.classes.shape, np.bool_)
        needed[np.arange(len(needed))[:, None], positions] = True
        needed &= self.classes == UNKNOWN
        flat = self._images.reshape(len(self._images), -1, 1, self._images.shape[-1])
        same = (flat == self._bounds[:, None]).all(axis=3)  # such a candidate is the image
        np.copyto(self.classes, self._clean[:, None, None], where=needed & same)
        rows, places, sides = np.nonzero(needed & ~same)
        self.classes[rows, places, sides] = self._candidates.predict(rows, places, self._bounds[sides])

    def images(self, rows: NDArray[np.int64], places: NDArray[np.int64], sides: NDArray[np.int64]) -> Images:
        """Return some images, each with one pixel set to the smallest (side 0) or the largest value (side 1)."""
        return np.asarray(_with_pixel(self._images, self._places, rows, places, self._bounds[sides]))


def _with_pixel(images: Any, numbers: Any, rows: Any, places: Any, values: Any) -> Any:
    """Return images (N, …) with one pixel set, for M rows, places and values: of arrays, or of EagerPy tensors.

    Pixels are counted row by row; `numbers` (1, …) has each one's number, in the images' layout.
    """
    candidates = images[rows]
    if isinstance(candidates, np.ndarray):  # one value instead of all
        if isinstance(rows, slice):
            candidates = candidates.copy()
        candidates[np.arange(len(places)), places // images.shape[2], places % images.shape[2]] = values[:, None]
        return candidates
    return ep.where(numbers == places[:, None, None, None], values[:, None, None, None], candidates)

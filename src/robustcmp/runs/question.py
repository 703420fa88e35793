"""What a comparison asks, checked before any work."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from .. import limits
from ..attacks.suite import AnySuite, Suite, load_suite
from ..data.arrays import Images, Labels, check_labels, check_unit_images
from ..errors import UsageError, check_count, check_seed
from ..records.attack import collect_extras


@dataclass(frozen=True)
class Question:
    """What a comparison asks.

    Attributes
    ----------
    suite : Suite
        The attacks.
    images, labels : ndarray
        Every image that was passed, (N, H, W, C) float32 in [0, 1], and its class.
    n : int
        How many images are attacked at the most.
    repeats : dict of str to int
        How often each attack is repeated on each training.
    spread : bool
        Whether each training has repeats of its own.
    seed : int
        The attacks' seed.
    batch_size : int, optional
        How many candidates are asked at once, if the caller says so.
    """

    suite: Suite
    images: Images
    labels: Labels
    n: int
    repeats: dict[str, int]
    spread: bool
    seed: int
    batch_size: int | None

    def share_among(self, names: Sequence[str]) -> Question:
        """Return the question with the repeats of each training, by their names, where they are spread over several."""
        fewest = min(Counter(names).values())
        if not self.spread or fewest == 1:
            return replace(self, spread=False)
        repeats = {attack: math.ceil(count / fewest) for attack, count in self.repeats.items()}
        return replace(self, suite=self.suite.only_draws(), repeats=repeats)


def validate(
    images: Images,
    labels: Labels,
    suite: AnySuite,
    n: int | None,
    repeats: int | Mapping[str, int] | None,
    spread: bool,
    seed: int,
    batch_size: int | None,
    data_format: str | None = None,
) -> Question:
    """Return what is asked, checked; raise `UsageError` for what cannot be used. No model is looked at."""
    loaded = load_suite(suite)
    collect_extras(loaded.records)
    n = loaded.images if n is None else n
    repeated = loaded.count_repeats(repeats)
    check_count("n", n, limits.IMAGES)
    if batch_size is not None:
        batch_size = check_count("batch_size", batch_size, limits.BATCH_SIZE)  # JSON knows no NumPy
    images = check_unit_images(images, data_format)
    labels = check_labels(labels, len(images))
    if not len(images):
        raise UsageError("expected at least one image, received none")
    return Question(loaded, images, labels, int(n), repeated, spread, check_seed(seed), batch_size)

"""The images that are attacked: those that every compared model classifies correctly, or all."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import foolbox as fb
import numpy as np
from numpy.typing import NDArray

from ..attacks.draws import image_hashes
from ..data.arrays import check_labels, check_unit_images, in_blocks
from ..errors import ModelError, UsageError, check_count, check_seed
from ..frameworks import DataFormat
from ..models.classifier import Classifier, predict_named
from ..models.preflight import in_unit_bounds
from .blame import blame
from .loading import TrainedModel
from .progress import Progress, Unseen
from .question import Question

Models = Mapping[str, fb.models.base.Model | Sequence[fb.models.base.Model]]


def common_subset(
    models: Models,
    images: NDArray[np.float32],
    labels: NDArray[np.int64],
    n: int | None = None,
    seed: int = 0,
    *,
    data_format: DataFormat | None = None,
) -> NDArray[np.int64]:
    """Return the indices of images that every model classifies correctly.

    Parameters
    ----------
    models : dict of str to model, or to a list of models
        Models in lists all count.
    images : ndarray of float32, shape (N, H, W, C)
        In [0, 1], whatever the models' bounds.
    labels : ndarray of int, shape (N,)
        The true classes.
    n : int, optional
        The maximum number (default: all). They are chosen by a keyed hash of (seed, image).
    seed : int, default 0
        The seed of the choice.
    data_format : str, optional
        Where the channels of the images are, as for `evaluate`.

    Returns
    -------
    ndarray of int64
        Sorted, at most n.

    Raises
    ------
    UsageError
        Images, labels or n are invalid.
    ModelError
        A model does not accept images of this size, or does not answer one row of logits for each.

    Examples
    --------
    >>> import robustcmp as rc
    >>> data = rc.load_dataset("digits")
    >>> models = {name: rc.load_model("lenet5", framework=name, dataset="digits") for name in ("torch", "jax")}
    >>> common_subset(models, data.images, data.labels, n=3).shape
    (3,)
    """
    classifiers = [(name, Classifier(in_unit_bounds(model))) for name, model in _each_of(models)]
    if not classifiers:
        raise UsageError("expected at least one model, received none")
    check_seed(seed)
    x = check_unit_images(images, data_format)
    y = check_labels(labels, len(x))
    answers = [predict_named(f"model {name!r}", each.with_batch_size_for(x, None), x) for name, each in classifiers]
    correct = np.all([answer == y for answer in answers], axis=0)
    return choose(correct, x, n, seed)


@dataclass(frozen=True)
class Subset:
    """The images that are attacked.

    Attributes
    ----------
    indices : ndarray of int64, shape (n,)
        Where they stand among all that were passed, sorted.
    correct : ndarray of bool, shape (models, images)
        Which of all images each model classifies correctly.
    """

    indices: NDArray[np.int64]
    correct: NDArray[np.bool_]

    @property
    def share(self) -> float:
        """The share of all images that every model classifies correctly."""
        return float(np.all(self.correct, axis=0).mean())


def classify(models: Sequence[TrainedModel], question: Question) -> NDArray[np.bool_]:
    """Return which images (models, N) each model classifies correctly."""
    answers = [
        blame(f"classifying images with {name}", predict_named, f"model {name!r}", classifier, question.images)
        for name, classifier in ((model.label, model.classifier) for model in models)
    ]
    correct: NDArray[np.bool_] = np.array(answers) == question.labels
    return correct


def choose_subset(
    models: Sequence[TrainedModel],
    question: Question,
    correct: NDArray[np.bool_],
    progress: Progress | None = None,
) -> Subset:
    """Return at most n images that all models classify correctly, or of all images where the suite attacks those.

    Raises
    ------
    ModelError
        There is none.
    """
    common_to_all = np.all(correct, axis=0)
    indices = choose(common_to_all | (question.suite.subset == "all"), question.images, question.n, question.seed)
    if not common_to_all.any():
        accuracies = [f"{model.name}: {right.mean():.1%}" for model, right in zip(models, correct, strict=True)]
        causes = " ".join(model.cause for model in models if model.cause)
        raise ModelError(
            "no image is classified correctly by all models, so there is nothing to compare. Their accuracies are "
            f"{', '.join(accuracies)}. {causes or 'Check labels, bounds and preprocessing.'}"
        )
    which = "of the test set" if question.suite.subset == "all" else "that every model classifies correctly"
    (progress or Unseen()).begin(f"attacks on {len(indices)} images {which}", 0)
    return Subset(indices, correct)


def _each_of(models: Models) -> list[tuple[str, fb.models.base.Model]]:
    """Return all models of all lists with their names, or raise `UsageError` for what is no dict."""
    if not isinstance(models, Mapping):
        raise UsageError(f"expected a dict of models by name, received {type(models).__name__}")
    return [
        (name, model) for name, entry in models.items() for model in (entry if isinstance(entry, Sequence) else [entry])
    ]


def choose(correct: NDArray[np.bool_], images: NDArray[np.float32], n: int | None, seed: int) -> NDArray[np.int64]:
    """Return at most n indices of the images that are marked, ranked by a keyed hash of (seed, image), sorted.

    Ranked by the image and not by its place: the choice does not depend on which other images there are.
    """
    if n is not None:
        check_count("n", n)
    candidates = np.flatnonzero(correct)
    key = b"subset" + struct.pack("<q", seed)
    ranks: list[bytes] = []
    for start, block in in_blocks(images):  # not all at once: they may lie in a file that is larger than the memory
        ranks += image_hashes(block[correct[start : start + len(block)]], key)
    order = sorted(range(len(candidates)), key=ranks.__getitem__)
    return np.sort(candidates[order[:n]])

"""The images that are attacked: those that every compared model classifies correctly, or all."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import cast

import foolbox as fb
import numpy as np
from numpy.typing import NDArray

from ..attacks.draws import image_hashes
from ..data.arrays import Images, Labels, check_labels, check_unit_images, in_blocks
from ..errors import ModelError, check_count, check_seed
from ..frameworks import DataFormat
from ..models.classifier import Classifier, predict_named
from ..models.preflight import in_unit_bounds
from .blame import blame
from .loading import Models, TrainedModel, list_models
from .progress import Progress
from .question import Question


def common_subset(
    models: Models,
    images: Images,
    labels: Labels,
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
    classifiers = [
        (name, Classifier(in_unit_bounds(cast(fb.models.base.Model, model)))) for name, _, model in list_models(models)
    ]
    check_seed(seed)
    x = check_unit_images(images, data_format)
    y = check_labels(labels, len(x))
    answers = [predict_named(f"model {name!r}", each.with_batch_size_for(x, None), x) for name, each in classifiers]
    correct = np.all([answer == y for answer in answers], axis=0)
    return choose(correct, x, n, seed)


def classify(models: Sequence[TrainedModel], question: Question) -> None:
    """Note which images each model classifies correctly."""
    for model in models:
        activity = f"classifying images with {model.label}"
        answers = blame(activity, predict_named, f"model {model.label!r}", model.classifier, question.images)
        model.correct = answers == question.labels


def choose_subset(models: Sequence[TrainedModel], question: Question, progress: Progress) -> NDArray[np.int64]:
    """Return which images are attacked: at most n that all models classify correctly, or n of all, sorted.

    Raises
    ------
    ModelError
        No image is classified correctly by all models.
    """
    common_to_all = np.all([model.correct for model in models], axis=0)
    takes_all = question.suite.subset == "all"
    indices = choose(common_to_all | takes_all, question.images, question.n, question.seed)
    if not common_to_all.any():
        accuracies = [f"{model.name}: {model.correct.mean():.1%}" for model in models]
        causes = " ".join(model.cause for model in models if model.cause)
        raise ModelError(
            "no image is classified correctly by all models, so there is nothing to compare. Their accuracies are "
            f"{', '.join(accuracies)}. {causes or 'Check labels, bounds and preprocessing.'}"
        )
    which = "of the test set" if takes_all else "that every model classifies correctly"
    progress.begin(f"attacks on {len(indices)} images {which}", 0)
    return indices


def choose(correct: NDArray[np.bool_], images: Images, n: int | None, seed: int) -> NDArray[np.int64]:
    """Return at most n indices of the images that are marked, ranked by a keyed hash of (seed, image), sorted.

    Ranked by the image and not by its place: the choice does not depend on which other images there are.
    """
    if n is not None:
        check_count("n", n)
    candidates = np.flatnonzero(correct)
    key = b"subset" + struct.pack("<q", seed)
    # In blocks, as images may lie in a file that is larger than the memory.
    marked = (block[correct[start : start + len(block)]] for start, block in in_blocks(images))
    ranks = [rank for block in marked for rank in image_hashes(block, key)]
    order = sorted(range(len(candidates)), key=ranks.__getitem__)
    return np.sort(candidates[order[:n]])

"""The usual causes of a poor accuracy: tried on some images, named, and never applied."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..data.arrays import UNIT_BOUNDS, Images, Labels
from ..errors import LOG
from ..models.classifier import Classifier, unwrap
from ..models.model import Model, preprocess
from .blame import blame
from .loading import TrainedModel
from .question import Question

POOR = 0.9  # accuracy below which causes are tried
LOOKED_AT = 150  # images on which causes are tried
CAUSE_ERRORS = 2  # standard errors by which a cause changes an accuracy
TRAINED = 0.3  # cross-entropy that a trained network is below where its accuracy is not poor
MUCH = 30  # times smaller is the cross-entropy of a range that is right at the same accuracy
SMOOTHED = 0.001  # of a label, for the other classes: logits 255 times too large cost something without a mistake, too
# What networks expect of images in [0, 1]: (images - mean) / std, and how `wrap` is told where bounds do.
_Range = tuple[str, tuple[float, ...], tuple[float, ...], str]
RANGES: tuple[_Range, ...] = (
    ("images in [0, 1]", (0,), (1,), "bounds=(0, 1) without mean and std"),
    ("images in [0, 255]", (0,), (1 / 255,), "bounds=(0, 255) without mean and std"),
    ("images in [-1, 1]", (0.5,), (0.5,), "bounds=(-1, 1) without mean and std"),
    ("images normalised as MNIST's", (0.1307,), (0.3081,), ""),
    ("images normalised as CIFAR-10's", (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616), ""),
    ("images normalised as ImageNet's", (0.485, 0.456, 0.406), (0.229, 0.224, 0.225), ""),
)


class _Cause(NamedTuple):
    """What may be wrong, what to do about it, and the logits (N, K) of images (N, H, W, C) if it is.

    The function also gets the logits as they are, which other labels only rearrange.
    """

    name: str
    remedy: str
    logits: Callable[[NDArray[np.float32], NDArray[np.float32]], NDArray[np.float32]]


def note_causes(models: Sequence[TrainedModel], question: Question) -> None:
    """Give the least accurate training of each name the cause that explains its accuracy, if one does."""
    least: dict[str, TrainedModel] = {}
    for model in sorted(models, key=lambda model: float(model.correct.mean())):
        least.setdefault(model.name, model)
    for name, model in least.items():
        activity = f"looking for what costs {model.label} accuracy"
        model.cause = blame(
            activity, _find_cause, name, model.classifier, question.images, question.labels, model.correct
        )


def _find_cause(
    name: str,
    classifier: Classifier,
    images: Images,
    labels: Labels,
    right: NDArray[np.bool_],
) -> str:
    """Return what probably is wrong with how a model is asked, and what to do; "" if no usual cause explains it.

    It is asked a few hundred images, for all causes where its accuracy is poor, and for the range where one was stated
    and the cross-entropy is large: many networks are nearly as accurate on values 255 times too large.

    Parameters
    ----------
    name : str
        What the model is called.
    classifier : Classifier
        The model, for images in [0, 1].
    images, labels : ndarray
        All images, (N, H, W, C) float32 in [0, 1], and their classes.
    right : ndarray of bool, shape (N,)
        Which of them it classifies correctly.
    """
    wrapping = _describe_wrapping(unwrap(classifier.model))
    is_poor = bool(right.mean() < POOR)
    if not is_poor and not wrapping:
        return ""
    places = np.unique(np.linspace(0, len(images) - 1, LOOKED_AT).astype(int))
    images = images[places]
    labels = labels[places]
    before = classifier.logits(images)
    if not is_poor and _measure_loss(before, labels) < TRAINED:
        return ""
    likely = None
    after = before
    smallest = math.inf
    for cause in _list_causes(classifier, images.shape[1:], before.shape[1], is_poor):
        try:
            logits = cause.logits(images, before)
        except Exception as error:  # a network that refuses such images does not expect them
            LOG.info("%s cannot be the cause: %s: %s", cause.name, type(error).__name__, error)
            continue
        loss = _measure_loss(logits, labels)
        if loss < smallest:
            likely = cause
            after = logits
            smallest = loss
    if likely is None or not _explains(before, after, labels):
        return ""
    accuracies = [np.mean(logits.argmax(axis=1) == labels) for logits in (before, after)]
    return (
        f"{name} is probably not asked as it was trained: {wrapping or 'as it was wrapped'}, it classifies "
        f"{accuracies[0]:.1%} of {len(places)} images correctly, at a cross-entropy of "
        f"{_measure_loss(before, labels):.3g}; if {likely.name}, {accuracies[1]:.1%}, at {smallest:.3g}. Nothing was "
        f"changed. If that is so, {likely.remedy}."
    )


def _describe_wrapping(model: Any) -> str:
    """Say which range of values was stated for a model, "" where none was, or, of one of Foolbox's own, is known."""
    if not isinstance(model, Model):
        return ""
    (low, high), preprocessing = model.wrapped_as
    normalised = " and its mean and std" if {"mean", "std"} & preprocessing.keys() else ""
    is_stated = (low, high) != UNIT_BOUNDS or normalised
    return f"with bounds ({low:g}, {high:g}){normalised}" if is_stated else ""


def _explains(before: NDArray[np.float32], after: NDArray[np.float32], labels: Labels) -> bool:
    """Say whether half of the mistakes are gone, or accuracy is the same at the cross-entropy of a trained network."""
    right = before.argmax(axis=1) == labels
    right_after = after.argmax(axis=1) == labels
    gain = int(right_after.sum()) - int(right.sum())
    noise = CAUSE_ERRORS * math.sqrt((right_after != right).sum())
    if gain > noise:
        return bool((~right_after).sum() <= (~right).sum() / 2)
    guessed = math.log(before.shape[1])  # the cross-entropy of equal logits
    return gain >= -noise and _measure_loss(after, labels) < min(_measure_loss(before, labels) / MUCH, guessed / 2)


def _measure_loss(logits: NDArray[np.float32], labels: Labels) -> float:
    """Return the mean cross-entropy with smoothed labels."""
    z = logits.astype(np.float64)
    true = z[np.arange(len(z)), labels]
    others = (z.sum(axis=1) - true) / (z.shape[1] - 1)
    losses = np.logaddexp.reduce(z, axis=1) - (1 - SMOOTHED) * true - SMOOTHED * others
    return float(losses.mean())


def _list_causes(classifier: Classifier, shape: tuple[int, ...], classes: int, is_poor: bool) -> Iterator[_Cause]:
    """Yield what may be wrong with a model for images of a shape (H, W, C): the range alone unless it is poor."""
    channels = shape[-1]
    model = unwrap(classifier.model)
    axis = -3 if classifier.data_format == "channels_first" else -1
    if isinstance(model, Model):
        for values in RANGES:
            _, mean, _, bounds = values
            if bounds or len(mean) == channels:
                yield _of_range(classifier, model, values, axis)
    if is_poor and channels == 3:
        yield _Cause(
            "the order of channels is reversed (RGB, BGR)",
            f'pass preprocessing={{"flip_axis": {axis}}} to robustcmp.wrap, or images[..., ::-1] to robustcmp.evaluate',
            lambda images, _: classifier.logits(np.ascontiguousarray(images[..., ::-1])),
        )
    if is_poor:
        yield from _of_classes(classes)


def _of_range(classifier: Classifier, model: Model, values: _Range, axis: int) -> _Cause:
    name, mean, std, bounds = values
    preprocessing = {"mean": list(mean), "std": list(std), "axis": axis}
    wrapping = bounds or f"bounds=(0, 1), preprocessing={preprocessing}".replace("'", '"')
    means = ":".join(map(_format_number, mean))
    stds = ":".join(map(_format_number, std))
    _, stated = model.wrapped_as
    flipped = preprocessing | {"flip_axis": stated.get("flip_axis")}
    return _Cause(
        f"it is given {name}",
        f"pass {wrapping} to robustcmp.wrap, or in the command write FILE,mean={means},std={stds}; or what "
        "its own training used",
        lambda images, _: _logits_outside(classifier, model, preprocess(classifier, images, UNIT_BOUNDS, flipped)),
    )


def _format_number(number: float) -> str:
    """Return a number as the command takes it.

    >>> _format_number(1 / 255), _format_number(0.5)
    ('1/255', '0.5')
    """
    return f"1/{1 / number:g}" if 0 < number < 0.01 else f"{number:g}"


def _of_classes(classes: int) -> Iterator[_Cause]:
    """Yield the two orders of classes that are called 0, 1, 2, … or 1, 2, 3, …, where they differ."""
    for first, key in ((0, "str"), (1, "lambda number: str(number + 1)")):
        names = [str(number + first) for number in range(classes)]
        by_text = sorted(range(classes), key=names.__getitem__)
        if by_text == [*range(classes)]:
            continue
        begin = ", ".join(names[number] for number in by_text[:4])
        code = f"sorted(range({classes}), key={key})"
        yield _of_order(
            np.argsort(by_text),
            f"the names of its classes are sorted as text: {begin}, …",
            f"pass numpy.argsort({code})[labels] to robustcmp.evaluate, or write a letter before the name of each "
            "class's folder",
        )
        yield _of_order(
            np.array(by_text),
            f"the names of its classes are sorted as numbers, not as text: {begin}, …",
            f"pass numpy.array({code})[labels] to robustcmp.evaluate, or write zeros before short names of the "
            "classes' folders",
        )


def _of_order(order: NDArray[np.int64], name: str, remedy: str) -> _Cause:
    """Return the cause that a network's class `order[k]` is k among the labels."""
    return _Cause(name, remedy, lambda _, logits: logits[:, order])


def _logits_outside(classifier: Classifier, model: Model, inputs: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the logits (N, K) that the network itself gives to what it takes, in batches."""
    answers = classifier.in_batches(lambda batch: classifier.ask(model.without_preprocessing, batch), inputs)
    return np.concatenate([*answers])

"""What is checked of a model and of images before any work."""

from __future__ import annotations

from typing import Any

import foolbox as fb
import numpy as np
from numpy.typing import NDArray

from ..errors import HostError, ModelError, UsageError
from .classifier import Classifier, unwrapped

UNIT_BOUNDS = (0.0, 1.0)
UNIT_REMEDY = "Images are compared in [0, 1] whatever bounds a model has: divide 8-bit images by 255."


def in_unit_bounds(model: fb.models.base.Model) -> fb.models.base.Model:
    """Return a model that takes images in [0, 1], whatever bounds it has."""
    if isinstance(model, fb.models.base.Model) and tuple(model.bounds) != UNIT_BOUNDS:
        return model.transform_bounds(UNIT_BOUNDS)
    return model


def check_images(
    images: Any, bounds: tuple[float, float], remedy: str = "Scale the images, or pass bounds= to robustcmp.wrap."
) -> NDArray[np.float32]:
    """Return images as float32 (N, H, W, C), or raise `UsageError` saying what is wrong with them."""
    array = np.asarray(images)
    if array.ndim != 4:
        raise UsageError(f"images should have the shape (N, H, W, C), received {array.shape}")
    if array.shape[-1] not in (1, 3) and array.shape[1] in (1, 3):
        raise UsageError(f"images should have the shape (N, H, W, C), received {array.shape}: move the channels last")
    if array.dtype.kind != "f":
        raise UsageError(
            f"images should be float32 in {bounds}, received dtype {array.dtype}. For 8-bit images: {_scaled(*bounds)}"
        )
    array = np.ascontiguousarray(array, np.float32)
    if array.size and not bounds[0] <= array.min() <= array.max() <= bounds[1]:  # nor if one is NaN
        if not np.isfinite(array).all():
            raise UsageError(f"images hold NaN or infinity, the first in image {_first(~np.isfinite(array))}")
        outside = (array < bounds[0]) | (array > bounds[1])
        raise UsageError(
            f"images should lie within the bounds {bounds}, received values from {array.min()} to {array.max()}, "
            f"the first outside in image {_first(outside)}. {remedy}"
        )
    return array


def check_labels(labels: Any, n: int, classes: int | None = None) -> NDArray[np.int64]:
    """Return labels as int64 (N,), or raise `UsageError` saying what is wrong with them."""
    array = np.asarray(labels)
    if array.shape != (n,):
        raise UsageError(f"labels should have the shape ({n},), one for each image, received {array.shape}")
    if array.dtype.kind not in "iu":
        raise UsageError(f"labels should be whole numbers, received dtype {array.dtype}")
    if classes is not None and n and not 0 <= array.min() <= array.max() < classes:
        raise UsageError(
            f"labels should be from 0 to {classes - 1}, as the model has {classes} classes; "
            f"received {array.min()} to {array.max()}"
        )
    return array.astype(np.int64)


def _scaled(lower: float, upper: float) -> str:
    """Return the expression that puts 8-bit images within bounds."""
    scale = 255 / (upper - lower)
    scaled = 'images.astype("float32")' if scale == 1 else f"images / {scale:g}"
    return scaled + (f" {'+' if lower > 0 else '-'} {abs(lower):g}" if lower else "")


def _first(bad: NDArray[np.bool_]) -> int:
    return int(np.flatnonzero(bad.any(axis=(1, 2, 3)))[0])


SOME = 32  # images that a model is asked about before any work
ALONE = 4  # of them, one at a time
SUMS_TO_ONE = 1e-2  # also in bfloat16, where the probabilities of ten classes sum to 1 within 0.01
DEPENDENCE = (
    1e-3  # of the largest logit, between batches: rounding makes 3e-6, batch norm by the batch's statistics 0.1
)


def check_model(name: str, classifier: Classifier, images: NDArray[np.float32], labels: NDArray[np.int64]) -> bool:
    """Ask a model about a few images and raise unless its answers are those of a classifier giving logits.

    Returns
    -------
    bool
        Whether its answers depend on the other images of a batch; only with a batch size of 1, where none are.

    Raises
    ------
    ModelError
        It does not accept the images, answers another shape or NaN, answers probabilities without saying so,
        answers differently when asked twice, or in another batch.
    UsageError
        A label is none of its classes.
    """
    some = images[: min(len(images), SOME)]
    try:
        logits = classifier.logits(some)
        again = classifier.logits(some)
    except HostError:
        raise
    except ModelError as error:
        raise ModelError(f"model {name!r} is not a classifier that returns logits: {error}") from error
    except Exception as error:
        raise ModelError(
            f"model {name!r} does not accept images of shape {some.shape[1:]} (H, W, C): "
            f"{type(error).__name__}: {error}"
        ) from error
    alone = _alone(name, classifier, some)
    if alone.shape[1:] != logits.shape[1:]:
        raise ModelError(
            f"model {name!r} should return logits (1, {logits.shape[1]}) for one image, as it returns "
            f"{logits.shape} for {len(some)}; received shape (1, {alone.shape[1]})"
        )
    if not np.isfinite(logits).all():
        raise ModelError(f"model {name!r} returns NaN or infinity; check its weights and preprocessing")
    outputs = getattr(unwrapped(classifier.model), "outputs", "logits")
    if outputs == "logits" and (logits >= 0).all() and np.allclose(logits.sum(axis=1), 1, atol=SUMS_TO_ONE):
        raise ModelError(
            f"model {name!r} returns probabilities (every row is in [0, 1] and sums to 1), but logits are "
            "expected: with probabilities, gradients vanish and success rates come out too low. "
            "Remove its last softmax, "
            'or keep it with robustcmp.wrap(..., outputs="probabilities").'
        )
    if outputs == "probabilities" and not np.allclose(np.exp(logits.astype(np.float64)).sum(axis=1), 1, atol=1e-3):
        raise ModelError(
            f'model {name!r} was wrapped with outputs="probabilities", but its outputs do not sum to 1. '
            "Omit outputs if it returns logits; compute a last softmax in float32 if it does so in bfloat16."
        )
    if outputs == "binary-probability" and not (np.exp(logits).sum(axis=1) < 1 + SUMS_TO_ONE).all():
        raise ModelError(
            f'model {name!r} was wrapped with outputs="binary-probability", but its outputs are not in [0, 1]. '
            'If they are logits, pass outputs="binary-logit".'
        )
    if not np.array_equal(logits.argmax(axis=1), again.argmax(axis=1)) or not np.allclose(logits, again, atol=1e-4):
        raise ModelError(
            f"model {name!r} returns different logits for the same images (by up to "
            f"{np.abs(logits - again).max():.2g}): switch off dropout and any other randomness"
        )
    check_labels(labels, len(images), logits.shape[1])
    return _check_batches(name, classifier, some, alone, 2 * float(np.abs(logits - again).max()))


def _alone(name: str, classifier: Classifier, images: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the logits of the first images, each asked alone."""
    try:
        return classifier.with_batch_size(1).logits(images[:ALONE])
    except HostError:
        raise
    except Exception as error:
        raise ModelError(
            f"model {name!r} answers {len(images)} images at once, but not one alone: {type(error).__name__}: {error}. "
            "It should answer each image by itself: call model.eval(), and train batch norm with running statistics."
        ) from error


def _check_batches(
    name: str, classifier: Classifier, images: NDArray[np.float32], alone: NDArray[np.float32], noise: float
) -> bool:
    """Say whether answers depend on the other images of a batch; raise `ModelError` if they do, and there are others.

    Compared are a batch, the same in another order, the half of it, and each image alone. `noise` is what two passes
    over one batch may differ by.
    """
    whole, part = classifier.with_batch_size(len(images)), images[: max(1, len(images) // 2)]
    together = whole.logits(images)
    others = [whole.logits(images[::-1].copy())[::-1], whole.logits(part), alone]
    difference = max(float(np.abs(other - together[: len(other)]).max()) for other in others)
    largest = float(np.abs(together).max())
    if difference <= DEPENDENCE * largest + noise:
        return False
    if classifier.batch_size == 1:
        return True
    raise ModelError(
        f"model {name!r} answers an image differently beside other images: its logits, of up to {largest:.2g}, change "
        f"by up to {difference:.2g} with the batch, so outcomes would depend on the batch size. Call model.eval(), and "
        "use batch norm with running statistics (in torch track_running_stats=True); or pass batch_size=1, with which "
        "each image is asked alone.",
        parameters=["batch_size"],
    )


def check_gradient(name: str, classifier: Classifier, images: NDArray[np.float32]) -> None:
    """Raise `ModelError` if the gradient of every one of some images is zero or not finite."""
    some = images[:64]
    logits = classifier.logits(some)
    v = np.zeros_like(logits)
    v[np.arange(len(some)), logits.argmax(axis=1)] = 1
    gradient = classifier.vjp(some, v)
    if not np.isfinite(gradient).all() or not gradient.any():
        raise ModelError(
            f"the gradient of model {name!r} is {'zero' if np.isfinite(gradient).all() else 'not finite'}, "
            "so gradient attacks on it are meaningless: check for rounding, detached tensors or saturated outputs"
        )

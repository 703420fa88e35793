"""What is checked of a model before any work."""

from __future__ import annotations

from typing import Any

import foolbox as fb
import numpy as np
from numpy.typing import NDArray

from ..data.arrays import UNIT_BOUNDS, Images, Labels, check_labels
from ..errors import HostError, ModelError
from .batches import is_slow
from .classifier import Classifier, check_finite, make_refusal, unwrap


def in_unit_bounds(model: fb.models.base.Model) -> fb.models.base.Model:
    """Return a model that takes images in [0, 1], whatever bounds it has."""
    if isinstance(model, fb.models.base.Model) and tuple(model.bounds) != UNIT_BOUNDS:
        return model.transform_bounds(UNIT_BOUNDS)
    return model


BINARY = ("binary-logit", "binary-probability")
LOGITS_EXPECTED = "but logits are expected: with probabilities, gradients vanish and success rates come out too low."
SUMS_TO_ONE = 0.1  # within which probabilities do that are rounded to two decimals, or computed in bfloat16
SOME = 8  # images that a model is asked about before any work
SUSPICIOUS = 32  # of a model whose first answers seem to be no logits
GRADIENTS = 64  # of images, that a model is asked for
ALONE = 4  # of them, one at a time
ROUNDING = 1e-2  # of a probability, in bfloat16 too
DEPENDENCE = (
    1e-3  # of the largest logit, between batches: rounding makes 3e-6, batch norm by the batch's statistics 0.1
)

STEADY = (
    "switch off dropout and any other randomness (in torch model.eval()). If the randomness is a defence, attack the "
    "mean over many passes, robustcmp.averaged(model), and let it draw from the global generator of its framework"
)


def check_model(name: str, classifier: Classifier, images: Images, labels: Labels) -> bool:
    """Ask a model about a few images and raise unless its answers are those of a classifier giving logits.

    Returns
    -------
    bool
        Whether its answers depend on the other images of a batch; only with a batch size of 1, where none are.

    Raises
    ------
    ModelError
        It does not accept the images, answers another shape or NaN, answers probabilities or sigmoids as logits,
        answers differently when asked twice, or in another batch.
    UsageError
        A label is none of its classes.
    """
    some = images[: min(len(images), SOME)]
    before = classifier.framework.generator_states()
    try:
        logits = classifier.logits(some)
        has_drawn = classifier.draws or classifier.framework.generator_states() != before
        again = classifier.logits(some)
    except HostError:
        raise
    except ModelError as error:
        raise ModelError(f"model {name!r} is not a classifier that returns logits: {error}") from error
    except Exception as error:
        raise make_refusal(f"model {name!r}", some, error) from error
    try:
        alone = classifier.with_batch_size(1).logits(some[:ALONE])
    except HostError:
        raise
    except Exception as error:
        raise ModelError(
            f"model {name!r} answers {len(some)} images at once, but not one alone: {type(error).__name__}: {error}. "
            "It should answer each image by itself: call model.eval(), and train batch norm with running statistics."
        ) from error
    if alone.shape[1:] != logits.shape[1:]:
        raise ModelError(
            f"model {name!r} should return logits (1, {logits.shape[1]}) for one image, as it returns "
            f"{logits.shape} for {len(some)}; received shape (1, {alone.shape[1]})"
        )
    check_finite(logits, f"model {name!r}")
    if not np.array_equal(logits.argmax(axis=1), again.argmax(axis=1)) or not np.allclose(logits, again, atol=1e-4):
        raise ModelError(
            f"model {name!r} returns different logits for the same images (by up to "
            f"{np.abs(logits - again).max():.2g}): {STEADY}"
        )
    if has_drawn:
        raise ModelError(
            f"model {name!r} draws from a global random generator while it answers, although two passes over the same "
            f"images were the same this time: {STEADY}"
        )
    _check_outputs(name, classifier, images, logits)
    check_labels(labels, len(images), logits.shape[1])
    whole = classifier.with_batch_size(len(some))
    together = logits if classifier.batch_size >= len(some) else whole.logits(some)
    return _check_batches(name, classifier, some, together, alone, 2 * float(np.abs(logits - again).max()))


def _check_outputs(name: str, classifier: Classifier, images: Images, logits: NDArray[np.float32]) -> None:
    """Raise `ModelError` where answers are not what the model was wrapped for."""
    outputs = getattr(unwrap(classifier.model), "outputs", "logits")
    if outputs == "binary-probability" and not (np.exp(logits).sum(axis=1) < 1 + ROUNDING).all():
        raise ModelError(
            f'model {name!r} was wrapped with outputs="binary-probability", but its outputs are not in [0, 1]. '
            'If they are logits, pass outputs="binary-logit".'
        )
    if outputs in BINARY:
        return
    kind = _find_kind(logits if outputs == "logits" else np.exp(logits.astype(np.float64)))
    if outputs == "logits" and kind != "logits":
        logits = classifier.logits(images[:SUSPICIOUS])
        kind = _find_kind(logits)
    if kind == outputs:
        return
    if outputs == "probabilities":
        raise ModelError(
            f'model {name!r} was wrapped with outputs="probabilities", but its outputs are not in [0, 1], or do not '
            "sum to 1, as after a sigmoid for each class. If it returns logits, omit outputs; if sigmoids, return what "
            "its last layer computes before them."
        )
    if kind == "probabilities":
        raise ModelError(
            f"model {name!r} returns probabilities (every row is in [0, 1] and sums to 1), {LOGITS_EXPECTED} Remove "
            'its last softmax, or keep it with outputs="probabilities" where it is wrapped.'
        )
    raise ModelError(
        f"model {name!r} should return logits, but every answer to {len(logits)} images is in [0, 1], as from a "
        "sigmoid for each class or from scaled probabilities: gradients vanish, and success rates come "
        "out too low. Return what its last layer computes before the sigmoid; in Keras and torch.nn.Sequential "
        "robustcmp.wrap(..., cut_softmax=True) cuts it. If these are logits, subtract 1 from all of them, which "
        "changes no loss."
    )


def _check_batches(
    name: str,
    classifier: Classifier,
    images: Images,
    together: NDArray[np.float32],
    alone: NDArray[np.float32],
    noise: float,
) -> bool:
    """Say whether answers depend on the other images of a batch; raise `ModelError` if they do, and there are others.

    Compared are a batch, the same in another order, the half of it, and each image alone. `noise` is what two passes
    over one batch may differ by.
    """
    whole = classifier.with_batch_size(len(images))
    part = images[: max(1, len(images) // 2)]
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
        "use batch norm with running statistics (in torch track_running_stats=True), and static quantisation, as "
        "dynamic one scales a whole batch alike; or pass batch_size=1, with which each image is asked alone.",
        parameters=["batch_size"],
    )


def check_gradient(
    name: str, classifier: Classifier, images: Images
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Return weights v of the logits of the first images, and the gradients of Σ v·logits.

    Raises
    ------
    ModelError
        The gradient of every one is zero, or one is not finite.
    """
    counts = [SOME, GRADIENTS] if is_slow(classifier, images) else [GRADIENTS]
    for count in counts:  # more where all are zero, as most are where outputs are saturated
        some = images[:count]
        logits = classifier.logits(some)
        check_finite(logits, f"model {name!r}")
        v = np.zeros_like(logits)
        v[np.arange(len(some)), logits.argmax(axis=1)] = 1
        v -= v.mean(axis=1, keepdims=True)  # one of the two logits of binary-logit is always 0
        gradient = classifier.vjp(some, v)
        if gradient.any():
            break
    if not np.isfinite(gradient).all() or not gradient.any():
        raise ModelError(
            f"the gradient of model {name!r} is {'zero' if np.isfinite(gradient).all() else 'not finite'}, "
            "so gradient attacks on it are meaningless: check for rounding, detached tensors or saturated outputs"
        )
    return v, gradient


def _find_kind(rows: NDArray[np.floating[Any]]) -> str:
    """Say what answers (N, K) look like: ``"probabilities"``, other ``"values in [0, 1]"``, or ``"logits"``."""
    if rows.shape[1] == 1 or (rows < 0).any():
        return "logits"
    if np.abs(rows.sum(axis=1, dtype=np.float64) - 1).max() <= SUMS_TO_ONE:
        return "probabilities"
    return "values in [0, 1]" if (rows <= 1).all() else "logits"

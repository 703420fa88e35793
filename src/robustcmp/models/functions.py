"""Networks in any code: functions from NumPy to NumPy behind Foolbox's `Model`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ..errors import LOG, ModelError, UsageError
from ..frameworks import Pullback
from .model import FunctionsModel, check_wrapping
from .preflight import BINARY

Logits = Callable[[NDArray[np.float32]], NDArray[np.floating[Any]]]
VJP = Callable[[NDArray[np.float32], NDArray[np.float32]], NDArray[np.floating[Any]]]
FINITE_DIFFERENCES: Literal["finite-differences"] = "finite-differences"
AT_ONCE = 256  # values of an image
STEP = 1e-2  # of the bounds' width: a smaller one drowns in float32, a larger one meets more kinks


def wrap_functions(
    *,
    logits: Logits,
    vjp: VJP | Literal["finite-differences"] | None = None,
    bounds: tuple[float, float] = (0, 1),
    outputs: str = "logits",
    info: dict[str, Any] | None = None,
) -> FunctionsModel:
    """Wrap functions of NumPy arrays, in any code, as a Foolbox model.

    Parameters
    ----------
    logits : callable
        Images (N, H, W, C) float32 within the bounds to logits (N, K), for any N. The logits of an image must not
        depend on the other images.
    vjp : callable or "finite-differences", optional
        Images and v (N, K) float32 to the gradient (N, H, W, C) of Σ v·logits with respect to the images. Without it,
        only attacks that need no gradient run. ``"finite-differences"`` takes central differences over a hundredth of
        the bounds. It costs 2·H·W·C queries per image and gradient, which attacks do not count, is coarse where the
        logits are not smooth, and useless where they are piecewise constant, as those of decision trees.
    bounds : tuple of float, default (0, 1)
        The smallest and the largest value of a pixel.
    outputs : str, default "logits"
        ``"probabilities"`` if `logits` returns probabilities; their logarithm is used, and `vjp` is that of the
        probabilities. ``"binary-logit"`` or ``"binary-probability"`` if it returns one number an image, (N,) or (N, 1);
        then v has this shape, too.
    info : dict, optional
        Notes that are stored with results.

    Returns
    -------
    Model
        A `foolbox.models.base.Model` of NumPy arrays, and of torch tensors where torch is installed.

    Notes
    -----
    A model with a defence needs attacks adapted to it; see the notes of `wrap`.

    Raises
    ------
    UsageError
        `logits` or `vjp` cannot be called, or an option or the bounds are invalid.

    Examples
    --------
    >>> weights = np.random.default_rng(0).normal(size=(64, 3)).astype(np.float32)
    >>> model = wrap_functions(
    ...     logits=lambda x: x.reshape(len(x), 64) @ weights,
    ...     vjp=lambda x, v: (v @ weights.T).reshape(x.shape),
    ... )
    >>> model
    <robustcmp.Model numpy, bounds (0, 1)>
    >>> model(np.zeros((2, 8, 8, 1), np.float32)).shape
    (2, 3)
    """
    lower, upper = check_wrapping(bounds, outputs)
    rows = (1, 2) if outputs in BINARY else (2,)
    if not callable(logits):
        raise UsageError(f"logits should be a function of images, received {type(logits).__name__}")
    if isinstance(vjp, str) and vjp == FINITE_DIFFERENCES:
        LOG.info("a gradient by finite differences takes 2·H·W·C questions an image, which no attack counts")
        pullback: Pullback | None = _FiniteDifferences(_check_answer(logits, "logits", rows, np.float64), lower, upper)
    elif vjp is None or callable(vjp):
        pullback = None if vjp is None else _check_answer(vjp, "vjp")
    else:
        raise UsageError(f'vjp should be a function of images and v, "finite-differences" or None, received {vjp!r}')
    return FunctionsModel(
        _check_answer(logits, "logits", rows),
        pullback,
        "numpy",
        (lower, upper),
        np.zeros(0, np.float32),
        "channels_last",
        outputs=outputs,
        info=info,
        native=logits,
    )


def _check_answer(
    function: Callable[..., Any], name: str, rows: tuple[int, ...] = (), dtype: type[np.floating[Any]] = np.float32
) -> Callable[..., NDArray[Any]]:
    """Return a function whose answers are of a dtype, or that raises where they are no numbers, or no rows.

    `rows` are the numbers of axes that an answer with a row for each image may have; none where it is no such answer.
    """

    def check(*arrays: NDArray[np.float32]) -> NDArray[Any]:
        answer = np.asarray(function(*map(np.array, arrays)))  # of copies, as it may write into its images
        if answer.dtype.kind not in "fiu":
            raise ModelError(f"{name} should return an array of numbers, received dtype {answer.dtype}")
        if rows and (answer.ndim not in rows or len(answer) != len(arrays[0])):
            remedy = '. If that is one number for two classes, pass outputs="binary-logit" or "binary-probability"'
            raise ModelError(
                f"{name} should return (N, K), one row for each of {len(arrays[0])} images, received {answer.shape}"
                f"{remedy * (answer.shape == (len(arrays[0]),))}"
            )
        return answer.astype(dtype)

    return check


class _FiniteDifferences:
    """The vector-Jacobian product by central differences, an image at a time; one-sided ones at the bounds.

    The bounds are those of the images that the logits are asked about: numbers, or arrays that broadcast with an image.
    """

    def __init__(self, logits: Logits, lower: float | NDArray[np.float32], upper: float | NDArray[np.float32]):
        self._logits = logits
        self._lower = lower
        self._upper = upper

    def __call__(self, images: NDArray[np.float32], v: NDArray[np.float32]) -> NDArray[np.float32]:
        steps = np.broadcast_to(STEP * (self._upper - self._lower), images.shape[1:]).reshape(-1)
        gradient = np.empty_like(images)
        for image, weights, slopes in zip(images, v, gradient.reshape(len(images), -1), strict=True):
            for start in range(0, image.size, AT_ONCE):
                places = np.arange(start, min(start + AT_ONCE, image.size))
                moves = np.zeros((len(places), image.size), np.float32)
                moves[np.arange(len(places)), places] = steps[places]
                moves = moves.reshape(-1, *image.shape)
                above = np.minimum(image + moves, self._upper)
                below = np.maximum(image - moves, self._lower)
                rise = (self._logits(above) - self._logits(below)).reshape(len(places), -1) @ weights.reshape(-1)
                slopes[places] = rise / (above - below).sum(axis=(1, 2, 3), dtype=np.float64)
        return gradient

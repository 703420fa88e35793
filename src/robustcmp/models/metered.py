"""A function that is asked elsewhere, over a network for example: not too often, again after an error, never twice."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from hashlib import blake2b
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import ModelError, UsageError, check_count

Function = Callable[[NDArray[np.float32]], Any]
FIRST_WAIT = 1.0  # seconds after the first error, twice as long after each further one
_log = logging.getLogger("robustcmp")


class Metered:
    """A function of images that is asked sparingly; made by `metered`.

    Attributes
    ----------
    images : int
        How many images the function was asked about; those that were answered before are not among them.
    calls : int
        How often it was called, failed calls included.
    """

    def __init__(
        self, function: Function, calls_per_second: float | None, at_once: int, retries: int, budget: int | None
    ):
        self._function, self._at_once, self._retries, self._budget = function, at_once, retries, budget
        self._interval = 0.0 if calls_per_second is None else 1 / calls_per_second
        self._answers: dict[bytes, NDArray[Any]] = {}
        self._next_call = 0.0
        self._lock = threading.Lock()  # one call at a time, whatever thread asks
        self.images = self.calls = 0

    def __call__(self, images: NDArray[np.float32]) -> NDArray[Any]:
        """Return the answers (N, K) to images (N, H, W, C)."""
        if not len(images):
            raise ModelError("expected at least one image to ask about, received none")
        keys = [blake2b(np.ascontiguousarray(image).data, digest_size=16).digest() for image in images]
        with self._lock:
            unknown = {key: place for place, key in enumerate(keys) if key not in self._answers}
            places = [*unknown.values()]
            for start in range(0, len(places), self._at_once):
                self._ask(images, [*unknown][start : start + self._at_once], places[start : start + self._at_once])
            return np.stack([self._answers[key] for key in keys])

    def _ask(self, images: NDArray[np.float32], keys: list[bytes], places: list[int]) -> None:
        if self._budget is not None and self.images + len(places) > self._budget:
            raise ModelError(
                f"the budget of {self._budget:,} images is used up: {self.images:,} were asked, and {len(places)} more "
                "are wanted. What is finished is kept: raise budget and call again, or attack fewer images."
            )
        answers = np.asarray(self._tried(images[places]))
        if len(answers) != len(places):
            raise ModelError(
                f"the function should return one row for each of {len(places)} images, received {answers.shape}"
            )
        self.images += len(places)
        self._answers.update(zip(keys, answers, strict=True))

    def _tried(self, images: NDArray[np.float32]) -> Any:
        for attempt in range(self._retries + 1):
            time.sleep(max(0.0, self._next_call - time.monotonic()))
            self._next_call = time.monotonic() + self._interval
            self.calls += 1
            try:
                return self._function(images)
            except Exception as error:
                if attempt == self._retries:
                    raise
                wait = FIRST_WAIT * 2**attempt
                _log.warning("%s: %s; asked again in %g s", type(error).__name__, error, wait)
                self._next_call = max(self._next_call, time.monotonic() + wait)
        raise AssertionError  # the loop returns or raises


def metered(
    function: Function,
    *,
    calls_per_second: float | None = None,
    at_once: int = 32,
    retries: int = 4,
    budget: int | None = None,
) -> Metered:
    """Return a function for `wrap_functions` that asks another one sparingly, such as one behind a REST endpoint.

    What was answered is kept in memory by the image's content, and not asked again. So an endpoint whose answers vary
    looks as if they did not: ask it twice about one image yourself first.

    Parameters
    ----------
    function : callable
        Images (N, H, W, C) float32 to answers (N, K). An exception, such as that of an HTTP status 429 or 503, means
        that it may be asked again.
    calls_per_second : float, optional
        How often it may be called (default: as often as you like).
    at_once : int, default 32
        The most images of one call.
    retries : int, default 4
        How often a call that failed is made again: after 1 s, 2 s, 4 s, and so on. The last failure is raised.
    budget : int, optional
        The most images that it may be asked about, in all.

    Returns
    -------
    Metered
        The function; its `images` and `calls` say what was asked.

    Raises
    ------
    UsageError
        The function cannot be called, or a number is out of range.

    Examples
    --------
    >>> from robustcmp import metered
    >>> ask = metered(lambda x: x.reshape(len(x), -1)[:, :2], budget=1000)
    >>> ask(np.zeros((3, 8, 8, 1), np.float32)).shape  # three times the same image
    (3, 2)
    >>> ask.images, ask.calls
    (1, 1)
    """
    if not callable(function):
        raise UsageError(f"expected a function of images, received {type(function).__name__}")
    if calls_per_second is not None and not 0 < calls_per_second < np.inf:
        raise UsageError(f"calls_per_second should be above 0, received {calls_per_second}")
    check_count("at_once", at_once)
    if isinstance(retries, bool) or not isinstance(retries, int) or retries < 0:
        raise UsageError(f"retries should be 0 or more, received {retries!r}")
    if budget is not None:
        check_count("budget", budget)
    return Metered(function, calls_per_second, at_once, retries, budget)

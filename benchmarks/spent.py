"""Where the time of an attack goes: what each part takes itself, without the parts that it calls, over all threads."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any
from unittest import mock

import robustcmp.attacks.base
import robustcmp.attacks.boundary
import robustcmp.attacks.fgsm
from robustcmp.models.classifier import Candidates, Classifier


class Spent(ExitStack):
    """Times the attacks on one framework's models inside a ``with`` block; `seconds` has what each part took."""

    def __init__(self, framework: object) -> None:
        super().__init__()
        self._lock = threading.Lock()
        self._of_this_thread = threading.local()
        self._framework = framework
        self.seconds: dict[str, float] = {}

    def __enter__(self) -> Spent:
        """Time every part from now on."""
        walk = robustcmp.attacks.boundary.Walk
        parts: list[tuple[str, Any, str]] = [
            ("the model, with the way to and from it", self._framework, "forward"),
            ("batches, filled up", Classifier, "ask"),
            ("classes of the answers", Classifier, "classes"),
            ("candidates in float64, rounded", Candidates, "forward"),
            ("images that leave", Candidates, "keep"),
            ("the gradient, which is no query", robustcmp.attacks.fgsm, "loss_gradient"),
            ("normal draws, and where they go", walk, "move"),
            ("the geometry in float64", robustcmp.attacks.boundary, "move_points"),
            ("candidates rounded", walk, "fools"),
            ("steps taken and adapted", walk, "advance"),
            ("the start's noise", walk, "start"),
            ("the final check, and distances", robustcmp.attacks.base, "judge"),
        ]
        for part, owner, name in parts:
            self.enter_context(mock.patch.object(owner, name, self._timed(part, getattr(owner, name))))
        return self

    def _timed(self, part: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            callers: list[float] = vars(self._of_this_thread).setdefault("callers", [])
            callers.append(0.0)
            start = time.perf_counter()
            try:
                return function(*args, **kwargs)
            finally:
                passed = time.perf_counter() - start
                own = passed - callers.pop()
                if callers:
                    callers[-1] += passed
                with self._lock:
                    self.seconds[part] = self.seconds.get(part, 0.0) + own

        return call

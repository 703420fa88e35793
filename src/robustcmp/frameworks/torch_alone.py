"""Random torch modules asked about many images as if each came alone, with the draws that are then the same for all."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import AbstractContextManager
from contextvars import ContextVar
from typing import Any

import torch
from torch.utils.checkpoint import checkpoint

from .base import Function

TRIED = 2  # images
AGREEMENT = 1e-4  # of the largest value, between a batch and images alone
gradient_wanted: ContextVar[bool] = ContextVar("gradient_wanted", default=False)
"""Whether a gradient is wanted inside of `torch.vmap`, whose tensors do not say so."""
_log = logging.getLogger("robustcmp")


class Alone:
    """A function that draws at random, as one that answers each image of a batch as it would answer it alone.

    `torch.vmap` gives all images of a batch the same draws. It is used where it agrees, on a few images, with answers
    and gradients of images asked one by one. What it does not take, such as code in NumPy, is asked one by one.
    """

    def __init__(self, function: Function, draws: Callable[[], AbstractContextManager[None]]):
        self._function, self._draws = function, draws
        self._together: dict[bool, bool] = {}  # with a gradient and without

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """Return the answers (N, K) to images (N, ...)."""
        x = x.contiguous()  # torch draws in the order of the memory
        wanted = x.requires_grad
        if len(x) > 1 and wanted not in self._together:
            self._together[wanted] = self._agree(x[:TRIED].detach(), wanted)
        ask = self._at_once if len(x) > 1 and self._together[wanted] else self._one_by_one
        if not wanted:
            return ask(x)
        # The passes of a mean would all be kept in memory until the gradient is taken: each is asked again for it.
        return checkpoint(ask, x, use_reentrant=False, preserve_rng_state=False)  # type: ignore[no-any-return]

    def _one_by_one(self, x: torch.Tensor) -> torch.Tensor:
        answers = []
        for i in range(len(x)):
            with self._draws():
                answers.append(self._function(x[i : i + 1]))
        return torch.cat(answers)

    def _at_once(self, x: torch.Tensor) -> torch.Tensor:
        token = gradient_wanted.set(x.requires_grad)
        try:
            with self._draws():
                answers: torch.Tensor = torch.vmap(self._of_one, randomness="same")(x)
        finally:
            gradient_wanted.reset(token)
        return answers.flatten(0, 1)

    def _of_one(self, image: torch.Tensor) -> torch.Tensor:
        answer: torch.Tensor = self._function(image[None])
        return answer

    def _agree(self, x: torch.Tensor, wanted: bool) -> bool:
        alone = self._looked_at(self._one_by_one, x, wanted)
        try:
            together = self._looked_at(self._at_once, x, wanted)
        except Exception as error:  # whatever the module does that torch.vmap refuses
            _log.info("a random module is asked one image at a time: %s: %s", type(error).__name__, error)
            return False
        return all(
            one.shape == other.shape and bool((one - other).abs().max() <= AGREEMENT * one.abs().max())
            for one, other in zip(alone, together, strict=True)
        )

    def _looked_at(self, ask: Function, x: torch.Tensor, wanted: bool) -> list[torch.Tensor]:
        """Return the answers, and the gradient of a sum of them where it is wanted."""
        x = x.clone().requires_grad_(wanted)
        answers: Any = ask(x)
        if not wanted:
            return [answers]
        weights = torch.linspace(-1, 1, answers.numel(), dtype=answers.dtype, device=answers.device).reshape(
            answers.shape
        )
        gradients = torch.autograd.grad(answers, x, weights, materialize_grads=True) if answers.requires_grad else []
        return [answers.detach(), *gradients]

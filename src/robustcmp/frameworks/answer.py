"""The logits among all that a network answers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import eagerpy as ep

from ..errors import ModelError


def one_tensor(answer: Any) -> Any:
    """Return the tensor (N, K) in float32 of what a network answers.

    An answer with an attribute or a key ``logits``, as the models of transformers give, or with only one part, is that
    part. A tensor of another floating-point type becomes float32, whose gradient flows back through the conversion.

    Raises
    ------
    ModelError
        The answer has several parts, and none of them is called logits.
    """
    if hasattr(answer, "logits"):
        return one_tensor(answer.logits)
    if isinstance(answer, (Mapping, tuple, list)):
        parts = answer if isinstance(answer, Mapping) else dict(enumerate(answer))
        if "logits" in parts or len(parts) == 1:
            return one_tensor(parts["logits"] if "logits" in parts else next(iter(parts.values())))
        raise _not_logits(f"a {type(answer).__name__} of {', '.join(map(str, parts)) or 'nothing'}")
    try:
        tensor = ep.astensor(answer)
    except ValueError:
        raise _not_logits(f"a {type(answer).__name__}") from None
    float32 = tensor.float32()
    return answer if tensor.dtype == float32.dtype else float32.raw


def _not_logits(received: str) -> ModelError:
    return ModelError(
        f"the model should return one tensor of logits, received {received}. Wrap a function, or a network around this "
        "one, that returns the logits alone."
    )

"""The logits among all that a network answers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import eagerpy as ep

from ..errors import ModelError


def logits_in(answer: Any) -> Any:
    """Return the part of an answer that is its logits; the answer itself where there is no saying.

    That is an attribute or a key ``logits``, as the models of transformers have, or the only part.
    """
    if hasattr(answer, "logits"):
        return logits_in(answer.logits)
    if isinstance(answer, Mapping) and "logits" in answer:
        return logits_in(answer["logits"])
    if isinstance(answer, (Mapping, tuple, list)) and len(answer) == 1:
        return logits_in(next(iter(answer.values() if isinstance(answer, Mapping) else answer)))
    return answer


def one_tensor(answer: Any) -> Any:
    """Return the logits in an answer as a tensor in float32, to which a gradient flows back.

    Raises
    ------
    ModelError
        The answer has several parts, and none of them is called logits; or it is no tensor.
    """
    logits = logits_in(answer)
    try:
        tensor = ep.astensor(logits)
    except ValueError:
        parts = logits if isinstance(logits, (Mapping, tuple, list)) else ()
        names = logits if isinstance(logits, Mapping) else range(len(parts))
        raise ModelError(
            f"the model should return one tensor of logits, received a {type(logits).__name__}"
            + (f" of {', '.join(map(str, names))}" if parts else "")
            + ". Wrap a function, or a network around this one, that returns the logits alone."
        ) from None
    float32 = tensor.float32()
    return logits if tensor.dtype == float32.dtype else float32.raw

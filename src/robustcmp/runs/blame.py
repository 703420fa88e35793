"""Whose code ran when the interpreter crashed, where only what is on the stack is told, or wanted to end it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from types import FunctionType
from typing import Any, TypeVar

from ..errors import ModelError
from ..models.classifier import NotFiniteError

Made = TypeVar("Made")


def _call(function: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    return function(*arguments)


def blame(what: str, function: Callable[..., Made], *arguments: Any) -> Made:
    """Call a function, and let the traceback that `faulthandler` writes after a crash say what was done.

    Parameters
    ----------
    what : str
        What is done with which model; it stands in the place of a file's name, since nothing else can be passed on.
    function : callable
        What to call, with the arguments.

    Raises
    ------
    ModelError
        The model's code called `sys.exit`, which would end the command without a word.
    """
    code = _call.__code__.replace(co_filename=f"while {what}", co_name="robustcmp")
    try:
        made: Made = FunctionType(code, globals())(function, arguments)
    except NotFiniteError as error:
        raise ModelError(f"while {what}: {error}") from None
    except SystemExit as error:
        raise ModelError(
            f"sys.exit({'' if error.code is None else repr(error.code)}) was called while {what}: the model's own code "
            "ends Python. Remove that call, or leave the model out."
        ) from error
    return made


def blame_each(what: str, made: Iterable[Made]) -> Iterator[Made]:
    """Yield the same, each made under `blame`."""
    iterator = iter(made)
    end = object()
    while (each := blame(what, next, iterator, end)) is not end:
        yield each

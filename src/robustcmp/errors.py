"""The errors of robustcmp. Every message says what was expected, what was received, and what to do.

Nothing in a name or a message moves the cursor of a terminal, recolours a line or hides a word.
"""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from numbers import Integral, Real
from typing import Any

# C0 and C1 but for tab and newline; marks that turn or hide text; line separators; halves of surrogate pairs, which are
# what is left of a file name that is no UTF-8, and which no stream can encode; and Unicode's invisible tags.
_UNPRINTABLE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff"
    "\U000e0000-\U000e007f]"
)


def printable(text: str) -> str:
    r"""Return text with control characters written as Python writes them, ``\x1b`` for ESC; newline and tab stay.

    Everything that goes to a terminal passes here: the messages of errors when they are made, the lines of the log,
    what the commands say and print, and every text in a table. What is stored stays as it is.

    Examples
    --------
    >>> print(printable("a\x1b[31mb\rc"))
    a\x1b[31mb\rc
    """
    return _UNPRINTABLE.sub(lambda found: found[0].encode("unicode_escape").decode("ascii"), text)


def is_name(text: str) -> bool:
    """Say whether text is a name on one line: not empty, and without control characters."""
    return bool(text.strip()) and "\n" not in text and "\t" not in text and printable(text) == text


def in_one_line(reason: object, most: int = 400) -> str:
    """Return a reason in one line; those of other programs may have hundreds."""
    return " ".join(str(reason).split())[:most]


def _log_printable(record: logging.LogRecord) -> bool:
    record.msg = printable(record.getMessage())
    record.args = ()
    return True


LOG = logging.getLogger("robustcmp")
LOG.addFilter(_log_printable)


class RobustcmpError(Exception):
    """The base class of every error that robustcmp raises on purpose; control characters in its message are escaped.

    Attributes
    ----------
    parameters : tuple of str
        The Python parameters that the message is about; the commands add the matching options.
    """

    def __init__(self, message: str, *, parameters: Sequence[str] = ()):
        super().__init__(printable(message))
        self.parameters = tuple(parameters)


class UsageError(RobustcmpError, ValueError):
    """An argument is invalid; no work was started."""


class DataError(RobustcmpError):
    """A dataset is not available, or its files are broken."""


class MissingDataError(DataError):
    """A dataset is neither on this machine nor could it be downloaded.

    Attributes
    ----------
    reason : str
        The reason in a few words, without the remedy.
    """

    def __init__(self, message: str, reason: str, *, parameters: Sequence[str] = ()):
        super().__init__(message, parameters=parameters)
        self.reason = reason


class ModelError(RobustcmpError):
    """A trained network does not behave as a classifier that can be compared."""


class NoGradientError(ModelError):
    """Nothing on the way from a model's answer to its images can be differentiated."""


class AttackError(RobustcmpError):
    """An attack from elsewhere failed, or its images are not within its budget."""


class WeightsError(RobustcmpError):
    """A weights file is missing, broken, or belongs to another network."""


class MissingWeightsError(WeightsError):
    """Weights of some trained models are missing.

    Attributes
    ----------
    reason : str
        The message without the remedy.
    fit_arguments : list of dict
        The arguments of `robustcmp.fit` that train each of them.
    """

    def __init__(self, message: str, fit_arguments: Sequence[dict[str, str | int]]):
        called = ", ".join(f"{name}={value!r}" for name, value in fit_arguments[0].items())
        each = "it" if len(fit_arguments) == 1 else f"these {len(fit_arguments)}, the first of them"
        super().__init__(
            f"{message} Train {each} with robustcmp.fit({called}).", parameters=["framework", "training_seeds"]
        )
        self.reason = message
        self.fit_arguments = list(fit_arguments)


class DeploymentError(RobustcmpError):
    """A network cannot be converted for a runtime, or a file or an answer of a runtime cannot be used."""


class HostError(RobustcmpError):
    """A host process could not start, failed in a call, or died.

    Attributes
    ----------
    out_of_memory : bool
        Whether the call ran out of memory.
    """

    def __init__(self, message: str, *, out_of_memory: bool = False):
        super().__init__(message)
        self.out_of_memory = out_of_memory


class ControlError(RobustcmpError):
    """The same-weights control failed: frameworks give different results for the same weights."""


class GroupError(RobustcmpError):
    """Attacks on some models failed in their processes; everything else of the comparison is finished."""


class StoreError(RobustcmpError):
    """A run's directory cannot be read or written."""


class DiskError(RobustcmpError, OSError):
    """A disk has no room for a file, or a quota or a limit does not allow it. What was there before is unchanged."""


class SealError(RobustcmpError):
    """A kept file is not as it was written. The message is the reason alone: the reader of the file adds the remedy."""


class OutOfMemoryError(RobustcmpError, MemoryError):
    """The machine's memory did not suffice."""


@contextmanager
def enough_memory(doing: str, lower: str) -> Iterator[None]:
    """Let a `MemoryError` be an `OutOfMemoryError` that says what to lower; also a decorator."""
    try:
        yield
    except OutOfMemoryError:
        raise
    except MemoryError as error:
        raise OutOfMemoryError(
            f"the memory of this machine does not suffice for {doing} ({str(error) or 'MemoryError'}). Lower {lower}, "
            "or use a machine with more memory."
        ) from error


def check_count(name: str, value: object, most: int | None = None) -> int:
    """Return a whole number of 1 or more, of NumPy or not, and at most `most`, or raise `UsageError`."""
    if isinstance(value, bool) or not isinstance(value, Integral) or int(value) < 1:
        raise UsageError(f"{name} should be 1 or more, received {_shorten(value)}", parameters=[name])
    if most is not None and int(value) > most:
        raise UsageError(f"{name} should be at most {most:,}, received {_shorten(value)}", parameters=[name])
    return int(value)


def check_size(name: str, value: Any, most: float) -> float:
    """Return a number above 0 and at most `most`, or raise `UsageError`."""
    if isinstance(value, bool) or not isinstance(value, Real) or not 0 < float(value) < math.inf:
        raise UsageError(f"{name} should be more than 0 and finite, received {_shorten(value)}", parameters=[name])
    if float(value) > most:
        raise UsageError(f"{name} should be at most {most:,g}, received {_shorten(value)}", parameters=[name])
    return float(value)


def _shorten(value: object) -> str:
    """Return a value as Python writes it; Python writes no integer of thousands of digits."""
    try:
        text = repr(value)
    except ValueError:
        text = "a number of thousands of digits"
    return text if len(text) <= 100 else f"{text[:100]}…"


def check_seed(seed: object, name: str = "seed") -> int:
    """Return a whole number of 64 bits, which is what draws are keyed by, or raise `UsageError`."""
    if not isinstance(seed, Integral) or not -(2**63) <= int(seed) < 2**63:
        raise UsageError(f"{name} should be a 64-bit integer, received {_shorten(seed)}", parameters=[name])
    return int(seed)


def unknown(kind: str, given: object, allowed: Iterable[str], also: Mapping[str, str] | None = None) -> UsageError:
    """Return the error for an unknown name, which suggests the nearest allowed name.

    Parameters
    ----------
    kind : str
        What the name is of.
    given : object
        What was received.
    allowed : iterable of str
        The names that there are.
    also : dict of str to str, optional
        What else people call some of them: another word for a name is nearer to it than any spelling.

    Examples
    --------
    >>> print(unknown("model", "LeNet6", ["lenet1", "lenet5"]))
    unknown model 'LeNet6': did you mean 'lenet5'? Expected one of lenet1, lenet5.
    >>> print(unknown("device", "gpu", ["cpu", "cuda"], {"gpu": "cuda"}))
    unknown device 'gpu': did you mean 'cuda'? Expected one of cpu, cuda.
    """
    names = sorted(allowed)
    near = nearest(str(given), names, also)
    hint = f" did you mean '{near}'?" if near else ""
    return UsageError(f"unknown {kind} {_shorten(str(given))}:{hint} Expected one of {', '.join(names)}.")


def nearest(given: str, allowed: Iterable[str], also: Mapping[str, str] | None = None) -> str | None:
    """Return the allowed name that a mistyped one most likely stands for, None where none is near.

    Capitals make no difference. `also` is as for `unknown`.
    """
    spelled = {name.casefold(): name for name in allowed}
    spelled |= {word.casefold(): name for word, name in (also or {}).items() if name in spelled.values()}
    near = get_close_matches(given.casefold(), spelled, n=1)
    return spelled[near[0]] if near else None

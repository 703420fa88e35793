"""What can go wrong, in words: every error says what was expected, what came, and what to do."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from numbers import Integral


class RobustcmpError(Exception):
    """The base class of every error that robustcmp raises on purpose.

    Attributes
    ----------
    parameters : tuple of str
        The parameters of Python functions that the message is about; the commands name their options beside it.
    """

    def __init__(self, message: str, *, parameters: Sequence[str] = ()):
        super().__init__(message)
        self.parameters = tuple(parameters)


class UsageError(RobustcmpError, ValueError):
    """The caller's arguments cannot be used; no work was started."""


class DataError(RobustcmpError):
    """A dataset cannot be had, or its files are broken."""


class MissingDataError(DataError):
    """A dataset is nowhere to be had; what there is of it is not broken."""


class ModelError(RobustcmpError):
    """A trained network does not behave as a classifier that can be compared."""


class WeightsError(RobustcmpError):
    """A weights file is missing, broken, or belongs to another network."""


class MissingWeightsError(WeightsError):
    """There are no weights of a trained model.

    Attributes
    ----------
    reason : str
        The message without what to do.
    fit_arguments : dict
        What `robustcmp.fit` would train them from.
    """

    def __init__(self, message: str, fit_arguments: dict[str, str | int]):
        called = ", ".join(f"{name}={value!r}" for name, value in fit_arguments.items())
        super().__init__(
            f"{message} Train them with robustcmp.fit({called}).", parameters=["framework", "training_seeds"]
        )
        self.reason = message
        self.fit_arguments = fit_arguments


class HostError(RobustcmpError):
    """A host cannot be started, failed in a call, or died.

    Attributes
    ----------
    died : bool
        Whether the host is gone.
    out_of_memory : bool
        Whether its call needs more memory than it has.
    """

    def __init__(self, message: str, died: bool = False, out_of_memory: bool = False):
        super().__init__(message)
        self.died = died
        self.out_of_memory = out_of_memory


class ControlError(RobustcmpError):
    """The same weights do not come out alike in all frameworks."""


class StoreError(RobustcmpError):
    """A run's directory cannot be read or written."""


def check_count(name: str, value: object) -> int:
    """Return a whole number of 1 or more, of NumPy or not, or raise `UsageError`."""
    if isinstance(value, bool) or not isinstance(value, Integral) or int(value) < 1:
        raise UsageError(f"{name} should be 1 or more, received {value!r}", parameters=[name])
    return int(value)


def check_seed(seed: object, name: str = "seed") -> int:
    """Return a whole number of 64 bits, which is what draws are keyed by, or raise `UsageError`."""
    if not isinstance(seed, Integral) or not -(2**63) <= int(seed) < 2**63:
        raise UsageError(f"{name} should be a 64-bit integer, received {seed!r}", parameters=[name])
    return int(seed)


def unknown(kind: str, given: object, allowed: Iterable[str]) -> UsageError:
    """Return the error for a name that is none of the allowed ones, with the nearest one suggested.

    >>> print(unknown("model", "lenet6", ["lenet1", "lenet5"]))
    unknown model 'lenet6': did you mean 'lenet5'? Expected one of lenet1, lenet5.
    """
    names = sorted(allowed)
    near = get_close_matches(str(given), names, n=1)
    hint = f" did you mean '{near[0]}'?" if near else ""
    return UsageError(f"unknown {kind} {str(given)!r}:{hint} Expected one of {', '.join(names)}.")

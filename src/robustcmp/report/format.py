"""How numbers are written: the only place where they become text."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import wraps

Write = Callable[[float], str]
NOTHING = "–"
NO_INFORMATION = "no information"
EVERYTHING = (-1.0, 1.0)  # an interval of a difference of rates that says nothing
UNBOUNDED = (-math.inf, math.inf)  # the same of distances
ANY_RATIO = (0.0, math.inf)  # the same of ratios


def _or_nothing(write: Write) -> Write:
    """Let a function write `NOTHING` for NaN."""

    @wraps(write)
    def write_known(value: float) -> str:
        return NOTHING if math.isnan(value) else write(value)

    return write_known


def fixed(value: float, digits: int) -> str:
    """Write a number with so many decimals; the order of a sum does not decide whether 2.45 becomes 2.4 or 2.5."""
    return f"{round(value, 9):.{digits}f}"


def percent(value: float, digits: int = 1) -> str:
    """Write a share in percent."""
    return NOTHING if math.isnan(value) else f"{fixed(100 * value, digits)} %"


def percent_2(value: float) -> str:
    """Write a share in percent, with two decimals."""
    return percent(value, 2)


def points(value: float) -> str:
    """Write a difference of rates in points of a hundred, with two decimals below one point."""
    return NOTHING if math.isnan(value) else fixed(100 * value, 1 if abs(value) >= 0.01 or value == 0 else 2)


@_or_nothing
def p_value(value: float) -> str:
    """Write a p value."""
    return "< 0.001" if value < 0.001 else f"{value:.3f}"


def plural(count: int, noun: str) -> str:
    """So many of something.

    >>> plural(1, "repeat"), plural(2, "repeat")
    ('1 repeat', '2 repeats')
    """
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


@_or_nothing
def number(value: float) -> str:
    """Write a number with three decimals."""
    return "∞" if math.isinf(value) else fixed(value, 3)


def distance(value: float) -> str:
    """Write a distance, or a difference of two, with two digits at least, in three to five decimals.

    >>> [distance(value) for value in (1.3, 0.011, 0.0005, -0.0000661)]
    ['1.300', '0.011', '0.00050', '-0.00007']
    """
    if not 0 < abs(value) < 0.01:
        return number(value)
    return fixed(value, min(1 - math.floor(math.log10(abs(value))), 5))


@_or_nothing
def duration(seconds: float) -> str:
    """Write a time, in the unit that a person would use.

    >>> [duration(seconds) for seconds in (7.4, 100, 5000)]
    ['7 s', '1 min 40 s', '1 h 23 min']
    """
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


LONG = 100.0  # seconds
UNITS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"))


def seconds(value: float) -> str:
    """Write a time that was measured, with three digits; a long one as `duration`.

    >>> [seconds(value) for value in (1.3, 0.01234, 0.000567, 250)]
    ['1.30 s', '12.3 ms', '567 µs', '4 min 10 s']
    """
    if not math.isfinite(value):
        return number(value)
    if value == 0:
        return "0 s"
    return duration(value) if value >= LONG else f"{in_unit(value, value)} {_unit(value)[1]}"


def in_unit(value: float, like: float) -> str:
    """Write a time in the unit of another one, without it.

    >>> in_unit(0.00123, like=0.5), in_unit(1.02, like=0.5)
    ('1.23', '1,020')
    """
    return "∞" if math.isinf(value) else significant(value / _unit(like)[0])


def _unit(value: float) -> tuple[float, str]:
    return next((unit for unit in UNITS if value >= unit[0] * 0.9995), UNITS[-1])


@_or_nothing
def significant(value: float) -> str:
    """Write a number with three digits, and all before the point."""
    return f"{value:,.0f}" if abs(value) >= 99.95 or value == 0 else f"{value:#.3g}"


@_or_nothing
def size(value: float) -> str:
    """Write a number of bytes.

    >>> [size(value) for value in (177_704, 320_000_000)]
    ['178 kB', '320 MB']
    """
    unit = next((unit for unit in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")) if value >= unit[0]), (1.0, "B"))
    return f"{significant(value / unit[0])} {unit[1]}"


@_or_nothing
def ratio(value: float) -> str:
    """Write a ratio with two decimals, with three near 1."""
    return "∞" if math.isinf(value) else fixed(value, 3 if 0.99 < value < 1.01 and value != 1 else 2)


def whole(value: float) -> str:
    """Write a whole number, rounded, with commas; what is no number is not known."""
    return NOTHING if value != value else f"{round(value):,}"


def interval(write: Write) -> Callable[[Sequence[float]], str]:
    """Return how two ends are written."""

    def write_both(ends: Sequence[float]) -> str:
        if tuple(ends) in (EVERYTHING, UNBOUNDED, ANY_RATIO):
            return NO_INFORMATION
        return NOTHING if any(map(math.isnan, ends)) else " to ".join(write(end) for end in ends)

    return write_both


def shares(values: Sequence[float]) -> str:
    """Write several shares in percent."""
    return " / ".join(f"{100 * value:.0f}" for value in values) + " %"

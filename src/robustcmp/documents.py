"""TOML and JSON that a person may have written: one reader, in which every mistake is an error that names the file.

It never waits for a pipe or a device, reads no more than a limit, and returns plain values only: whole numbers of 64
bits, finite numbers, and tables that are not nested beyond any use.
"""

from __future__ import annotations

import json
import math
import os
import re
import stat
import tomllib
from collections.abc import Callable, Iterator
from decimal import Decimal
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

from . import limits
from .errors import UsageError

# Keys like a.b.c cost tomllib memory that grows with the square of their parts.
_DOTTED = re.compile(r"""(?<![\w-])(?:(?:[\w-]++|"[^"\n]*+"|'[^'\n]*+')[ \t]*+\.[ \t]*+)++""")


def read_toml(
    source: str | os.PathLike[str] | Traversable, what: str, *, parse_float: Callable[[str], Any] = float
) -> dict[str, Any]:
    """Read a TOML file.

    Parameters
    ----------
    source : path
        The file.
    what : str
        What it is, for errors: ``"the suite"``.
    parse_float : callable, default float
        What makes a number of its text.

    Raises
    ------
    UsageError
        The file cannot be read, is too large, or is not TOML; or a value is no number that can be used.
    """

    def parse(text: str) -> dict[str, Any]:
        if any(key[0].count(".") > limits.FILE_LEVELS for key in _DOTTED.finditer(text)):
            raise UsageError(f"expected keys of at most {limits.FILE_LEVELS} parts")
        return tomllib.loads(text, parse_float=parse_float)

    content: dict[str, Any] = _read(source, what, "TOML", parse)
    return content


def read_json(source: str | os.PathLike[str] | Traversable, what: str) -> Any:
    """Read a JSON file, as `read_toml` does; a name that stands twice in an object is an error."""
    return _read(source, what, "JSON", lambda text: json.loads(text, object_pairs_hook=_unique))


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    table = dict(pairs)
    if len(table) < len(pairs):
        names = [name for name, _ in pairs]
        raise UsageError(f"the key {next(name for name in names if names.count(name) > 1)!r} appears twice")
    return table


def _read(source: str | os.PathLike[str] | Traversable, what: str, form: str, parse: Callable[[str], Any]) -> Any:
    try:
        text = _bytes(source).decode("utf-8-sig")  # editors on Windows write a byte order mark
    except UnicodeDecodeError as error:
        raise UsageError(f"{what} {source} cannot be read: expected text in UTF-8 ({error})") from None
    except (OSError, ValueError) as error:
        raise UsageError(f"{what} {source} cannot be read: {error}") from None
    try:
        content = parse(text)
        _check(content)
    except UsageError as error:
        raise UsageError(f"{what} {source}: {error}") from None
    except (tomllib.TOMLDecodeError, json.JSONDecodeError) as error:
        raise UsageError(f"{what} {source}: it cannot be read as {form}: {error}") from None
    except (RecursionError, MemoryError):
        raise UsageError(f"{what} {source}: {_too_deep()}") from None
    except (ValueError, ArithmeticError):  # Python reads no integer of thousands of digits
        raise UsageError(f"{what} {source}: a number has too many digits; expected numbers of 64 bits") from None
    return content


def _bytes(source: str | os.PathLike[str] | Traversable) -> bytes:
    if not isinstance(source, (str, os.PathLike)):
        return source.read_bytes()  # shipped, in an archive
    with open(source, "rb", opener=_without_waiting) as file:
        check_regular(file.fileno())
        content = file.read(limits.FILE_BYTES + 1)
    if len(content) > limits.FILE_BYTES:
        raise UsageError(f"expected at most {limits.FILE_BYTES} bytes")
    return content


def _without_waiting(path: str, flags: int) -> int:
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))  # a pipe without a writer


def check_regular(file: int | str | Path) -> None:
    """Raise `UsageError` unless a path or an open file is a regular file: a pipe or a device may have no end.

    Raises
    ------
    OSError
        There is none.
    """
    if not stat.S_ISREG(os.stat(file).st_mode):
        raise UsageError("expected a regular file, received a directory, a pipe or a device")


def _too_deep() -> str:
    return f"it is nested too deeply; expected at most {limits.FILE_LEVELS} levels of tables and lists"


def _check(content: Any) -> None:
    """Raise `UsageError` for a value that is no number to compute with, or that is nested too deeply."""
    left: list[tuple[str, str, int, Any]] = [("", "", 0, content)]  # the table, what stands before a key in it, …
    while left:
        table, before, level, value = left.pop()
        if level > limits.FILE_LEVELS:
            raise UsageError(_too_deep())
        for key, inner in _inside(value):
            where = f"[{table}]: {before}{key}" if table else f"{before}{key}"
            if isinstance(inner, int) and not -(2**63) <= inner < 2**63:
                raise UsageError(f"{where} should be a number of 64 bits, received one of {_digits(inner)} digits")
            if isinstance(inner, float | Decimal) and not math.isfinite(inner):
                raise UsageError(f"{where} should be a finite number, received {inner}")
            if isinstance(inner, list):
                left.append((table, f"{before}{key}.", level + 1, inner))
            elif isinstance(inner, dict):
                left.append((f"{table}.{before}{key}" if table else f"{before}{key}", "", level + 1, inner))


def _inside(value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        yield from value.items()
    elif isinstance(value, list):
        yield from ((str(place), inner) for place, inner in enumerate(value, 1))


def _digits(value: int) -> int:
    return int(value.bit_length() * math.log10(2)) + 1

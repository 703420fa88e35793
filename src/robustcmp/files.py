"""Files that appear whole or not at all, where they lie, and digests of what they hold."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .errors import UsageError


def user_cache() -> Path:
    """Return the directory for downloads and for what the user trains: ``$ROBUSTCMP_CACHE``, else the system's.

    It may not exist yet.
    """
    given = os.environ.get("ROBUSTCMP_CACHE")
    if given:
        return as_path(given)
    from platformdirs import user_cache_path  # where pooch.os_cache is; pooch itself also sets up progress bars

    return user_cache_path("robustcmp")


def as_path(given: str | os.PathLike[str]) -> Path:
    """Return a directory that a caller named, or raise `UsageError` for what is no path."""
    if not isinstance(given, (str, os.PathLike)):
        raise UsageError(f"Expected data_dir as a path, received {given!r}.")
    return Path(os.path.expanduser(given))


def digest(arrays: Mapping[str, NDArray[Any]]) -> str:
    """Return the SHA-256 (hex) of named arrays: their names, dtypes, shapes and bytes, in the order of the names."""
    sha = hashlib.sha256()
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        sha.update(f"{name}:{array.dtype.str}:{array.shape};".encode())
        sha.update(array.data)
    return sha.hexdigest()


def json_digest(content: dict[str, Any]) -> str:
    """Return the SHA-256 (hex) of JSON types."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def file_digest(path: Path) -> str:
    """Return the SHA-256 (hex) of a file's bytes."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def make_directory(directory: Path) -> None:
    """Make a directory if it is not there, and raise `UsageError` unless files can be made in it."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        probe = directory / f".{os.getpid()}.tmp"
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise UsageError(f"{directory} cannot be written: {error.strerror or error}") from None


def write_atomically(path: Path, write: Callable[[Path], object]) -> None:
    """Let `write` fill a temporary file beside `path`, flush it to the disk and only then give it its name.

    Whoever reads `path` sees the old file or the whole new one, whenever the process is killed.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        write(temporary)
        with open(temporary, "rb") as file:
            os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def write_named(path: str | os.PathLike[str], write: Callable[[Path], object]) -> None:
    """Write a file that the caller named, as `write_atomically` does; raise `UsageError` where that cannot be."""
    try:
        write_atomically(Path(path), write)
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror or error}", parameters=["path"]) from None


def write_text_atomically(path: Path, text: str) -> None:
    """Write a text file that appears whole or not at all, as `write_atomically` does."""
    write_atomically(path, lambda temporary: _write_text(temporary, text))


def append_line(path: Path, line: str) -> None:
    """Append a line to a text file, on a line of its own whatever a killed process left, and flush it to the disk."""
    with open(path, "a+b") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(size - 1, 0))
        torn = file.read(1) not in (b"", b"\n")
        file.write(b"\n" * torn + line.encode() + b"\n")
        file.flush()
        os.fsync(file.fileno())


def _write_text(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")

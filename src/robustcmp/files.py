"""Files that appear whole or not at all, where they lie, who may write them, and digests of what they hold."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import secrets
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from io import BufferedReader
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .errors import DiskError, StoreError, UsageError

TEMPORARY = ".tmp"
LOCK = ".writer.lock"
REGULAR = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
APPENDED = os.O_RDWR | os.O_CREAT | os.O_APPEND | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOFOLLOW", 0)
NO_ROOM = {errno.ENOSPC: "the disk is full", errno.EDQUOT: "the quota is used up", errno.EFBIG: "the file is too large"}


def user_cache() -> Path:
    """Return the directory for downloads and for what the user trains: ``$ROBUSTCMP_CACHE``, else the system's.

    It may not exist yet.
    """
    directory = os.environ.get("ROBUSTCMP_CACHE")
    if directory:
        return as_path(directory)
    from platformdirs import user_cache_path  # where pooch.os_cache is; pooch itself also sets up progress bars

    return user_cache_path("robustcmp")


def as_path(given: str | os.PathLike[str], parameter: str = "data_dir") -> Path:
    """Return a path that a caller named, ``~`` being the user's directory; raise `UsageError` for what is no path."""
    if not isinstance(given, (str, os.PathLike)):
        raise UsageError(f"Expected {parameter} as a path, received {given!r}.")
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
    with open_regular(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def open_regular(path: str | os.PathLike[str]) -> BufferedReader:
    """Open a file for reading, or raise `OSError` for what is none: a pipe or a device could block for ever."""
    return open(_open_file(path, REGULAR), "rb")


def _open_file(path: str | os.PathLike[str], flags: int) -> int:
    """Return the descriptor of a regular file, or raise `OSError` for what is none."""
    descriptor = os.open(path, flags, 0o666)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "expected a regular file, received a directory, a pipe or a device", str(path))
        return descriptor
    except BaseException:
        os.close(descriptor)
        raise


# files that appear whole ---------------------------------------------------------------------------------------------


def _temporary_beside(path: Path) -> Path:
    """Return the name of a temporary file that nobody else uses, beside a file."""
    return path.with_name(f".{path.name[:40]}.{secrets.token_hex(8)}{TEMPORARY}")


def remove_left_over(directory: Path, start: str = "") -> None:
    """Remove what writers that were killed have left of files whose names begin so; nobody may be writing them."""
    for path in directory.glob(f".{start}*{TEMPORARY}"):
        path.unlink(missing_ok=True)


def make_directory(directory: Path) -> None:
    """Make a directory if it is not there, and raise `UsageError` unless files can be made in it."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        probe = _temporary_beside(directory / "probe")
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise UsageError(f"{directory} cannot be written: {error.strerror or error}") from None


def write_bytes_atomically(path: Path, content: bytes) -> None:
    """Fill a temporary file beside `path`, flush it to the disk and only then give it its name.

    Whoever reads `path` sees the old file or the whole new one, whenever the process is killed, and however many
    processes write it.

    Raises
    ------
    DiskError
        There is no room for the file. The old one is as it was.
    """
    with _room_for(path, len(content)):
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = _temporary_beside(path)
        try:
            temporary.write_bytes(content)
            with open(temporary, "rb") as file:
                os.fsync(file.fileno())
            os.replace(temporary, path)
        finally:
            temporary.unlink(missing_ok=True)


@contextmanager
def _room_for(path: Path, size: int) -> Iterator[None]:
    """Raise `DiskError` where the system says that there is no room for so many bytes of a file."""
    try:
        yield
    except OSError as error:
        if error.errno not in NO_ROOM:
            raise
        full = DiskError(
            f"{path} cannot be written, {NO_ROOM[error.errno]}: it takes {size:,} bytes. Make room there, or name "
            "another directory, and rerun the same command: what is finished is kept."
        )
        full.errno = error.errno
        raise full from None


def write_named(given: str | os.PathLike[str], text: str) -> None:
    """Write a file that the caller named, whole or not at all; raise `UsageError` where that cannot be."""
    path = as_path(given, "path")
    try:
        if path.is_dir():
            raise OSError(errno.EISDIR, "it is a directory. Name a file in it")
        if path.absolute().parent == Path("/dev"):  # a file should not replace it
            path.write_text(text, encoding="utf-8")
        else:
            write_bytes_atomically(path, text.encode())
    except DiskError:
        raise
    except OSError as error:
        raise UsageError(f"{given} cannot be written: {error.strerror or error}", parameters=["path"]) from None


def append_line(path: Path, line: str) -> None:
    """Append a line to a text file, in the place of what a killed process left of one, and flush it to the disk.

    Raises
    ------
    DiskError
        There is no room for the line; what is left of it goes with the next one.
    StoreError
        It is a link, a directory, a pipe, or cannot be written.
    """
    with _room_for(path, len(line)), open(_open_appendable(path), "a+b", buffering=0) as file:
        file.seek(0)
        file.truncate(file.read().rfind(b"\n") + 1)
        file.write(f"{line}\n".encode())
        os.fsync(file.fileno())


def _open_appendable(path: Path) -> int:
    """Return the descriptor of a file that lines are added to, made if it is not there.

    A link is refused: in a directory from somebody else it could lead to any file of this user.
    """
    try:
        return _open_file(path, APPENDED)
    except OSError as error:
        if error.errno in NO_ROOM:
            raise
        raise StoreError(
            f"nothing can be added to {path}: {error.strerror}. Remove it, or name another directory, and rerun the "
            "same command: what is finished is kept.",
            parameters=["out"],
        ) from None


# one writer at a time -----------------------------------------------------------------------------------------------


@contextmanager
def sole_writer(directory: Path) -> Iterator[None]:
    """Hold the lock of a directory, which the system releases when the process ends, however it ends.

    Raises
    ------
    StoreError
        Another process, or another thread of this one, holds it; or the file system has no locks.
    """
    from filelock import FileLock, Timeout  # it imports asyncio, which most commands do without

    path = directory / LOCK
    lock = FileLock(path, timeout=0, fallback_to_soft=False)
    try:
        lock.acquire()
    except Timeout:
        raise StoreError(
            f"{directory} is being written by another process. Wait until it has finished, or name another directory.",
            parameters=["out"],
        ) from None
    except OSError as error:
        raise StoreError(
            f"{path} cannot be locked: {error.strerror or error}. Name a directory on a disk with working file locks, "
            "such as a local one.",
            parameters=["out"],
        ) from None
    try:
        yield
    finally:
        with suppress(OSError):  # Windows removes no open file
            path.unlink()
        lock.release()

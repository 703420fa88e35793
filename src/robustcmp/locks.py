"""One writer at a time in a directory."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout

from .errors import StoreError

NAME = ".writer.lock"


@contextmanager
def sole_writer(directory: Path) -> Iterator[None]:
    """Hold the lock of a directory, which the system releases when the process ends, however it ends.

    Raises
    ------
    StoreError
        Another process, or another thread of this one, holds it; or the file system has no locks.
    """
    path = directory / NAME
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

"""Files that appear whole or not at all, where they lie, who may write them, and digests of what they hold."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import secrets
import shutil
import socket
import stat
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cache
from io import BufferedReader
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .errors import DiskError, StoreError, UsageError

TEMPORARY = ".tmp"
LOCK = ".writer.lock"
SURELY_DEAD = 86400.0  # seconds without a change, after which nobody is still writing a temporary file
REGULAR = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
OWN = os.O_RDWR | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
NO_ROOM = {errno.ENOSPC: "the disk is full", errno.EDQUOT: "the quota is used up", errno.EFBIG: "the file is too large"}


def user_cache() -> Path:
    """Return the directory for downloads and for what the user trains: ``$ROBUSTCMP_CACHE``, else the system's.

    It may not exist yet.
    """
    given = os.environ.get("ROBUSTCMP_CACHE")
    if given:
        return as_path(given)
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
    descriptor, _ = open_file(path)
    return open(descriptor, "rb")


def open_own(path: Path, flags: int = 0) -> int:
    """Return the descriptor of a file that is changed where it lies, or raise `OSError` for what is no regular file.

    A link is none: in a directory from somebody else it could lead to any file of this user.
    """
    if path.is_symlink():
        raise OSError(errno.ELOOP, "is a link", str(path))
    descriptor, _ = open_file(path, OWN | flags)
    return descriptor


def open_file(path: str | os.PathLike[str], flags: int = REGULAR) -> tuple[int, int]:
    """Return the descriptor of a regular file and its size, or raise `OSError` for what is none."""
    descriptor = os.open(path, flags, 0o666)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "expected a regular file, received a directory, a pipe or a device", str(path))
        return descriptor, status.st_size
    except BaseException:
        os.close(descriptor)
        raise


# who writes ------------------------------------------------------------------------------------------------------


class Writer(NamedTuple):
    """A process that writes, as other processes see it, also on other machines that share a disk.

    Attributes
    ----------
    host : str
        The name of the machine, in letters, digits and hyphens.
    kernel : str
        Which start of which machine it is: containers of one machine have the same, whatever their names.
    pids : str
        In which namespace its process number counts.
    pid : int
        The process number.
    """

    host: str
    kernel: str
    pids: str
    pid: int

    @classmethod
    def this(cls) -> Writer:
        """Return this process."""
        return cls(*_this_machine(), os.getpid())

    @property
    def is_surely_dead(self) -> bool:
        """Whether the process has ended, as far as this process can tell: it counts processes alike, or it does not."""
        return (self.host, self.kernel, self.pids) == _this_machine() and not _is_alive(self.pid)


@cache
def _this_machine() -> tuple[str, str, str]:
    host = re.sub(r"[^A-Za-z0-9-]+", "-", socket.gethostname())[:32] or "host"
    return host, _short(_read("/proc/sys/kernel/random/boot_id") or host), _short(_link("/proc/self/ns/pid") or host)


def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="ascii")
    except OSError:
        return ""


def _link(path: str) -> str:
    try:
        return os.readlink(path)
    except OSError:
        return ""


def _short(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def _is_alive(pid: int) -> bool:
    if os.name == "nt":  # there, signal 0 would end it
        return True
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:  # it is somebody else's
        return True
    return True


# files that appear whole ---------------------------------------------------------------------------------------------


def temporary_beside(path: Path) -> Path:
    """Return the name of a temporary file that no other process, thread or machine uses, beside a file."""
    writer = ".".join(map(str, Writer.this()))
    return path.with_name(f".{path.name[:40]}.{writer}.{secrets.token_hex(8)}{TEMPORARY}")


def is_temporary(path: Path) -> bool:
    """Whether a file is what a process that was killed while it wrote may have left."""
    return path.name.startswith(".") and path.name.endswith(TEMPORARY)


def remove_left_over(directory: Path) -> None:
    """Remove the temporary files of writers that have surely ended: processes of this machine, or after a day."""
    for path in directory.glob(f".*{TEMPORARY}"):
        *_, host, kernel, pids, pid, _token, _ = ["", "", "", "", *path.name.split(".")]
        try:
            old = time.time() - path.stat().st_mtime > SURELY_DEAD
            if old or (pid.isdecimal() and Writer(host, kernel, pids, int(pid)).is_surely_dead):
                path.unlink()
        except OSError:
            continue  # somebody else has removed it, or may


def make_directory(directory: Path) -> None:
    """Make a directory if it is not there, and raise `UsageError` unless files can be made in it."""
    try:
        _try_to_write(directory)
    except OSError as error:
        raise UsageError(f"{directory} cannot be written: {error.strerror or error}") from None


def _try_to_write(directory: Path) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    probe = temporary_beside(directory / "probe")
    probe.touch()
    probe.unlink()


def write_atomically(path: Path, write: Callable[[Path], object], size: int | None = None) -> None:
    """Let `write` fill a temporary file beside `path`, flush it to the disk and only then give it its name.

    Whoever reads `path` sees the old file or the whole new one, whenever the process is killed, and however many
    processes write it.

    Parameters
    ----------
    path : Path
        The file.
    write : callable
        Is called with the name of the temporary file.
    size : int, optional
        How many bytes it writes, for the message where there is no room for them.

    Raises
    ------
    DiskError
        There is no room for the file. The old one is as it was.
    """
    with room_for(path, size):
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = temporary_beside(path)
        try:
            write(temporary)
            with open(temporary, "rb") as file:
                os.fsync(file.fileno())
            os.replace(temporary, path)
        finally:
            temporary.unlink(missing_ok=True)


def write_bytes_atomically(path: Path, content: bytes) -> None:
    """Write a file that appears whole or not at all, as `write_atomically` does."""
    write_atomically(path, lambda temporary: temporary.write_bytes(content), len(content))


@contextmanager
def room_for(path: Path, size: int | None = None) -> Iterator[None]:
    """Raise `DiskError` where the system says that there is no room for so many bytes of a file."""
    try:
        yield
    except OSError as error:
        if error.errno not in NO_ROOM:
            raise
        needed = "" if size is None else f": it takes {size:,} bytes"
        raise _disk_error(path, f"{NO_ROOM[error.errno]}{needed}", error.errno) from None


def _disk_error(path: Path, reason: str, number: int) -> DiskError:
    try:
        free = f", and {shutil.disk_usage(path.parent).free:,} bytes are free in {path.parent}"
    except OSError:
        free = ""
    error = DiskError(
        f"{path} cannot be written, {reason}{free}. Make room there, or name another directory, and rerun the same "
        "command: what is finished is kept."
    )
    error.errno = number
    return error


def _is_device(path: Path) -> bool:
    """Say whether a path is such as /dev/null or /dev/stdout."""
    return path.absolute().parent == Path("/dev")


def check_writable(given: str | os.PathLike[str]) -> Path:
    """Return the path of a file that a caller wants written, or raise `UsageError` where none can be."""
    path = as_path(given, "path")
    if path.is_dir():
        raise UsageError(f"{given} cannot be written: it is a directory. Name a file in it", parameters=["path"])
    try:
        if not _is_device(path):
            _try_to_write(path.parent)
    except OSError as error:
        raise UsageError(f"{given} cannot be written: {error.strerror or error}", parameters=["path"]) from None
    return path


def write_named(given: str | os.PathLike[str], write: Callable[[Path], object]) -> None:
    """Write a file that the caller named, as `write_atomically` does; raise `UsageError` where that cannot be."""
    path = check_writable(given)
    try:
        if _is_device(path):  # a file should not replace it
            write(path)
        else:
            write_atomically(path, write)
    except DiskError:
        raise
    except OSError as error:
        raise UsageError(f"{given} cannot be written: {error.strerror or error}", parameters=["path"]) from None


def write_text_atomically(path: Path, text: str) -> None:
    """Write a text file that appears whole or not at all, as `write_atomically` does."""
    write_bytes_atomically(path, text.encode())


def append_line(path: Path, line: str, is_whole: Callable[[bytes], bool] = bool) -> None:
    """Append a line to a text file, on a line of its own whatever a killed process left, and flush it to the disk.

    Parameters
    ----------
    path : Path
        The file, which is made if it is not there.
    line : str
        The line.
    is_whole : callable, optional
        Says of a last line without a line break whether it is kept; what a killed process left of a line is removed.

    Raises
    ------
    DiskError
        There is no room for the line. The file is as it was.
    StoreError
        It is a link, a directory, a pipe, or cannot be written.
    """
    with room_for(path, len(line)), open(_appendable(path), "a+b", buffering=0) as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(size - 1, 0))
        torn = file.read(1) not in (b"", b"\n")
        if torn:
            file.seek(0)
            last = file.read().rpartition(b"\n")[2]
            if not is_whole(last):
                torn, size = False, file.truncate(size - len(last))
        left = b"\n" * torn + line.encode() + b"\n"
        try:
            while left:
                left = left[file.write(left) or 0 :]
            os.fsync(file.fileno())
        except OSError:
            file.truncate(size)
            raise


def _appendable(path: Path) -> int:
    """Return the descriptor of a file that lines are added to, made if it is not there."""
    try:
        return open_own(path, os.O_CREAT | os.O_APPEND)
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

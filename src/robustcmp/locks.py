"""One writer at a time in a directory, also where several machines share the disk.

The lock is a file with the writer's name. On one machine the kernel holds it, and releases it when the process ends,
however it ends. Other machines may not see that: for them the writer touches the file every few seconds, and a file
that was not touched for two minutes is nobody's. Two machines can take such a file over at the same time: the last to
sign it has it, and the other one sees that after a while. A writer that was suspended for longer sees it before its
next file. Where the kernel cannot lock files, the writer's process number and the touches have to do.
"""

from __future__ import annotations

import errno
import json
import os
import secrets
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from .errors import StoreError
from .files import Writer, open_own, open_regular, room_for, temporary_beside

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

NAME = ".writer.lock"
BEAT = 15.0  # seconds between two touches
SILENCE = 120.0  # seconds without one, after which a writer on another machine has ended
CONFIRM = 2.0  # seconds after which two machines that took over one lock see which of them was the last
UNSUPPORTED = {errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOLCK}
ATTEMPTS = 100  # at a file that others make and remove meanwhile

_held: set[int] = set()  # descriptors


class Holder(NamedTuple):
    """Who holds a lock, since when, and which of its acquisitions that was."""

    writer: Writer
    since: str
    token: str = ""

    def __str__(self) -> str:
        return f"process {self.writer.pid} on {self.writer.host} since {self.since}"


class Lock(NamedTuple):
    """The lock of a directory, as long as it is this process's."""

    path: Path
    descriptor: int
    token: str

    @property
    def is_ours(self) -> bool:
        """Whether the lock is still the one that was acquired."""
        holder = _signed(self.path)
        return holder is not None and holder.token == self.token

    def check(self) -> None:
        """Raise `StoreError` if somebody else has taken the lock over, as after this process was suspended."""
        if self.is_ours:
            return
        holder = _signed(self.path)
        how = f"taken over by {holder}" if holder else "removed"
        raise StoreError(
            f"the lock {self.path} was {how}: by hand, or because this process gave no sign of life for "
            f"{SILENCE:.0f} s. Nothing more is written. Rerun the command when no other one is writing.",
            parameters=["out"],
        )


@contextmanager
def sole_writer(directory: Path) -> Iterator[Lock]:
    """Hold the lock of a directory, which is to be checked before each file is written.

    Raises
    ------
    StoreError
        Another process, or another thread of this one, holds it.
    """
    lock = _acquired(directory / NAME)
    _held.add(lock.descriptor)
    stop = threading.Event()
    beating = threading.Thread(target=_beat, args=(lock, stop), name="robustcmp lock", daemon=True)
    beating.start()
    try:
        yield lock
    finally:
        stop.set()
        beating.join()
        with suppress(OSError):
            if _is_at(lock.descriptor, lock.path) and lock.is_ours:
                lock.path.unlink()
        _held.discard(lock.descriptor)
        os.close(lock.descriptor)


def _acquired(path: Path) -> Lock:
    """Return the lock of a file that is this process's, or raise `StoreError`."""
    is_known_here = True  # to the kernel, so that no other machine can take the lock over at the same time
    for _ in range(ATTEMPTS):
        opened = _opened(path)
        if opened is None:
            continue
        descriptor, is_new = opened
        try:
            locked = _locked(descriptor)
            holder = _holder(descriptor)
            if locked is False or not (is_new or _has_ended(holder, path, locked is True)):
                raise _taken(path, holder)
            if not is_new:
                is_known_here = bool(locked and holder and holder.writer.kernel == Writer.this().kernel)
            if _is_at(descriptor, path):  # else whoever held it has just removed it
                if locked or is_new:
                    lock = Lock(path, descriptor, _sign(descriptor, path))
                    if not is_known_here:
                        _confirm(lock)
                    return lock
                path.unlink(missing_ok=True)  # only who makes the file anew has it
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)
    raise StoreError(f"{path} cannot be locked: other processes make and remove it. Rerun the command.")


def _confirm(lock: Lock) -> None:
    """Raise `StoreError` if another machine has taken the same lock over at the same time: the last to sign has it."""
    time.sleep(CONFIRM)
    if not lock.is_ours:
        raise _taken(lock.path, _signed(lock.path))


def _signed(path: Path) -> Holder | None:
    """Return who signed the lock file of that name; None if there is none."""
    try:
        with open_regular(path) as file:
            return _holder(file.fileno())
    except FileNotFoundError:
        return None


def _taken(path: Path, holder: Holder | None) -> StoreError:
    return StoreError(
        f"{path.parent} is being written by {holder or 'another process'}. Wait until it has finished, "
        f"name another directory, or remove {path} if that process is gone.",
        parameters=["out"],
    )


def _opened(path: Path) -> tuple[int, bool] | None:
    """Open a lock file, and say whether it was made; None if it was removed meanwhile."""
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o644), True
    except FileExistsError:
        pass
    try:
        return open_own(path), False
    except FileNotFoundError:
        return None
    except OSError as error:
        raise _unusable(path, error.strerror or str(error)) from None


def _unusable(path: Path, reason: str) -> StoreError:
    return StoreError(
        f"{path} cannot be used as a lock: {reason}. Remove it if nobody writes there, or name another directory.",
        parameters=["out"],
    )


def _locked(descriptor: int) -> bool | None:
    """Lock a file, and say whether it is ours now; None if the kernel cannot lock it."""
    if fcntl is None:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno in UNSUPPORTED:
            return None
        raise
    return True


def _holder(descriptor: int) -> Holder | None:
    """Return who signed a lock file; None before it is signed."""
    try:
        said = json.loads(os.read(descriptor, 4096))
        writer = Writer(str(said["host"]), str(said["kernel"]), str(said["pids"]), int(said["pid"]))
        return Holder(writer, said["since"], str(said.get("token", "")))
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


def _has_ended(holder: Holder | None, path: Path, locked: bool) -> bool:
    """Say whether the holder of a lock file has ended; `locked`, whether the kernel gave us its lock."""
    if locked and (holder is None or holder.writer.kernel == Writer.this().kernel):
        return True
    if holder is not None and holder.writer.is_surely_dead:
        return True
    probe = temporary_beside(path)
    try:
        probe.touch()
        return probe.stat().st_mtime - path.stat().st_mtime > SILENCE  # both by the clock of the disk
    except FileNotFoundError:
        return True
    finally:
        probe.unlink(missing_ok=True)


def _is_at(descriptor: int, path: Path) -> bool:
    """Say whether an open file is still the one of that name."""
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(path))
    except FileNotFoundError:
        return False


def _sign(descriptor: int, path: Path) -> str:
    """Write this process's name into a lock file, which is removed where there is no room for it; return the token."""
    token = secrets.token_hex(8)
    said = Writer.this()._asdict() | {"since": datetime.now(UTC).isoformat(" ", "seconds"), "token": token}
    try:
        with room_for(path):
            os.truncate(descriptor, 0)
            os.lseek(descriptor, 0, os.SEEK_SET)
            os.write(descriptor, json.dumps(said).encode())
            os.fsync(descriptor)  # other machines see it
    except OSError:
        path.unlink(missing_ok=True)
        raise
    return token


def _beat(lock: Lock, stop: threading.Event) -> None:
    """Touch a lock file until told to stop, or until it is somebody else's."""
    while not stop.wait(BEAT):
        with suppress(OSError):  # the disk may be away for a while
            if lock.is_ours:
                os.utime(lock.descriptor)


def _forget() -> None:
    """Let go of the locks of the process that forked this one: they end with that process."""
    while _held:
        os.close(_held.pop())


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)

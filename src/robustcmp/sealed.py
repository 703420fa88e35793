"""Sealed files: whatever robustcmp keeps says what kind of file it is, and has the SHA-256 of its content.

The seal is a line, ``robustcmp KIND, sha256 HEX``. In JSON it is the member ``seal``, over the canonical form of the
other members. In HDF5 it stands in a block of 512 bytes that HDF5 does not look at: behind the file's content, so that
any program opens the file, or before it, in the user block, in files of trained weights.

HDF5 files are built in memory and are written only when they are whole: the library crashes on a full disk. They are
read in memory as well, after the seal was checked: the library crashes or hangs on some broken files. What anybody may
have sealed is still read with distrust: an HDF5 file can name other files as the place of its values, and declare
arrays that are far larger than itself. Each reader has a limit for the file's size where it knows one.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import secrets
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from types import EllipsisType
from typing import Any

import h5py
import msgspec
import numpy as np
from numpy.typing import DTypeLike, NDArray

from .errors import SealError
from .files import open_regular
from .untrusted import DEFLATED, find_arrays, read_file

MARK = b"robustcmp "
BLOCK = 512
IN_FRONT = ("weights",)  # the kinds whose seal is the user block
MEMBER = "seal"
LARGEST = 2**36  # bytes that are read of a file, if its reader knows no better limit
LARGEST_JSON = 2**28  # a manifest of 100,000 cells has 30 MB
TYPES = {h5py.h5t.INTEGER, h5py.h5t.FLOAT, h5py.h5t.ENUM, h5py.h5t.STRING}
# What h5py, json, msgspec and the readers of their content raise for a file that is not as it should be.
BROKEN = (
    *(OSError, LookupError, ValueError, TypeError, AttributeError, RuntimeError, MemoryError, ArithmeticError),
    msgspec.ValidationError,
)

Shape = tuple[int | EllipsisType, ...]


def seal(kind: str, content: bytes | memoryview) -> str:
    """Return the seal of some content."""
    return f"robustcmp {kind}, sha256 {hashlib.sha256(content).hexdigest()}"


@contextmanager
def seal_errors() -> Iterator[None]:
    """Raise `SealError` for whatever h5py, json or a reader of their content raises; `FileNotFoundError` stays."""
    try:
        yield
    except FileNotFoundError:
        raise
    except BROKEN as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error) or repr(error)
        raise SealError(" ".join(reason.split())[:300]) from None


# bytes ---------------------------------------------------------------------------------------------------------------


def read_bytes(path: str | os.PathLike[str], limit: int = LARGEST) -> bytes:
    """Return the bytes of a regular file, or raise `SealError` for what is none, or larger than the limit."""
    with seal_errors():
        return read_file(path, limit)


def is_sealed(path: str | os.PathLike[str], kind: str) -> bool:
    """Say whether a file begins as those of a kind do whose seal stands in front."""
    start = MARK + kind.encode() + b","
    with open_regular(path) as file:
        return file.read(len(start)) == start


def _check(content: bytes, kind: str) -> bytes:
    """Return HDF5's part of a file's bytes, or raise `SealError` unless they are as they were sealed."""
    in_front = content.startswith(MARK)
    block = content[:BLOCK] if in_front else content[-BLOCK:]
    if not block.startswith(MARK):
        raise SealError("it has no seal")
    expected = block.rstrip(b"\0").decode("ascii", "replace")
    title = expected.partition(", sha256 ")[0]
    if title != f"robustcmp {kind}":
        raise SealError(f"expected a file of the kind {kind!r}, received {title[len(MARK) :][:40]!r}")
    received = seal(kind, memoryview(content)[BLOCK:] if in_front else memoryview(content)[:-BLOCK])
    if expected != received:
        raise SealError(
            f"expected SHA-256 {expected.partition(', sha256 ')[2][:64]}, received {received[-64:]}: the file was "
            "changed after it was written, or it is not whole"
        )
    return content if in_front else content[:-BLOCK]


# HDF5 ----------------------------------------------------------------------------------------------------------------


def hdf5(kind: str, write: Callable[[h5py.File], object]) -> bytes:
    """Return a sealed HDF5 file, built in memory by `write`."""
    in_front = kind in IN_FRONT
    options = {"driver": "core", "backing_store": False, "block_size": 2**20}
    with h5py.File(secrets.token_hex(16), "w", userblock_size=BLOCK if in_front else 0, **options) as file:
        write(file)
        file.flush()
        content: bytes = file.id.get_file_image()
    block = seal(kind, content).encode().ljust(BLOCK, b"\0")
    return block + content if in_front else content + block


@contextmanager
def open_hdf5(path: str | os.PathLike[str], kind: str, *, limit: int = LARGEST) -> Iterator[Hdf5]:
    """Open a sealed HDF5 file for reading.

    Parameters
    ----------
    path : path
        The file.
    kind : str
        What it should be.
    limit : int
        The most bytes that it may have.

    Raises
    ------
    FileNotFoundError
        There is no file.
    SealError
        It is not as it was written, or holds what robustcmp does not write. So is everything that goes wrong while it
        is open.
    """
    with from_bytes(read_bytes(path, limit), kind) as file:
        yield file


@contextmanager
def from_bytes(content: bytes, kind: str) -> Iterator[Hdf5]:
    """Open the bytes of a sealed HDF5 file, as `open_hdf5` opens a file."""
    with seal_errors():
        image = _check(content, kind)
        access = h5py.h5p.create(h5py.h5p.FILE_ACCESS)
        access.set_fapl_core(backing_store=False)
        access.set_file_image(image)
        name = secrets.token_hex(16).encode()  # HDF5 takes two files in memory with one name for the same
        with h5py.File(h5py.h5f.open(name, h5py.h5f.ACC_RDONLY, access)) as file:
            yield Hdf5(file, len(image))


class Hdf5:
    """An HDF5 file in memory that has only what robustcmp writes: groups and arrays, linked once, with their values.

    Attributes
    ----------
    arrays : dict of str to h5py.Dataset
        The arrays by their whole names, group by group. Nothing of them was read.
    size : int
        The bytes of the file.
    """

    def __init__(self, file: h5py.File, size: int):
        self.size = size
        self._root = file
        self.arrays = dict(sorted(find_arrays(file), key=lambda pair: pair[0].split("/")))

    def array(self, name: str, dtype: DTypeLike | None = None, shape: Shape | None = None) -> NDArray[Any]:
        """Return an array, once `check` has found nothing wrong with it."""
        self.check(name, dtype, shape)
        return np.asarray(self.arrays[name][()])

    def check(self, name: str, dtype: DTypeLike | None = None, shape: Shape | None = None) -> None:
        """Check what an array declares, before anything of it is read.

        Parameters
        ----------
        name : str
            Its whole name.
        dtype : dtype, optional
            What it should have; any numbers if nothing is said.
        shape : tuple, optional
            What it should have; an ellipsis at the end stands for any further axes.

        Raises
        ------
        SealError
            There is no such array, or it is another one, or the file has not got all of its values.
        """
        if name not in self.arrays:
            raise SealError(f"{name} is missing")
        array = self.arrays[name]
        expected = None if dtype is None else np.dtype(dtype)
        received = array.dtype
        if received.kind not in "biufS" or (expected is not None and expected != received):
            raise SealError(f"{name} should be {expected or 'of numbers'}, received {received}")
        if shape is not None and not _fits(array.shape, shape):
            lengths = ", ".join("…" if length is ... else str(length) for length in shape)
            raise SealError(f"{name} should have the shape ({lengths}), received {array.shape}")
        stored = array.id.get_storage_size()  # the rest of an array that declares more would be made up
        declared = math.prod(array.shape) * array.dtype.itemsize
        most = stored * (DEFLATED if array.compression else 1)
        if stored > self.size or declared > most:
            raise SealError(f"{name} declares {declared:,} bytes, but the file has {stored:,} of it")

    def check_plain(self, names: Collection[str]) -> None:
        """Raise `SealError` for an array of these names that is packed, so that it could be larger than the file."""
        for name in names:
            if name in self.arrays and self.arrays[name].compression:
                raise SealError(f"{name} is compressed, which robustcmp does not do with it")

    def check_names(self, names: Collection[str]) -> None:
        """Raise `SealError` unless the file has the arrays of these names and no others."""
        if missing := sorted({*names} - self.arrays.keys()):
            raise SealError(f"{missing[0]} is missing")
        if others := sorted(self.arrays.keys() - {*names}):
            raise SealError(f"expected the arrays {', '.join(sorted(names))} alone, received {others[0]} as well")

    def strings(self, name: str) -> NDArray[np.str_]:
        """Return an array of strings, one after another: many may be one and the same long one in the file."""
        array = self.arrays[name]
        left = self.size
        values = []
        if h5py.check_string_dtype(array.dtype) is None or array.ndim != 1 or len(array) > self.size:
            raise SealError(f"{name} should be a list of strings, received {array.dtype} {array.shape}")
        for position in range(len(array)):
            values.append(array.asstr()[position])
            left -= len(values[-1])
            if left < 0:
                raise SealError(f"{name} is longer than the file")
        return np.array(values, np.str_)

    def attribute(self, name: str, of: str = "") -> Any:
        """Return an attribute, a string or one number, of the file or of an array of it; None where there is none."""
        owner = self.arrays[of] if of else self._root
        if name not in owner.attrs:
            return None
        entry = h5py.h5a.open(owner.id, name.encode())
        if entry.shape != () or entry.get_storage_size() > self.size or entry.get_type().get_class() not in TYPES:
            raise SealError(f"the attribute {name} should be a string or a number")
        value = owner.attrs[name]
        return value.item() if isinstance(value, np.generic) else value


def _fits(received: tuple[int, ...] | None, expected: Shape) -> bool:
    if received is None:
        return False
    if expected and expected[-1] is ...:
        return received[: len(expected) - 1] == expected[:-1] and len(received) >= len(expected) - 1
    return received == expected


# JSON ----------------------------------------------------------------------------------------------------------------


def to_json(kind: str, content: dict[str, Any], indent: int | None = 1, sort_keys: bool = False) -> str:
    """Return JSON with a seal, which ends in a line break where it has several lines."""
    plain = json.loads(json.dumps(content))
    text = json.dumps(plain | {MEMBER: _json_seal(kind, plain)}, indent=indent, sort_keys=sort_keys)
    return text if indent is None else f"{text}\n"


def from_json(text: bytes, kind: str) -> dict[str, Any]:
    """Return the content of sealed JSON, without its seal.

    Raises
    ------
    SealError
        It is no JSON, has no seal, or is not as it was written.
    """
    with seal_errors():
        content = json.loads(text)
        if not isinstance(content, dict):
            raise SealError(f"expected a JSON object, received {type(content).__name__}")
        expected = content.pop(MEMBER, None)
        if expected is None:
            raise SealError("it has no seal")
        received = _json_seal(kind, content)
        if expected != received:
            raise SealError(f"its seal is {str(expected)[:100]!r}, but its content has {received!r}: it was changed")
        return content


def read_json(path: str | os.PathLike[str], kind: str) -> dict[str, Any]:
    """Return the content of a sealed JSON file, as `from_json` does; raise `FileNotFoundError` if there is none."""
    return from_json(read_bytes(path, LARGEST_JSON), kind)


def _json_seal(kind: str, plain: dict[str, Any]) -> str:
    return seal(kind, json.dumps(plain, sort_keys=True).encode())

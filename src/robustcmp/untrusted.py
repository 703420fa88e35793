"""Files from elsewhere, looked at before anything else opens them. Nothing of them is run.

- TOML becomes plain values: whole numbers of 64 bits, finite numbers, tables that are not nested beyond use.
- Archives and HDF5 say how large their contents are and where they lie, which may be anything: a few kilobytes that
  become gigabytes, or an array whose values are the bytes of another file on this machine. Both are refused.
- What holds code is refused.
- Runtimes do not check everything that a file says, so a crafted one can crash them, take all memory or never answer.
  What does so in a process of its own is refused. This does not find a file that does it for particular images only.
"""

from __future__ import annotations

import errno
import inspect
import math
import os
import re
import signal
import subprocess
import sys
import textwrap
import tomllib
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import IO, Any

import h5py

from . import limits, processes
from .errors import DeploymentError, SealError, UsageError, WeightsError, in_one_line
from .files import open_regular

# bytes ---------------------------------------------------------------------------------------------------------------


def read_file(path: str | os.PathLike[str], limit: int) -> bytes:
    """Return the bytes of a regular file, or raise `OSError` for what is none, or larger than the limit."""
    most = min(limit, limits.memory() or limit)
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        if size > most:
            raise OSError(errno.EFBIG, f"expected at most {most:,} bytes, received {size:,}", str(path))
        return file.read(size)


def check_file(path: Path) -> None:
    """Raise `WeightsError` unless a path is a file that ends: not a pipe or a device, and not empty."""
    try:
        with open_regular(path) as file:
            is_empty = not file.read(1)
    except (OSError, ValueError) as error:
        raise WeightsError(f"{path} cannot be read: {_reason(error)}") from None
    if is_empty:
        raise WeightsError(f"{path} is empty. Save the weights again, or copy the file again.")


def read_network(path: Path, limit: int = limits.NETWORK_BYTES) -> bytes:
    """Return the bytes of a file of a runtime, or raise `DeploymentError` for one that is unreadable or too large."""
    try:
        content = read_file(path, limit)
    except OSError as error:
        raise DeploymentError(f"{path} cannot be read: {_reason(error)}") from None
    except MemoryError:
        raise DeploymentError(f"{path} cannot be read: it does not fit into memory") from None
    if not content:
        raise DeploymentError(f"{path} is empty. Convert the network again, or copy the file again.")
    return content


def _reason(error: Exception) -> str:
    """Return why a file cannot be read, without the number and the path that Python adds."""
    return getattr(error, "strerror", None) or str(error)


# TOML ----------------------------------------------------------------------------------------------------------------

# Keys like a.b.c cost tomllib memory that grows with the square of their parts.
_DOTTED = re.compile(r"""(?<![\w-])(?:(?:[\w-]++|"[^"\n]*+"|'[^'\n]*+')[ \t]*+\.[ \t]*+)++""")
TOO_DEEP = f"it is nested too deeply; expected at most {limits.FILE_LEVELS} levels of tables and lists"


def read_toml(source: str | os.PathLike[str] | Traversable, kind: str) -> dict[str, Any]:
    """Read a TOML file.

    Parameters
    ----------
    source : path
        The file.
    kind : str
        What it is, for errors: ``"the suite"``.

    Raises
    ------
    UsageError
        The file cannot be read, is too large, or is not TOML; or a value is no number that can be used.
    """
    name = f"{kind} {source}"
    try:
        if isinstance(source, (str, os.PathLike)):
            content = read_file(source, limits.FILE_BYTES)
        else:
            content = source.read_bytes()  # shipped, in an archive
        text = content.decode("utf-8-sig")  # editors on Windows write a byte order mark
    except UnicodeDecodeError as error:
        raise UsageError(f"{name} cannot be read: expected text in UTF-8 ({error})") from None
    except (OSError, ValueError) as error:
        raise UsageError(f"{name} cannot be read: {_reason(error)}") from None
    if any(key[0].count(".") > limits.FILE_LEVELS for key in _DOTTED.finditer(text)):
        raise UsageError(f"{name}: expected keys of at most {limits.FILE_LEVELS} parts")
    try:
        table = tomllib.loads(text)
        _check_values(table, name, 0)
    except UsageError:
        raise
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{name}: it cannot be read as TOML: {error}") from None
    except (RecursionError, MemoryError):
        raise UsageError(f"{name}: {TOO_DEEP}") from None
    except (ValueError, ArithmeticError):  # Python reads no integer of thousands of digits
        raise UsageError(f"{name}: a number has too many digits; expected numbers of 64 bits") from None
    return table


def _check_values(value: Any, name: str, level: int) -> None:
    """Raise `UsageError` for a value that is no number to compute with, or that is nested too deeply."""
    if level > limits.FILE_LEVELS + 1:
        raise UsageError(f"{name}: {TOO_DEEP}")
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        digits = int(value.bit_length() * math.log10(2)) + 1
        raise UsageError(f"{name} should be a number of 64 bits, received one of {digits} digits")
    if isinstance(value, float) and not math.isfinite(value):
        raise UsageError(f"{name} should be a finite number, received {value}")
    children: Iterable[tuple[Any, Any]] = ()
    if isinstance(value, dict):
        children = value.items()
    elif isinstance(value, list):
        children = enumerate(value, 1)
    for key, inner in children:
        _check_values(inner, f"{name}.{key}" if level else f"{name}: {key}", level + 1)


# archives and programs -----------------------------------------------------------------------------------------------

# What a file of PyTorch holds beside tensors, and the entries that it is known by.
PROGRAMS = {
    "TorchScript": ("/constants.pkl",),
    "torch.export": ("models/model.json", "serialized_exported_program.json"),
}
MODULES = b"torch.nn.modules."  # what a pickle of a whole network refers to, within
SEARCHED = 2**20  # bytes
SAVED_MODEL = "saved_model.pb"


def _check_unpacked(path: Path, unpacked: int, packed: int) -> None:
    """Raise `WeightsError` for contents that are far larger than their file."""
    most = max(limits.UNPACKED_BYTES, limits.UNPACKED_RATIO * packed)
    if unpacked > most:
        raise WeightsError(
            f"{path} has {packed:,} bytes and says that it holds {unpacked:,}; expected at most {most:,}. Weights "
            "hardly shrink when they are compressed, so the file is broken or not what it seems. Save them again."
        )


def is_archive(path: Path) -> bool:
    """Say whether a file is a zip archive, or raise `WeightsError` for one with an end that contradicts itself."""
    try:
        return zipfile.is_zipfile(path)
    except zipfile.BadZipFile as error:
        raise _describe_damage(path, "zip archive", error) from None


@contextmanager
def _open_archive(path: Path) -> Iterator[zipfile.ZipFile]:
    """Open a zip archive; `WeightsError` for what cannot be read of it inside a ``with`` block."""
    try:
        with zipfile.ZipFile(path) as archive:
            yield archive
    except WeightsError:
        raise
    except Exception as error:  # a broken archive can raise anything
        raise _describe_damage(path, "zip archive", error) from None


def check_archive(path: Path) -> None:
    """Raise `WeightsError` for a zip archive that is damaged, or would unpack to far more than it is."""
    with _open_archive(path) as archive:
        _check_unpacked(path, sum(entry.file_size for entry in archive.infolist()), path.stat().st_size)
        damaged = archive.testzip()
    if damaged:
        raise WeightsError(f"{path} is damaged: {damaged} is not what was written. Copy it again.")


def find_program(path: Path) -> str:
    """Return which kind of program a file of PyTorch holds, "" if none."""
    if not _is_of_torch(path):
        return ""
    with _open_archive(path) as archive:
        names = archive.namelist()
    return next((kind for kind, marks in PROGRAMS.items() if any(name.endswith(marks) for name in names)), "")


def _is_of_torch(path: Path) -> bool:
    """Say whether a file can be an archive of PyTorch."""
    return path.suffix in (".pt", ".pth", ".ckpt", ".bin", ".pt2") and path.is_file() and is_archive(path)


def check_no_program(path: Path) -> None:
    """Raise `WeightsError` for code in the place of data: of TorchScript, `torch.export`, pickles or TensorFlow."""
    if path.name == SAVED_MODEL or (path / SAVED_MODEL).is_file():
        directory = path.parent if path.name == SAVED_MODEL else path
        raise WeightsError(
            f"{path} is a SavedModel of TensorFlow, a program, which is not run: it could read and write files. Save "
            "the model of Keras as x.keras; or, if you trust it, return robustcmp.wrap(tf.saved_model.load("
            f"{str(directory)!r})) from a function of your own and name that as module:function."
        )
    if kind := find_program(path):
        raise WeightsError(
            f"{path} holds a {kind} program, which could run code when it is opened. If you trust it, "
            f"torch-program={path} opens it in a process of its own. Or save its weights with "
            "torch.save(network.state_dict(), path), and name their network with architecture."
        )
    if not _is_of_torch(path):
        return
    with _open_archive(path) as archive:
        pickles = [name for name in archive.namelist() if name.endswith("/data.pkl")][:1]  # torch writes one
        begins = b"".join(archive.open(name).read(SEARCHED) for name in pickles)
    if MODULES in begins:
        raise WeightsError(
            f"{path} holds a whole network, as torch.save(network, path) or a trainer's hyperparameters do, which is "
            "not loaded: it could run code. Save its weights with torch.save(network.state_dict(), path) and name "
            "their network with architecture; or, if you trust it, return the network in torch.load(path, "
            "weights_only=False) from a function of your own and name that as module:function."
        )


def _describe_damage(path: Path, kind: str, error: Exception) -> WeightsError:
    reason = in_one_line(f"{type(error).__name__}: {error}")
    return WeightsError(f"{path} is no whole {kind} ({reason}). Save it again, or copy it again.")


# HDF5 ----------------------------------------------------------------------------------------------------------------

DEFLATED = 1032  # times that DEFLATE can shrink bytes at the most
LARGEST_CHUNK = 2**20  # bytes of a chunk of an array that has room to grow, as h5py makes them
UNSUSPECTED = 2**26  # bytes that any chunk may become, so that most need not be looked into
FILTERS = {h5py.h5z.FILTER_DEFLATE: "gzip", h5py.h5z.FILTER_SHUFFLE: "shuffle"}
LAYOUTS = {h5py.h5d.COMPACT, h5py.h5d.CONTIGUOUS, h5py.h5d.CHUNKED}


def find_arrays(file: h5py.File, *, shared: bool = False) -> Iterator[tuple[str, h5py.Dataset]]:
    """Yield the arrays of an HDF5 file by their names, each once; nothing of them is read.

    Where `shared` says so, one may have several names. A soft or an external link, external storage or a virtual
    dataset can show another file of this machine.

    Raises
    ------
    SealError
        The file has something else than groups and arrays that lie in it, or an array that unpacks to more than it is.
    """
    groups = [("", file["/"].id)]
    seen = {h5py.h5o.get_info(file.id).addr}
    while groups:
        prefix, group = groups.pop()
        for name in group:  # an identifier: h5py's object for each array would take longer than reading it
            path = prefix + name.decode()
            link = group.links.get_info(name)
            if link.type != h5py.h5l.TYPE_HARD:
                kind = h5py.Group(group).get(name, getclass=True, getlink=True).__name__
                raise SealError(f"{path} is a {kind}, which can show another file")
            if link.u in seen and not shared:
                raise SealError(f"{path} is linked twice")
            if link.u in seen:
                continue
            seen.add(link.u)
            item = h5py.h5o.open(group, name)
            if isinstance(item, h5py.h5g.GroupID):
                groups.append((f"{path}/", item))
            elif isinstance(item, h5py.h5d.DatasetID):
                storage = item.get_create_plist()
                if storage.get_layout() not in LAYOUTS or storage.get_external_count():
                    raise SealError(f"{path} has its values in another file")
                _check_chunks(path, h5py.Dataset(item))
                yield path, h5py.Dataset(item)
            else:
                kind = h5py.Group(group).get(name, getclass=True).__name__
                raise SealError(f"{path} should be a group or an array, received {kind}")


def check_hdf5(path: Path, file: IO[bytes] | None = None) -> None:
    """Raise `WeightsError` unless an HDF5 file holds all that it shows.

    Parameters
    ----------
    path : Path
        The file, or the archive that it lies in.
    file : binary file, optional
        What lies in the archive.
    """
    packed = path.stat().st_size if file is None else file.seek(0, os.SEEK_END)
    try:
        with h5py.File(path if file is None else file, "r") as content:
            unpacked = sum(array.nbytes for _, array in find_arrays(content, shared=True))
    except SealError as error:
        raise WeightsError(f"{path}: {error}. Save the weights again.") from None
    except Exception as error:  # a broken file can raise anything
        raise _describe_damage(path, "HDF5 file", error) from None
    _check_unpacked(path, unpacked, packed)


def _check_chunks(name: str, array: h5py.Dataset) -> None:
    """Raise `SealError` unless the chunks of an array hold what they declare, and declare no more than the array.

    HDF5 reads a whole chunk for one value of it, unpacks whatever its stream holds, however long the chunk should be,
    and lets a filter stand in the pipeline more than once: of gzip twice, 7 KB can become 2 GiB. So all three are
    checked before a value is read.
    """
    if array.chunks is None:  # nor has it filters, which are for chunks
        return
    storage = array.id.get_create_plist()
    filters = [storage.get_filter(number)[0] for number in range(storage.get_nfilters())]
    if len({*filters}) < len(filters) or not {*filters} <= FILTERS.keys():
        names = ", ".join(FILTERS.get(number, str(number)) for number in filters)
        raise SealError(f"{name} is stored with the filters {names}, expected gzip and shuffle alone, once each")
    declared = math.prod(array.chunks) * array.dtype.itemsize
    if declared > max(LARGEST_CHUNK, array.nbytes):
        raise SealError(f"{name} has {array.nbytes:,} bytes in chunks of {declared:,} each")
    if h5py.h5z.FILTER_DEFLATE not in filters:
        return
    not_packed = 1 << filters.index(h5py.h5z.FILTER_DEFLATE)  # in a chunk's mask, where gzip did not make it smaller
    suspected: list[tuple[int, ...]] = []

    def collect(chunk: h5py.h5d.StoreInfo) -> None:
        if not chunk.filter_mask & not_packed and chunk.size * DEFLATED > UNSUSPECTED + declared:
            suspected.append(chunk.chunk_offset)

    array.id.chunk_iter(collect)
    for offset in suspected:
        _, packed = array.id.read_direct_chunk(offset)
        try:
            unpacked = zlib.decompressobj().decompress(packed, declared + 1)
        except zlib.error as error:
            raise SealError(f"{name} has a chunk that is not of gzip: {error}") from None
        if len(unpacked) > declared:
            raise SealError(f"{name} has a chunk of more than the {declared:,} bytes that it declares")


# a runtime's file, in a process of its own ---------------------------------------------------------------------------

ANSWER_SECONDS = 60.0  # of processor time
WAITED = 10  # times as long, as other programs may take most of the processors' time
OUT_OF_TIME = -getattr(signal, "SIGXCPU", 24)  # the exit status
CHILD_CODE = """
import sys
{limit}
{ask}
_limit({seconds})
try:
    {name}(sys.stdin.buffer.read())
except Exception as error:
    print(error)
    sys.exit(1)
"""


def check_answers(
    path: Path, content: bytes, ask: Callable[[bytes], None], program: str, seconds: float = ANSWER_SECONDS
) -> None:
    """Raise `DeploymentError` unless a runtime opens and asks a file in a process of its own, which it may crash.

    Parameters
    ----------
    path : Path
        Where the file is, for errors.
    content : bytes
        What was read of it.
    ask : callable
        Opens the content and asks it. Its source alone is run there, so it imports and defines all that it needs.
    program : str
        What the runtime is called.
    seconds : float
        How much processor time it has; it is waited for longer, as the machine may be busy.
    """
    functions = {"limit": inspect.getsource(_limit), "ask": textwrap.dedent(inspect.getsource(ask))}
    code = CHILD_CODE.format(**functions, name=ask.__name__, seconds=math.ceil(seconds))
    # -P, as files of the working directory may have the names of packages.
    command = [sys.executable, "-P", "-c", code]
    try:
        status, output, _ = processes.run(command, seconds=WAITED * seconds, content=content)
    except subprocess.TimeoutExpired:
        status = OUT_OF_TIME
    if not status:
        return
    if status == 1:
        raise DeploymentError(f"{path} cannot be opened: {in_one_line(output) or f'{program} refuses it'}")
    is_late = status == OUT_OF_TIME
    outcome = f"gives no answer within {seconds:g} seconds" if is_late else f"crashes {program} (exit status {status})"
    raise DeploymentError(
        f"{path} {outcome}. The file is broken or crafted, or this machine has too little memory for it. Convert the "
        "network again."
    )


def _limit(seconds: int) -> None:
    """Take no more memory than the machine has, so that this process fails and not another one, nor more time."""
    import os

    try:
        import resource
    except ImportError:  # not on every system
        return
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for kind, most in ((resource.RLIMIT_AS, memory), (resource.RLIMIT_CPU, seconds)):
        _, hard = resource.getrlimit(kind)
        if hard != resource.RLIM_INFINITY:
            most = min(most, hard)
        resource.setrlimit(kind, (most, hard))

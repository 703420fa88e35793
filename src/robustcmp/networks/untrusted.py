"""What is looked at in a file of weights from elsewhere before a framework opens it.

Archives and HDF5 say how large their contents are and where they lie, which may be anything: a few kilobytes that
become gigabytes, or a dataset whose values are the bytes of another file on this machine.
"""

from __future__ import annotations

import os
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import h5py

from .. import limits
from ..chunks import check_chunks
from ..documents import check_regular
from ..errors import SealError, UsageError, WeightsError
from ..files import check_holes, open_regular

# What a file of PyTorch holds beside tensors, how its user opens it, and the entries that it is known by.
PROGRAMS = (
    ("TorchScript", "torch.jit.load(path)", ("/constants.pkl",)),
    ("torch.export", "torch.export.load(path)", ("models/model.json", "serialized_exported_program.json")),
)
MODULES = b"torch.nn.modules."  # what a pickle of a whole network refers to, within
SEARCHED = 2**20  # bytes


def check_file(path: Path) -> None:
    """Raise `WeightsError` unless a path is a file that ends: not a pipe or a device, not empty, and not of holes."""
    try:
        check_regular(path)
        with open_regular(path) as file:
            check_holes(file.fileno(), path)
    except (OSError, ValueError, UsageError) as error:
        raise WeightsError(f"{path} cannot be read: {error}") from None
    if not path.stat().st_size:
        raise WeightsError(f"{path} is empty. Save the weights again, or copy the file again.")


def check_unpacked(path: Path, unpacked: int, packed: int) -> None:
    """Raise `WeightsError` for contents that are far larger than their file."""
    most = max(limits.UNPACKED_BYTES, limits.UNPACKED_RATIO * packed)
    if unpacked > most:
        raise WeightsError(
            f"{path} has {packed:,} bytes and says that it holds {unpacked:,}; expected at most {most:,}. Weights "
            "hardly shrink when they are compressed, so the file is broken or not what it seems. Save them again."
        )


SAVED_MODEL = "saved_model.pb"


def is_archive(path: Path) -> bool:
    """Say whether a file is a zip archive, or raise `WeightsError` for one with an end that contradicts itself."""
    try:
        return zipfile.is_zipfile(path)
    except zipfile.BadZipFile as error:
        raise _broken(path, "zip archive", error) from None


@contextmanager
def _archive(path: Path) -> Iterator[zipfile.ZipFile]:
    """A zip archive; `WeightsError` for what cannot be read of it inside a ``with`` block."""
    try:
        with zipfile.ZipFile(path) as archive:
            yield archive
    except WeightsError:
        raise
    except Exception as error:  # a broken archive can raise anything
        raise _broken(path, "zip archive", error) from None


def check_archive(path: Path) -> None:
    """Raise `WeightsError` for a zip archive that is damaged, or would unpack to far more than it is."""
    with _archive(path) as archive:
        check_unpacked(path, sum(entry.file_size for entry in archive.infolist()), path.stat().st_size)
        damaged = archive.testzip()
    if damaged:
        raise WeightsError(f"{path} is damaged: {damaged} is not what was written. Copy it again.")


def check_no_program(path: Path) -> None:
    """Raise `WeightsError` for what is code and not data: programs of TorchScript or `torch.export`, and pickles."""
    if path.suffix not in (".pt", ".pth", ".ckpt", ".bin", ".pt2") or not is_archive(path):
        return
    with _archive(path) as archive:
        names = archive.namelist()
        pickles = [name for name in names if name.endswith("/data.pkl")][:1]  # torch writes one
        begins = b"".join(archive.open(name).read(SEARCHED) for name in pickles)
    for kind, opened, marks in PROGRAMS:
        if any(name.endswith(marks) for name in names):
            raise WeightsError(
                f"{path} holds a {kind} program, which is not run: opening it could run code. Save its weights with "
                "torch.save(network.state_dict(), path) and name their network with architecture; or, if you trust "
                f"it, return {opened} from a function of your own and name that as module:function."
            )
    if MODULES in begins:
        raise WeightsError(
            f"{path} holds a whole network, as torch.save(network, path) or a trainer's hyperparameters do, which is "
            "not loaded: it could run code. Save its weights with torch.save(network.state_dict(), path) and name "
            "their network with architecture; or, if you trust it, return the network in torch.load(path, "
            "weights_only=False) from a function of your own and name that as module:function."
        )


def check_no_saved_model(path: Path) -> None:
    """Raise `WeightsError` for a SavedModel of TensorFlow, a directory with a program in it."""
    directory = path.parent if path.name == SAVED_MODEL else path
    if (directory / SAVED_MODEL).is_file():
        raise WeightsError(
            f"{path} is a SavedModel of TensorFlow, a program, which is not run: it could read and write files. Save "
            "the model of Keras as x.keras; or, if you trust it, return robustcmp.wrap(tf.saved_model.load("
            f"{str(directory)!r})) from a function of your own and name that as module:function."
        )


def check_hdf5(path: Path, file: IO[bytes] | None = None) -> None:
    """Raise `WeightsError` unless an HDF5 file holds all that it shows.

    It may have groups and datasets that are joined by hard links. A soft or an external link, external storage or a
    virtual dataset can show another file of this machine.

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
            unpacked = _size(path, content)
    except WeightsError:
        raise
    except SealError as error:
        raise WeightsError(f"{error}. Save the weights again.") from None
    except Exception as error:  # a broken file can raise anything
        raise _broken(path, "HDF5 file", error) from None
    check_unpacked(path, unpacked, packed)


def _size(path: Path, content: h5py.File) -> int:
    """Return the bytes of all datasets of a file, each of which lies in it."""
    unpacked, seen, left = 0, set(), [content["/"]]
    while left:
        group = left.pop()
        for name in group:
            where = f"{path}: {group.name.rstrip('/')}/{name}"
            link: Any = group.get(name, getlink=True)
            if not isinstance(link, h5py.HardLink):
                kind = type(link).__name__
                raise WeightsError(f"{where} is a {kind}, which can show another file. Save the weights again.")
            item = group[name]
            address = h5py.h5o.get_info(item.id).addr
            if address in seen:
                continue
            seen.add(address)
            if isinstance(item, h5py.Group):
                left.append(item)
            elif not isinstance(item, h5py.Dataset):
                raise WeightsError(f"{where} should be a group or a dataset, received {type(item).__name__}")
            elif item.is_virtual or item.external:
                raise WeightsError(f"{where} has its values in another file. Save the weights again.")
            else:
                check_chunks(where, item)
                unpacked += item.nbytes
    return unpacked


def _broken(path: Path, kind: str, error: Exception) -> WeightsError:
    said = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
    return WeightsError(f"{path} is no whole {kind} ({said}). Save it again, or copy it again.")

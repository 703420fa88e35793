"""CIFAR-10: six files of the binary version."""

from __future__ import annotations

import os
import tarfile
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from ..errors import DataError
from .dataset import Pixels
from .published import UNREADABLE, Published, check_labels, data_errors, fetch, file_error

URL = "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz"
MD5 = "c32a1d4ab5d03f1284b67883e8d87530"
_TRAIN = tuple(f"data_batch_{number}.bin" for number in range(1, 6))
_TEST = ("test_batch.bin",)
_RECORD = 1 + 3 * 32 * 32


def _read_cifar(path: str | os.PathLike[str]) -> tuple[Pixels, Pixels]:
    """Read one file of CIFAR-10's binary version.

    The format: records of one label byte and 3,072 pixel bytes, all red ones first, then green, then blue, each
    row by row.

    Returns
    -------
    images : uint8, (N, 32, 32, 3), N at least 1
    labels : uint8, (N,), in [0, 10)

    Raises
    ------
    DataError
        The file cannot be read, does not consist of whole records, or has a label above 9.
    """
    path = Path(path)
    with data_errors(path):
        content = np.fromfile(path, np.uint8)
    if not content.size or content.size % _RECORD:
        raise file_error(path, f"one or more whole records of {_RECORD} bytes", f"{content.size} bytes")
    records = content.reshape(-1, _RECORD)
    labels = np.ascontiguousarray(records[:, 0])
    check_labels(path, labels)
    planes = records[:, 1:].reshape(-1, 3, 32, 32)
    return np.ascontiguousarray(planes.transpose(0, 2, 3, 1)), labels


def _read(paths: Sequence[Path]) -> tuple[Pixels, Pixels]:
    images, labels = zip(*map(_read_cifar, paths), strict=True)
    return np.concatenate(images), np.concatenate(labels)


def _download(names: Sequence[str], folder: Path) -> list[Path]:
    archive = fetch([URL], MD5, folder.parent)
    folder.mkdir(exist_ok=True)
    try:
        with tempfile.TemporaryDirectory(dir=folder) as unpacked, tarfile.open(archive, "r:gz") as tar:
            tar.extractall(unpacked, [tar.getmember(f"{folder.name}/{name}") for name in _TRAIN + _TEST], filter="data")
            for name in _TRAIN + _TEST:  # a file is there whole or not at all
                os.replace(Path(unpacked, folder.name, name), folder / name)
    except (*UNREADABLE, KeyError) as error:
        raise DataError(
            f"Could not unpack {archive} into {folder}: {error}. Free space there, or name another cache with "
            "$ROBUSTCMP_CACHE. If the archive is broken, delete it to download it again."
        ) from error
    return [folder / name for name in names]


SOURCE = Published(
    name="cifar10",
    folder="cifar-10-batches-bin",
    files={"train": _TRAIN, "test": _TEST},
    endings=("",),
    read=_read,
    download=_download,
    publisher=URL,
)
load = SOURCE.load

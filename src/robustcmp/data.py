"""Datasets: images (N,H,W,C) float32 in [0,1] and labels (N,) int64.

Three are known by name. ``mnist`` and ``cifar10`` are files, read by the small readers below, which check what a
header promises before they believe it. ``digits`` ships inside scikit-learn and needs no download.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import logging
import math
import os
import shutil
import struct
import sys
import tarfile
import tempfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import IO

import numpy as np
import numpy.typing as npt

from .errors import DataError, MissingDataError, UsageError, unknown

DATASETS = ("mnist", "digits", "cifar10")
SPLITS = ("train", "test")

MNIST_URLS = (
    "https://ossci-datasets.s3.amazonaws.com/mnist/",
    "https://storage.googleapis.com/cvdf-datasets/mnist/",
)
MNIST_MD5 = {
    "train-images-idx3-ubyte.gz": "f68b3c2dcbeaaa9fbdd348bbdeb94873",
    "train-labels-idx1-ubyte.gz": "d53e105ee54ea40749a09fcbcd1e9432",
    "t10k-images-idx3-ubyte.gz": "9fb629c4189551a2d022fa330f9573f3",
    "t10k-labels-idx1-ubyte.gz": "ec29112dd5afa0611ce80d1b7f02629c",
}
CIFAR10_URL = "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz"
CIFAR10_MD5 = "c32a1d4ab5d03f1284b67883e8d87530"

# Seconds to connect and seconds between two bytes: a firewall that drops packets must not look like work.
DOWNLOAD_TIMEOUT = (10.0, 30.0)

_CLASSES = 10
_CIFAR_RECORD = 1 + 3 * 32 * 32
_CIFAR_FILE_BYTES = 10_000 * _CIFAR_RECORD
_DIGITS_TEST = 500
_DIGITS_LEVELS = 16
# Deflate cannot do better (258 bytes from 2 bits), so a header that promises more is lying.
_MOST_INFLATION = 1032
_CHUNK = 1 << 16
# What reading a damaged file raises, besides the disk's own errors.
_UNREADABLE = (OSError, EOFError, zlib.error, tarfile.TarError)

Pixels = npt.NDArray[np.uint8]
Indices = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False, repr=False)
class Dataset:
    """Images with their labels.

    Attributes
    ----------
    images : float32, (N, H, W, C), in [0, 1], C-contiguous
    labels : int64, (N,), in [0, classes)
    name : ``mnist``, ``digits`` or ``cifar10``
    split : ``train`` or ``test``
    classes : how many classes there are, whether or not all of them occur

    Examples
    --------
    >>> data = load_dataset("digits")
    >>> data
    Dataset(name='digits', split='test', images=(500, 28, 28, 1), classes=10)
    """

    images: npt.NDArray[np.float32]
    labels: npt.NDArray[np.int64]
    name: str
    split: str
    classes: int

    @cached_property
    def digest(self) -> str:
        """SHA-256, in hexadecimal, of name, split, shapes, dtypes and the arrays' bytes, in order.

        Bytes are taken as little endian, so machines agree. It is computed once: arrays changed afterwards do not
        change it.
        """
        arrays = [np.ascontiguousarray(a, dtype=a.dtype.newbyteorder("<")) for a in (self.images, self.labels)]
        header = [self.name, self.split, *([list(a.shape), a.dtype.str] for a in arrays)]
        result = hashlib.sha256(json.dumps(header).encode())
        for array in arrays:
            result.update(array.reshape(-1).view(np.uint8).data)
        return result.hexdigest()

    def __repr__(self) -> str:
        return f"Dataset(name={self.name!r}, split={self.split!r}, images={self.images.shape}, classes={self.classes})"


def load_dataset(name: str, split: str = "test", *, data_dir: str | os.PathLike[str] | None = None) -> Dataset:
    """Load one split of a dataset.

    ``mnist`` and ``cifar10`` are looked for in ``data_dir``, and only there if it is given; else in the directory
    that ``$ROBUSTCMP_DATA`` names, else in the user cache, else they are downloaded from their publisher into the
    user cache and checked against the published checksums. Files that lie in a directory already are taken as they
    are: ``Dataset.digest`` says what they held.

    A directory holds the published files, in ``mnist/`` and ``cifar-10-batches-bin/`` or directly; MNIST's may be
    gzipped or not. ``digits`` ships inside scikit-learn and needs no directory.

    Parameters
    ----------
    name : ``mnist`` (28×28×1), ``digits`` (8×8, scaled to 28×28×1) or ``cifar10`` (32×32×3)
    split : ``train`` or ``test``
    data_dir : a directory with the dataset's files

    Returns
    -------
    Dataset
        ``images`` (N, H, W, C) float32 in [0, 1] and ``labels`` (N,) int64 in [0, 10).

    Raises
    ------
    UsageError
        The name or the split is unknown, or ``data_dir`` is no path.
    DataError
        The dataset cannot be had, or its files are broken.

    Examples
    --------
    >>> data = load_dataset("digits", split="train")
    >>> data.images.shape, data.images.dtype, data.labels.shape
    ((1297, 28, 28, 1), dtype('float32'), (1297,))
    """
    if name not in DATASETS:
        raise unknown("dataset", name, DATASETS)
    if split not in SPLITS:
        raise unknown("split", split, SPLITS)
    directory = None if data_dir is None else _as_path(data_dir)
    if name == "digits":
        images, labels = _digits(split)
    else:
        source = _PUBLISHED[name]
        pixels, classes = source.read(_locate(source, split, directory))
        images = np.divide(pixels, np.float32(255), dtype=np.float32)
        labels = classes.astype(np.int64)
    return Dataset(images=images, labels=labels, name=name, split=split, classes=_CLASSES)


def stratified_split(labels: npt.ArrayLike, fraction: float) -> tuple[Indices, Indices]:
    """Hold out the same fraction of every class.

    Which ones is fixed: it is a function of the labels and the fraction alone, and one class's choice does not
    depend on the other classes.

    Parameters
    ----------
    labels : integers, (N,), not negative
    fraction : in [0, 1]; of a class with n members, ``round(fraction * n)`` are held out

    Returns
    -------
    rest, held_out : int64, sorted
        Together every index in [0, N), once.

    Raises
    ------
    UsageError
        The labels are not a row of non-negative integers, or the fraction is not in [0, 1].

    Examples
    --------
    >>> rest, held_out = stratified_split([0, 0, 0, 0, 1, 1], fraction=0.5)
    >>> len(rest), len(held_out)
    (3, 3)
    """
    classes = np.asarray(labels)
    if classes.ndim != 1 or not np.issubdtype(classes.dtype, np.integer) or (classes < 0).any():
        raise UsageError(
            f"Expected labels as one row of integers, none negative; received {classes.dtype} of shape "
            f"{classes.shape}. Pass a dataset's .labels."
        )
    if not 0 <= fraction <= 1:
        raise UsageError(f"Expected a fraction between 0 and 1, received {fraction}.")
    held_out = np.zeros(len(classes), dtype=bool)
    for label in np.unique(classes):
        members = np.flatnonzero(classes == label)
        # Raw Philox words, not Generator.permutation: NumPy promises that only the former never change.
        key = np.array([0, int(label)], dtype=np.uint64)
        order = np.argsort(np.random.Philox(key=key).random_raw(len(members)), kind="stable")
        held_out[members[order[: round(fraction * len(members))]]] = True
    return np.flatnonzero(~held_out).astype(np.int64), np.flatnonzero(held_out).astype(np.int64)


def user_cache() -> Path:
    """Return the directory for downloads and for what the user trains: ``$ROBUSTCMP_CACHE``, else the system's.

    It may not exist yet.
    """
    given = os.environ.get("ROBUSTCMP_CACHE")
    if given:
        return _as_path(given)
    from platformdirs import user_cache_path  # where pooch.os_cache is; pooch itself also sets up progress bars

    return user_cache_path("robustcmp")


# The file formats


def read_idx(path: str | os.PathLike[str], *, item_shape: tuple[int, ...] | None = None) -> Pixels:
    """Read an IDX file of unsigned bytes, the format of MNIST, gzipped or not.

    The format: 00 00 08, the number of dimensions in one byte, each dimension in four (big endian), the values.
    Whether it is gzipped is told by its content, not by its name. The header is compared with the file before
    memory is taken for the values, and no more than the header promises is inflated.

    Parameters
    ----------
    path : the file
    item_shape : what the shape must be after its first dimension; anything if not given

    Returns
    -------
    uint8, of the shape in the header

    Raises
    ------
    DataError
        The file cannot be read, is no such file, is shorter or longer than its header says, or has other items.
    """
    path = Path(path)
    with _reading(path), open(path, "rb") as raw:
        zipped = raw.read(2) == b"\x1f\x8b"
        raw.seek(0)
        room = os.fstat(raw.fileno()).st_size * (_MOST_INFLATION if zipped else 1)
        with gzip.GzipFile(fileobj=raw) if zipped else raw as file:
            shape = _idx_shape(path, file.read)
            if item_shape is not None and shape[1:] != item_shape:
                raise _broken(path, f"items of shape {item_shape}", f"{shape[1:]}")
            count = math.prod(shape)
            promised = f"{count} values, as its header {shape} says"
            if count > room:
                raise _broken(path, promised, "a file that is too small for them")
            # One byte more tells a longer file, and at a gzip file's end it has the checksum compared.
            values = _read_at_most(file.read, count + 1)
    if len(values) != count:
        raise _broken(path, promised, "more" if len(values) > count else f"{len(values)}")
    return np.frombuffer(values, dtype=np.uint8).reshape(shape)


def read_cifar(path: str | os.PathLike[str]) -> tuple[Pixels, Pixels]:
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
    with _reading(path), open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        if size == 0 or size % _CIFAR_RECORD:
            raise _broken(path, f"one or more whole records of {_CIFAR_RECORD} bytes", f"{size} bytes")
        records = np.frombuffer(_read_at_most(file.read, size), dtype=np.uint8).reshape(-1, _CIFAR_RECORD)
    labels = np.ascontiguousarray(records[:, 0])
    _check_labels(path, labels)
    planes = records[:, 1:].reshape(-1, 3, 32, 32)
    return np.ascontiguousarray(planes.transpose(0, 2, 3, 1)), labels


def _idx_shape(path: Path, read: Callable[[int], bytes]) -> tuple[int, ...]:
    magic = read(4)
    # 32 is the most dimensions that every NumPy can hold.
    if len(magic) < 4 or magic[:3] != b"\x00\x00\x08" or not 1 <= magic[3] <= 32:
        raise _broken(
            path,
            "an IDX file of unsigned bytes, gzipped or not (it begins with 00 00 08 and the number of dimensions)",
            f"a file that begins with {magic.hex(' ') or 'nothing'}",
        )
    sizes = read(4 * magic[3])
    if len(sizes) < 4 * magic[3]:
        raise _broken(path, f"a header with {magic[3]} dimensions", "a file that ends inside its header")
    shape = struct.unpack(f">{magic[3]}I", sizes)
    if 0 in shape:
        raise _broken(path, "at least one value", f"the shape {shape}")
    return shape


def _read_at_most(read: Callable[[int], bytes], limit: int) -> bytearray:
    # In pieces: read(limit) would take all the memory that a lying header asks for, whatever the file holds.
    data = bytearray()
    while len(data) < limit and (piece := read(min(_CHUNK, limit - len(data)))):
        data += piece
    return data


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    try:
        yield
    except _UNREADABLE as error:
        reason = getattr(error, "strerror", None) or error
        raise _broken(path, "a whole, readable file", f"“{reason}”") from error


def _broken(path: Path, expected: str, received: str) -> DataError:
    return DataError(
        f"{path}: expected {expected}; received {received}. Replace it with the published file; if it lies in the "
        "user cache, delete it, and it is downloaded again."
    )


def _check_labels(path: Path, labels: Pixels) -> None:
    if labels.max() >= _CLASSES:
        raise _broken(path, f"labels from 0 to {_CLASSES - 1}", f"a label {labels.max()}")


# The datasets


def _read_mnist(paths: Sequence[Path]) -> tuple[Pixels, Pixels]:
    images = read_idx(paths[0], item_shape=(28, 28))
    labels = read_idx(paths[1], item_shape=())
    if len(images) != len(labels):
        raise _broken(paths[1], f"{len(images)} labels, one for each image in {paths[0].name}", f"{len(labels)}")
    _check_labels(paths[1], labels)
    return images[..., np.newaxis], labels


def _read_cifar10(paths: Sequence[Path]) -> tuple[Pixels, Pixels]:
    images, labels = zip(*map(read_cifar, paths), strict=True)
    return np.concatenate(images), np.concatenate(labels)


def _digits(split: str) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int64]]:
    from sklearn.datasets import load_digits  # type: ignore[import-untyped, unused-ignore]

    values, labels = load_digits(return_X_y=True)
    rest, held_out = stratified_split(labels, _DIGITS_TEST / len(labels))
    chosen = held_out if split == "test" else rest
    images = _resize_bilinear(values[chosen].reshape(-1, 8, 8), 28) / _DIGITS_LEVELS
    return images.astype(np.float32)[..., np.newaxis], labels[chosen].astype(np.int64)


def _resize_bilinear(images: npt.NDArray[np.float64], size: int) -> npt.NDArray[np.float64]:
    """Scale square images (N, S, S) to (N, size, size), bilinearly, with half-pixel centres and clamped edges.

    Pixel i of the result lies at (i + 1/2)·S/size − 1/2 in the original. In units of 1/(2·size) all weights are
    integers, so for integer images the matrix products are exact in any order of summation, the only rounding is
    the division at the end, and every machine gets the same bits.
    """
    side = images.shape[-1]
    unit = 2 * size
    before, weight = np.divmod((2 * np.arange(size) + 1) * side - size, unit)
    matrix = np.zeros((size, side))
    for index, share in ((before, unit - weight), (before + 1, weight)):
        matrix[np.arange(size), np.clip(index, 0, side - 1)] += share
    scaled: npt.NDArray[np.float64] = matrix @ images @ matrix.T
    return scaled / unit**2


# Finding and downloading


@dataclass(frozen=True)
class _Published:
    """A dataset that is published as files."""

    folder: str
    files: Mapping[str, tuple[str, ...]]  # of each split, in the order in which `read` wants them
    endings: tuple[str, ...]  # what may follow a file's name
    read: Callable[[Sequence[Path]], tuple[Pixels, Pixels]]
    download: Callable[[Sequence[str], Path], list[Path]]


def _locate(source: _Published, split: str, data_dir: Path | None) -> list[Path]:
    names = source.files[split]
    if data_dir is not None:
        found = _find(source, names, data_dir)
        if len(found) < len(names):
            missing = _listed([name for name in names if name not in found])
            received = f"a directory without {missing}" if os.path.isdir(data_dir) else "no directory"
            raise DataError(
                f"Expected {_listed(names, source.endings)} in {data_dir / source.folder} or {data_dir}; received "
                f"{received}. Name another one with --data-dir (data_dir=), or none, and the dataset is downloaded."
            )
        return list(found.values())
    cache = user_cache()
    shared = os.environ.get("ROBUSTCMP_DATA")
    for directory in [_as_path(shared), cache] if shared else [cache]:
        found = _find(source, names, directory)
        if len(found) == len(names):
            return list(found.values())
    return source.download(names, cache / source.folder)


def _listed(names: Sequence[str], endings: Sequence[str] = ("",)) -> str:
    return ", ".join(" or ".join(name + end for end in endings) for name in names)


def _find(source: _Published, names: Sequence[str], directory: Path) -> dict[str, Path]:
    found = {}
    for name in names:
        places = (place / (name + end) for place in (directory / source.folder, directory) for end in source.endings)
        # os.path.isfile, unlike Path.is_file, takes a directory that may not be entered as one that has no file.
        path = next((place for place in places if os.path.isfile(place)), None)
        if path is not None:
            found[name] = path
    return found


def _as_path(given: str | os.PathLike[str]) -> Path:
    if not isinstance(given, (str, os.PathLike)):
        raise UsageError(f"Expected data_dir as a path, received {given!r}.")
    return Path(os.path.expanduser(given))


def _download_mnist(names: Sequence[str], folder: Path) -> list[Path]:
    files = [f"{name}.gz" for name in names]
    return [_fetch([base + file for base in MNIST_URLS], MNIST_MD5[file], folder) for file in files]


def _download_cifar10(names: Sequence[str], folder: Path) -> list[Path]:
    archive = _fetch([CIFAR10_URL], CIFAR10_MD5, folder.parent)
    try:
        _unpack(archive, _CIFAR_TRAIN + _CIFAR_TEST, folder)
    except _UNREADABLE as error:
        raise DataError(
            f"Could not unpack {archive} into {folder}: {error}. Make room there, or name another cache with "
            "$ROBUSTCMP_CACHE; if the archive is broken, delete it, and it is downloaded again."
        ) from error
    return [folder / name for name in names]


def _fetch(urls: Sequence[str], md5: str, folder: Path) -> Path:
    """Download a file into a folder, from the first address that has it, unless it is there already."""
    import pooch

    name = urls[0].rpartition("/")[2]
    failures = []
    for url in urls:
        downloader = pooch.HTTPDownloader(progressbar=sys.stderr.isatty(), timeout=DOWNLOAD_TIMEOUT)
        try:
            with _quiet(pooch.get_logger()):
                return Path(pooch.retrieve(url, f"md5:{md5}", fname=name, path=folder, downloader=downloader))
        except (OSError, ValueError) as error:  # the network, the cache's disk; another checksum
            failures.append(f"  {url}: {error}")
    raise MissingDataError(
        f"Cannot get {name}: it is neither in $ROBUSTCMP_DATA ({os.environ.get('ROBUSTCMP_DATA') or 'not set'}) nor in "
        f"the user cache ({folder}), and downloading it failed:\n" + "\n".join(failures) + "\n"
        "Name a directory that holds the dataset with --data-dir (data_dir=) or $ROBUSTCMP_DATA, or use "
        "--dataset digits, which needs no download."
    )


@contextmanager
def _quiet(logger: logging.Logger) -> Iterator[None]:
    # A filter, not a level: pooch's logger is in no hierarchy, so what it remembers of a level outlives the level.
    logger.addFilter(_is_warning)
    try:
        yield
    finally:
        logger.removeFilter(_is_warning)


def _is_warning(record: logging.LogRecord) -> bool:
    return record.levelno >= logging.WARNING


def _unpack(archive: Path, names: Sequence[str], folder: Path) -> None:
    """Copy the named files of the archive's folder into ours; nothing in the archive decides what is written where."""
    folder.mkdir(parents=True, exist_ok=True)
    with tarfile.open(archive, "r:gz") as tar:
        members = {member.name: member for member in tar if member.isfile() and member.size <= _CIFAR_FILE_BYTES}
        for name in names:
            member = members.get(f"{folder.name}/{name}")
            content = None if member is None else tar.extractfile(member)
            if content is None:
                raise _broken(archive, f"{folder.name}/{name}, of at most {_CIFAR_FILE_BYTES} bytes, in it", "none")
            _write_whole(content, folder / name)


def _write_whole(content: IO[bytes], target: Path) -> None:
    # Under another name first: whoever finds the file under its own name, finds all of it.
    descriptor, part = tempfile.mkstemp(dir=target.parent, prefix=target.name)
    try:
        with open(descriptor, "wb") as file:
            shutil.copyfileobj(content, file)
        os.replace(part, target)
    except BaseException:
        os.unlink(part)
        raise


_CIFAR_TRAIN = tuple(f"data_batch_{number}.bin" for number in range(1, 6))
_CIFAR_TEST = ("test_batch.bin",)

_PUBLISHED = {
    "mnist": _Published(
        folder="mnist",
        files={
            "train": ("train-images-idx3-ubyte", "train-labels-idx1-ubyte"),
            "test": ("t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"),
        },
        endings=(".gz", ""),
        read=_read_mnist,
        download=_download_mnist,
    ),
    "cifar10": _Published(
        folder="cifar-10-batches-bin",
        files={"train": _CIFAR_TRAIN, "test": _CIFAR_TEST},
        endings=("",),
        read=_read_cifar10,
        download=_download_cifar10,
    ),
}

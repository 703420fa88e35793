"""Datasets that are published as files: found on this machine, else downloaded and checked."""

from __future__ import annotations

import os
import sys
import tarfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ..errors import DataError, MissingDataError
from ..files import as_path, user_cache
from .dataset import Dataset, Pixels, scale_bytes

# Seconds to connect and seconds between two bytes: a firewall that drops packets must not look like work.
DOWNLOAD_TIMEOUT = (10.0, 30.0)
# What reading a damaged file raises, besides the disk's own errors.
UNREADABLE = (OSError, EOFError, zlib.error, tarfile.TarError)


@dataclass(frozen=True)
class Published:
    """A dataset of 8-bit images that is published as files.

    Attributes
    ----------
    name : str
        What it is called here.
    folder : str
        What its folder is called.
    files : dict of str to tuple of str
        The names of each split's files, in the order in which `read` wants them.
    endings : tuple of str
        What may follow a file's name.
    read : callable
        Paths to pixels (N, H, W, C) and labels (N,), both uint8.
    download : callable
        (names, folder) to the paths of the files, downloaded into that folder.
    publisher : str
        The address that they are downloaded from.
    classes : int
        How many classes there are.
    """

    name: str
    folder: str
    files: Mapping[str, tuple[str, ...]]
    endings: tuple[str, ...]
    read: Callable[[Sequence[Path]], tuple[Pixels, Pixels]]
    download: Callable[[Sequence[str], Path], list[Path]]
    publisher: str
    classes: int = 10

    def load(self, split: str, directory: Path | None) -> Dataset:
        """Return one split, from a directory, or from wherever it can be had if None is given."""
        pixels, labels = self.read(self._locate(split, directory))
        return Dataset(scale_bytes(pixels), labels.astype(np.int64), self.name, split, self.classes)

    def _locate(self, split: str, directory: Path | None) -> list[Path]:
        names = self.files[split]
        if directory is not None:
            paths = self._find(names, directory)
            if len(paths) < len(names):
                missing = _list_names([name for name in names if name not in paths])
                received = f"a directory without {missing}" if os.path.isdir(directory) else "no directory"
                raise DataError(
                    f"Expected {_list_names(names, self.endings)} in {directory / self.folder} or {directory}; "
                    f"received {received}. Name another directory with data_dir, or omit data_dir to download the "
                    "dataset.",
                    parameters=["data_dir"],
                )
            return list(paths.values())
        return self._find_locally(names) or self.download(names, user_cache() / self.folder)

    def _find_locally(self, names: Sequence[str]) -> list[Path]:
        """Return the paths of files in ``$ROBUSTCMP_DATA`` or the user cache, or nothing where one is missing."""
        cache = user_cache()
        shared = os.environ.get("ROBUSTCMP_DATA")
        for directory in [as_path(shared), cache] if shared else [cache]:
            paths = self._find(names, directory)
            if len(paths) == len(names):
                return list(paths.values())
        return []

    @property
    def whereabouts(self) -> str:
        """Where the files are on this machine, or where they are downloaded from."""
        sources = [self._find_locally(names) for names in self.files.values()]
        return str(sources[0][0].parent) if all(sources) else f"not here yet; downloaded from {self.publisher}"

    def _find(self, names: Sequence[str], directory: Path) -> dict[str, Path]:
        paths: dict[str, Path] = {}
        for name in names:
            for folder in (directory / self.folder, directory):
                for path in (folder / (name + ending) for ending in self.endings):
                    # Unlike Path.is_file, it takes a directory that may not be entered as one that has no file.
                    if os.path.isfile(path):
                        paths.setdefault(name, path)
        return paths


def _list_names(names: Sequence[str], endings: Sequence[str] = ("",)) -> str:
    return ", ".join(" or ".join(name + end for end in endings) for name in names)


def fetch(urls: Sequence[str], md5: str, folder: Path) -> Path:
    """Download a file into a folder, from the first address that has it, unless it is there already."""
    import pooch

    pooch.get_logger().setLevel("WARNING")
    name = urls[0].rpartition("/")[2]
    failures = []
    for url in urls:
        downloader = pooch.HTTPDownloader(progressbar=sys.stderr.isatty(), timeout=DOWNLOAD_TIMEOUT)
        try:
            return Path(pooch.retrieve(url, f"md5:{md5}", fname=name, path=folder, downloader=downloader))
        except (OSError, ValueError) as error:  # the network, the cache's disk; another checksum
            failures.append(f"  {url}: {error}")
    shared = os.environ.get("ROBUSTCMP_DATA") or "not set"
    reason = f"it is neither in $ROBUSTCMP_DATA ({shared}) nor in the user cache ({folder}), and downloading it failed"
    raise MissingDataError(
        f"Cannot get {name}: {reason}:\n" + "\n".join(failures) + "\n"
        "Name a directory that holds the dataset with data_dir or $ROBUSTCMP_DATA.",
        reason,
        parameters=["data_dir"],
    )


@contextmanager
def data_errors(path: Path) -> Iterator[None]:
    """Raise `DataError` for what cannot be read inside a ``with`` block."""
    try:
        yield
    except UNREADABLE as error:
        reason = getattr(error, "strerror", None) or error
        raise file_error(path, "a whole, readable file", f"“{reason}”") from error


def file_error(path: Path, expected: str, received: str) -> DataError:
    """Return the error for a file that is not what was published."""
    return DataError(
        f"{path}: expected {expected}; received {received}. Replace it with the published file, or, if it is in the "
        "user cache, delete it to download it again."
    )


def check_labels(path: Path, labels: Pixels, classes: int = 10) -> None:
    """Raise `DataError` for a label that is none of the classes."""
    if labels.max() >= classes:
        raise file_error(path, f"labels from 0 to {classes - 1}", f"a label {labels.max()}")

"""Running: datasets, one a file, images (N, H, W, C) float32 in [0, 1], labels (N,) int64. Imports the ground."""

from __future__ import annotations

import os
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

from ..errors import unknown
from ..files import as_path
from .dataset import Dataset, stratified_split
from .published import Published

__all__ = ["DATASETS", "SPLITS", "Dataset", "described", "load_dataset", "stratified_split", "whereabouts"]

DATASETS = ("mnist", "digits", "cifar10")
"""Each is a module of this folder, with a function ``load(split, directory)``."""
SPLITS = ("train", "test")


def load_dataset(name: str, split: str = "test", *, data_dir: str | os.PathLike[str] | None = None) -> Dataset:
    """Load one split of a dataset.

    ``mnist`` and ``cifar10`` are read from ``data_dir`` if it is given. Otherwise the directory that
    ``$ROBUSTCMP_DATA`` names is searched, then the user cache; if both lack the files, they are downloaded from their
    publisher into the user cache and verified with the published checksums. Files that are already in a directory
    are not verified: ``Dataset.digest`` identifies their content.

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
        The name or the split is unknown, or ``data_dir`` is not a path.
    DataError
        The dataset is not available, or its files are broken.

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
    load: Callable[[str, Path | None], Dataset] = import_module(f".{name}", __name__).load
    return load(split, None if data_dir is None else as_path(data_dir))


def described(name: str) -> str:
    """Return what a dataset is: what its module says first.

    >>> described("digits")
    'The handwritten digits that ship inside scikit-learn.'
    """
    return str(import_module(f".{name}", __name__).__doc__).partition("\n")[0]


def whereabouts(name: str) -> str:
    """Return where a dataset is on this machine, or where it is downloaded from; nothing is loaded.

    >>> whereabouts("digits")
    'comes with its package'
    """
    source = getattr(import_module(f".{name}", __name__), "SOURCE", None)
    return source.whereabouts if isinstance(source, Published) else "comes with its package"

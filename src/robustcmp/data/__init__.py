"""Running: datasets, one a file, images (N, H, W, C) float32 in [0, 1], labels (N,) int64. Imports the ground."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cache
from importlib import import_module
from pathlib import Path

from ..errors import LOG, UsageError, unknown
from ..files import as_path
from .dataset import Dataset
from .published import Published

# Each is a module of this folder, with a function ``load(split, directory)``.
DATASETS = ("mnist", "digits", "cifar10")
# What a dataset of one's own lies in, ``KIND:PATH``; each is a module here, with a function ``load(path, split)``.
KINDS = ("folder", "npz")
SPLITS = ("train", "test")


def load_dataset(name: str, split: str = "test", *, data_dir: str | os.PathLike[str] | None = None) -> Dataset:
    """Load one split of a dataset.

    ``mnist`` and ``cifar10`` are read from ``data_dir`` if it is given. Otherwise the directory that
    ``$ROBUSTCMP_DATA`` names is searched, then the user cache; if both lack the files, they are downloaded from their
    publisher into the user cache and verified with the published checksums. Files that are already in a directory
    are not verified: ``Dataset.digest`` identifies their content.

    A directory holds the published files, in ``mnist/`` and ``cifar-10-batches-bin/`` or directly; MNIST's may be
    gzipped or not. ``digits`` ships inside scikit-learn and needs no directory.

    Images of your own are ``npz:FILE``, a NumPy archive with the arrays ``images`` and ``labels`` (or ``x_test`` and
    ``y_test``, ``x_train`` and ``y_train``), or ``folder:DIR``, with a subfolder of images for each class, or such
    folders in ``DIR/train`` and ``DIR/test``. 8-bit values are divided by 255. The images of an archive are
    (N, H, W, C). Subfolders sort as numbers where all of them are numbers, as text otherwise. Images are not turned by
    an EXIF orientation.

    Parameters
    ----------
    name : ``mnist`` (28×28×1), ``digits`` (8×8, scaled to 28×28×1), ``cifar10`` (32×32×3), ``npz:FILE`` or
        ``folder:DIR``
    split : ``train`` or ``test``
    data_dir : a directory with the dataset's files

    Returns
    -------
    Dataset
        ``images`` (N, H, W, C) float32 in [0, 1] and ``labels`` (N,) int64 in [0, K) of K classes.

    Raises
    ------
    UsageError
        The name or the split is unknown, or ``data_dir`` is not a path, or not for this dataset.
    DataError
        The dataset is not available, or its files are broken.

    Examples
    --------
    >>> data = load_dataset("digits", split="train")
    >>> data.images.shape, data.images.dtype, data.labels.shape
    ((1297, 28, 28, 1), dtype('float32'), (1297,))
    """
    name = str(name)
    if split not in SPLITS:
        raise unknown("split", split, SPLITS)
    if is_own(name):
        kind, _, location = name.partition(":")
        if data_dir is not None:
            raise UsageError(f"{name} says where it is: omit data_dir, which is for {', '.join(DATASETS)}")
        read: Callable[[Path, str], Dataset] = import_module(f".{kind}", __name__).load
        data = read(as_path(location), split)
        for note in data.notes:
            _warn_once(f"{data.name}: {note}")
        return data
    check_named(name)
    load: Callable[[str, Path | None], Dataset] = import_module(f".{name}", __name__).load
    return load(split, None if data_dir is None else as_path(data_dir))


@cache
def _warn_once(sentence: str) -> None:
    """Log a warning that a command would otherwise repeat for each conversion that loads the images again."""
    LOG.warning("%s", sentence)


def is_own(name: str) -> bool:
    """Say whether a dataset is one's own, in a file or folder, or raise `UsageError` for a kind that there is not.

    >>> is_own("npz:flowers.npz"), is_own("mnist")
    (True, False)
    """
    kind, colon, location = name.partition(":")
    if not colon:
        return False
    if kind not in KINDS:
        raise unknown("kind of dataset", kind, KINDS)
    if not location:
        raise UsageError(f"expected {kind}:PATH, received {name}", parameters=["dataset"])
    return True


def check_named(name: str) -> None:
    """Raise `UsageError` unless a dataset is one that models of the zoo are trained on."""
    if name in DATASETS:
        return
    if is_own(name):
        raise UsageError(
            f"expected a dataset that the zoo has models for ({', '.join(DATASETS)}), received {name}. On images of "
            "your own, compare networks of your own: name their files with --weights, or call robustcmp.evaluate.",
            parameters=["dataset"],
        )
    kind = "npz" if name.endswith(".npz") else "folder" if os.path.isdir(name) else ""
    if kind:
        raise UsageError(f"unknown dataset {name}: did you mean {kind}:{name}?", parameters=["dataset"])
    raise UsageError(
        f"{unknown('dataset', name, DATASETS)} Images of your own are npz:FILE or folder:DIR, for your own networks.",
        parameters=["dataset"],
    )


def describe(name: str) -> str:
    """Return what a dataset is: what its module says first.

    >>> describe("digits")
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

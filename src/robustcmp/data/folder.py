"""A folder of images with a subfolder for each class, as torchvision's ``ImageFolder`` takes it."""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import numpy as np
import numpy.typing as npt

from ..errors import DataError
from ..files import open_regular
from .arrays import check_memory
from .dataset import Dataset, Pixels, named_after, scaled

if TYPE_CHECKING:
    import PIL.Image

ENDINGS = (".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp")  # those of ImageFolder
FORMATS = ("JPEG", "PNG", "PPM", "BMP", "TIFF", "WEBP")
SPLIT_NAMES = frozenset({"train", "test", "val", "valid", "validation"})
# What the modes of Pillow become: grey, grey with alpha, colours, colours with alpha. Others have more than 8 bits.
MODES = {
    "1": "L",
    "L": "L",
    "LA": "LA",
    "P": "RGB",
    "PA": "RGBA",
    "RGB": "RGB",
    "RGBA": "RGBA",
    "CMYK": "RGB",
    "YCbCr": "RGB",
}
WORDS = {"L": "grey", "LA": "grey with alpha", "RGB": "RGB", "RGBA": "RGB with alpha"}  # a letter for each channel


def load(path: Path, split: str) -> Dataset:
    """Return the images of a folder, (N, H, W, C) float32 in [0, 1]; the classes are its subfolders, by their names.

    A folder with subfolders ``train`` and ``test`` has a split in each; one without is the split ``test``. A class has
    one number in all splits, also in those that lack its subfolder. A subfolder without images is a class that is
    missing. Images are grey, grey with alpha, RGB or RGBA, all of them alike and of one size; grey ones among RGB
    become RGB.

    Raises
    ------
    DataError
        There are no images in subfolders, they differ in size, or one cannot be read.
    """
    root = _of_split(path, split)
    splits = [root] if root == path else [path / name for name in _subfolders(path)]
    own, names = _subfolders(root), sorted({name for folder in splits for name in _subfolders(folder)})
    files = [(file, names.index(name)) for name in own for file in _images(root / name)]
    if not files:
        raise DataError(
            f"{root} should have a subfolder for each class, with images in it ({', '.join(ENDINGS)}); received "
            f"{len(own)} subfolders and no images in them. Move each image into a subfolder named after its class.",
            parameters=["dataset"],
        )
    images = _read([file for file, _ in files])
    labels = np.array([label for _, label in files], np.int64)
    return Dataset(images, labels, named_after("folder", path), split, len(names), tuple(names))


def _of_split(path: Path, split: str) -> Path:
    names = {*_subfolders(path)}
    if names and names <= SPLIT_NAMES:
        if split in names:
            return path / split
        received = ", ".join(sorted(names))
        raise DataError(
            f"{path} has no subfolder {split}, received {received}. Name the one that is meant, folder:{path}/NAME.",
            parameters=["dataset"],
        )
    if split != "test":
        raise DataError(
            f"{path} should have subfolders train and test for the split {split}, each with a subfolder for each class",
            parameters=["dataset"],
        )
    return path


def _subfolders(path: Path) -> list[str]:
    try:
        return sorted(entry.name for entry in os.scandir(path) if entry.is_dir() and not entry.name.startswith("."))
    except OSError as error:
        _unreadable(error)


def _unreadable(error: OSError) -> NoReturn:
    raise DataError(
        f"{error.filename} cannot be read: {error.strerror}. Name a folder that can.", parameters=["dataset"]
    ) from None


def _images(folder: Path) -> Iterator[Path]:
    """Yield the images below a folder in the order of ImageFolder, but for links to folders: they could be endless."""
    for root, _, names in sorted(os.walk(folder, onerror=_unreadable)):
        for name in sorted(names):
            if name.lower().endswith(ENDINGS) and not name.startswith("."):
                yield Path(root, name)


def _read(files: list[Path]) -> npt.NDArray[np.float32]:
    """Return images (N, H, W, C) in [0, 1]; their sizes are compared before the first is decoded."""
    shapes = [_shape(file) for file in files]
    (*size, mode), modes = shapes[0], {mode for *_, mode in shapes}
    if modes == {"L", "RGB"}:
        mode, modes = "RGB", {"RGB"}
    for file, (height, width, its) in zip(files, shapes, strict=True):
        if [height, width] != size:
            raise DataError(
                f"{file} has {height} × {width} pixels, and {files[0]} {size[0]} × {size[1]}: images should have one "
                "size. Resize them as for the training, for instance with Pillow's Image.resize.",
                parameters=["dataset"],
            )
        if its != mode and len(modes) > 1:
            raise DataError(
                f"{file} is {WORDS[its]}, and {files[0]} {WORDS[mode]}: images should have the same channels. Convert "
                "them as for the training, for instance with Pillow's Image.convert.",
                parameters=["dataset"],
            )
    shape = (len(files), *size, len(mode))
    check_memory(f"{len(files):,} images of {size[0]} × {size[1]} pixels", 4 * math.prod(shape))
    images = np.empty(shape, np.float32)
    for file, image in zip(files, images, strict=True):
        scaled(_decoded(file, mode).reshape(image.shape), image)
    return images


def _shape(file: Path) -> tuple[int, int, str]:
    """Return height, width and mode of an image, from its header."""
    with _opened(file) as image:
        mode = MODES.get(image.mode)
        if mode is None:
            raise DataError(f"{file} should have 8 bits a channel, received Pillow's mode {image.mode}. Convert it.")
        return image.height, image.width, "RGBA" if image.mode == "P" and "transparency" in image.info else mode


def _decoded(file: Path, mode: str) -> Pixels:
    with _opened(file) as image:
        return np.asarray(image.convert(mode), np.uint8)


@contextmanager
def _opened(file: Path) -> Iterator[PIL.Image.Image]:
    """Open an image, and raise `DataError` for what cannot be read of it inside a ``with`` block."""
    from PIL import Image

    try:
        with warnings.catch_warnings(), open_regular(file) as raw:
            warnings.simplefilter("ignore")  # of metadata
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            with Image.open(raw, formats=FORMATS) as image:
                yield image
    except (DataError, MemoryError):
        raise
    except Exception as error:  # a broken image can raise anything
        said = getattr(error, "strerror", None) or " ".join(str(error).split())[:200]
        raise DataError(
            f"{file} cannot be read as an image: {said}. Replace it, or remove it.", parameters=["dataset"]
        ) from None

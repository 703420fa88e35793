"""A folder of images with a subfolder for each class, as torchvision's ``ImageFolder`` takes it."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from ..errors import DataError, in_one_line, printable
from ..files import open_regular
from .arrays import check_memory
from .dataset import Dataset, name_after, scale_bytes

if TYPE_CHECKING:
    import PIL.Image

ENDINGS = (".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp")  # those of ImageFolder
FORMATS = ("JPEG", "PNG", "PPM", "BMP", "TIFF", "WEBP")
SPLIT_NAMES = {
    "train": "train",
    "training": "train",
    "test": "test",
    "testing": "test",
    "val": "val",
    "valid": "val",
    "validation": "val",
}
LITTER = frozenset({"__MACOSX", "@eaDir"})  # folders that macOS and Synology add
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


def load(path: Path, split: str) -> Dataset:
    """Return the images of a folder, (N, H, W, C) float32 in [0, 1]; the classes are its subfolders, by their names.

    Names sort as numbers where all of them are numbers, as text otherwise. A folder with subfolders ``train`` and
    ``test``, or ``Training`` and ``Testing``, has a split in each; one without is the split ``test``. A class has one
    number in all splits, also in those that lack its subfolder. A subfolder without images is a class that is missing.
    Images are grey, grey with alpha, RGB or RGBA, all of them alike and of one size; grey ones among RGB become RGB.

    Raises
    ------
    DataError
        There are no images in subfolders, they differ in size, or one cannot be read.
    """
    root = _find_split(path, split)
    folders = [root] if root == path else [path / name for name in _list_folders(path)]
    as_text = sorted({name for folder in folders for name in _list_folders(folder)})
    are_numbers = all(name.removeprefix("-").isdecimal() for name in as_text)
    names = sorted(as_text, key=int) if are_numbers else as_text
    present = _list_folders(root)
    files = [(file, label) for label, name in enumerate(names) if name in present for file in _list_images(root / name)]
    if not files:
        raise DataError(
            f"{root} should have a subfolder for each class, with images in it ({', '.join(ENDINGS)}); received "
            f"{len(present)} subfolders and no images in them. Move each image into a subfolder named after its class.",
            parameters=["dataset"],
        )
    images = _read_images([file for file, _ in files])
    labels = np.array([label for _, label in files], np.int64)
    name = name_after("folder", path)
    return Dataset(images, labels, name, split, len(names), tuple(names), tuple(map(printable, _note_order(names))))


def _find_split(path: Path, split: str) -> Path:
    """Return the folder of a split, which is the whole folder where its subfolders are no splits."""
    names = _list_folders(path)
    splits = [SPLIT_NAMES.get(name.lower()) for name in names]
    if not names or None in splits:
        if split != "test":
            raise DataError(
                f"{path} should have subfolders train and test for the split {split}, each with a subfolder for each "
                "class",
                parameters=["dataset"],
            )
        return path
    if splits.count(split) != 1:
        raise DataError(
            f"{path} should have one subfolder {split}, received {', '.join(names)}. Name the one that is meant, "
            f"folder:{path}/NAME.",
            parameters=["dataset"],
        )
    return path / names[splits.index(split)]


def _note_order(names: list[str]) -> Iterator[str]:
    """Yield a sentence if sorting the names as text gives their classes other numbers, or if numbers are left out."""
    if names[0] == "0" and names[-1].isdecimal() and int(names[-1]) >= len(names):
        yield f"class {len(names) - 1} is the folder {names[-1]}, as numbers between are missing: add empty folders"
    as_text = sorted(names)
    differing = [label for label, name in enumerate(as_text) if name != names[label]]
    if differing:
        shown = differing[0] + 1
        yield (
            f"the classes are in the order of their numbers, {', '.join(names[:shown])}, …; ImageFolder of torchvision "
            f"and image_dataset_from_directory of Keras sort them as text, {', '.join(as_text[:shown])}, …. For "
            f"networks trained in that order, put a letter before each name: c{names[0]}, c{names[1]}, …"
        )


def _list_folders(path: Path) -> list[str]:
    try:
        return sorted(entry.name for entry in os.scandir(path) if entry.is_dir() and not _is_litter(entry.name))
    except OSError as error:
        raise DataError(
            f"{error.filename} cannot be read: {error.strerror}. Name a folder that can.", parameters=["dataset"]
        ) from None


def _is_litter(name: str) -> bool:
    return name.startswith(".") or name in LITTER


def _list_images(folder: Path) -> list[Path]:
    """Return the images of a class, by their names, or raise `DataError` for folders in it."""
    deeper = _list_folders(folder)
    if deeper:
        raise DataError(
            f"{folder} should hold the images of a class, received the folder {deeper[0]} in it. Name the folder "
            f"of the classes, such as folder:{folder}.",
            parameters=["dataset"],
        )
    return sorted(file for file in folder.iterdir() if file.suffix.lower() in ENDINGS and not _is_litter(file.name))


def _read_images(files: list[Path]) -> npt.NDArray[np.float32]:
    """Return images (N, H, W, C) in [0, 1]; sizes are compared before the first is decoded."""
    shapes = [_read_shape(file) for file in files]
    height, width, mode = shapes[0]
    if {mode for *_, mode in shapes} == {"L", "RGB"}:
        mode = "RGB"
    for file, shape in zip(files, shapes, strict=True):
        if shape not in ((height, width, mode), (height, width, "L" if mode == "RGB" else mode)):
            raise DataError(
                f"{file} is {shape[0]} × {shape[1]} {shape[2]}, and {files[0]} {height} × {width} {mode}: images "
                "should have one size and the same channels. Resize or convert them as for the training, with Pillow's "
                "Image.resize and Image.convert.",
                parameters=["dataset"],
            )
    channels = len(mode)
    check_memory(f"{len(files):,} images of {height} × {width} pixels", 4 * len(files) * height * width * channels)
    images = np.empty((len(files), height, width, channels), np.float32)
    for file, image in zip(files, images, strict=True):
        with _load_image(file) as opened:
            scale_bytes(np.asarray(opened.convert(mode), np.uint8).reshape(image.shape), image)
    return images


def _read_shape(file: Path) -> tuple[int, int, str]:
    """Return height, width and mode of an image, from its header."""
    with _load_image(file) as image:
        mode = MODES.get(image.mode)
        if mode is None:
            raise DataError(f"{file} should have 8 bits a channel, received Pillow's mode {image.mode}. Convert it.")
        return image.height, image.width, "RGBA" if image.mode == "P" and "transparency" in image.info else mode


@contextmanager
def _load_image(file: Path) -> Iterator[PIL.Image.Image]:
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
        reason = getattr(error, "strerror", None) or in_one_line(error, 200)
        raise DataError(
            f"{file} cannot be read as an image: {reason}. Replace it, or remove it.", parameters=["dataset"]
        ) from None

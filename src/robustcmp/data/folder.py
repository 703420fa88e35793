"""A folder of images with a subfolder for each class, as torchvision's ``ImageFolder`` takes it."""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import numpy as np
import numpy.typing as npt

from ..errors import DataError, printable
from ..files import open_regular
from .arrays import check_memory
from .dataset import Dataset, Pixels, name_after, scale_bytes

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
ORIENTATION = 0x0112  # the EXIF tag
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

    Names sort as numbers where all of them are numbers, as text otherwise. A folder with subfolders ``train`` and
    ``test``, or ``Training`` and ``Testing``, has a split in each; one without is the split ``test``. A class has one
    number in all splits, also in those that lack its subfolder. A subfolder without images is a class that is missing.
    Images are grey, grey with alpha, RGB or RGBA, all of them alike and of one size; grey ones among RGB become RGB.

    Raises
    ------
    DataError
        There are no images in subfolders, they differ in size, or one cannot be read.
    """
    root = _of_split(path, split)
    splits = [root] if root == path else [path / name for name in _subfolders(path)]
    own = _subfolders(root)
    names = _in_order({name for folder in splits for name in _subfolders(folder)})
    files = [(file, label) for label, name in enumerate(names) if name in own for file in _images(root / name)]
    if not files:
        raise DataError(
            f"{root} should have a subfolder for each class, with images in it ({', '.join(ENDINGS)}); received "
            f"{len(own)} subfolders and no images in them. Move each image into a subfolder named after its class.",
            parameters=["dataset"],
        )
    if len(names) == 1 and not any(file.parent == root / names[0] for file, _ in files):
        raise DataError(
            f"{root} should have a subfolder for each class; received {names[0]} alone, whose images lie deeper. "
            f"Name the one that is meant, folder:{root / names[0]}.",
            parameters=["dataset"],
        )
    images, turned = _read([file for file, _ in files])
    labels = np.array([label for _, label in files], np.int64)
    notes = [*_order_notes(names), *_orientation_notes(turned, len(files), root)]
    name = name_after("folder", path)
    return Dataset(images, labels, name, split, len(names), tuple(names), tuple(map(printable, notes)))


def _of_split(path: Path, split: str) -> Path:
    """Return the folder of a split, which is the whole folder where its subfolders are no splits."""
    folders: dict[str, list[str]] = {}
    for name in _subfolders(path):
        folders.setdefault(SPLIT_NAMES.get(name.lower(), ""), []).append(name)
    others = folders.pop("", [])
    received = ", ".join(sorted(name for names in folders.values() for name in names))
    if others and len(folders) > 1:
        raise DataError(
            f"{path} should have a subfolder for each split, or for each class; received {received} beside "
            f"{', '.join(others)}. Name the one that is meant, folder:{path}/NAME.",
            parameters=["dataset"],
        )
    if folders and not others:
        names = folders.get(split, [])
        if len(names) == 1:
            return path / names[0]
        reason = f"has both {' and '.join(names)} for the split" if names else "has no subfolder"
        raise DataError(
            f"{path} {reason} {split}, received {received}. Name the one that is meant, folder:{path}/NAME.",
            parameters=["dataset"],
        )
    if split != "test":
        raise DataError(
            f"{path} should have subfolders train and test for the split {split}, each with a subfolder for each class",
            parameters=["dataset"],
        )
    return path


def _in_order(names: Iterable[str]) -> list[str]:
    """Sort names of classes: as numbers where all of them are numbers, as text otherwise."""
    as_text = sorted(names)
    return sorted(as_text, key=int) if all(name.removeprefix("-").isdecimal() for name in as_text) else as_text


def _order_notes(names: list[str]) -> Iterator[str]:
    """Yield a sentence if sorting the names as text gives their classes other numbers."""
    as_text = sorted(names)
    differing = [label for label, name in enumerate(as_text) if name != names[label]]
    if differing:
        shown = differing[0] + 1
        yield (
            f"the classes are in the order of their numbers, {', '.join(names[:shown])}, …; ImageFolder of torchvision "
            f"and image_dataset_from_directory of Keras sort them as text, {', '.join(as_text[:shown])}, …. For "
            f"networks trained in that order, put a letter before each name: c{names[0]}, c{names[1]}, …"
        )


def _orientation_notes(turned: list[tuple[Path, int]], count: int, root: Path) -> Iterator[str]:
    """Yield a sentence if viewers turn some of the images."""
    if turned:
        file, orientation = turned[0]
        yield (
            f"{len(turned):,} of {count:,} images have an EXIF orientation, the first {file.relative_to(root)} "
            f"({orientation}): they are read as they are stored, as by ImageFolder of torchvision and "
            "image_dataset_from_directory of Keras, and viewers turn them. For networks trained on turned images, save "
            "them turned, with Pillow's ImageOps.exif_transpose"
        )


def _subfolders(path: Path) -> list[str]:
    try:
        return sorted(entry.name for entry in os.scandir(path) if entry.is_dir() and not _is_litter(entry.name))
    except OSError as error:
        _unreadable(error)


def _is_litter(name: str) -> bool:
    return name.startswith(".") or name in LITTER


def _unreadable(error: OSError) -> NoReturn:
    raise DataError(
        f"{error.filename} cannot be read: {error.strerror}. Name a folder that can.", parameters=["dataset"]
    ) from None


def _images(folder: Path) -> Iterator[Path]:
    """Yield the images below a folder in the order of ImageFolder, but for links to folders: they could be endless."""
    for root, _, names in sorted(os.walk(folder, onerror=_unreadable)):
        if any(_is_litter(part) for part in Path(root).relative_to(folder).parts):
            continue
        for name in sorted(names):
            if name.lower().endswith(ENDINGS) and not _is_litter(name):
                yield Path(root, name)


def _read(files: list[Path]) -> tuple[npt.NDArray[np.float32], list[tuple[Path, int]]]:
    """Return images (N, H, W, C) in [0, 1], and the files that have an EXIF orientation, with that.

    Sizes are compared before the first image is decoded.
    """
    shapes = [_shape(file) for file in files]
    (*size, mode), modes = shapes[0], {mode for *_, mode in shapes}
    if modes == {"L", "RGB"}:
        mode, modes = "RGB", {"RGB"}
    for file, (height, width, its) in zip(files, shapes, strict=True):
        if [height, width] != size:
            remedy = "Resize them as for the training, for instance with Pillow's Image.resize."
            if [width, height] == size and any(_decode(other, "L")[1] != 1 for other in (file, files[0])):
                remedy = "Viewers turn one by its EXIF orientation: save it so, with Pillow's ImageOps.exif_transpose."
            raise DataError(
                f"{file} has {height} × {width} pixels, and {files[0]} {size[0]} × {size[1]}: images should have one "
                f"size. {remedy}",
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
    turned = []
    for file, image in zip(files, images, strict=True):
        pixels, orientation = _decode(file, mode)
        scale_bytes(pixels.reshape(image.shape), image)
        if orientation != 1:
            turned.append((file, orientation))
    return images, turned


def _shape(file: Path) -> tuple[int, int, str]:
    """Return height, width and mode of an image, from its header."""
    with _open_image(file) as image:
        mode = MODES.get(image.mode)
        if mode is None:
            raise DataError(f"{file} should have 8 bits a channel, received Pillow's mode {image.mode}. Convert it.")
        return image.height, image.width, "RGBA" if image.mode == "P" and "transparency" in image.info else mode


def _decode(file: Path, mode: str) -> tuple[Pixels, int]:
    """Return the pixels of an image as they are stored, and its EXIF orientation, 1 where viewers do not turn it."""
    with _open_image(file) as image:
        pixels = np.asarray(image.convert(mode), np.uint8)
        try:
            orientation = int(image.getexif().get(ORIENTATION, 1))
        except Exception:  # broken metadata can raise anything, and spoils no pixel
            orientation = 1
    return pixels, orientation if 2 <= orientation <= 8 else 1


@contextmanager
def _open_image(file: Path) -> Iterator[PIL.Image.Image]:
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

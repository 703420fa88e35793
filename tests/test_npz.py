"""Archives of NumPy as datasets, whole and broken."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from brought.images import HEIGHT, LABELS, WIDTH, N, drawn, eight_bit, save_archive, save_folder
from numpy.typing import NDArray

import robustcmp as rc
from robustcmp import limits
from robustcmp.errors import DataError, OutOfMemoryError, UsageError


@pytest.mark.parametrize("compressed", [False, True])
@pytest.mark.parametrize("keys", [("images", "labels"), ("x_test", "y_test")])
def test_an_archive(keys: tuple[str, str], compressed: bool, tmp_path: Path) -> None:
    images, labels = keys
    name = save_archive(tmp_path / "a.npz", compressed, **{images: eight_bit(), labels: LABELS.astype(np.uint8)})
    data = rc.load_dataset(name)
    assert repr(data) == f"Dataset(name='npz:a.npz', split='test', images={(N, HEIGHT, WIDTH, 3)}, classes=3)"
    np.testing.assert_array_equal(data.images, np.divide(eight_bit(), 255, dtype=np.float32))
    assert data.labels.dtype == np.int64
    np.testing.assert_array_equal(data.labels, LABELS)
    as_floats = save_archive(tmp_path / "b.npz", images=data.images, labels=LABELS)
    np.testing.assert_array_equal(rc.load_dataset(as_floats).images, data.images)


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ({"x": eight_bit(), "y": LABELS}, "expected arrays x_test and y_test, or images and labels.*received x, y"),
        ({"images": eight_bit(), "labels": np.eye(3)[LABELS]}, r"labels\.argmax\(axis=1\)"),
        ({"images": eight_bit(), "labels": LABELS[:-1]}, r"labels should have the shape \(30,\)"),
        ({"images": eight_bit(), "labels": LABELS - 1}, "labels from 0 on, received -1"),
        (
            {"images": eight_bit() % 2, "labels": LABELS},
            "received 0 to 1, which are black",
        ),
        ({"images": eight_bit().astype(np.float32), "labels": LABELS}, "images / 255"),
        ({"images": drawn().transpose(0, 3, 1, 2), "labels": LABELS}, "move the channels last"),
        ({"images": eight_bit()[:0], "labels": LABELS[:0]}, "at least one image"),
        ({"images": np.array([None] * N), "labels": LABELS}, "Object arrays cannot be loaded"),
        ({"images": np.array(["a"] * N), "labels": LABELS}, "images should have the shape"),
    ],
)
def test_archives_without_images(content: dict[str, Any], text: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=text) as caught:
        rc.load_dataset(save_archive(tmp_path / "a.npz", **content))
    assert "a.npz" in str(caught.value)


def with_entry(path: Path, content: bytes) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("images.npy", content)
        stream = io.BytesIO()
        np.save(stream, LABELS)
        archive.writestr("labels.npy", stream.getvalue())


def npy(array: NDArray[Any]) -> bytes:
    stream = io.BytesIO()
    np.save(stream, array)
    return stream.getvalue()


BROKEN: dict[str, Callable[[bytes], bytes]] = {
    "cut": lambda content: content[:-100],
    "long": lambda content: content + b"\0",
    "other shape": lambda content: content.replace(b"(30,", b"(31,"),
    "huge": lambda content: content.replace(b"(30, 6", b"(10**9"),
    "huge numbers": lambda content: content.replace(b"(30, 6, ", b"(9999999"),
    "other magic": lambda content: b"\x93NUMPX" + content[6:],
    "no header": lambda content: content[:20],
    "empty": lambda content: b"",
}


@pytest.mark.parametrize("how", BROKEN)
def test_broken_arrays(how: str, tmp_path: Path) -> None:
    with_entry(tmp_path / "a.npz", BROKEN[how](npy(eight_bit())))
    with pytest.raises((DataError, OutOfMemoryError), match=r"a\.npz|GiB"):
        rc.load_dataset(f"npz:{tmp_path / 'a.npz'}")


def test_what_does_not_fit_into_memory_is_said_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = save_archive(tmp_path / "a.npz", images=eight_bit(), labels=LABELS)
    path = save_folder(tmp_path / "pets")
    monkeypatch.setattr(limits, "memory", lambda: 6000)
    for dataset in (name, f"folder:{path}"):
        with pytest.raises(OutOfMemoryError, match=r"GiB.*numpy\.load"):
            rc.load_dataset(dataset)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("flowers.npz", r"did you mean npz:flowers\.npz\?"),
        (".", r"did you mean folder:\.\?"),
        ("zip:flowers.zip", "unknown kind of dataset 'zip': Expected one of folder, npz"),
        ("npz:", "expected npz:PATH"),
        ("mnisst", "did you mean 'mnist'"),
    ],
)
def test_names_of_datasets_that_are_none(name: Any, text: str) -> None:
    with pytest.raises(UsageError, match=text):
        rc.load_dataset(name)

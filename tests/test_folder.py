"""Folders of images as datasets: classes, splits, and files that do not fit."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from brought.images import N, as_floats, eight_bit, logits, save_archive, save_folder
from PIL import Image

import robustcmp as rc
from robustcmp.cli import eval as command
from robustcmp.errors import DataError

SUITE = f"""
images = {N}
repeats = 1
[attacks.fgsm]
attack = "FGSM"
epsilons = 10
max_epsilon = 0.5
"""


@pytest.mark.parametrize(
    ("names", "in_order", "note"),
    [
        (
            [*map(str, range(11))],
            [*map(str, range(11))],
            "0, 1, 2, …; .*as text, 0, 1, 10, ….*put a letter",
        ),
        ([f"{label:02}" for label in range(11)], [f"{label:02}" for label in range(11)], ""),
        (["7", "8", "9"], ["7", "8", "9"], ""),
        (["0", "1", "3"], ["0", "1", "3"], "class 2 is the folder 3"),
        (["img1", "img2", "img10"], ["img1", "img10", "img2"], ""),
        (["1", "2", "10", "other"], ["1", "10", "2", "other"], ""),
    ],
)
def test_the_order_of_classes(
    names: list[str], in_order: list[str], note: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for name in names:
        (tmp_path / name).mkdir()
        Image.new("L", (4, 4), 10 * names.index(name)).save(tmp_path / name / "0.png")
    data = rc.load_dataset(f"folder:{tmp_path}")
    assert data.class_names == tuple(in_order)
    shades = [names.index(in_order[label]) for label in data.labels]
    np.testing.assert_allclose(data.images[:, 0, 0, 0], 10 * np.array(shades) / 255, atol=1e-6)
    assert [record.message for record in caplog.records] == [f"{data.name}: {sentence}" for sentence in data.notes]
    assert len(data.notes) == bool(note)
    assert re.search(note, " ".join(data.notes))


@pytest.mark.parametrize(
    ("names", "text"),
    [
        (["train", "val"], "should have one subfolder test, received train, val"),
        (["Test", "testing", "train"], "should have one subfolder test, received Test, testing, train"),
        (["train", "test", "more"], "should hold the images of a class, received the folder cat in it"),
        (["data/train"], "should hold the images of a class, received the folder train in it"),
    ],
)
def test_folders_of_splits_that_are_not_clear(names: list[str], text: str, tmp_path: Path) -> None:
    for name in names:
        save_folder(tmp_path / name, eight_bit(3, 6))
    with pytest.raises(DataError, match=rf"{text}\. Name the "):
        rc.load_dataset(f"folder:{tmp_path}")


def replaced(image: Image.Image) -> Callable[[Path], object]:
    return lambda path: image.save(path, format="PNG")


FOLDERS: dict[str, tuple[Callable[[Path], object], str]] = {
    "another size": (
        replaced(Image.new("RGB", (5, 5))),
        r"001\.png is 5 × 5 RGB, and .*000\.png 6 × 9 RGB: .*one size",
    ),
    "other channels": (
        replaced(Image.new("RGBA", (9, 6))),
        "6 × 9 RGBA, and .*6 × 9 RGB: .*same channels",
    ),
    "16 bits": (replaced(Image.new("I;16", (9, 6))), r"001\.png should have 8 bits a channel.*I;16"),
    "text": (lambda path: path.write_text("text"), r"001\.png cannot be read as an image"),
    "nothing": (lambda path: path.write_bytes(b""), r"001\.png cannot be read as an image"),
    "a part": (lambda path: path.write_bytes(path.read_bytes()[:100]), r"001\.png cannot be read as an image"),
    "a pipe": (
        lambda path: (path.unlink(), os.mkfifo(path)),
        r"001\.png cannot be read as an image: expected a regular",
    ),
    "a link to nowhere": (lambda path: (path.unlink(), path.symlink_to("gone")), r"001\.png cannot be read"),
    "a huge header": (replaced(Image.new("1", (20_000, 20_000))), r"001\.png cannot be read as an image.*pixels"),
}


@pytest.mark.parametrize("what", FOLDERS)
def test_folders_with_a_file_that_does_not_fit(what: str, tmp_path: Path) -> None:
    path = save_folder(tmp_path / "pets")
    (path / "dog" / "001.png").rename(path / "cat" / "001.png")
    spoil, text = FOLDERS[what]
    spoil(path / "cat" / "001.png")
    with pytest.raises(DataError, match=text):
        rc.load_dataset(f"folder:{path}")


@pytest.mark.parametrize("lacking", ["train", "test"])
def test_a_class_has_one_number_in_all_splits(lacking: str, tmp_path: Path) -> None:
    for split in ("train", "test"):
        save_folder(tmp_path / split, eight_bit(3, 12))
    shutil.rmtree(tmp_path / lacking / "cat")
    for split in ("train", "test"):
        data = rc.load_dataset(f"folder:{tmp_path}", split)
        assert (data.classes, data.class_names) == (3, ("cat", "dog", "owl"))
        assert set(data.labels) == ({1, 2} if split == lacking else {0, 1, 2})
    assert rc.load_dataset(f"folder:{tmp_path / lacking}").class_names == ("dog", "owl")  # named by itself


@pytest.mark.parametrize(
    "dataset",
    [
        pytest.param(
            f"{kind}:pets{ending}",
            marks=pytest.mark.brought(
                group="Images and labels",
                what=what,
                typed=f"robustcmp eval --weights torch=nets:mine --dataset {kind}:{path}",
                got="a comparison",
            ),
        )
        for kind, ending, path, what in (
            ("npz", ".npz", "FILE", "a NumPy archive with images and labels"),
            ("folder", "", "DIR", "a folder of images in the command"),
        )
    ],
)
def test_the_command(
    dataset: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("torch")
    monkeypatch.chdir(tmp_path)
    Path("suite.toml").write_text(SUITE)
    labels = logits(as_floats(eight_bit())).argmax(axis=1)
    save_archive(Path("pets.npz"), images=eight_bit(), labels=labels)
    save_folder(Path("pets"), labels=labels)
    options = ["--weights", "torch=brought.nets:of_pets", "--dataset", dataset, "--suite", "suite.toml", "--json"]
    assert command.main(options) == 0
    out, err = capsys.readouterr()
    summary = json.loads(out)
    assert (summary["dataset"], summary["images"], summary["correct_by_all"]) == (dataset, N, 1)
    assert re.search(rf"^{dataset}: 30 images of 6 × 9 × 3, 3 classes", err, re.MULTILINE)
    assert ("0 cat, 1 dog, 2 owl" in err) == (dataset == "folder:pets")
    assert summary["out"].startswith("runs/")
    assert dataset.replace(":", "-") in summary["out"]
    assert str(tmp_path) not in Path(summary["out"], "manifest.json").read_text()
    assert summary["success_rate"]["torch"]["fgsm"] > 0


@pytest.mark.parametrize("dataset", ["npz:pets.npz", "folder:pets"])
def test_models_of_the_zoo_have_datasets_by_name(dataset: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["--model", "lenet5", "--dataset", dataset]) == 2
    assert re.search(rf"received {dataset}.*--weights.*--dataset", capsys.readouterr().err, re.DOTALL)

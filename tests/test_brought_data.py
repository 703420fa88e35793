"""Images and labels as people have them: a comparison, or a message that says which expression makes them usable."""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import tracemalloc
import zipfile
from collections.abc import Callable
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

import robustcmp as rc
from robustcmp import limits
from robustcmp.cli import eval as command
from robustcmp.data.arrays import check_labels, check_unit_images
from robustcmp.errors import DataError, OutOfMemoryError, UsageError
from robustcmp.models.model import Model

Images = NDArray[np.float32]

N, HEIGHT, WIDTH, CLASSES = 30, 6, 9, 3
brought = partial(pytest.mark.brought, group="Images and labels")
SUITE = (
    f'description = "two"\nimages = {N}\nrepeats = 1\n'
    '[attacks.fgsm]\nattack = "FGSM"\nepsilons = 10\nmax_epsilon = 0.5\n'
    '[attacks.single_pixel]\nattack = "SinglePixel"\nmax_pixels = 20\n'
)


def drawn(channels: int = 3, n: int = N) -> Images:
    return np.random.default_rng(0).random((n, HEIGHT, WIDTH, channels), dtype=np.float32)


def eight_bit(channels: int = 3, n: int = N) -> NDArray[np.uint8]:
    pixels = np.random.default_rng(0).integers(0, 256, (n, HEIGHT, WIDTH, channels), np.uint8)
    pixels[0, 0, 0], pixels[0, 0, 1] = 0, 255
    return pixels


def kernel(channels: int = 3) -> NDArray[np.float64]:
    """The weights of a linear network, (H·W·C, K): every logit is 0 for a grey image."""
    weights = np.random.default_rng(1).normal(size=(HEIGHT * WIDTH * channels, CLASSES))
    return weights - weights.mean(axis=0)


def logits(x: NDArray[Any]) -> NDArray[np.float64]:
    answer: NDArray[np.float64] = x.reshape(len(x), -1).astype(np.float64) @ kernel(x.shape[-1])
    return answer


def linear() -> Model:
    return rc.wrap_functions(logits=logits, vjp=lambda x, v: (v @ kernel(x.shape[-1]).T).reshape(x.shape))


def labelled(images: Images) -> NDArray[np.int64]:
    return logits(images).argmax(axis=1)


def evaluated(models: Any, images: Any, labels: Any, tmp_path: Path) -> rc.Evaluation:
    (tmp_path / "suite.toml").write_text(SUITE)
    return rc.evaluate(models, images, labels, suite=tmp_path / "suite.toml", out=tmp_path / "run", progress=False)


# shapes ---------------------------------------------------------------------------------------------------------------


def in_torch(channels: int) -> Model:
    torch = pytest.importorskip("torch")
    layer = torch.nn.Linear(HEIGHT * WIDTH * channels, CLASSES)
    own = kernel(channels).reshape(HEIGHT, WIDTH, channels, CLASSES).transpose(3, 2, 0, 1).reshape(CLASSES, -1)
    layer.load_state_dict({"weight": torch.tensor(own), "bias": torch.zeros(CLASSES)})
    return rc.wrap(torch.nn.Sequential(torch.nn.Flatten(), layer).eval(), device="cpu")


@pytest.mark.parametrize(
    "channels",
    [
        pytest.param(count, marks=brought(what=what, typed="rc.evaluate(models, images, labels)", got="a comparison"))
        for count, what in enumerate(
            (
                "images of 1 channel, not square",
                "images of 2 channels; the page draws them red and green",
                "images of 3 channels",
                "images of 4 channels; the page draws the first three",
            ),
            start=1,
        )
    ],
)
def test_channels_of_images_that_are_not_square(channels: int, tmp_path: Path) -> None:
    images = drawn(channels)
    models = {"torch": in_torch(channels), "numpy": linear()}
    ev = evaluated(models, images, labelled(images), tmp_path)
    rates = ev.results.rates()
    for name in models:  # the same network: a transposed axis would be another one
        assert rates[name] == pytest.approx(rates["numpy"], abs=0.04), name
    assert rates["numpy"]["fgsm"] > 0.9
    assert rates["numpy"]["single_pixel"] > 0
    changed = np.abs(ev.adversarials("torch", "single_pixel") - images) > 1e-6
    assert set(changed.any(axis=-1).sum(axis=(1, 2))) == {0, 1}
    if channels != 2:
        return
    ev.to_html(tmp_path / "page.html")
    assert "data:image/png" in (tmp_path / "page.html").read_text()
    pytest.importorskip("matplotlib").use("agg")
    assert len(ev.plot.gallery(images=1).ravel()) == 1 + 2 * len(models)


@pytest.mark.parametrize("data_format", ["channels_last", "channels_first"])
@pytest.mark.parametrize("shape", [(3, 3, 50), (1, 300, 12), (4, 4, 5)])
def test_a_stated_axis_of_channels_wins(shape: tuple[int, int, int], data_format: Any, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    weights = rng.normal(size=(int(np.prod(shape)), CLASSES))
    images, labels = rng.random((60, *shape), dtype=np.float32), rng.integers(0, CLASSES, 60)
    correct = ((images.reshape(60, -1) - 0.5) @ weights).argmax(axis=1) == labels
    model = rc.wrap_functions(logits=lambda x: (x.reshape(len(x), -1) - 0.5) @ weights)
    given = images.transpose(0, 3, 1, 2) if data_format == "channels_first" else images

    assert (rc.predict(model, given, data_format=data_format) == labels).mean() == correct.mean()
    subset = rc.common_subset({"m": model}, given, labels, data_format=data_format)
    np.testing.assert_array_equal(subset, np.flatnonzero(correct))
    suite = {"pixel": rc.attacks.SinglePixel(max_pixels=1)}
    options: dict[str, Any] = {"suite": suite, "n": 5, "repeats": 1, "progress": False}
    ev = rc.evaluate({"m": model}, given, labels, data_format=data_format, **options)
    assert ev.manifest["images"]["correct_by_all"] == correct.mean()
    np.testing.assert_array_equal(ev.results.clean, images[ev.dataset.image.values])
    result = suite["pixel"].attack(model, given[subset], labels[subset], data_format=data_format)
    assert result.adversarials.shape == (len(subset), *shape)

    name = saved(tmp_path / "a.npz", images=given, labels=labels, data_format=data_format)
    np.testing.assert_array_equal(rc.load_dataset(name).images, images)


def test_an_axis_of_channels_that_is_not_stated() -> None:
    images = np.zeros((2, 4, 4, 5), np.float32)
    with pytest.raises(UsageError, match='images have 4 × 4 pixels and 5 channels, state data_format="channels_last"'):
        rc.predict(linear(), images)
    with pytest.raises(UsageError, match="unknown data_format 'last': Expected one of channels_first, channels_last"):
        rc.predict(linear(), images, data_format="last")  # type: ignore[arg-type]


# values ---------------------------------------------------------------------------------------------------------------

WANTED = drawn()
BROUGHT: dict[str, tuple[Callable[[], Any], Callable[[], Any], str]] = {
    "8-bit images": (eight_bit, lambda: eight_bit() / 255, "images / 255"),
    "images as floats in (0, 255)": (
        lambda: eight_bit().astype(np.float32),
        lambda: eight_bit() / 255,
        "images / 255",
    ),
    "images in (-1, 1)": (lambda: 2 * drawn() - 1, drawn, "(images + 1) / 2"),
    "images that leave [0, 1] by rounding": (
        lambda: drawn() * np.float32(1.0005),
        lambda: np.clip(drawn() * np.float32(1.0005), 0, 1),
        "numpy.clip(images, 0, 1)",
    ),
    "grey images without an axis for the channel": (
        lambda: drawn(1)[..., 0],
        lambda: drawn(1),
        "images[..., None]",
    ),
    "a single image": (lambda: drawn()[0], lambda: drawn()[:1], "images[None]"),
    **{
        f"channels first, {count} of them": (
            lambda count=count: drawn(count).transpose(0, 3, 1, 2),  # type: ignore[misc]
            lambda count=count: drawn(count),  # type: ignore[misc]
            "images.transpose(0, 2, 3, 1)",
        )
        for count in (1, 2, 3, 4)
    },
}


@pytest.mark.parametrize(
    "what",
    [
        pytest.param(
            what, marks=brought(what=what, typed="rc.evaluate(models, images, labels)", got=f"the message: {made}")
        )
        for what, (_, _, made) in BROUGHT.items()
    ],
)
def test_images_with_the_expression_that_makes_them_usable(what: str) -> None:
    given, wanted, expression = BROUGHT[what]
    images = given()
    with pytest.raises(UsageError, match=re.escape(expression)):
        rc.evaluate({"m": linear()}, images, np.zeros(len(images), np.int64), suite="smoke", progress=False)
    made = eval(expression, {"images": images, "numpy": np})
    np.testing.assert_allclose(check_unit_images(made), wanted(), atol=1e-6)


# labels ---------------------------------------------------------------------------------------------------------------

LABELS = np.arange(N) % CLASSES
NAMES = ["cat", "dog", "owl"]
BROUGHT_LABELS: dict[str, tuple[Any, str]] = {
    "one-hot labels": (np.eye(CLASSES, dtype=np.float32)[LABELS], "labels.argmax(axis=1)"),
    "labels counted from 1": (LABELS + 1, "labels - 1"),
}


@pytest.mark.parametrize(
    "what",
    [
        pytest.param(
            what, marks=brought(what=what, typed="rc.evaluate(models, images, labels)", got=f"the message: {made}")
        )
        for what, (_, made) in BROUGHT_LABELS.items()
    ],
)
def test_labels_with_the_expression_that_makes_them_usable(what: str) -> None:
    labels, expression = BROUGHT_LABELS[what]
    with pytest.raises(UsageError, match=re.escape(expression)):
        rc.evaluate({"m": linear()}, drawn(), labels, suite="smoke", progress=False)
    made = eval(expression, {"labels": labels})
    assert check_labels(made, N, CLASSES).tolist() == LABELS.tolist()


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ([0.5, 1, 2], r"whole numbers, .* received dtype float64$"),
        (["cat", "dog", "owl"], r"the places of classes in the model's output, received dtype <U3$"),
        ([0, 1, 3], r"from 0 to 2.*received 0 to 3$"),
        ([-1, 0, 1], r"received -1 to 1$"),
        ([[0.9, 0.1, 0]] * 3, r"received \(3, 3\)$"),
        (iter([0, 1, 2]), r"received list_iterator. Make an array of it"),
        ([[0], [1, 2], [3]], r"received a list that NumPy cannot take"),
    ],
)
def test_labels_for_which_no_expression_is_known(labels: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        check_labels(labels, 3, CLASSES)


# what is no array -----------------------------------------------------------------------------------------------------


GIVEN: dict[str, tuple[Callable[[], Any], str]] = {
    "a generator": (lambda: (image for image in drawn()), "received generator. Make an array of it"),
    "a table": (lambda: {"images": 1}, "received dict"),
    "several sizes": (
        lambda: [np.zeros((3, 3, 1)), np.zeros((4, 3, 1))],
        "received a list that NumPy cannot take",
    ),
    "a number": (lambda: 50, "received the number 50. To attack so many of the images, pass n=50"),
    "pictures": (lambda: [Image.fromarray(image) for image in eight_bit()], "images / 255"),
}


@pytest.mark.parametrize("what", GIVEN)
def test_images_that_are_no_array(what: str) -> None:
    make, message = GIVEN[what]
    with pytest.raises(UsageError, match=re.escape(message)):
        rc.evaluate({"m": linear()}, make(), LABELS, suite="smoke", progress=False)


# archives and folders -------------------------------------------------------------------------------------------------


def saved(path: Path, compressed: bool = False, **content: Any) -> str:
    (np.savez_compressed if compressed else np.savez)(path, **content)
    return f"npz:{path}"


@pytest.mark.parametrize("compressed", [False, True])
@pytest.mark.parametrize("keys", [("images", "labels"), ("x_test", "y_test")])
def test_an_archive(keys: tuple[str, str], compressed: bool, tmp_path: Path) -> None:
    images, labels = keys
    name = saved(tmp_path / "a.npz", compressed, **{images: eight_bit(), labels: LABELS.astype(np.uint8)})
    data = rc.load_dataset(name)
    assert repr(data) == f"Dataset(name='npz:a.npz', split='test', images={(N, HEIGHT, WIDTH, 3)}, classes=3)"
    np.testing.assert_array_equal(data.images, np.divide(eight_bit(), 255, dtype=np.float32))
    assert data.labels.dtype == np.int64
    np.testing.assert_array_equal(data.labels, LABELS)
    as_floats = saved(tmp_path / "b.npz", images=data.images, labels=LABELS)
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
        rc.load_dataset(saved(tmp_path / "a.npz", **content))
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


def folder(path: Path, pixels: NDArray[np.uint8] | None = None, ending: str = "png") -> Path:
    for place, (image, label) in enumerate(zip(eight_bit() if pixels is None else pixels, LABELS, strict=False)):
        (path / NAMES[label]).mkdir(parents=True, exist_ok=True)
        Image.fromarray(image[..., 0] if image.shape[-1] == 1 else image).save(
            path / NAMES[label] / f"{place:03}.{ending}"
        )
    return path


@pytest.mark.parametrize(
    "channels",
    [
        pytest.param(
            channels,
            marks=brought(
                what=f"a folder of images, {kind}, a subfolder for each class",
                typed='rc.load_dataset("folder:DIR")',
                got="a dataset, the classes in the order of their names",
            ),
        )
        for channels, kind in ((1, "grey"), (3, "RGB"), (4, "RGB with alpha"))
    ],
)
def test_a_folder(channels: int, tmp_path: Path) -> None:
    path = folder(tmp_path / "pets", eight_bit(channels))
    (path / "zebra").mkdir()  # a class that is missing
    for beside in ("readme.txt", "cat/notes.txt", "cat/.hidden.png"):
        (path / beside).write_text("no image")
    data = rc.load_dataset(f"folder:{path}")
    assert (data.name, data.classes, data.class_names) == ("folder:pets", 4, ("cat", "dog", "owl", "zebra"))
    order = np.argsort(LABELS, kind="stable")
    np.testing.assert_array_equal(data.images, np.divide(eight_bit(channels)[order], 255, dtype=np.float32))
    np.testing.assert_array_equal(data.labels, LABELS[order])
    assert data.images.flags.c_contiguous


@brought(
    what="the folders of torchvision's ImageFolder, train and test",
    typed='rc.load_dataset("folder:DIR", split="train")',
    got="the images in the order of ImageFolder",
)
def test_the_splits_of_a_folder(tmp_path: Path) -> None:
    folder(tmp_path / "pets" / "train", eight_bit(3, 12))
    folder(tmp_path / "pets" / "test", eight_bit(3, 6))
    data = {split: rc.load_dataset(f"folder:{tmp_path / 'pets'}", split) for split in ("train", "test")}
    assert {split: len(each.images) for split, each in data.items()} == {"train": 12, "test": 6}
    assert data["test"].name == "folder:pets"
    try:
        from torchvision.datasets import ImageFolder
    except (ImportError, RuntimeError):  # it ends in a RuntimeError beside a torch that was built otherwise
        names = sorted(str(path) for path in (tmp_path / "pets" / "train" / "cat").glob("*.png"))
        pictures = [np.asarray(Image.open(path)) for path in names]
    else:
        pictures = [np.asarray(image) for image, label in ImageFolder(tmp_path / "pets" / "train") if label == 0]
    np.testing.assert_allclose(data["train"].images[:4], np.stack(pictures) / 255, atol=1e-6)
    (tmp_path / "pets" / "test").rename(tmp_path / "pets" / "val")
    with pytest.raises(DataError, match=r"should have one subfolder test, received train, val.*folder:"):
        rc.load_dataset(f"folder:{tmp_path / 'pets'}")


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
        (["Test", "testing", "train"], "should have one subfolder test, received Test, testing, train"),
        (["train", "test", "more"], "should hold the images of a class, received the folder cat in it"),
        (["data/train"], "should hold the images of a class, received the folder train in it"),
    ],
)
def test_folders_of_splits_that_are_not_clear(names: list[str], text: str, tmp_path: Path) -> None:
    for name in names:
        folder(tmp_path / name, eight_bit(3, 6))
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
    path = folder(tmp_path / "pets")
    (path / "dog" / "001.png").rename(path / "cat" / "001.png")
    spoil, text = FOLDERS[what]
    spoil(path / "cat" / "001.png")
    with pytest.raises(DataError, match=text):
        rc.load_dataset(f"folder:{path}")


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


# commands -------------------------------------------------------------------------------------------------------------


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with two networks, a suite and the dataset in both forms; labels are those of one network."""
    pytest.importorskip("torch")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    module = f"nets_{tmp_path.name.replace('-', '_')}"
    (tmp_path / f"{module}.py").write_text(
        "import torch\n\n\ndef mine():\n    torch.manual_seed(1)\n"
        f"    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear({3 * HEIGHT * WIDTH}, 3)).eval()\n"
    )
    (tmp_path / "suite.toml").write_text(SUITE)
    labels = rc.predict(rc.wrap(import_module(module).mine(), device="cpu"), (eight_bit() / 255).astype(np.float32))
    saved(tmp_path / "pets.npz", images=eight_bit(), labels=labels)
    for name in NAMES:
        (tmp_path / "pets" / name).mkdir(parents=True)
    for place, (image, label) in enumerate(zip(eight_bit(), labels, strict=True)):
        Image.fromarray(image).save(tmp_path / "pets" / NAMES[label] / f"{place:03}.png")
    return tmp_path


def asked(here: Path, dataset: str, *more: str) -> list[str]:
    (module,) = (path.stem for path in here.glob("nets_*.py"))
    return ["--weights", f"torch={module}:mine", "--dataset", dataset, "--suite", "suite.toml", *more]


@pytest.mark.parametrize(
    "dataset",
    [
        pytest.param(
            f"{kind}:pets{ending}",
            marks=brought(
                what=what, typed=f"robustcmp eval --weights torch=nets:mine --dataset {kind}:{path}", got="a comparison"
            ),
        )
        for kind, ending, path, what in (
            ("npz", ".npz", "FILE", "a NumPy archive with images and labels"),
            ("folder", "", "DIR", "a folder of images in the command"),
        )
    ],
)
def test_the_command(dataset: str, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(asked(here, dataset, "--json")) == 0
    out, err = capsys.readouterr()
    found = json.loads(out)
    name = dataset.replace(":", "-")
    assert (found["dataset"], found["images"], found["correct_by_all"]) == (dataset, N, 1)
    assert re.search(rf"^{dataset}: 30 images of 6 × 9 × 3, 3 classes", err, re.MULTILINE)
    assert ("0 cat, 1 dog, 2 owl" in err) == (dataset == "folder:pets")
    assert found["out"].startswith("runs/")
    assert name in found["out"]
    assert str(here) not in (here / found["out"] / "manifest.json").read_text()
    assert all(rates["fgsm"] > 0 for rates in rc.open_run(found["out"]).results.rates().values())


@brought(
    what="a model of the zoo on a NumPy archive or a folder",
    typed="robustcmp eval --model lenet5 --dataset npz:FILE",
    got="the message: name networks of your own with --weights, or call robustcmp.evaluate",
)
@pytest.mark.parametrize("dataset", ["npz:pets.npz", "folder:pets"])
def test_models_of_the_zoo_have_datasets_by_name(dataset: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["--model", "lenet5", "--dataset", dataset]) == 2
    assert re.search(rf"received {dataset}.*--weights.*--dataset", capsys.readouterr().err, re.DOTALL)
    for load in (rc.load_model, rc.fit):
        with pytest.raises(UsageError, match=rf"received {dataset}"):
            load("lenet5", framework="torch", dataset=dataset)


# more images than fit into the memory ---------------------------------------------------------------------------------


@brought(
    what="more images than fit into memory, in a file of float32",
    typed='rc.evaluate(models, numpy.load("images.npy", mmap_mode="r"), labels)',
    got="a comparison; 16 MiB of them are in memory at once",
)
def test_images_in_a_file_are_not_held(tmp_path: Path) -> None:
    count, side = 4096, 96
    path = tmp_path / "images.npy"
    mapped = np.lib.format.open_memmap(path, "w+", np.float32, (count, side, side, 1))  # 151 MB
    mapped[:, 0, 0, 0] = np.arange(count) / count
    del mapped
    model = rc.wrap_functions(logits=lambda x: np.stack([x[:, 0, 0, 0] - x[:, 1, 1, 0], x[:, 1, 1, 0] - 0.1], axis=1))
    suite = {"a": rc.attacks.SinglePixel(max_pixels=2)}
    tracemalloc.start()
    try:
        images = np.load(path, mmap_mode="r")
        options: dict[str, Any] = {"suite": suite, "n": 8, "batch_size": 64, "progress": False}
        ev = rc.evaluate({"m": model}, images, np.zeros(count, np.int64), **options)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 60e6 < 150e6 < images.nbytes
    np.testing.assert_array_equal(ev.results.clean, images[ev.dataset.image.values])


def test_what_does_not_fit_into_memory_is_said_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = saved(tmp_path / "a.npz", images=eight_bit(), labels=LABELS)
    path = folder(tmp_path / "pets")
    monkeypatch.setattr(limits, "memory", lambda: 6000)
    for dataset in (name, f"folder:{path}"):
        with pytest.raises(OutOfMemoryError, match=r"GiB.*numpy\.load"):
            rc.load_dataset(dataset)


@brought(
    what="images normalised by mean and standard deviation",
    typed="rc.evaluate(models, images, labels)",
    got="the message: pass them as they were before, and mean and standard deviation to rc.wrap(…, preprocessing=…)",
)
def test_normalised_images(tmp_path: Path) -> None:
    mean, std = np.float32([0.5, 0.4, 0.3]), np.float32([0.2, 0.25, 0.3])
    normalised = (drawn() - mean) / std
    with pytest.raises(UsageError, match=r"normalised images are passed as they were before.*preprocessing="):
        rc.evaluate({"m": linear()}, normalised, np.zeros(N, np.int64), suite="smoke", progress=False)
    torch = pytest.importorskip("torch")
    native = in_torch(3).native
    expected = native(torch.tensor(normalised.transpose(0, 3, 1, 2))).argmax(1).numpy()
    model = rc.wrap(native, preprocessing={"mean": mean.tolist(), "std": std.tolist(), "axis": -3}, device="cpu")
    np.testing.assert_array_equal(rc.predict(model, drawn()), expected)
    assert evaluated({"m": model}, drawn(), expected, tmp_path).results.rates()["m"]["fgsm"] > 0


@pytest.mark.parametrize("lacking", ["train", "test"])
def test_a_class_has_one_number_in_all_splits(lacking: str, tmp_path: Path) -> None:
    for split in ("train", "test"):
        folder(tmp_path / split, eight_bit(3, 12))
    shutil.rmtree(tmp_path / lacking / "cat")
    for split in ("train", "test"):
        data = rc.load_dataset(f"folder:{tmp_path}", split)
        assert (data.classes, data.class_names) == (3, ("cat", "dog", "owl"))
        assert set(data.labels) == ({1, 2} if split == lacking else {0, 1, 2})
    assert rc.load_dataset(f"folder:{tmp_path / lacking}").class_names == ("dog", "owl")  # named by itself

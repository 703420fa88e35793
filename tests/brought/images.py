"""Images and labels that people bring: a comparison, or a message that says which expression makes them usable."""

from __future__ import annotations

import re
import tracemalloc
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

import robustcmp as rc
from brought import Case, Figures, library
from robustcmp.data.arrays import check_labels, check_unit_images
from robustcmp.models.model import Model

N, HEIGHT, WIDTH, CLASSES = 30, 6, 9, 3
NAMES = ["cat", "dog", "owl"]
LABELS = np.arange(N) % CLASSES
Images = NDArray[np.float32]


def drawn(channels: int = 3, n: int = N) -> Images:
    return np.random.default_rng(0).random((n, HEIGHT, WIDTH, channels), dtype=np.float32)


def eight_bit(channels: int = 3, n: int = N) -> NDArray[np.uint8]:
    pixels = np.random.default_rng(0).integers(0, 256, (n, HEIGHT, WIDTH, channels), np.uint8)
    pixels[0, 0, 0], pixels[0, 0, 1] = 0, 255
    return pixels


def as_floats(pixels: NDArray[np.uint8]) -> Images:
    return np.divide(pixels, 255, dtype=np.float32)


def kernel(channels: int = 3) -> NDArray[np.float64]:
    """The weights of a linear network, (H·W·C, K): every logit is 0 for a grey image."""
    weights = np.random.default_rng(1).normal(size=(HEIGHT * WIDTH * channels, CLASSES))
    return weights - weights.mean(axis=0)


def logits(x: NDArray[Any]) -> NDArray[np.float64]:
    answer: NDArray[np.float64] = x.reshape(len(x), -1).astype(np.float64) @ kernel(x.shape[-1])
    return answer


def linear() -> Model:
    return rc.wrap_functions(logits=logits, vjp=lambda x, v: (v @ kernel(x.shape[-1]).T).reshape(x.shape))


def in_torch(channels: int) -> Model:
    torch = library("torch")
    layer = torch.nn.Linear(HEIGHT * WIDTH * channels, CLASSES)
    rows = kernel(channels).reshape(HEIGHT, WIDTH, channels, CLASSES).transpose(3, 2, 0, 1).reshape(CLASSES, -1)
    layer.load_state_dict({"weight": torch.tensor(rows), "bias": torch.zeros(CLASSES)})
    return rc.wrap(torch.nn.Sequential(torch.nn.Flatten(), layer).eval(), device="cpu")


def save_archive(path: Path, compressed: bool = False, **content: Any) -> str:
    """Write an archive of NumPy; return its name as a dataset."""
    (np.savez_compressed if compressed else np.savez)(path, **content)
    return f"npz:{path}"


def save_folder(path: Path, pixels: NDArray[np.uint8] | None = None, labels: Any = LABELS) -> Path:
    """Write a folder of images with a subfolder for each class."""
    for index, (image, label) in enumerate(zip(eight_bit() if pixels is None else pixels, labels, strict=False)):
        (path / NAMES[label]).mkdir(parents=True, exist_ok=True)
        Image.fromarray(image[..., 0] if image.shape[-1] == 1 else image).save(path / NAMES[label] / f"{index:03}.png")
    return path


# what works -----------------------------------------------------------------------------------------------------------


def compare_channels(images: Images, case: Case) -> Figures:
    """Compare the same network in two frameworks: a transposed axis would be another one."""
    suite = {"fgsm": rc.attacks.FGSM(epsilons=10, max_epsilon=0.5), "pixel": rc.attacks.SinglePixel(max_pixels=20)}
    models = {"torch": in_torch(images.shape[-1]), "numpy": linear()}
    labels = logits(images).argmax(axis=1)
    ev = rc.evaluate(models, images, labels, suite=suite, n=N, repeats=1, progress=False)
    rates = ev.results.rates()
    assert rates["numpy"]["fgsm"] > 0.9
    assert rates["numpy"]["pixel"] > 0
    yield [*rates["torch"].values()], [*rates["numpy"].values()]
    if "the page draws" in case.what:
        ev.to_html("page.html")
        assert "data:image/png" in Path("page.html").read_text()


def bring_folder(channels: int) -> Any:
    path = save_folder(Path("pets"), eight_bit(channels))
    (path / "zebra").mkdir()  # a class that is missing
    for name in ("readme.txt", "cat/notes.txt", "cat/.hidden.png"):
        (path / name).write_text("no image")
    data = rc.load_dataset("folder:pets")
    assert (data.name, data.classes, data.class_names) == ("folder:pets", 4, ("cat", "dog", "owl", "zebra"))
    assert data.images.flags.c_contiguous
    order = np.argsort(LABELS, kind="stable")
    return (data.images, as_floats(eight_bit(channels)[order])), (data.labels, LABELS[order])


def bring_splits() -> Any:
    for split, count in (("train", 12), ("test", 6)):
        save_folder(Path("pets", split), eight_bit(3, count))
    train, test = (rc.load_dataset("folder:pets", split) for split in ("train", "test"))
    assert (test.name, len(test.images)) == ("folder:pets", 6)
    brought = library("torchvision.datasets").ImageFolder("pets/train")
    return (train.images, as_floats(np.stack([image for image, _ in brought]))), (train.labels, brought.targets)


def bring_large_file() -> Any:
    count, side = 4096, 96
    mapped = np.lib.format.open_memmap(Path("images.npy"), "w+", np.float32, (count, side, side, 1))  # 151 MB
    mapped[:, 0, 0, 0] = np.arange(count) / count
    del mapped
    model = rc.wrap_functions(logits=lambda x: np.stack([x[:, 0, 0, 0] - x[:, 1, 1, 0], x[:, 1, 1, 0] - 0.1], axis=1))
    suite = {"a": rc.attacks.SinglePixel(max_pixels=2)}
    labels = np.zeros(count, np.int64)
    tracemalloc.start()
    try:
        images = np.load("images.npy", mmap_mode="r")
        ev = rc.evaluate({"m": model}, images, labels, suite=suite, n=8, batch_size=64, progress=False)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 60e6 < 150e6 < images.nbytes
    return ((ev.results.clean, images[ev.dataset.image.values]),)


# messages -------------------------------------------------------------------------------------------------------------


def refuse(images: Any, labels: Any) -> None:
    rc.evaluate({"m": linear()}, images, labels, suite="smoke", progress=False)


def refuse_images(make: Callable[[], Any], plain: Callable[[], Any], expression: str) -> None:
    """See that the expression makes images usable, and bring them without it."""
    images = make()
    made = eval(expression, {"images": images, "numpy": np})
    np.testing.assert_allclose(check_unit_images(made), plain(), atol=1e-6)
    refuse(images, np.zeros(len(images), np.int64))


def refuse_labels(labels: Any, expression: str) -> None:
    made = eval(expression, {"labels": labels})
    assert check_labels(made, N, CLASSES).tolist() == LABELS.tolist()
    refuse(drawn(), labels)


def refuse_zoo() -> None:
    rc.load_model(
        "lenet5", framework="torch", dataset=save_archive(Path("pets.npz"), images=eight_bit(), labels=LABELS)
    )


def slightly_more() -> Images:
    return drawn() * np.float32(1.0005)


WITH_AN_EXPRESSION: list[tuple[str, Callable[[], Any], Callable[[], Any], str]] = [
    ("8-bit images", eight_bit, lambda: eight_bit() / 255, "images / 255"),
    (
        "images as floats in (0, 255)",
        lambda: eight_bit().astype(np.float32),
        lambda: eight_bit() / 255,
        "images / 255",
    ),
    ("images in (-1, 1)", lambda: 2 * drawn() - 1, drawn, "(images + 1) / 2"),
    (
        "images that leave [0, 1] by rounding",
        slightly_more,
        lambda: slightly_more().clip(0, 1),
        "numpy.clip(images, 0, 1)",
    ),
    ("grey images without an axis for the channel", lambda: drawn(1)[..., 0], lambda: drawn(1), "images[..., None]"),
    ("a single image", lambda: drawn()[0], lambda: drawn()[:1], "images[None]"),
    *(
        (
            f"channels first, {count} of them",
            lambda count=count: drawn(count).transpose(0, 3, 1, 2),  # type: ignore[misc]
            partial(drawn, count),
            "images.transpose(0, 2, 3, 1)",
        )
        for count in (1, 2, 3, 4)
    ),
]

Brought = partial(Case, "Images and labels")
Array = partial(Brought, typed="rc.evaluate(models, images, labels)")
CASES = [
    *(
        Array(what, make=partial(drawn, channels), figures=compare_channels, near=0.04)
        for channels, what in enumerate(
            (
                "images of 1 channel, not square",
                "images of 2 channels; the page draws their mean",
                "images of 3 channels",
                "images of 4 channels; the page draws the first three",
            ),
            start=1,
        )
    ),
    *(
        Brought(
            f"a folder of images, {kind}, a subfolder for each class",
            'rc.load_dataset("folder:DIR")',
            partial(bring_folder, channels),
            "a dataset, the classes in the order of their names",
        )
        for channels, kind in ((1, "grey"), (3, "RGB"), (4, "RGB with alpha"))
    ),
    Brought(
        "the folders of torchvision's ImageFolder, train and test",
        'rc.load_dataset("folder:DIR", split="train")',
        bring_splits,
        "the images in the order of ImageFolder",
    ),
    Brought(
        "more images than fit into memory, in a file of float32",
        'rc.evaluate(models, numpy.load("images.npy", mmap_mode="r"), labels)',
        bring_large_file,
        "a comparison; 16 MiB of them are in memory at once",
    ),
    *(
        Array(
            what,
            make=partial(refuse_images, make, plain, expression),
            got=f"the message: {expression}",
            message=re.escape(expression),
        )
        for what, make, plain, expression in WITH_AN_EXPRESSION
    ),
    *(
        Array(
            what,
            make=partial(refuse_labels, labels, expression),
            got=f"the message: {expression}",
            message=re.escape(expression),
        )
        for what, labels, expression in (
            ("one-hot labels", np.eye(CLASSES, dtype=np.float32)[LABELS], "labels.argmax(axis=1)"),
            ("labels counted from 1", LABELS + 1, "labels - 1"),
        )
    ),
    Array(
        "images normalised by mean and standard deviation",
        make=lambda: refuse((drawn() - [0.5, 0.4, 0.3]) / [0.2, 0.25, 0.3], LABELS),
        got="the message: pass them as they were before, and mean and standard deviation to "
        "rc.wrap(…, preprocessing=…)",
        message=r"normalised images are passed as they were before.*preprocessing=",
    ),
    Brought(
        "a model of the zoo on a NumPy archive or a folder",
        "robustcmp eval --model lenet5 --dataset npz:FILE",
        refuse_zoo,
        "the message: name networks of your own with --weights, or call robustcmp.evaluate",
        "received npz:pets.npz",
    ),
]

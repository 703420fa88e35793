"""What the tests of single runtimes share: trained networks, and how a deployed one compares with its source."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray

import robustcmp as rc
from robustcmp.deployments.base import Runtime
from robustcmp.deployments.sessions import Session
from robustcmp.errors import RobustcmpError
from robustcmp.files import user_cache
from robustcmp.models.model import Model

IMAGES = 100
CACHE = user_cache().resolve()  # read before `own_cache` hides it


class Source(NamedTuple):
    """A trained network of the zoo."""

    model: str
    dataset: str
    framework: str = "torch"

    def __str__(self) -> str:
        return "-".join(self)


SOURCES = [Source("lenet5", "digits"), Source("resnet20", "cifar10")]
SLOW_SOURCES = [SOURCES[0], pytest.param(SOURCES[1], marks=pytest.mark.slow)]


def asked(source: Source, n: int = IMAGES) -> tuple[Model, NDArray[np.float32]]:
    """Return a trained network and images to ask it."""
    pytest.importorskip(source.framework)
    return rc.load_model(source.model, framework=source.framework, dataset=source.dataset), images(source, "test", n)


def calibration(source: Source, n: int = IMAGES) -> NDArray[np.float32]:
    """Return images that a source was trained on."""
    return images(source, "train", n)


def images(source: Source, split: str, n: int) -> NDArray[np.float32]:
    try:
        return rc.load_dataset(source.dataset, split=split).images[:n]
    except RobustcmpError as error:
        pytest.skip(str(error))


def own_network() -> tuple[Model, NDArray[np.float32]]:
    """Return a wrapped torch module that robustcmp knows nothing of, and images."""
    torch = pytest.importorskip("torch")

    class Own(torch.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.conv = torch.nn.Conv2d(3, 8, 3, padding=1)
            self.dense = torch.nn.Linear(8, 5)

        def forward(self, x: Any) -> Any:
            return self.dense(torch.nn.functional.silu(self.conv(x)).mean((2, 3)))

    with torch.random.fork_rng():
        torch.manual_seed(0)
        network = Own().eval()
    images = np.random.default_rng(0).random((20, 6, 7, 3), np.float32)
    return rc.wrap(network), images


def converted(runtime: Runtime, model: Model, kind: str, images: Any, folder: Path) -> Session:
    folder.mkdir(exist_ok=True)
    path = folder / f"network{runtime.suffix}"
    runtime.convert(model, kind, images, path)
    return runtime.load(path)


def logits(model: Model, images: NDArray[np.float32]) -> NDArray[np.float32]:
    """What the source itself says, by its framework."""
    from robustcmp.models.classifier import Classifier

    return Classifier(model, 64).logits(images)


def distance(model: Model, session: Session, images: NDArray[np.float32]) -> float:
    """The largest difference of a logit, in parts of their spread."""
    expected = logits(model, images)
    return float(np.abs(session(images) - expected).max() / np.ptp(expected))


def changed(model: Model, session: Session, images: NDArray[np.float32]) -> int:
    """How many images are in another class."""
    return int((session(images).argmax(1) != logits(model, images).argmax(1)).sum())


def check_agreement(model: Model, session: Session, images: NDArray[np.float32]) -> None:
    assert session.layout.shape == images.shape[1:]
    assert session(images).dtype == np.float32
    assert distance(model, session, images) < 1e-4
    assert changed(model, session, images) == 0


def check_independence(session: Session, images: NDArray[np.float32], rounding: float = 0.0) -> None:
    """No image's answer depends on the others of its batch: in no bit, or within a share of the largest logit."""
    together = session(images)
    within = rounding * float(np.abs(together).max())
    for size in (1, 3, 37):
        parts = [session(images[first : first + size]) for first in range(0, len(images), size)]
        np.testing.assert_allclose(np.concatenate(parts), together, rtol=0, atol=within)
    assert session(images[:0]).shape == (0, together.shape[1])


def check_threads(session: Session, images: NDArray[np.float32]) -> None:
    """Several threads get the answers that one gets."""
    expected = session(images)
    with ThreadPoolExecutor(4) as pool:
        for answer in pool.map(session, [images] * 16):
            np.testing.assert_array_equal(answer, expected)


def shared_cache(paths: pytest.TempPathFactory) -> Path:
    """Return a user cache for the conversions of all tests and processes, with what the user's has of npm."""
    base = paths.getbasetemp()
    shared = (base.parent if base.name.startswith("popen-") else base) / "shared-cache"
    shared.mkdir(exist_ok=True)
    (CACHE / "npm").mkdir(parents=True, exist_ok=True)
    with suppress(FileExistsError):
        (shared / "npm").symlink_to(CACHE / "npm")
    return shared

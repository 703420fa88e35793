"""Deployed networks behind Foolbox's `Model`."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..errors import DeploymentError, ModelError
from ..files import file_digest
from ..frameworks.base import Device, Function
from ..frameworks.numpy import NumPy
from ..models.classifier import Classifier
from ..models.model import FunctionsModel, Model
from ..models.preflight import DEPENDENCE
from .base import Runtime
from .sessions import Session

PROBES = 8  # images
SIDE = 32  # of random images, where any size is taken
SUMS = 0.05  # how far probabilities that were rounded to 8 bits may be from 1 in all
ROUNDED = 1e-4  # of probabilities whose sum is farther from 1


class RuntimeAdapter(NumPy):
    """A runtime as a framework without training."""

    def __init__(self, name: str, runtime: Runtime):
        self.name = name
        self.runtime = runtime

    def version(self) -> str:
        return self.runtime.version()

    def forward(self, function: Function, like: Any, *arrays: NDArray[Any]) -> NDArray[np.float32]:
        """Ask without copies: a runtime reads images without changing them, and what it answers is its own."""
        return np.asarray(function(*map(np.ascontiguousarray, arrays)))

    def parameters(self, native: Any) -> list[NDArray[Any]] | None:
        return [np.frombuffer(bytes.fromhex(native.files.sha256), np.uint8)]

    def place(self, native: Any, device: Device) -> tuple[Function, NDArray[Any]]:
        return native, np.zeros(0, np.float32)


class Files(NamedTuple):
    """The files of a deployed network.

    Attributes
    ----------
    main : Path
        The one that is opened.
    bytes : int
        How large they are together.
    sha256 : str
        Of all of them.
    """

    main: Path
    bytes: int
    sha256: str

    @classmethod
    def of(cls, main: Path, beside: Sequence[Path] = ()) -> Files:
        """Return a file with the files that belong to it."""
        paths = [main, *sorted(beside)]
        digests = "".join(file_digest(path) for path in paths)
        sha = digests if len(paths) == 1 else hashlib.sha256(digests.encode()).hexdigest()
        return cls(main, sum(path.stat().st_size for path in paths), sha)


class DeployedNetwork:
    """A network in a runtime, as a function of images (N, H, W, C).

    Attributes
    ----------
    adapter : RuntimeAdapter
        Its runtime.
    files : Files
        Where it is.
    alone : bool
        Whether its answers depend on the other images of a batch, so that each image is asked alone.
    outputs : str
        ``"logits"`` or ``"probabilities"``, told from its answers.
    notes : list of str
        What is done to images and answers.

    Parameters
    ----------
    bounds : tuple of float, optional
        Of images that are scaled to those of the session; by default they are not.
    """

    def __init__(
        self, adapter: RuntimeAdapter, files: Files, session: Session, bounds: tuple[float, float] | None = None
    ):
        self.adapter = adapter
        self.files = files
        self._session = session
        lower, upper = bounds or session.bounds  # a session's own begin at 0
        self._scaled = (lower, upper) != session.bounds
        self._lower = np.float32(lower)
        self._scale = np.float32(session.bounds[1] / (upper - lower))
        self.alone = False
        self.outputs = "logits"
        self._rounded = False
        self.notes = list(session.notes)
        self._probe(session.bounds[1])

    def _probe(self, largest: float) -> None:
        """Ask about random images: what kind of numbers come out, and whether a batch changes them."""
        shape = (*self._session.layout.shape, 1, 1)[:3]  # also of a row of values
        drawn = np.random.default_rng(0).random((PROBES, *(size or SIDE for size in shape)), np.float32)
        images = np.float32(largest) * drawn
        together = self._ask(images)
        answers = [self._ask(images[i : i + 1]) for i in range(PROBES)]
        if together.ndim != 2 or {(PROBES, *answer.shape[1:]) for answer in answers} != {together.shape}:
            raise DeploymentError(
                f"{self.files.main} should return {PROBES} rows of numbers for {PROBES} images, received the shapes "
                f"{together.shape} for all at once and {answers[0].shape} for one"
            )
        one_by_one = np.concatenate(answers)
        if np.abs(together - one_by_one).max() > DEPENDENCE * np.abs(together).max():
            self.alone = True
            self.notes.insert(0, "its answers depend on the other images of a batch, so each image is asked alone")
        in_unit = (one_by_one >= 0).all() and (one_by_one <= 1).all()
        off = np.abs(one_by_one.sum(axis=1) - 1).max()
        if in_unit and one_by_one.shape[1] > 1 and off < SUMS:
            self.outputs = "probabilities"
            self.notes.append("it ends with a softmax: the logarithm of its probabilities stands for logits")
            if off > ROUNDED:
                self._rounded = True
                self.notes.append("its probabilities are rounded, so they are divided by their sum")

    def _ask(self, images: NDArray[np.float32]) -> NDArray[np.float32]:
        shape = images.shape[1:]
        layout = self._session.layout
        if not layout.for_images(shape).fits(shape):  # 0 stands for any size
            takes = f"{layout.shape[0]} values an image" if layout.order == "flat" else f"images {layout.shape}"
            raise DeploymentError(
                f"{self.files.main} takes {takes}, received images {shape}. Compare it on the data set that it was "
                "trained for."
            )
        answer = self._session(images)
        return answer.reshape(len(images), -1) if answer.ndim in (1, 4) and len(answer) == len(images) else answer

    def __call__(self, images: NDArray[np.float32]) -> NDArray[np.float32]:
        if self._scaled:
            images = (images - self._lower) * self._scale
        if not self.alone:
            answers = self._ask(images)
        else:
            answers = np.concatenate([self._ask(images[i : i + 1]) for i in range(len(images))])
        if self._rounded:
            answers = answers / np.maximum(answers.sum(axis=1, keepdims=True), np.finfo(np.float32).tiny)
        return answers


class DeployedModel(FunctionsModel):
    """A deployed network as a Foolbox model, from `deploy`, or from a file of a runtime.

    Attributes
    ----------
    source : Model or None
        The trained model that it was converted from, where FGSM may take the gradient of that one.
    """

    def __init__(
        self,
        network: DeployedNetwork,
        *,
        bounds: tuple[float, float] = (0, 1),
        preprocessing: dict[str, Any] | None = None,
        source: Model | None = None,
        info: dict[str, Any] | None = None,
    ):
        super().__init__(
            network,
            None,
            network.adapter.name,
            bounds,
            np.zeros(0, np.float32),
            "channels_last",
            preprocessing=preprocessing,
            outputs=network.outputs,
            info=info,
            native=network,
        )
        self.source = source

    @property
    def no_gradient(self) -> str:
        if self.source is None:  # a file from elsewhere
            return (
                f"{self.framework} has no gradient, and the trained model behind this file is not known. To attack it "
                "with one, convert the trained model itself: robustcmp.deploy, or --deploy."
            )
        return (
            f"{self.framework} has no gradient. FGSM can take that of the model it was converted from; "
            'robustcmp.wrap_functions(..., vjp="finite-differences") asks the deployed network itself.'
        )

    def gradient_source(self, bounds: tuple[float, float]) -> Classifier | None:
        """Return the model whose gradient attacks take, for images within some bounds, None if there is none."""
        if self.source is None:
            return None
        same = tuple(self.source.bounds) == tuple(bounds)
        return Classifier(self.source if same else self.source.transform_bounds(bounds))


def channels_last(source: Model) -> dict[str, Any]:
    """Return how a model was wrapped, its bounds and preprocessing, for images (N, H, W, C)."""
    bounds, preprocessing = source.wrapped_as
    settings = dict(preprocessing)
    if source.data_format == "channels_first":
        moved = {-3: -1, -2: -3, -1: -2}
        for name in ("axis", "flip_axis"):
            if settings.get(name) is not None:
                axis = settings[name] if settings[name] < 0 else settings[name] - 4
                if axis not in moved:
                    raise ModelError(f"{name}={settings[name]} is not an axis of one image (C, H, W)")
                settings[name] = moved[axis]
    return {"bounds": bounds, "preprocessing": settings or None}

"""The contract that every runtime fulfils: a program that answers with a network which was trained elsewhere.

A runtime reads files of its own kind and converts trained networks into them. It knows nothing of attacks, subsets or
runs. Images are (N, H, W, C) float32 within the network's bounds, whatever layout or number format the file has.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import ClassVar, Literal, NamedTuple

from ..data.arrays import Images
from ..errors import DeploymentError
from ..models.model import Model
from ..provenance import package_version
from .sessions import Session

Precision = Literal["float32", "float16", "int8"]
WRITTEN = "network"  # a converted file's name without its suffix, in the user cache


class Conversion(NamedTuple):
    """One way in which a runtime can be given a network.

    Attributes
    ----------
    precision : str
        What its weights are stored in.
    description : str
        What is done to the network, for tables and help.
    calibrated : bool
        Whether images are needed to choose the ranges of activations.
    """

    precision: Precision
    description: str
    calibrated: bool = False

    @property
    def is_exact(self) -> bool:
        """Whether the deployed network should answer as its source does, but for rounding in float32."""
        return self.precision == "float32"


class Runtime(ABC):
    """One program that answers with deployed networks.

    Attributes
    ----------
    name : str
        What it is called, as in ``--deploy NAME``.
    package : str
        What has to be installed to ask it.
    extra : str
        The extra of robustcmp that installs it, with what converts to it.
    suffix : str
        How its files end.
    more_suffixes : tuple of str
        How files of other kinds end that it opens, too.
    conversions : dict of str to Conversion
        By what stands behind its name: nothing, or a kind such as ``"int8"``.
    converters : tuple of str
        The packages that have a part in what a converted file is, besides `package`.
    can_crash : bool
        Whether a crafted file can crash it in this process, so that files from elsewhere are first tried in another;
        not where it runs in another anyway.
    """

    name: ClassVar[str]
    package: ClassVar[str]
    extra: ClassVar[str]
    suffix: ClassVar[str]
    more_suffixes: ClassVar[tuple[str, ...]] = ()
    conversions: ClassVar[Mapping[str, Conversion]]
    converters: ClassVar[tuple[str, ...]] = ()
    can_crash: ClassVar[bool] = True

    @property
    def suffixes(self) -> tuple[str, ...]:
        """How the files end that it opens."""
        return (self.suffix, *self.more_suffixes)

    def conversion(self, kind: str) -> Conversion | None:
        """Return the conversion of a kind, or None where there is none."""
        return self.conversions.get(kind)

    def version(self) -> str:
        """Return the version of the program."""
        return package_version(self.package) or "unknown"

    def explain_absence(self) -> str:
        """Say what is not here, and what to do; "" if nothing is missing. Nothing large is imported."""
        if package_version(self.package) is not None:
            return ""
        return f"{self.name} needs {self.package}, which is not installed: pip install 'robustcmp[{self.extra}]'"

    def beside(self, path: Path) -> list[Path]:
        """Return the files that hold a part of a network, beside its main file."""
        return []

    @property
    def versions(self) -> list[str | None]:
        """The versions of the program and of what converts for it."""
        return [self.version(), *map(package_version, self.converters)]

    @abstractmethod
    def convert(self, model: Model, kind: str, calibration: Images | None, path: Path) -> None:
        """Write a trained network as a file of this runtime.

        Parameters
        ----------
        model : Model
            One whose `architecture` is known, or with a `native` network of a framework that this runtime can
            convert.
        kind : str
            One of `conversions`.
        calibration : ndarray of float32, shape (N, H, W, C), or None
            Images as the network gets them, to choose the ranges of activations by. A calibrated conversion always has
            some; for others they may say the size of images.
        path : Path
            The file. Its folder exists.

        Raises
        ------
        DeploymentError
            The network has something that cannot be converted, or what converts it is not installed.
        """

    @abstractmethod
    def load(self, path: Path) -> Session:
        """Return a deployed network from a file, of whatever origin, without running anything of it but the network.

        Raises
        ------
        DeploymentError
            The file is broken, or its network takes something else than a batch of images, or gives something else
            than one row of numbers an image.
        """


def image_shape(model: Model, images: Images | None) -> tuple[int, ...]:
    """Return (H, W, C) of a model's images: as its design says, or as some images are that were passed.

    Raises
    ------
    DeploymentError
        Neither is known.
    """
    if model.architecture is not None:
        return model.architecture.input_shape
    if images is None:
        raise DeploymentError("the size of this network's images is not known: pass calibration images")
    return images.shape[1:]


@contextmanager
def deployment_errors(doing: str) -> Iterator[None]:
    """Raise `DeploymentError` for whatever a program raises inside a ``with`` block; `doing` is what failed."""
    try:
        yield
    except (DeploymentError, MemoryError):
        raise
    except Exception as error:  # of classes of its own, of several kinds
        raise DeploymentError(f"{doing}: {_first_line(error)}") from None


def _first_line(error: BaseException) -> str:
    """Return what an error of a program says in one line, where its own message has a whole page."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    # OpenVINO names the places in its source first.
    messages = [line for line in lines if not line.startswith(("Exception from ", "Check '"))] or lines
    return f"{type(error).__name__}: {messages[0][:300] if messages else 'no message'}"


def try_file(content: bytes) -> None:
    """Open a file and ask it about images of ones, in a process of its own: the content is its runtime and its path."""
    from pathlib import Path

    import numpy as np

    from robustcmp.deployments import runtime
    from robustcmp.errors import DeploymentError

    name, _, path = content.decode().partition("\n")
    try:
        session = runtime(name).load(Path(path))
        shape = [size or 32 for size in (*session.layout.shape, 1, 1)[:3]]
        for n in (3, 1):  # first another number than a file may have by itself
            session(np.ones((n, *shape), np.float32))
    except DeploymentError as error:
        raise ValueError(str(error).replace(path, "it")) from None

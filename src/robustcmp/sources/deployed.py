"""Deployed networks: a trained model and a conversion, or a file of a runtime.

They are loaded where the comparison is made, and do not travel to other processes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from ..data import is_own, load_dataset
from ..deployments import check_runtime, conversion, split
from ..deployments.deploy import SEMANTICS, beside, deploy, open_deployed
from ..deployments.model import DeployedModel, Files
from ..errors import DataError, ModelError, UsageError
from ..frameworks import Device
from ..models.model import Model
from ..untrusted import check_file
from .from_code import FromFunction
from .from_files import FromFile, check_ending, check_normalisation
from .from_zoo import FromZoo

CALIBRATION = 500  # images of the training set


class FromDeployedFile(msgspec.Struct, frozen=True, tag="deployed-file", dict=True):
    """A deployed network in a file of its runtime. It is opened where the comparison is made.

    Attributes
    ----------
    source : str
        The file.
    framework : str
        The runtime.
    converted_from : FromFile, optional
        The trained network that it is compared with, as converted from this one.
    mean, std : tuple of float
        It expects ``(images - mean) / std``, as in `FromFile`; if both are empty, what `converted_from` does to images.
    """

    source: str
    framework: str
    converted_from: FromFile | None = None
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()
    # Its layers are known to its runtime alone.
    design: ClassVar[None] = None
    name: ClassVar[str] = "own"

    @property
    def label(self) -> str:
        """What it is called in a comparison that gives it no name: as its runtime."""
        return self.framework

    @property
    def as_given(self) -> FromFile | FromDeployedFile | None:
        """What says how images are normalised: itself, or what it was converted from; None if nothing does."""
        return self if self.mean or self.std else self.converted_from

    def check(self) -> None:
        """Raise `UsageError` for what is not there, and `WeightsError` for a file that cannot be one."""
        check_runtime(self.framework)
        check_normalisation(self.mean, self.std)
        check_ending(self.source, self.framework)
        runtime, _ = split(self.framework)
        main = Path(self.source)
        check_file(main)
        beside(runtime, main)

    @cached_property
    def sha256(self) -> str:
        """The digest of its files."""
        runtime, _ = split(self.framework)
        main = Path(self.source)
        return Files.of(main, beside(runtime, main)).sha256

    @property
    def fingerprint(self) -> dict[str, Any] | None:
        """What tells it from other networks; None where code has a part in what it was converted from."""
        runtime, _ = split(self.framework)
        content: dict[str, Any] = {
            "files": self.sha256,
            "versions": [self.framework, runtime.version()],
        }
        if self.mean or self.std:
            content |= {"mean": self.mean, "std": self.std}
        if self.converted_from is not None:
            content["converted_from"] = self.converted_from.fingerprint
            if content["converted_from"] is None:
                return None
        return content

    def load(self, device: Device = "auto") -> DeployedModel:
        """Open it, beside the model that it was converted from where that is known."""
        model = self.converted_from.load(device) if self.converted_from else None
        source = model if isinstance(model, Model) else None
        is_described = bool(self.mean or self.std)
        preprocessing = {"mean": [*self.mean] or [0.0], "std": [*self.std] or [1.0], "axis": -1}
        return open_deployed(
            self.source,
            self.framework,
            source=source,
            bounds=(0, 1) if is_described else None,
            preprocessing=preprocessing if is_described else None,
        )


class FromDeployment(msgspec.Struct, frozen=True, tag="deployment"):
    """A trained model, converted for a runtime.

    Attributes
    ----------
    source : FromZoo or FromFile
        Where the trained model comes from.
    name : str
        What it is converted to, as for `robustcmp.deploy`.
    dataset : str
        Whose training images a quantisation is calibrated on.
    data_dir : str, optional
        Where that is.
    """

    source: FromZoo | FromFile
    name: str
    dataset: str
    data_dir: str | None = None

    @property
    def label(self) -> str:
        """What it is called in a comparison: as what it is converted to."""
        return self.name

    @property
    def fingerprint(self) -> dict[str, Any] | None:
        """What tells it from other models, without loading a framework; None where code or a file may differ."""
        source = self.source.fingerprint
        if source is None or (is_own(self.dataset) and conversion(self.name).calibrated):
            return None
        runtime, _ = split(self.name)
        return {
            "deployment": self.name,
            "versions": [*runtime.versions, SEMANTICS],
            "source": source,
            "calibration": [self.dataset, CALIBRATION],
        }

    def load(self, device: Device = "auto") -> DeployedModel:
        """Load the trained model, and convert it, as `robustcmp.deploy` does."""
        images = self._images() if conversion(self.name).calibrated else None
        model = self.source.load(device)
        if not isinstance(model, Model):
            raise ModelError(f"{self.source.label} is no network that robustcmp wrapped, so it cannot be converted")
        if images is None and model.architecture is None:
            images = self._images()  # they say which size the network takes
        return deploy(model, self.name, calibration=images)

    def _images(self) -> NDArray[np.float32]:
        """Return images of the training set; of a dataset of one's own, those that there are serve for their size."""
        split = "test" if is_own(self.dataset) and not conversion(self.name).calibrated else "train"
        return load_dataset(self.dataset, split, data_dir=self.data_dir).images[:CALIBRATION]


def deployments_of(
    sources: Mapping[str, Sequence[FromZoo | FromFile]],
    names: Sequence[str],
    dataset: str,
    data_dir: str | None = None,
) -> dict[str, list[FromDeployment]]:
    """Return every trained model in every deployment, by their labels.

    Raises
    ------
    UsageError
        A name is unknown, was given twice, or its program is not here; or a dataset of the user's own has no training
        images where a conversion needs some.
    """
    if len({*names}) < len(names):
        raise UsageError(f"each deployment can be given once, received {' '.join(names)}")
    for name in names:
        check_runtime(name)
    calibrated = [name for name in names if conversion(name).calibrated]
    if calibrated and is_own(dataset):
        try:
            load_dataset(dataset, "train", data_dir=data_dir)
        except DataError as error:
            raise UsageError(
                f"{calibrated[0]} chooses the ranges of activations by training images: {error}", parameters=["deploy"]
            ) from None
    return {
        name if len(sources) == 1 else f"{name} of {framework}": [
            FromDeployment(origin, name, dataset, data_dir) for origin in each
        ]
        for framework, each in sources.items()
        for name in names
    }


# It has a label, a fingerprint that is known before a framework is loaded, and ``load(device)``.
#
# So that other machines can load it, it also names its ``files`` and the ``frameworks`` that it takes, and has
# ``load_from(files, device)`` for copies of the files.
Origin = FromZoo | FromFile | FromFunction

# Also those that stay where the comparison is made: they have a label, a fingerprint and ``load(device)``.
AnyOrigin = Origin | FromDeployment | FromDeployedFile

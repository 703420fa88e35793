"""Deployed networks by what they are made from: a trained model and a conversion.

They are loaded where the comparison is made, and do not travel to other processes.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from ..data import is_own, load_dataset
from ..deployments import check_runtime, conversion, split
from ..deployments.deploying import SEMANTICS, convert, deploy, weights_digest_of
from ..deployments.model import DeployedModel, Files, Gradient
from ..errors import DataError, ModelError, UsageError
from ..frameworks import Device
from ..models.model import Model
from .from_files import FromFile
from .from_zoo import FromZoo

CALIBRATION = 500  # images of the training set


class Converted(NamedTuple):
    """A network that was converted for a runtime.

    Attributes
    ----------
    name : str
        What it was converted to, as for `robustcmp.deploy`.
    framework, weights : str
        The framework of the model that it was converted from, and a digest of the weights, None where not known.
    files : Files
        Where it is, and how large.
    """

    name: str
    framework: str
    weights: str | None
    files: Files


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
    gradient : str
        What gradient attacks follow, as for `robustcmp.deploy`.
    """

    source: FromZoo | FromFile
    name: str
    dataset: str
    data_dir: str | None = None
    gradient: Gradient = "source"

    @property
    def label(self) -> str:
        """What it is called in a comparison: as what it is converted to."""
        return self.name

    @property
    def fingerprint(self) -> dict[str, Any] | None:
        """What tells it from other models, without loading a framework; None where code or a file may differ."""
        source = self.source.fingerprint
        runtime, _ = split(self.name)
        said = {"deployment": self.name, "versions": [*runtime.versions, SEMANTICS], "gradient": self.gradient}
        if source is None or (is_own(self.dataset) and conversion(self.name).calibrated):
            return None
        return said | {"source": source, "calibration": [self.dataset, CALIBRATION]}

    def load(self, device: Device = "auto") -> DeployedModel:
        """Load the trained model, and convert it, as `robustcmp.deploy` does."""
        model, images = self._loaded(device)
        return deploy(model, self.name, calibration=images, gradient=self.gradient)

    @property
    def not_applicable(self) -> str:
        """Why it can be converted to here and not asked, "" if it can be asked."""
        return split(self.name)[0].not_applicable

    def convert(self, device: Device = "auto") -> Converted:
        """Load the trained model and convert it, without asking what comes out."""
        model, images = self._loaded(device)
        files = convert(model, self.name, calibration=images)
        return Converted(self.name, model.framework, weights_digest_of(model), files)

    def write(self, path: str | os.PathLike[str]) -> Files:
        """Load the trained model, and write the deployed one; its runtime need not be able to run here."""
        model, images = self._loaded("cpu")
        return convert(model, self.name, calibration=images, path=path)

    def _loaded(self, device: Device) -> tuple[Model, NDArray[np.float32] | None]:
        """Return the trained model, and calibration images where they are needed."""
        images = self._images() if conversion(self.name).calibrated else None
        model = self.source.load(device)
        if not isinstance(model, Model):
            raise ModelError(f"{self.source.label} is no network that robustcmp wrapped, so it cannot be converted")
        if images is None and model.architecture is None:
            images = self._images()  # they say which size the network takes
        return model, images

    def _images(self) -> NDArray[np.float32]:
        """Return images of the training set; of a dataset of one's own, those that there are serve for their size."""
        split = "test" if is_own(self.dataset) and not conversion(self.name).calibrated else "train"
        return load_dataset(self.dataset, split, data_dir=self.data_dir).images[:CALIBRATION]


def deployments_of(
    sources: Mapping[str, Sequence[FromZoo | FromFile]],
    names: Sequence[str],
    dataset: str,
    data_dir: str | None = None,
    gradient: Gradient = "source",
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
            FromDeployment(origin, name, dataset, data_dir, gradient) for origin in each
        ]
        for framework, each in sources.items()
        for name in names
    }

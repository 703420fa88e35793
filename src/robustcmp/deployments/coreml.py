"""Core ML: an .mlpackage folder, for Apple's machines. It is converted anywhere, and answers on macOS alone."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import DeploymentError
from ..models.model import Model
from .base import Conversion, Runtime, first_line
from .sessions import Session
from .silence import silence
from .torch_network import TRACING, as_usual, build_torch_network

MOST_IMAGES = 1024  # in a batch


class _CoreML(Runtime):
    name = "coreml"
    package = "coremltools"
    extra = "coreml"
    suffix = ".mlpackage"
    converters = ("torch",)
    not_applicable = "predicting needs macOS"
    conversions = {
        "": Conversion("float32", "as an ML program"),
        "float16": Conversion("float16", "as an ML program that computes in float16, as Core ML does by default"),
    }

    def convert(self, model: Model, kind: str, calibration: NDArray[np.float32] | None, path: Path) -> None:
        if reason := self.missing():
            raise DeploymentError(reason)
        network = build_torch_network(model, self.name, calibration)
        height, width, channels = network.shape
        import torch

        jit: Any = torch.jit
        for name in ("coremltools", "coremltools.converters._converters_entry"):  # which versions it was tried with
            logging.getLogger(name).setLevel(logging.ERROR)
        with TRACING, as_usual(), silence():
            import coremltools as ct

            precision = ct.precision.FLOAT16 if kind == "float16" else ct.precision.FLOAT32
            batch = ct.RangeDim(1, MOST_IMAGES, 1)
            try:
                converted = ct.convert(
                    jit.trace(network.module, network.batch(), check_trace=False),
                    inputs=[ct.TensorType("images", shape=(batch, channels, height, width))],
                    convert_to="mlprogram",
                    compute_precision=precision,
                    minimum_deployment_target=ct.target.iOS16,
                    skip_model_load=True,
                )
                converted.save(str(path))
            except Exception as error:
                raise DeploymentError(f"coremltools cannot convert this network: {first_line(error)}") from None

    def open(self, path: Path) -> Session:
        raise DeploymentError(f"{path} is not applicable: {self.not_applicable}")


RUNTIME = _CoreML()

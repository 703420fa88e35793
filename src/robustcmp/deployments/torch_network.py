"""Trained networks as torch modules and exported programs, which most converters start from."""

from __future__ import annotations

import copy
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np

from ..data.arrays import Images
from ..errors import DeploymentError, RobustcmpError
from ..frameworks import get_framework
from ..models.model import Model
from .base import deployment_errors, image_shape
from .silence import silence

# torch.export and the quantisers that build on it trace with state of the whole process.
TRACING = threading.RLock()


class _TorchNetwork(NamedTuple):
    """A trained network as torch has it.

    Attributes
    ----------
    module : torch.nn.Module
        Images (N, C, H, W) to what the network answers, in evaluation mode, on the CPU. It is a copy.
    shape : tuple of int
        (H, W, C) of an image.
    """

    module: Any
    shape: tuple[int, int, int]

    def batch(self, images: Images | None = None) -> Any:
        """Return images (N, H, W, C) as a tensor of its layout; two empty ones if there are none."""
        import torch

        if images is None:
            images = np.zeros((2, *self.shape), np.float32)
        return torch.tensor(np.ascontiguousarray(images.transpose(0, 3, 1, 2), np.float32))


def build_torch_network(model: Model, runtime: str, calibration: Images | None = None) -> _TorchNetwork:
    """Return a trained network of any framework as a torch module, by its weights or as it is.

    What `robustcmp.wrap` puts around a network of one's own, preprocessing and logarithms of probabilities, is no
    part of it.

    Parameters
    ----------
    model : Model
        One whose architecture is known, or one that wraps a torch module.
    runtime : str
        What it is for, in errors.
    calibration : ndarray of float32, shape (N, H, W, C), optional
        Images; they say the size where the architecture is unknown.

    Raises
    ------
    DeploymentError
        It is neither, or nothing says how large its images are.
    """
    torch = get_framework("torch")
    architecture = model.architecture
    if architecture is not None:
        weights = model.weights
        module: Any = torch.build(architecture, None, "cpu")
        torch.set_weights(module, architecture, weights or {})
        shape = architecture.input_shape
        return _TorchNetwork(module, (shape[0], shape[1], shape[2]))
    try:
        torch.place(model.native, "auto")  # where it is
    except RobustcmpError as error:
        raise DeploymentError(
            f"{runtime} converts models of the zoo, of any framework, and torch modules of one's own: {error} "
            "Describe the network as an architecture, or convert it yourself and open the file."
        ) from None
    if model.data_format == "channels_last":
        raise DeploymentError(f"{runtime} converts torch modules of images (N, C, H, W), received one of (N, H, W, C)")
    height, width, channels = image_shape(model, calibration)
    return _TorchNetwork(copy.deepcopy(model.native).cpu().eval(), (height, width, channels))


def export_program(network: _TorchNetwork, runtime: str) -> Any:
    """Return a network as a `torch.export.ExportedProgram` for batches of any size.

    Raises
    ------
    DeploymentError
        torch cannot trace it, the number of images is fixed in it, or it does not give a row of numbers an image.
    """
    import torch

    with TRACING, as_usual(), silence():
        batch = network.batch()
        with deployment_errors(f"torch.export cannot trace this network for {runtime}"):
            program = torch.export.export(network.module, (batch,), dynamic_shapes=({0: torch.export.Dim.DYNAMIC},))
        logits = network.module(batch)
    if not isinstance(logits, torch.Tensor) or logits.ndim != 2 or len(logits) != len(batch):
        received = tuple(logits.shape) if isinstance(logits, torch.Tensor) else type(logits).__name__
        raise DeploymentError(
            f"the network should give a row of logits for each of {len(batch)} images, received {received}"
        )
    return program


@contextmanager
def as_usual() -> Iterator[None]:
    """Let torch compute in float32 and without gradients, whatever the caller has set."""
    import torch

    with torch.autocast("cpu", enabled=False), torch.no_grad():
        yield

"""The host of ExecuTorch: it converts torch networks into programs for XNNPACK, and answers with such programs.

Beside `build` and `set_weights`, for a network that is to be converted, it knows

=========  ==========================  ========================  ====================================
call       header                      arrays                    answer
=========  ==========================  ========================  ====================================
`convert`  ``kind, batch, shape``      `images`, for int8        `program`, uint8
`load`                                 `program`, uint8          ``is``, its number
`sizes`                                                          `input` and `output`, int64
=========  ==========================  ========================  ====================================

and `logits` of a program, for a batch of the size that it was converted for.
"""

import logging
import warnings
from importlib.metadata import version
from typing import Any

import numpy as np
import torch
from layers import channels_first
from protocol import Array, Arrays, serve
from torch_host import TorchNetwork

FLOAT32 = 6  # the number of its type in ExecuTorch
warnings.simplefilter("ignore")
logging.disable(logging.WARNING)


class _Module(torch.nn.Module):
    """A network of layers as one module."""

    def __init__(self, network: TorchNetwork) -> None:
        super().__init__()
        self.parts = torch.nn.ModuleDict(network.parts)
        self.network = network

    def forward(self, x: torch.Tensor) -> Any:
        """Return the logits of images (N, C, H, W)."""
        return self.network.apply(x)


class _Program:
    """A program that is ready to be asked."""

    def __init__(self, content: bytes) -> None:
        from executorch.runtime import Runtime, Verification

        self._content = content  # the program reads it
        self._program = Runtime.get().load_program(content, verification=Verification.InternalConsistency)
        self._method = self._program.load_method("forward")
        meta = self._method.metadata
        if (meta.num_inputs(), meta.num_outputs()) != (1, 1):
            raise ValueError(
                f"expected one input and one output, received {meta.num_inputs()} and {meta.num_outputs()}"
            )
        images = meta.input_tensor_meta(0)
        logits = meta.output_tensor_meta(0)
        if (images.dtype(), logits.dtype()) != (FLOAT32, FLOAT32):
            raise ValueError("expected float32 images and float32 logits")
        self._sizes = {"input": np.array(images.sizes()), "output": np.array(logits.sizes())}

    def sizes(self) -> Arrays:
        """Return the shapes of images and logits."""
        return self._sizes

    def logits(self, images: Array) -> Array:
        """Return the answer to images in its own layout."""
        (answer,) = self._method.execute([torch.from_numpy(images)])
        return np.array(answer.numpy())  # its memory is the next answer's too


class _ExecuTorchNetwork(TorchNetwork):  # type: ignore[misc]
    framework = "executorch"
    version = version("executorch")
    calls = {
        "convert": (("kind", "batch", "shape", "images"), "arrays"),
        "load": (("program",), "is"),
        "sizes": ((), "arrays"),
    }

    @staticmethod
    def threads(count: int) -> None:
        from executorch.extension.pybindings import portable_lib

        torch.set_num_threads(count)
        # Unsafe while a program answers; calls come one at a time.
        portable_lib._unsafe_reset_threadpool(count)  # noqa: SLF001

    @staticmethod
    def load(program: Array) -> _Program:
        return _Program(program.tobytes())

    def convert(self, kind: str, batch: int, shape: Any, images: Any) -> Arrays:
        """Return the network as a program for a batch of images (H, W, C), in int8 by images if the kind says so."""
        from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
        from executorch.exir import to_edge_transform_and_lower

        height, width, channels = shape
        example = (torch.zeros(batch, channels, height, width),)
        with torch.no_grad():
            program = torch.export.export(_Module(self).eval(), example)
            if kind == "int8":
                program = torch.export.export(_quantise(program, batch, images), example)
            lowered = to_edge_transform_and_lower(program, partitioner=[XnnpackPartitioner()])
            return {"program": np.frombuffer(lowered.to_executorch().buffer, np.uint8)}


def _quantise(program: Any, batch: int, images: Array) -> Any:
    """Return a program whose ranges of activations are chosen by images."""
    from executorch.backends.xnnpack.quantizer.xnnpack_quantizer import (
        XNNPACKQuantizer,
        get_symmetric_quantization_config,
    )
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

    quantiser = XNNPACKQuantizer().set_global(get_symmetric_quantization_config(is_per_channel=True))
    prepared = prepare_pt2e(program.module(), quantiser)
    images = channels_first(images)
    for first in range(0, len(images), batch):
        part = images[first : first + batch]
        # The program takes whole batches alone; what fills one up was seen before.
        filled = np.concatenate([part, np.repeat(part[-1:], batch - len(part), 0)])
        prepared(torch.from_numpy(filled))
    return convert_pt2e(prepared)


if __name__ == "__main__":
    serve(_ExecuTorchNetwork)

"""The host of ExecuTorch: it converts torch networks into programs for XNNPACK, and answers with such programs.

Beside `build` and `set_weights`, for a network that is to be converted, it knows

=========  ===================  =====================  ===========================================================
call       header               arrays                 answer
=========  ===================  =====================  ===========================================================
`convert`  ``kind``, ``batch``  `images`, for int8     `program`, uint8
`open`                          `program`, uint8       ``is``, its number; ``input``, ``output``: their sizes
=========  ===================  =====================  ===========================================================

and `logits` of a program, for a batch of the size that it was converted for.
"""

import logging
import warnings
from typing import Any, Dict, Tuple

import numpy as np
import torch
from layers import channels_first
from protocol import Array, Arrays, serve
from torch_host import TorchHost, TorchNetwork

FLOAT32 = 6  # the number of its type in ExecuTorch
warnings.simplefilter("ignore")
logging.disable(logging.WARNING)


class Module(torch.nn.Module):
    """A network of layers as one module."""

    def __init__(self, network: TorchNetwork) -> None:
        super().__init__()
        self.parts = torch.nn.ModuleDict(network.parts)
        self.network = network

    def forward(self, x: torch.Tensor) -> Any:
        """Return the logits of images (N, C, H, W)."""
        return self.network.applied(x)


class Program:
    """A program that is ready to be asked."""

    def __init__(self, content: bytes) -> None:
        from executorch.runtime import Runtime, Verification

        self._content = content  # the program reads it
        self._program = Runtime.get().load_program(content, verification=Verification.InternalConsistency)
        if self._program.method_names != {"forward"}:
            raise ValueError(f"expected one method, forward, received {sorted(self._program.method_names)}")
        self._method = self._program.load_method("forward")
        meta = self._method.metadata
        if (meta.num_inputs(), meta.num_outputs()) != (1, 1):
            raise ValueError(
                f"expected one input and one output, received {meta.num_inputs()} and {meta.num_outputs()}"
            )
        given, answer = meta.input_tensor_meta(0), meta.output_tensor_meta(0)
        if (given.dtype(), answer.dtype()) != (FLOAT32, FLOAT32):
            raise ValueError("expected float32 images and float32 logits")
        self.input, self.output = list(given.sizes()), list(answer.sizes())

    def logits(self, images: Array) -> Array:
        """Return the answer to images in its own layout."""
        (answer,) = self._method.execute([torch.from_numpy(images)])
        return np.array(answer.numpy())  # its memory is the next answer's too


class ExecuTorchHost(TorchHost):  # type: ignore[misc]
    framework = "executorch"

    def version(self) -> str:
        from importlib.metadata import version

        return version("executorch")

    def threads(self, count: int) -> None:
        from executorch.extension.pybindings.portable_lib import _unsafe_reset_threadpool

        super().threads(count)
        _unsafe_reset_threadpool(count)  # unsafe while a program answers; calls come one at a time

    def logits(self, network: Any, images: Array) -> Array:
        return network.logits(images) if isinstance(network, Program) else super().logits(network, images)

    def other(
        self, call: str, that: Any, content: Dict[str, Any], arrays: Arrays
    ) -> Tuple[Any, Dict[str, Any], Arrays]:
        if call == "convert":
            images = arrays.get("images")
            program = converted(that, content["kind"], content["batch"], content["shape"], images)
            return None, {}, {"program": np.frombuffer(program, np.uint8)}
        if call == "open":
            opened = Program(arrays["program"].tobytes())
            return opened, {"input": opened.input, "output": opened.output}, {}
        answer: Tuple[Any, Dict[str, Any], Arrays] = super().other(call, that, content, arrays)
        return answer


def converted(network: TorchNetwork, kind: str, batch: int, shape: Any, images: Any) -> bytes:
    """Return a network as a program for a batch of images (H, W, C), in int8 by images if the kind says so."""
    from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
    from executorch.exir import to_edge_transform_and_lower

    height, width, channels = shape
    example = (torch.zeros(batch, channels, height, width),)
    with torch.no_grad():
        program = torch.export.export(Module(network).eval(), example)
        if kind == "int8":
            program = torch.export.export(quantised(program, batch, images), example)
        lowered = to_edge_transform_and_lower(program, partitioner=[XnnpackPartitioner()])
        content: bytes = lowered.to_executorch().buffer
    return content


def quantised(program: Any, batch: int, images: Array) -> Any:
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
    serve(ExecuTorchHost)

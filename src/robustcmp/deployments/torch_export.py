"""PyTorch without Python's part of a network: exported programs, and int8 ones that Inductor compiles."""

from __future__ import annotations

import logging
import os
import shutil
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..data.arrays import Images
from ..errors import DeploymentError
from ..files import user_cache
from ..models.model import Model
from ..provenance import package_version
from ..threads import cores
from .base import Conversion, Runtime, deployment_errors
from .sessions import Layout, Session
from .silence import silence
from .torch_network import TRACING, as_usual, build_torch_network, export_program

# Of batches: oneDNN's answers to one to eleven images differ in their last bits from those to more. With 512 images of
# ResNet-20, an image takes 2.7 times the CPU time that it takes with 128.
SIZES = (16, 32, 64, 128)
COMPILED_SIZES = (16, 64, 256)  # Inductor compiles anew for each
CALIBRATED_AT_ONCE = 64  # images


class TorchExport(Runtime):
    name = "torch-export"
    package = "torch"
    extra = "torch"
    suffix = ".pt2"
    converters = ("torch", "torchao")
    conversions = {
        "": Conversion("float32", "as a graph of operations (torch.export)"),
        "int8": Conversion(
            "int8",
            "weights in int8, a scale a channel; activations in uint8, by histograms (PT2E, X86InductorQuantizer)",
            calibrated=True,
        ),
    }

    @property
    def suffixes(self) -> tuple[str, ...]:
        return ()  # a file from elsewhere could run code: torch-program opens it in a process of its own

    def convert(self, model: Model, kind: str, calibration: Images | None, path: Path) -> None:
        network = build_torch_network(model, self.name, calibration)
        program = export_program(network, self.name)
        import torch

        with TRACING, as_usual(), silence():
            if kind == "int8":
                program = _quantise(program, network.batch(calibration), network.batch())
            with deployment_errors("torch.export cannot save this network"):
                torch.export.save(program, path)

    def load(self, path: Path) -> Session:
        with TRACING, as_usual(), silence(), deployment_errors(f"{path} cannot be opened with this version of torch"):
            import torch.ao.quantization.fx._decomposed  # the operators of files in int8, which it registers

            program = torch.export.load(path)
            (images,) = program.example_inputs[0]
            shape = Layout.of([None, *images.shape[1:]], "float32", str(path), "NCHW").shape
            ask, batches, notes = self._make_function(program)
            notes = [f"asked in batches of {', '.join(map(str, batches))}", *notes]
            layout = Layout(shape, "NHWC", None, "float32", [])  # torch takes such images without a copy
            return Session(layout, _in_numpy(ask), notes, batches)

    def _make_function(self, program: Any) -> tuple[Any, tuple[int, ...], list[str]]:
        """Return a program as a function of tensors, the sizes of its batches, and notes."""
        if not any("quantized_decomposed" in str(node.target) for node in program.graph.nodes):
            return program.module(), SIZES, []
        if not self.has_compiler():
            note = "int8 is computed in float32 with rounded values: there is no C++ compiler for Inductor's kernels"
            return program.module(), SIZES, [note]
        return self.compile_module(program.module()), COMPILED_SIZES, []

    @staticmethod
    def has_compiler() -> bool:
        """Say whether there is the C++ compiler that Inductor takes, which is no other than this."""
        return shutil.which(os.environ.get("CXX", "clang++" if sys.platform == "darwin" else "g++")) is not None

    @staticmethod
    def compile_module(module: Any) -> Any:
        """Return a module that Inductor compiles, with its weights as constants, when it is first asked."""
        import torch

        compile: Any = torch.compile
        # With a free batch, kernels of int8 return another layout than it expects.
        fast = compile(module, dynamic=False)
        met: set[int] = set()  # sizes of batches; a new one is compiled, which warns

        def ask(images: Any) -> Any:
            quiet = nullcontext() if len(images) in met else silence()
            with deployment_errors("Inductor cannot compile this network"), _inductor_settings(), quiet:
                answer = fast(images)
            met.add(len(images))
            return answer

        return ask


def _saturates() -> bool:
    """Say whether sums of products in int8 overflow on this processor: then activations have to do with 7 bits.

    It is so on x86 without VNNI, where torchao's documentation of its quantiser asks for a reduced range.
    """
    import torch

    able = torch.cpu.get_capabilities()
    return able.get("architecture") == "x86_64" and not (able.get("avx512_vnni") or able.get("avx_vnni"))


def _quantise(program: Any, images: Any, example: Any) -> Any:
    """Return an exported program in int8, with ranges of activations by images."""
    if package_version("torchao") is None:
        raise DeploymentError("torch-export-int8 needs torchao, which is not installed: pip install torchao")
    import torch

    for name in ("torchao", "torch.utils._pytree"):  # what they say of their own CUDA files and deprecations
        logging.getLogger(name).setLevel(logging.ERROR)
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e
    from torchao.quantization.pt2e.quantizer import x86_inductor_quantizer

    x86: Any = x86_inductor_quantizer

    with deployment_errors("torchao cannot quantise this network"):
        config = x86.get_default_x86_inductor_quantization_config(reduce_range=_saturates())
        quantiser = x86.X86InductorQuantizer().set_global(config)
        prepared = prepare_pt2e(program.module(), quantiser)
        for part in images.split(CALIBRATED_AT_ONCE):
            prepared(part)
        converted = convert_pt2e(prepared)
        _drop_unused(converted)
        return torch.export.export(converted, (example,), dynamic_shapes=({0: torch.export.Dim.DYNAMIC},))


def _drop_unused(module: Any) -> None:
    """Delete the tensors of a traced module that it no longer uses: weights in float32 beside those in int8."""
    module.graph.eliminate_dead_code()
    module.recompile()
    used = {node.target for node in module.graph.nodes if node.op == "get_attr"}
    for name in [name for name, _ in (*module.named_parameters(), *module.named_buffers()) if name not in used]:
        owner, _, attribute = name.rpartition(".")
        delattr(module.get_submodule(owner), attribute)


@contextmanager
def _inductor_settings() -> Iterator[None]:
    """Keep what Inductor compiles with the user's other files, and let no process of it stay."""
    from torch._inductor import config

    os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(user_cache() / "inductor"))
    with config.patch(compile_threads=1, freezing=True):
        yield


def _in_numpy(function: Any) -> Any:
    """Return a function of tensors (N, C, H, W) as one of arrays (N, H, W, C), always with the same number of threads.

    Inductor compiles anew for another number. Images are not copied: torch calls such tensors channels_last, and oneDNN
    is faster with them (ResNet-20: three quarters of the CPU time).
    """
    import torch

    lock = threading.Lock()

    def ask(images: Images) -> NDArray[np.float32]:
        batch = images.reshape(-1).reshape(images.shape)  # one stride, where a size is 1
        with lock:
            threads = torch.get_num_threads()
            torch.set_num_threads(cores())
            try:
                with as_usual():
                    return np.asarray(function(torch.from_numpy(batch).permute(0, 3, 1, 2)))
            finally:
                torch.set_num_threads(threads)

    return ask


RUNTIME = TorchExport()

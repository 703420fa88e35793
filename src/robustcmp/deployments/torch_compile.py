"""PyTorch with a network that Inductor has compiled for this machine: `torch.compile` of an exported program."""

from __future__ import annotations

from typing import Any

from .base import Conversion
from .torch_export import COMPILED_SIZES, TorchExport

PLACE = "the last bits of an answer depend on the place of its image in the batch, not on the other images"


class _TorchCompile(TorchExport):
    name = "torch-compile"
    conversions = {"": Conversion("float32", "compiled for this machine (torch.compile, Inductor)")}

    def explain_absence(self) -> str:
        reason = super().explain_absence()
        if reason or self.has_compiler():
            return reason
        return f"{self.name} needs a C++ compiler, and there is none: install g++ (macOS: clang++), or name one in $CXX"

    def _make_function(self, program: Any) -> tuple[Any, tuple[int, ...], list[str]]:
        return self.compile_module(program.module()), COMPILED_SIZES, ["compiled when it is first asked", PLACE]


RUNTIME = _TorchCompile()

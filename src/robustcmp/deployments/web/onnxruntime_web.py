"""ONNX Runtime Web in a page of Chromium: the files of ONNX Runtime, computed by WebAssembly or WebGPU.

On WebAssembly it has the kernels of ONNX Runtime itself, compiled for one thread.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...errors import DeploymentError
from ...models.model import Model
from ..base import Conversion, Runtime
from ..layouts import Layout, Tensor, choose_tensors
from ..onnx_files import read_whole
from ..onnxruntime import RUNTIME as NATIVE
from ..sessions import LayoutSession, Session
from . import browser, npm
from .browser import Page

VERSION = "1.30.0"
INTEGRITY = "sha512-q0y+JrrtukXSzsBWEMccVfqX25LRmosXHF+CaRJmg8pZClzcV7svNc4rKY3jL02Vb7QmRMDs1SigqR4CXAfKYQ=="
BACKENDS = {  # the script, and the files that it loads by itself
    "wasm": {
        "package/dist/ort.wasm.min.js": "faece07e84faa9001f5104bbe4e5c70861d06cb2376a0dea1fa0ad33a67adc81",
        "package/dist/ort-wasm-simd-threaded.mjs": "e13f7f94fc51b4ca72b12faeb1ee95f4ace6dfbc8939bc718aabdc0a27c4299b",
        "package/dist/ort-wasm-simd-threaded.wasm": "3398c10d07d229bd91b364548e130e0e51a8e5704b88c7c083ebbeb78842dee2",
    },
    "webgpu": {
        "package/dist/ort.webgpu.min.js": "7d65dad7eb4564ad98db9924a259af2e2c68ebfbdbf254fa5d728f1c5736e07a",
        "package/dist/ort-wasm-simd-threaded.asyncify.mjs": (
            "3d1c85995364bb643302fc6fd877a0c3ba5ae72401815e0f24828a53d9191e28"
        ),
        "package/dist/ort-wasm-simd-threaded.asyncify.wasm": (
            "39f9f0894d478800487ed9f7dbe92618498db320cf55c8e3d89adff8dce658da"
        ),
    },
}
OPEN = 2**31  # what -1 becomes, the size of an axis that has no name


class _OnnxRuntimeWeb(Runtime):
    name = "onnxruntime-web"
    package = "chromium"
    extra = ""
    suffix = ".onnx"
    converters = (NATIVE.package, *NATIVE.converters)
    conversions = {
        kind: conversion._replace(description=f"{conversion.description}, on WebAssembly")
        for kind, conversion in NATIVE.conversions.items()
    } | {browser.WEBGPU: Conversion("float32", "the same network as ONNX, on WebGPU")}

    def conversion(self, kind: str) -> Conversion | None:
        return self.conversions.get(kind) or NATIVE.conversion(kind)

    def version(self) -> str:
        return f"{VERSION}, Chromium {browser.version()}"

    def missing(self) -> str:
        return browser.missing(self.name)

    def beside(self, path: Path) -> list[Path]:
        return [*NATIVE.beside(path), *browser.beside(path)]

    def convert(self, model: Model, kind: str, calibration: NDArray[np.float32] | None, path: Path) -> None:
        backend = browser.WEBGPU if kind == browser.WEBGPU else "wasm"
        _files(backend)
        browser.check_backend(self.name, backend)
        quantised = not (self.conversions.get(kind) or Conversion("int8", "")).is_exact
        if quantised and (why := NATIVE.missing()):
            raise DeploymentError(why)
        NATIVE.convert(model, "" if kind == browser.WEBGPU else kind, calibration, path)
        browser.write_backend(path, backend)

    def copy(self, main: Path, path: Path) -> None:
        super().copy(main, path)
        browser.write_backend(path, browser.read_backend(main))  # also where a file is replaced that had another

    def open(self, path: Path) -> Session:
        content = read_whole(path)
        backend = browser.read_backend(path)
        available = _files(backend)
        page = browser.open_page(
            f"{path}, in {self.name}", [f"ort.{backend}.min.js", "onnxruntime_web_page.js"], available
        )
        try:
            answer, _ = page.ask("load", content, backend=backend)
            return _make_session(page, answer)
        except BaseException:
            page.close()
            raise


def _make_session(page: Page, answer: dict[str, Any]) -> Session:
    """Return a network that a page has loaded."""
    taken, scores, notes = choose_tensors(page.name, _tensors(answer["inputs"]), _tensors(answer["outputs"]))
    layout = Layout.of(taken.shape, taken.dtype, page.name)
    return LayoutSession(layout, partial(browser.rows, page, input=taken.name, output=scores.name), notes)


def _tensors(values: list[dict[str, Any]]) -> list[Tensor]:
    """Return inputs or outputs as a page describes them."""
    tensors = []
    for value in values:
        sizes = [size if isinstance(size, int) and 0 < size < OPEN else None for size in value.get("shape", ())]
        tensors.append(Tensor(value["name"], value.get("type", "no tensor"), sizes))
    return tensors


RUNTIME = _OnnxRuntimeWeb()


def _files(backend: str) -> dict[str, Path]:
    return npm.Package("onnxruntime-web", VERSION, INTEGRITY, BACKENDS[backend]).fetch()

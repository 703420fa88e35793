"""ONNX Runtime Web in a page of Chromium: the files of ONNX Runtime, computed by WebAssembly or WebGPU.

On WebAssembly it has the kernels of ONNX Runtime itself, compiled for one thread.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import DeploymentError
from ..models.model import Model
from . import browser, npm
from .base import Conversion, Runtime, Session
from .browser import Page
from .layouts import Layout
from .onnx_files import read_whole
from .onnxruntime import RUNTIME as NATIVE

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
FLOATS = ("float32", "float64", "float16")
INPUTS = (*FLOATS, "uint8")


class OnnxRuntimeWeb(Runtime):
    name = "onnxruntime-web"
    package = "chromium"
    extra = ""
    suffix = ".onnx"
    converters = (NATIVE.package, *NATIVE.converters)
    conversions = {
        kind: conversion._replace(said=f"{conversion.said}, on WebAssembly")
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
            return _Session(page, answer)
        except BaseException:
            page.close()
            raise


class _Session(Session):
    layout: Layout

    def __init__(self, page: Page, said: dict[str, Any]):
        inputs, outputs = said["inputs"], said["outputs"]
        if len(inputs) != 1 or inputs[0].get("type") not in INPUTS:
            raise DeploymentError(
                f"{page.name} should have one input, images as floats or as bytes; it has {_listed(inputs)}"
            )
        scores = [value["name"] for value in outputs if value.get("type") in FLOATS]
        if len(scores) != 1:
            raise DeploymentError(
                f"{page.name} should have one output of floats, logits or probabilities (N, K); it has "
                f"{_listed(outputs)}. Export classifiers of scikit-learn with options={{'zipmap': False}}."
            )
        shape = [size if isinstance(size, int) and 0 < size < OPEN else None for size in inputs[0]["shape"]]
        self._page, self.layout = page, Layout.of(shape, inputs[0]["type"], page.name)
        self._names = {"input": inputs[0]["name"], "output": scores[0]}
        self.shape, self.holds_bytes = self.layout.shape, self.layout.holds_bytes
        self.notes = self.layout.notes + [f"of its outputs only {scores[0]} is used"] * (len(outputs) > 1)

    def __call__(self, images: NDArray[np.float32]) -> NDArray[np.float32]:
        return self.layout.asked(lambda x: browser.rows(self._page, x, **self._names), images)


def _listed(values: list[dict[str, Any]]) -> str:
    return ", ".join(f"{value['name']} ({value.get('type', 'no tensor')})" for value in values) or "none"


RUNTIME = OnnxRuntimeWeb()


def _files(backend: str) -> dict[str, Path]:
    return npm.Package("onnxruntime-web", VERSION, INTEGRITY, BACKENDS[backend]).fetch()

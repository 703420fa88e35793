"""ONNX Runtime Web in a page of Chromium: the files of ONNX Runtime, computed by its kernels in WebAssembly."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from ...data.arrays import Images
from ...errors import DeploymentError
from ...models.model import Model
from ..base import Conversion
from ..onnx_files import OnnxFile
from ..onnxruntime import RUNTIME as NATIVE
from ..sessions import Layout, Session, choose_tensors
from . import browser, npm

VERSION = "1.30.0"
PACKAGE = npm.Package(
    "onnxruntime-web",
    VERSION,
    "sha512-q0y+JrrtukXSzsBWEMccVfqX25LRmosXHF+CaRJmg8pZClzcV7svNc4rKY3jL02Vb7QmRMDs1SigqR4CXAfKYQ==",
    {  # the script, and the files that it loads by itself
        "package/dist/ort.wasm.min.js": "faece07e84faa9001f5104bbe4e5c70861d06cb2376a0dea1fa0ad33a67adc81",
        "package/dist/ort-wasm-simd-threaded.mjs": "e13f7f94fc51b4ca72b12faeb1ee95f4ace6dfbc8939bc718aabdc0a27c4299b",
        "package/dist/ort-wasm-simd-threaded.wasm": "3398c10d07d229bd91b364548e130e0e51a8e5704b88c7c083ebbeb78842dee2",
    },
)
SCRIPTS = ("ort.wasm.min.js", "onnxruntime_web_page.js")


class _OnnxRuntimeWeb(browser.BrowserRuntime):
    name = "onnxruntime-web"
    library = VERSION
    suffix = ".onnx"
    converters = (NATIVE.package, *NATIVE.converters)
    conversions = {
        kind: conversion._replace(description=f"{conversion.description}, on WebAssembly")
        for kind, conversion in NATIVE.conversions.items()
    }

    def conversion(self, kind: str) -> Conversion | None:
        return self.conversions.get(kind) or NATIVE.conversion(kind)

    def beside(self, path: Path) -> list[Path]:
        return NATIVE.beside(path)

    def convert(self, model: Model, kind: str, calibration: Images | None, path: Path) -> None:
        if kind and (why := NATIVE.explain_absence()):
            raise DeploymentError(why)
        NATIVE.convert(model, kind, calibration, path)

    def load(self, path: Path) -> Session:
        file = OnnxFile(path)
        page = browser.start_page(f"{path}, in {self.name}", SCRIPTS, PACKAGE.fetch())
        page.load(file.read_whole())
        taken, scores, notes = choose_tensors(page.name, *file.read_tensors())
        layout = Layout.of(taken.shape, taken.dtype, page.name)
        return Session(layout, partial(browser.ask_rows, page, input=taken.name, output=scores.name), notes)


RUNTIME = _OnnxRuntimeWeb()

"""ONNX Runtime Web in a page of Chromium: the files of ONNX Runtime, computed by WebAssembly or WebGPU.

On WebAssembly it has the kernels of ONNX Runtime itself, compiled for one thread.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from ..errors import DeploymentError
from ..files import open_regular
from ..models.model import Model
from . import browser, npm
from .base import Conversion, Runtime, Session
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
MODEL_BYTES = 2**31  # one message; ONNX itself has no larger file
CHANNELS = (1, 3, 4)  # of images, which tell the layout where the shape does


class OnnxRuntimeWeb(Runtime):
    name = "onnxruntime-web"
    package = "chromium"
    extra = ""
    suffix = ".onnx"
    conversions = {
        "": Conversion("float32", "an ONNX file, on WebAssembly"),
        "webgpu": Conversion("float32", "an ONNX file, on WebGPU"),
    }

    def version(self) -> str:
        return f"{VERSION}, Chromium {browser.version()}"

    def missing(self) -> str:
        return browser.missing(self.name)

    def convert(self, model: Model, kind: str, calibration: NDArray[np.float32] | None, path: Path) -> None:
        backend = browser.WEBGPU if kind == browser.WEBGPU else "wasm"
        _files(backend)
        browser.check_backend(self.name, backend)
        write_onnx(model, path)
        browser.write_backend(path, backend)

    def open(self, path: Path) -> Session:
        content = _read(path)
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
    def __init__(self, page: Page, said: dict[str, Any]):
        inputs = said["inputs"]
        if len(inputs) != 1 or not inputs[0].get("isTensor") or inputs[0]["type"] != "float32":
            received = ", ".join(f"{each['name']} ({each.get('type', 'no tensor')})" for each in inputs)
            raise DeploymentError(f"{page.name} should take one tensor of float32 images, received {received}")
        if not said["outputs"]:
            raise DeploymentError(f"{page.name} has no output")
        sizes = [size if isinstance(size, int) and size > 0 else None for size in inputs[0]["shape"]]
        batch, *shape = sizes or [None]
        if len(shape) != 3 or None in shape:
            raise DeploymentError(
                f"{page.name} should take images (N, channels, height, width) or (N, height, width, channels) of a "
                f"fixed size, received the shape {inputs[0]['shape']}"
            )
        first, middle, last = cast(list[int], shape)
        self._channels_first = first in CHANNELS or last not in CHANNELS
        self.shape = (middle, last, first) if self._channels_first else (first, middle, last)
        self.notes = ["images are asked as (N, C, H, W)"] if self._channels_first else []
        self.notes += [] if batch is None else [f"asked in batches of {batch}, as the file wants"]
        self._page, self._batch = page, batch
        self._names = {"input": inputs[0]["name"], "output": said["outputs"][0]["name"]}

    def __call__(self, images: NDArray[np.float32]) -> NDArray[np.float32]:
        inner = images.transpose(0, 3, 1, 2) if self._channels_first else images
        return browser.logits(self._page, inner, self._batch, **self._names)


RUNTIME = OnnxRuntimeWeb()


def _files(backend: str) -> dict[str, Path]:
    return npm.Package("onnxruntime-web", VERSION, INTEGRITY, BACKENDS[backend]).fetch()


def write_onnx(model: Model, path: Path) -> None:
    """Write a network as an ONNX file."""
    raise DeploymentError(
        f"onnxruntime-web cannot convert {model!r}: robustcmp writes no ONNX files yet. Export the "
        "network to ONNX with its own framework, and open the file."
    )


def _read(path: Path) -> bytes:
    try:
        with open_regular(path) as file:
            content = file.read(MODEL_BYTES + 1)
    except (OSError, ValueError) as error:
        raise DeploymentError(f"{path} cannot be read: {error}") from None
    if not content or len(content) > MODEL_BYTES:
        what = "it is empty" if not content else f"it has more than {MODEL_BYTES:,} bytes"
        raise DeploymentError(f"{path} is no ONNX file that a page can hold: {what}")
    return content

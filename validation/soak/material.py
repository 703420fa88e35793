"""The files that trials break: a small run with all that a run can hold, and one network in every format."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from . import mutations

SUITE = """\
description = "all kinds of attacks, short"
images = 12
repeats = 2

[attacks.fgsm]
attack = "FGSM"
epsilons = 10
max_epsilon = 0.1

[attacks.single_pixel]
attack = "SinglePixel"
max_pixels = 20
exact = true

[attacks.boundary]
attack = "Boundary"
iterations = 12
max_directions = 2

[attacks.pgd]
attack = "LinfPGD"
epsilons = [0.01, 0.03, 0.1]
steps = 5
"""
NETWORK = """\
[architecture]
input_shape = [28, 28, 1]
layers = [
    { type = "Conv", name = "conv1", channels = 4, kernel = 5 },
    { type = "Relu", name = "relu1" },
    { type = "MaxPool", name = "pool1", size = 2 },
    { type = "Residual", name = "block", layers = [
        { type = "Conv", name = "conv2", channels = 4, kernel = 3, padding = 1 },
        { type = "BatchNorm", name = "norm2" },
    ] },
    { type = "Flatten", name = "flatten" },
    { type = "Dense", name = "logits", units = 10 },
]

[default.mnist]
epochs = 20
batch_size = 64
learning_rate = 0.02
momentum = 0.9
schedule = "cosine"

[default.digits]
epochs = 60
batch_size = 32
learning_rate = 0.02
weight_decay = 0.0001
crop = 2
flip = true
"""
WEIGHTS = "lenet1-digits-torch-default-0.h5"
PARTS = ("texts", "networks", "run")


def made(folder: Path, parts: Sequence[str] = PARTS) -> Path:
    """Return the folder of the material, made by today's code where it is not there; each part in its own process."""
    folder = folder / version()
    for part in parts:
        if not (folder / part).exists():
            folder.mkdir(parents=True, exist_ok=True)
            unfinished = Path(tempfile.mkdtemp(prefix=part, suffix=".part", dir=folder))
            command = [sys.executable, "-m", "soak.material", part, str(unfinished)]
            done = subprocess.run(command, env=environment(), capture_output=True, text=True)
            if done.returncode:
                raise RuntimeError(f"the material cannot be made:\n{done.stderr}")
            with contextlib.suppress(OSError):  # another process made it meanwhile
                unfinished.rename(folder / part)
    return folder


def version() -> str:
    """Return what tells today's code from other code: what is made depends on it."""
    import robustcmp

    sha = hashlib.sha256()
    for place in (Path(str(robustcmp.__file__)).parent, Path(__file__).parent):
        for path in sorted(place.rglob("*.py")):
            if place != Path(__file__).parent or path.name in ("material.py", "mutations.py"):
                sha.update(path.read_bytes())
    return sha.hexdigest()[:12]


def environment() -> dict[str, str]:
    """Return the variables of every process that is started here: one thread each, no GPU."""
    return os.environ | {
        "OMP_NUM_THREADS": "1",
        "CUDA_VISIBLE_DEVICES": "",
        "TF_CPP_MIN_LOG_LEVEL": "3",
        "PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])]),
    }


def make_texts(folder: Path) -> None:
    """Write a suite, and a network with its recipes."""
    (folder / "suite.toml").write_text(SUITE, encoding="utf-8")
    (folder / "mine.toml").write_text(NETWORK, encoding="utf-8")
    (folder / "frames.json").write_text(json.dumps(CONVERSATION), encoding="utf-8")


CONVERSATION: list[tuple[dict[str, Any], dict[str, list[Any]]]] = [
    (
        {
            "protocol": 1,
            "shares_memory": False,
            "framework": "linear",
            "version": "1.0",
            "differences": {"initialisation": "its own"},
            "python": "3.11.2",
            "numpy": "1.24.0",
        },
        {},
    ),
    ({"is": 1, "seconds": 0.25}, {}),
    ({"seconds": 0.1}, {"logits": [[0.5, 1.5, -1.0], [2.0, 0.25, 8.0]]}),
    ({"error": "ValueError: no such thing as a digit", "out_of_memory": False}, {}),
]
"""What a host says: its greeting, and answers with their arrays, which are float32."""


def make_networks(folder: Path) -> None:
    """Write one LeNet-1 in every format that is read."""
    import keras
    import torch

    from robustcmp.sources.from_files import FromFile

    weights = files("robustcmp.resources.zoo") / "weights"
    for framework in ("torch", "tensorflow"):
        (folder / f"{framework}.h5").write_bytes((weights / f"lenet1-digits-{framework}-default-0.h5").read_bytes())
    with h5py.File(folder / "torch.h5") as file:
        names: list[str] = []
        file["weights"].visititems(lambda name, item: names.append(name) if isinstance(item, h5py.Dataset) else None)
        arrays = {name: file["weights"][name][()] for name in names}
    np.savez(folder / "lenet1.npz", **arrays)
    np.savez_compressed(folder / "packed.npz", **arrays)
    trained: dict[str, Any] = {}
    for framework in ("torch", "tensorflow"):
        trained[framework] = FromFile(str(folder / f"{framework}.h5"), framework, "lenet1").load()
    state = trained["torch"].native.state_dict()
    torch.save(state, folder / "lenet1.pt")
    torch.save(state, folder / "old.pt", _use_new_zipfile_serialization=False)
    model: keras.Model = trained["tensorflow"].native
    model.save(folder / "lenet1.keras")
    model.save_weights(folder / "lenet1.weights.h5")
    mutations.make_canaries(folder / "canary")
    mutations.make_bomb(folder / "bomb.npz", (folder / "lenet1.npz").read_bytes(), f"{names[0]}.npy")
    mutations.make_bomb(folder / "bomb.pt", (folder / "lenet1.pt").read_bytes(), "lenet1/data/0")
    mutations.make_bomb(folder / "bomb.keras", (folder / "lenet1.keras").read_bytes(), "model.weights.h5")


def make_run(folder: Path) -> None:
    """Write a run of two models, one of them trained twice, with checks, transfer and conditioning."""
    import robustcmp as rc

    suite = folder / "short.toml"
    suite.write_text(SUITE.partition("\n[attacks.pgd]")[0], encoding="utf-8")
    data = rc.load_dataset("digits", split="test")
    a, b, c = (rc.load_model("lenet1", framework="torch", dataset="digits", seed=seed) for seed in range(3))
    evaluation = rc.evaluate(
        {"a": [a, b], "b": c}, data.images[:200], data.labels[:200], suite=suite, out=folder / "run", progress=False
    )
    evaluation.run_checks()
    evaluation.run_transfer()
    evaluation.run_conditioning()
    shutil.copyfile(str(files("robustcmp.resources.zoo") / "weights" / WEIGHTS), folder / "weights.h5")
    mutations.make_canaries(folder / "canary")


if __name__ == "__main__":
    {"texts": make_texts, "networks": make_networks, "run": make_run}[sys.argv[1]](Path(sys.argv[2]))

"""Measure what asking ONNX Runtime through robustcmp costs, beside asking it directly.

Both answer the same batches of the same file, in turns, with the same number of threads; the order changes from turn to
turn. The ratio is the median over pairs of turns.

    python benchmarks/deployments.py        # a minute; benchmarks/results/deployments.json
    python benchmarks/tables.py             # into docs/deployments.md
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import onnxruntime
from numpy.typing import NDArray

import robustcmp as rc
from robustcmp.deployments.onnx_files import write_onnx
from robustcmp.models.classifier import Classifier
from robustcmp.networks.architecture import get_architecture
from robustcmp.provenance import made_with, processor
from robustcmp.threads import cores

RESULTS = Path(__file__).parent / "results" / "deployments.json"
NETWORKS = {"lenet5": 8, "resnet20": 1}  # batches a turn
BATCH, TURNS = 512, 60


def network(name: str, folder: Path) -> Path:
    """Write a network with random weights as ONNX: its time does not depend on them."""
    architecture, rng = get_architecture(name), np.random.default_rng(0)
    weights = {key: rng.random(shape, np.float32) / 10 for key, shape in architecture.weight_shapes.items()}
    write_onnx(architecture, weights, path := folder / f"{name}.onnx")
    return path


def directly(path: Path) -> Callable[[NDArray[np.float32]], NDArray[np.float32]]:
    """Return a function of images (N, C, H, W) that asks ONNX Runtime as its documentation does."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = cores()
    options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    name = session.get_inputs()[0].name
    return lambda images: session.run(None, {name: images})[0]


def measured(name: str, folder: Path, turns: int) -> dict[str, Any]:
    """Return the wall and CPU seconds of a batch, asked directly and through robustcmp, and their ratios."""
    path = network(name, folder)
    classifier = Classifier(rc.open_deployed(path, "onnxruntime"), batch_size=BATCH)
    images = np.random.default_rng(1).random((BATCH, *get_architecture(name).input_shape), np.float32)
    first = np.ascontiguousarray(images.transpose(0, 3, 1, 2))
    direct = directly(path)
    ways: dict[str, Callable[[], NDArray[np.float32]]] = {
        "directly": lambda: direct(first),
        "through robustcmp": lambda: classifier.logits(images),
    }
    answers = [ask() for ask in ways.values()]
    assert np.array_equal(*answers), "both ways should answer alike"
    spent: dict[str, list[tuple[float, float]]] = {way: [] for way in ways}
    for turn in range(turns):
        for way in list(ways)[:: 1 if turn % 2 else -1]:
            wall, cpu = time.perf_counter(), time.process_time()
            for _ in range(NETWORKS[name]):
                ways[way]()
            spent[way].append((time.perf_counter() - wall, time.process_time() - cpu))
    pairs = list(zip(*spent.values(), strict=True))
    row: dict[str, Any] = {"model": name, "batch": BATCH, "threads": cores(), "turns": turns}
    for place, kind in enumerate(("wall", "cpu")):
        ratios = sorted(ours[place] / theirs[place] for theirs, ours in pairs)
        row[kind] = {way: median(each[place] for each in its) / NETWORKS[name] for way, its in spent.items()}
        row[f"{kind}_ratio"] = [ratios[len(ratios) // 4], median(ratios), ratios[-len(ratios) // 4]]
    return row


def main() -> None:
    """Measure every network, and keep what came out."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=TURNS, metavar="N", help="turns of each way")
    turns = parser.parse_args().turns
    with tempfile.TemporaryDirectory() as folder:
        rows = [measured(name, Path(folder), turns) for name in NETWORKS]
    content = {
        "command": "python benchmarks/deployments.py",
        "processor": processor(),
        "threads": cores(),
        "versions": made_with()["versions"] | {"onnxruntime": onnxruntime.__version__},
        "rows": rows,
    }
    RESULTS.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    for row in rows:
        print(json.dumps(row))


if __name__ == "__main__":
    main()

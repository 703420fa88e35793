"""Measure what asking deployed networks through robustcmp costs, beside asking their runtimes directly.

Both answer the same batches of the same file, in turns, with the same number of threads; the order changes from turn to
turn. The ratio is the median over pairs of turns. Every installed deployment is measured that answers in this process.
Programs of torch are asked as one tensor, without a copy, and compiled ones by `torch.compile` for that size alone.

    python benchmarks/deployments.py        # half an hour; benchmarks/results/deployments.json
    python benchmarks/deployments.py --models lenet5 --deployments litert     # these alone; the other rows stay
    python benchmarks/tables.py             # into docs/deployments.md
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from functools import cache
from itertools import product
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray

import robustcmp as rc
from robustcmp.deployments import split
from robustcmp.models.classifier import Classifier
from robustcmp.networks.architecture import get_architecture
from robustcmp.provenance import made_with, processor
from robustcmp.threads import cores

RESULTS = Path(__file__).parent / "results" / "deployments.json"
NETWORKS = {"lenet5": 8, "resnet20": 1}  # batches a turn
DATASETS = {"lenet5": "digits", "resnet20": "cifar10"}
DEPLOYMENTS = (
    *("onnxruntime", "onnxruntime-int8", "litert", "litert-int8", "openvino", "openvino-int8"),
    *("torch-export", "torch-export-int8", "torch-compile"),
)
BATCH, TURNS = 512, 60
ALIKE = 0.99  # classes: other batches may change the last bits, which int8 rounds
Images = NDArray[np.float32]
Ask = Callable[[Images], Images]


def onnxruntime(path: Path, name: str) -> Ask:
    """Return a function of images (N, C, H, W) that asks ONNX Runtime as its documentation does."""
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.intra_op_num_threads = cores()
    options.inter_op_num_threads = 1
    session = ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    given = session.get_inputs()[0].name
    return lambda images: session.run(None, {given: images})[0]


def litert(path: Path, name: str) -> Ask:
    """The same of LiteRT and images (N, H, W, C); those in int8 are made at every call, as they have to be."""
    from ai_edge_litert.interpreter import Interpreter

    interpreter = Interpreter(str(path), num_threads=cores())
    (given,), (answer,) = interpreter.get_input_details(), interpreter.get_output_details()
    interpreter.resize_tensor_input(given["index"], [BATCH, *given["shape"][1:]])
    interpreter.allocate_tensors()

    def ask(images: Images) -> Images:
        if given["dtype"] != np.float32:
            scale, zero = given["quantization"]
            images = np.clip(np.rint(images / np.float32(scale)) + zero, -128, 127).astype(np.int8)  # type: ignore[assignment]
        interpreter.set_tensor(given["index"], images)
        interpreter.invoke()
        logits: Images = interpreter.get_tensor(answer["index"])
        if answer["dtype"] != np.float32:
            scale, zero = answer["quantization"]
            logits = (logits.astype(np.float32) - zero) * np.float32(scale)
        return logits

    return ask


def openvino(path: Path, name: str) -> Ask:
    """The same of OpenVINO, with the options that robustcmp sets."""
    import openvino as ov

    core = ov.Core()
    options = {"INFERENCE_PRECISION_HINT": "f32", "EXECUTION_MODE_HINT": "ACCURACY", "INFERENCE_NUM_THREADS": cores()}
    options["PERFORMANCE_HINT"] = "LATENCY"
    request = core.compile_model(core.read_model(path), "CPU", options).create_infer_request()
    return lambda images: request.infer([images], share_inputs=True)[0]


def torch(path: Path, name: str) -> Ask:
    """The same of an exported program, which Inductor compiles for this one size where robustcmp has it compiled."""
    import torch as pytorch
    from torch._inductor import config

    pytorch.set_num_threads(cores())
    exported = pytorch.export.load(path)
    program: Any = exported.module()
    if name != "torch-export":
        program = pytorch.compile(program, dynamic=False)

    def ask(images: Images) -> Images:
        with pytorch.no_grad():
            logits: Images = program(pytorch.from_numpy(images)).numpy()
        return logits

    if name != "torch-export":
        with config.patch(freezing=True):
            ask(np.zeros((BATCH, *exported.example_inputs[0][0].shape[1:]), np.float32))
    return ask


DIRECTLY: dict[str, Callable[[Path, str], Ask]] = {
    "onnxruntime": onnxruntime,
    "litert": litert,
    "openvino": openvino,
    "torch-export": torch,
    "torch-compile": torch,
}


DIRECT, THROUGH = "directly", "through robustcmp"


def ways_of(name: str, deployment: str, batch: int = BATCH) -> dict[str, Callable[[], Images]]:
    """Return how a batch is asked directly and through robustcmp; what asks directly is opened at its first batch."""
    model = rc.load_model(name, framework="torch", dataset=DATASETS[name])
    images = np.random.default_rng(1).random((batch, *get_architecture(name).input_shape), np.float32)
    deployed = rc.deploy(model, deployment, calibration=images[:64])
    runtime, _ = split(deployment)
    open_directly = cache(lambda: DIRECTLY[runtime.name](deployed.native.files.main, deployment))
    classifier = Classifier(deployed, batch_size=batch)
    first = images if runtime.name == "litert" else np.ascontiguousarray(images.transpose(0, 3, 1, 2))
    return {DIRECT: lambda: open_directly()(first), THROUGH: lambda: classifier.logits(images)}


def measure(name: str, deployment: str) -> dict[str, Any]:
    """Return the wall and CPU seconds of a batch, asked directly and through robustcmp, and their ratios."""
    ways = ways_of(name, deployment)
    theirs, ours = (ask() for ask in ways.values())
    assert np.mean(theirs.argmax(1) == ours.argmax(1)) >= ALIKE, "both ways should answer alike"
    row: dict[str, Any] = {"model": name, "deployment": deployment, "batch": BATCH, "threads": cores(), "turns": TURNS}
    row |= in_turns(ways, NETWORKS[name])
    return row


def in_turns(ways: dict[str, Callable[[], Images]], times: int) -> dict[str, Any]:
    """Return the median wall and CPU seconds of each way, asked so often a turn, and the quartiles of the ratio."""
    spent: dict[str, list[tuple[float, float]]] = {way: [] for way in ways}
    for turn in range(TURNS):
        for way in list(ways)[:: 1 if turn % 2 else -1]:
            wall, cpu = time.perf_counter(), time.process_time()
            for _ in range(times):
                ways[way]()
            spent[way].append((time.perf_counter() - wall, time.process_time() - cpu))
    pairs, found = list(zip(*spent.values(), strict=True)), {}
    for place, kind in enumerate(("wall", "cpu")):
        ratios = sorted(mine[place] / other[place] for other, mine in pairs)
        found[kind] = {way: median(each[place] for each in its) / times for way, its in spent.items()}
        found[f"{kind}_ratio"] = [ratios[len(ratios) // 4], median(ratios), ratios[-len(ratios) // 4]]
    return found


def main() -> None:
    """Measure the deployments that are installed, and put what came out beside what was measured of others before."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", choices=NETWORKS, default=list(NETWORKS))
    parser.add_argument("--deployments", nargs="+", choices=DEPLOYMENTS, default=list(DEPLOYMENTS))
    options = parser.parse_args()
    for model, deployment in product(options.models, options.deployments):
        runtime, _ = split(deployment)
        if not runtime.explain_absence():
            keep(measure(model, deployment), {runtime.package: runtime.version()})


def keep(row: dict[str, Any], versions: dict[str, str]) -> None:
    """Put a row into the file, in place of that of the same network and deployment."""
    print(json.dumps(row), flush=True)
    content = json.loads(RESULTS.read_text(encoding="utf-8"))
    rows = {(each["model"], each["deployment"]): each for each in [*content["rows"], row]}
    content |= {"command": "python benchmarks/deployments.py", "processor": processor(), "threads": cores()}
    content["versions"] |= made_with()["versions"] | versions
    content["rows"] = [rows[key] for key in product(NETWORKS, DEPLOYMENTS) if key in rows]
    RESULTS.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

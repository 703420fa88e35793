"""Half an hour on a machine with a GPU: tests, attacks beside their floors, AutoAttack, and VGG-16.

    python benchmarks/on_gpu.py OUT
    python benchmarks/on_gpu.py OUT --tiny    # rehearse on a CPU, in minutes: small networks, few images

AutoAttack runs beside other libraries, which benchmarks/autoattack.py says how to get.

Each step is a process of its own, writes into OUT at once, and is not done again where its file is there; a step that
fails does not keep the others from being done. Bring back OUT without its weights.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import bench

from robustcmp.attacks.suite import load_suite
from robustcmp.data import load_dataset
from robustcmp.provenance import made_with
from robustcmp.sources.recipes import default_dataset

FRAMEWORKS = ("torch", "jax")
ROUNDS = 3
LIMIT = 900  # seconds of a step


def list_steps(out: Path, tiny: bool) -> Iterator[tuple[str, list[str]]]:
    """Yield the name and the command of each step, in the order in which they matter."""
    device = "cpu" if tiny else "cuda"
    floors = [str(Path(__file__)), str(out), *(["--tiny"] if tiny else [])]
    model, dataset = ("lenet1", "digits") if tiny else ("vgg16", "cifar10")
    weights = {framework: out / f"{model}-{dataset}-{framework}-default-0.h5" for framework in FRAMEWORKS}
    yield "tests", ["-m", "pytest", "-q", "-m", "gpu", "tests/test_classifier.py", "tests/test_frameworks.py"]
    for framework in FRAMEWORKS:
        yield f"floor-{framework}", [*floors, "--floor", framework]
    network, images = ("lenet5", "2") if tiny else ("resnet20", "200")
    speed = [
        str(Path(__file__).with_name("autoattack.py")),
        "speed",
        network,
        images,
        "build/auto-attack",
        "build/rivals",
    ]
    yield "autoattack", [*speed, "--device", device, "--only", "whole"]
    for framework, path in weights.items():
        train = ["-m", "robustcmp.train", "--model", model, "--dataset", dataset, "--framework", framework]
        train += ["--device", device, "--out", str(path.parent)]
        yield f"train-{framework}", [*train, "--epochs", "1"] if tiny else train
    attack = ["-m", "robustcmp.eval", "--architecture", model, "--dataset", dataset, "--device", device]
    attack += ["--images", "20" if tiny else "1000", "--repeats", "1", "--out", str(out / "run"), "--weights"]
    yield "attack", [*attack, *(f"{framework}={path}" for framework, path in weights.items())]


def measure_floors(framework: str, tiny: bool) -> Iterator[dict[str, Any]]:
    """Yield each attack's time over the floor of forward passes, for LeNet-5 and ResNet-20, in rounds."""
    bench.Counted.device = "cpu" if tiny else "cuda"
    images = 5 if tiny else 1000
    for model in ("lenet5", "resnet20"):
        data = load_dataset(default_dataset(model))
        data = replace(data, images=data.images[: 2 * images], labels=data.labels[: 2 * images])
        counted = bench.Counted(framework, model, data)
        tried = counted.best_ways()
        for _ in range(1 if tiny else ROUNDS):
            for name, attack in load_suite("guo2019").attacks.items():
                row = bench.time_attack(counted, attack, min(images, len(counted.images)), 1, tried)
                del row["fooled"]
                yield {"framework": framework, "model": model, "attack": name, "gpu": name_gpu()} | row


def name_gpu() -> str:
    """Return the name of the card, and the driver's version."""
    query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    try:
        return subprocess.run(query, capture_output=True, text=True, check=True).stdout.strip()
    except OSError:
        return "no GPU"


def main() -> int:
    """Do the steps that are not done, and return how many failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--tiny", action="store_true", help="a rehearsal on a CPU")
    parser.add_argument("--floor", choices=FRAMEWORKS, help="print this step's rows alone")
    options = parser.parse_args()
    if options.floor:
        for row in measure_floors(options.floor, options.tiny):
            print(json.dumps(row), flush=True)
        return 0
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "machine.json").write_text(json.dumps(made_with() | {"gpu": name_gpu()}, indent=1) + "\n")
    failed = 0
    for name, arguments in list_steps(options.out, options.tiny):
        done = options.out / f"{name}.txt"
        if done.exists():
            continue
        part = done.with_suffix(".part")
        began = time.monotonic()
        with part.open("w", encoding="utf-8") as file:
            command = ["timeout", str(LIMIT), sys.executable, *arguments]
            status = subprocess.run(command, stdout=file, stderr=subprocess.STDOUT).returncode
        if status == 0:
            part.rename(done)
        failed += status != 0
        seconds = time.monotonic() - began
        outcome = "done" if status == 0 else f"failed, see {part}"
        print(f"{name}: {outcome}, {seconds:.0f} s", flush=True)
    return failed


if __name__ == "__main__":
    sys.exit(main())

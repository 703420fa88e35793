"""Measure how near the attacks are to the forward-pass floor, and what other tools take.

The floor of an attack is (queries that are asked) / (the best forward rate of this model). Everything is measured in
one process pinned to two cores, the forward rate again before and after each attack, as machines drift: compare ratios.

    make bench                                        # all of it, into benchmarks/results/
    python benchmarks/bench.py --only floor --framework torch
"""

from __future__ import annotations

import os

THREADS = 2
os.environ["OMP_NUM_THREADS"] = str(THREADS)
if hasattr(os, "sched_setaffinity"):
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:THREADS])

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import robustcmp as rc
from robustcmp.attacks.suite import Attack, load_suite
from robustcmp.data.dataset import Dataset
from robustcmp.errors import MissingDataError
from robustcmp.frameworks import get_framework
from robustcmp.frameworks.hosted import Hosted
from robustcmp.hosts import environments
from robustcmp.models.batches import BATCH_SIZES, measure_batch_size, measure_rate
from robustcmp.models.classifier import Classifier
from robustcmp.models.model import Model
from robustcmp.models.preflight import check_gradient
from robustcmp.networks.architecture import (
    Architecture,
    BatchNorm,
    Conv,
    Dense,
    GlobalAveragePool,
    Layer,
    MaxPool,
    Relu,
    Residual,
    get_architecture,
)
from robustcmp.provenance import made_with, processor
from robustcmp.sources.from_zoo import FromZoo, find_weights
from robustcmp.sources.recipes import load_test_set

HERE = Path(__file__).parent
FRAMEWORKS = ("torch", "tensorflow", "jax")
ROUNDS = 3
CALLS = 100  # of a host
AS_IT_IS, ONE_CALLER, SIDE_BY_SIDE = "as it is, one caller", "compiled, one caller", "compiled, side by side"
Way = tuple[str, int]  # how the model is asked, and the batch size
RIVALS = (
    ("foolbox3.py", None, {"fgsm": 1000, "boundary": 1000}),
    ("art120.py", "art", {"fgsm": 1000, "boundary": 20, "single_pixel": 2}),
    ("foolbox1.py", "foolbox1", {"fgsm": 100, "single_pixel": 50, "boundary": 20}),
)


class Counted:
    """A compiled classifier, the images it gets right (all of them without labels), and how many were asked."""

    device = "cpu"

    def __init__(self, model: Model, images: NDArray[np.float32], labels: NDArray[np.int64] | None = None):
        self.asked = 0
        self._lock = threading.Lock()
        self.as_it_is = Classifier(model)
        compiled = self.as_it_is.compile(images)
        self.classifier = compiled.with_batch_size(measure_batch_size(compiled, images)).with_callback(self._count)
        classes = self.classifier.predict(images)
        right = classes == (classes if labels is None else labels)
        self.images, self.labels = images[right], classes[right]
        check_gradient("the model", self.classifier, images)  # as before every run; it compiles the gradient

    @classmethod
    def of_zoo(cls, framework: str, model: str, data: Dataset) -> Counted:
        """Return the classifier of a model of the zoo."""
        native = rc.load_model(model, framework=framework, dataset=data.name, device=cls.device)
        return cls(native, data.images, data.labels)

    def _count(self, images: int) -> None:
        with self._lock:
            self.asked += images

    def ways(self) -> dict[str, Classifier]:
        """Return the ways of asking."""
        one = self.classifier.with_callback(lambda images: None)
        one.workers = 1
        return {AS_IT_IS: self.as_it_is, ONE_CALLER: one, SIDE_BY_SIDE: self.classifier}

    def rates(self, seconds: float = 0.4) -> dict[str, dict[int, float]]:
        """Return images a second for each way of asking and each batch size."""
        return {
            way: {n: measure_rate(its, self.images, n, seconds) for n in BATCH_SIZES}
            for way, its in self.ways().items()
        }

    def best_ways(self, rates: dict[str, dict[int, float]] | None = None) -> list[Way]:
        """Return the few fastest ways and batch sizes, of rates that were measured or are measured now."""
        every = {(way, size): rate for way, its in (rates or self.rates()).items() for size, rate in its.items()}
        return sorted(every, key=every.__getitem__)[-4:]

    def best_now(self, tried: list[Way]) -> float:
        """Return the best rate of a few ways and batch sizes, at this moment."""
        ways = self.ways()
        return max(measure_rate(ways[way], self.images, n, 0.3) for way, n in tried)


def drawn() -> dict[str, Any]:
    """The attacks of guo2019, with single pixel's random positions alone and not all of them."""
    return load_suite("guo2019").attacks | {"single_pixel": rc.attacks.SinglePixel()}


def run_attack(counted: Counted, attack: Attack, n: int, repeats: Sequence[int]) -> list[Any]:
    """Attack n images and return which were fooled, for each repeat."""
    outcomes = attack.outcomes(counted.classifier, counted.images[:n], counted.labels[:n], 0, repeats)
    return [result.success for result in outcomes]


def time_attack(
    counted: Counted,
    attack: Attack,
    n: int,
    repeats: int,
    tried: list[Way],
) -> dict[str, Any]:
    """Attack n images and return seconds, queries and the ratio to the floor."""
    before = counted.best_now(tried)
    counted.asked = 0
    cpu, start = time.process_time(), time.perf_counter()
    fooled = run_attack(counted, attack, n, range(1 if attack.deterministic else repeats))
    seconds, cpu, asked = time.perf_counter() - start, time.process_time() - cpu, counted.asked
    rate = (before + counted.best_now(tried)) / 2
    return {
        "images": n,
        "repeats": repeats,
        "seconds": seconds,
        "cpu_seconds": cpu,
        "asked": asked,
        "forward_rate": rate,
        "floor_seconds": asked / rate,
        "ratio": seconds * rate / asked,
        "success_rate": float(np.mean(fooled)),
        "fooled": np.asarray(fooled[0]).tolist(),
    }


def floor(frameworks: list[str], data: Dataset) -> Iterator[dict[str, Any]]:
    """Measure forward rates of every model that ships, and each attack's ratio to the floor for LeNet-5, in rounds."""
    test_sets = {"lenet1": data, "lenet5": data}
    try:
        cifar10 = load_test_set("resnet20")
        test_sets["resnet20"] = replace(cifar10, images=cifar10.images[:1000], labels=cifar10.labels[:1000])
    except MissingDataError as error:
        print(f"without ResNet-20: {error}")
    for framework in frameworks:
        for model, images in test_sets.items():
            counted = Counted.of_zoo(framework, model, images)
            rates = counted.rates()
            yield {"framework": framework, "model": model, "rates": rates, "batch_size": counted.classifier.batch_size}
            if model == "lenet5":
                tried = counted.best_ways(rates)
                for _ in range(ROUNDS):
                    for name, attack in load_suite("guo2019").attacks.items():
                        yield {"framework": framework, "attack": name} | time_attack(counted, attack, 1000, 1, tried)


def rivals(frameworks: list[str], data: Dataset) -> Iterator[dict[str, Any]]:
    """Time other tools on the torch model and the same images, beside robustcmp on as many."""
    counted = Counted.of_zoo("torch", "lenet5", data)
    tried = counted.best_ways()
    content = find_weights(FromZoo("lenet5", data.name, "torch"))
    assert content is not None
    logits = np.sort(counted.classifier.logits(counted.images[:1000]), axis=1)
    with tempfile.TemporaryDirectory() as directory:
        task = Path(directory) / "task.npz"
        weights = {f"weights/{name}": array for name, array in content.weights.items()}
        np.savez(task, images=counted.images[:1000], labels=counted.labels[:1000], **weights)
        for script, environment, attacks in RIVALS:
            python = (
                HERE.parent / "build" / "rivals" / environment / "bin" / "python" if environment else sys.executable
            )
            for name, n in attacks.items():
                attack = drawn()[name]
                command = [python, HERE / "rivals" / script, task, "--attack", name, "--images", str(n)]
                rounds: list[dict[str, Any]] = []
                for _ in range(ROUNDS if attack.deterministic else 1):  # those take a second or two
                    done = subprocess.run([*command, "--threads", str(THREADS)], stdout=subprocess.PIPE, check=True)
                    theirs = json.loads(done.stdout)
                    ours = time_attack(counted, attack, n, 1, tried)
                    times = theirs["seconds"] / ours["seconds"]
                    rounds.append(theirs | {"ours_seconds": ours["seconds"], "times": times})
                differ = np.flatnonzero(np.array(theirs["fooled"]) != np.array(ours["fooled"]))
                margins = logits[differ, -1] - logits[differ, -2]
                row = sorted(rounds, key=lambda its: its["times"])[len(rounds) // 2]
                yield row | {
                    "of_rounds": [its["times"] for its in rounds],
                    "fooled_otherwise": len(differ),
                    "of_these_with_a_clean_margin_above_12": int((margins > 12).sum()),
                }


def hosted(frameworks: list[str], data: Dataset) -> Iterator[dict[str, Any]]:
    """Measure what LeNet-5 takes in hosts whose environments are there: processor time in all, and of logits alone."""
    architecture = get_architecture("lenet5")
    for name in filter(environments.is_ready, environments.SETUPS):
        setup = environments.SETUPS[name]
        python = environments.directory() / name / environments.PYTHON
        arguments = (str(setup.script), *setup.arguments)
        host = Hosted(name, partial(environments.run, name, python, HERE / "timed_host.py", arguments))
        network = host.build(architecture, 0, "cpu")
        for n in (32, 512):
            images = data.images[:n]
            for _ in range(10):  # the first calls compile
                network.call("logits", {"images": images})
            _, before = network.call("seconds")
            start = time.process_time()
            for _ in range(CALLS):
                network.call("logits", {"images": images})
            outside = time.process_time() - start
            _, after = network.call("seconds")
            inside, directly = after["seconds"] - before["seconds"]
            yield {
                "framework": name,
                "batch": n,
                "milliseconds": float((outside + inside) / CALLS * 1e3),
                "ratio": float((outside + inside) / directly),
            }
        host.process().close()


def resnet18() -> Architecture:
    """Return a ResNet-18 for 1,000 classes of 224 × 224 pixels."""
    layers: list[Layer] = [Conv("conv", 64, 7, 2, padding=3), BatchNorm("norm"), Relu("relu"), MaxPool("pool", 2)]
    width = 64
    for block, channels in enumerate((64, 64, 128, 128, 256, 256, 512, 512)):
        stride = channels // width
        branch = (
            Conv(f"conv{block}a", channels, 3, stride, padding=1),
            BatchNorm(f"norm{block}a"),
            Relu(f"relu{block}a"),
            Conv(f"conv{block}b", channels, 3, padding=1),
            BatchNorm(f"norm{block}b"),
        )
        shortcut = (Conv(f"conv{block}c", channels, 1, stride),) if stride > 1 else ()
        layers += [Residual(f"block{block}", branch, shortcut), Relu(f"relu{block}")]
        width = channels
    return Architecture("resnet18", (224, 224, 3), (*layers, GlobalAveragePool("mean"), Dense("logits", 1000)))


def large(frameworks: list[str], data: Dataset) -> Iterator[dict[str, Any]]:
    """Attack few large images on a network with random weights; the floor is in processor seconds."""
    import torch

    coarse = np.random.default_rng(0).random((8, 7, 7, 3), dtype=np.float32)
    images = coarse.repeat(32, axis=1).repeat(32, axis=2)
    network = get_framework("torch").build(resnet18(), 0, "cpu")
    with torch.no_grad():
        network.train()(torch.tensor(images.transpose(0, 3, 1, 2)))  # statistics, so that classes differ
    counted = Counted(rc.wrap(network.eval(), device="cpu"), images)
    attacks = drawn() | {"boundary": rc.attacks.Boundary(iterations=10)}
    for name, attack in attacks.items():
        before = least_cpu_seconds(counted)
        row = time_attack(counted, attack, len(images) // 2, 1, [(SIDE_BY_SIDE, len(images))])
        floor_seconds = row["asked"] * min(before, least_cpu_seconds(counted))
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10
        yield row | {"attack": name, "cpu_ratio": row["cpu_seconds"] / floor_seconds, "peak_memory_mib": peak}


def least_cpu_seconds(counted: Counted) -> float:
    """Return the least processor seconds of an image, over batch sizes and rounds."""
    framework = counted.classifier.framework
    threads = framework.threads()
    framework.set_threads(1)  # where several wait for each other, that counts as processor time
    seconds = []
    for size in 4 * (4, 8, 32):  # the first two of each size compile
        batch = np.resize(counted.images, (size, *counted.images.shape[1:]))
        start = time.process_time()
        counted.classifier.logits(batch)
        seconds.append((time.process_time() - start) / size)
    framework.set_threads(threads)
    return min(seconds)


PARTS: dict[str, Callable[[list[str], Dataset], Iterator[dict[str, Any]]]] = {
    "floor": floor,
    "hosted": hosted,
    "large": large,
    "rivals": rivals,
}


def main() -> None:
    """Run the parts that were asked for, and write one JSON file for each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--framework", nargs="+", choices=FRAMEWORKS, default=list(FRAMEWORKS))
    options = parser.parse_args()
    data = rc.load_dataset("mnist")
    for part in options.only:
        content: dict[str, Any] = {
            "command": "python benchmarks/" + " ".join([Path(sys.argv[0]).name, *sys.argv[1:]]),
            "dataset": data.name,
            "threads": THREADS,
            "processor": processor(),
            "versions": made_with()["versions"] | {name: get_framework(name).version() for name in FRAMEWORKS},
            "rows": [],
        }
        path = HERE / "results" / f"{part}.json"
        for row in PARTS[part](options.framework, data):
            print({key: value for key, value in row.items() if key not in ("fooled", "rates")}, flush=True)
            content["rows"].append({key: value for key, value in row.items() if key != "fooled"})
            path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")  # what came before an error stays


if __name__ == "__main__":
    main()

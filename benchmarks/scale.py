"""Measure what many models and many cells cost beside the attacks themselves.

    python benchmarks/scale.py                       # all of it, into benchmarks/results/
    python benchmarks/scale.py --only cells
    python benchmarks/tables.py                      # the tables of docs/scale.md

``cells`` makes a run of 100,000 cells through the store, and opens, prints and verifies it in one process, five times.
``simulated`` hands 1,000 models × 3 attacks to a real scheduler of Dask with simulated workers, which wait instead of
attacking, for a share of the time that LeNet-5 would take on 10,000 images. ``workers`` runs a real comparison in this
process, in one for each framework, and in 1, 2 and 4 workers; ``isolation`` a longer one in the first two of these.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

import robustcmp as rc
from robustcmp.attacks.suite import Suite, load_suite
from robustcmp.files import digest
from robustcmp.models.classifier import Classifier
from robustcmp.processes import Limits
from robustcmp.provenance import made_with, processor
from robustcmp.records.attack import AttackResult, Cell
from robustcmp.records.manifest import FORMAT
from robustcmp.records.store import Run
from robustcmp.runs import dask
from robustcmp.runs.assembly import assemble
from robustcmp.runs.child import Lacking
from robustcmp.runs.executors import Finished
from robustcmp.runs.loading import TrainedModel
from robustcmp.runs.plan import Plan, Task
from robustcmp.runs.question import validate
from robustcmp.runs.subset import Subset
from robustcmp.runs.tasks import Timed, peak_memory
from robustcmp.sources.from_zoo import FromZoo
from robustcmp.threads import cores

HERE = Path(__file__).parent
MODELS, TRAININGS, IMAGES = 10, 100, 20  # of the run of many cells
REPEATS = 50
SIMULATED = (1, 16, 64)  # workers


def fresh(code: str, *arguments: str) -> dict[str, Any]:
    """Run Python code in a process of its own, and return the JSON that it prints, with its seconds and its memory."""
    began = time.perf_counter()
    printed = subprocess.run(
        [sys.executable, "-c", code, *arguments], check=True, capture_output=True, text=True
    ).stdout
    values: dict[str, Any] = json.loads(printed.splitlines()[-1])
    return values | {"seconds_in_all": time.perf_counter() - began}


# many cells ----------------------------------------------------------------------------------------------------------

READ = """
import json, sys, time
began = time.perf_counter()
import robustcmp as rc
from robustcmp.records.upkeep import verify
ev = rc.open_run(sys.argv[1])
opened = time.perf_counter()
text = str(ev)
printed = time.perf_counter()
wrong = len(list(verify(ev.results.run)))
verified = time.perf_counter()
said = {"opened": opened - began, "printed": printed - opened, "verified": verified - printed}
print(json.dumps(said | {"cpu": time.process_time(), "lines": len(text.splitlines()), "wrong": wrong}))
"""


def outcome(rng: np.random.Generator, suite: Suite, attack: str, images: int, rate: float) -> AttackResult:
    """Return what an attack could have done to some images, with the values that it would keep."""
    success = rng.random(images) < rate
    distance = np.where(success, rng.random(images), np.inf)
    extras: dict[str, Any] = {}
    for name, extra in suite.records[attack].extras.items():
        per_image = np.full(images, 98) if name == "pixels" else np.where(success, 5, 0)
        extras[name] = np.zeros((images, 98), np.uint8) if extra.dims else per_image
    return AttackResult(
        adversarials=None,
        success=success,
        l0=distance,
        l2=distance,
        linf=distance,
        adversarial_class=np.where(success, 3, -1),
        queries=np.full(images, 50),
        extras=extras,
    )


def many_cells(directory: Path) -> dict[str, Any]:
    """Make a run of made-up outcomes through the store, and measure each step and its reading."""
    suite, rng = load_suite("guo2019"), np.random.default_rng(0)
    keys = [(f"framework-{name:02}", seed) for name in range(MODELS) for seed in range(TRAININGS)]
    repeats = {attack: 1 if record.deterministic else REPEATS for attack, record in suite.records.items()}
    cells = [
        Cell(name, seed, attack, repeat, digest({"of": np.array([f"{name} {seed} {attack} {repeat}"], "S")})[:32])
        for name, seed in keys
        for attack in suite.attacks
        for repeat in range(repeats[attack])
    ]
    run = Run.create(directory / "run", keep_images=False)
    manifest = made_up_manifest(suite, keys, cells)
    began = time.perf_counter()
    with run.writing():
        run.write_manifest(manifest)
        rates = {key: dict(zip(suite.attacks, rng.beta(4, 10, len(suite.attacks)), strict=True)) for key in keys}
        for cell in cells:
            rate = rates[cell.model, cell.training_seed][cell.attack]
            run.save(cell, outcome(rng, suite, cell.attack, IMAGES, rate))
        saved = time.perf_counter()
        margins = {key: rng.random(IMAGES) for key in keys}
        asked = dict.fromkeys(suite.attacks, REPEATS)
        arrays = assemble(run, cells, keys, suite.records, asked, np.arange(IMAGES), np.ones(IMAGES, np.int64), margins)
        assembled = time.perf_counter()
        run.write_results(arrays, run.manifest())
    written = time.perf_counter()
    out = str(run.directory)
    sizes = [path.stat().st_size for path in (run.directory / "cells").iterdir()]
    return {
        "cells": len(cells),
        "models": len(keys),
        "images": IMAGES,
        "bytes_a_cell": int(np.mean(sizes)),
        "save_ms": 1000 * (saved - began) / len(cells),
        "assemble_seconds": assembled - saved,
        "results_seconds": written - assembled,
        "read": [fresh(READ, out) for _ in range(5)],
    }


def made_up_manifest(suite: Suite, keys: Iterable[tuple[str, int]], cells: Iterable[Cell]) -> dict[str, Any]:
    """Return the manifest that a comparison of such models would have."""
    model: dict[str, Any] = {
        "framework": "torch",
        "framework_version": "0",
        "batch_size": 512,
        "clean_accuracy": 0.99,
        "logits": "",
    }
    model |= {"info": {}, "not_applicable": {}}
    return {
        "format": FORMAT,
        "about": {"model": "lenet5", "dataset": "mnist"},
        "suite": {
            "name": suite.name,
            "description": suite.description,
            "attacks": msgspec.json.decode(msgspec.json.encode(suite.records)),
            "digest": suite.digest,
        },
        "batch_sizes": {},
        "same_weights": None,
        "twins": [],
        "seed": 0,
        "repeats": REPEATS,
        "spread": False,
        "images": {
            "asked": IMAGES,
            "used": IMAGES,
            "subset": "common",
            "of": 10_000,
            "correct_by_all": 0.98,
            "digest": "",
        },
        "models": [
            model | {"name": name, "training_seed": seed, "info": {}, "not_applicable": {}} for name, seed in keys
        ],
        "cells": [asdict(cell) for cell in cells],
        "environment": made_with(),
    }


# a scheduler with simulated workers ----------------------------------------------------------------------------------


def measure_seconds(suite: Suite, images: int) -> dict[str, float]:
    """Return the seconds an image of each attack, all its repeats, on LeNet-5 in torch with one thread."""
    data = rc.load_dataset("digits")
    model = Classifier(rc.load_model("lenet5", framework="torch", dataset="digits")).compile(data.images[:1])
    right = np.flatnonzero(model.predict(data.images) == data.labels)[:images]
    model.workers = 1
    taken = {}
    for name, attack in suite.attacks.items():
        repeats = range(1 if attack.deterministic else suite.repeats)
        list(attack.outcomes(model, data.images[right[:2]], data.labels[right[:2]], 0, [0]))
        began = time.perf_counter()
        list(attack.outcomes(model, data.images[right], data.labels[right], 0, list(repeats)))
        taken[name] = (time.perf_counter() - began) / len(right)
    return taken


class Simulation:
    """Stands for `robustcmp.runs.dask.do_task`: waits a share of the measured time, and has its results ready."""

    def __init__(self, suite: Suite, images: int, seconds: Mapping[str, float], share: float):
        rng = np.random.default_rng(0)
        self._seconds = {attack: share * images * of for attack, of in seconds.items()}
        self._results = {attack: outcome(rng, suite, attack, images, 0.3) for attack in suite.attacks}
        self._known: set[tuple[str, str]] = set()
        self.waited = 0.0
        self._lock = threading.Lock()

    def do_task(self, task: Task, luggage: Mapping[str, Any]) -> dask.Outcome:
        """Return the results of a task after its time."""
        from distributed import get_worker

        worker = get_worker()
        assert task.remote is not None
        with self._lock:
            self._known |= {(worker.address, sha) for sha in luggage}
            needed = [task.remote.data, *(sha for _, sha in task.remote.files.values())]
            lacks = [sha for sha in needed if (worker.address, sha) not in self._known]
        if lacks:
            return dask.Outcome([], Lacking(lacks[0]))
        seconds = self._seconds[task.attack]
        time.sleep(seconds)
        with self._lock:
            self.waited += seconds
        result = self._results[task.attack]
        return dask.Outcome([Timed(result, seconds, None) for _ in task.repeats], None)


def do_task(task: Task, luggage: Mapping[str, Any], terms: object) -> dask.Outcome:
    """Do what the simulation of this process does: what travels has to be found by its name."""
    assert SIMULATION is not None
    return SIMULATION.do_task(task, luggage)


SIMULATION: Simulation | None = None


def make_simulated_plan(suite: Suite, models: int, images: int) -> Plan:
    """Return a comparison of many models, all of them one in truth."""
    origin = FromZoo("lenet5", "digits", "torch")
    data = rc.load_dataset("digits")
    classifier = Classifier(origin.load("cpu")).compile(data.images[:1]).with_batch_size(512)
    trained = [TrainedModel("torch", seed, classifier, origin) for seed in range(models)]
    cells = [
        Cell("torch", seed, attack, repeat, f"{seed}-{attack}-{repeat}")
        for seed in range(models)
        for attack in suite.attacks
        for repeat in range(1 if suite.attacks[attack].deterministic else suite.repeats)
    ]
    many = np.resize(data.images, (images, *data.images.shape[1:]))
    labels = np.resize(data.labels, images)
    question = validate(many, labels, suite, images, None, False, 0, None)
    subset = Subset(np.arange(images), np.ones((models, images), np.bool_))
    plan = Plan(question, subset, trained, {}, {}, {}, cells)
    identity = type("Known", (), {"logits": "0" * 64})()
    return replace(plan, identities={model.key: identity for model in trained})


def simulate(workers: int, models: int, images: int, seconds: Mapping[str, float], share: float) -> dict[str, Any]:
    """Hand all groups to simulated workers of a real scheduler, and measure what the head needs beside them."""
    from distributed import LocalCluster

    suite = load_suite("guo2019")
    plan = make_simulated_plan(suite, models, images)
    global SIMULATION
    SIMULATION = simulation = Simulation(suite, images, seconds, share)
    dask.do_task = do_task  # type: ignore[assignment]
    cluster = LocalCluster(
        n_workers=workers,
        threads_per_worker=1,
        processes=False,
        protocol="tcp://",
        dashboard_address=None,
        memory_limit=None,
        silence_logs=50,
    )
    tasks = list(plan.missing(Nothing()))
    before = peak_memory() or 0
    cpu, began = time.process_time(), time.perf_counter()
    executor = dask.Dask(cluster.scheduler_address, Limits())
    first, count = 0.0, 0
    for made in executor.execute(plan, tasks, lambda attack, queries: None):
        assert isinstance(made, Finished), made
        first = first or time.perf_counter() - began
        count += 1
    wall = time.perf_counter() - began
    cpu = time.process_time() - cpu
    cluster.close()
    assert count == len(plan.cells)
    return {
        "workers": workers,
        "models": models,
        "images": images,
        "groups": len(tasks),
        "share": share,
        "work_seconds": simulation.waited,
        "seconds": wall,
        "first_result": first,
        "cpu_ms_a_group": 1000 * cpu / len(tasks),
        "idle_ms_a_group": 1000 * (workers * wall - simulation.waited) / len(tasks),
        "efficiency": simulation.waited / (workers * wall),
        "memory": (peak_memory() or 0) - before,
    }


class Nothing:
    """A store without cells."""

    def __contains__(self, key: str) -> bool:
        return False

    def extras(self, key: str) -> dict[str, Any]:
        raise KeyError(key)


# real workers --------------------------------------------------------------------------------------------------------

WAYS: dict[str, list[str]] = {
    "in process": ["--executor", "in-process"],
    "isolated": ["--executor", "isolated"],
    "1 worker": ["--executor", "dask:1"],
    "2 workers": ["--executor", "dask:2"],
    "4 workers": ["--executor", "dask:4"],
}


def real_workers(directory: Path, ways: Sequence[str], images: int, rounds: int) -> list[dict[str, Any]]:
    """Run one comparison in some ways, by turns, and measure the whole command and the attacks alone."""
    rows: list[dict[str, Any]] = []
    digests = set()
    for turn in range(rounds):
        for way in ways if turn % 2 == 0 else reversed(ways):
            options = WAYS[way]
            out = directory / f"{way.replace(' ', '-')}-{turn}"
            command = [
                sys.executable,
                "-m",
                "robustcmp.eval",
                "--model",
                "lenet5",
                "--dataset",
                "digits",
                "--no-images",
            ]
            command += ["--framework", "torch", "jax", "--training-seeds", "0", "1", "2", "3", "--images", str(images)]
            command += ["--batch-size", "256"]  # not measured: results depend on it in their last bits
            began, cpu, loaded = time.perf_counter(), of_children(), os.getloadavg()[0]
            subprocess.run([*command, "--out", str(out), *options], check=True, capture_output=True)
            wall, cpu = time.perf_counter() - began, of_children() - cpu
            ev = rc.open_run(out)
            arrays = {name: np.asarray(of) for name, of in ev.dataset.items() if of.dtype.kind != "O"}
            digests.add(digest({str(name): of for name, of in arrays.items()}))
            finished = sorted(path.stat().st_mtime for path in out.glob("cells/*.h5"))
            rows.append({"way": way, "turn": turn, "seconds": wall, "cpu": cpu, "load": loaded, "images": images})
            rows[-1]["groups"] = len(ev.costs)
            rows[-1]["attacks_seconds"] = finished[-1] - finished[0]
            rows[-1]["work_seconds"] = float(ev.costs["seconds"].sum())
    if len(digests) > 1:  # what was measured is kept all the same
        print("the results of all ways should be the same bit for bit, and are not", file=sys.stderr)
    return [row | {"alike": len(digests) == 1} for row in rows]


def of_children() -> float:
    """Return the processor time of all processes that this one has waited for, and of those they have waited for."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


PARTS = ("cells", "simulated", "workers", "isolation")


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command."""
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--only", nargs="+", choices=PARTS, default=PARTS)
    made.add_argument("--images", type=int, default=100, help="of the comparison by real workers")
    made.add_argument("--long-images", type=int, default=500, help="of the long comparison, with and without isolation")
    made.add_argument("--rounds", type=int, default=3, help="turns of the comparison by real workers")
    return made


def main() -> None:
    """Measure what is asked for, and write each part as soon as it is there."""
    options = parser().parse_args()

    def keep(part: str, rows: object) -> None:
        made = made_with()
        content = {
            "command": "python benchmarks/" + " ".join([Path(sys.argv[0]).name, *sys.argv[1:]]),
            "threads": cores(),
            "processor": processor(),
            "versions": made["versions"],
            "rows": rows,
        }
        (HERE / "results" / f"scale-{part}.json").write_text(json.dumps(content, indent=1) + "\n")

    with tempfile.TemporaryDirectory(prefix="robustcmp-scale-") as directory:
        if "workers" in options.only:
            keep("workers", real_workers(Path(directory), [*WAYS], options.images, options.rounds))
        if "isolation" in options.only:
            ways = ["in process", "isolated"]
            keep("isolation", real_workers(Path(directory), ways, options.long_images, options.rounds))
        if "cells" in options.only:
            keep("cells", [many_cells(Path(directory))])
        if "simulated" in options.only:
            seconds = measure_seconds(load_suite("guo2019"), 20)
            rows: list[dict[str, Any]] = []
            for workers in SIMULATED:
                models = 1000 if workers > 1 else 20
                share = SIMULATED_SECONDS * workers / (models * 10_000 * sum(seconds.values()))
                rows.append(fresh(SIMULATING, json.dumps([workers, models, 10_000, seconds, share]), str(HERE)))
                rows[-1]["seconds_an_image"] = seconds
                keep("simulated", rows)


SIMULATED_SECONDS = 60.0
SIMULATING = """
import json, sys
sys.path.insert(0, sys.argv[2])
import scale
print(json.dumps(scale.simulate(*json.loads(sys.argv[1]))))
"""

if __name__ == "__main__":
    main()

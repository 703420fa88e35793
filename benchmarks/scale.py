"""Measure what many models and many cells cost beside the attacks themselves.

    python benchmarks/scale.py                       # all of it, into benchmarks/results/
    python benchmarks/scale.py --only cells
    python benchmarks/tables.py                      # the table of docs/clusters.md

``cells`` makes a run of 100,000 cells through the store, and opens, prints and verifies it in one process, five times.
``workers`` runs a real comparison in this
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
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

import robustcmp as rc
from robustcmp.attacks.suite import Suite, load_suite
from robustcmp.files import digest
from robustcmp.provenance import made_with, processor
from robustcmp.records.attack import AttackResult, Cell
from robustcmp.records.manifest import FORMAT
from robustcmp.records.store import Run
from robustcmp.runs.assembly import assemble
from robustcmp.threads import cores

HERE = Path(__file__).parent
MODELS, TRAININGS, IMAGES = 10, 100, 20  # of the run of many cells
REPEATS = 50


def read_fresh(*arguments: str) -> dict[str, Any]:
    """Read a run in a process of its own, and return the JSON that it prints, with its seconds."""
    began = time.perf_counter()
    printed = subprocess.run([sys.executable, "-c", READ, *arguments], check=True, stdout=subprocess.PIPE).stdout
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
    with run.lock():
        run.write_manifest(manifest)
        rates = {key: dict(zip(suite.attacks, rng.beta(4, 10, len(suite.attacks)), strict=True)) for key in keys}
        for cell in cells:
            rate = rates[cell.model, cell.training_seed][cell.attack]
            run.save(cell, outcome(rng, suite, cell.attack, IMAGES, rate))
        saved = time.perf_counter()
        margins = {key: rng.random(IMAGES) for key in keys}
        asked = dict.fromkeys(suite.attacks, REPEATS)
        arrays = assemble(run, cells, suite.records, asked, np.arange(IMAGES), np.ones(IMAGES, np.int64), margins)
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
        "read": [read_fresh(out) for _ in range(5)],
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


def main() -> None:
    """Measure what is asked for, and write each part as soon as it is there."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parts = ("cells", "workers", "isolation")
    parser.add_argument("--only", nargs="+", choices=parts, default=parts)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="robustcmp-scale-") as directory:
        for part in options.only:
            if part == "cells":
                rows = [many_cells(Path(directory))]
            elif part == "workers":
                rows = real_workers(Path(directory), [*WAYS], images=100, rounds=3)
            else:
                rows = real_workers(Path(directory), ["in process", "isolated"], images=500, rounds=3)
            content = {
                "command": "python benchmarks/" + " ".join([Path(sys.argv[0]).name, *sys.argv[1:]]),
                "threads": cores(),
                "processor": processor(),
                "versions": made_with()["versions"],
                "rows": rows,
            }
            (HERE / "results" / f"scale-{part}.json").write_text(json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    main()

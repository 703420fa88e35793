"""Check the measurements of training and prediction themselves.

    python benchmarks/measuring.py                   # all of it, into benchmarks/results/measuring.json
    python benchmarks/measuring.py --only null

``null`` measures PyTorch under two names, again and again: whatever is found there is an error. ``slowed`` measures a
network beside itself with a tenth of its time on top. ``sampling`` says what looking at processes costs of their time.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import robustcmp as rc
from robustcmp.models.classifier import Classifier
from robustcmp.models.model import Model
from robustcmp.provenance import made_with, processor
from robustcmp.threads import cores

HERE = Path(__file__).parent
RESULTS = HERE / "results" / "measuring.json"
PARTS = ("null", "slowed", "sampling")
SLOWER = 0.1
TIMES = 20  # of the null
REPETITIONS = 10  # processes of each subject


def network(slower: float) -> Model:
    """Return LeNet-5 behind functions, which take a share of their time more."""
    model_logits = Classifier(rc.load_model("lenet5", framework="torch", dataset="digits"), 512).logits

    def logits(images: NDArray[np.float32]) -> NDArray[np.float32]:
        began = time.perf_counter()
        answer = model_logits(images)
        until = time.perf_counter() + slower * (time.perf_counter() - began)
        while time.perf_counter() < until:
            pass
        return answer

    return rc.wrap_functions(logits=logits, bounds=(0, 1))


def plain() -> Model:
    """Return the network as it is."""
    return network(0.0)


def slowed() -> Model:
    """Return the network with a tenth of its time on top."""
    return network(SLOWER)


def null(directory: Path) -> dict[str, Any]:
    """Measure one framework under two names, so many times."""
    rows = []
    for seed in range(TIMES):
        found = rc.benchmark(
            "train",
            "lenet1",
            frameworks={"a": "torch", "b": "torch"},
            dataset="digits",
            batch_sizes=[64],
            epochs=1,
            repetitions=REPETITIONS,
            seed=seed,
            threads=1,
            out=directory / f"null-{seed}",
        )
        [row] = found.tests().to_dict("records")
        rows.append({name: float(row[name]) for name in ("ratio", "low", "high", "p", "p_adjusted")})
    return {"times": TIMES, "repetitions": REPETITIONS, "rows": rows}


def slower(directory: Path) -> dict[str, Any]:
    """Measure a network beside itself with a tenth of its time on top."""
    models = {name: rc.from_function(f"measuring:{name}") for name in ("plain", "slowed")}
    found = rc.benchmark(
        "predict",
        models=models,
        frameworks=[],
        dataset="digits",
        images=[2000],
        batch_sizes=[100],
        repetitions=REPETITIONS,
        threads=1,
        out=directory / "slowed",
    )
    [row] = found.tests().to_dict("records")
    return {"repetitions": REPETITIONS} | {
        name: row[name] if isinstance(row[name], str) else float(row[name])
        for name in ("a", "b", "ratio", "low", "high", "p", "p_adjusted")
    }


def sampling(directory: Path) -> dict[str, Any]:
    """Return what share of the time of the processes above went into looking at them."""
    spent = [
        (measured.resources.sampling_seconds, measured.seconds)
        for out in directory.iterdir()
        for measured in rc.open_benchmark(out).measurements
    ]
    shares = [looking / seconds for looking, seconds in spent]
    total = sum(looking for looking, _ in spent) / sum(seconds for _, seconds in spent)
    return {"processes": len(spent), "share": total, "largest": max(shares)}


def main() -> None:
    """Measure what is asked for, and write it."""
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--only", nargs="+", choices=PARTS, default=PARTS)
    options = made.parse_args()
    if options.only == ["sampling"]:
        made.error("sampling is of the processes of the other parts: name one of them as well")
    sys.path.insert(0, str(HERE))  # where the networks are
    results: dict[str, Any] = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    command = "python benchmarks/" + " ".join([Path(sys.argv[0]).name, *sys.argv[1:]])
    about = {"command": command, "threads": cores(), "processor": processor(), "versions": made_with()["versions"]}
    with tempfile.TemporaryDirectory(prefix="robustcmp-measuring-") as name:
        directory = Path(name)
        for part in options.only:
            load = os.getloadavg()[0]
            if part == "null":
                results[part] = null(directory)
            elif part == "slowed":
                results[part] = slower(directory)
            else:
                results[part] = sampling(directory)
            results[part] |= about | {"load": load}
            RESULTS.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()

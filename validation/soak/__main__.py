"""Try everything, or what is named: ``python -m soak [--quick] [--only NAME ...]``."""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import tempfile
import time
from importlib.metadata import version as installed
from pathlib import Path
from typing import Any

from . import page
from .kills import kill
from .material import made
from .pool import Tally, trials
from .readers import READERS

PARTS = {**{name: reader.title for name, reader in READERS.items()}, "kills": "commands that are killed"}
TRIALS, KILLS = 10_000, 200
QUICK, QUICK_KILLS = 300, 12
FOLDER = Path(__file__).parents[2] / "build" / "soak"
PACKAGES = ("robustcmp", "numpy", "h5py", "torch", "keras")


def try_part(name: str, count: int, seed: int, workers: int) -> dict[str, Any]:
    """Run a part, and return what came of it."""
    tally, start = Tally(), time.monotonic()

    def show() -> None:
        if sys.stderr.isatty():
            print(
                f"\r{PARTS[name]}: {tally.outcomes.total()} of {count}, {tally.failed} findings",
                end="",
                file=sys.stderr,
            )

    more: dict[str, Any] = {}
    if name == "kills":
        more = kill(count, seed=seed, workers=workers, tally=tally, shown=show)
    else:
        trials(name, made(FOLDER, [READERS[name].part]), count, seed=seed, workers=workers, tally=tally, shown=show)
    versions = {"python": platform.python_version(), "system": platform.system()}
    versions |= {package: installed(package) for package in PACKAGES}
    content = {"title": PARTS[name], "seed": seed, "seconds": round(time.monotonic() - start), **more}
    return content | tally.to_json() | {"versions": versions}


def main() -> int:
    """Run, keep what came out, and return 1 if anything was found."""
    parser = argparse.ArgumentParser(prog="python -m soak", description=__doc__, allow_abbrev=False)
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS), metavar="NAME", help=", ".join(PARTS))
    parser.add_argument("--quick", action="store_true", help="a few hundred trials each; the page stays as it is")
    parser.add_argument("--trial", type=int, metavar="N", help="run this one of the reader --only, with its traceback")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args()
    if options.trial is not None:
        reader = READERS[options.only[0]]
        with tempfile.TemporaryDirectory() as scratch:
            print(reader(made(FOLDER, [reader.part]), Path(scratch)).trial(options.seed, options.trial))
        return 0
    results: dict[str, Any] = {} if options.quick else json.loads(page.RESULTS.read_text(encoding="utf-8"))
    failed = 0
    for name in options.only:
        count = (QUICK_KILLS if options.quick else KILLS) if name == "kills" else QUICK if options.quick else TRIALS
        part = results[name] = try_part(name, count, options.seed, options.workers)
        failed += part["failed"]
        print(f"\r{PARTS[name]}: {part['outcomes']}, {part['failed']} failures", file=sys.stderr)
        for finding, examples in part["findings"].items():
            print(f"  {finding} ({examples[0]})", file=sys.stderr)
        if not options.quick:
            page.RESULTS.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
            page.write(results)
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())

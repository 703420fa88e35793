"""Try everything, or what is named: ``python -m soak [--quick] [--only NAME ...]``."""

from __future__ import annotations

import argparse
import itertools
import json
import os
import platform
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from . import page
from .disk import fill
from .kills import kill
from .material import made, version
from .pool import Tally, trials
from .readers import READERS

PARTS: dict[str, tuple[str, int]] = {
    **{name: (reader.title, reader.trials) for name, reader in READERS.items()},
    "kills": ("commands that are killed", 200),
    "disk": ("a full disk", 40),
}
QUICK = {"kills": 12, "disk": 8, "keras": 100, "hosts": 200, "bits": 1000}
FOLDER = Path(__file__).parents[2] / "build" / "soak"


def tried(name: str, count: int, seed: int, workers: int, tally: Tally, shown: Callable[[], None]) -> dict[str, Any]:
    """Run a part, and return what else there is to say of it."""
    options: dict[str, Any] = {"seed": seed, "workers": workers, "tally": tally, "shown": shown}
    if name == "kills":
        return kill(count, **options)
    if name == "disk":
        return fill(count, **options)
    trials(name, made(FOLDER, [READERS[name].part]), iter(range(count)), **options)
    return {}


def versions() -> dict[str, str]:
    """Return what was tried, and with what."""
    from importlib.metadata import version as installed

    packages = ("robustcmp", "numpy", "h5py", "torch", "keras", "tensorflow-cpu", "tensorflow")
    found = {"python": platform.python_version(), "system": platform.system(), "code": version()}
    for package in packages:
        try:
            found[package] = installed(package)
        except ImportError:
            continue
    return found


def one(name: str, seed: int, number: int) -> None:
    """Run one trial in this process, where its exception can be seen."""
    with tempfile.TemporaryDirectory() as scratch:
        reader = READERS[name](made(FOLDER, [READERS[name].part]), Path(scratch))
        print(json.dumps(reader.trial(seed, number)))


def main() -> int:
    """Run, keep what came out, and return 1 if anything was found."""
    parser = argparse.ArgumentParser(prog="python -m soak", description=__doc__, allow_abbrev=False)
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS), metavar="NAME", help=", ".join(PARTS))
    parser.add_argument("--quick", action="store_true", help="a few hundred trials each; the page stays as it is")
    parser.add_argument("--resume", action="store_true", help="leave out what was finished with the same code")
    parser.add_argument("--trials", type=int, metavar="N", help="how many of each part")
    parser.add_argument("--trial", type=int, metavar="N", help="run this one of the reader --only, with its traceback")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    given = parser.parse_args()
    if given.trial is not None:
        one(given.only[0], given.seed, given.trial)
        return 0
    whole = not given.quick and given.trials is None
    path = page.RESULTS if whole else FOLDER / "results.json"
    results: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    failed = 0
    for name in given.only:
        title, count = PARTS[name]
        count = given.trials or (QUICK.get(name, 300) if given.quick else count)
        before = results.get(name, {})
        if given.resume and before.get("complete") and before["versions"]["code"] == version():
            continue
        tally, start, complete, more = Tally(), time.monotonic(), False, {}
        times = itertools.count(1)

        def shown(tally: Tally = tally, title: str = title, count: int = count, times: Any = times) -> None:
            if sys.stderr.isatty() or next(times) % 1000 == 0:
                done = tally.outcomes.total()
                print(f"\r{title}: {done} of {count}, {tally.failed} findings", end="", file=sys.stderr, flush=True)

        try:
            more = tried(name, count, given.seed, given.workers, tally, shown)
            complete = True
        finally:
            seconds = time.monotonic() - start
            said = {"title": title, "complete": complete, "seed": given.seed, "seconds": round(seconds), **more}
            results[name] = said | tally.to_json() | {"versions": versions()}
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
            if whole:
                page.write(results)
            failed += tally.failed
            print(f"\r{title}: {page.sentence(results[name])}", file=sys.stderr)
            for what, found in list(results[name]["findings"].items())[:20]:
                example = found["examples"][0]
                print(
                    f"  {found['count']:5} {what} (trial {example['trial']}: {example.get('kind', '')})",
                    file=sys.stderr,
                )
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())

"""``robustcmp verify``: whether every file of a run or a benchmark is as it was written."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..errors import StoreError, UsageError
from .command import Parser, as_command, say
from .list import RUNS, print_rows


def _parser() -> Parser:
    parser = Parser(
        "robustcmp verify",
        "Check that every file of a run is there and as it was written.",
        "  robustcmp verify lenet5-mnist-guo2019\n  robustcmp verify runs/lenet5-mnist-guo2019 --sums",
    )
    parser.add_argument("run", metavar="RUN", help=f"a run's directory, or its name in {RUNS}")
    parser.add_argument("--json", action="store_true", help="print a JSON list of objects instead of a table")
    parser.add_argument(
        "--sums", action="store_true", help="write SHA256SUMS, for sha256sum --check, unless a file is broken"
    )
    return parser


@as_command("robustcmp verify")
def main(given: Sequence[str]) -> None:
    """Check what the arguments name, and write checksums of it."""
    from ..bench.store import BenchmarkStore
    from ..records.store import Run
    from ..records.upkeep import verify, write_sums

    options = _parser().parse_args(given)
    directory = _find_directory(options.run)
    benchmark = BenchmarkStore(directory)
    if options.sums and not (benchmark.is_there or Run(directory).has_results):
        raise UsageError(f"--sums is for a finished run: {directory} has no results.h5")
    rows: list[dict[str, Any]]
    if benchmark.is_there:
        rows = [{"file": str(file), "state": "broken", "reason": reason} for file, reason in benchmark.find_broken()]
    else:
        rows = [finding._asdict() | {"file": str(finding.file)} for finding in verify(Run(directory))]
    if rows or options.json:
        print_rows(rows, options.json)
    counts = Counter(row["state"] for row in rows)
    if options.sums and not counts["broken"]:
        say(f"wrote {write_sums(directory)}")
    if rows:
        states = ", ".join(f"{count} {state}" for state, count in sorted(counts.items()) if count)
        raise StoreError(f"{directory} is not whole: {states}.")
    say(f"{directory}: every file but the page is as it was written")


def _find_directory(name: str) -> Path:
    """Return the directory of a run, named by itself or by its name."""
    directory = Path(name) if Path(name).is_dir() else Path(RUNS) / name
    if not directory.is_dir():
        raise UsageError(f"there is no run {name}, and none in {RUNS}. See robustcmp list runs")
    return directory

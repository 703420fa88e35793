"""``robustcmp runs``: the runs in a directory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..errors import RobustcmpError
from .command import Parser, run_command, say
from .listing import listing_parser, print_listing

if TYPE_CHECKING:
    from ..bench.store import BenchmarkStore
    from ..records.store import Run

RUNS = "runs"  # where runs lie, and are looked for by name


def _parser() -> Parser:
    parser = listing_parser(
        "runs",
        "List the runs in a directory, finished or not.",
        "  robustcmp runs\n  robustcmp runs docs/results",
    )
    parser.add_argument("directory", nargs="?", default=RUNS, metavar="DIR", help="directory of the runs")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Do what the arguments name and return the exit status."""
    return run_command(_runs, "robustcmp runs", arguments)


def _runs(given: Sequence[str]) -> None:
    from ..records.store import runs_in

    options = _parser().parse_args(given)
    rows = [_row(run) for run in runs_in(options.directory)]
    if not rows and not options.json:
        say(f"no runs in {options.directory}. Create one with: robustcmp eval --model lenet5")
        return
    print_listing(rows, options.json)


def _of_benchmark(store: BenchmarkStore) -> dict[str, Any]:
    manifest = store.manifest()
    finished = all(planned.key in store for planned in manifest.plan)
    return {
        "model": manifest.about.get("model"),
        "dataset": manifest.about.get("dataset"),
        "suite": f"bench {manifest.about.get('what')}",
        "compared": ", ".join(dict.fromkeys(planned.asked.subject for planned in manifest.plan)),
        "state": "finished" if finished else "interrupted, or in part failed or not applicable",
    }


def _row(run: Run) -> dict[str, Any]:
    from ..bench.store import BenchmarkStore

    row: dict[str, Any] = dict.fromkeys(("run", "model", "dataset", "suite", "compared", "images", "state"))
    row["run"] = str(run.directory)
    benchmark = BenchmarkStore(run.directory)
    try:
        if benchmark.is_there:
            return row | _of_benchmark(benchmark)
        manifest = run.manifest()
        if not manifest:
            raise run.lost_manifest
    except RobustcmpError as error:
        return row | {"state": str(error)}
    trainings: dict[str, int] = {}
    for model in manifest["models"]:
        trainings[model["name"]] = trainings.get(model["name"], 0) + 1
    return row | {
        "model": manifest["about"].get("model"),
        "dataset": manifest["about"].get("dataset"),
        "suite": manifest["suite"]["name"],
        "compared": ", ".join(f"{name} × {count}" if count > 1 else name for name, count in trainings.items()),
        "images": manifest["images"]["used"],
        "state": "finished" if run.has_results else "interrupted",
    }

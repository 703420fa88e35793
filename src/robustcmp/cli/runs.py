"""``robustcmp runs``: the runs in a directory, and the upkeep of one."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import RobustcmpError, StoreError, UsageError
from .command import Parser, run_command, say
from .listing import listing_parser, print_listing

if TYPE_CHECKING:
    from ..records.benchmark_store import BenchmarkStore
    from ..records.store import Run

STATES = ("broken", "missing", "unsealed")
RUNS = "runs"  # where runs lie, and are looked for by name


def _parser() -> Parser:
    parser = listing_parser(
        "runs",
        "List the runs in a directory, finished or not; verify the files of a run; or repair a run whose manifest is "
        "lost or broken.",
        "  robustcmp runs\n"
        "  robustcmp runs docs/results\n"
        "  robustcmp runs verify lenet5-mnist-guo2019\n"
        "  robustcmp runs repair runs/lenet5-mnist-guo2019",
    )
    parser.usage = "robustcmp runs [--json] [DIR]\n       robustcmp runs [--json] {verify,repair} RUN"
    parser.add_argument(
        "words",
        nargs="*",
        metavar="DIR",
        help=f"directory of the runs (default: {RUNS}); after verify or repair, the name or directory of a run",
    )
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Do what the arguments name and return the exit status."""
    return run_command(_runs, "robustcmp runs", arguments)


def _runs(given: Sequence[str]) -> None:
    options = _parser().parse_args(given)
    actions = {"verify": _verify, "repair": _repair}
    action = actions.get(options.words[0]) if options.words else None
    if action:
        _, *names = options.words
        if len(names) != 1:
            raise UsageError(f"expected one run to {options.words[0]}, received {len(names)}. See robustcmp runs")
        action(options, _named(names[0]))
    elif len(options.words) > 1:
        raise UsageError(f"expected verify, repair, or one directory, received {' '.join(options.words)}")
    else:
        _list(options, options.words[0] if options.words else RUNS)


def _named(name: str) -> Run:
    """Return the run in a directory, or of a name."""
    from ..records.store import Run

    directory = Path(name) if Path(name).is_dir() else Path(RUNS) / name
    if not directory.is_dir():
        raise UsageError(f"there is no run {name}, and none in {RUNS}. See robustcmp runs")
    return Run(directory)


def _list(options: Namespace, directory: str) -> None:
    from ..records.store import runs_in

    rows = [_row(run) for run in runs_in(directory)]
    if not rows and not options.json:
        say(f"no runs in {directory}. Create one with: robustcmp eval --model lenet5")
        return
    print_listing(rows, options.json)


def _verify(options: Namespace, run: Run) -> None:
    from ..records.benchmark_store import BenchmarkStore
    from ..records.upkeep import verify

    benchmark = BenchmarkStore(run.directory)
    if benchmark.is_there:
        rows = [{"file": str(file), "state": STATES[0], "reason": reason} for file, reason in benchmark.broken()]
    else:
        rows = [finding._asdict() | {"file": str(finding.file)} for finding in verify(run)]
    if rows or options.json:
        print_listing(rows, options.json)
    if rows:
        counts = [f"{count} {state}" for state in STATES if (count := sum(row["state"] == state for row in rows))]
        raise StoreError(f"{run.directory} is not whole: {', '.join(counts)}.")
    say(f"{run.directory}: every file is as it was written")


def _repair(options: Namespace, run: Run) -> None:
    from ..records.upkeep import repair

    with run.writing():
        done = repair(run)
    if options.json:
        print_listing([{"done": line} for line in done], True)
    else:
        say("\n".join(done))


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
    from ..records.benchmark_store import BenchmarkStore

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

"""``robustcmp list``: models, suites, datasets, runs, hosts and deployments that there are."""

from __future__ import annotations

import json
import sys
from argparse import Namespace
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import HostError, RobustcmpError, UsageError
from .command import Parser, as_command, say
from .screen import use_color

if TYPE_CHECKING:
    from ..bench.store import BenchmarkStore
    from ..records.store import Run

RUNS = "runs"  # where runs lie, and are looked for by name
KINDS = ("zoo", "suites", "data", "runs", "hosts", "deployments")
Rows = list[dict[str, Any]]


def _parser() -> Parser:
    parser = Parser(
        "robustcmp list",
        "List the trained models that ship or were trained here (zoo), the suites of attacks, the datasets and where "
        "they are (data), the runs in a directory, the environments of hosts, or what models can be converted to "
        "(deployments).",
        "  robustcmp list zoo\n  robustcmp list runs docs/results",
    )
    parser.add_argument("kind", choices=KINDS, help=", ".join(KINDS))
    parser.add_argument("directory", nargs="?", metavar="DIR", help=f"the directory of the runs (default: {RUNS})")
    parser.add_argument("--json", action="store_true", help="print a JSON list of objects instead of a table")
    return parser


@as_command("robustcmp list")
def main(given: Sequence[str]) -> None:
    """List what the arguments name."""
    options = _parser().parse_args(given)
    if options.directory and options.kind != "runs":
        raise UsageError(
            f"only runs are listed by directory: expected no argument after {options.kind}, received "
            f"{options.directory}"
        )
    if options.kind == "runs":
        _list_runs(options)
        return
    rows = {"zoo": _models, "suites": _suites, "data": _datasets, "hosts": _hosts, "deployments": _deployments}
    print_rows(rows[options.kind](), options.json)


def print_rows(rows: Sequence[dict[str, Any]], as_json: bool) -> None:
    """Print rows, a table whose columns are their keys: as wide as the terminal, or as needed where there is none."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    from ..report.layout import make_console

    if as_json:
        print(json.dumps(rows, indent=1))
        return
    width = None if sys.stdout.isatty() else 10_000
    console = make_console(width=width, force_terminal=use_color(sys.stdout))
    table = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for name in rows[0] if rows else ():
        table.add_column(name.replace("_", " "), overflow="fold")
    for row in rows:
        table.add_row(*("–" if value is None else str(value) for value in row.values()))
    console.print(table)


def _models() -> Rows:
    from ..sources.from_zoo import SOURCES, list_trainings

    keys = ("model", "dataset", "recipe", "framework", "source")
    groups: dict[tuple[str, ...], Rows] = {}
    for trained in sorted(list_trainings(), key=lambda trained: [trained[key] for key in keys]):
        groups.setdefault(tuple(trained[key] for key in keys), []).append(trained)
    return [
        {
            "model": model,
            "dataset": dataset,
            "recipe": recipe,
            "framework": framework,
            "training_seeds": ", ".join(map(str, sorted(trained["training_seed"] for trained in trainings))),
            "test_accuracy": _percent_range([trained["test_accuracy"] for trained in trainings]),
            "from": SOURCES[source],
        }
        for (model, dataset, recipe, framework, source), trainings in groups.items()
    ]


def _percent_range(shares: Sequence[float]) -> str:
    ends = dict.fromkeys(f"{100 * share:.2f}" for share in (min(shares), max(shares)))
    return f"{' to '.join(ends)} %"


def _suites() -> Rows:
    from ..records.manifest import read_suite_file, suite_names

    suites = {name: read_suite_file(name) for name in suite_names()}
    return [
        {
            "suite": name,
            "attacks": ", ".join(suite.attacks),
            "images": suite.images,
            "repeats": suite.repeats,
            "description": suite.description,
        }
        for name, suite in suites.items()
    ]


def _datasets() -> Rows:
    from ..data import DATASETS, describe, whereabouts
    from ..sources.recipes import models_on

    return [
        {"dataset": name, "what": describe(name), "models": ", ".join(models_on(name)), "where": whereabouts(name)}
        for name in DATASETS
    ]


def _hosts() -> Rows:
    from ..hosts.environments import describe, is_ready, known

    rows: Rows = []
    for name in known():
        row: dict[str, Any] = {"host": name, "framework": None, "version": None, "python": None, "numpy": None}
        state = f"not installed; create it with robustcmp hosts create {name}"
        if is_ready(name):
            try:
                about = describe(name)
                row |= {key: about[key] for key in ("framework", "version", "python", "numpy")}
                state = "installed"
            except HostError as error:
                state = str(error)
        rows.append(row | {"state": state})
    return rows


def _deployments() -> Rows:
    from ..deployments import conversion, names, split

    rows: Rows = []
    for name in names():
        runtime, _ = split(name)
        how = conversion(name)
        missing = runtime.explain_absence()
        rows.append(
            {
                "deployment": name,
                "weights": how.precision,
                "conversion": how.description,
                "version": None if missing else runtime.version(),
                "not_here": missing or None,
            }
        )
    return rows


def _list_runs(options: Namespace) -> None:
    from ..records.store import Run

    directory = options.directory or RUNS
    runs = [Run(path) for path in sorted(Path(directory).glob("*/"))]
    rows = [_describe_run(run) for run in runs if run.is_there]
    if not rows and not options.json:
        say(f"no runs in {directory}. Create one with: robustcmp eval --model lenet5")
        return
    print_rows(rows, options.json)


def _describe_run(run: Run) -> dict[str, Any]:
    from ..bench.store import BenchmarkStore

    row: dict[str, Any] = dict.fromkeys(("run", "model", "dataset", "suite", "compared", "images", "state"))
    row["run"] = str(run.directory)
    benchmark = BenchmarkStore(run.directory)
    try:
        if benchmark.is_there:
            return row | _describe_benchmark(benchmark)
        manifest = run.manifest()
    except RobustcmpError as error:
        return row | {"state": str(error)}
    if not manifest:
        return row | {"state": "manifest.json is missing: rerun the command that made it"}
    trainings = Counter(model["name"] for model in manifest["models"])
    return row | {
        "model": manifest["about"].get("model"),
        "dataset": manifest["about"].get("dataset"),
        "suite": manifest["suite"]["name"],
        "compared": ", ".join(f"{name} × {count}" if count > 1 else name for name, count in trainings.items()),
        "images": manifest["images"]["used"],
        "state": "finished" if run.has_results else "interrupted",
    }


def _describe_benchmark(store: BenchmarkStore) -> dict[str, Any]:
    manifest = store.manifest()
    finished = all(planned.key in store for planned in manifest.plan)
    return {
        "model": manifest.about.get("model"),
        "dataset": manifest.about.get("dataset"),
        "suite": f"bench {manifest.about.get('what')}",
        "compared": ", ".join(dict.fromkeys(planned.asked.subject for planned in manifest.plan)),
        "state": "finished" if finished else "interrupted, or in part failed or not applicable",
    }

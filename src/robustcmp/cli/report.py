"""``robustcmp report``: a finished run or benchmark as a page, or in the formats of other programs."""

from __future__ import annotations

import json
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import UsageError
from ..files import write_named
from .command import Parser, run_command, say
from .screen import screen_width, show

if TYPE_CHECKING:
    from ..bench.benchmark import Benchmark
    from ..evaluation import Evaluation

FORMATS = ("html", "text", "csv", "parquet", "json", "latex", "bibtex")


def _parser() -> Parser:
    parser = Parser(
        "robustcmp report",
        "Write a finished run: one self-contained HTML page about it, or about two side by side; all its tables and "
        "notes (text); rates or outcomes (csv, parquet); the summary as JSON; a table for a paper (latex); or what to "
        "cite (bibtex). It is built from the stored run; no framework is needed.",
        "  robustcmp report runs/lenet5-mnist-guo2019\n"
        "  robustcmp report runs/lenet5-mnist-guo2019 runs/lenet1-mnist-guo2019 --out two.html\n"
        "  robustcmp report runs/lenet5-mnist-guo2019 --format csv > rates.csv\n"
        "  robustcmp report runs/lenet5-mnist-guo2019 --format parquet --per-image --out outcomes.parquet",
    )
    parser.add_argument("run", metavar="RUN", help="the run's directory, for example runs/lenet5-mnist-guo2019")
    parser.add_argument("beside", nargs="?", metavar="RUN", help="another run, shown side by side with the first")
    parser.add_argument("--format", choices=FORMATS, default="html", help=", ".join(FORMATS))
    parser.add_argument(
        "--per-image", action="store_true", help="csv, parquet: one row per repeat and image, not per rate"
    )
    parser.add_argument(
        "--out",
        metavar="FILE",
        help="the file to write (default: standard output; of a page RUN/report.html, for two runs RUN-and-RUN.html)",
    )
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Write what the arguments name and return the exit status."""
    return run_command(_report, "robustcmp report", arguments)


def _report(given: Sequence[str]) -> None:
    options = _parser().parse_args(given)
    if options.per_image and options.format not in ("csv", "parquet"):
        raise UsageError("--per-image requires --format csv or parquet")
    if options.format == "parquet" and not options.out:
        raise UsageError("Parquet is a binary format: name a file with --out")
    if options.beside and options.format != "html":
        raise UsageError(f"only a page shows two runs side by side: leave out --format {options.format}, or one run")
    from ..bench.benchmark import open_benchmark
    from ..bench.store import BenchmarkStore
    from ..evaluation import open_run

    if BenchmarkStore(Path(options.run)).is_there and not options.beside:
        _write_benchmark(open_benchmark(options.run), options)
        return
    ev = open_run(options.run)
    if options.format == "html":
        _write_page(ev, options)
    elif options.format == "parquet":
        ev.to_parquet(options.out, per_image=options.per_image)
    else:
        _write_text(_format_run(ev, options), options.out)


def _write_page(ev: Evaluation, options: Namespace) -> None:
    from ..evaluation import open_run

    page = Path(options.out or Path(options.run) / "report.html")
    beside = [open_run(options.beside)] if options.beside else []
    if beside and not options.out:
        page = Path(f"{Path(options.run).resolve().name}-and-{Path(options.beside).resolve().name}.html")
    ev.to_html(page, *beside)
    say("the page:")
    show(page)


def _format_run(ev: Evaluation, options: Namespace) -> str:
    from ..report.exports import to_csv

    if options.format == "text":
        return ev.to_text(width=screen_width()) + "\n"
    if options.format == "csv":
        return to_csv(ev, per_image=options.per_image)
    if options.format == "json":
        return json.dumps(ev.to_json()) + "\n"
    return ev.to_latex() if options.format == "latex" else ev.to_bibtex()


def _write_benchmark(benchmark: Benchmark, options: Namespace) -> None:
    if options.format == "html":
        page = Path(options.out or Path(options.run) / "report.html")
        benchmark.to_html(page)
        say("the page:")
        show(page)
    elif options.format == "text":
        _write_text(benchmark.to_text(width=screen_width()) + "\n", options.out)
    elif options.format == "json":
        _write_text(json.dumps(benchmark.to_json()) + "\n", options.out)
    else:
        raise UsageError(
            f"{options.run} is a benchmark: expected --format html, text or json, received {options.format}"
        )


def _write_text(text: str, path: str | None) -> None:
    if path:
        write_named(path, lambda temporary: temporary.write_text(text, encoding="utf-8"))
    else:
        print(text, end="")

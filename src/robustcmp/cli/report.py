"""``robustcmp report``: a finished run or benchmark as a page, or in the formats of other programs."""

from __future__ import annotations

import json
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import UsageError
from ..files import write_named
from .command import Parser, as_command, say
from .screen import screen_width, show

if TYPE_CHECKING:
    from ..bench.benchmark import Benchmark
    from ..evaluation import Evaluation

FORMATS = ("html", "text", "csv", "json", "latex", "bibtex")
OF_BENCHMARKS = ("html", "text", "json")


def _parser() -> Parser:
    parser = Parser(
        "robustcmp report",
        "Write a finished run as one self-contained HTML page, all tables and notes (text), rates (csv), a summary "
        "(json), a table for a paper (latex), or what to cite (bibtex). No framework is needed.",
        "  robustcmp report runs/lenet5-mnist-guo2019\n"
        "  robustcmp report runs/lenet5-mnist-guo2019 --format csv > rates.csv",
    )
    parser.add_argument("run", metavar="RUN", help="the run's directory, for example runs/lenet5-mnist-guo2019")
    parser.add_argument("--format", choices=FORMATS, default="html", help=", ".join(FORMATS))
    parser.add_argument(
        "--out", metavar="FILE", help="the file to write (default: standard output; for a page RUN/report.html)"
    )
    parser.add_argument(
        "--adversarials", metavar="DIR", help="also write the adversarial images as PNG files, DIR/MODEL/ATTACK/CLASS"
    )
    return parser


@as_command("robustcmp report")
def main(given: Sequence[str]) -> None:
    """Write what the arguments name."""
    options = _parser().parse_args(given)
    from ..bench.store import BenchmarkStore

    source: Evaluation | Benchmark
    if BenchmarkStore(Path(options.run)).is_there:
        if options.format not in OF_BENCHMARKS or options.adversarials:
            raise UsageError(f"{options.run} is a benchmark: expected --format html, text or json, without images")
        from ..bench.benchmark import open_benchmark

        source = open_benchmark(options.run)
    else:
        from ..evaluation import open_run

        source = open_run(options.run)
        if options.adversarials:
            _write_adversarials(source, options)
    if options.format == "html":
        page = Path(options.out or Path(options.run) / "report.html")
        source.to_html(page)
        say("the page:")
        show(page)
    elif options.out:
        write_named(options.out, _format(source, options))
    else:
        print(_format(source, options), end="")


def _write_adversarials(run: Evaluation, options: Namespace) -> None:
    from ..report.exports import write_adversarials

    written = write_adversarials(run.results, Path(options.adversarials))
    if not written:
        raise UsageError(f"{options.run} was stored without adversarial images: compare again without --no-images")
    say(f"{written:,} adversarial images: {options.adversarials}")


def _format(source: Evaluation | Benchmark, options: Namespace) -> str:
    from ..evaluation import Evaluation
    from ..report.exports import to_bibtex, to_csv
    from ..report.text import to_text

    if options.format == "json":
        return json.dumps(source.to_json()) + "\n"
    if not isinstance(source, Evaluation):
        return source.to_text(width=screen_width()) + "\n"
    if options.format == "text":
        return to_text(source.results, screen_width()) + "\n"
    if options.format == "csv":
        return to_csv(source.results)
    return source.to_latex() if options.format == "latex" else to_bibtex(source.results)

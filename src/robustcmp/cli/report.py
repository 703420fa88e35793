"""``robustcmp report``: a page about a run, or about two side by side."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from .command import Parser, run_command, say
from .screen import show


def _parser() -> Parser:
    parser = Parser(
        "robustcmp report",
        "Write one self-contained HTML page about a finished run, or about two side by side. The page is "
        "built from the stored run; no framework is needed.",
        "  robustcmp report runs/lenet5-mnist-guo2019\n"
        "  robustcmp report runs/lenet5-mnist-guo2019 runs/lenet1-mnist-guo2019 --out two.html",
    )
    parser.add_argument("run", metavar="RUN", help="the run's directory, for example runs/lenet5-mnist-guo2019")
    parser.add_argument("beside", nargs="?", metavar="RUN", help="another run, shown side by side with the first")
    parser.add_argument(
        "--out", metavar="FILE", help="the page (default: RUN/report.html, for two runs RUN-and-RUN.html)"
    )
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the page that the arguments name and return the exit status."""
    return run_command(_report, "robustcmp report", arguments)


def _report(given: Sequence[str]) -> None:
    options = _parser().parse_args(given)
    from ..bench.benchmark import open_benchmark
    from ..bench.store import BenchmarkStore
    from ..evaluation import open_run

    directories = [Path(name) for name in (options.run, options.beside) if name]
    if BenchmarkStore(directories[0]).is_there and not options.beside:
        page = Path(options.out or directories[0] / "report.html")
        open_benchmark(directories[0]).to_html(page)
        say("the page:")
        show(page)
        return
    run, *beside = [open_run(directory) for directory in directories]
    names = "-and-".join(directory.resolve().name for directory in directories)
    out = Path(options.out or (f"{names}.html" if beside else directories[0] / "report.html"))
    run.to_html(out, *beside)
    say("the page:")
    show(out)

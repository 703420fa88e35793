"""``robustcmp export``: a finished run in the formats of other programs."""

from __future__ import annotations

from collections.abc import Sequence

from ..errors import UsageError
from ..files import write_named
from .command import Parser, run_command

FORMATS = ("csv", "parquet", "latex", "bibtex")


def _parser() -> Parser:
    parser = Parser(
        "robustcmp export",
        "Write a finished run as a table of rates or outcomes (CSV, Parquet), a table for a paper (LaTeX), or what to "
        "cite (BibTeX). No framework is needed.",
        "  robustcmp export runs/lenet5-mnist-guo2019 > rates.csv\n"
        "  robustcmp export runs/lenet5-mnist-guo2019 --format parquet --per-image --out outcomes.parquet\n"
        "  robustcmp export runs/lenet5-mnist-guo2019 --format latex",
    )
    parser.add_argument("run", metavar="RUN", help="the run's directory")
    parser.add_argument("--format", choices=FORMATS, default="csv", help=", ".join(FORMATS))
    parser.add_argument(
        "--per-image", action="store_true", help="csv, parquet: one row per repeat and image, not per rate"
    )
    parser.add_argument("--out", metavar="FILE", help="the file to write (default: standard output)")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Export a run and return the exit status."""
    return run_command(_export, "robustcmp export", arguments)


def _export(given: Sequence[str]) -> None:
    options = _parser().parse_args(given)
    if options.per_image and options.format not in ("csv", "parquet"):
        raise UsageError("--per-image requires --format csv or parquet")
    if options.format == "parquet" and not options.out:
        raise UsageError("Parquet is a binary format: name a file with --out")
    from ..evaluation import open_run
    from ..report.frames import to_csv

    ev = open_run(options.run)
    if options.format == "parquet":
        ev.to_parquet(options.out, per_image=options.per_image)
        return
    if options.format == "csv":
        text = to_csv(ev, per_image=options.per_image)
    else:
        text = ev.to_latex() if options.format == "latex" else ev.to_bibtex()
    if options.out:
        write_named(options.out, lambda temporary: temporary.write_text(text, encoding="utf-8"))
    else:
        print(text, end="")

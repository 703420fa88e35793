"""``robustcmp forensics``: how published rates may have come about."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence

from ..errors import check_count
from .command import Parser, run_command
from .screen import screen_width, use_color


def _parser() -> Parser:
    parser = Parser(
        "robustcmp forensics",
        "Compare published success rates with the fingerprints of networks that were trained, wrapped or counted in "
        "certain ways, and say how many repeats the steps of the rates are consistent with. No framework is needed.",
        "  robustcmp forensics\n  robustcmp forensics rates.toml --images 1000 --repeats 10 --json",
    )
    parser.add_argument(
        "rates", nargs="?", metavar="RATES.toml", help="published rates: [success_rate.MODEL] (default: the paper's)"
    )
    parser.add_argument("--images", type=int, metavar="N", help="the stated number of images (default: the file's)")
    parser.add_argument("--repeats", type=int, metavar="N", help="the stated number of repeats (default: the file's)")
    parser.add_argument("--nearest", type=int, default=3, metavar="N", help="how many fingerprints are shown for each")
    parser.add_argument("--json", action="store_true", help="print a JSON object instead of tables")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Compare published rates and return the exit status."""
    return run_command(_forensics, "robustcmp forensics", arguments)


def _forensics(given: Sequence[str]) -> None:
    options = _parser().parse_args(given)
    from ..analysis.forensics import fingerprints, read_published, to_json
    from ..report.forensics import MEANING, beside, steps
    from ..report.terminal import console_for, print_table

    for name in ("images", "repeats", "nearest"):
        if getattr(options, name) is not None:
            check_count(f"--{name}", getattr(options, name))
    published, known = read_published(options.rates), fingerprints()
    published = published.stating(options.images, options.repeats)
    if options.json:
        print(json.dumps(to_json(published, known, options.nearest), indent=1))
        return
    console = console_for(sys.stdout, screen_width(), use_color(sys.stdout))
    for table in (steps(published), beside(published, known, options.nearest)):
        console.print(table.title, style="bold")
        print_table(console, table)
        console.print()
    for sentence in MEANING:
        console.print(f"• {sentence}")

"""``robustcmp suites``: the suites of attacks that ship."""

from __future__ import annotations

from collections.abc import Sequence

from .command import Parser, run_command
from .listing import listing_parser, print_listing


def _parser() -> Parser:
    return listing_parser(
        "suites",
        "List the suites of attacks that ship with robustcmp. A suite of your own is a TOML file: --suite FILE.toml.",
        "  robustcmp suites",
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """List the suites and return the exit status."""
    return run_command(_suites, "robustcmp suites", arguments)


def _suites(given: Sequence[str]) -> None:
    options = _parser().parse_args(given)
    from ..records.suite_file import read_suite_file, suite_names

    suites = {name: read_suite_file(name) for name in suite_names()}
    print_listing(
        [
            {
                "suite": name,
                "attacks": ", ".join(suite.attacks),
                "images": suite.images,
                "repeats": suite.repeats,
                "description": suite.description,
            }
            for name, suite in suites.items()
        ],
        options.json,
    )

"""``robustcmp deployments``: what trained models can be converted to, and what of it runs here."""

from __future__ import annotations

from collections.abc import Sequence

from .command import Parser, run_command
from .listing import listing_parser, print_listing


def _parser() -> Parser:
    return listing_parser(
        "deployments",
        "List what trained models can be converted to for a comparison: python -m robustcmp.eval --deploy NAME.",
        "  robustcmp deployments",
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """List the deployments and return the exit status."""
    return run_command(_deployments, "robustcmp deployments", arguments)


def _deployments(given: Sequence[str]) -> None:
    options = _parser().parse_args(given)
    from ..deployments import conversion, names, split

    rows = []
    for name in names():
        runtime, _ = split(name)
        said, missing = conversion(name), runtime.missing() or runtime.not_applicable
        rows.append(
            {
                "deployment": name,
                "weights": said.precision,
                "conversion": said.said,
                "version": None if missing else runtime.version(),
                "not_here": missing or None,
            }
        )
    print_listing(rows, options.json, sentences=True)

"""``robustcmp data``: the datasets, and where they are."""

from __future__ import annotations

from collections.abc import Sequence

from .command import Parser, run_command
from .listing import listing_parser, print_listing


def _parser() -> Parser:
    return listing_parser(
        "data",
        "List the datasets: the models trained on each, and where it is stored or downloaded from.",
        "  robustcmp data",
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """List the datasets and return the exit status."""
    return run_command(_data, "robustcmp data", arguments)


def _data(given: Sequence[str]) -> None:
    options = _parser().parse_args(given)
    from ..data import DATASETS, described, whereabouts
    from ..sources.recipes import models_on

    print_listing(
        [
            {
                "dataset": name,
                "what": described(name),
                "models": ", ".join(models_on(name)),
                "where": whereabouts(name),
            }
            for name in DATASETS
        ],
        options.json,
    )

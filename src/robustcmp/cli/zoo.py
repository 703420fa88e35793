"""``robustcmp zoo``: the trained models that there are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .command import Parser, run_command
from .listing import listing_parser, print_listing


def _parser() -> Parser:
    return listing_parser(
        "zoo", "List the trained models that ship with robustcmp and those trained on this machine.", "  robustcmp zoo"
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """List the trained models and return the exit status."""
    return run_command(_zoo, "robustcmp zoo", arguments)


def _zoo(given: Sequence[str]) -> None:
    options = _parser().parse_args(given)
    from ..sources.from_zoo import SOURCES, all_trained, spans

    keys = ("model", "dataset", "recipe", "framework", "source")
    groups: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    for trained in sorted(all_trained(), key=lambda trained: [trained[key] for key in keys]):
        groups.setdefault(tuple(trained[key] for key in keys), []).append(trained)
    print_listing(
        [
            {
                "model": model,
                "dataset": dataset,
                "recipe": recipe,
                "framework": framework,
                "training_seeds": spans(trained["training_seed"] for trained in trainings),
                "test_accuracy": spread([trained["test_accuracy"] for trained in trainings]),
                "from": SOURCES[source],
            }
            for (model, dataset, recipe, framework, source), trainings in groups.items()
        ],
        options.json,
    )


def spread(shares: Sequence[float]) -> str:
    """Return the smallest and the largest share in percent."""
    ends = dict.fromkeys(f"{100 * share:.2f}" for share in (min(shares), max(shares)))
    return f"{' to '.join(ends)} %"

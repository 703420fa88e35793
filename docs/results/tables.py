"""Write the tables of the runs in this folder into the pages that have marks for them.

``python docs/results/tables.py``
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from itertools import product
from pathlib import Path

import numpy as np

import robustcmp as rc
from robustcmp.report import to_markdown

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
PAGES = {
    "README.md": False,
    "docs/results.md": True,
    "docs/is-it-the-framework.md": True,
}  # and whether they have all tables
RUNS = sorted(path.parent.name for path in HERE.glob("*/results.h5"))
FIRST = 5  # what the comparison says, and two tables with their titles


def fill(text: str, name: str, make: Callable[[], str]) -> str:
    """Return the text with what is made between the marks of that name, if it has them."""
    before, mark, rest = text.partition(f"<!-- {name} -->\n")
    if not mark:
        return text
    _, end, after = rest.partition(f"<!-- /{name} -->")
    return f"{before}{mark}\n{make()}\n\n{end}{after}"


def page(text: str, whole: bool) -> str:
    """Return a page with what belongs between its marks."""
    for run in RUNS:
        text = fill(text, run, lambda run=run: tables(run, whole))
        text = fill(text, f"{run}, one training each", lambda run=run: one_training_each(run))
    return fill(text, "same-weights", controls)


def tables(run: str, whole: bool) -> str:
    """The tables of a run, or the first of them."""
    blocks = to_markdown(rc.open_run(HERE / run)).rstrip().split("\n\n")
    return "\n\n".join(blocks if whole else blocks[:FIRST])


def one_training_each(run: str) -> str:
    """What one training of each framework would have said, over all ways of picking them from a run."""
    ev = rc.open_run(HERE / run)
    rates = ev.success_rate.mean("repeat").transpose("model", "training_seed", "attack").values
    orders: Counter[tuple[str, ...]] = Counter()
    spreads = []
    for picked in product(range(rates.shape[1]), repeat=len(ev.models)):
        these = {
            model: dict(zip(ev.attacks, rates[i, seed], strict=True))
            for i, (model, seed) in enumerate(zip(ev.models, picked, strict=True))
        }
        r = rc.robustness_indicator(these)
        orders[tuple(sorted(r, key=lambda model: r[model]))] += 1
        spreads.append(np.ptp([its["fgsm"] for its in these.values()]))
    total = sum(orders.values())
    low, median, high = (f"{100 * value:.1f}" for value in np.quantile(spreads, (0.025, 0.5, 0.975)))
    rows = [f"| {' before '.join(order)} | {count} | {count / total:.0%} |" for order, count in orders.most_common()]
    first = Counter({model: sum(n for order, n in orders.items() if order[0] == model) for model in ev.models})
    said = ", ".join(f"{model} in {count / total:.0%}" for model, count in first.most_common())
    return "\n".join(
        [
            "| order by R, the most robust first | ways of picking | of all |",
            "| --- | ---: | ---: |",
            *rows,
            "",
            f"Of {total:,} ways, the most robust is {said}. The three FGSM rates differ by {low} to {high} points in "
            f"95 % of them, in half of them by more than {median}.",
        ]
    )


def controls() -> str:
    """The same-weights controls in same-weights/, each what --json printed."""
    rows = [
        "| model | frameworks | images | logits differ by | predictions | attack | fall in one and not in another |",
        "| --- | --- | ---: | ---: | ---: | --- | --- |",
    ]
    for path in sorted((HERE / "same-weights").glob("*.json")):
        run = json.loads(path.read_text(encoding="utf-8"))
        control = run["same_weights"]
        for attack, differ in control["differ"].items():
            pairs = [f"{pair.replace('|', ' and ')} {images}" for pair, images in differ.items() if images]
            rows.append(
                f"| {run['model']}, {run['dataset']} | {', '.join(run['frameworks'])} | {run['images']:,} | "
                f"{control['logits']:.1e} | {control['predictions']:.2%} | {attack} | "
                f"{', '.join(pairs) or f'none, in {len(differ)} pairs'} |"
            )
    return "\n".join(rows)


def main() -> None:
    """Write the pages anew."""
    for name, whole in PAGES.items():
        path = ROOT / name
        path.write_text(page(path.read_text(encoding="utf-8"), whole), encoding="utf-8")


if __name__ == "__main__":
    main()

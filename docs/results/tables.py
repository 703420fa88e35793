"""Write the tables of the runs in this folder into the pages that have marks for them.

``python docs/results/tables.py``
"""

from __future__ import annotations

import json
from pathlib import Path

import robustcmp as rc
from robustcmp.report import to_markdown

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
PAGES = {"README.md": False, "docs/results.md": True}  # and whether they have all tables
RUNS = sorted(path.parent.name for path in HERE.glob("*/results.h5"))
FIRST = 5  # what the comparison says, and two tables with their titles


def page(text: str, whole: bool) -> str:
    """Return a page with the tables of a run between each pair of marks that it has."""
    for run in RUNS:
        before, mark, rest = text.partition(f"<!-- {run} -->\n")
        if not mark:
            continue
        _, end, after = rest.partition(f"<!-- /{run} -->")
        blocks = to_markdown(rc.open_run(HERE / run)).rstrip().split("\n\n")
        shown = "\n\n".join(blocks if whole else blocks[:FIRST])
        text = f"{before}{mark}\n{shown}\n\n{end}{after}"
    before, mark, rest = text.partition("<!-- same-weights -->\n")
    if mark:
        _, end, after = rest.partition("<!-- /same-weights -->")
        text = f"{before}{mark}\n{controls()}\n\n{end}{after}"
    return text


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

"""Write the tables of the runs in this folder into README.md (the first two) and docs/results.md (all of them).

``python docs/results/tables.py``
"""

from __future__ import annotations

from pathlib import Path

import robustcmp as rc
from robustcmp.report import to_markdown

HERE = Path(__file__).parent
RUNS = sorted(path.parent.name for path in HERE.glob("*/results.h5"))
FIRST = 5  # what the comparison says, and two tables with their titles


def page(text: str, whole: bool) -> str:
    """Return a page with the tables of every run between its marks."""
    for run in RUNS:
        blocks = to_markdown(rc.open_run(HERE / run)).rstrip().split("\n\n")
        before, mark, rest = text.partition(f"<!-- {run} -->\n")
        _, end, after = rest.partition(f"<!-- /{run} -->")
        shown = "\n\n".join(blocks if whole else blocks[:FIRST])
        text = f"{before}{mark}\n{shown}\n\n{end}{after}"
    return text


def main() -> None:
    """Write both pages anew."""
    for path, whole in ((HERE.parents[1] / "README.md", False), (HERE.parent / "results.md", True)):
        path.write_text(page(path.read_text(encoding="utf-8"), whole), encoding="utf-8")


if __name__ == "__main__":
    main()

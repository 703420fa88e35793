"""Write the table of docs/what-you-can-bring.md from how the tests of it ended.

`make brought` tries everything anew. To try one thing again and keep the rest:
python -m pytest -m brought --brought tools/brought.json -k NAME && python tools/brought.py
"""

from __future__ import annotations

import json
import re
from itertools import groupby
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
RESULTS = HERE / "brought.json"
PAGE = HERE.parent / "docs" / "what-you-can-bring.md"
REFUSALS = "the message: ", "no answer: "
WORKS = "a comparison", "a dataset", "a file"
MARKS = "<!-- brought -->", "<!-- /brought -->"


def table(rows: list[dict[str, Any]]) -> str:
    """Return the rows in Markdown: for each group what works, by what is typed, and what is refused, by the remedy."""
    parts = []
    for group, members in groupby(sorted(rows, key=lambda row: (row["group"], row["what"])), lambda row: row["group"]):
        works: dict[str, list[str]] = {}
        refused: dict[str, list[str]] = {}
        for row in members:
            _check(row)
            got = row.get("got", "a comparison")
            if got.startswith(REFUSALS):
                refused.setdefault(got.partition(": ")[2], []).append(row["what"])
            else:
                works.setdefault(row["typed"], []).append(_note(row, got))
        parts += [
            f"### {group}",
            "",
            *_rows("you type | works with", [(f"`{typed}`", whats) for typed, whats in works.items()]),
        ]
        if refused:
            parts += [
                "",
                *_rows(
                    "refused | what the message says", [("; ".join(whats), [got]) for got, whats in refused.items()]
                ),
            ]
        parts.append("")
    return "\n".join(parts)


def _rows(head: str, rows: list[tuple[str, list[str]]]) -> list[str]:
    return [f"| {head} |", "|---|---|", *(f"| {first} | {'; '.join(second)} |" for first, second in rows)]


def _note(row: dict[str, Any], got: str) -> str:
    """Return what works, and what is special about it."""
    notes = [part for part in got.split("; ") if part not in WORKS]
    if row["outcome"] == "skipped":
        notes = ["not tried here"]
    return row["what"] + (f" ({'; '.join(notes)})" if notes else "")


def _check(row: dict[str, Any]) -> None:
    if row["outcome"] == "failed":
        raise SystemExit(f"the test of {row['what']} failed: the table shows what holds")


def page(text: str) -> str:
    """Return the page with the table between its marks."""
    rows = sorted(json.loads(RESULTS.read_text()).values(), key=lambda row: row["outcome"] == "passed")
    distinct = {(row["group"], row["what"]): row for row in rows}  # tried anywhere, rather than not
    pattern = re.compile(re.escape(MARKS[0]) + ".*" + re.escape(MARKS[1]), re.DOTALL)
    return pattern.sub(lambda _: f"{MARKS[0]}\n\n{table([*distinct.values()])}\n{MARKS[1]}", text)


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text()))
